"""How commands end: exit codes, one line, and a person's Ctrl-C, told apart from one that code raises by itself."""

import errno
import os
import signal
import threading

import pytest

from stride.utils.entry import ended
from stride.utils.interrupted import CtrlC, Noted, by_signal, ctrl_c
from stride.utils.user_error import NumbersError, UserError


class BrokenError(Exception):
    """What a command may name."""


def raising(error):
    def main(argv):
        raise error

    return main


ENDS = [
    (UserError("no such\nword"), 2, "error: no such word\n"),
    (NumbersError("loss is nan"), 1, "error: loss is nan\n"),
    (BrokenError("it fell\x1b[31m"), 1, "error: it fell\\x1b[31m\n"),
    (KeyboardInterrupt(), 130, ""),
    (OSError(errno.EMFILE, "Too many open files", "a.csv"), 1, "error: [Errno 24] Too many open files: 'a.csv'\n"),
]


@pytest.mark.parametrize(("error", "code", "line"), ENDS)
def test_what_is_raised_is_a_line_and_a_code(error, code, line, capsys):
    assert ended(raising(error), [], BrokenError) == code
    assert capsys.readouterr().err == line
    assert ended(raising(BrokenError("pip install it")), [], BrokenError, refused=lambda error: True) == 2


@pytest.mark.parametrize("error", [BrokenError(), SystemExit(3), OSError(errno.ENOSPC, "full")])
def test_whatever_else_passes(error):
    with pytest.raises(type(error)):
        ended(raising(error), [])


def test_a_ctrl_c_while_it_works():
    assert ended(lambda argv: signal.raise_signal(signal.SIGINT) or 0, []) == 130
    assert ended(len, ["a", "b"]) == 2


def test_a_ctrl_c_is_a_keyboard_interrupt_of_its_own_kind():
    with pytest.raises(CtrlC) as caught, ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whose_it_is():
    assert by_signal(KeyboardInterrupt()) and by_signal(CtrlC()) and not by_signal(SystemExit())
    with ctrl_c():
        assert not by_signal(KeyboardInterrupt()) and by_signal(CtrlC())


def test_a_thread_and_other_listeners_are_left_alone():
    handlers = []

    def inside():
        with ctrl_c():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    with Noted() as noted:
        with ctrl_c():
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert handlers == [signal.default_int_handler] and noted.number == signal.SIGINT
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
