"""A run that failed says so in config.json, report.md and run.log, and its error says where these are.

A run that never began, because its worlds could not be made or reset, gets a folder with the same.
"""

import errno
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from stride.config.diff import FIXED
from stride.config.loader import to_plain
from stride.config.metrics import NOT_A_NUMBER
from stride.config.schema import Config
from stride.envs_gym.blame import CodeError, EnvError, ModuleError, maker_line, own_line
from stride.envs_gym.step_watch import last_words
from stride.runstore import checkpoint_set, metrics_layout, run_files
from stride.runstore.outcome import cure_commands, task_words
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import INTERRUPTED
from stride.runstore.run_fate import continuation
from stride.runstore.run_files import exists, read_json, remove, write_json
from stride.runstore.run_lock import LockLostError
from stride.runstore.run_log import open_run_log
from stride.trainer_callbacks.cures import MAX_CURES, Cures
from stride.trainer_callbacks.interrupt import Dropped
from stride.trainer_callbacks.resume import Resumption, provenance_once, settings_hash
from stride.trainer_callbacks.shortage import ShortageError
from stride.utils.interrupted import by_signal
from stride.utils.places import TRAIN, from_caller
from stride.utils.streams import nowhere
from stride.utils.user_error import NumbersError, UserError, describe_error

SPARE = 6  # descriptors that are kept free for the files of a failure: a world may have taken all others
ONE_LINE = (UserError, EnvError, NumbersError, ShortageError)  # whose text is a line for a person


@contextmanager
def failures_reported(run: RunDir, stack: ExitStack, config: Config) -> Iterator[None]:
    """Whatever ends the training, but for a signal, is reported in the run's folder, and raised with a note of that."""
    spare = [nowhere() for _ in range(SPARE)]

    def use_spare() -> None:
        while spare:
            os.close(spare.pop())

    def report_hang(line: str) -> str:
        """The process is about to end by force, from another thread: only here the stack can still be written."""
        use_spare()
        stack_frame = sys._current_frames().get(threading.main_thread().ident or 0)
        with open_run_log(run.run_log, quiet=True) as log_lines:
            log_lines.critical(f"{line}\n{''.join(traceback.format_stack(stack_frame))}")
        report(run, line)
        return f"{line}; {whereabouts(run, line)}"

    last_words.append(report_hang)
    stack.callback(last_words.remove, report_hang)
    stack.callback(use_spare)
    try:
        with located(config.env_id):
            yield
    except (LockLostError, Dropped):  # another process may own the folder; a signal is no failure
        raise
    except BaseException as error:
        use_spare()
        line = line_of(error)
        commands = cure_of_numbers(run, config) if is_of_learning(error) else []
        report(run, line, commands)
        if not isinstance(error, UserError):  # what a person can right says how
            error.add_note(whereabouts(run, line, commands))
        raise


@contextmanager
def interruption_reported(run: RunDir) -> Iterator[None]:
    """A signal that gives up the work in a run's folder, from the moment there is one, is reported there."""
    try:
        yield
    except Dropped:
        report_interrupted(run)
        raise


@contextmanager
def start_reported(config: Config, group: str, again: Resumption | None) -> Iterator[None]:
    """Around what comes before a training; a mistake of the person makes no run.

    A finished run that was to go on keeps its verdict: only its run.log has the error.
    """
    try:
        with located(config.env_id):
            yield
    except (Dropped, UserError, ShortageError, ModuleError):
        raise
    except BaseException as error:
        if not by_signal(error):
            with suppress(OSError, UserError):
                _report_start(config, group, again, error)
        raise


def _report_start(config: Config, group: str, again: Resumption | None, error: BaseException) -> None:
    if again and not again.fork:
        run = again.source
        finished = again.facts.get("status") == "finished"
    else:
        facts = {"env_id": config.env_id, "variant": config.variant, "seed": config.seed, "group": group}
        facts |= {"goal": config.spec.goal, **provenance_once(), "status": "failed", "config": to_plain(config)}
        facts["settings_sha256"] = settings_hash(facts)
        run = RunDir.create(config.env_id, config.variant, config.seed, facts)
        finished = False
    with open_run_log(run.run_log, quiet=True) as log_lines:
        log_lines.critical("uncaught exception", exc_info=error)
    line = line_of(error)
    if not finished:
        report(run, line)
    error.add_note(whereabouts(run, line))


@contextmanager
def located(env_id: str) -> Iterator[None]:
    """An error of the user's code becomes one line with its file and line; a NumbersError gets those of the world."""
    try:
        yield
    except NumbersError as error:
        location = maker_line(env_id)
        if not location:
            raise
        raise NumbersError(f"{error} ({location})") from error
    except BaseException as error:
        location = own_line(error)
        if location and not isinstance(error, ONE_LINE) and not by_signal(error):
            raise CodeError(f"{describe_error(error)} ({location})") from error
        raise


def is_of_learning(error: BaseException) -> bool:
    """Whether a number of the learner's, not one of the environment's, was not finite."""
    return isinstance(error, NumbersError) and str(error).startswith(("weights", "the loss", "the gradient", "action"))


def cure_of_numbers(run: RunDir, config: Config) -> list[str]:
    """Commands with another value, as the same value would give the same NaN: from the last checkpoint where it may
    differ there, else from the beginning."""
    facts = run.facts()
    cures = Cures(to_plain(config), facts.get("shipped", ()))
    overrides = cures.checked(cures.of(NOT_A_NUMBER), MAX_CURES)
    if checkpoint_set.facts_of(run.checkpoints / "last.ckpt"):
        overrides = tuple(override for override in overrides if override.partition("=")[0] not in FIXED)
        return [f"{TRAIN} {shlex.join(['--resume', run.id, override])}" for override in overrides]
    return cure_commands(task_words(f"{config.env_id}:{config.variant}", config.seed, facts), overrides)


def line_of(error: BaseException) -> str:
    return str(error) if isinstance(error, ONE_LINE) else describe_error(error)


def report(run: RunDir, line: str, commands: Sequence[str] = ()) -> None:
    """Write the failure to config.json and report.md; `commands` as of `whereabouts`."""
    with suppress(OSError, UserError):  # the terminal shows the cause, not that it cannot be written
        facts = {**read_json(run.config_json), "status": "failed", "failure": line}
        try:
            write_json(run.config_json, facts)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # no space: delete this file of 310 kB; its numbers are in metrics.csv, too, and --resume makes it anew
            remove(run.path / metrics_layout.NAME)
            write_json(run.config_json, facts)
        write_failed(run, line, commands)


def report_interrupted(run: RunDir) -> bool:
    """Write to config.json that a signal ended the run; whether nothing had said before how it ended."""
    with suppress(OSError, UserError):
        facts = read_json(run.config_json)
        if facts.get("status") == "running":
            write_json(run.config_json, {**facts, "status": INTERRUPTED})
            return True
    return False


def write_failed(run: RunDir, line: str, commands: Sequence[str] = ()) -> None:
    """report.md: why it failed, where the traceback is, how to go on. The end of a later training replaces it."""
    facts = run.facts()
    saved = checkpoint_set.facts_of(run.checkpoints / "last.ckpt")
    status = f"Its last checkpoint is at {saved['env_steps']:,} env steps." if saved else "It has no checkpoint yet."
    if os.environ.get("STRIDE_NO_RUN_LOG") != "1":
        status = f"The traceback is at the end of [{run.run_log.name}]({run.run_log.name}). {status}"
    command = facts.get("command", "")
    if isinstance(command, list):
        command = shlex.join(map(str, command))
    parts = [
        "**Failed**",
        f"# {facts.get('env_id')}:{facts.get('variant')}",
        f"```text\n{line}\n```",
        status,
        "## Next",
        _next(commands) or f"Fix the cause, then:\n\n```sh\n{continuation(run).partition(': ')[2]}\n```",
    ]
    if command:
        parts.append(f"Repeat it:\n\n```sh\n{command}\n```")
    run_files.write_text(run.report, "\n\n".join(parts) + "\n")


def _next(commands: Sequence[str]) -> str:
    """Commands that cure the failure, the likeliest first; "" where none is known."""
    if not commands:
        return ""
    heading = "The same settings fail again. Train it with another value, most likely fix first:"
    return "\n".join([heading, "", "```sh", *commands, "```"])


def whereabouts(run: RunDir, line: str, commands: Sequence[str] = ()) -> str:
    """Where the traceback is, and how to go on, for the end of a line; `commands`: those that cure the failure."""
    text = "no traceback was kept: STRIDE_NO_RUN_LOG is set"
    if exists(run.run_log):
        path = from_caller(run.run_log)
        text = f"traceback in {run.run_log if path.startswith('..') else path}"
    if commands:
        return f"{text}; with another value: {commands[0]}"
    return text if "--resume" in line else f"{text}; {continuation(run)}"
