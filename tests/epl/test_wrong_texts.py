"""What is said of texts that cannot be read, and of what gpu_ops does not have: to the letter."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl import parse, unparse
from gpu_ops.epl.queries import Query
from gpu_ops.errors import PlanError, TextError
from gpu_ops.texts.expressions import Logical


def _cases(name: str) -> list[tuple[str, str]]:
    """Texts and what is said of each, from a file beside this one."""
    found = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return [tuple(case.rstrip("\n").split("\n~~~~\n")) for case in found.split("\n----\n")]  # type: ignore[misc]


WRONG, REFUSED = _cases("wrong_texts.txt"), _cases("refused_texts.txt")


def error(text: str) -> TextError:
    with pytest.raises(TextError) as raised:
        parse(text)
    return raised.value


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_text(text: str, message: str) -> None:
    found = error(text)
    assert str(found) == message
    assert not found.construct


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_gpu_ops_does_not_have(text: str, message: str) -> None:
    found = error(text)
    assert str(found) == message
    assert found.problem == f"gpu_ops has no {found.construct}."


@pytest.mark.parametrize("text", ["", "  \n ", "// only a comment", "/* and another */"])
def test_a_text_without_a_statement(text: str) -> None:
    assert error(text).problem == "The text has no statement."


def test_the_error_shows_the_line_and_the_place() -> None:
    found = error("select a,\n\tb\nform T -- long\nwhere c")
    assert (found.line, found.character, found.at) == (3, 1, 13)
    assert str(found).split("\n")[1:] == ["    form T -- long", "    ^"]
    assert isinstance(found, PlanError)


def test_a_long_line_is_shown_around_the_place() -> None:
    found = error(f"select {'a, ' * 100}from T")
    _, line, caret = str(found).split("\n")
    assert line.startswith("    ...a, a, ")
    assert line[caret.index("^") :] == "from T"


def test_the_error_can_be_sent() -> None:
    found = error("select * form T")
    again = pickle.loads(pickle.dumps(found))  # noqa: S301  (its own)
    assert str(again) == str(found)
    assert (again.line, again.character, again.construct) == (found.line, found.character, found.construct)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"select {'(' * 100_000}a from T", "Too many brackets are open here."),
        (f"select {'(' * 5_000}a{')' * 5_000} from T", "Too many brackets are open here."),
        (f"select {'1+' * 5_000}1 from T", "The expression is nested deeper than 100 times."),
        (f"select a{'.b' * 5_000} from T", "The expression is nested deeper than 100 times."),
        (f"select a from T where {'x' * 1_000_000}", "The text has more than 1,000,000 characters."),
        ("select '\\ud800' from T", "The string holds half of a character."),
    ],
    ids=["open", "nested", "sum", "members", "long", "half"],
)
def test_no_text_is_too_much(text: str, problem: str) -> None:
    assert error(text).problem == problem


@pytest.mark.parametrize(
    "text",
    [
        f"select {'f(' * 95}a{')' * 95} from T",
        f"select {'1+' * 95}a from T",
        f"select * from T where {'a in (select * from T where ' * 30}b{')' * 30}",
        f"select * from pattern [{'every (' * 90}A{')' * 90}]",
    ],
    ids=["calls", "sum", "queries", "pattern"],
)
def test_what_is_as_deep_as_it_may_be_can_be_walked(text: str) -> None:
    statements = parse(text)
    assert parse(unparse(statements)) == statements
    assert hash(statements) == hash(parse(text))
    assert repr(statements)


def test_a_long_list_is_not_deep() -> None:
    (statement,) = parse(f"select * from T where {' or '.join(f'a = {number}' for number in range(3_000))}")
    assert isinstance(statement.body, Query)
    assert isinstance(statement.body.where, Logical)
    assert len(statement.body.where.operands) == 3_000


@given(st.data())
def test_a_text_that_was_changed_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([text for text, _ in (*WRONG, *REFUSED)]))
    tokens = st.sampled_from([*"()[]{},;.:*+->=?@#`'", " select ", " from ", " a ", " every ", " not ", "\\", "\0"])
    for _ in range(data.draw(st.integers(1, 4))):
        first = data.draw(st.integers(0, len(text)))
        last = data.draw(st.integers(first, min(first + 6, len(text))))
        text = text[:first] + data.draw(st.just("") | tokens | st.text(max_size=3)) + text[last:]
    with suppress(TextError):
        statements = parse(text)
        assert parse(unparse(statements)) == statements
