"""Kernels are compiled in a process of their own before the first iteration; the one that trains only ever loads them.

Machine code made in a process and the same code loaded from the cache can differ in the last bit of a result, and a run
must not depend on whether the cache was warm. Run as a program it compiles the kernels of an environment id.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from agents.engines.fused_cpu import nets, replay_binding, replay_update, returns, rollout, update
from agents.engines.fused_cpu.binding import PIECES, WORTH
from agents.engines.fused_cpu.bound import LAYERS
from agents.engines.fused_cpu.calls import address_of
from envs_fast import registry
from envs_fast.numba_env import NumbaEnv
from envs_fast.vec_env import VecEnv
from utils.counter_rng import ACT, Key, uniforms
from utils.kernel_cache import PROJECT, cache_folder
from utils.processor import NAME

ROLLOUTS = (update.update, *PIECES.values(), nets.fetch_parameters, nets.give_parameters, returns.judge, *WORTH)
KERNELS = {"ppo": ROLLOUTS, "reinforce": ROLLOUTS}  # of each algorithm, the longest first: so shares come out even
for _name, _gradient in replay_binding.GRADIENTS.items():
    _own = (_gradient, replay_binding.ACTORS[_name], replay_update.learn, replay_update.draw)
    KERNELS[_name] = (*_own, *replay_binding.PIECES.values())
NONE = "-"  # on the command line: no worlds of ours, or no engine
SECONDS = 10  # roughly, for the line that explains the wait


def warm(envs: VecEnv, algo_id: str | None, activation: str, quiet: bool = False) -> None:
    """Have the kernels of these worlds compiled, and those of the engine where an algorithm is named."""
    env_id = NONE
    if isinstance(envs, NumbaEnv) and registry.WORLDS.get(envs.env_id) is envs.world:
        env_id = envs.env_id
    if env_id == NONE and algo_id is None:
        return
    names = (env_id, algo_id or NONE, activation if algo_id else NONE)
    stamp = _stamp(*names)
    if stamp.exists():
        return
    began = time.monotonic()
    title = "the engine" if env_id == NONE else env_id
    if not quiet:
        print(f"compiling kernels for {title}, once on this machine (about {SECONDS} s) ...", flush=True)
    shares = len(os.sched_getaffinity(0))
    command = [sys.executable, "-m", __name__, *names]
    started = [subprocess.Popen([*command, f"{share}/{shares}"], cwd=PROJECT) for share in range(shares)]
    failed = [process.args for process in started if process.wait()]
    if failed:
        raise RuntimeError(f"compiling failed: {failed[0]!r}")
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.touch()
    if not quiet:
        print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)


def _stamp(env_id: str, algo_id: str, activation: str) -> Path:
    """Says that these kernels lie in the cache, for this processor and this state of the sources."""
    name = "-".join((env_id.replace("/", "_"), algo_id, activation, NAME, numba.__version__))
    return Path(numba.config.CACHE_DIR or cache_folder()) / f"{name}.ready"  # type: ignore[attr-defined]


def compile_kernels(env_id: str, algo_id: str, activation: str, share: str) -> None:
    """Compile the `share` "i/n" of them here; the cache keeps them."""
    first, step = map(int, share.split("/"))
    jobs: list[Callable[[], object]] = [lambda: uniforms(Key(0, ACT), (1,))]
    if algo_id != NONE:
        pieces = (*KERNELS[algo_id], *LAYERS[activation])
        jobs = [*(partial(address_of, piece) for piece in dict.fromkeys(pieces)), *jobs]
    if env_id != NONE:
        jobs = [partial(compile_worlds, env_id, algo_id != NONE), *jobs]
    for job in jobs[first::step]:
        job()


def compile_worlds(env_id: str, played: bool) -> None:
    """A world's own kernels, and where the engine plays it the engine's for arrays of these types."""
    envs = registry.make(env_id, 1, seed=0)
    action = torch.zeros(1, *(envs.action_space.shape or ()))
    envs.step(action if envs.action_space.shape else action.long())
    if played and isinstance(envs.obs, torch.Tensor):
        rollout.play.compile(rollout_types(envs))
        flag, number = (numba.typeof(np.zeros((1, 1), kind)) for kind in (np.uint8, np.float32))
        rollout.note_episodes.compile((flag, flag, number, number, number, numba.int64))


def rollout_types(envs: NumbaEnv) -> tuple[Any, ...]:
    """Of the arguments of `play` as engine.py hands them over for these worlds."""
    assert isinstance(envs.obs, torch.Tensor)
    obs = envs.obs.numpy()[None]
    shape = envs.action_space.shape or ()
    action = np.zeros((1, 1, *shape), np.float32 if shape else np.int64)
    number, flag, long = (np.zeros((1, 1), kind) for kind in (np.float32, np.uint8, np.int64))
    arrays = (obs, obs, obs, obs, action, number, flag, flag, flag, long, long[0], flag[0], number, number)
    head, draws = envs.arguments(), number[None]
    return tuple(numba.typeof(x) for x in (0, 0, 0, 0, 0, head[:4], 0, 0, head[6:], draws, *arrays))


if __name__ == "__main__":
    compile_kernels(*sys.argv[1:])
