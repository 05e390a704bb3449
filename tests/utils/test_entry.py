"""How commands end: exit codes, one line with nothing in it that a terminal obeys, and a person's Ctrl-C, told apart
from one that code raises by itself."""

import errno
import os
import signal
import subprocess
import sys
import threading

import pytest
from commands import ROOT
from hypothesis import example, given
from hypothesis import strategies as st

from stride.utils.entry import ended
from stride.utils.interrupted import CtrlC, Noted, by_signal, ctrl_c
from stride.utils.user_error import MAX_LINE, NumbersError, UserError, describe_error, nearest, one_line, shortened


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


# ---- lines of errors


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
        (KeyError("a: b"), "KeyError: 'a: b'"),
        (MuteError(), "MuteError: <exception str() failed>"),
        (noted(), r"ValueError: one two\x1b[2J"),
        (SyntaxError("never closed", ("torn.py", 3, 1, "x = (")), "SyntaxError: never closed (torn.py, line 3)"),
        (ValueError("é ± 漢字"), "ValueError: é ± 漢字"),
    ],
)
def test_an_error_is_told_in_a_line(error, line):
    assert describe_error(error) == line


@given(st.text())
@example("x" * 10**6)
@example("\x00" * 10**6)
@example("a " * 10**6)
def test_no_text_is_more_than_a_short_printable_line(text):
    line = one_line(text)
    assert len(line) <= MAX_LINE and line.isprintable() and ("…" in line) >= (len(text) > 10**5)


def test_a_line_is_a_line():
    assert one_line("a\nb\t c\x1b[31m\ud800\u202e") == "a b c\\x1b[31m\\ud800\\u202e"
    assert one_line("x" * 200) == "x" * 200
    long = one_line(f"--seed {'9' * 5000}: seeds are whole numbers; did you mean this?")
    assert long.startswith("--seed 999") and long.endswith("9: seeds are whole numbers; did you mean this?")
    assert shortened("abcdefgh", 5) == "ab…gh" and shortened("abcdefgh", 4) == "ab…h"
    assert str(UserError(f"{UserError('y' * 400)}: x")).endswith("y: x") and isinstance(UserError(""), ValueError)


def test_nearest():
    options = ["n_steps", "n_epochs", "policy_lr", "CartPole-v1"]
    assert nearest("n_step", options) == "; did you mean n_steps?"
    assert nearest("n_epos", options) == "; did you mean n_epochs, n_steps?"  # best first
    assert nearest("n_epos", options, n=1) == "; did you mean n_epochs?"
    assert nearest("cartpole-V1", options) == "; did you mean CartPole-v1?"  # case does not matter
    assert nearest("lr", options) == "; did you mean policy_lr?"  # a part of the word
    assert nearest("zzz", options) == nearest("", options) == nearest("x", []) == ""


@pytest.mark.parametrize("begun", ["import stride", "import runpy; runpy.run_path('train.py', run_name='__main__')"])
def test_native_windows_is_refused_in_a_line(begun):
    code = f"import sys; sys.platform = 'win32'; sys.argv = ['train.py', '--help']; {begun}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "WSL2" in done.stderr
