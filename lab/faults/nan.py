"""NaN and infinities planted in six places: is it caught at once and named, and is nothing poisoned by it?

    python -m lab.faults nan

Each of the places x {nan, +inf, -inf} x agents: PPO and REINFORCE by plain torch and by the fused engine, SAC, DQN,
PQN, Q-learning; mostly on Pendulum, whose actions are numbers.
"""

import random
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from lab.faults.rig import Call, Tally, Told, at_call, evenly, faults, finish, last_run, refused_in_a_line
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
CHOICES = tuple(place for place in ALL if place != "action")  # an action is one of a few
AGENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # words, and the places there are
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
ROUND = [(agent, place, name) for agent, (_, places) in AGENTS.items() for place in places for name in VALUES]
WORLD = 2


def plant(place: str, value: float) -> None:
    """Let the number appear in the sixth iteration."""

    def observation(write: Call, memory: Memory, obs: Tensor, *arguments: object) -> None:
        obs[WORLD, 0] = value  # the collector's own: the policy has already looked at it
        write(memory, obs, *arguments)

    def action(act: Callable[..., Act], policy: ActorCritic, *arguments: object) -> Act:
        acted = act(policy, *arguments)
        acted.action[WORLD] = value
        return acted

    def reward(write: Call, memory: Memory, obs: Obs, is_first: Tensor, act: Act, step: Step) -> None:
        paid = step.reward.clone()
        paid[WORLD] = value
        write(memory, obs, is_first, act, step._replace(reward=paid))

    def loss(descend: Call, agent: Agent, optimizer: object, given: Tensor, *arguments: object) -> object:
        return descend(agent, optimizer, given * value, *arguments)

    def gradient(descend: Call, agent: Agent, optimizer: object, given: Tensor, *arguments: object) -> object:
        hook = next(agent.policy.parameters()).register_hook(lambda g: g + value)
        found = descend(agent, optimizer, given, *arguments)
        hook.remove()
        return found

    def weights(collect: Call, collector: Collector, *arguments: object) -> None:
        collect(collector, *arguments)
        with torch.no_grad():
            next(collector.policy.parameters()).flatten()[0] = value

    found: dict[str, tuple[type, str, int, Call]] = {
        "observation": (Memory, "write", 5 * 16 + 3, observation),
        "action": (ActorCritic, "act", 5 * 16 + 3, action),
        "reward": (Memory, "write", 5 * 16 + 3, reward),
        "loss": (Agent, "descend", 11, loss),
        "gradient": (Agent, "descend", 11, gradient),
        "weights": (Collector, "collect", 6, weights),
    }
    owner, name, number, change = found[place]
    for each in (ActorCritic, RecurrentActorCritic, SquashedPolicy) if place == "action" else (owner,):
        at_call(each, name, number, change)


def plant_fused(place: str, value: float) -> None:
    """The same where compiled kernels collect and learn: in what they are handed, and in the sums they go on with."""

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
        first[(0,) * first.dim()] = value  # before: they are fetched once an iteration, and given back at its end
        collect(play, agent, steps)

    def loss(learn: Call, socket: RolloutLearn | ReplayLearn, *arguments: object) -> None:
        socket.bound.frame.held["sums"][0] = value  # of the policy's loss
        learn(socket, *arguments)

    def gradient(learn: Call, socket: RolloutLearn | ReplayLearn, *arguments: object) -> None:
        socket.bound.frame.held["partial"][0] = value
        learn(socket, *arguments)

    found = {"observation": observation, "action": action, "reward": reward, "weights": weights}
    if place in found:
        for play in PLAYS:
            at_call(play, "collect", 6, found[place])
    else:
        for learn in LEARNS:
            at_call(learn, "learn", 6, {"loss": loss, "gradient": gradient}[place])


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    tally = Tally()
    for agent, place, name in evenly(ROUND, counts["runs"]):
        problem = judged(AGENTS[agent][0], place, VALUES[name], folder / f"{tally.total}")
        tally.add(f"{agent}, {name} in {place}", problem)
    lines = [
        f"{tally} caught: exit code 1 and one line that names the place ({', '.join(ALL)}), the environment and "
        "the env step; afterwards every checkpoint is complete with finite numbers only, and the run resumes",
        f"agents: {'; '.join(AGENTS)}",
    ]
    return lines, tally.good


def judged(words: tuple[str, ...], place: str, value: float, root: Path) -> str:
    planted = plant_fused if "engine=fused_cpu" in words else plant
    ended = finish(words, root, lambda: planted(place, value))
    said = ended.said.strip()
    if ended.code != 1 or not refused_in_a_line(said):
        return f"exit code {ended.code}: {said[-500:]}"
    whose = f"environment {WORLD} " in said or f"environment {WORLD}:" in said
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
    return "" if again.code == 0 else f"resume ended with {again.code}: {again.said[-300:]}"
