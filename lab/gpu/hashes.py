"""Does the device compute what the host computes, to the bit? SHA-256 of both, the host's from docs/benchmarks.

The host's are Numba's. First the functions that kernels compute with, and the tables that everything is drawn from.
Then worlds: resets of three seeds, free steps with autoreset, episodes cut after ten steps, some worlds restarted, and
what a checkpoint would hold; actions from beyond the bounds are among them.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from lab.gpu import maths
from lab.gpu.driven import compiler, worlds
from lab.gpu.parts import Found, Machine
from stride.agents.experience.nouns import leaves
from stride.envs_fast import registry
from stride.envs_fast.buffers import Trajectory
from stride.utils.counter_rng import ACT, SHUFFLE, Key, permutation, uniforms, words_torch
from stride.utils.durable_file import read_json, write_json
from stride.utils.provenance import PROJECT

FILE = PROJECT / "docs" / "benchmarks" / "kernel_hashes.json"
COMMAND = "python scripts/gpu_check.py --hashes"
WORLDS, STEPS, LIMIT, CUT_STEPS = 200, 1024, 10, 64
RESETS, SEEDS = 3000, (0, 1, (1 << 62) + 3)
STRETCHES = ((0, 1), (1, 64), (64, STEPS))  # of steps, hashed one by one: the first that differs tells how soon
BEYOND = 1.25  # boxes' actions are drawn from this times their bounds
DIGITS = 16

Hashes = dict[str, str]
Make = Callable[..., Any]  # (env_id, num_envs, max_episode_steps=None): worlds with `advance`


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """Group by group; what differs is named with the stretch of steps and the field."""
    golden, wrong, count = read_json(FILE), list[str](), 0
    for name, group in groups(machine):
        try:
            hashes = group()
        except (RuntimeError, ValueError) as error:  # of a compiler, say: the other groups are looked at all the same
            wrong.append(f"{name}: {error}")
            continue
        wrong += differing(name, golden["groups"].get(name, {}), hashes)
        count += len(hashes)
        yield Found(f"{count - len(wrong)} of {count} hashes are the host's", {"compared": count}, wrong)


def write() -> int:
    """The host's; exit code 0."""
    found = {name: group() for name, group in groups(None)}
    write_json(FILE, {"command": COMMAND, "groups": found})
    return 0


def groups(machine: Machine | None) -> Iterator[tuple[str, Callable[[], Hashes]]]:
    """Name -> its hashes, on a device by its kernels, or (None) on the host by Numba."""
    device = torch.device(machine.device if machine else "cpu")
    make: Make = partial(worlds, machine) if machine else registry.make
    yield "maths", lambda: each(maths.computed(compiler(machine), device) if machine else maths.expected())
    yield "draws", lambda: each(draws(device))
    for env_id in registry.WORLDS:
        yield env_id, partial(world, make, env_id)


def differing(name: str, golden: Mapping[str, str], hashes: Hashes) -> list[str]:
    """A line of what is not the same, "" where all is."""
    apart = [key for key in sorted({*golden, *hashes}) if golden.get(key) != hashes.get(key)]
    return [f"{name}: {', '.join(apart)}"] if apart else []


def world(make: Make, env_id: str) -> Hashes:
    """All of one world."""
    found: Hashes = {}
    many = make(env_id, RESETS)
    for seed in SEEDS:
        found[f"reset {seed}"] = bits(*leaves(many.reset(seed)))
        found[f"reset {seed}, state"] = bits(many.state_dict()["state"])
    for some in (torch.arange(RESETS) % 3 == 0, torch.arange(RESETS) % 7 == 0):
        found[f"restart of {int(some.sum())}"] = bits(*leaves(many.restart(some.numpy())))
    free = make(env_id, WORLDS)
    free.reset(SEEDS[0])
    for begin, end in STRETCHES:
        told = free.advance(actions(free, begin, end))
        found |= {f"steps {begin}-{end - 1}, {name}": value for name, value in trajectory(told).items()}
    state = free.state_dict()
    found |= {f"after {STEPS}, {name}": bits(state[name]) for name in ("state", "ages", "episodes", "returns")}
    cut = make(env_id, WORLDS, max_episode_steps=LIMIT)
    cut.reset(SEEDS[1])
    told = cut.advance(actions(cut, 0, CUT_STEPS))
    return found | {f"cut at {LIMIT}, {name}": value for name, value in trajectory(told).items()}


def actions(env: Any, begin: int, end: int) -> Tensor:
    """Of the steps [begin, end), on the worlds' device; the same for every device."""
    one = (env.num_envs, *(env.action_space.shape or ()))
    words = words_torch(Key(0, ACT), end * int(np.prod(one)), env.device).reshape(end, *one)[begin:]
    if isinstance(env.action_space, spaces.Discrete):
        return words % int(env.action_space.n)
    return ((words >> 8).float() * 2.0**-23 - 1.0) * BEYOND  # each operation rounds once, on every device


def trajectory(told: Trajectory) -> Hashes:
    """Of every field; what is rubbish where no episode ended counts as 0."""
    ended = told.terminated | told.truncated
    last = [torch.where(ended.view(*ended.shape, *[1] * (leaf.dim() - 2)), leaf, 0) for leaf in leaves(told.final_obs)]
    numbers = {"episode_return": told.episode_return, "episode_length": told.episode_length}
    return {
        "obs": bits(*leaves(told.obs)),
        **{name: bits(getattr(told, name)) for name in ("reward", "terminated", "truncated")},
        "final_obs": bits(*last),
        **{name: bits(torch.where(ended, each, 0)) for name, each in numbers.items()},
    }


def draws(device: torch.device) -> dict[str, Tensor]:
    """Tables, as everything that learns draws them."""
    return {
        "uniforms": uniforms(Key(5, ACT, 0, 9), (33, 77, 3), device),
        "a large seed": uniforms(Key((1 << 62) + 1, ACT, 1, 1 << 31), (1001,), device),
        "permutation": permutation(Key(5, SHUFFLE, 0, 2), 100_001, device),
    }


def each(tensors: Mapping[str, Tensor]) -> Hashes:
    return {name: bits(tensor) for name, tensor in tensors.items()}


def bits(*tensors: Tensor) -> str:
    """The first digits of the SHA-256 of what lies in them."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tensor.dtype}{[*tensor.shape]}".encode())
        found.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:DIGITS]
