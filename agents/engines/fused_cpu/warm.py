"""Kernels are compiled in a process of their own before the first iteration; the one that trains only ever loads them.

Machine code made in a process and the same code loaded from the cache can differ in the last bit of a result, and a run
must not depend on whether the cache was warm.
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
from stride.agents.engines.fused_cpu.bind import ACTIVATIONS, CALLED, KERNELS
from stride.agents.engines.fused_cpu.episodes import room_for
from stride.agents.engines.fused_cpu.kernels import (
    episodes,
    heads,
    minibatches,
    model_behaviour,
    model_imagine,
    model_recall,
    model_scan,
    policy_gradient,
    q,
    rollout,
    shuffle,
    squashed,
)
from stride.agents.engines.fused_cpu.kernels.calls import Kernel, address_of
from stride.agents.experience.cuts import most_of
from stride.agents.experience.finite_guard import all_finite
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.vec_env import VecEnv
from stride.envs_fast.world import WORLDS
from stride.utils.counter_rng import ACT, Key, uniforms
from stride.utils.durable_file import replacing, sweep
from stride.utils.kernel_folder import FOLDER, LOCK, PASSING, PRIVATE, ROOT, prune
from stride.utils.user_error import UserError

LONGEST: tuple[Kernel, ...] = (  # to compile
    policy_gradient.actor_loss,
    shuffle.shuffle_epochs,
    minibatches.update,
    heads.sample,
    heads.log_softmax,
    policy_gradient.gradient_part,
    squashed.sac_gradient,
    q.q_gradient,
    model_imagine.imagine,
    model_recall.tell,
    model_behaviour.learn,
    model_scan.backward,
    model_scan.forward,
)
SHARED: tuple[Kernel, ...] = (workers.serve, workers.hand_out, workers.take_part)
NONE = "-"  # no worlds of ours, or no engine
Job = Callable[[], object]
HOW_OFTEN = "once on this machine"
if ROOT.name.startswith(PASSING):
    HOW_OFTEN = "for this run alone, as no folder for them is safe from others; NUMBA_CACHE_DIR names one"
HOUR = 3600.0  # seconds in which whoever began to write a file has written it
SECONDS = 10  # roughly, for the line that explains the wait


def load_numba() -> None:
    """What Numba itself loads with the first kernel: half a second, SciPy's linear algebra among it."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def warm(envs: VecEnv, algo_id: str | None, activation: str, quiet: bool = False) -> None:
    """Have the kernels of these worlds compiled, and those of the engine where an algorithm is named."""
    env_id = NONE
    if isinstance(envs, NumbaEnv) and WORLDS.get(envs.env_id) is envs.world:
        env_id = envs.env_id
    if env_id == NONE and algo_id is None:
        return
    names = (env_id, algo_id or NONE, activation if algo_id else NONE)
    stamp = FOLDER / f"{'-'.join(names).replace('/', '_')}.ready"
    if _ready(stamp):
        return
    with _alone(quiet):
        if _ready(stamp):  # compiled by the process that this one has waited for
            return
        began = time.monotonic()
        title = "the engine" if env_id == NONE else env_id
        if not quiet:
            print(f"compiling kernels for {title}, {HOW_OFTEN} (about {SECONDS} s) ...", flush=True)
        _sweep()
        _share_out(kernel_jobs(*names))
        _note(stamp)
        if not quiet:
            print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
        if "NUMBA_CACHE_DIR" not in os.environ:
            prune(ROOT, FOLDER, time.time())


def _ready(stamp: Path) -> bool:
    """Whether each file that the stamp names is there and holds something: cleaners take single files of a cache."""
    try:
        files = [stamp.parent / line for line in stamp.read_text(encoding="utf-8").splitlines()]
        ready = bool(files) and all(os.stat(file).st_size for file in files)
    except OSError:
        return False
    with suppress(OSError):  # a folder that is only read; else: it was used today
        os.utime(stamp.parent)
    return ready


def _note(stamp: Path) -> None:
    """Say that these kernels lie in the cache: once they are on the disk, the stamp is."""
    files = [path for path in sorted(stamp.parent.glob("*/*")) if path.suffix in (".nbi", ".nbc")]
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    with replacing(stamp) as file:
        file.write("".join(f"{path.relative_to(stamp.parent)}\n" for path in files).encode())


def _sweep() -> None:
    """What a killed process or a power cut left: files that nobody goes on writing, empty ones that Numba trusts."""
    sweep(FOLDER)
    for path in FOLDER.glob("*/*"):
        with suppress(FileNotFoundError):  # another process, adding a kernel of its own, has just renamed it
            found = path.stat()
            written = ".tmp." in path.name
            if (written and time.time() - found.st_mtime > HOUR) or not (written or found.st_size):
                path.unlink()


@contextmanager
def _alone(quiet: bool) -> Iterator[None]:
    """One process at a time compiles into a folder: the others would do the same work again."""
    while True:
        try:
            FOLDER.mkdir(PRIVATE, parents=True, exist_ok=True)
            file = open(FOLDER / LOCK, "w")  # noqa: SIM115  # closed below
        except OSError as error:
            line = f"cannot keep compiled kernels in {FOLDER}: {error.strerror}; NUMBA_CACHE_DIR names another folder"
            raise UserError(line) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not quiet:
                    print("waiting for another process that compiles kernels ...", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            if (FOLDER / LOCK).exists():  # else somebody has just taken the folder away, as an old one
                yield
                return


def _share_out(jobs: list[Job]) -> None:
    """A process for each core, forked so that nothing is imported again; each takes the next job when it is free."""
    context = multiprocessing.get_context("fork")
    taken, started = context.Value("i", 0), []
    try:
        for _ in os.sched_getaffinity(0):
            process = context.Process(target=_work, args=(jobs, taken), daemon=True)
            process.start()
            started.append(process)
        for process in started:
            process.join()
    finally:  # also when they are waited for no more
        for process in started:
            process.kill()
    if any(process.exitcode for process in started):
        raise RuntimeError("compiling failed; its error is written above")


def _work(jobs: list[Job], taken: "Synchronized[int]") -> None:
    os.setsid()  # a Ctrl-C is for the one that waits
    gc.disable()  # compiling makes millions of objects that stay
    while True:
        with taken.get_lock():
            number, taken.value = taken.value, taken.value + 1
        if number >= len(jobs):
            return
        jobs[number]()


def kernel_jobs(env_id: str, algo_id: str, activation: str) -> list[Job]:
    """What there is to compile, the longest first, so that processes end together; the cache keeps it."""
    played = algo_id in KERNELS
    worlds: list[Job] = [] if env_id == NONE else [partial(compile_worlds, env_id, played)]
    if env_id != NONE and played:
        worlds.append(partial(compile_episodes, env_id))
    pieces: list[Kernel] = []
    if played:
        pieces = [*KERNELS[algo_id].values(), *ACTIVATIONS[activation].values(), *CALLED[algo_id], *SHARED]
    elif algo_id != NONE:
        pieces = [*model_learn.CALLED, *SHARED]
    pieces.sort(key=lambda piece: piece not in LONGEST)
    return [*worlds, compile_common, *(partial(address_of, piece) for piece in pieces)]


def compile_common() -> None:
    """What every training calls: tables of random numbers, the looks at what was collected."""
    uniforms(Key(0, ACT), (1,))
    all_finite(np.zeros(1, np.float32))
    most_of(np.zeros((1, 1), np.uint8))


def compile_worlds(env_id: str, played: bool) -> None:
    """A world's own kernels, and where the engine plays it the engine's for arrays of these types."""
    envs = NumbaEnv(WORLDS[env_id], 1)
    envs.reset(0)
    action = torch.zeros(1, *(envs.action_space.shape or ()))
    envs.step(action if envs.action_space.shape else action.long())
    if played and isinstance(envs.obs, torch.Tensor):
        game = game_type(envs)
        rollout.leave.compile((numba.int64, game))
        rollout.play.compile((numba.types.CPointer(game), numba.int64))
        flag, number = (numba.typeof(np.zeros((1, 1), kind)) for kind in (np.uint8, np.float32))
        rollout.note_episodes.compile((flag, flag, number, number, number, numba.int64))


def compile_episodes(env_id: str) -> None:
    """The engine's evaluation of a world; beside `compile_worlds`, so it must need none of the world's own kernels."""
    envs = NumbaEnv(WORLDS[env_id], 1)
    if isinstance(envs.obs, torch.Tensor):
        match = numba.typeof(room_for(envs, np.ones(1, np.int64), 1, 1))
        episodes.leave_match.compile((numba.int64, match))
        episodes.play_episodes.compile((numba.types.CPointer(match), numba.int64))


def game_type(envs: NumbaEnv) -> numba.types.Type:
    """Of what worlds.py leaves for `rollout.play` to play on, for these worlds."""
    assert isinstance(envs.obs, torch.Tensor)
    obs = envs.obs.numpy()[None]
    shape = envs.action_space.shape or ()
    action = np.zeros((1, 1, *shape), np.float32 if shape else np.int64)
    number, flag, long = (np.zeros((1, 1), kind) for kind in (np.float32, np.uint8, np.int64))
    table = rollout.Table(obs, action, number, flag, flag, flag, long)
    now = rollout.Instant(obs, obs, obs, long[0], flag[0])
    return numba.typeof(rollout.Game(0, 0, envs.simulation, table, now, number, number))
