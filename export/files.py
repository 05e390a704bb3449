"""Exports a run as an ONNX or a torch file: builds it, compares it with the run's player, then writes it.

Used by the command `stride export`.
"""

import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch

from stride.agents.trained.loading import LoadedRun
from stride.export import onnx_file, torch_file
from stride.export.graph import Deployed, arguments, deployed
from stride.export.ports import Run
from stride.export.verify import DifferenceError, Likeness, Sample, compare, samples
from stride.utils.durable_file import replacing
from stride.utils.user_error import UserError

Kind = Literal["onnx", "torch"]
Say = Callable[[str], None]
TIMED_CALLS = 200


def export(loaded: LoadedRun, kind: Kind, path: Path, say: Say, timed: bool = False) -> Likeness:
    """Write the file if it acts as the run's player does; DifferenceError, and no file, where it does not.

    `say` receives lines for the terminal; `timed`: also say how long a call takes.
    """
    policy = deployed(loaded)
    say("playing    1,000 observations of real episodes, for comparison")
    reference_samples = samples(loaded, policy.face)
    say(f"writing    {path.name}")
    data = built(policy, kind, facts_of(loaded, policy))
    run = runner(policy, kind, data)
    try:
        likeness = compare(run, policy.face, reference_samples)
    except DifferenceError as error:
        raise DifferenceError(f"{path.name} was not written: {error}") from error
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    if timed:
        say(speeds(run, policy, reference_samples))
    return likeness


def built(policy: Deployed, kind: Kind, facts: Mapping[str, object]) -> bytes:
    """Return the content of the file."""
    return (onnx_file if kind == "onnx" else torch_file).content(policy, facts)


def runner(policy: Deployed, kind: Kind, data: bytes) -> Run:
    """Return a function that runs the file as a program without Stride does."""
    return (onnx_file if kind == "onnx" else torch_file).runner(data, policy.face)


def facts_of(loaded: LoadedRun, policy: Deployed) -> dict[str, Any]:
    """Return the facts that are stored in the file: where it comes from, and its inputs and outputs."""
    config = loaded.config
    env = loaded.make_env()
    observation_space, action_space = str(env.observation_space), str(env.action_space)
    env.close()
    return {
        "run": loaded.run.id,
        "checkpoint": loaded.checkpoint,
        "env_steps": loaded.progress["env_steps"],
        "env_id": config.env_id,
        "variant": config.variant,
        "algorithm": config.algo_id,
        "seed": config.seed,
        "observation_space": observation_space,
        "action_space": action_space,
        "inputs": [port._asdict() for port in policy.face.inputs],
        "outputs": [port._asdict() for port in policy.face.outputs],
        "versions": {"stride": own_version(), "torch": torch.__version__},
    }


def own_version() -> str:
    """Return the installed version of Stride, "" where it is not installed as a package."""
    try:
        return version("stride-rl")
    except PackageNotFoundError:
        return ""


def speeds(run: Run, policy: Deployed, reference_samples: list[Sample]) -> str:
    """Return a line that says how long a call takes."""
    file_time, torch_time = milliseconds(run, policy, reference_samples)
    return f"a call     {file_time:.3f} ms, torch {torch_time:.3f} ms (one observation, one thread, from Python)"


def milliseconds(run: Run, policy: Deployed, reference_samples: list[Sample]) -> tuple[float, float]:
    """Return the milliseconds of a call, of the file and of torch: medians of single calls for one observation.

    Both use one thread and are called by the same Python code.
    """
    inputs_list = [
        policy.face.inputs_for(sample.obs, policy.face.empty(), sample.is_first)
        for sample in reference_samples[:TIMED_CALLS]
    ]

    def by_torch(inputs: Mapping[str, Any]) -> object:
        return policy.module(*arguments(policy.face, inputs))

    with torch.inference_mode():
        file_time, torch_time = (
            1e3 * median(seconds(function, inputs) for inputs in inputs_list) for function in (run, by_torch)
        )
    return file_time, torch_time


def seconds(function: Callable[[Mapping[str, Any]], object], inputs: Mapping[str, Any]) -> float:
    """Return the seconds that one call takes."""
    started_at = time.perf_counter()
    function(inputs)
    return time.perf_counter() - started_at
