"""Runs the main function of every command: prints its errors as one line and ends with the right exit code.

Exit codes: 0 done, 1 failed, 2 the user can fix it (UserError), 3 goal missed, 130 Ctrl-C, which prints nothing.
"""

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

GOAL_MISSED = 3  # exit code of a training that ended normally but did not reach the goal it was required to reach
Main = Callable[[list[str]], int]  # arguments of the command line -> exit code
Code = TypeVar("Code", int, int | None)


def is_refusal(error: Exception) -> bool:
    """Say whether the user can fix the error: then the exit code is 2, else 1."""
    return isinstance(error, UserError)


def begin(first: Callable[[list[str]], int | None], loading_text: str = "") -> None:
    """Run `first`, the part of a command that needs no heavy imports, such as --help and errors in arguments.

    If it returns an exit code or raises, the process ends here. If it returns None, this returns, the caller does its
    heavy imports, and a live terminal shows `loading_text` until `quick_start.loaded()`.
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
    """Run `main` and return its exit code, or that of the error that it raised.

    UserError, NumbersError, `failures`, and a lack of descriptors or memory are printed as one line, with the notes
    that were added to them. Any other error is a bug and is raised, with its traceback. `refused` says which of the
    expected errors have exit code 2 instead of 1, unless the error has an `exit_code` of its own.
    """
    expected: tuple[type[Exception], ...] = (UserError, NumbersError, *failures)
    try:
        with ctrl_c():
            with suppress(UserError):  # an error of the user's project: the part that needs the project reports it
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
    """Return the exit code of a command whose result is its output: 1, with a line, if stdout could not be written.

    `code` stays if only the reader left (EPIPE, as with `| head -1`): it has read what it wanted.
    """
    sys.stdout.flush()
    if "stdout" not in losses or losses["stdout"].errno == errno.EPIPE:
        return code
    print(f"error: {loss('stdout')}", file=sys.stderr)
    return code or 1


def run(main: Main, *failures: type[Exception]) -> NoReturn:
    """Run `main` with the command line and end the process with its exit code, even if nobody reads its output."""
    outlive_readers()
    sys.exit(printed(ended(main, sys.argv[1:], *failures)))


def run_and_leave(main: Main) -> NoReturn:
    """Do what `run` does, but end the process without freeing objects, which is faster (quick_start.leave).

    For commands that make thousands of objects and no threads.
    """
    outlive_readers()
    quick_start.leave(printed(ended(main, sys.argv[1:])))
