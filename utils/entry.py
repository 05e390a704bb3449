"""How every command begins and ends: quickly, its errors in one line, a Ctrl-C in none, with the expected exit code.

Imported before everything else. Loading makes a million objects that stay: the garbage collector would walk through
them again and again, and taking them apart when the process ends costs as much as loading torch.
"""

import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn, TypeVar

from stride.utils.child_process import import_nothing_from_here
from stride.utils.durable_file import OUT_OF_HANDLES
from stride.utils.interrupts import ctrl_c
from stride.utils.own_modules import import_refusal, use_folders
from stride.utils.places import current_folder
from stride.utils.streams import loss, losses, outlive_readers
from stride.utils.user_error import NumbersError, UserError, one_line

GOAL_MISSED = 3  # exit code of a training that ended well, but not at the goal that it was required to reach
Main = Callable[[list[str]], int]
Code = TypeVar("Code", int, int | None)

gc.disable()
_to_undo: list[Callable[[], object]] = []  # what holds only while modules load


def is_refusal(error: Exception) -> bool:
    """Whether the person can right it: exit code 2. What went wrong in the work itself is 1."""
    return isinstance(error, UserError)


def begin(first: Callable[[list[str]], int | None], loading_text: str = "") -> None:
    """Before the heavy imports: what `first` can answer or refuse without them ends the process here.

    Else (None) they come next, and `loading_text` is shown on a live terminal until `loaded()`.
    """
    outlive_readers()
    code = ended(first, sys.argv[1:])
    if code is not None:
        leave(printed(code))
    loading(loading_text)


def loading(text: str) -> None:
    """Print that the heavy imports come now; a Ctrl-C among them has nothing to save, and ends without a traceback."""
    if text and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        print(text, end="", flush=True)
        _to_undo.append(partial(print, "\r" + " " * len(text), end="\r", flush=True))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _to_undo.append(partial(signal.signal, signal.SIGINT, signal.default_int_handler))


def loaded() -> None:
    """Everything is imported: collect garbage again, but never look at what exists by now."""
    while _to_undo:
        _to_undo.pop()()
    gc.freeze()
    gc.enable()


def leave(code: int) -> NoReturn:
    """End the process: what was registered for its end is done, and nothing is taken apart."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def ended(
    main: Callable[[list[str]], Code],
    argv: list[str],
    *failures: type[Exception],
    refused: Callable[[Exception], bool] = is_refusal,
) -> Code | int:
    """`main`'s exit code, or that of what it raised: UserError, NumbersError and `failures` are printed as one line,
    with the notes that were added to them.

    So is a want of descriptors or memory. Anything else is a bug and passes with its traceback.
    """
    expected: tuple[type[Exception], ...] = (UserError, NumbersError, *failures)
    try:
        with ctrl_c():
            with suppress(UserError):  # of a project: reported by who needs it
                use_folders()
                folder = current_folder()
                if folder and import_refusal(folder):
                    import_nothing_from_here()
            return main(argv)
    except expected as error:
        notes: tuple[str, ...] = getattr(error, "__notes__", ())
        print("; ".join([f"error: {one_line(str(error))}", *notes]), file=sys.stderr)
        return getattr(error, "exit_code", 2 if refused(error) else 1)
    except OSError as error:
        if error.errno not in OUT_OF_HANDLES:
            raise
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def printed(code: int) -> int:
    """The exit code of a command whose work is what it prints: 1, with a line, where not all of that could be written.

    A reader that left has read what it wanted.
    """
    sys.stdout.flush()
    if "stdout" not in losses or losses["stdout"].errno == errno.EPIPE:
        return code
    print(f"error: {loss('stdout')}", file=sys.stderr)
    return code or 1


def run(main: Main, *failures: type[Exception]) -> NoReturn:
    """The rest of this process is `main`, whether or not anybody reads what it prints."""
    outlive_readers()
    sys.exit(printed(ended(main, sys.argv[1:], *failures)))


def run_and_leave(main: Main) -> NoReturn:
    """As `run`, and nothing is taken apart at the end: for commands that make thousands of objects, and no thread."""
    outlive_readers()
    leave(printed(ended(main, sys.argv[1:])))
