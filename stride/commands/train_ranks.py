"""One training in several processes ("ranks"): start them, connect them, and serve rank 0 in the others.

`--processes N` starts the ranks here; torchrun and srun start them from outside. Rank 0 is an ordinary training: it
alone has the run folder, the console and evaluations. The other ranks get the config from it and carry their shards
(parts of the environments and of each update).
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from stride.agents.base import Agent
from stride.agents.engines.local_shards import build_shards
from stride.agents.engines.process_group import ProcessGroup, RankLostError, init_process_group
from stride.commands.rank import VARIABLES, Rank, rank_of
from stride.config.loader import from_plain, to_plain
from stride.config.plugins import EVERYBODY
from stride.config.schema import Config
from stride.envs_gym.own_code import import_own_modules
from stride.runstore.many.parent_death import signal_at_parents_death
from stride.trainer_callbacks.resume import host_facts
from stride.utils import own_modules, places
from stride.utils.interrupted import ENDING
from stride.utils.resources import cores
from stride.utils.user_error import NumbersError, UserError

END_SECONDS = 10.0  # how long to wait for ranks to end before they are killed
log = logging.getLogger("stride")


def check_processes(shards: int, processes: int, launched: Rank | None) -> None:
    """Raise UserError unless this number of processes can carry the shards. `launched`: the ranks come from outside."""
    ranks = launched.ranks if launched else processes
    power = 1 << (ranks.bit_length() - 1)
    if launched and processes > 1:
        raise UserError(f"--processes {processes}: {ranks} ranks were started from outside; leave it out")
    if ranks != power:
        raise UserError(f"the number of processes must be a power of two, not {ranks}; {power} is one")
    if ranks > shards:
        raise UserError(f"{ranks} processes cannot carry shards={shards}; use shards={ranks}, or {shards} processes")
    if not launched and processes > cores():
        raise UserError(f"--processes {processes} is more than the {cores()} cores of this machine")


def processes_for(shards: int) -> int:
    """Return the number for `--processes auto`: at most one per core and per shard, and a power of two."""
    return min(shards, 1 << (cores().bit_length() - 1))


def join_ranks(config: Config, processes: int, mixed: bool, stack: ExitStack) -> ProcessGroup | None:
    """Connect rank 0 with the other ranks, starting them if needed; None if there is only this process."""
    launched = rank_of(os.environ)
    processes = processes or (1 if launched else processes_for(config.shards))
    check_processes(config.shards, processes, launched)
    if launched:
        group = init_process_group(*launched)
    elif processes > 1:
        file = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stride-"))) / "ranks")
        group = init_process_group(0, processes, file, stack.enter_context(_child_ranks(processes, file)))
    else:
        return None
    stack.callback(group.close)
    group.broadcast(
        {
            "config": to_plain(config),
            "words": sys.argv[1:],
            "facts": host_facts(),
            "folders": own_modules.snapshot().folders,
            "mixed": mixed,
        }
    )
    return group


@contextmanager
def _child_ranks(processes: int, file: str) -> Iterator[Callable[[], None]]:
    """Start the ranks above 0 and yield a check that raises RankLostError if one ended; kill them after the block."""
    command = [*places.program("train"), *sys.argv[1:]]
    children = []
    for rank in range(1, processes):
        variables = {**os.environ, **dict(zip(VARIABLES, (str(rank), str(processes), file), strict=True))}
        children.append(subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

    def check() -> None:
        for rank, child in enumerate(children, 1):
            if child.poll() is not None:
                raise RankLostError(f"rank {rank} of this training did not start: exit code {child.returncode}")

    try:
        yield check
    finally:
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(END_SECONDS)
            child.kill()
            child.wait()


def agent_of_rank_0(config: Config, group: ProcessGroup | None, quiet: bool) -> Agent:
    """Return the agent of shard 0 after every rank has built its shards; UserError names a rank that cannot."""
    agent = build_shards(config, group, quiet).agents[0]
    for rank in range(1, group.ranks if group else 1):
        assert group
        answer = group.receive_message(rank)
        if answer["problem"]:
            raise UserError(f"rank {rank}: {answer['problem']}")
        if answer["warning"]:
            log.warning("rank %d: %s", rank, answer["warning"])
    return agent


def end_ranks() -> None:
    """End ranks above 0 that were started from outside, because nothing is left to train."""
    if launched := rank_of(os.environ):
        group = init_process_group(*launched)
        group.broadcast({})
        group.close()


def serve_rank_0() -> int:
    """Carry shards for rank 0 until it ends the training; return the exit code."""
    rank = rank_of(os.environ)
    assert rank is not None
    if rank.file:
        signal_at_parents_death(signal.SIGKILL)
    try:
        group = init_process_group(*rank)
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)  # rank 0 gets the same signal and decides for all
        start = group.receive_message()
        if not start:
            return 0
        shards, problem, warning = None, "", ""
        try:
            warning = compare(start, sys.argv[1:], host_facts())
            config = from_plain(start["config"], "rank 0", trust=EVERYBODY)
            torch.set_num_threads(config.torch_threads)
            import_own_modules(*map(Path, start["folders"]))
            shards = build_shards(config, group)
        except UserError as error:
            problem = str(error)
        group.send_message(0, {"problem": problem, "warning": warning})
        if shards:
            shards.serve()
    except (RankLostError, NumbersError):
        return 1  # the rank that ended first, or rank 0, reports why
    return 0


def compare(start: dict[str, Any], words: list[str], facts: dict[str, Any]) -> str:
    """Return a warning if this rank's processor is not rank 0's, else ""; UserError if arguments or code differ."""
    if words != start["words"]:
        theirs, own = " ".join(start["words"]), " ".join(words)
        raise UserError(f"it was started with other arguments ({own}) than rank 0 ({theirs})")
    differing = [name for name, value in start["facts"].items() if facts.get(name) != value]
    if set(differing) - {"cpu"}:
        raise UserError(f"it has other {', '.join(differing)} than rank 0; use one checkout and one environment")
    if not differing:
        return ""
    other = f"its processor ({facts['cpu']}) is not that of rank 0 ({start['facts']['cpu']})"
    if not start["mixed"]:
        raise UserError(f"{other}, so bits may differ; --mixed goes on")
    return f"{other}: bits may differ from those of another run"
