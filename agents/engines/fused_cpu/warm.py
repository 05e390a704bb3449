"""Compiles the kernels of a training before its first iteration, in other processes; the training only loads them.

Machine code that a process has compiled itself and the same code loaded from the cache can differ in the last bit of a
result, and a run must not depend on whether the cache was full. Once all kernels of a kind of training are in the
cache, a file NAME.ready lists their files; while it is valid, nothing is compiled.
"""

import fcntl
import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numba
import numpy as np
import torch
from numba.core.registry import cpu_target

from stride.agents.engines.fused_cpu import model_learn, workers
from stride.agents.engines.fused_cpu.episodes import make_match
from stride.agents.engines.fused_cpu.kernel_tables import CALLED_FROM_PYTHON, KERNELS, NETS, SHARDED
from stride.agents.engines.fused_cpu.kernels import episodes, rollout
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel, address_of
from stride.agents.experience.cuts import most_of
from stride.agents.experience.finite_guard import all_finite
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.vec_env import VecEnv
from stride.envs_fast.world import COMPILED
from stride.utils.counter_rng import ACT, Key, uniforms
from stride.utils.durable_file import replacing, sweep
from stride.utils.kernel_folder import FOLDER, LOCK, PASSING, PRIVATE, ROOT, prune
from stride.utils.user_error import UserError

ABSENT = "-"  # in a name: no compiled environment, no algorithm, or no network
CompileJob = Callable[[], object]
HOW_OFTEN = "once on this machine"
if ROOT.name.startswith(PASSING):
    HOW_OFTEN = "for this run only, because no safe folder for them was found; set NUMBA_CACHE_DIR"
ABANDONED_SECONDS = 3600.0  # a temporary file that is older belongs to a process that was killed
EXPECTED_SECONDS = 10  # roughly how long compiling takes, for the message that explains the wait


def load_numba() -> None:
    """Load what Numba would load with the first kernel, such as SciPy's linear algebra; it takes half a second."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def warm(envs: VecEnv, algo_id: str | None, nets: str, quiet: bool = False, shards: int = 1) -> None:
    """Compile the kernels of these environments, and those of the engine where an algorithm is given.

    `algo_id`: such as "ppo", None without the engine. `nets`: its kind of network, from `nets_of`. `shards`: above 1
    the kernels that exchange gradients are compiled too. `quiet` prints nothing. UserError where the cache folder
    cannot be written.
    """
    env_id = envs.env_id if isinstance(envs, NumbaEnv) and COMPILED.get(envs.env_id) is envs.world else ABSENT
    if env_id == ABSENT and algo_id is None:
        return
    names = (env_id, algo_id or ABSENT, nets if algo_id else ABSENT)
    shard_kernels = [*SHARDED.values()] if algo_id and shards > 1 else []
    stamp = FOLDER / f"{'-'.join(names).replace('/', '_')}{'-shards' * bool(shard_kernels)}.ready"
    if _ready(stamp):
        return
    with _alone(quiet):
        if _ready(stamp):  # compiled by the process that this one has waited for
            return
        start_time = time.monotonic()
        if not quiet:
            title = "the engine" if env_id == ABSENT else env_id
            print(f"compiling kernels for {title}, {HOW_OFTEN} (about {EXPECTED_SECONDS} s) ...", flush=True)
        _sweep()
        _run_in_processes([*compile_jobs(*names), *(partial(address_of, kernel) for kernel in shard_kernels)])
        _note(stamp)
        if not quiet:
            print(f"compiled in {time.monotonic() - start_time:.0f} s", flush=True)
        if "NUMBA_CACHE_DIR" not in os.environ:
            prune(ROOT, FOLDER, time.time())


def _ready(stamp: Path) -> bool:
    """Return whether each file that the stamp lists exists and is not empty; programs that clean up delete some."""
    try:
        files = [stamp.parent / line for line in stamp.read_text(encoding="utf-8").splitlines()]
        ready = bool(files) and all(os.stat(file).st_size for file in files)
    except OSError:
        return False
    with suppress(OSError):  # OSError: the folder is read-only
        os.utime(stamp.parent)  # its time says when the folder was last used
    return ready


def _note(stamp: Path) -> None:
    """Write the stamp, the list of all files in the cache, after these files are safely on the disk."""
    files = [path for path in sorted(stamp.parent.glob("*/*")) if path.suffix in (".nbi", ".nbc")]
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    with replacing(stamp) as file:
        file.write("".join(f"{path.relative_to(stamp.parent)}\n" for path in files).encode())


def _sweep() -> None:
    """Delete what a killed process or a power cut left: old temporary files, and empty ones, which Numba would load."""
    sweep(FOLDER)
    for path in FOLDER.glob("*/*"):
        with suppress(FileNotFoundError):  # another process, which adds a kernel, has just renamed this file
            status = path.stat()
            if ".tmp." in path.name:
                unusable = time.time() - status.st_mtime > ABANDONED_SECONDS
            else:
                unusable = status.st_size == 0
            if unusable:
                path.unlink()


@contextmanager
def _alone(quiet: bool) -> Iterator[None]:
    """Hold the folder's lock: one process compiles at a time, as others would repeat its work."""
    while True:
        try:
            FOLDER.mkdir(PRIVATE, parents=True, exist_ok=True)
            file = open(FOLDER / LOCK, "w")  # noqa: SIM115  # closed below
        except OSError as error:
            message = (
                f"cannot store compiled kernels in {FOLDER}: {error.strerror}; set NUMBA_CACHE_DIR to another folder"
            )
            raise UserError(message) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not quiet:
                    print("waiting for another process that compiles kernels ...", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            if (FOLDER / LOCK).exists():  # else another process has just deleted the folder as too old: try again
                yield
                return


def _run_in_processes(jobs: list[CompileJob]) -> None:
    """Run the jobs in one process for each core; a process that is free takes the next job.

    Processes are forked, so they import nothing again. RuntimeError where one fails.
    """
    context = multiprocessing.get_context("fork")
    taken = context.Value("i", 0)
    processes = [context.Process(target=_work, args=(jobs, taken), daemon=True) for _ in os.sched_getaffinity(0)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    finally:  # also after Ctrl-C
        for process in processes:
            if process.pid is not None:
                process.kill()
    if any(process.exitcode for process in processes):
        raise RuntimeError("compiling failed; its error is written above")


def _work(jobs: list[CompileJob], taken: "Synchronized[int]") -> None:
    """Run jobs until none is left; `taken` counts the jobs that a process has begun."""
    os.setsid()  # so that a Ctrl-C reaches only the process that waits
    gc.disable()  # compiling makes millions of objects that stay, and looking for garbage in them takes long
    while True:
        with taken.get_lock():
            index = taken.value
            taken.value += 1
        if index >= len(jobs):
            return
        jobs[index]()


def compile_jobs(env_id: str, algo_id: str, nets: str) -> list[CompileJob]:
    """Return the jobs that compile everything for these names, the longest first so that processes end together."""
    played = algo_id in KERNELS  # not the world models, whose kernels only learn
    jobs: list[CompileJob] = []
    if env_id != ABSENT:
        jobs.append(partial(compile_worlds, env_id, played))
        if played:
            jobs.append(partial(compile_episodes, env_id))
    jobs.append(compile_common)
    kernels: list[CompiledKernel] = []
    if played:
        kernels += [*{**KERNELS[algo_id], **NETS[nets]}.values(), *CALLED_FROM_PYTHON[algo_id]]
    elif algo_id != ABSENT:
        kernels += model_learn.KERNELS
    if kernels:
        kernels += [workers.serve, workers.hand_out, workers.take_part]
    kernels.sort(key=lambda kernel: len(kernel.py_func.__code__.co_code), reverse=True)
    return jobs + [partial(address_of, kernel) for kernel in kernels]


def compile_common() -> None:
    """Compile what every training calls: random numbers, and checks of collected rows."""
    uniforms(Key(0, ACT), (1,))
    all_finite(np.zeros(1, np.float32))
    most_of(np.zeros((1, 1), np.uint8))


def compile_worlds(env_id: str, played: bool) -> None:
    """Compile an environment's own kernels; where the engine plays it, also the playing kernel for its array types."""
    envs = NumbaEnv(COMPILED[env_id], 1)
    envs.reset(0)
    action = torch.zeros(1, *(envs.action_space.shape or ()))
    envs.step(action if envs.action_space.shape else action.long())
    if played and isinstance(envs.obs, torch.Tensor):
        game = game_type(envs)
        rollout.leave.compile((numba.int64, game))
        rollout.play.compile((numba.types.CPointer(game), numba.int64))
        flag, number = (numba.typeof(np.zeros((1, 1), dtype)) for dtype in (np.uint8, np.float32))
        rollout.note_episodes.compile((flag, flag, number, number, number, numba.int64))


def compile_episodes(env_id: str) -> None:
    """Compile the kernel that evaluates in an environment. It runs beside `compile_worlds`, so it may not step it."""
    envs = NumbaEnv(COMPILED[env_id], 1)
    if isinstance(envs.obs, torch.Tensor):
        match = numba.typeof(make_match(envs, np.ones(1, np.int64), 1, 1))
        episodes.leave_match.compile((numba.int64, match))
        episodes.play_episodes.compile((numba.types.CPointer(match), numba.int64))


def game_type(envs: NumbaEnv) -> numba.types.Type:
    """Return Numba's type of the Game that play.py stores for `rollout.play`, for these environments."""
    assert isinstance(envs.obs, torch.Tensor)
    obs = envs.obs.numpy()[None]
    shape = envs.action_space.shape or ()
    action = np.zeros((1, 1, *shape), np.float32 if shape else np.int64)
    number, flag, long = (np.zeros((1, 1), dtype) for dtype in (np.float32, np.uint8, np.int64))
    table = rollout.RolloutTable(obs, action, number, flag, flag, flag, long)
    state = rollout.BetweenSteps(obs, obs, obs, long[0], flag[0])
    return numba.typeof(rollout.Game(0, 0, envs.simulation, table, state, number, number))
