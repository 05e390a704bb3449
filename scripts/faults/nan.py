"""NaN and infinities planted in six places: is it caught at once and named, and is nothing poisoned by it?

    python scripts/faults/nan.py --rounds 1

Each of the places x {nan, +inf, -inf} x five agents (PPO, with normalisers, LSTM; REINFORCE, with a critic) on
Pendulum, whose actions are numbers: 90 runs a round.
"""

import collections
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch

from agents.base import Agent
from agents.experience.collector import Collector
from agents.experience.memory import Memory
from agents.loading import read_checkpoint
from agents.networks.actor_critic import ActorCritic
from agents.networks.recurrent import RecurrentActorCritic
from scripts.faults.record import command_line
from scripts.faults.rig import faults, finish, last_run
from utils import checkpoint_set

SMALL = (
    "-q", "engine=eager", "n_envs=4", "n_steps=16", "batch_size=0.5", "max_timesteps=1280",
    "eval_freq_epochs=2", "eval_episodes=2", "eval_max_steps=20",
    "early_stop_on_eval_threshold=false", "eval_warmup_epochs=0",
)  # fmt: skip
AGENTS = {
    "ppo": ("Pendulum-v1:ppo",),
    "ppo with normalisers": ("Pendulum-v1:ppo", "normalize_obs=true", "normalize_reward=true"),
    "ppo, lstm": ("Pendulum-v1:ppo", "policy=lstm", "n_epochs=4"),
    "reinforce": ("CartPole-v1:reinforce", "env_id=Pendulum-v1", "spec={}"),
    "reinforce with a critic": (
        "CartPole-v1:reinforce", "env_id=Pendulum-v1", "policy_targets=advantages", "spec={}"),
}  # fmt: skip
VALUES = {"nan": float("nan"), "+inf": float("inf"), "-inf": float("-inf")}
WORLD = 2


def at_call(owner: Any, name: str, number: int, change: Callable[..., Any]) -> None:
    """In the `number`th call of owner.name, `change` is given the function and its arguments in its place."""
    function, calls = getattr(owner, name), [0]

    def watched(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            return change(function, *arguments, **options)
        return function(*arguments, **options)

    setattr(owner, name, watched)


def plant(place: str, value: float) -> None:
    """Let the number appear in the sixth iteration."""

    def observation(write: Any, memory: Memory, obs: Any, is_first: Any, act: Any, step: Any) -> None:
        obs[WORLD, 0] = value  # the collector's own: the policy has already looked at it
        write(memory, obs, is_first, act, step)

    def action(act: Any, policy: ActorCritic, *arguments: Any) -> Any:
        acted = act(policy, *arguments)
        acted.action[WORLD] = value
        return acted

    def reward(write: Any, memory: Memory, obs: Any, is_first: Any, act: Any, step: Any) -> None:
        paid = step.reward.clone()
        paid[WORLD] = value
        write(memory, obs, is_first, act, step._replace(reward=paid))

    def loss(descend: Any, agent: Agent, optimizer: Any, given: Any, *arguments: Any) -> Any:
        return descend(agent, optimizer, given * value, *arguments)

    def gradient(descend: Any, agent: Agent, optimizer: Any, given: Any, *arguments: Any) -> Any:
        hook = next(agent.policy.parameters()).register_hook(lambda g: g + value)
        found = descend(agent, optimizer, given, *arguments)
        hook.remove()
        return found

    def weights(collect: Any, collector: Collector, *arguments: Any) -> Any:
        collect(collector, *arguments)
        with torch.no_grad():
            next(collector.policy.parameters()).flatten()[0] = value

    found: dict[str, tuple[Any, str, int, Any]] = {
        "observation": (Memory, "write", 5 * 16 + 3, observation),
        "action": (ActorCritic, "act", 5 * 16 + 3, action),
        "reward": (Memory, "write", 5 * 16 + 3, reward),
        "loss": (Agent, "descend", 11, loss),
        "gradient": (Agent, "descend", 11, gradient),
        "weights": (Collector, "collect", 6, weights),
    }
    at_call(*found[place])
    if place == "action":
        at_call(RecurrentActorCritic, *found[place][1:])


PLACES = ("observation", "action", "reward", "loss", "gradient", "weights")


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    found: collections.Counter[str] = collections.Counter()
    total = 0
    for _ in range(counts["rounds"]):
        for agent, words in list(AGENTS.items())[: counts["agents"]]:
            for place in PLACES:
                for name, value in VALUES.items():
                    total += 1
                    root = folder / f"{total}"
                    what = judged(words, place, value, root)
                    found[what] += 1
                    if what != "right":
                        print(f"{agent}, {name} in {place}: {what}", flush=True)
                    shutil.rmtree(root, ignore_errors=True)
    right = found["right"]
    lines = [
        f"**{right} of {total}** caught: exit code 1 and one line that names the place "
        f"({', '.join(PLACES)}), the environment and the env step",
        "after each, every checkpoint is whole and every number in it finite, best included",
    ]
    return lines, right == total


def judged(words: tuple[str, ...], place: str, value: float, root: Path) -> str:
    """ "right", or what is wrong."""
    ended = finish([*words, *SMALL], root, lambda: plant(place, value))
    said = ended.said.strip()
    if ended.code != 1 or len(said.splitlines()) != 1 or not said.startswith("error: "):
        return f"exit code {ended.code}: {said[-500:]}"
    whose = f"environment {WORLD} " in said or f"world {WORLD}:" in said
    if place not in said or (place in ("observation", "action", "reward") and not whose):
        return f"not named: {said}"
    run = last_run(root)
    if run is None or faults(run):
        return "a broken checkpoint"
    for stem in checkpoint_set.names(run.checkpoints):
        state = read_checkpoint(run.checkpoints / f"{stem}.ckpt")
        if not all(value.isfinite().all() for value in state["state_dict"].values() if value.is_floating_point()):
            return f"{stem} is poisoned"
    again = finish(["--resume", "@last", "-q"], root)
    return "right" if again.code == 0 else f"resume ended with {again.code}: {again.said[-300:]}"


if __name__ == "__main__":
    sys.exit(command_line(__doc__ or "", "nan", "Numbers that are none", run, rounds=1, agents=5))
