"""Episodes to look at and episodes to count: one world watched step by step, or many side by side for their returns.

Episode `number` of a seed is the same either way: worlds come in crowds of CROWD, each crowd with a seed of its own,
and every world plays one episode. So the first five of a hundred are the five. No user interface here.
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

CROWD = 32
Frames = bool | Callable[[np.ndarray], None]  # stored, left out, or passed to a function as soon as they are drawn


@dataclass(frozen=True)
class Episode:
    """T steps of one world; data of instants has T + 1 rows, of which the last was not acted upon."""

    env_id: str
    seed: int
    number: int
    policy_mode: Mode
    frames: np.ndarray | None
    """[T + 1, height, width, 3] uint8; None where nothing was drawn, or a function took them"""
    observations: Any
    """[T + 1, ...] as the environment gave them; a dict of arrays where they are dicts"""
    encoded: Any
    """[T + 1, ...] observations as the policy's first layer got them"""
    actions: np.ndarray
    """[T, ...] as the environment took them"""
    policy_actions: np.ndarray
    """[T, ...] as the policy gave them: integers from 0, or numbers of which [-1, 1] spans the bounds"""
    taken: np.ndarray
    """[T, k]: the indices of the choices made among all `action_names`, or the numbers of the action"""
    action_names: tuple[str, ...]
    """of the choices, or of the numbers"""
    distribution: dict[str, np.ndarray]
    """probability [T, choices], and q [T, choices] where a policy has it; or mean and std [T, numbers] in its units

    The policy's opinion, in every mode."""
    entropy: np.ndarray
    """[T]"""
    values: np.ndarray | None
    """[T + 1]; None without a critic"""
    saliency: Saliency | None
    """tensors [T, ...]; None where it was not asked for, or nothing has a gradient"""
    states: tuple[Tree, ...] | None
    """T + 1 states of a world model, for `dream`; None without one"""
    moved: np.ndarray | None
    """[T] how far each step took what the policy remembers: the norm of the change; None where that means nothing"""
    attention: np.ndarray | None
    """[T, steps] how much it looked at the present step and at each before it, newest first; None without attention"""
    rewards: np.ndarray
    """[T] float64, raw"""
    terminated: bool
    truncated: bool
    reason: str
    """how it ended, in words"""
    infos: tuple[dict[str, Any], ...]
    """T + 1, plain data"""
    fps: float

    @property
    def length(self) -> int:
        return len(self.rewards)

    @property
    def episode_return(self) -> float:
        return float(self.rewards.sum())


class EpisodeStep(NamedTuple):
    """One step of an episode while it is played; `obs` and `info` are those that were acted upon."""

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
    """The return and length of an episode, without its steps."""

    number: int
    episode_return: float
    length: int


def start_of(seed: int, number: int) -> EpisodeStart:
    """The start of episode `number` (from 0) of a seed."""
    return EpisodeStart(integers(Key(seed, PLAY, 0, number // CROWD), 1, 1 << 32)[0], number % CROWD)


def play_episodes(
    loaded: LoadedRun, episodes: int, seed: int = 0, policy_mode: str = "greedy", max_steps: int | None = None
) -> Iterator[Counted]:
    """Returns and lengths of episodes 0, 1, .. of a seed, by many worlds at once, in their order.

    Returns are raw. An episode has the same numbers as one recorded of its number. NumbersError where anything that
    would count is non-finite: then not even the sound episodes of its crowd are returned.
    """
    config, mode = loaded.config, check_mode(policy_mode)
    if max_steps is not None:  # as a shorter time limit: worlds side by side cannot be stopped one by one
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
    """Episode `number` of a seed, with everything about it; gradients, which cost time, if `saliency`.

    Worlds, draws and so the return are those that `play_episodes` counts under this number. Non-finite numbers
    stay as they came (`check_numbers` checks them); errors of the environment become an EnvError.
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
    """Record an episode from any start, in an environment that is open already and stays open."""
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
    # one more than there were choices: the last observation is judged, and not acted upon
    instants = [*opinions, player.explain(last_step.next_obs)]
    return Episode(
        env_id=config.env_id,
        seed=start.seed,
        number=start.world,
        policy_mode=mode,
        frames=np.stack(pictures) if pictures else None,
        observations=stack([*(step.obs for step in steps), last_step.next_obs]),
        encoded=stack([opinion.encoded for opinion in instants]),
        actions=np.asarray([step.choice.action for step in steps]),
        policy_actions=policy_actions,
        taken=player.taken(policy_actions),
        action_names=player.action_names(config.spec),
        distribution=stack([opinion.distribution for opinion in opinions]),
        entropy=np.array([opinion.entropy for opinion in opinions], np.float32),
        values=None if opinions[0].value is None else np.array([opinion.value for opinion in instants], np.float32),
        saliency=stack_saliency(saliencies),
        states=None if opinions[0].state is None else tuple(opinion.state for opinion in instants),
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
    """Play one episode in `env`; `steer` acts instead of the player, `opened` is called once the episode has begun."""
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
        causes = player.saliency(obs, mode) if saliency else None
        choice = player.choose(obs, mode)
        if steer is not None:
            choice = choice._replace(action=steer())
        with blame:  # environments may go on writing into what they returned, hence copies
            next_obs, reward, terminated, truncated, next_info = deepcopy(env.step(choice.action))
        terminated = bool(terminated)
        truncated = bool(truncated) and not terminated
        number += 1
        is_over = terminated or truncated or number == max_steps
        yield EpisodeStep(
            number, obs, info, opinion, causes, choice, float(reward), terminated, truncated, next_obs, next_info
        )
        obs, info = next_obs, next_info


def dream(player: Player, episode: Episode, step: int, steps: int) -> Dream | None:
    """Imagine the future from an instant, up to `steps` on, under the actions really taken from there.

    None where it does not dream, and at the end, where no action follows.
    """
    if episode.states is None:
        return None
    return player.dream(episode.states[step], episode.policy_actions[step : step + steps])


def check_numbers(step: EpisodeStep, episode_return: float, env_id: str, number: int) -> None:
    """NumbersError where a step has a number that is non-finite in 32 bits, as worlds side by side store it."""
    values = {"observation": step.obs, "reward": step.reward}
    if step.terminated or step.truncated:  # else the next observation is checked when it is acted upon
        values["last observation"] = step.next_obs
    if problem := first_non_finite({**values, "return": episode_return}):
        raise NumbersError(f"{env_id}: {problem} at step {step.step} of episode {number + 1}; no episode counts")


def reason(last: EpisodeStep, env: gymnasium.Env) -> str:
    """How the episode ended, in words."""
    limit = env.spec.max_episode_steps if env.spec else None
    if last.terminated:
        return f"terminated by the environment at step {last.step}"
    if last.truncated:
        return f"time limit of {limit} steps" if limit == last.step else f"cut by the environment at step {last.step}"
    return f"stopped after {last.step} steps, as requested"


def stack_saliency(steps: list[Saliency]) -> Saliency | None:
    """The saliencies of an episode's steps as one; None where there are none."""
    if not steps:
        return None
    actions, values = zip(*steps, strict=True)
    return Saliency(stack(actions), None if values[0] is None else stack(values))


def stack(trees: Sequence[object]) -> Any:
    """A list of trees as a tree of arrays; tuples become dicts of "0", "1", .."""
    values: list[Any] = list(trees)
    first = values[0]
    if isinstance(first, Mapping | tuple):
        keys = first if isinstance(first, Mapping) else range(len(first))
        return {str(key): stack([value[key] for value in values]) for key in keys}
    return np.stack(values)


def json_data(value: object) -> Any:
    """The info of an environment as numbers, texts, lists and dicts, whatever it holds."""
    if isinstance(value, Mapping):
        return {str(key): json_data(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [json_data(element) for element in value]
    if isinstance(value, np.ndarray | np.generic):
        return json_data(value.tolist())
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
