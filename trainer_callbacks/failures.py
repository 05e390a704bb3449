"""A run that failed says so: in config.json, report.md and run.log, and its error says where that stands.

A run that never came to begin, because its worlds could not be made or reset, gets a folder that says the same.
"""

import errno
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.envs_gym.blame import CodeError, EnvError, ModuleError, maker_line, own_line
from stride.envs_gym.step_watch import last_words
from stride.runstore import metrics_layout
from stride.runstore.run_dir import RunDir
from stride.runstore.run_fate import continuation
from stride.runstore.run_files import exists, read_json, remove, write_json
from stride.runstore.run_lock import LockLostError
from stride.runstore.run_log import open_run_log
from stride.trainer_callbacks.caller import from_caller
from stride.trainer_callbacks.disk_space import NoRoomError
from stride.trainer_callbacks.failed import write_failed
from stride.trainer_callbacks.interrupt import Dropped
from stride.trainer_callbacks.resume import Resumption, provenance_once, settings_hash
from stride.utils.closed_pipe import nowhere
from stride.utils.interrupted import by_signal
from stride.utils.one_line import describe_error
from stride.utils.user_error import NumbersError, UserError

SPARE = 6  # descriptors that are kept free for the files of a failure: a world may have taken all others
TOLD = (UserError, EnvError, NumbersError, NoRoomError)  # whose text is a line for a person


@contextmanager
def failures_told(run: RunDir, stack: ExitStack, config: Config) -> Iterator[None]:
    """Whatever ends the training but a signal is told in the run's folder, and goes on with a note of where that is."""
    spare = [nowhere() for _ in range(SPARE)]

    def use_spare() -> None:
        while spare:
            os.close(spare.pop())

    def hung(line: str) -> str:
        """The process is about to end by force, from another thread: only here the stack can still be written."""
        use_spare()
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        with open_run_log(run.run_log, quiet=True) as log:
            log.critical(f"{line}\n{''.join(traceback.format_stack(frame))}")
        tell(run, line)
        return f"{line}; {whereabouts(run, line)}"

    last_words.append(hung)
    stack.callback(last_words.remove, hung)
    stack.callback(use_spare)
    try:
        with placed(config.env_id):
            yield
    except (Dropped, LockLostError):  # the folder may be another's to write in
        raise
    except BaseException as error:
        use_spare()
        line = line_of(error)
        tell(run, line)
        if not isinstance(error, UserError):  # what a person can right says how
            error.add_note(whereabouts(run, line))
        raise


@contextmanager
def beginnings_told(config: Config, group: str, again: Resumption | None) -> Iterator[None]:
    """Around what comes before a training; what a person got wrong makes no run.

    A finished run that was to go on keeps its verdict: only its run.log tells.
    """
    try:
        with placed(config.env_id):
            yield
    except (Dropped, UserError, NoRoomError, ModuleError):
        raise
    except BaseException as error:
        if not by_signal(error):
            with suppress(OSError, UserError):
                _never_began(config, group, again, error)
        raise


def _never_began(config: Config, group: str, again: Resumption | None, error: BaseException) -> None:
    line = line_of(error)
    if again and not again.fork:
        run = again.source
    else:
        facts = {"env_id": config.env_id, "variant": config.variant, "seed": config.seed, "group": group}
        facts |= {"goal": config.spec.goal, **provenance_once(), "status": "failed", "config": to_plain(config)}
        facts["settings_sha256"] = settings_hash(facts)
        run = RunDir.create(config.env_id, config.variant, config.seed, facts)
    with open_run_log(run.run_log, quiet=True) as log:
        log.critical("uncaught exception", exc_info=error)
    if not again or again.fork or again.facts.get("status") != "finished":
        tell(run, line)
    error.add_note(whereabouts(run, line))


@contextmanager
def placed(env_id: str) -> Iterator[None]:
    """What other code of the user's raises becomes one line with its file and line, and so does what is no number."""
    try:
        yield
    except NumbersError as error:
        if not (place := maker_line(env_id)):
            raise
        raise NumbersError(f"{error} ({place})") from error
    except BaseException as error:
        place = own_line(error)
        if place and not isinstance(error, TOLD) and not by_signal(error):
            raise CodeError(f"{describe_error(error)} ({place})") from error
        raise


def line_of(error: BaseException) -> str:
    return str(error) if isinstance(error, TOLD) else describe_error(error)


def tell(run: RunDir, line: str) -> None:
    """In config.json and report.md."""
    with suppress(OSError, UserError):  # what is told at the terminal is the cause, not that it cannot be written
        facts = {**read_json(run.config_json), "status": "failed", "failure": line}
        try:
            write_json(run.config_json, facts)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # no room: this goes, 310 kB; its numbers are in metrics.csv, too, and --resume makes it anew
            remove(run.path / metrics_layout.NAME)
            write_json(run.config_json, facts)
        write_failed(run, line)


def whereabouts(run: RunDir, line: str) -> str:
    """Where the traceback is, and how to go on; for the end of a line."""
    near = from_caller(run.run_log)
    where = (
        f"traceback in {run.run_log if near.startswith('..') else near}"
        if exists(run.run_log)
        else "no traceback was kept: STRIDE_NO_RUN_LOG is set"
    )
    return where if "--resume" in line else f"{where}; {continuation(run)}"
