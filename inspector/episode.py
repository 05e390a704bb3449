"""Records one episode for the browser: videos, and all numbers of its steps as compact JSON.

The browser then shows any step without asking the server; so the videos are all-intra (a player can jump to any frame).
episode.js shows the numbers; agents/trained/episode.py plays the episode. T is the episode's length in steps.
"""

import json
import math
import secrets
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stride.agents.trained.episode import Episode, record, start_of
from stride.agents.trained.loading import LoadedRun
from stride.agents.trained.player import Mode, check_mode
from stride.agents.trained.saliency import Leaves
from stride.config.schedule import Schedule
from stride.config.spec import Quantity
from stride.envs_gym.rendered import RenderError, frames_per_second, make_rendered
from stride.envs_gym.spaces import MASK
from stride.inspector.markup import Markup, tag
from stride.inspector.pictures import heat_frames, seen_frames, tiles
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError, VideoFile

MAX_STEPS = 5000  # of an episode
MAX_OBSERVED = 64  # numbers of an observation that are shown; images are in a video
MAX_AGES = 64  # past steps of which attention is shown
MAX_VIDEOS = 48  # newest videos that stay on disk; a recording has up to four

Observed = np.ndarray | dict[str, "Observed"]  # an array [T + 1, ...], or a dict of them, as the environment nests them


class Recording(NamedTuple):
    """An episode as it is sent to the browser."""

    data: dict[str, Any]  # the result of `numbers`, seed and note
    videos: dict[str, Path]
    """frame: the drawn environment; seen: observed images; action, value: pixels on which these depend (saliency)"""
    episode: Episode
    key: str  # a random name by which the page asks for a dream


def record_for_browser(loaded: LoadedRun, seed: int, mode: str, max_steps: int, folder: Path) -> Recording:
    """Play an episode, write its videos into `folder` and collect its numbers.

    An environment that cannot be drawn is recorded without videos, and the note says why. UserError for a wrong seed,
    mode or number of steps."""
    policy_mode = check_mode(mode)
    if not 0 <= seed < 2**63:
        raise UserError(f"the seed must be a whole number, 0 or more, not {seed}")
    if not 1 <= max_steps <= MAX_STEPS:
        raise UserError(f"max steps must be from 1 to {MAX_STEPS:,}, not {max_steps}")
    file_stem = f"episode-{secrets.token_hex(8)}"
    frame_path = folder / f"{file_stem}-frame.mp4"
    note = ""
    try:
        episode = _play(loaded, seed, policy_mode, max_steps, frame_path)
        videos = {"frame": frame_path, **_film_observations(episode, loaded, folder / file_stem)}
    except (RenderError, VideoError) as error:
        episode = _play(loaded, seed, policy_mode, max_steps, None)
        videos = {}
        note = f"no video: {error}"
    _delete_old(folder)
    return Recording({**numbers(episode, loaded), "seed": seed, "note": note}, videos, episode, secrets.token_hex(8))


def _play(loaded: LoadedRun, seed: int, mode: Mode, max_steps: int, path: Path | None) -> Episode:
    """Play an episode and film it into `path`; None: without a film."""
    with ExitStack() as stack:
        env = stack.enter_context(closing(make_rendered(loaded.config, "rgb_array" if path else None)))
        film = None
        if path:
            film = stack.enter_context(VideoFile(path, frames_per_second(env), all_intra=True)).add
        start = start_of(seed, 0)
        return record(env, loaded.agent, loaded.config, start, mode, max_steps, film or False, saliency=True)


def _film_observations(episode: Episode, loaded: LoadedRun, file_stem: Path) -> dict[str, Path]:
    """Write videos of the first image in the observation and of its saliency; return kind -> path, {} without image."""
    observed_images = images(episode.observations)
    if not observed_images:
        return {}
    first = next(iter(observed_images))
    stacked = loaded.config.frame_stack
    films: dict[str, Iterable[np.ndarray]] = {"seen": seen_frames(observed_images[first], stacked)}
    for film_kind, gradients_by_name in _saliency(episode).items():
        if first in gradients_by_name:
            films[film_kind] = heat_frames(gradients_by_name[first], stacked)
    paths = {}
    for film_kind, frames in films.items():
        paths[film_kind] = file_stem.with_name(f"{file_stem.name}-{film_kind}.mp4")
        with VideoFile(paths[film_kind], episode.fps, all_intra=True) as video:
            for frame in frames:
                video.add(frame)
    return paths


def _saliency(episode: Episode) -> dict[str, Leaves]:
    """Return "action" and "value" -> gradients by name of the observation's arrays, if they were computed."""
    if episode.saliency is None:
        return {}
    kinds = {"action": episode.saliency.action, "value": episode.saliency.value}
    return {kind: gradients_by_name for kind, gradients_by_name in kinds.items() if gradients_by_name is not None}


def _delete_old(folder: Path) -> None:
    """Delete all but the newest MAX_VIDEOS videos of the folder."""
    videos = sorted(folder.glob("episode-*.mp4"), key=lambda path: path.stat().st_mtime_ns)
    for path in videos[:-MAX_VIDEOS]:
        path.unlink(missing_ok=True)


def numbers(episode: Episode, loaded: LoadedRun) -> dict[str, Any]:
    """Return everything but the frames, as data for JSON; lists have an entry per step, non-finite numbers are None."""
    config = loaded.config
    names, observed = observed_numbers(episode.observations)
    _, normalized = observed_numbers(episode.encoded)
    # the input of the first layer is shown beside the observation only if normalization changed it
    differs = normalized.shape == observed.shape and not np.allclose(normalized, observed, atol=1e-4)
    gamma = present(config.gamma, loaded)
    gae_lambda = present(vars(config).get("gae_lambda", 1.0), loaded)
    judgements = judged(episode, gamma, gae_lambda)
    mask = leaves(episode.observations).get(MASK)
    pictures = images(episode.observations)
    return {
        "run": loaded.run.id,
        "checkpoint": loaded.checkpoint,
        "env": config.env_id,
        "mode": episode.policy_mode,
        "steps": episode.length,
        "return": round(episode.episode_return, 4),
        "goal": loaded.goal,
        "reason": episode.reason,
        "terminated": episode.terminated,
        "fps": episode.fps,
        "actions": list(episode.action_names),
        "kind": "choice" if "probability" in episode.distribution else "numbers",
        "distribution": {
            array_name: short_lists(values.reshape(episode.length, -1))
            for array_name, values in episode.distribution.items()
        },
        "allowed": None if mask is None else np.asarray(mask, bool).tolist(),
        "taken": short_lists(episode.taken),
        "observations": described(names, config.spec.observations, observed),
        "observed": short_lists(observed),
        "seen": short_lists(normalized) if differs else None,
        "stacked": [len(tiles(leaf[0], config.frame_stack)) for leaf in pictures.values()][:1],
        "saliency": {
            film_kind: short_lists(gradients(by_name, episode.observations))
            for film_kind, by_name in _saliency(episode).items()
        },
        "spread": short_lists(np.nan_to_num(observed).std(0)),
        "attention": None if episode.attention is None else short_lists(episode.attention[:, :MAX_AGES]),
        "dreams": episode.states is not None,
        "scaled": bool(config.normalize_reward),
        "gamma": gamma,
        **{array_name: short_lists(values) for array_name, values in judgements.items()},
    }


def present(value: float | Schedule, loaded: LoadedRun) -> float:
    """Return a setting that may follow a schedule, as it was when the playing checkpoint was saved."""
    if isinstance(value, Schedule):
        return value.at(loaded.progress["env_steps"], loaded.config.max_timesteps)
    return value


def judged(episode: Episode, gamma: float, gae_lambda: float) -> dict[str, np.ndarray]:
    """Return arrays [T]: rewards, returns before and after each step, and with a critic values, TD errors, advantages.

    `to_go` is the undiscounted sum of the rewards to come, as returns are reported; `discounted` is what a critic's
    value estimates. A truncated episode would have continued; the critic's last value, if any, replaces the rest of it.
    """
    rewards = episode.rewards
    following = 0.0 if episode.terminated or episode.values is None else float(episode.values[-1])
    discounted = np.zeros(len(rewards))
    for step in range(len(rewards) - 1, -1, -1):
        following = rewards[step] + gamma * following
        discounted[step] = following
    result = {
        "reward": rewards,
        "so_far": np.cumsum(rewards),
        "to_go": np.cumsum(rewards[::-1])[::-1],
        "discounted": discounted,
        "entropy": episode.entropy,
        **({} if episode.moved is None else {"moved": episode.moved}),
    }
    if episode.values is None:
        return result
    values = episode.values.astype(np.float64)
    next_values = values[1:].copy()
    if episode.terminated:
        next_values[-1] = 0.0
    td_error = rewards + gamma * next_values - values[:-1]
    advantage = np.zeros_like(td_error)
    carried = 0.0
    for step in range(len(td_error) - 1, -1, -1):
        carried = td_error[step] + gamma * gae_lambda * carried
        advantage[step] = carried
    return {**result, "value": values, "td_error": td_error, "advantage": advantage}


def leaves(tree: Observed, array_name: str = "") -> dict[str, np.ndarray]:
    """Return the arrays of an observation by dotted names, as the policy calls them; an array alone has the name ""."""
    if not isinstance(tree, dict):
        return {array_name: tree}
    arrays: dict[str, np.ndarray] = {}
    for key, child in tree.items():
        arrays |= leaves(child, f"{array_name}.{key}" if array_name else str(key))
    return arrays


def images(tree: Observed) -> dict[str, np.ndarray]:
    """Return the arrays of an observation that are images: uint8, [T + 1, height, width] or more axes."""
    return {
        array_name: array for array_name, array in leaves(tree).items() if array.ndim >= 3 and array.dtype == np.uint8
    }


def _numeric(tree: Observed) -> dict[str, np.ndarray]:
    """Return the arrays that are no images, each as [T + 1, numbers], without the mask, which is shown with actions."""
    arrays = {}
    for array_name, array in leaves(tree).items():
        if array_name not in {MASK, *images(tree)}:
            arrays[array_name] = array.reshape(len(array), -1).astype(np.float64)
    return arrays


def observed_numbers(tree: Observed) -> tuple[list[str], np.ndarray]:
    """Return names and values [T + 1, numbers] of the first MAX_OBSERVED numbers of an observation."""
    arrays = _numeric(tree)
    number_names = []
    for array_name, array in arrays.items():
        count = array.shape[1]
        number_names += [array_name] if count == 1 else [f"{array_name} {index}".strip() for index in range(count)]
    instants = len(next(iter(leaves(tree).values())))
    number_rows = np.concatenate([*arrays.values(), np.zeros((instants, 0))], 1)
    return number_names[:MAX_OBSERVED], number_rows[:, :MAX_OBSERVED]


def gradients(by_name: Leaves, observations: Observed) -> np.ndarray:
    """Return gradients as [T, numbers], in the order of observed_numbers; NaN for arrays that have none."""
    steps = len(next(iter(by_name.values())))
    columns = [np.zeros((steps, 0))]
    for array_name, array in _numeric(observations).items():
        missing = np.full((steps, array.shape[1]), np.nan)
        columns.append(by_name[array_name].reshape(steps, -1) if array_name in by_name else missing)
    return np.concatenate(columns, 1)[:, :MAX_OBSERVED]


def described(names: list[str], quantities: tuple[Quantity, ...], observed: np.ndarray) -> list[dict[str, Any]]:
    """Return name and bounds of each number: the spec's if it describes as many, else the range in this episode."""
    if len(quantities) != len(names):
        quantities = tuple(Quantity(array_name or "state") for array_name in names)
    descriptions = []
    for index, quantity in enumerate(quantities):
        column = observed[:, index]
        reach = max(float(np.abs(column[np.isfinite(column)]).max(initial=0.0)), 1e-6)
        low = -reach if quantity.low is None or not math.isfinite(quantity.low) else quantity.low
        high = reach if quantity.high is None or not math.isfinite(quantity.high) else quantity.high
        descriptions.append({
            "name": quantity.name, "low": round(low, 4), "high": round(high, 4),
            "bounded": quantity.low is not None and quantity.high is not None,
        })  # fmt: skip
    return descriptions


def short_lists(values: np.ndarray) -> Any:
    """Return an array as nested lists of numbers with five digits; non-finite values, which JSON lacks, are None."""
    if values.ndim > 1:
        return [short_lists(row) for row in values]
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def player_markup(recording: Recording) -> Markup:
    """Return the element that episode.js reads. The numbers are in an attribute: escaped once and never executed."""
    numbers = {**recording.data, "videos": {film_kind: str(path) for film_kind, path in recording.videos.items()}}
    text = json.dumps(numbers, separators=(",", ":"), allow_nan=False)
    return tag("div", class_="stride-episode", data_key=recording.key, data_episode=text)
