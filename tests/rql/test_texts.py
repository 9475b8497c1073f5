"""Queries as text: what is read, and what is said of texts that cannot be read, to the letter."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.errors import TextError
from gpu_ops.rql import parse
from gpu_ops.rql.grammar import GRAMMAR
from gpu_ops.rql.queries import AlertSource, JoinedTables, StreamTable


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


@pytest.mark.parametrize("text", ["", " \n", "/* a comment */", "-- another"])
def test_a_text_without_a_query(text: str) -> None:
    assert error(text).problem == "The text has no statement."


@pytest.mark.services
def test_lark_is_loaded_by_the_first_query() -> None:
    code = (
        "import sys, gpu_ops.rql as rql; before = 'lark' in sys.modules; rql.parse('select * from t');"
        "print(before, 'lark' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]


def test_the_grammar_decides_each_text_in_one_way() -> None:
    import logging

    import lark

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    messages: list[str] = []
    handler, level = Seen(), lark.logger.level
    lark.logger.addHandler(handler)
    lark.logger.setLevel(logging.DEBUG)
    try:
        lark.Lark(GRAMMAR, parser="lalr", lexer="basic", debug=True)
    finally:
        lark.logger.removeHandler(handler)
        lark.logger.setLevel(level)
    assert not [message for message in messages if "conflict" in message.lower()]


def test_words_are_read_in_any_case_and_are_names_where_none_can_stand() -> None:
    text = "SELECT last, Max, first FROM seconds (PARTITION BY new, dead STORE LAST 3 Seconds MAX 2) AS present;"
    query = parse(text)
    assert isinstance(query.select.source, JoinedTables)
    (table,) = query.select.source.tables
    assert isinstance(table, StreamTable)
    assert (table.stream, table.alias, table.stages[0].by) == ("seconds", "present", ("new", "dead"))
    assert [str(item.expression) for item in query.select.items] == ["last", "Max", "first"]
    assert (table.stages[0].stored.span, table.stages[0].stored.count) == (3_000, 2)


def test_a_partition_by_nothing_is_one_window() -> None:
    assert parse("select id from s (partition by store last 3) as t") == parse(
        "select id from s (partition store last 3) t;"
    )


def test_a_query_says_where_its_parts_stand() -> None:
    text = "select a_id\nfrom alert a.id as a_id using s (partition store last 2) as a correlate on id when present(a)"
    source = parse(text).select.source
    assert isinstance(source, AlertSource)
    (pattern,) = source.patterns
    assert pattern.place.line == 2
    assert text[pattern.place.start : pattern.place.end] == "present(a)"
    assert text[slice(*source.streams[0].place[2:])].startswith("s (partition")


def test_what_sql_writes_in_two_ways_is_one_tree() -> None:
    one = "select v from t where v <> 1 and v between 1 and 3 and not v not in (1, 2) or v is not null"
    other = "select v from t where ((v ^= 1 and (v >= 1 and v <= 3)) and not v not in (1, 2)) or v is not null"
    assert parse(one) == parse(other)
    assert str(parse(one).select.where) == "v!=1 and v>=1 and v<=3 and not v not in (1,2) or v is not null"
    assert parse("select case v when 1 then 'a' end from t") == parse("select case when v = 1 then 'a' end from t")
    assert parse("select n from t minus select n from u") == parse("select n from t except select n from u")
    assert parse("select 'it''s' from t").select.items[0].expression.value == "it's"  # type: ignore[union-attr]


@given(st.data())
def test_a_text_that_was_changed_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([text for text, _ in (*WRONG, *REFUSED)]))
    tokens = st.sampled_from([*"()*,;.=$#'", " select ", " from ", " to ", " not ", "\\", "\0", " store ", " with "])
    for _ in range(data.draw(st.integers(1, 4))):
        first = data.draw(st.integers(0, len(text)))
        last = data.draw(st.integers(first, min(first + 6, len(text))))
        text = text[:first] + data.draw(st.just("") | tokens | st.text(max_size=3)) + text[last:]
    with suppress(TextError):
        assert parse(text) == parse(text)
