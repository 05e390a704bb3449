"""Runs commands on the nodes of a Ray cluster, with the signature of process_pool.run_all: a task is one process.

Ray Core places and watches them; what is begun, tried again and stopped is decided here. A command must be one that may
be started twice (`--group`): that is how it goes on where the node that ran it died. Whoever reaches a port of a Ray
cluster executes code on it (docs/scale.md).
"""

import importlib
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
from stride.runstore.many.process_pool import GRACE, POLL, Finished, Start, end_all, run_all, tail_of
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
NO_NODE = f"the Ray cluster has had no node for {EMPTY:.0f} s; the same command continues"
_starts: dict[tuple[str, ...], Start] = {}  # of this worker, which keeps a nursery for the commands that follow
_checked: set[str] = set()  # files by which this worker was found to share what it must
_awaited: list[Any] = []  # what we have asked of nodes before there were commands


class NodeContract(NamedTuple):
    """A file and versions that every node must share with us."""

    file: str
    token: str
    facts: dict[str, str]


class RayPool:
    """A cluster that we are connected to."""

    def __init__(self, ray: Any, cpus: int, gpus: int, contract: NodeContract) -> None:
        """`cpus`, `gpus`: what each command takes on its node."""
        self.ray, self._cpus, self._gpus = ray, cpus, gpus
        self._contract = tuple(contract)  # plain, as it travels to nodes and is read without our code
        self._remote = ray.remote(_on_node("perform")).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)

    @property
    def workers(self) -> int:
        """How many commands it runs at a time."""
        total = 0
        for node in _alive(self.ray):
            resources = node["Resources"]
            capacity = int(resources.get("CPU", 0) // self._cpus)
            total += min(capacity, int(resources.get("GPU", 0))) if self._gpus else capacity
        return total

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
        environment = {**_carried(), **(env or {}), CORES_VARIABLE: str(self._cpus)}
        waiting: list[int] = []
        try_counts: dict[int, int] = {}  # by index of the command
        running: dict[Any, int] = {}  # by reference of the task, the index of its command
        capacity = 0
        checked_at, deadline = float("-inf"), 0.0
        last_capacity_at = time.monotonic()  # when there was space for a command
        try:
            while waiting or running or (len(try_counts) < len(commands) and not deadline):
                while len(try_counts) < len(commands) and not deadline:
                    waiting.insert(0, len(try_counts))
                    try_counts[len(try_counts)] = 0
                if time.monotonic() - checked_at > LOOK:
                    capacity = self.workers
                    checked_at = time.monotonic()
                    if capacity or running:
                        last_capacity_at = checked_at
                    elif checked_at - last_capacity_at > EMPTY:
                        raise UserError(NO_NODE)
                while waiting and len(running) < capacity:
                    index = waiting.pop()
                    task = [*commands[index]], [*program], environment, os.getcwd(), self._contract
                    running[self._remote.remote(*task)] = index
                    try_counts[index] += 1
                    if try_counts[index] == 1:
                        began(index)
                finished = self.ray.wait([*running], timeout=POLL)[0] if running else []
                for reference in finished:
                    index = running.pop(reference)
                    exit_code, output_tail = self._result(reference)
                    if exit_code in AGAIN and try_counts[index] < TRIES and not deadline:
                        waiting.append(index)
                    else:
                        yield Finished(index, exit_code, output_tail)
                if not deadline and stop():
                    deadline = time.monotonic() + 2 * GRACE
                    waiting = []
                    self._cancel([*running], force=False)
                elif deadline and time.monotonic() > deadline:
                    self._cancel([*running], force=True)
                if not finished:
                    meanwhile()
                    if not running:
                        time.sleep(POLL)
        finally:
            self._cancel([*running], force=False)
            if running:
                self.ray.wait([*running], num_returns=len(running), timeout=2 * GRACE)

    def _result(self, reference: Any) -> tuple[int, str]:
        errors = self.ray.exceptions
        try:
            exit_code, output_tail = self.ray.get(reference)
        except errors.TaskCancelledError:
            return STOPPED, "stopped"
        except errors.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):
                return STOPPED, "stopped"
            raise  # ours to mend
        except errors.RayError as error:  # its worker or its node is gone
            return STOPPED, f"its node died: {type(error).__name__}"
        return exit_code, output_tail

    def _cancel(self, references: list[Any], force: bool) -> None:
        for reference in references:
            self.ray.cancel(reference, force=force)

    def new_actor(self, module: str, name: str) -> Any:
        """A process that has an object of this class: `call` calls its methods, in the concurrency group "watch" while
        another is under way. It asks for no core, as whoever waits for it needs none, and is spread over the nodes."""
        actor = self.ray.remote(concurrency_groups={"watch": 1})(_actor_class(module, name, _carried()))
        return actor.options(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD").remote()

    def check_nodes(self) -> None:
        """UserError, naming the node, where one reads another folder of runs, or would compute other bits."""
        if _awaited:  # Ray gives what follows to the worker that was idle last, and would else boot another
            self.ray.wait(_awaited, num_returns=len(_awaited), timeout=CHECK)
        nodes_by_task = _call_on_all(self.ray, "differing", *self._contract)
        silent_nodes = self.ray.wait([*nodes_by_task], num_returns=len(nodes_by_task), timeout=CHECK)[1]
        for reference, node in nodes_by_task.items():
            address = node["NodeManagerAddress"]
            if reference in silent_nodes:
                raise UserError(f"node {address} of the Ray cluster did not answer within {CHECK:.0f} s")
            try:
                difference = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                if node["NodeID"] not in [living["NodeID"] for living in _alive(self.ray)]:
                    continue  # it died before we asked, and Ray notices half a minute later
                reason = str(getattr(error, "cause", error)).strip().splitlines()[-1]
                raise UserError(f"node {address} of the Ray cluster cannot run Stride: {reason}") from error
            if difference:
                raise UserError(f"node {address} of the Ray cluster {difference}")


@contextmanager
def connected(where: str, cpus: int = 1, gpus: int = 0) -> Generator[RayPool, None, None]:
    """The cluster that RAY_ADDRESS names or `ray start` made here; one for this command alone where that is asked for.

    UserError where there is none, or one of its nodes differs.
    """
    ray = _reached(where)
    runs_folder = runs_root()
    runs_folder.mkdir(parents=True, exist_ok=True)
    shared_file = runs_folder / f".ray-{secrets.token_hex(8)}"
    token = secrets.token_hex(8)
    try:
        shared_file.write_text(token)
        pool = RayPool(ray, cpus, gpus, NodeContract(str(shared_file), token, facts()))
        if not pool.workers:
            raise UserError(f"no node of the Ray cluster has {cpus} CPUs{f' and {gpus} GPUs' * bool(gpus)}")
        pool.check_nodes()
        yield pool
    finally:
        shared_file.unlink(missing_ok=True)
        ray.shutdown()


def reach(argv: Sequence[str]) -> None:
    """Connect to the cluster that such a command of train.py would use, before it is read, and have each node load what
    its runs need meanwhile. What is wrong with the words is said by who reads them, with the cluster by `connected`."""
    arguments = " ".join(argv).replace("--on=", "--on ").split()
    here = any(word in ("--resume", "--detach", NURSERY) or word.startswith("collectors=") for word in arguments)
    if ("--on", "ray") in pairwise(arguments) and not here:
        with suppress(UserError):
            ray = _reached("ray")
            _awaited.extend(_call_on_all(ray, "load_ahead", program_of("train"), [*argv], os.getcwd(), _carried()))


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
    options: dict[str, Any] = {"address": "auto"}
    if where == "ray:local":
        options = {"address": "local", "include_dashboard": False}
    try:
        with chdir(_home()):  # Ray puts the present folder before all others that its workers import from
            ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **options)
    except ConnectionError as error:
        raise UserError(
            "--on ray: no Ray cluster was found; set RAY_ADDRESS, start one with `ray start --head`, or use "
            "--on ray:local for this command only"
        ) from error
    return ray


def _call_on_all(ray: Any, name: str, *arguments: Any) -> dict[Any, dict[str, Any]]:
    """Call this function of this module on each node that has a CPU: the nodes by the references to their results."""
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    function = ray.remote(_on_node(name))
    node_of = {}
    for node in _alive(ray):
        if node["Resources"].get("CPU"):
            strategy = affinity(node["NodeID"], soft=False)
            pinned = function.options(num_cpus=0, max_retries=1, scheduling_strategy=strategy)
            node_of[pinned.remote(*arguments)] = node
    return node_of


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


@cache
def facts() -> dict[str, str]:
    """Everything beside the config that decides the bits of a result."""
    from stride.utils.kernel_folder import NAME

    return {"code": source_hash(), "processor": NAME, **versions()}


def differing(file: str, token: str, expected_facts: Mapping[str, str]) -> str:
    """How this node differs from a NodeContract, "" for not at all."""
    try:
        node_token = Path(file).read_text()
    except OSError:
        return f"cannot read the new {file}: the folder of runs (STRIDE_RUNS) is not shared with it"
    if node_token != token:
        return f"reads a different {file}: the folder of runs (STRIDE_RUNS) is not shared with it"
    differences = []
    for key, expected in expected_facts.items():
        node_value = facts().get(key)
        if node_value != expected:
            differences.append(f"{key} {node_value!r} there, {expected!r} here")
    return f"differs, so results could differ: {', '.join(differences)}" if differences else ""


def load(program: Sequence[str], words: Sequence[str], cwd: str, env: Mapping[str, str]) -> Start:
    """In a worker: how it starts commands of this program; the first time a nursery begins to load what they need."""
    start_key = (*program, cwd)
    if start_key not in _starts:
        folder = cwd if Path(cwd).is_dir() else str(ROOT)
        _starts[start_key] = Start(_environment(env), program, words, folder, threads=True)
    return _starts[start_key]


def load_ahead(program: Sequence[str], words: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
    """In a worker, before there are commands: prepare how they are started, and the facts that will be asked soon."""
    start = load(program, words, cwd, env)
    facts()
    settled(start)


def settled(start: Start) -> None:
    while not start.settled:
        time.sleep(REAP)


def perform(
    command: list[str], program: list[str], env: dict[str, str], cwd: str, contract: tuple[str, str, dict[str, str]]
) -> tuple[int, str]:
    """In a worker: run this command; what ends this worker ends it, too."""
    child_process = None
    if contract[0] not in _checked:
        if difference := differing(*contract):
            return 1, f"error: this node {difference}"
        _checked.add(contract[0])
    start = load(program, command[len(program) :], cwd, env)
    try:
        settled(start)
        child_process = start(command, _environment(env))
        while child_process.process.poll() is None:
            time.sleep(REAP)
    except KeyboardInterrupt:  # so Ray cancels a task
        if child_process is None:
            return STOPPED, "stopped"
        end_all([child_process], keep=True)
    exit_code = child_process.code if child_process.code >= 0 else 128 - child_process.code  # as a shell has it
    return exit_code, tail_of(child_process.output)


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


def _on_node(name: str) -> Callable[..., Any]:
    """A function that calls this one of this module, imported from this checkout: a function in a function travels
    as a value, with nothing imported; its arguments and results are plain data."""
    project_root = _home()

    def run(*arguments: Any) -> Any:
        sys.path[:0] = [project_root] if project_root not in sys.path else []
        from stride.runstore.many import ray_pool

        return vars(ray_pool)[name](*arguments)

    return run


def _actor_class(module: str, name: str, env: Mapping[str, str]) -> type:
    """As `_on_node`, a class that travels as a value: it has an object of that one, imported from this checkout."""
    project_root = _home()

    class Actor:
        def __init__(self) -> None:
            os.environ.update(env)
            sys.path[:0] = [project_root] if project_root not in sys.path else []
            self._made = getattr(importlib.import_module(module), name)()

        def call(self, method: str, *arguments: Any) -> Any:
            return getattr(self._made, method)(*arguments)

    return Actor


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
