"""Shared parts of the benchmarks: a PPO config for timing, a whole training in its own folder, a stopwatch for calls.

Figures are medians. On a machine that other programs use, too, only their ratios mean something.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import torch

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.config.checks import check
from stride.config.schema import Config, PPOConfig
from stride.envs_gym.make import make_envs
from stride.report.metrics_sinks import MetricsCsv
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.session import fit
from stride.utils.kernel_folder import FEATURES
from stride.utils.provenance import processor, provenance

EPOCHS, MINIBATCHES = 4, 4
OURS: tuple[Literal["fused_cpu", "eager"], ...] = ("fused_cpu", "eager")
WIDTHS = {"avx512f": "AVX-512", "avx2": "AVX2", "neon": "NEON"}  # processor feature -> its name, the widest first
Figures = dict[str, Any]
Place = tuple[object, str]  # a class or a module, and the name of a function in it
P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Config)


def setting(env_id: str, n_envs: int, n_steps: int, threads: int) -> PPOConfig:
    """Return a PPO config with SB3's defaults but for the size of a rollout: the same work on both sides."""
    config = PPOConfig(
        env_id=env_id, variant="bench", algo_id="ppo", n_envs=n_envs, n_steps=n_steps, n_epochs=EPOCHS,
        batch_size=1 / MINIBATCHES, hidden_dims=(64, 64), optimizer="adam", max_timesteps=n_envs * n_steps,
        log_freq_epochs=5,  # as a run of 1M steps in rollouts of 8 x 128 takes by itself
        engine="eager", threads=threads, early_stop_on_eval_threshold=False, eval_freq_epochs=None, test_episodes=0,
    )  # fmt: skip
    check(config, "bench")
    return config


def lasting(config: C, iterations: int) -> C:
    """Return the config with a budget of so many iterations."""
    return replace(config, max_timesteps=config.iteration_steps * iterations)


class Trained(NamedTuple):
    """A trained agent, and the seconds of its training without the time to build it."""

    agent: Agent
    seconds: float


def trained(config: Config, agent: Agent | None = None) -> Trained:
    """Train with every callback and the closing checkpoint, in a temporary run folder; without `agent`, build one."""
    torch.set_num_threads(config.torch_threads)
    agent = agent or build_agent(config, make_envs(config, config.n_envs))
    with tempfile.TemporaryDirectory(prefix="stride-bench-") as folder:
        run = RunDir(Path(folder))
        run.checkpoints.mkdir()
        began = time.perf_counter()
        fit(config, agent, None, run, [MetricsCsv(run.metrics_csv)])
        return Trained(agent, time.perf_counter() - began)


def median_of(values: list[float]) -> Figures:
    """Return {"median": .., "all": values}, as benchmarks record a figure."""
    return {"median": statistics.median(values), "all": values}


def instruction_set() -> str:
    """Return the widest vectors of our kernels: "AVX-512", "AVX2", or "AVX2 forced" if the processor has wider ones."""
    used, available = (
        next((name for feature, name in WIDTHS.items() if feature in features), "no AVX2")
        for features in (FEATURES, {name for name, has in llvm.get_host_cpu_features().items() if has})
    )
    return used if used == available else f"{used} forced"


def machine(threads: int, *packages: str) -> str:
    """Return two lines: processor, cores, instruction set, threads; versions of Stride's packages and `packages`.

    `packages` have the names that pip uses; those that are not installed are left out.
    """
    versions = provenance()["versions"]
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    numbers = ", ".join(f"{name} {number}" for name, number in versions.items())
    return f"{processor()}, {os.cpu_count()} cores, {instruction_set()}, {threads} thread(s)\n{numbers}"


class Span(NamedTuple):
    """When a call began and ended, in seconds of time.perf_counter."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@contextmanager
def timed(places: Mapping[str, Sequence[Place]]) -> Iterator[dict[str, list[Span]]]:
    """Time calls of functions inside the block: name -> the spans of all calls of any of its places, in order.

    A place is a class or module and the name of a function in it, which is replaced until the block ends.
    """
    spans: dict[str, list[Span]] = {name: [] for name in places}
    originals = [(owner, name, getattr(owner, name)) for group in places.values() for owner, name in group]
    try:
        for label, group in places.items():
            for owner, name in group:
                setattr(owner, name, _noting(getattr(owner, name), spans[label]))
        yield spans
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _noting(call: Callable[P, T], spans: list[Span]) -> Callable[P, T]:
    @wraps(call)  # Lightning looks at the names of training_step's arguments
    def noted(*args: P.args, **options: P.kwargs) -> T:
        began = time.perf_counter()
        result = call(*args, **options)
        spans.append(Span(began, time.perf_counter()))
        return result

    return noted
