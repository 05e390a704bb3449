"""Runs all parts of check-env, one after another, in a process of its own.

This process may hang or die because of the environment; the parent (watched.py) reports that. So findings are sent to
the parent at once.
"""

import faulthandler
import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from stride.envs_gym.blame import EnvError
from stride.envs_gym.check import finding as names
from stride.envs_gym.check.constants import check_constant_actions
from stride.envs_gym.check.cost import check_cost, check_memory
from stride.envs_gym.check.finding import CheckResult, EnvFinding, Findings, finding
from stride.envs_gym.check.form import STOP_REASON, check_form
from stride.envs_gym.check.outside import check_end, check_gymnasium, check_pictures, reported_better
from stride.envs_gym.check.played import check_random_play
from stride.envs_gym.check.repeat import check_repeatability
from stride.envs_gym.check.study import CheckLimits, StopError, Study, find_subject
from stride.envs_gym.check.world import VERBS, Pulse, calling
from stride.utils.child_process import end_with_parent
from stride.utils.user_error import UserError

CheckPart = Callable[[Study], Findings]
CHECKS: dict[str, CheckPart] = {
    names.FORM: check_form,
    names.PLAY: check_random_play,
    names.SEED: check_repeatability,
    names.CONSTANT: check_constant_actions,
    names.MEMORY: check_memory,
    names.COST: check_cost,
    names.END: check_end,
    names.GYMNASIUM: check_gymnasium,
    names.PICTURES: check_pictures,  # last, because drawing sometimes ends the process
}
Send = Callable[[tuple[str, Any]], object]  # sends a message (kind, value) to the parent; watched.py lists the kinds


def examine(
    name: str,
    kwargs: Mapping[str, Any],
    limits: CheckLimits,
    send: Send,
    pulse: Pulse,
    echo: Callable[[], float] | None = None,
    printed: Callable[[], int] = lambda: 0,
) -> CheckResult:
    """Run all parts of a check; UserError for an unknown name.

    `pulse`: shared with the parent, see world.py. `echo`: returns the seconds of a call to another process and back.
    `printed`: returns how many bytes this process has printed so far.
    """
    start_time = time.monotonic()
    result = CheckResult(name)
    try:
        with calling(pulse, "import"):
            subject = find_subject(name, kwargs)
    except EnvError as error:
        _add(result, finding("raises", str(error)), send)
        result.stopped = "its module cannot be imported"
        return result
    study = Study(subject, limits, pulse, echo, printed)
    result.measurements = study.measurements
    for part_name, part in CHECKS.items():
        send(("part", part_name))
        _run_part(part, study, result, send)
        pulse[1] = 0
        send(("measurements", study.measurements))
        if result.stopped:
            break
    result.seconds = time.monotonic() - start_time
    return result


def _run_part(part: CheckPart, study: Study, result: CheckResult, send: Send) -> None:
    """Run one part and add its findings; an error of the environment is a finding, too."""
    try:
        for env_finding in part(study):
            _add(result, env_finding, send)
    except StopError as stopped:
        result.stopped = str(stopped)
    except EnvError as error:
        name = "cannot-be-made" if VERBS[study.pulse[1]] == "__init__" else "raises"
        _add(result, finding(name, error.reason), send)
        if part is check_form:
            result.stopped = STOP_REASON


def _add(result: CheckResult, env_finding: EnvFinding, send: Send) -> None:
    """Add a finding to the result and send it, unless it is there already or another one says the same."""
    by_gymnasium = env_finding.name in ("gymnasium-checker", "gymnasium-warning")
    if by_gymnasium and reported_better(env_finding.evidence, result.findings):
        return
    if result.add(env_finding):
        send(("finding", env_finding))


def work(
    name: str, kwargs: Mapping[str, Any], limits: CheckLimits, pulse: Pulse, pipe: Connection, dump: Connection
) -> None:
    """Run a check as the main function of this process.

    Printed output goes into a temporary file, of which only the size is used. Tracebacks of faulthandler go to `dump`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent answers Ctrl-C
    end_with_parent()
    faulthandler.enable(dump.fileno())
    # the parent's SIGUSR1 writes a traceback, even while machine code holds Python's lock (GIL)
    faulthandler.register(signal.SIGUSR1, dump.fileno())
    output = tempfile.TemporaryFile()  # noqa: SIM115  # open until the process ends
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    sys.stdout = sys.stderr = io.TextIOWrapper(output, write_through=True)

    def echo() -> float:
        start_time = time.perf_counter()
        pipe.send(("echo", None))
        pipe.recv()
        return time.perf_counter() - start_time

    try:
        warnings.simplefilter("ignore")
        result = examine(name, kwargs, limits, pipe.send, pulse, echo, lambda: os.fstat(output.fileno()).st_size)
        pipe.send(("end", result.stopped))
    except UserError as error:
        pipe.send(("refused", str(error)))
    except BaseException:  # an error of Stride's own code
        pipe.send(("broken", traceback.format_exc()))
        raise
