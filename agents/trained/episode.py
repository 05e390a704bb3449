"""Plays episodes with a trained policy: one, recorded step by step, or many at once for their returns only.

Episode `number` of a seed is the same either way. Environments are reset in crowds of CROWD, each crowd with its own
seed, and every environment plays one episode. So episodes 0 to 4 are the same alone and among a hundred.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from stride.agents.experience.collector import Collector
from stride.agents.experience.finite_guard import NonFiniteError, first_non_finite
from stride.agents.experience.nouns import Dream, Tree
from stride.agents.trained.loading import LoadedRun
from stride.agents.trained.player import ChosenAction, EpisodeStart, Mode, Opinion, Player, check_mode
from stride.agents.trained.saliency import Saliency
from stride.config.schema import Config
from stride.envs_gym.blame import Blame
from stride.envs_gym.gym_env import SEEDS
from stride.envs_gym.make import env_info, make_envs
from stride.envs_gym.rendered import frame_of, frames_per_second, make_rendered
from stride.utils.counter_rng import PLAY, WORLD, Key, integers
from stride.utils.user_error import NumbersError

CROWD = 32  # environments side by side
Frames = bool | Callable[[np.ndarray], None]  # True: store them; False: draw none; or a function that takes each


@dataclass(frozen=True)
class Episode:
    """T steps of one environment. Data of observations has T + 1 rows; on the last one the policy did not act."""

    env_id: str
    seed: int
    number: int
    policy_mode: Mode
    frames: np.ndarray | None
    """[T + 1, height, width, 3] uint8; None if nothing was drawn, or a function took the frames"""
    observations: Any
    """[T + 1, ...] as the environment gave them; a dict of arrays if they are dicts"""
    encoded: Any
    """[T + 1, ...] observations as the first layer of the policy got them"""
    actions: np.ndarray
    """[T, ...] in the environment's units"""
    policy_actions: np.ndarray
    """[T, ...] in the policy's units: integers from 0, or numbers where [-1, 1] stands for the bounds"""
    taken: np.ndarray
    """[T, k] the action taken: indices into `action_names` of the k choices, or its k numbers"""
    action_names: tuple[str, ...]
    """names of all options of all choices, or of the numbers"""
    distribution: dict[str, np.ndarray]
    """`probability` [T, options], and `q` [T, options] if the policy has it; or `mean` and `std` [T, numbers]

    In the policy's units, and always the policy's own, even if actions were random."""
    entropy: np.ndarray
    """[T] of the distribution, in nats"""
    values: np.ndarray | None
    """[T + 1] V of each observation; None without a critic"""
    saliency: Saliency | None
    """arrays [T, ...]; None if not requested, or if no part of the observation has gradients"""
    states: tuple[Tree, ...] | None
    """T + 1 states of the world model, for `dream`; None without one"""
    moved: np.ndarray | None
    """[T] how much each step changed the policy's memory: the norm of the change; None if it has no such memory"""
    attention: np.ndarray | None
    """[T, steps] attention weights of the present step and of those before it, newest first; None without attention"""
    rewards: np.ndarray
    """[T] float64, as the environment gave them"""
    terminated: bool
    truncated: bool
    reason: str
    """how it ended, in words"""
    infos: tuple[dict[str, Any], ...]
    """T + 1 infos of the environment, as plain data"""
    fps: float

    @property
    def length(self) -> int:
        return len(self.rewards)

    @property
    def episode_return(self) -> float:
        return float(self.rewards.sum())


class EpisodeStep(NamedTuple):
    """One step of an episode while it is played; `obs` and `info` are those before the action."""

    step: int
    obs: Any
    info: dict[str, Any]
    opinion: Opinion
    saliency: Saliency | None
    choice: ChosenAction
    reward: float
    terminated: bool
    truncated: bool
    next_obs: Any
    next_info: dict[str, Any]


class Counted(NamedTuple):
    """Return and length of an episode that was played without a record of its steps."""

    number: int
    episode_return: float
    length: int


def start_of(seed: int, number: int) -> EpisodeStart:
    """Return how episode `number` (from 0) of a seed begins: its crowd's seed, and its place in the crowd."""
    return EpisodeStart(integers(Key(seed, PLAY, 0, number // CROWD), 1, 1 << 32)[0], number % CROWD)


def play_episodes(
    loaded: LoadedRun, episodes: int, seed: int = 0, policy_mode: str = "greedy", max_steps: int | None = None
) -> Iterator[Counted]:
    """Yield raw returns and lengths of episodes 0, 1, .. of a seed, in order, played by up to CROWD environments.

    Each equals the episode that `record_episode` records under its number. NumbersError if a number is non-finite; then
    the other episodes of that crowd are not returned either.
    """
    config, mode = loaded.config, check_mode(policy_mode)
    if max_steps is not None:  # as a shorter time limit, since environments side by side cannot be stopped one by one
        time_limit = env_info(config).max_episode_steps
        config = replace(config, max_episode_steps=min(max_steps, time_limit or max_steps))
    for first_number in range(0, episodes, CROWD):
        crowd_size = min(CROWD, episodes - first_number)
        envs = make_envs(config, crowd_size)
        crowd_seed = start_of(seed, first_number).seed
        collector = Collector(envs, loaded.agent.policy_of(mode), crowd_seed, PLAY, greedy=mode == "greedy")
        try:
            results = collector.play(crowd_size)
        except NonFiniteError as error:
            number = first_number + error.world + 1
            problem = f"environment {error.world}: {error.description} at step {error.step} of episode {number}"
            raise NumbersError(f"{config.env_id}, {problem}; no episode counts") from error
        envs.close()
        for world, (total, length) in enumerate(zip(results.returns, results.lengths, strict=True)):
            yield Counted(first_number + world, total, int(length))


def record_episode(
    loaded: LoadedRun,
    seed: int = 0,
    policy_mode: str = "greedy",
    max_steps: int | None = None,
    frames: Frames = True,
    number: int = 0,
    saliency: bool = False,
) -> Episode:
    """Play and record episode `number` (from 0) of a seed; with `saliency` also gradients, which cost time.

    Environment, random draws and return are those of `play_episodes` for this number. Non-finite numbers stay as they
    are (`check_numbers` checks them). Errors of the environment become an EnvError.
    """
    mode = check_mode(policy_mode)
    env = make_rendered(loaded.config, "rgb_array" if frames else None)
    try:
        episode = record(env, loaded.agent, loaded.config, start_of(seed, number), mode, max_steps, frames, saliency)
    finally:
        env.close()
    return replace(episode, seed=seed, number=number)


def record(
    env: gymnasium.Env,
    player: Player,
    config: Config,
    start: EpisodeStart,
    mode: Mode,
    max_steps: int | None = None,
    frames: Frames = True,
    saliency: bool = False,
) -> Episode:
    """Record an episode from any start, in an environment that the caller opened and closes."""
    pictures: list[np.ndarray] = []
    take_frame = frames if callable(frames) else pictures.append

    def draw() -> None:
        if frames:
            take_frame(frame_of(env))

    steps: list[EpisodeStep] = []
    for step in episode_steps(env, player, start, mode, max_steps, opened=draw, saliency=saliency):
        steps.append(step)
        draw()
    last_step = steps[-1]
    opinions = [step.opinion for step in steps]
    saliencies = [step.saliency for step in steps if step.saliency is not None]
    policy_actions = np.stack([step.choice.policy_action for step in steps])
    # T + 1 opinions: the last observation has no action
    all_opinions = [*opinions, player.explain(last_step.next_obs)]
    return Episode(
        env_id=config.env_id,
        seed=start.seed,
        number=start.world,
        policy_mode=mode,
        frames=np.stack(pictures) if pictures else None,
        observations=stack([*(step.obs for step in steps), last_step.next_obs]),
        encoded=stack([opinion.encoded for opinion in all_opinions]),
        actions=np.asarray([step.choice.action for step in steps]),
        policy_actions=policy_actions,
        taken=player.taken(policy_actions),
        action_names=player.action_names(config.spec),
        distribution=stack([opinion.distribution for opinion in opinions]),
        entropy=np.array([opinion.entropy for opinion in opinions], np.float32),
        values=None if opinions[0].value is None else np.array([opinion.value for opinion in all_opinions], np.float32),
        saliency=stack_saliency(saliencies),
        states=None if opinions[0].state is None else tuple(opinion.state for opinion in all_opinions),
        moved=None if steps[0].choice.moved is None else np.array([step.choice.moved for step in steps], np.float32),
        attention=None if opinions[0].attention is None else stack([opinion.attention for opinion in opinions]),
        rewards=np.array([step.reward for step in steps], np.float64),
        terminated=last_step.terminated,
        truncated=last_step.truncated,
        reason=reason(last_step, env),
        infos=tuple(json_data(info) for info in [*(step.info for step in steps), last_step.next_info]),
        fps=frames_per_second(env),
    )


def episode_steps(
    env: gymnasium.Env,
    player: Player,
    start: EpisodeStart,
    mode: Mode,
    max_steps: int | None = None,
    steer: Callable[[], object] | None = None,
    opened: Callable[[], None] | None = None,
    saliency: bool = False,
) -> Iterator[EpisodeStep]:
    """Play one episode in `env`, and yield each step; stop after `max_steps` steps (None: when the episode ends).

    `steer`: a function whose result is the action, in place of the player's. `opened`: called after the reset.
    """
    player.reset(start)
    blame = Blame(env.spec.id if env.spec else str(env))
    with blame:
        obs, info = deepcopy(env.reset(seed=integers(Key(start.seed, WORLD), start.world + 1, SEEDS)[start.world]))
    if opened is not None:
        opened()
    number = 0
    is_over = False
    while not is_over:
        opinion = player.explain(obs)
        gradients = player.saliency(obs, mode) if saliency else None
        choice = player.choose(obs, mode)
        if steer is not None:
            choice = choice._replace(action=steer())
        with blame:  # a copy, as environments may later overwrite what they returned
            next_obs, reward, terminated, truncated, next_info = deepcopy(env.step(choice.action))
        terminated = bool(terminated)
        truncated = bool(truncated) and not terminated
        number += 1
        is_over = terminated or truncated or number == max_steps
        yield EpisodeStep(
            number, obs, info, opinion, gradients, choice, float(reward), terminated, truncated, next_obs, next_info
        )
        obs, info = next_obs, next_info


def dream(player: Player, episode: Episode, step: int, steps: int) -> Dream | None:
    """Let the world model imagine up to `steps` steps from step `step` of an episode, with the actions really taken.

    None without a world model, and after the last action.
    """
    if episode.states is None:
        return None
    return player.dream(episode.states[step], episode.policy_actions[step : step + steps])


def check_numbers(step: EpisodeStep, episode_return: float, env_id: str, number: int) -> None:
    """NumbersError if a number of this step is non-finite in float32, as environments side by side store it."""
    values = {"observation": step.obs, "reward": step.reward}
    if step.terminated or step.truncated:  # otherwise the next step checks it
        values["last observation"] = step.next_obs
    if problem := first_non_finite({**values, "return": episode_return}):
        raise NumbersError(f"{env_id}: {problem} at step {step.step} of episode {number + 1}; no episode counts")


def reason(last: EpisodeStep, env: gymnasium.Env) -> str:
    """Return how the episode ended, in words."""
    limit = env.spec.max_episode_steps if env.spec else None
    if last.terminated:
        return f"terminated by the environment at step {last.step}"
    if last.truncated:
        return f"time limit of {limit} steps" if limit == last.step else f"cut by the environment at step {last.step}"
    return f"stopped after {last.step} steps, as requested"


def stack_saliency(steps: list[Saliency]) -> Saliency | None:
    """Join the saliencies of an episode's steps to arrays [T, ...]; None if there are none."""
    if not steps:
        return None
    actions, values = zip(*steps, strict=True)
    return Saliency(stack(actions), None if values[0] is None else stack(values))


def stack(trees: Sequence[object]) -> Any:
    """Join T trees of one form to one tree of arrays [T, ...]; tuples become dicts with keys "0", "1", .."""
    values: list[Any] = list(trees)
    first = values[0]
    if isinstance(first, Mapping | tuple):
        keys = first if isinstance(first, Mapping) else range(len(first))
        return {str(key): stack([value[key] for value in values]) for key in keys}
    return np.stack(values)


def json_data(value: object) -> Any:
    """Turn an environment's info into numbers, texts, lists and dicts, for JSON; other objects become their str()."""
    if isinstance(value, Mapping):
        return {str(key): json_data(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [json_data(element) for element in value]
    if isinstance(value, np.ndarray | np.generic):
        return json_data(value.tolist())
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
