"""What the benchmarks share: the work they give a training, a whole training in its own folder, turns, a watch.

Figures are medians; those of a machine that others use too are worth their ratios only.
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
WIDTHS = {"avx512f": "AVX-512", "avx2": "AVX2", "neon": "NEON"}  # the widest first
Figures = dict[str, Any]
Place = tuple[object, str]  # a class or a module, and the name of a function in it
P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Config)


def setting(env_id: str, n_envs: int, n_steps: int, threads: int) -> PPOConfig:
    """SB3's defaults in our words, but for the size of a rollout: the same work on both sides."""
    config = PPOConfig(
        env_id=env_id, variant="bench", algo_id="ppo", n_envs=n_envs, n_steps=n_steps, n_epochs=EPOCHS,
        batch_size=1 / MINIBATCHES, hidden_dims=(64, 64), optimizer="adam", max_timesteps=n_envs * n_steps,
        log_freq_epochs=5,  # as a run of 1M steps in rollouts of 8 x 128 takes by itself
        engine="eager", threads=threads, early_stop_on_eval_threshold=False, eval_freq_epochs=None, test_episodes=0,
    )  # fmt: skip
    check(config, "bench")
    return config


def lasting(config: C, iterations: int) -> C:
    return replace(config, max_timesteps=config.iteration_steps * iterations)


class Trained(NamedTuple):
    agent: Agent
    seconds: float


def trained(config: Config, agent: Agent | None = None) -> Trained:
    """A run with every callback attached and its closing checkpoint, in a temporary run folder."""
    torch.set_num_threads(config.torch_threads)
    agent = agent or build_agent(config, make_envs(config, config.n_envs))
    with tempfile.TemporaryDirectory(prefix="stride-bench-") as folder:
        run = RunDir(Path(folder))
        run.checkpoints.mkdir()
        began = time.perf_counter()
        fit(config, agent, None, run, [MetricsCsv(run.metrics_csv)])
        return Trained(agent, time.perf_counter() - began)


def median_of(values: list[float]) -> Figures:
    return {"median": statistics.median(values), "all": values}


def instruction_set() -> str:
    """The widest vectors of our kernels: "AVX-512", "AVX2", or "AVX2 forced" where the processor has wider ones."""
    used, there = (
        next((name for feature, name in WIDTHS.items() if feature in features), "no AVX2")
        for features in (FEATURES, {name for name, has in llvm.get_host_cpu_features().items() if has})
    )
    return used if used == there else f"{used} forced"


def machine(threads: int, *packages: str) -> str:
    """Processor, cores, instruction set, threads, versions; of `packages`, as pip calls them, those installed."""
    versions = provenance()["versions"]
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    numbers = ", ".join(f"{name} {number}" for name, number in versions.items())
    return f"{processor()}, {os.cpu_count()} cores, {instruction_set()}, {threads} thread(s)\n{numbers}"


class Span(NamedTuple):
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@contextmanager
def timed(places: Mapping[str, Sequence[Place]]) -> Iterator[dict[str, list[Span]]]:
    """Under each name, in order, every call that ends while the block lasts of any of its places."""
    found: dict[str, list[Span]] = {name: [] for name in places}
    before = [(owner, name, getattr(owner, name)) for group in places.values() for owner, name in group]
    try:
        for label, group in places.items():
            for owner, name in group:
                setattr(owner, name, _noting(getattr(owner, name), found[label]))
        yield found
    finally:
        for owner, name, own in before:
            setattr(owner, name, own)


def _noting(call: Callable[P, T], found: list[Span]) -> Callable[P, T]:
    @wraps(call)  # Lightning looks at the names of training_step's arguments
    def noted(*args: P.args, **options: P.kwargs) -> T:
        began = time.perf_counter()
        answer = call(*args, **options)
        found.append(Span(began, time.perf_counter()))
        return answer

    return noted
