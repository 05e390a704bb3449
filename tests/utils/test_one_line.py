"""Texts of other people's code: one line, nothing in it that a terminal obeys."""

import pytest

from stride.utils.user_error import MOST, describe_error, one_line


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError


def noted():
    error = ValueError("one")
    error.add_note("two\x1b[2J")
    return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\n\ttwo\r\n three"), "ValueError: one two three"),
        (ValueError("\x1b[31mred\x1b[0m\x07\x00"), r"ValueError: \x1b[31mred\x1b[0m\x07\x00"),
        (ValueError("\x9b31m \u202egnp\u2028x \ud800"), r"ValueError: \x9b31m \u202egnp x \ud800"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyError("a: b"), "KeyError: 'a: b'"),
        (MuteError(), "MuteError: <exception str() failed>"),
        (noted(), r"ValueError: one two\x1b[2J"),
        (SyntaxError("never closed", ("torn.py", 3, 1, "x = (")), "SyntaxError: never closed (torn.py, line 3)"),
        (ValueError("é ± 漢字"), "ValueError: é ± 漢字"),
    ],
)
def test_an_error_is_told_in_a_line(error, line):
    assert describe_error(error) == line


def test_no_line_is_long():
    for text in ("x" * 10**6, "\x00" * 10**6, "a " * 10**6):
        assert len(one_line(text)) <= MOST and "…" in one_line(text) and one_line(text).isprintable()
