"""StreamCruncher's language as the parser knows it."""

from __future__ import annotations

from gpu_ops.rql.building import QueryBuilder
from gpu_ops.rql.grammar import GRAMMAR
from gpu_ops.rql.lexer import QueryLexer
from gpu_ops.rql.messages import unexpected
from gpu_ops.rql.queries import CycleQuery
from gpu_ops.texts.parsing import Language, read

_STREAMCRUNCHER = Language(GRAMMAR, QueryBuilder, QueryLexer, unexpected)


def parse(text: str) -> CycleQuery:
    """The query of a text in StreamCruncher's language.

    Words of the language are read in any case, and are names where no such word can stand. What is said is checked by
    its form alone: whether a column exists, say, is not.

    Args:
        text: One query.

    Raises:
        TextError: The text cannot be read; the error shows the place and says what can stand there. Or it asks for
            something of SQL's or StreamCruncher's that gpu_ops does not have.

    Examples:
        >>> from gpu_ops.rql import parse
        >>> query = parse("select id from s (partition by k store last 10) as t where t.$row_status is new;")
        >>> query.select.source.first.stages[0].stored.count, str(query.select.where)
        (10, 't.$row_status is new')
        >>> parse("select id from s (partition by k store last 10 seconds maxx 5) as t")
        Traceback (most recent call last):
        gpu_ops.errors.TextError: 'maxx' cannot stand here. [line 1, column 56] Did you mean 'max'?
            select id from s (partition by k store last 10 seconds maxx 5) as t
                                                                  ^
    """
    made: CycleQuery = read(_STREAMCRUNCHER, text)
    return made
