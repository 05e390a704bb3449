"""Plants NaN and infinities in six places: each must be noticed at once and named, and no checkpoint may contain one.

    python -m lab.faults nan

All combinations of place, value {nan, +inf, -inf} and agent are tried: PPO, REINFORCE, SAC and DQN by plain torch and
by the fused engine, PQN, Q-learning; mostly on Pendulum, whose actions are real numbers.
"""

import random
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from lab.faults.rig import Call, Report, Tally, at_call, evenly, faults, finish, last_run, refused_in_a_line
from stride.agents.base import Agent
from stride.agents.engines.fused_cpu.learn import ReplayLearn, RolloutLearn
from stride.agents.engines.fused_cpu.play import AttachedPlay, FusedPlay
from stride.agents.experience.collector import Collector
from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Act
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.recurrent import RecurrentActorCritic
from stride.agents.networks.squashed import SquashedPolicy
from stride.agents.sockets import EagerPlay, Play
from stride.agents.trained.loading import read_checkpoint
from stride.envs_fast.vec_env import Obs, Step
from stride.runstore import checkpoint_set

COMMON = (
    "-q", "max_timesteps=1280", "eval_freq_epochs=2", "eval_episodes=2", "eval_max_steps=20",
    "early_stop_on_eval_threshold=false", "eval_warmup_epochs=0",
)  # fmt: skip
ROLLOUT = ("n_envs=4", "n_steps=16", *COMMON)
PLAIN, FUSED = ((f"engine={engine}", "batch_size=0.5", *ROLLOUT) for engine in ("eager", "fused_cpu"))
SMALL = (
    "n_envs=4", "train_freq=16", "gradient_steps=4", "batch_size=8", "buffer_size=600", "learning_starts=100",
    "epoch_iterations=1", "hidden_dims=16", *COMMON,
)  # fmt: skip
REPLAY, REPLAY_FUSED = ((f"engine={engine}", *SMALL) for engine in ("eager", "fused_cpu"))
PPO, SAC, DQN = "Pendulum-v1:ppo", "Pendulum-v1:sac", "CartPole-v1:dqn"
REINFORCE = ("CartPole-v1:reinforce", "env_id=Pendulum-v1", "spec={}")
NORMALIZED = ("normalize_obs=true", "normalize_reward=true")
ALL = ("observation", "action", "reward", "loss", "gradient", "weights")
CHOICES = tuple(place for place in ALL if place != "action")  # a discrete action cannot be NaN
AGENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # agent -> (arguments, places where a number is planted)
    "ppo": ((PPO, *PLAIN), ALL),
    "ppo, fused": ((PPO, *FUSED), ALL),
    "sac": ((SAC, *REPLAY), ALL),
    "ppo with normalisers": ((PPO, *PLAIN, *NORMALIZED), ALL),
    "ppo, lstm": ((PPO, *PLAIN, "policy=lstm", "n_epochs=4"), ALL),
    "reinforce": ((*REINFORCE, *PLAIN), ALL),
    "reinforce with a critic": ((*REINFORCE, *PLAIN, "policy_targets=advantages"), ALL),
    "ppo with normalisers, fused": ((PPO, *FUSED, *NORMALIZED), ALL),
    "ppo on Gymnasium's environments, fused": ((PPO, *FUSED, "env_backend=gym"), ALL),
    "reinforce, fused": ((*REINFORCE, *FUSED), ALL),
    "sac, memmap": ((SAC, *REPLAY, "replay_storage=memmap", "normalize_obs=true"), ALL),
    "dqn": ((DQN, *REPLAY), CHOICES),
    "dqn, prioritised, memmap": (
        (DQN, *REPLAY, "prioritised=true", "replay_storage=memmap", "n_step=3", "normalize_obs=true"), CHOICES),
    "sac, fused": ((SAC, *REPLAY_FUSED), ALL),
    "sac, memmap, fused": ((SAC, *REPLAY_FUSED, "replay_storage=memmap", "normalize_obs=true"), ALL),
    "sac on Gymnasium's environments, fused": ((SAC, *REPLAY_FUSED, "env_backend=gym"), ALL),
    "dqn, fused": ((DQN, *REPLAY_FUSED), CHOICES),
    "dqn, double, 3 steps, memmap, fused": (
        (DQN, *REPLAY_FUSED, "double_q=true", "replay_storage=memmap", "n_step=3", "normalize_obs=true"), CHOICES),
    "pqn": (("CartPole-v1:pqn", *ROLLOUT, "batch_size=0.5"), CHOICES),
    "q_learning": (("FrozenLake-v1:q_learning", *ROLLOUT), ("reward", "weights")),
}  # fmt: skip
PLAYS, LEARNS = (FusedPlay, AttachedPlay, EagerPlay), (RolloutLearn, ReplayLearn)
VALUES = {"nan": float("nan"), "+inf": float("inf"), "-inf": float("-inf")}
TRIALS = [(agent, place, name) for agent, (_, places) in AGENTS.items() for place in places for name in VALUES]
WORLD = 2  # index of the environment whose number is replaced


def plant(place: str, value: float) -> None:
    """Make the value appear at this place in the sixth iteration of a training by plain torch (16 steps each)."""

    def observation(write: Call, memory: Memory, obs: Tensor, *arguments: object) -> None:
        obs[WORLD, 0] = value  # the collector's tensor: the policy has already used it
        write(memory, obs, *arguments)

    def action(act: Callable[..., Act], policy: ActorCritic, *arguments: object) -> Act:
        acted = act(policy, *arguments)
        acted.action[WORLD] = value
        return acted

    def reward(write: Call, memory: Memory, obs: Obs, is_first: Tensor, act: Act, step: Step) -> None:
        rewards = step.reward.clone()
        rewards[WORLD] = value
        write(memory, obs, is_first, act, step._replace(reward=rewards))

    def loss(descend: Call, agent: Agent, optimizer: object, loss_value: Tensor, *arguments: object) -> object:
        return descend(agent, optimizer, loss_value * value, *arguments)

    def gradient(descend: Call, agent: Agent, optimizer: object, loss_value: Tensor, *arguments: object) -> object:
        hook = next(agent.policy.parameters()).register_hook(lambda g: g + value)
        result = descend(agent, optimizer, loss_value, *arguments)
        hook.remove()
        return result

    def weights(collect: Call, collector: Collector, *arguments: object) -> None:
        collect(collector, *arguments)
        with torch.no_grad():
            next(collector.policy.parameters()).flatten()[0] = value

    changes: dict[str, tuple[type, str, int, Call]] = {
        "observation": (Memory, "write", 5 * 16 + 3, observation),
        "action": (ActorCritic, "act", 5 * 16 + 3, action),
        "reward": (Memory, "write", 5 * 16 + 3, reward),
        "loss": (Agent, "descend", 11, loss),
        "gradient": (Agent, "descend", 11, gradient),
        "weights": (Collector, "collect", 6, weights),
    }
    owner, name, number, change = changes[place]
    for policy_class in (ActorCritic, RecurrentActorCritic, SquashedPolicy) if place == "action" else (owner,):
        at_call(policy_class, name, number, change)


def plant_fused(place: str, value: float) -> None:
    """Make the value appear in the sixth iteration where compiled kernels collect and learn.

    It is written into the arrays that the kernels get, and into the sums with which they continue.
    """

    def observation(collect: Call, play: Play, agent: Agent, steps: int) -> None:
        assert isinstance(agent.collector.obs, Tensor)
        agent.collector.obs[WORLD, 0] = value
        collect(play, agent, steps)

    def action(collect: Call, play: Play, agent: Agent, steps: int) -> None:
        collect(play, agent, steps)
        agent.memory.table.action[(agent.memory.written - 13) % agent.memory.rows, WORLD] = value

    def reward(collect: Call, play: Play, agent: Agent, steps: int) -> None:
        collect(play, agent, steps)
        agent.memory.table.reward[(agent.memory.written - 13) % agent.memory.rows, WORLD] = value

    def weights(collect: Call, play: Play, agent: Agent, steps: int) -> None:
        first = next(agent.policy.parameters()).detach()
        first[(0,) * first.dim()] = value  # before it: kernels copy the weights at the start of an iteration
        collect(play, agent, steps)

    def loss(learn: Call, socket: RolloutLearn | ReplayLearn, *arguments: object) -> None:
        socket.bound.frame.held["sums"][0] = value  # the sum of the policy's loss
        learn(socket, *arguments)

    def gradient(learn: Call, socket: RolloutLearn | ReplayLearn, *arguments: object) -> None:
        socket.bound.frame.held["partial"][0] = value
        learn(socket, *arguments)

    changes = {"observation": observation, "action": action, "reward": reward, "weights": weights}
    if place in changes:
        for play in PLAYS:
            at_call(play, "collect", 6, changes[place])
    else:
        for learn in LEARNS:
            at_call(learn, "learn", 6, {"loss": loss, "gradient": gradient}[place])


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    tally = Tally()
    for agent, place, name in evenly(TRIALS, counts["runs"]):
        problem = judged(AGENTS[agent][0], place, VALUES[name], folder / f"{tally.total}")
        tally.add(f"{agent}, {name} in {place}", problem)
    lines = [
        f"{tally} caught: exit code 1 and one line that names the place ({', '.join(ALL)}), the environment and "
        "the env step; afterwards every checkpoint is complete with finite numbers only, and the run resumes",
        f"agents: {'; '.join(AGENTS)}",
    ]
    return lines, tally.good


def judged(words: tuple[str, ...], place: str, value: float, root: Path) -> str:
    """Train with the value planted at this place, then resume; return what is wrong, "" if nothing is."""
    plant_fault = plant_fused if "engine=fused_cpu" in words else plant
    ended = finish(words, root, lambda: plant_fault(place, value))
    said = ended.said.strip()
    if ended.code != 1 or not refused_in_a_line(said):
        return f"exit code {ended.code}: {said[-500:]}"
    is_named = f"environment {WORLD} " in said or f"environment {WORLD}:" in said
    if place not in said or (place in ("observation", "action", "reward") and not is_named):
        return f"not named: {said}"
    run = last_run(root)
    if run is None or faults(run):
        return "a broken checkpoint"
    for stem in checkpoint_set.names(run.checkpoints):
        state = read_checkpoint(run.checkpoints / f"{stem}.ckpt")
        if not all(value.isfinite().all() for value in state["state_dict"].values() if value.is_floating_point()):
            return f"{stem} is poisoned"
    resume = finish(["--resume", "@last", "-q"], root)
    return "" if resume.code == 0 else f"resume ended with {resume.code}: {resume.said[-300:]}"
