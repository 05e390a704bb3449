"""How commands end: exit codes, and one line."""

import errno
import signal

import pytest

from stride.utils.entry import ended
from stride.utils.user_error import NumbersError, UserError


class BrokenError(Exception):
    """What a command may name."""


def raising(error):
    def main(argv):
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("no such\nword"), 2, "error: no such word\n"),
        (NumbersError("loss is nan"), 1, "error: loss is nan\n"),
        (BrokenError("it fell\x1b[31m"), 1, "error: it fell\\x1b[31m\n"),
        (KeyboardInterrupt(), 130, ""),
        (OSError(errno.EMFILE, "Too many open files", "a.csv"), 1, "error: [Errno 24] Too many open files: 'a.csv'\n"),
    ],
)
def test_what_is_raised_is_a_line_and_a_code(error, code, said, capsys):
    assert ended(raising(error), [], BrokenError) == code
    assert capsys.readouterr().err == said


def test_who_calls_says_what_the_person_can_right(capsys):
    assert ended(raising(BrokenError("pip install it")), [], BrokenError, refused=lambda error: True) == 2


@pytest.mark.parametrize("error", [BrokenError(), SystemExit(3), OSError(errno.ENOSPC, "full")])
def test_whatever_else_passes(error):
    with pytest.raises(type(error)):
        ended(raising(error), [])


def test_a_ctrl_c_while_it_works():
    def main(argv):
        signal.raise_signal(signal.SIGINT)
        return 0

    assert ended(main, []) == 130
    assert ended(len, ["a", "b"]) == 2
