"""Checks runs and iterations of each engine: new random numbers, no waits for the GPU, equal bits when resumed."""

import io
import math
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.gpu.bits import actions, bits, trajectory
from lab.gpu.driven import agent_of, ppo, tick, worlds
from lab.gpu.parts import ROUNDING, Found, Machine
from stride.agents.base import Agent
from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.experience.nouns import copy_into, leaves, tree_map
from stride.agents.trained.loading import load_run, read_checkpoint
from stride.commands import train
from stride.commands.plain_tree import differences, fingerprint
from stride.envs_fast import registry
from stride.envs_gym.make import make_envs
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.evaluate import Evaluate
from stride.utils.provenance import PROJECT
from stride.utils.user_error import describe_error

CONFIG = "CartPole-v1:ppo"  # its learning rate and clip range decrease; a CUDA graph must not freeze them
SHORT = ("eval_freq_epochs=null", "test_episodes=0", "early_stop_on_eval_threshold=false")
ROWS = 64 * 32  # env steps of a rollout
ROLLOUT = ("n_envs=64", "n_steps=32", "n_epochs=4", "batch_size=0.25")


@contextmanager
def runs_folder() -> Iterator[Path]:
    """Store the runs of the block in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="stride-gpu-") as folder:
        os.environ["STRIDE_RUNS"] = folder
        yield Path(folder)


def trained(machine: Machine, engine: str, iterations: int, *changes: str) -> RunDir:
    return _run([CONFIG, *SHORT, *ROLLOUT, *changes], machine, engine, iterations)


def resumed(run: RunDir, machine: Machine, engine: str, iterations: int) -> RunDir:
    return _run(["--resume", run.id], machine, engine, iterations)


def _run(arguments: list[str], machine: Machine, engine: str, iterations: int) -> RunDir:
    """Train by the command and return the run; RuntimeError if it fails (the command has printed why)."""
    overrides = [f"device={machine.device}", f"engine={engine}", f"max_timesteps={iterations * ROWS}"]
    with redirect_stdout(io.StringIO()):  # the result line of each
        code = train.command([*arguments, *overrides, "-q"])
    if code:
        raise RuntimeError(f"train.py {' '.join([*arguments, *overrides])}: exit code {code}")
    return RunDir.find("@last")


def state_of(run: RunDir) -> dict[str, Any]:
    """Return the state in its last checkpoint: weights, moments, environments, counters."""
    saved = read_checkpoint((run.checkpoints / "last.ckpt").resolve())
    return {
        "weights": saved["state_dict"],
        "optimizer": saved["optimizer_states"],
        **saved["stride"]["parts"],
    }


REPLAYS, LEARNT = 6, 6
STILL = 1e-30  # a learning rate that moves no weight
ALONE = "fused_gpu without graphs"
LIKE = {"graphed": "eager", "fused_gpu": ALONE}  # engine -> the one without graphs that it must equal


def replays(machine: Machine, seconds: float) -> Iterator[Found]:
    """Check that each replay of a CUDA graph draws new numbers, and plays and learns as without graphs."""
    width, captured = 64 if machine.small else 1024, [engine for engine in machine.engines if engine in LIKE]
    names = [*dict.fromkeys(name for engine in captured for name in (LIKE[engine], engine))]
    played = {name: played_rollouts(machine, name, width) for name in names}
    fresh = {name: len({*each}) for name, each in played.items()}
    wrong = [f"{name}: only {count} of {REPLAYS} rollouts are different"
             for name, count in fresh.items() if count < REPLAYS]  # fmt: skip
    wrong += [f"{name} plays otherwise than {LIKE[name]}" for name in captured if played[name] != played[LIKE[name]]]
    figures: dict[str, object] = {"worlds": width, "rollouts": REPLAYS, "different": fresh, "weights_apart": {}}
    line = f"{min(fresh.values())} of {REPLAYS} rollouts are different"
    yield Found(line, figures, wrong)
    learnt = {name: weights(machine, name, width) for name in names}
    apart = {name: (learnt[name] - learnt[LIKE[name]]).abs().max().item() for name in captured}
    wrong += [f"{name}: after {LEARNT} iterations a weight is {size:.2g} from those of {LIKE[name]}"
              for name, size in apart.items() if not size <= ROUNDING]  # fmt: skip
    line += "".join(f"; weights of {name} are within {size:.2g} of {LIKE[name]}" for name, size in apart.items())
    yield Found(line, {**figures, "weights_apart": apart}, wrong)


def agent_for(machine: Machine, name: str, width: int, rate: float) -> Agent:
    agent = agent_of(machine, ppo(machine, "fused_gpu" if name == ALONE else name, width, policy_lr=rate))
    if name == ALONE:
        agent.engine = fused_gpu(RECIPES[type(agent)], agent, None)
    return agent


def played_rollouts(machine: Machine, name: str, width: int) -> list[str]:
    agent, hashes = agent_for(machine, name, width, STILL), list[str]()
    collector = agent.collector
    worlds, obs = collector.envs.state_dict(), tree_map(torch.clone, collector.obs)
    for _ in range(REPLAYS):
        tick(agent)
        hashes.append(bits(*leaves(agent.memory.table.obs), agent.memory.table.action))
        collector.envs.load_state_dict(worlds)
        copy_into(collector.obs, obs)
        collector.is_first.fill_(True)
    return hashes


def weights(machine: Machine, name: str, width: int) -> Tensor:
    agent = agent_for(machine, name, width, 1e-3)
    for _ in range(LEARNT):
        tick(agent)
    return torch.cat([parameter.detach().double().flatten().cpu() for parameter in agent.policy.parameters()])


WARM, WATCHED = 3, 3


def waits(machine: Machine, seconds: float) -> Iterator[Found]:
    """Check that no engine waits for the GPU in an iteration; first check that a planted wait is noticed."""
    device = torch.device(machine.device)
    if device.type != "cuda":
        yield Found("a CPU is never waited for", {})
        return
    flag = torch.ones((), device=device)
    wrong = [] if place_of_wait(lambda: flag.item()) else ["a planted wait was not noticed"]
    figures = {"planted wait noticed": not wrong, "iterations": WATCHED}
    for engine, lag in [*((engine, 0) for engine in machine.engines), ("fused_gpu", 1)]:
        agent = agent_of(machine, ppo(machine, engine, 1024, policy_lr=1e-3, lag=lag))
        for _ in range(WARM):
            tick(agent)
        found = [place for place in (place_of_wait(agent.iteration) for _ in range(WATCHED)) if place]
        figures[f"{engine}, lag {lag}"] = len(found)
        wrong += [f"{engine}, lag {lag}: {place}" for place in dict.fromkeys(found)]
        yield Found(f"{', '.join(machine.engines)}: {len(wrong)} of {WATCHED} iterations wait", figures, wrong)


def place_of_wait(work: Callable[[], object]) -> str:
    """Return where and how `work` would wait for the device; "" if it does not. CuPy's launches never wait."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    except RuntimeError as error:
        return f"{innermost(traceback.extract_tb(error.__traceback__))}: {describe_error(error)}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def innermost(frames: traceback.StackSummary) -> str:
    """Return the last place in the project's own files, as file:line."""
    places = [(Path(frame.filename), frame.lineno) for frame in frames]
    ours = [(path.relative_to(PROJECT), line) for path, line in places if path.is_relative_to(PROJECT)]
    own = [f"{path}:{line}" for path, line in ours if not path.parts[0].startswith(".")]  # not of its .venv
    return own[-1]  # there is always the line of `place_of_wait` itself


HALF = 10
CONSTANT = (
    "policy_lr=1e-3",
    "clip_range=0.2",
)  # half a training may not depend on the whole one's length
MAX_LINES = 5  # about differences


def resume(machine: Machine, seconds: float) -> Iterator[Found]:
    """Check that the same training, and a resumed one, end in the same bits with each engine."""
    wrong, figures, scheduled = list[str](), dict[str, object](iterations=2 * HALF), {}
    first, *others = machine.engines
    for engine in machine.engines:
        with runs_folder():
            straight, again = (state_of(trained(machine, engine, 2 * HALF, *CONSTANT)) for _ in range(2))
            half = trained(machine, engine, HALF, *CONSTANT)
            halves = state_of(resumed(half, machine, engine, 2 * HALF))
            scheduled[engine] = state_of(trained(machine, engine, HALF))["weights"]
        for name, other in (("the same again", again), ("resumed", halves)):
            wrong += [
                f"{engine}, {name}: {leaf.name} {leaf.words}" for leaf in differences(straight, other)[:MAX_LINES]
            ]
        figures[engine] = fingerprint(straight)[:16]
        yield Found(f"{HALF} + {HALF} iterations: {len(wrong)} numbers differ", figures, wrong)
    for engine in others:
        pairs = [(scheduled[engine][name], value) for name, value in scheduled[first].items()]
        largest = max((one - other).abs().max().item() for one, other in pairs)
        figures[f"{engine}, scheduled weights apart"] = largest
        if not largest <= ROUNDING:
            wrong.append(f"{engine}: schedules lead {largest:.2g} away from {first}'s weights")
    yield Found(f"{HALF} + {HALF} iterations: {len(wrong)} numbers differ", figures, wrong)


CROSSED = ("CartPole-v1", "Pendulum-v1")  # only two, as Numba compiles each here for some seconds
SIZE, STEPS, BEGUN, EPISODES = 100, 64, 4, 5


def crossing(machine: Machine, seconds: float) -> Iterator[Found]:
    """Check that environments and runs continue on the other device: GPU to CPU, and CPU to GPU."""
    wrong, figures = list[str](), dict[str, object](worlds=list(CROSSED))
    for env_id in CROSSED:
        there, here = (make(env_id, SIZE) for make in (partial(worlds, machine), registry.make))
        for name, begun, goes_on in (("here", there, here), ("there", here, there)):
            if not same_rest(begun, goes_on):
                wrong.append(f"{env_id}: worlds do not go on {name} as where they began")
    yield Found(f"{len(CROSSED)} worlds went on on the other device", figures, wrong)
    on_cpu = Machine(device="cpu")
    for engine in machine.engines:
        with runs_folder():
            for name, first, second in (("there to here", machine, on_cpu), ("here to there", on_cpu, machine)):
                engines = [engine if each is machine else "eager" for each in (first, second)]
                half = trained(first, engines[0], BEGUN)
                played = mean_return(resumed(half, second, engines[1], 2 * BEGUN))
                figures[f"{engine}, {name}"] = played
                wrong += [f"{engine}, {name}: a return of {played}"] if not 1 <= played <= 500 else []
        yield Found("worlds and runs went on on the other device, and played", figures, wrong)


def same_rest(begun: Any, goes_on: Any) -> bool:
    """Whether environments continue a checkpoint of `begun` equally in `begun` and in `goes_on`."""
    all_actions = actions(begun, 0, 2 * STEPS).cpu()
    begun.reset(11)
    begun.advance(all_actions[:STEPS].to(begun.device))
    goes_on.reset(12)
    goes_on.load_state_dict(begun.state_dict())
    one, other = (trajectory(env.advance(all_actions[STEPS:].to(env.device))) for env in (begun, goes_on))
    left, right = begun.state_dict(), goes_on.state_dict()
    return one == other and all(bits(left[name]) == bits(right[name]) for name in ("obs", "state", "ages", "episodes"))


def mean_return(run: RunDir) -> float:
    loaded = load_run(str(run.path), "last")
    config = replace(loaded.config, test_episodes=EPISODES)
    evaluate = Evaluate(config, lambda number: make_envs(config, number))
    tested = evaluate.test(loaded.agent.policy)
    evaluate.close()
    return tested.get("test/roll/ep_rew/mean", math.nan)
