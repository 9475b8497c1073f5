"""Texts that differ in literals: cut at these, they are one template, which is read once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from gpu_ops.epl.building import Builder
from gpu_ops.epl.groups import StatementGroup
from gpu_ops.epl.lexer import TOKEN
from gpu_ops.epl.planning.standing import opened
from gpu_ops.epl.running import RunningStatement
from gpu_ops.epl.statements import Statement
from gpu_ops.texts.expressions import NOWHERE
from gpu_ops.texts.placed_error import PlacedError

K = TypeVar("K")
V = TypeVar("V")

_MOST = 1_000
"""How many templates are known at a time; those that were used last stay."""

_DIGITS = 9
"""Whole numbers of so many digits are of type int."""


class CutText(NamedTuple):
    """A text without its literals.

    Attributes:
        pieces: What stands between them.
        kinds: Their types.
        literals: They as they are written.
        starts: Where each begins.
    """

    pieces: tuple[str, ...]
    kinds: tuple[str, ...]
    literals: tuple[str, ...]
    starts: tuple[int, ...]


def cut(text: str) -> CutText | None:
    """A text without its numbers and strings; None where one of them cannot be read.

    Examples:
        >>> cut("select * from T(a = 'x', b > 2.5)")
        CutText(pieces=('select * from T(a = ', ', b > ', ')'), kinds=('string', 'double'), literals=("'x'", '2.5'),
        starts=(20, 29))
    """
    pieces, kinds, literals, starts, at = [], [], [], [], 0
    for found in TOKEN.finditer(text):
        group = found.lastgroup
        if group in {"number", "string"}:
            said = found[0]
            if group == "string":
                kind = "string"
            elif said.isdigit() and len(said) <= _DIGITS:
                kind = "int"
            else:
                try:
                    kind = Builder().number(NOWHERE, said).type
                except PlacedError:
                    return None
            pieces.append(text[at : found.start()])
            kinds.append(kind)
            literals.append(said)
            starts.append(found.start())
            at = found.end()
    pieces.append(text[at:])
    return CutText(tuple(pieces), tuple(kinds), tuple(literals), tuple(starts))


def _value(kind: str, said: str, sign: int) -> Any:
    if kind == "string":
        return said[1:-1] if "\\" not in said else Builder().string(NOWHERE, said).value
    value = int(said) if kind == "int" and said.isdigit() else Builder().number(NOWHERE, said).value
    return value if sign > 0 else -value  # type: ignore[operator]


def _keep(known: dict[K, V], key: K, value: V) -> None:
    """Know a value; the oldest is forgotten where there are many."""
    known[key] = value
    if len(known) > _MOST:
        del known[next(iter(known))]


class FirstOfTemplate(NamedTuple):
    """A statement that runs by itself until another of its template comes: its name, number and constants."""

    name: str
    number: int
    constants: tuple[Any, ...]


@dataclass
class Template:
    """What texts with the same pieces have in common.

    Attributes:
        constants: The literals that are constants of the statement, each with its sign.
        fixed: Those that are part of what it computes.
        name: The one that is its name; None if it has none.
        firsts: The statement that was deployed last by itself, for each of the fixed ones.
        groups: The groups, by the fixed ones and the service; None where statements cannot be one.
    """

    constants: tuple[tuple[int, int], ...]
    fixed: tuple[int, ...]
    name: int | None
    firsts: dict[tuple[str, ...], FirstOfTemplate] = field(default_factory=dict)
    groups: dict[tuple[tuple[str, ...], str], StatementGroup | None] = field(default_factory=dict)

    def values(self, given: CutText) -> tuple[Any, ...]:
        """The constants of a text."""
        return tuple(_value(given.kinds[at], given.literals[at], sign) for at, sign in self.constants)

    def fixed_in(self, given: CutText) -> tuple[str, ...]:
        """The literals of a text that are no constants."""
        return tuple(given.literals[at] for at in self.fixed)

    def first(self, given: CutText) -> FirstOfTemplate | None:
        """The statement that was deployed last by itself with the literals of a text that are no constants."""
        return self.firsts.get(self.fixed_in(given))

    def begin(self, given: CutText, made: RunningStatement) -> None:
        """Know a statement that was deployed by itself."""
        _keep(self.firsts, self.fixed_in(given), FirstOfTemplate(made.name, made.number, self.values(given)))

    def has_group(self, given: CutText, home: str) -> bool:
        """Whether it is known of which group a text's statement is."""
        return (self.fixed_in(given), home) in self.groups

    def group(self, given: CutText, home: str) -> StatementGroup | None:
        """The group of a text's statement, as it is known; None if it is of none."""
        return self.groups[self.fixed_in(given), home]

    def join(self, given: CutText, home: str, group: StatementGroup | None) -> None:
        """Know the group that a text's statement is of, in a service; None if it is of none."""
        _keep(self.groups, (self.fixed_in(given), home), group)

    def name_in(self, given: CutText) -> str:
        """The name that a text gives; nothing if it gives none."""
        return "" if self.name is None else str(_value("string", given.literals[self.name], 1))


class Templates:
    """The templates of a runtime's texts."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Any, ...], Template] = OrderedDict()

    def of(self, given: CutText) -> Template | None:
        """The template of a text; None if there is none yet."""
        key = (given.pieces, given.kinds)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def learn(self, given: CutText, statement: Statement) -> Template | None:
        """The template of a text, known from now on; None if it has none.

        Args:
            given: The text.
            statement: The one statement that it says.
        """
        template = self.of(given)
        if template is None:
            template = _template(given, statement)
            if template is None:
                return None
            self._known[given.pieces, given.kinds] = template
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return template

    def clear(self) -> None:
        """Forget all: names in texts mean something else from now on."""
        self._known.clear()


def _template(given: CutText, statement: Statement) -> Template | None:
    """What a text's literals are; None if a statement has two names."""
    numbers = {start: at for at, start in enumerate(given.starts)}
    named = [each for each in statement.annotations if each.name.lower() == "name"]
    name = None
    if named:
        within = [at for at, start in enumerate(given.starts) if named[0].place.start <= start < named[0].place.end]
        if len(named) > 1 or len(within) != 1:
            return None
        (name,) = within
    constants = tuple((numbers[constant.place.start], sign) for constant, sign in opened(statement)[1])
    known = {name, *(at for at, _ in constants)}
    return Template(constants, tuple(at for at in range(len(given.literals)) if at not in known), name)
