"""What gpu_ops raises: every error names what was wrong, where, which rule it broke and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GpuOpsError(Exception):
    """The root of all gpu_ops errors.

    The message is built from parts that are kept as attributes, so that a program can read them too.

    Attributes:
        column: The column at fault, if one is.
        row: Zero-based index of the first row at fault in the source, if one is.
        remedy: What to do about it.

    Examples:
        >>> raise GpuOpsError("The price is negative.", column="price", row=3, remedy="Drop the row.")
        Traceback (most recent call last):
        gpu_ops.errors.GpuOpsError: The price is negative. [column 'price', row 3] Drop the row.
    """

    def __init__(
        self,
        problem: str,
        *,
        column: str | None = None,
        row: int | None = None,
        values: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.column = column
        self.row = row
        self.values = values
        self.remedy = remedy
        place = [f"column {column!r}"] if column is not None else []
        if row is not None:
            place.append(f"row {row}")
        if values is not None:
            place.append(values)
        parts = [problem, f"[{', '.join(place)}]" if place else "", remedy or ""]
        super().__init__(" ".join(part for part in parts if part))

    def __reduce__(self) -> tuple[object, ...]:
        # Spark workers send errors to the driver by pickle; keyword-only arguments need this.
        state = {
            "column": self.column,
            "row": self.row,
            "values": self.values,
            "remedy": self.remedy,
        }
        return _rebuild, (type(self), self.problem, state)


def _rebuild(kind: type[GpuOpsError], problem: str, state: dict[str, object]) -> GpuOpsError:
    return kind(problem, **state)  # type: ignore[arg-type]


class PlanError(GpuOpsError):
    """A query cannot mean what was written: wrong argument, wrong type, a verb that cannot stand there."""


class NotCollectedError(PlanError, TypeError):
    """A stream is asked for what only its answer has. A TypeError too: by that Python knows a length that is none."""


class ColumnError(PlanError):
    """A column is missing, of the wrong type, or named like another."""


class UnknownNameError(PlanError, AttributeError):
    """A stream, a window or the like has no verb of this name; the remedy says what to write instead."""


class TextError(PlanError):
    """A query that is written as a text cannot be read, or asks for something that gpu_ops does not have.

    Attributes:
        line: The line of the place, from 1.
        character: The character of that line, from 1.
        text: The text.
        at: The character of the whole text, from 0.
        construct: What gpu_ops does not have, where that is what is wrong.

    Examples:
        >>> raise TextError("'form' cannot stand here.", text="select * form T", at=9, remedy="Did you mean 'from'?")
        Traceback (most recent call last):
        gpu_ops.errors.TextError: 'form' cannot stand here. [line 1, column 10] Did you mean 'from'?
            select * form T
                     ^
    """

    def __init__(self, problem: str, *, text: str, at: int, remedy: str | None = None, construct: str = "") -> None:
        self.text, self.at, self.construct = text, at, construct
        begins = text.rfind("\n", 0, at) + 1
        self.line, self.character = text.count("\n", 0, at) + 1, at - begins + 1
        super().__init__(problem, values=f"line {self.line}, column {self.character}", remedy=remedy)
        shown_line, before = _around(text[begins:].partition("\n")[0], at - begins)
        self.args = (f"{self}\n    {shown_line}\n    {' ' * before}^",)

    def __reduce__(self) -> tuple[object, ...]:
        state = {"text": self.text, "at": self.at, "remedy": self.remedy, "construct": self.construct}
        return _rebuild, (type(self), self.problem, state)


def _around(line: str, at: int) -> tuple[str, int]:
    """What is shown of a line, and how many characters of it stand before the place."""
    first = max(0, at - 60)
    before = "..." * (first > 0) + line[first:at]
    behind = line[at : at + 40] + "..." * (len(line) > at + 40)
    return (before + behind).replace("\t", " ").rstrip(), len(before)


class TimeError(GpuOpsError):
    """A time is null, unparsable, ambiguous, too fine, or outside the years 1 to 9999; or a lifetime is empty."""


class SumOverflowError(GpuOpsError):
    """An exact result does not fit its type. Nothing ever wraps around."""


class IntegerOverflowError(GpuOpsError):
    """A whole number that an expression gives does not fit its type. Nothing ever wraps around."""


class FunctionError(GpuOpsError):
    """A function that the user handed in failed, or gave what does not fit; its own error is the cause."""


class SourceError(GpuOpsError):
    """A source cannot be read, or holds something that gpu_ops cannot carry."""


class QueryFailedError(GpuOpsError):
    """A running query has failed in an earlier call, whose error is the cause, and gives nothing any more."""


class WaitingError(GpuOpsError):
    """More rows than are allowed would wait in a running query, for an input that says nothing."""


class DeviceError(GpuOpsError):
    """A query cannot run on the device that was asked for."""


class OutOfMemoryError(GpuOpsError):
    """What was asked for does not fit in memory; the error that said so is the cause."""


class DefectError(GpuOpsError):
    """Another library's error that gpu_ops should have met itself: please report it. That error is the cause."""


class WorkerError(GpuOpsError):
    """Spark's Python workers cannot run a query: gpu_ops is missing there or another version, or Python is."""


def blame(error: BaseException, place: str) -> None:
    """Note on an error where it came up, for those who show it: the innermost place is noted first, and counts."""
    if not notes(error):
        error.add_note(f"{_PLACE}{place}")


def notes(error: BaseException) -> list[str]:
    """Where an error came up, as far as it is known."""
    return [note for note in getattr(error, "__notes__", []) if note.startswith(_PLACE)]


def refuse_names(names: Iterable[str]) -> None:
    """Refuse names that no column can have in each library that may hold it.

    Raises:
        ColumnError: A name is empty or holds a zero character.
    """
    for name in names:
        if not name:
            raise ColumnError(
                "A column has no name, and Polars would give it one.",
                column=name,
                remedy="Name it in the source, or where the query makes it. (An index that pandas writes to CSV has "
                "none: to_csv(index=False).)",
            )
        if "\0" in name:
            raise ColumnError(
                "The name of this column holds a U+0000, where others believe that it ends.",
                column=name,
                remedy="Rename it in the source, or where the query makes it.",
            )


def is_one_of(value: object, words: Iterable[str]) -> bool:
    """Whether a value is one of these texts; what is no text at all may not even be comparable."""
    return isinstance(value, str) and value in words


def shown(value: object) -> str:
    """A value in an error: what it is where that is short and can be told, else its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  (it is the user's own method, and not what the error is about)
        text = ""
    return text if 0 < len(text) < 60 and "\n" not in text else f"a {type(value).__name__}"


_PLACE = "in the node "


def unknown_column(name: object, known: Iterable[str], *, what: str = "stream") -> ColumnError:
    """The error for a column that is not there, with the nearest name that is. Columns of our own begin with @."""
    known = [each for each in known if not each.startswith("@")]
    name = name if isinstance(name, str) else shown(name)
    same = [each for each in known if each.casefold() == name.casefold()]
    near = same or difflib.get_close_matches(name[:200], known, n=1)
    remedy = f"Did you mean {near[0]!r}?" if near else ""
    return ColumnError(
        f"The {what} has no such column.",
        column=name,
        remedy=f"{remedy} It has: {', '.join(known) or 'no column'}.".strip(),
    )
