"""How fast worlds and PPO are on the device, beside what it moves and multiplies at most, measured in the same run.

PPO as in all benchmarks here: two 64 x 64 tanh nets, rollouts of 128 steps, 4 epochs of 4 minibatches, Adam, without a
Trainer and its callbacks. An iteration is waited for and counted whole; figures are medians of iterations after some
that warm up. Phases are those of other iterations, as they too are waited for.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

from agents.base import Agent
from agents.sockets import Learner
from envs_fast.registry import WORLDS
from scripts.bench.measure import EPOCHS, MINIBATCHES
from scripts.bench.train import flops
from scripts.gpu.ceilings import PRECISIONS, ceilings, seconds_of
from scripts.gpu.driven import ENV, agent_of, ppo, settle, tick, worlds
from scripts.gpu.hashes import actions
from scripts.gpu.parts import Found, Machine
from utils.devices import prepare
from utils.one_line import describe_error

WIDTHS, SMALL_WIDTHS = (4096, 256, 1024, 16384, 65536), (8, 16)  # the one that is compared with others first
STEPS, WORLD_STEPS = 128, 32
WORLD_WIDTHS, SMALL_WORLD_WIDTHS = (4096, 65536, 1 << 20), (64,)
WARM, LEAST, TIMED, PHASED = 3, 5, 1.0, 3  # iterations; seconds of iterations that are timed; iterations for phases
MARGIN = 6.0  # seconds: with less left no setting is begun


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """Ceilings, worlds, PPO; what time does not allow is null. Graphs come last: one that breaks may break the rest."""
    until, device = time.monotonic() + seconds, torch.device(machine.device)
    prepare(device, 32)  # before cuBLAS begins
    limits = ceilings(device, machine.small)
    spans, widths = (SMALL_WORLD_WIDTHS, SMALL_WIDTHS) if machine.small else (WORLD_WIDTHS, WIDTHS)
    asked = [(engine, width, precision) for engine in machine.engines for width in widths for precision in PRECISIONS]
    ppos: dict[str, Any] = dict.fromkeys(f"{engine}, {width} worlds, {precision}" for engine, width, precision in asked)
    alones: dict[str, dict[str, Any]] = {env_id: dict.fromkeys(map(str, spans)) for env_id in WORLDS}
    figures = {"ceilings": limits, "setting": setting_told(), "worlds": alones, "ppo": ppos}
    for env_id in WORLDS:
        for span in spans:
            if time.monotonic() < until:
                alones[env_id][str(span)] = told(alone, machine, env_id, span, limits)
        yield Found(best(ppos), figures)
    for name, setting in zip(ppos, asked, strict=True):
        if time.monotonic() < until - MARGIN:
            ppos[name] = told(trained, machine, *setting, limits)
            yield Found(best(ppos), figures)


def told(measure: Any, *arguments: Any) -> dict[str, Any]:
    """What it measures; where it does not fit into memory, or an engine refuses it, that."""
    try:
        found: dict[str, Any] = measure(*arguments)
    except (RuntimeError, ValueError) as error:
        found = {"error": describe_error(error)}
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return found


def trained(machine: Machine, engine: str, width: int, precision: str, limits: dict[str, Any]) -> dict[str, Any]:
    """Of one setting of PPO."""
    device = torch.device(machine.device)
    config = ppo(machine, engine, width, STEPS, precision=precision if precision != "32" else 32)
    agent = agent_of(machine, config)
    for _ in range(WARM):
        tick(agent)
    times, ending = list[float](), time.perf_counter() + (0.05 if machine.small else TIMED)
    while len(times) < LEAST or time.perf_counter() < ending:
        settle(device)
        began = time.perf_counter()
        tick(agent)
        settle(device)
        times.append(time.perf_counter() - began)
    rate = config.rollout_size / statistics.median(times)
    return {
        "env_steps_per_second": rate,
        "iteration_milliseconds": statistics.median(times) * 1e3,
        "fastest_milliseconds": min(times) * 1e3,
        "slowest_milliseconds": max(times) * 1e3,
        "iterations": len(times),
        **phases(agent, device),
        "flop_share": rate * flops(config) / limits["flops"][precision],
    }


def phases(agent: Agent, device: torch.device) -> dict[str, float]:
    """Milliseconds of an iteration's two heavy verbs."""
    collecting, learning = Timed(device, agent.engine.play), Timed(device, agent.engine.learn)
    agent.engine = agent.engine._replace(play=collecting, learn=learning)
    for _ in range(PHASED):
        tick(agent)
    spent = {"collect": collecting.seconds, "learn": learning.seconds}
    return {f"{name}_milliseconds": statistics.median(each) * 1e3 for name, each in spent.items()}


class Timed:
    """A socket in front of another, which is waited for."""

    def __init__(self, device: torch.device, own: Any) -> None:
        self.device, self.own, self.name, self.seconds = device, own, own.name, list[float]()

    def collect(self, learner: Learner, steps: int) -> None:
        self._time(self.own.collect, learner, steps)

    def learn(self, learner: Learner, work: object) -> None:
        self._time(self.own.learn, learner, work)

    def _time(self, verb: Any, *arguments: object) -> None:
        settle(self.device)
        began = time.perf_counter()
        verb(*arguments)
        settle(self.device)
        self.seconds.append(time.perf_counter() - began)


def alone(machine: Machine, env_id: str, width: int, limits: dict[str, Any]) -> dict[str, float]:
    """Of worlds without a policy: random actions, autoreset, WORLD_STEPS steps a launch into the same buffers."""
    env = worlds(machine, env_id, width)
    env.reset(0)
    given, out = actions(env, 0, WORLD_STEPS), env.trajectory(WORLD_STEPS)
    seconds = seconds_of(env.device, lambda: env.advance(given, out))
    steps = WORLD_STEPS * width
    # what every step reads and writes; the end of an episode is rare, and the state stays in registers
    moved = sum(each.nbytes for each in (given, out.reward, out.terminated, out.truncated, out.arrays[0]))
    return {"env_steps_per_second": steps / seconds, "copy_share": moved / seconds / limits["copy_bytes_per_second"]}


def setting_told() -> dict[str, Any]:
    nets = {"hidden_dims": [64, 64], "share_trunk": False, "activation": "tanh", "optimizer": "adam"}
    return {"env_id": ENV, "n_steps": STEPS, "n_epochs": EPOCHS, "minibatches": MINIBATCHES, **nets}


def best(found: dict[str, Any]) -> str:
    """The fastest so far."""
    rates = {name: each["env_steps_per_second"] for name, each in found.items() if each and "error" not in each}
    if not rates:
        return "nothing measured"
    name = max(rates, key=lambda each: rates[each])
    return f"{len(rates)} of {len(found)} settings; {name}: {rates[name]:,.0f} env steps/s"
