"""Checks that a device computes the bits of the host: environments, functions, split launches, return estimators."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from lab.gpu.driven import compiler, worlds
from lab.gpu.parts import Found, Machine
from stride.agents import returns as estimators
from stride.agents.experience.nouns import leaves
from stride.envs_fast import registry
from stride.envs_fast.buffers import Trajectory
from stride.envs_fast.device_code import with_twin
from stride.utils import simd_math
from stride.utils.counter_rng import ACT, SHUFFLE, Key, counters, permutation, uniforms, words_numpy, words_torch
from stride.utils.cuda_kernels import Compile, read_source
from stride.utils.durable_file import read_json, write_json
from stride.utils.kernel_cache import njit
from stride.utils.provenance import PROJECT

NUMBERS = 1 << 16  # inputs of each function
KEY = Key(20, ACT, 3, 1)
DOUBLES = ("sin near zero", "cos near zero", "sin", "cos", "exp", "log", "tanh")
SINGLES = ("sin32", "cos32", "exp32", "log32", "tanh32")
EDGES = (
    0.0, -0.0, 1.0, -1.0, 0.5, 22.0, -22.0, 9.1, 1e-300, -1e-300, 5e-324, 1e300, 709.7, 710.0, -745.2, -746.0, 88.7,
    89.0, -103.9, -104.0, 1.17549435e-38, 1e-45, 2.2250738585072014e-308, math.inf, -math.inf, math.nan,
)  # fmt: skip


def spread(place: int, size: float) -> Tensor:
    """Return float64 [NUMBERS] between -size and size, from 32 random bits each; `place` chooses the sequence."""
    words = words_torch(Key(20, ACT, place), NUMBERS, "cpu")
    return (words.double() * 2.0**-31 - 1.0) * size


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers of every size (with EDGES), numbers near 0, and angles, float64 [NUMBERS] each."""
    signs, sizes = spread(0, 1.0).sign(), torch.tensor(2.0).double() ** spread(1, 1060.0).round()
    mixed = torch.where(spread(2, 1.0) > 0, spread(3, 60.0), signs * sizes * spread(4, 1.0).abs())
    mixed[: len(EDGES)] = torch.tensor(EDGES, dtype=torch.float64)
    return mixed, spread(5, 0.21), spread(6, 50_000.0)


def maths_there(compile: Compile, device: torch.device) -> dict[str, Tensor]:
    kernels = compile(read_source(Path(__file__).with_name("maths.cu")), device)
    x, small, turns = (value.to(device) for value in inputs())
    doubles = torch.empty(len(DOUBLES), NUMBERS, dtype=torch.float64, device=device)
    kernels.launch("maths_doubles", NUMBERS, x, small, turns, doubles, np.int32(NUMBERS))
    singles = torch.empty(len(SINGLES), NUMBERS, device=device)
    kernels.launch("maths_singles", NUMBERS, x.float(), (turns / 8).float(), singles, np.int32(NUMBERS))
    words, key = torch.empty(NUMBERS, dtype=torch.int32, device=device), [np.uint32(value) for value in counters(KEY)]
    kernels.launch("maths_philox", NUMBERS, *key, words.view(torch.uint32), np.int32(NUMBERS))
    return named(doubles, singles, words)


def maths_here() -> dict[str, Tensor]:
    x, small, turns = (each.numpy() for each in inputs())
    doubles, singles = np.empty((len(DOUBLES), NUMBERS)), np.empty((len(SINGLES), NUMBERS), np.float32)
    _doubles(x, small, turns, doubles)
    with np.errstate(over="ignore"):  # some numbers are too large for 32 bits
        _singles(x.astype(np.float32), (turns / 8).astype(np.float32), singles)
    words = words_numpy(KEY, NUMBERS).view(np.int32)
    return named(*(torch.from_numpy(each) for each in (doubles, singles, words)))


def named(doubles: Tensor, singles: Tensor, words: Tensor) -> dict[str, Tensor]:
    rows = [*zip(DOUBLES, doubles, strict=True), *zip(SINGLES, singles, strict=True)]
    # NaN has many bit patterns, and each processor returns another one
    columns = {name: torch.where(row.isnan(), torch.full_like(row, math.nan), row) for name, row in rows}
    return {**columns, "philox": words}


@njit(cache=True)
def _doubles(x: np.ndarray, small: np.ndarray, turns: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.size):
        out[0, i], out[1, i] = simd_math.sincos_near_zero(small[i])
        out[2, i], out[3, i] = simd_math.sincos(turns[i])
        out[4, i], out[5, i], out[6, i] = simd_math.exp(x[i]), simd_math.log(x[i]), simd_math.tanh(x[i])


@njit(cache=True)
def _singles(x: np.ndarray, turns: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.size):
        out[0, i], out[1, i] = simd_math.sincos32(turns[i])
        out[2, i], out[3, i], out[4, i] = simd_math.exp32(x[i]), simd_math.log32(x[i]), simd_math.tanh32(x[i])


FILE = PROJECT / "docs" / "benchmarks" / "kernel_hashes.json"
COMMAND = "python scripts/gpu_check.py --hashes"
MANY, STEPS, LIMIT, CUT_STEPS = 200, 1024, 10, 64
RESETS, SEEDS = 3000, (0, 1, (1 << 62) + 3)
STRETCHES = ((0, 1), (1, 64), (64, STEPS))  # of steps, each with its hash: the first that differs shows when
BEYOND = 1.25  # boxes' actions are drawn from this times their bounds
DIGITS = 16  # of a SHA-256

Hashes = dict[str, str]
Make = Callable[..., Any]  # (env_id, num_envs, max_episode_steps=None) -> environments with `advance`


def hashes(machine: Machine, seconds: float) -> Iterator[Found]:
    golden, wrong, count = read_json(FILE), list[str](), 0
    for name, group in groups(machine):
        try:
            values = group()
        except (RuntimeError, ValueError) as error:  # for example of a compiler: the other groups are still checked
            wrong.append(f"{name}: {error}")
            continue
        wrong += differing(name, golden["groups"].get(name, {}), values)
        count += len(values)
        yield Found(f"{count - len(wrong)} of {count} hashes are the host's", {"compared": count}, wrong)


def write_hashes() -> int:
    """Write the host's hashes to FILE; return exit code 0."""
    found = {name: group() for name, group in groups(None)}
    write_json(FILE, {"command": COMMAND, "groups": found})
    return 0


def groups(machine: Machine | None) -> Iterator[tuple[str, Callable[[], Hashes]]]:
    """Yield (name, function that returns its hashes): by the device's kernels, or with None by Numba on the host."""
    device = torch.device(machine.device if machine else "cpu")
    make: Make = partial(worlds, machine) if machine else registry.make
    yield "maths", lambda: each(maths_there(compiler(machine), device) if machine else maths_here())
    yield "draws", lambda: each(draws(device))
    for env_id in with_twin():
        yield env_id, partial(world, make, env_id)


def differing(name: str, golden: Mapping[str, str], found: Hashes) -> list[str]:
    different = [key for key in sorted({*golden, *found}) if golden.get(key) != found.get(key)]
    return [f"{name}: {', '.join(different)}"] if different else []


def world(make: Make, env_id: str) -> Hashes:
    """Return the hashes of an environment's resets, restarts, steps, and steps with a time limit."""
    found: Hashes = {}
    many = make(env_id, RESETS)
    for seed in SEEDS:
        found[f"reset {seed}"] = bits(*leaves(many.reset(seed)))
        found[f"reset {seed}, state"] = bits(many.state_dict()["state"])
    for some in (torch.arange(RESETS) % 3 == 0, torch.arange(RESETS) % 7 == 0):
        found[f"restart of {int(some.sum())}"] = bits(*leaves(many.restart(some.numpy())))
    free = make(env_id, MANY)
    free.reset(SEEDS[0])
    for begin, end in STRETCHES:
        steps = free.advance(actions(free, begin, end))
        found |= {f"steps {begin}-{end - 1}, {name}": value for name, value in trajectory(steps).items()}
    state = free.state_dict()
    found |= {f"after {STEPS}, {name}": bits(state[name]) for name in ("state", "ages", "episodes", "returns")}
    cut = make(env_id, MANY, max_episode_steps=LIMIT)
    cut.reset(SEEDS[1])
    steps = cut.advance(actions(cut, 0, CUT_STEPS))
    return found | {f"cut at {LIMIT}, {name}": value for name, value in trajectory(steps).items()}


def actions(env: Any, begin: int, end: int) -> Tensor:
    """Return the actions of steps [begin, end), [end - begin, N, ...], equal on every device."""
    one = (env.num_envs, *(env.action_space.shape or ()))
    words = words_torch(Key(0, ACT), end * int(np.prod(one)), env.device).reshape(end, *one)[begin:]
    if isinstance(env.action_space, spaces.Discrete):
        return words % int(env.action_space.n)
    return ((words >> 8).float() * 2.0**-23 - 1.0) * BEYOND  # each operation rounds once: equal bits everywhere


def trajectory(steps: Trajectory) -> Hashes:
    """Return the hashes of a trajectory; what is defined only at an episode's end is 0 elsewhere."""
    ended = steps.terminated | steps.truncated
    last = [torch.where(ended.view(*ended.shape, *[1] * (leaf.dim() - 2)), leaf, 0) for leaf in leaves(steps.final_obs)]
    numbers = {"episode_return": steps.episode_return, "episode_length": steps.episode_length}
    return {
        "obs": bits(*leaves(steps.obs)),
        **{name: bits(getattr(steps, name)) for name in ("reward", "terminated", "truncated")},
        "final_obs": bits(*last),
        **{name: bits(torch.where(ended, values, 0)) for name, values in numbers.items()},
    }


def draws(device: torch.device) -> dict[str, Tensor]:
    return {
        "uniforms": uniforms(Key(5, ACT, 0, 9), (33, 77, 3), device),
        "a large seed": uniforms(Key((1 << 62) + 1, ACT, 1, 1 << 31), (1001,), device),
        "permutation": permutation(Key(5, SHUFFLE, 0, 2), 100_001, device),
    }


def each(tensors: Mapping[str, Tensor]) -> Hashes:
    return {name: bits(tensor) for name, tensor in tensors.items()}


def bits(*tensors: Tensor) -> str:
    """Return the first digits of the SHA-256 of the tensors' types, shapes and bytes."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{[*tensor.shape]}".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:DIGITS]


CUT_WORLDS, CUT = 333, 128


def halves(machine: Machine, seconds: float) -> Iterator[Found]:
    """Check that several launches of few steps give the bits of one launch of CUT steps."""
    wrong = list[str]()
    for number, env_id in enumerate(with_twin(), 1):
        whole = played(machine, env_id, [CUT])
        for cut in ([CUT // 2] * 2, [1] * CUT):
            if played(machine, env_id, cut) != whole:
                wrong.append(f"{env_id}: {len(cut)} launches of {cut[0]} steps are not one of {CUT}")
        yield Found(f"{number} worlds, {CUT} steps as 1, 2 and {CUT} launches", {"worlds": number}, wrong)


def played(machine: Machine, env_id: str, cut: list[int]) -> str:
    env = worlds(machine, env_id, CUT_WORLDS)
    env.reset(3)
    all_actions, begin, columns = actions(env, 0, CUT), 0, list[list[Any]]()
    for steps in cut:
        stretch = env.advance(all_actions[begin : begin + steps])
        ended = stretch.terminated | stretch.truncated
        # these two are defined only where an episode ended
        ends = [torch.where(ended, values, 0) for values in (stretch.episode_return, stretch.episode_length)]
        columns.append([*leaves(stretch.obs), stretch.reward, stretch.terminated, stretch.truncated, *ends])
        begin += steps
    state = env.state_dict()
    joined = [torch.cat(column) for column in zip(*columns, strict=True)]
    return bits(*joined, *(state[name] for name in ("obs", "state", "ages", "episodes", "returns")))


LONG, WIDE = 128, 1000
NEAR = 1e-5  # relative error; absolute for numbers below 1


def returns(machine: Machine, seconds: float) -> Iterator[Found]:
    """Compare all five estimators with the CPU, on random rewards and values with every kind of episode end."""
    drawn = uniforms(Key(9, ACT), (7, LONG, WIDE))
    reward, value, following = drawn[0] * 4 - 2, drawn[1] * 20 - 10, drawn[2] * 20 - 10
    terminated, first = drawn[3] < 0.05, drawn[5] < 0.05
    truncated = (drawn[4] < 0.05) & ~terminated
    flags, numbers = (reward, terminated, truncated), (0.99, 0.95)
    cases: dict[Callable[..., Tensor], tuple[Tensor | float, ...]] = {
        estimators.gae: (*flags, value, following, *numbers),
        estimators.vtrace: (*flags, value, following, drawn[6] * 2, *numbers),
        estimators.reward_to_go: (*flags, following, numbers[0]),
        estimators.lambda_returns: (*flags, following, *numbers),
        estimators.from_episode_start: (reward, first),
    }
    wrong, figures, device = list[str](), dict[str, float](), torch.device(machine.device)
    for estimator, arguments in cases.items():
        name, wanted = estimator.__name__, estimator(*arguments)
        device_arguments = [argument.to(device) if isinstance(argument, Tensor) else argument for argument in arguments]
        result = estimators.launch(name, *device_arguments, compile=compiler(machine)).cpu()
        figures[name] = ((result - wanted).abs() / wanted.abs().clamp(min=1.0)).max().item()
        if not figures[name] <= NEAR:
            wrong.append(f"{name}: {figures[name]:.2g} from the CPU's")
    yield Found(f"{len(cases)} estimators within {max(figures.values()):.2g} of the CPU's", figures, wrong)
