"""One training in several processes: who starts them, how they meet, and what those do that do not lead.

`--processes N` starts the others here; torchrun starts them all. Rank 0 is an ordinary training: it alone has
arguments, a run, a console, evaluations. The others are told the config and then carry their shards.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch

from stride.agents.engines.crew import muster
from stride.agents.engines.link import LinkLostError, ProcessLink, connect
from stride.commands.rank import OURS, Rank, rank_of
from stride.config.loader import from_plain, to_plain
from stride.config.plugins import EVERYBODY
from stride.config.schema import Config
from stride.envs_gym.own_code import import_own_modules
from stride.runstore.many.parent_death import signal_at_parents_death
from stride.trainer_callbacks.resume import host_facts
from stride.utils import places
from stride.utils.resources import cores
from stride.utils.user_error import NumbersError, UserError

PARTING = 10.0  # seconds that processes have to end by themselves


def check_processes(config: Config, processes: int, launched: Rank | None) -> None:
    """UserError unless so many processes can carry the config's shards."""
    wanted, shards = launched.ranks if launched else processes, config.shards
    if launched and processes > 1:
        raise UserError(f"--processes {processes}: torchrun has already started {wanted}; leave it out")
    if wanted & (wanted - 1):
        below = 1 << (wanted.bit_length() - 1)
        raise UserError(f"--processes must be a power of two, not {wanted}; {below} is one")
    if wanted > shards:
        raise UserError(f"{wanted} processes cannot carry shards={shards}; use shards={wanted} or --processes {shards}")
    if not launched and processes > cores():
        raise UserError(f"--processes {processes} is more than the {cores()} cores of this machine")


def linked(config: Config, processes: int, stack: ExitStack) -> ProcessLink | None:
    """Rank 0's link to the other processes of this training, started here unless torchrun did; None: it is alone."""
    launched = rank_of(os.environ)
    check_processes(config, processes, launched)
    if launched:
        link = connect(*launched)
    elif processes > 1:
        meeting = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stride-"))) / "meeting"
        watch = stack.enter_context(_others(processes, str(meeting)))
        link = connect(0, processes, str(meeting), watch)
    else:
        return None
    stack.callback(link.close)
    link.say({"config": to_plain(config), "facts": host_facts()})
    return link


@contextmanager
def _others(processes: int, meeting: str) -> Iterator[Callable[[], None]]:
    """The processes beside this one; killed where they do not end with it. What raises where one has ended."""
    command = [*places.program("train"), *sys.argv[1:]]
    others = []
    for number in range(1, processes):
        values = (str(number), str(processes), meeting)
        variables = {**os.environ, **dict(zip(OURS, values, strict=True))}
        others.append(subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

    def watch() -> None:
        for number, other in enumerate(others, 1):
            if other.poll() is not None:
                raise LinkLostError(f"process {number} of this training did not start: exit code {other.returncode}")

    try:
        yield watch
    finally:
        for other in others:
            with suppress(subprocess.TimeoutExpired):
                other.wait(PARTING)
            other.kill()
            other.wait()


def follow() -> int:
    """Carry shards for rank 0 until it says that the training is over; the exit code."""
    rank = rank_of(os.environ)
    assert rank is not None
    if rank.meeting:
        signal_at_parents_death(signal.SIGKILL)
    try:
        link = connect(*rank)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # rank 0 is told, too, and decides
        hello = link.hear()
        mine = host_facts()
        differing = [name for name, value in hello["facts"].items() if mine.get(name) != value]
        if differing:
            raise UserError(f"process {rank.number} of this training has other {', '.join(differing)} than process 0")
        config = from_plain(hello["config"], "process 0", trust=EVERYBODY)
        torch.set_num_threads(config.torch_threads)
        import_own_modules(Path.cwd())
        muster(config, link).obey()
    except (LinkLostError, NumbersError):
        return 1  # whoever ended first, or rank 0, says why
    return 0
