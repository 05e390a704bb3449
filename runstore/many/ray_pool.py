"""Runs commands on the nodes of a Ray cluster, with the signature of process_pool.run_all: a task is one process.

Ray Core places and watches them; what is begun, tried again and stopped is decided here. A command must be one that may
be started twice (`--group`): that is how it goes on where the node that ran it died. Whoever reaches a port of a Ray
cluster executes code on it (docs/scale.md).
"""

import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from stride.config.extras import LOCAL
from stride.runstore.many.nursery import FLAG as NURSERY
from stride.runstore.many.nursery import REAP
from stride.runstore.many.process_pool import GRACE, POLL, Child, Finished, Start, end_all, run_all, tail_of
from stride.runstore.run_dir import runs_root
from stride.runstore.run_lock import LockLostError
from stride.utils.places import ROOT
from stride.utils.places import program as program_of
from stride.utils.provenance import source_hash, versions
from stride.utils.resources import CORES_VARIABLE, cores
from stride.utils.user_error import UserError

TRIES = 6  # of a command: one, and five where the node died or the run was stopped and saved there
STOPPED = 128 + signal.SIGTERM
AGAIN = (STOPPED, LockLostError.exit_code)
CARRIED = ("STRIDE_", "WANDB_")  # variables that the commands are given on every node
CARRIED_NAMES = ("OMP_NUM_THREADS", "PYTHONPATH", "PYTHONHASHSEED")
LOOK = 1.0  # seconds between looks at how many nodes there are
CHECK = 120.0  # seconds in which every node must have answered
EMPTY = 120.0  # seconds without a node, after which the rest is given up
_starts: dict[tuple[str, ...], Start] = {}  # of this worker, which keeps a nursery for the commands that follow
_checked: set[str] = set()  # files by which this worker was found to share what it must
_awaited: list[Any] = []  # what we have asked of nodes before there were commands


class Needs(NamedTuple):
    """Resources that a task takes on its node."""

    cpus: int
    gpus: int


class NodeContract(NamedTuple):
    """A file and versions that every node must share with us."""

    file: str
    token: str
    facts: dict[str, str]


class Errand(NamedTuple):
    """The input of a task; it travels as a plain tuple, which can be read without our code."""

    command: list[str]
    program: list[str]
    env: dict[str, str]
    cwd: str
    here: tuple[Any, ...]


class RayPool:
    """A cluster that we are connected to."""

    def __init__(self, ray: Any, needs: Needs, here: NodeContract) -> None:
        self._ray, self._needs, self._here = ray, needs, here
        self._remote = ray.remote(_there("perform")).options(num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=0)

    @property
    def workers(self) -> int:
        """How many commands it runs at a time."""
        nodes = [node["Resources"] for node in _alive(self._ray)]
        rooms = [int(node.get("CPU", 0) // self._needs.cpus) for node in nodes]
        if self._needs.gpus:
            rooms = [min(room, int(node.get("GPU", 0))) for room, node in zip(rooms, nodes, strict=True)]
        return sum(rooms)

    def run_all(
        self,
        commands: Sequence[Sequence[str]],
        workers: int,
        env: Mapping[str, str] | None = None,
        meanwhile: Callable[[], object] = lambda: None,
        stop: Callable[[], object] = lambda: False,
        began: Callable[[int], object] = lambda index: None,
        program: Sequence[str] = (),
    ) -> Generator[Finished, None, None]:
        """As process_pool.run_all, but for `workers`: the cluster says how many. Tried again where a node or a worker
        died, and after exit codes of runs that were saved and are to go on; never after another."""
        ray, waiting = self._ray, list[int]()
        given = {**_carried(), **(env or {}), CORES_VARIABLE: str(self._needs.cpus)}
        tries: dict[int, int] = {}
        running: dict[Any, int] = {}
        room, looked, deadline = 0, float("-inf"), 0.0
        last_room = time.monotonic()  # when there was room for a command
        try:
            while waiting or running or (len(tries) < len(commands) and not deadline):
                while len(tries) < len(commands) and not deadline:
                    waiting.insert(0, len(tries))
                    tries[len(tries)] = 0
                if time.monotonic() - looked > LOOK:
                    room, looked = self.workers, time.monotonic()
                    if room or running:
                        last_room = looked
                    elif looked - last_room > EMPTY:
                        raise UserError(f"the Ray cluster has had no node for {EMPTY:.0f} s; the same command goes on")
                while waiting and len(running) < room:
                    index = waiting.pop()
                    errand = Errand([*commands[index]], [*program], given, os.getcwd(), tuple(self._here))
                    running[self._remote.remote(tuple(errand))] = index
                    tries[index] += 1
                    if tries[index] == 1:
                        began(index)
                ended = ray.wait([*running], timeout=POLL)[0] if running else []
                for reference in ended:
                    index, (code, output) = running.pop(reference), self._result(reference)
                    if code in AGAIN and tries[index] < TRIES and not deadline:
                        waiting.append(index)
                    else:
                        yield Finished(index, code, output)
                if not deadline and stop():
                    deadline, waiting = time.monotonic() + 2 * GRACE, []
                    self._cancel([*running], force=False)
                elif deadline and time.monotonic() > deadline:
                    self._cancel([*running], force=True)
                if not ended:
                    meanwhile()
                    if not running:
                        time.sleep(POLL)
        finally:
            self._cancel([*running], force=False)
            if running:
                ray.wait([*running], num_returns=len(running), timeout=2 * GRACE)

    def _result(self, reference: Any) -> tuple[int, str]:
        errors = self._ray.exceptions
        try:
            code, output = self._ray.get(reference)
        except errors.TaskCancelledError:
            return STOPPED, "stopped"
        except errors.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):
                return STOPPED, "stopped"
            raise  # ours to mend
        except errors.RayError as error:  # its worker or its node is gone
            return STOPPED, f"its node died: {type(error).__name__}"
        return code, output

    def _cancel(self, references: list[Any], force: bool) -> None:
        for reference in references:
            self._ray.cancel(reference, force=force)

    def check_nodes(self) -> None:
        """UserError, naming the node, where one reads another folder of runs, or would compute other bits."""
        if _awaited:  # Ray gives what follows to the worker that was idle last, and would else boot another
            self._ray.wait(_awaited, num_returns=len(_awaited), timeout=CHECK)
        nodes = _asked_of_all(self._ray, _there("differing"), tuple(self._here))
        asked = {reference: (node["NodeID"], node["NodeManagerAddress"]) for reference, node in nodes.items()}
        silent = self._ray.wait([*asked], num_returns=len(asked), timeout=CHECK)[1]
        for reference, (node_id, address) in asked.items():
            if reference in silent:
                raise UserError(f"node {address} of the Ray cluster does not answer within {CHECK:.0f} s")
            try:
                difference = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                if node_id not in [node["NodeID"] for node in _alive(self._ray)]:
                    continue  # it died before we asked, and Ray notices half a minute later
                why = str(getattr(error, "cause", error)).strip().splitlines()[-1]
                raise UserError(f"node {address} of the Ray cluster cannot run Stride: {why}") from error
            if difference:
                raise UserError(f"node {address} of the Ray cluster {difference}")


@contextmanager
def connected(where: str, cpus: int = 1, gpus: int = 0) -> Generator[RayPool, None, None]:
    """The cluster that RAY_ADDRESS names or `ray start` made here; one for this command alone where that is asked for.

    UserError where there is none, or one of its nodes differs.
    """
    ray = _reached(where)
    root = runs_root()
    root.mkdir(parents=True, exist_ok=True)
    note = root / f".ray-{secrets.token_hex(8)}"
    try:
        note.write_text(token := secrets.token_hex(8))
        pool = RayPool(ray, Needs(cpus, gpus), NodeContract(str(note), token, facts()))
        if not pool.workers:
            raise UserError(f"no node of the Ray cluster has {cpus} CPUs{f' and {gpus} GPUs' * bool(gpus)}")
        pool.check_nodes()
        yield pool
    finally:
        note.unlink(missing_ok=True)
        ray.shutdown()


def reach(argv: Sequence[str]) -> None:
    """Connect to the cluster that such a command of train.py would use, before it is read, and have each node load what
    its runs need meanwhile. What is wrong with the words is said by who reads them, with the cluster by `connected`."""
    words = " ".join(argv).replace("--on=", "--on ").split()
    if ("--on", "ray") in pairwise(words) and not {NURSERY, "--detach"} & {*words}:
        with suppress(UserError):
            told = program_of("train"), [*argv], os.getcwd(), _carried()
            _awaited.extend(_asked_of_all(_reached("ray"), _there("load_ahead"), *told))


def _reached(where: str) -> Any:
    """Ray, connected, by whoever asked first."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # who was asked nothing sends nothing
    if where == "ray:local":
        # before Ray is imported: nobody else is to reach a cluster of this command alone. Ray has no other word for it;
        # `_node_ip_address="127.0.0.1"` becomes the machine's address, and its servers listen on all of them
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise UserError(f"--on {where} needs Ray: pip install 'stride-rl[cluster]'") from error
    if ray.is_initialized():
        return ray
    more: dict[str, Any] = {"address": "auto"} if where == "ray" else {"address": "local", "include_dashboard": False}
    try:
        with chdir(_home()):  # Ray puts the present folder before all others that its workers import from
            ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **more)
    except ConnectionError as error:
        how = "RAY_ADDRESS names one, `ray start --head` makes one, --on ray:local makes one for this command"
        raise UserError(f"--on ray: there is no Ray cluster here; {how}") from error
    return ray


def _asked_of_all(ray: Any, function: Callable[..., Any], *told: Any) -> dict[Any, dict[str, Any]]:
    """References to what it will answer on each node that has a CPU to run anything; the nodes by them."""
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = {}
    for node in _alive(ray):
        if node["Resources"].get("CPU"):
            there = affinity(node["NodeID"], soft=False)
            pinned = ray.remote(function).options(num_cpus=0, max_retries=1, scheduling_strategy=there)
            asked[pinned.remote(*told)] = node
    return asked


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


@cache
def facts() -> dict[str, str]:
    """Everything beside the config that decides the bits of a result."""
    from stride.utils.kernel_folder import NAME

    return {"code": source_hash(), "processor": NAME, **versions()}


def differing(sent: tuple[Any, ...]) -> str:
    """How this node differs from who sent that Here, "" for not at all."""
    here = NodeContract(*sent)
    try:
        token = Path(here.file).read_text()
    except OSError:
        return f"does not read {here.file}, just written: the folder of runs (STRIDE_RUNS) is not shared with it"
    if token != here.token:
        return f"reads another {here.file}: the folder of runs (STRIDE_RUNS) is not shared with it"
    local_facts = facts()
    apart = [
        f"{key} {local_facts.get(key)!r} where {expected!r} is here"
        for key, expected in here.facts.items()
        if local_facts.get(key) != expected
    ]
    return f"differs, so that bits would: {', '.join(apart)}" if apart else ""


def load(program: Sequence[str], words: Sequence[str], cwd: str, env: Mapping[str, str]) -> Start:
    """In a worker: how it starts commands of this program; the first time a nursery begins to load what they need."""
    name = (*program, cwd)
    if name not in _starts:
        there = cwd if Path(cwd).is_dir() else str(ROOT)
        _starts[name] = Start(_environment(env), program, words, there, threads=True)
    return _starts[name]


def load_ahead(program: Sequence[str], words: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
    """In a worker, before there are commands: the same, and what will be asked soon."""
    start = load(program, words, cwd, env)
    facts()
    settled(start)


def settled(start: Start) -> None:
    while not start.settled:
        time.sleep(REAP)


def perform(sent: tuple[Any, ...]) -> tuple[int, str]:
    """In a worker: run the command of an Errand; what ends this worker ends it, too."""
    errand = Errand(*sent)
    here, child = NodeContract(*errand.here), None
    if here.file not in _checked:
        if apart := differing(here):
            return 1, f"error: this node {apart}"
        _checked.add(here.file)
    start = load(errand.program, errand.command[len(errand.program) :], errand.cwd, errand.env)
    try:
        settled(start)
        child = start(errand.command, _environment(errand.env))
        while child.process.poll() is None:
            time.sleep(REAP)
    except KeyboardInterrupt:  # so Ray cancels a task
        if child is None:
            return STOPPED, "stopped"
        end_all([child], keep=True)
    return _code(child), tail_of(child.output)


def _code(child: Child) -> int:
    """As a shell has it: Ray's own deaths are told otherwise."""
    return child.code if child.code >= 0 else 128 - child.code


def _carried() -> dict[str, str]:
    """Those of our environment variables that a command's result depends on."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(CARRIED) or name in CARRIED_NAMES}
    return {**variables, "STRIDE_RUNS": str(runs_root())}


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """This node's, without what Ray says to its workers, with what the commands are given."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", *CARRIED))}
    for name in CARRIED_NAMES:
        variables.pop(name, None)
    if not variables.get("CUDA_VISIBLE_DEVICES", "x"):  # Ray hides all of them from who asked for none
        del variables["CUDA_VISIBLE_DEVICES"]
    return {**variables, **given}


def _home() -> str:
    return str(ROOT)


def _there(name: str) -> Callable[..., Any]:
    """That function of this module, found where this checkout lies: a function in a function travels whole, with
    nothing imported, and what it is told and answers is plain."""
    home = _home()

    def run(*told: Any) -> Any:
        sys.path[:0] = [home] if home not in sys.path else []
        from stride.runstore.many import ray_pool

        return vars(ray_pool)[name](*told)

    return run


Pool = Callable[..., Iterator[Finished]]  # process_pool.run_all, or one of its signature


@contextmanager
def pool_on(where: str, threads: int, gpus: int = 0, program: Sequence[str] = ()) -> Iterator[tuple[Pool, int]]:
    """The pool, and how many commands it runs at a time, each of which takes so many threads and GPUs.

    `program` is what a nursery may fork.
    """
    if where == LOCAL:
        yield partial(run_all, program=program), max(1, cores() // threads)
        return
    with connected(where, threads, gpus) as pool:
        yield partial(pool.run_all, program=program), pool.workers
