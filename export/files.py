"""A run as a file of one of two kinds: built, held against the player, and only then written."""

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
TIMED = 200  # calls


def export(loaded: LoadedRun, kind: Kind, path: Path, say: Say, timed: bool = False) -> Likeness:
    """Write the file if it does what the run's player does; DifferenceError, and no file, where it does not."""
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
    """The file."""
    return (onnx_file if kind == "onnx" else torch_file).content(policy, facts)


def runner(policy: Deployed, kind: Kind, data: bytes) -> Run:
    """The file as those run it who do not have Stride."""
    return (onnx_file if kind == "onnx" else torch_file).runner(data, policy.face)


def facts_of(loaded: LoadedRun, policy: Deployed) -> dict[str, Any]:
    """Where the file comes from and how it is called, as plain data inside it."""
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
    """As installed, "" for a checkout that is not."""
    try:
        return version("stride-rl")
    except PackageNotFoundError:
        return ""


def speeds(run: Run, policy: Deployed, known: list[Sample]) -> str:
    """How long a call takes, in words."""
    file_time, torch_time = milliseconds(run, policy, known)
    return f"a call     {file_time:.3f} ms, torch {torch_time:.3f} ms (one observation, one thread, from Python)"


def milliseconds(run: Run, policy: Deployed, known: list[Sample]) -> tuple[float, float]:
    """The file's and torch's: medians of single calls for one observation, one thread each, the same Python around."""
    inputs_list = [policy.face.fed(sample.obs, policy.face.empty(), sample.is_first) for sample in known[:TIMED]]

    def by_torch(inputs: Mapping[str, Any]) -> object:
        return policy.module(*arguments(policy.face, inputs))

    with torch.inference_mode():
        file_time, torch_time = (
            1e3 * median(seconds(function, inputs) for inputs in inputs_list) for function in (run, by_torch)
        )
    return file_time, torch_time


def seconds(function: Callable[[Mapping[str, Any]], object], inputs: Mapping[str, Any]) -> float:
    """Seconds of one call."""
    started_at = time.perf_counter()
    function(inputs)
    return time.perf_counter() - started_at
