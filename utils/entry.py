"""How every command ends: its errors in one line, a Ctrl-C in none, and the exit code that a shell expects."""

import errno
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

from stride.utils import quick_start
from stride.utils.child_process import import_nothing_from_here
from stride.utils.durable_file import OUT_OF_HANDLES
from stride.utils.interrupted import ctrl_c
from stride.utils.own_modules import import_refusal, use_folders
from stride.utils.places import current_folder
from stride.utils.streams import loss, losses, outlive_readers
from stride.utils.user_error import NumbersError, UserError, one_line

GOAL_MISSED = 3  # exit code of a training that ended well, but not at the goal that it was required to reach
Main = Callable[[list[str]], int]
Code = TypeVar("Code", int, int | None)


def is_refusal(error: Exception) -> bool:
    """Whether the person can right it: exit code 2. What went wrong in the work itself is 1."""
    return isinstance(error, UserError)


def begin(first: Callable[[list[str]], int | None], loading_text: str = "") -> None:
    """Before the heavy imports: what `first` can answer or refuse without them ends the process here.

    Else (None) they come next, and `loading_text` is shown on a live terminal until `quick_start.loaded()`.
    """
    quick_start.paused()
    outlive_readers()
    code = ended(first, sys.argv[1:])
    if code is not None:
        quick_start.leave(printed(code))
    quick_start.loading(loading_text)


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
    quick_start.leave(printed(ended(main, sys.argv[1:])))
