"""The parts of a check, one after another; runs in a process of its own, which may hang or die of what it looks at."""

import faulthandler
import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from stride.envs_gym.blame import EnvError
from stride.envs_gym.check import parts
from stride.envs_gym.check.catalogue import finding
from stride.envs_gym.check.constants import check_constant_actions
from stride.envs_gym.check.cost import check_cost
from stride.envs_gym.check.finding import Facts, Finding, Result
from stride.envs_gym.check.form import check_form
from stride.envs_gym.check.memory import check_memory
from stride.envs_gym.check.outside import check_end, check_gymnasium, check_pictures, said_better
from stride.envs_gym.check.played import check_random_play
from stride.envs_gym.check.repeat import check_repeatability
from stride.envs_gym.check.study import Limits, StopError, Study
from stride.envs_gym.check.subject import find_subject
from stride.envs_gym.check.world import VERBS, Pulse, begin
from stride.utils.child_process import end_with_parent
from stride.utils.user_error import UserError

Part = Callable[[Study], Iterator[Finding]]
CHECKS: dict[str, Part] = {
    parts.FORM: check_form,
    parts.PLAY: check_random_play,
    parts.SEED: check_repeatability,
    parts.CONSTANT: check_constant_actions,
    parts.MEMORY: check_memory,
    parts.COST: check_cost,
    parts.END: check_end,
    parts.GYMNASIUM: check_gymnasium,
    parts.PICTURES: check_pictures,  # last: drawing is what ends processes
}


class Told(NamedTuple):
    """A message to whoever waits: what it is, and of that kind only what belongs to it is set."""

    kind: str  # part | found | facts | echo | refused | broken | end
    part: str = ""
    finding: Finding | None = None
    facts: Facts | None = None
    text: str = ""


class Request(NamedTuple):
    """What is to be checked."""

    words: str
    kwargs: Mapping[str, Any]
    limits: Limits


def examine(
    request: Request,
    tell: Callable[[Told], object],
    pulse: Pulse,
    echo: Callable[[], float] | None = None,
    printed: Callable[[], int] = lambda: 0,
) -> Result:
    """All parts; each finding is told at once, as a later part may end the process. UserError for wrong words."""
    began, result = time.monotonic(), Result(request.words)
    begin(pulse, "import")
    try:
        study = Study(find_subject(request.words, request.kwargs), request.limits, pulse, echo, printed)
    except EnvError as error:
        _add(result, finding("raises", str(error)), tell)
        result.stopped = "its module cannot be imported"
        return result
    result.facts = study.facts
    for name, part in CHECKS.items():
        tell(Told("part", part=name))
        _carry_out(part, study, result, tell)
        pulse[1] = 0
        tell(Told("facts", facts=study.facts))
        if result.stopped:
            break
    result.seconds = time.monotonic() - began
    return result


def _carry_out(part: Part, study: Study, result: Result, tell: Callable[[Told], object]) -> None:
    try:
        for each in part(study):
            _add(result, each, tell)
    except StopError as stopped:
        result.stopped = str(stopped)
    except EnvError as error:
        name = "cannot-be-made" if VERBS[study.pulse[1]] == "__init__" else "raises"
        _add(result, finding(name, error.reason), tell)
        if part is check_form:
            result.stopped = "mend that first: whatever else is checked needs it"


def _add(result: Result, each: Finding, tell: Callable[[Told], object]) -> None:
    gymnasiums = each.name in ("gymnasium-checker", "gymnasium-warning")
    if not (gymnasiums and said_better(each, result.findings)):
        before = len(result.findings)
        result.add(each)
        if len(result.findings) > before:
            tell(Told("found", finding=each))


def work(request: Request, pulse: Pulse, pipe: Connection, last_words: Connection) -> None:
    """The life of the process: what it prints goes into a file that only counts, its last line into `last_words`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    end_with_parent()
    faulthandler.enable(last_words.fileno())
    faulthandler.register(signal.SIGUSR1, last_words.fileno())  # answered even where machine code keeps Python's lock
    silent = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
    for stream in (1, 2):
        os.dup2(silent.fileno(), stream)
    sys.stdout = sys.stderr = io.TextIOWrapper(silent, write_through=True)

    def echo() -> float:
        began = time.perf_counter()
        pipe.send(Told("echo"))
        pipe.recv()
        return time.perf_counter() - began

    try:
        warnings.simplefilter("ignore")
        result = examine(request, pipe.send, pulse, echo, lambda: os.fstat(silent.fileno()).st_size)
        pipe.send(Told("end", text=result.stopped))
    except UserError as error:
        pipe.send(Told("refused", text=str(error)))
    except BaseException:  # a mistake of ours
        pipe.send(Told("broken", text=traceback.format_exc()))
        raise
