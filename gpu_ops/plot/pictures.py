"""What all pictures share: a figure, the axis of time, colours, and errors for missing columns."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from gpu_ops.errors import ColumnError, GpuOpsError, unknown_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by colour-blind eyes too: Okabe and Ito's palette, https://jfly.uni-koeln.de/color/
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
GREY = "0.7"


def need_matplotlib() -> None:
    """Refuses to continue without matplotlib.

    Raises:
        GpuOpsError: It is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise GpuOpsError("Drawing needs matplotlib, which is not installed.", remedy="pip install 'gpu_ops[plot]'")


def picture(height: float = 4) -> Figure:
    """A figure that a notebook shows by itself; matplotlib's own is shown only where its pyplot is in use.

    Args:
        height: In inches.
    """
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            drawn = io.BytesIO()
            self.savefig(drawn, format="png")
            return drawn.getvalue()

    return Picture(figsize=(10, height), layout="constrained")


def check_columns(table: pa.Table, names: Sequence[str]) -> None:
    """Refuses missing columns and lifetimes.

    Raises:
        ColumnError: A column, start or end is missing, or start or end is no timestamp.
    """
    for name in ("start", "end", *names):
        if name not in table.column_names:
            raise unknown_column(name, table.column_names, what="result")
    for name in ("start", "end"):
        dtype = table.schema.field(name).type
        if not pa.types.is_timestamp(dtype):
            raise ColumnError(
                f"It is {dtype}, not a timestamp.", column=name, remedy="Make events of it: g.events(table, start=…)."
            )


def show_time(axes: Axes, schema: pa.Schema) -> None:
    """Times on the axis in the zone of the results."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    zone = schema.field("start").type.tz
    zone_info = pa.lib.string_to_tzinfo(zone or "UTC")
    locator = AutoDateLocator(tz=zone_info)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone_info))  # type: ignore[no-untyped-call]
    axes.set_xlabel(f"time ({zone})" if zone else "time")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def natural(key: tuple[object, ...]) -> list[tuple[int, int, str]]:
    """A sorting key that puts executor 2 before executor 10."""
    parts = re.split(r"(\d+)", " ".join(map(str, key)))
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]
