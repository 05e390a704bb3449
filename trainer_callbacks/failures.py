"""Report a failed training in its run's config.json, report.md and run.log; the error's notes say where these are.

If environments could not be made or reset, there is no run yet: then a folder is made for the report.
"""

import errno
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from stride.config.diff import FIXED_KEYS
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

SPARE_FILES = 6  # file descriptors reserved for the report: an environment may have used up all others
ONE_LINE_ERRORS = (UserError, EnvError, NumbersError, ShortageError)  # their text is one line for the person


@contextmanager
def failures_reported(run: RunDir, stack: ExitStack, config: Config) -> Iterator[None]:
    """Report every error inside the `with` block in the run's folder, and raise it again with a note about that.

    Not reported: signals, and the loss of the run's lock. `stack`: its exit releases what this function reserved.
    """
    spare = [nowhere() for _ in range(SPARE_FILES)]

    def use_spare() -> None:
        while spare:
            os.close(spare.pop())

    def report_hang(line: str) -> str:
        """Report a step that hangs; called in another thread just before it ends the process by force.

        It is the last chance to write the main thread's stack. Return the line to print.
        """
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
        if not isinstance(error, UserError):  # the text of a UserError says already what to do
            error.add_note(whereabouts(run, line, commands))
        raise


@contextmanager
def interruption_reported(run: RunDir) -> Iterator[None]:
    """Write to the run's config.json that it was interrupted, if a signal ends the work inside the `with` block."""
    try:
        yield
    except Dropped:
        report_interrupted(run)
        raise


@contextmanager
def start_reported(config: Config, group: str, again: Resumption | None) -> Iterator[None]:
    """Report errors of what comes before a training: environments, agent. A UserError is not reported and makes no run.

    `again`: the resumed run, None for a new one. A finished run that was to be continued keeps its result in
    config.json: only its run.log gets the error.
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
    """Report an error before the training in the resumed run's folder, or in a new one."""
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
    """Add the place in the user's code to an error: "ValueError: ... (my_env.py:12)".

    An error raised in the user's code becomes a CodeError. A NumbersError gets the file and line that made the
    environment.
    """
    try:
        yield
    except NumbersError as error:
        location = maker_line(env_id)
        if not location:
            raise
        raise NumbersError(f"{error} ({location})") from error
    except BaseException as error:
        location = own_line(error)
        if location and not isinstance(error, ONE_LINE_ERRORS) and not by_signal(error):
            raise CodeError(f"{describe_error(error)} ({location})") from error
        raise


def is_of_learning(error: BaseException) -> bool:
    """Return whether a number of the learner, and not one of the environment, was not finite."""
    return isinstance(error, NumbersError) and str(error).startswith(("weights", "the loss", "the gradient", "action"))


def cure_of_numbers(run: RunDir, config: Config) -> list[str]:
    """Return commands that repeat the training with another value of a key, as the same value would give the same NaN.

    With a checkpoint they resume from it, and keys that may not change in a resumed run are left out.
    """
    facts = run.facts()
    cures = Cures(to_plain(config), facts.get("shipped", ()))
    overrides = cures.checked(cures.of(NOT_A_NUMBER), MAX_CURES)
    if checkpoint_set.facts_of(run.checkpoints / "last.ckpt"):
        overrides = tuple(override for override in overrides if override.partition("=")[0] not in FIXED_KEYS)
        return [f"{TRAIN} {shlex.join(['--resume', run.id, override])}" for override in overrides]
    return cure_commands(task_words(f"{config.env_id}:{config.variant}", config.seed, facts), overrides)


def line_of(error: BaseException) -> str:
    return str(error) if isinstance(error, ONE_LINE_ERRORS) else describe_error(error)


def report(run: RunDir, line: str, commands: Sequence[str] = ()) -> None:
    """Write the failure to config.json and report.md; `commands`: those that may cure it."""
    with suppress(OSError, UserError):  # the cause, which the terminal shows, matters more than an unwritten report
        facts = {**read_json(run.config_json), "status": "failed", "failure": line}
        try:
            write_json(run.config_json, facts)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # the disk is full: delete metrics.mmap (310 kB); its numbers are in metrics.csv, and --resume makes it anew
            remove(run.path / metrics_layout.NAME)
            write_json(run.config_json, facts)
        write_failed(run, line, commands)


def report_interrupted(run: RunDir) -> bool:
    """Write to config.json that a signal ended the run; return False, and write nothing, if its end was written."""
    with suppress(OSError, UserError):
        facts = read_json(run.config_json)
        if facts.get("status") == "running":
            write_json(run.config_json, {**facts, "status": INTERRUPTED})
            return True
    return False


def write_failed(run: RunDir, line: str, commands: Sequence[str] = ()) -> None:
    """Write report.md: why the run failed, where the traceback is, how to continue. A later end replaces it."""
    facts = run.facts()
    saved = checkpoint_set.facts_of(run.checkpoints / "last.ckpt")
    status = f"Its last checkpoint is at {saved['env_steps']:,} env steps." if saved else "It has no checkpoint yet."
    if os.environ.get("STRIDE_NO_RUN_LOG") != "1":
        status = f"The traceback is at the end of [{run.run_log.name}]({run.run_log.name}). {status}"
    command = facts.get("command", "")
    if isinstance(command, list):
        command = shlex.join(map(str, command))
    sections = [
        "**Failed**",
        f"# {facts.get('env_id')}:{facts.get('variant')}",
        f"```text\n{line}\n```",
        status,
        "## Next",
        _next(commands) or f"Fix the cause, then:\n\n```sh\n{continuation(run).partition(': ')[2]}\n```",
    ]
    if command:
        sections.append(f"Repeat it:\n\n```sh\n{command}\n```")
    run_files.write_text(run.report, "\n\n".join(sections) + "\n")


def _next(commands: Sequence[str]) -> str:
    """Return the text of the report's section "Next" with these commands, likeliest first; "" without commands."""
    if not commands:
        return ""
    heading = "The same settings fail again. Train it with another value, most likely fix first:"
    return "\n".join([heading, "", "```sh", *commands, "```"])


def whereabouts(run: RunDir, line: str, commands: Sequence[str] = ()) -> str:
    """Return where the traceback is and how to continue, as the end of the error's `line`.

    `commands`: those that may cure the failure; the first replaces the usual advice.
    """
    text = "no traceback was kept: STRIDE_NO_RUN_LOG is set"
    if exists(run.run_log):
        path = from_caller(run.run_log)
        text = f"traceback in {run.run_log if path.startswith('..') else path}"
    if commands:
        return f"{text}; with another value: {commands[0]}"
    return text if "--resume" in line else f"{text}; {continuation(run)}"
