"""The grammar costs nothing until a statement is parsed, and is made once."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from gpu_ops.epl import parse
from gpu_ops.epl.lexer import KINDS
from gpu_ops.epl.parsing import tables


@pytest.mark.services
def test_lark_is_loaded_by_the_first_statement() -> None:
    code = (
        "import sys, gpu_ops.epl as epl; before = 'lark' in sys.modules; epl.parse('select * from T');"
        "print(before, 'lark' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]


def test_threads_share_one_grammar() -> None:
    found: list[object] = []
    statements: list[object] = []

    def read() -> None:
        statements.append(parse("select a from T where b > 1"))
        found.append(tables())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each is found[0] for each in found)
    assert statements == [statements[0]] * 4


def test_the_grammar_decides_each_text_in_one_way() -> None:
    """What it cannot decide by the next token are the parentheses behind a view, which are the view's."""
    import logging

    import lark

    from gpu_ops.epl.grammar import GRAMMAR

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
    conflicts = {message for message in messages if "conflict" in message.lower()}
    assert conflicts == {"Shift/Reduce conflict for terminal LPAR: (resolving as shift)"}


def test_no_token_is_called_like_another_word() -> None:
    """Lark calls the token of a word by the word, and takes two of one name for the same."""
    assert not {kind.lower() for kind in (*KINDS, "NAME", "NUMBER", "STRING", "PARAMETER")} & {
        word for kind, words in tables().lexer.spelling.items() if kind not in KINDS for word in words
    }
