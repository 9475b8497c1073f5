"""Esper's language as the parser knows it."""

from __future__ import annotations

from functools import lru_cache

from gpu_ops.epl.building import Builder
from gpu_ops.epl.grammar import GRAMMAR
from gpu_ops.epl.lexer import Lexer
from gpu_ops.epl.messages import unexpected
from gpu_ops.epl.statements import Statement
from gpu_ops.texts.parsing import Language, ParserTables, check_text, read, tables_of

_ESPER = Language(GRAMMAR, Builder, Lexer, unexpected)


def tables() -> ParserTables:
    """The tables, made on first use."""
    return tables_of(_ESPER)


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of a text in EPL, which are separated by semicolons.

    The language is Esper's, as its reference describes it. Words of the language are read in any case, and are names
    where no such word can stand. What is said is checked by its form alone: whether a property exists, say, is not.

    Args:
        text: One statement or more.

    Raises:
        TextError: The text cannot be read; the error shows the place and says what can stand there. Or it asks for
            something of Esper's that gpu_ops does not have.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> (statement,) = parse("select account, sum(amount) as total from Withdrawal#time(5 sec) group by account")
        >>> [item.alias for item in statement.body.items]
        ['', 'total']
        >>> statement.body.stream.views[0].arguments[0].parts
        ((Constant(value=5, type='int'), 'second'),)
        >>> parse("select * form Withdrawal")
        Traceback (most recent call last):
        gpu_ops.errors.TextError: 'form' cannot stand here. [line 1, column 10] Did you mean 'from'?
            select * form Withdrawal
                     ^
    """
    check_text(text)
    return _statements(text)


@lru_cache(maxsize=1 << 10)
def _statements(text: str) -> tuple[Statement, ...]:
    """The statements of a text that was read lately, which are immutable, are not read again."""
    made: tuple[Statement, ...] = read(_ESPER, text)
    return made
