"""The options that several commands have."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from gpu_ops.devices import NAMES


def _device(name: str) -> str:
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(NAMES)}.")
    return name


class IfExists(enum.StrEnum):
    """How to treat an existing answer, as in `gpu_ops.Stream.write`."""

    refused = "raise"
    replaced = "replace"


TOPIC = "'kafka://BROKERS/TOPIC?value=json&columns=at:timestamp,…'"
"""How a topic is written, for the help of options."""

QueryFile = Annotated[Path, typer.Argument(metavar="QUERY.py", help="A Python file that defines query(**inputs).")]
Inputs = Annotated[
    list[str],
    typer.Option(
        "--input", metavar="NAME=PATH", help=f"The path of one input, or {TOPIC}; repeat the option for each."
    ),
]
Late = Annotated[
    str | None, typer.Option(help="With --follow: write late rows to this store, or to a topic like --output.")
]
Followed = Annotated[
    list[str],
    typer.Option(
        "--follow",
        metavar="NAME=STORE",
        help=f"Run live: follow a micro-batch store, whose events have times, or {TOPIC}; repeat the option for each.",
    ),
]
Delay = Annotated[
    str | None,
    typer.Option(
        help="With --follow of topics: how much later an event may come than one that is later in time (10s); what "
        "comes later still is an error, or goes to --late."
    ),
]
Kept = Annotated[
    Path | None, typer.Option(help="With --follow: save to this file or folder, and resume from it, exactly once.")
]
Patience = Annotated[str | None, typer.Option(help="With --follow: stop after this time without anything new (10s).")]
On = Annotated[
    str,
    typer.Option(parser=_device, metavar=f"[{'|'.join(NAMES)}]", help="The device; auto takes a GPU if one works."),
]
