"""The ``gpu_ops`` command: what happened in a Spark application, and query files run or explained here."""

from __future__ import annotations

import enum
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from gpu_ops.core.own_errors import translated
from gpu_ops.core.time import positive_ticks, ticks
from gpu_ops.devices import NAMES
from gpu_ops.errors import GpuOpsError, PlanError, SourceError

if TYPE_CHECKING:
    from gpu_ops.engines.live.fingerprints import IfFunctionsChanged

_UsageError: Any = typer.BadParameter.__base__


class _Commands(TyperGroup):
    """The commands. A wrong call gets an error of one line, as other errors do."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *more: Any, **options: Any) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        if not given or not options.get("standalone_mode", True):
            return super().main(args, prog_name, *more, **options)
        try:
            code = super().main(given, prog_name, *more, **options | {"standalone_mode": False})
        except _UsageError as error:
            command = "gpu_ops" if error.ctx is None else error.ctx.command_path
            problem = error.format_message().strip().rstrip(".")
            _say_error(f"{problem}. {command} --help shows all that there is.")
            code = error.exit_code
        sys.exit(code)


app = typer.Typer(
    cls=_Commands,
    help="Questions about events in time.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


def _device(name: str) -> str:
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(NAMES)}.")
    return name


class IfExists(enum.StrEnum):
    """What happens to an existing answer, as in `gpu_ops.Stream.write`."""

    refused = "raise"
    replaced = "replace"


QueryFile = Annotated[Path, typer.Argument(metavar="QUERY.py", help="A Python file that defines query(**inputs).")]
Inputs = Annotated[
    list[str],
    typer.Option("--input", metavar="NAME=PATH", help="A path that query gets under this name; once for each."),
]
On = Annotated[
    str,
    typer.Option(parser=_device, metavar=f"[{'|'.join(NAMES)}]", help="Where to run; auto takes a GPU if one works."),
]


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Ends the command with a message instead of a traceback, if the input or the query is wrong."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        said = error if isinstance(error, OSError) else translated(error, _readable_errors, "The command") or error
        _say_error(str(said) if isinstance(said, GpuOpsError | OSError) else f"{type(said).__name__}: {said}")
        raise typer.Exit(1) from error


def _say_error(text: str) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {escape(text)}", highlight=False, soft_wrap=True)


@app.command("spark-log")
def spark_log(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="An event log of Spark 3.5 or 4: a file, or a rolling log's folder.")
    ],
    *,
    output: Annotated[Path | None, typer.Option(help="A folder for the tables and the answers, as Parquet.")] = None,
    picture: Annotated[Path | None, typer.Option(help="A file for the timeline, such as timeline.png.")] = None,
    window: Annotated[str, typer.Option(help="How long a window of shuffled bytes is.")] = "10s",
    every: Annotated[str, typer.Option(help="From the start of one window to the next.")] = "5s",
    device: On = "auto",
) -> None:
    """What happened in a Spark application: tasks at once, idle cores, bytes shuffled.

    A task's shuffled bytes count at the time when it ended, which is when Spark reports them.
    """
    from gpu_ops.apps.queries import idle_cores, running_tasks, shuffled_bytes
    from gpu_ops.apps.spark_event_log import SparkLog
    from gpu_ops.apps.spark_report import SparkReport

    messages = Console(stderr=True)
    with _readable_errors():
        if picture is not None:
            _check_picture(picture)
        # Before the log is read, which may take long.
        positive_ticks(window, name="--window")
        positive_ticks(every, name="--every")
        log = SparkLog(path)
        with nullcontext(output) if output is not None else tempfile.TemporaryDirectory(prefix="gpu_ops-") as place:
            folder = Path(place)
            with messages.status(f"Reading {escape(str(path))}"):
                log.write(folder)
            tasks, cores = str(folder / "tasks.parquet"), str(folder / "cores.parquet")
            answers = {
                "running_tasks": running_tasks.query(tasks),
                "idle_cores": idle_cores.query(cores),
                "shuffled_bytes": shuffled_bytes.query(tasks, size=window, every=every),
            }
            for name, answer in answers.items():
                answer.write(folder / f"{name}.parquet", device=device, if_exists="replace")
            report = SparkReport(log, folder, window, every)
            report.print(Console())
            if picture is not None:
                picture.parent.mkdir(parents=True, exist_ok=True)
                report.draw().savefig(picture, dpi=150)
        for what, where in (("tables", output), ("picture", picture)):
            if where is not None:
                messages.print(f"{what}: {escape(str(where))}", highlight=False, soft_wrap=True)


@app.command()
def run(
    query: QueryFile,
    *,
    output: Annotated[
        Path,
        typer.Option(
            help="Where the answer goes: .parquet, .arrow, .ipc or .feather; a folder if there are several. "
            "With --follow, the folder of a store."
        ),
    ],
    inputs: Inputs = [],  # noqa: B006  (Typer copies it)
    follow: Annotated[
        str | None,
        typer.Option(metavar="NAME=STORE", help="Run live: follow a micro-batch store, which query gets by this name."),
    ] = None,
    late: Annotated[Path | None, typer.Option(help="With --follow: a store for the rows that came too late.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="With --follow: a file to go on from, exactly once, when run again.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(help="With --checkpoint: after how many batches it is written, or after how much time (10s)."),
    ] = None,
    keep: Annotated[
        int | None, typer.Option(help="With --checkpoint: how many are kept, older ones as FILE.1, FILE.2 …")
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt", help="With --follow: go on with stores that are not those of the checkpoint, such as a backup's."
        ),
    ] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="With --checkpoint: go on although functions in QUERY.py changed.")
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(help="With --follow: how long without a new batch until it ends (10s).")
    ] = None,
    if_exists: Annotated[
        IfExists | None, typer.Option(help="What is at --output: left, with an error (raise), or replaced.")
    ] = None,
    device: On = "auto",
) -> None:
    """Run a query file here, once over all there is, or live. The same file runs on Spark with spark_conf/job.py.

    With --follow, SIGTERM and SIGINT (Ctrl-C) end the batch that is at work and write the checkpoint; the exit code is
    then 143 or 130.
    """
    from gpu_ops.apps.queries import parse_inputs, query_answers

    with _readable_errors():
        paths = parse_inputs(inputs)
        checkpointed = {"--every": every, "--keep": keep, "--accept-changes": accept_changes or None}
        followed = {"--late": late, "--checkpoint": checkpoint, "--adopt": adopt or None, "--timeout": timeout}
        if checkpoint is None:
            _refuse(checkpointed, "--checkpoint", "--checkpoint FILE")
        if follow is not None:
            if if_exists is not None:
                raise PlanError(
                    "--if-exists is about a file, and with --follow --output is a store.", remedy="Leave it out."
                )
            if timeout is not None:
                ticks(timeout, name="--timeout")
            care = _Care(checkpoint, every, keep, adopt, accept_changes)
            _follow(query, paths, follow, output, late, care, timeout, device)
            return
        _refuse(followed, "--follow", "--follow NAME=STORE")
        answers = query_answers(query, paths)
        if isinstance(answers, dict):
            streams = {output / f"{name}.parquet": stream for name, stream in answers.items()}
        else:
            streams = {output: answers}
        replaces: Literal["raise", "replace"] = "replace" if if_exists is IfExists.replaced else "raise"
        if replaces == "raise":
            # Before the first is computed, which may take long.
            _refuse_existing(streams)
        if isinstance(answers, dict):
            output.mkdir(parents=True, exist_ok=True)
        for path, stream in streams.items():
            written = stream.write(path, device=device, if_exists=replaces)
            Console(stderr=True).print(f"{written.rows:,} rows: {escape(str(path))}", highlight=False, soft_wrap=True)


def _refuse_existing(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            raise SourceError(f"{path} exists.", remedy="Say --if-exists replace, or another --output.")


def _refuse(options: Mapping[str, object], needed: str, shown: str) -> None:
    for name, given in options.items():
        if given is not None:
            raise PlanError(f"{name} goes with {needed}.", remedy=f"Say {shown}, or leave it out.")


class _Care(NamedTuple):
    """The options of the command line for the checkpoint."""

    checkpoint: Path | None
    every: str | None
    keep: int | None
    adopt: bool
    accept_changes: bool


def _follow(
    query: Path,
    inputs: dict[str, str],
    followed: str,
    output: Path,
    late: Path | None,
    care: _Care,
    timeout: str | None,
    device: str,
) -> None:
    from gpu_ops.api.events import restore
    from gpu_ops.api.stream import Stream
    from gpu_ops.apps.queries import parse_inputs, query_answers
    from gpu_ops.engines.live.running_query import RunningQuery
    from gpu_ops.microbatches.stores import store

    ((name, path),) = parse_inputs([followed]).items()
    source = store(path)
    answer = query_answers(query, {**inputs, name: source})
    if not isinstance(answer, Stream):
        raise PlanError("A live query gives one stream.", remedy="Make a query file for each answer.")
    if care.checkpoint is not None and care.checkpoint.exists():
        changed: IfFunctionsChanged = "accept" if care.accept_changes else "raise"
        live = restore(care.checkpoint, answer, device=device, if_functions_changed=changed)
    else:
        live = answer.start(device=device)
    every = "100" if care.every is None else care.every
    messages = Console(stderr=True)
    with messages.status("waiting for the first batch") as line:

        def show(running: RunningQuery) -> None:
            line.update(escape(str(running.status())[len("<Status ") : -1]))

        status = live.follow(
            source,
            into=store(output),
            late_into=None if late is None else store(late),
            checkpoint=care.checkpoint,
            every=int(every) if every.strip().lstrip("-").isdecimal() else every,
            keep=1 if care.keep is None else care.keep,
            timeout=timeout,
            on_step=show if messages.is_terminal else None,
            stop_on=(signal.SIGTERM, signal.SIGINT),
            if_other_store="adopt" if care.adopt else "raise",
        )
    messages.print(escape(str(status)[len("<Status ") : -1]), highlight=False, soft_wrap=True)


@app.command()
def explain(query: QueryFile, *, inputs: Inputs, device: On = "auto") -> None:
    """Print a query file's plan: what runs where, and why."""
    from gpu_ops.apps.queries import parse_inputs, query_answers

    with _readable_errors():
        answers = query_answers(query, parse_inputs(inputs))
        if isinstance(answers, dict):
            plans = [f"{name}:\n{stream.explain(device=device)}" for name, stream in answers.items()]
        else:
            plans = [answers.explain(device=device)]
        print("\n\n".join(plans))  # noqa: T201


def _check_picture(picture: Path) -> None:
    from gpu_ops.plot import need_matplotlib

    need_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if picture.suffix.removeprefix(".").lower() not in known:
        raise PlanError(
            f"--picture {str(picture)!r} is no kind of picture that can be drawn.",
            remedy=f"End its name in {', '.join(f'.{name}' for name in sorted(known))}.",
        )
