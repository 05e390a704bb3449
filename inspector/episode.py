"""An episode recorded once, as all-intra videos and one compact JSON; all scrubbing happens in the browser.

How the numbers are shown is episode.js; how an episode is played is agents/trained/episode.py.
"""

import json
import math
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stride.agents.trained.episode import Episode, record, start_of
from stride.agents.trained.loading import LoadedRun
from stride.agents.trained.player import Mode, check_mode
from stride.agents.trained.saliency import Leaves
from stride.config.spec import Quantity
from stride.envs_gym.rendered import RenderError, frames_per_second, make_rendered
from stride.envs_gym.spaces import MASK
from stride.inspector.markup import Markup, tag
from stride.inspector.pictures import heat_frames, seen_frames, tiles
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError, VideoFile

MOST_STEPS = 5000
MOST_OBSERVED = 64  # numbers of an observation that are shown; images are in a video
KEPT = 48  # videos that stay on disk, up to four of a recording


Observed = np.ndarray | dict[str, "Observed"]  # by name, as the environment nests them


class Recording(NamedTuple):
    """What the browser gets."""

    data: dict[str, Any]
    videos: dict[str, Path]
    """frame: what was drawn; seen: the images observed; action, value: what those hang on, in the same places"""
    episode: Episode
    key: str
    """what the page calls it"""


def record_for_browser(loaded: LoadedRun, seed: int, mode: str, max_steps: int, folder: Path) -> Recording:
    """Play, film into `folder` and put the numbers together; what cannot be drawn is recorded without a video."""
    checked = check_mode(mode)
    if not 0 <= seed < 2**63:
        raise UserError(f"the seed is a whole number from 0 on, not {seed}")
    if not 1 <= max_steps <= MOST_STEPS:
        raise UserError(f"max steps lies between 1 and {MOST_STEPS:,}, not at {max_steps}")
    name = f"episode-{secrets.token_hex(8)}"
    frame = folder / f"{name}-frame.mp4"
    try:
        episode, videos, note = _play(loaded, seed, checked, max_steps, frame), {"frame": frame}, ""
        videos |= _film_seen(episode, loaded, folder / name)
    except (RenderError, VideoError) as error:
        episode, videos = _play(loaded, seed, checked, max_steps, None), {}
        note = f"no video: {error}"
    _forget_old(folder)
    return Recording({**numbers(episode, loaded), "seed": seed, "note": note}, videos, episode, secrets.token_hex(8))


def _play(loaded: LoadedRun, seed: int, mode: Mode, max_steps: int, path: Path | None) -> Episode:
    env = make_rendered(loaded.config, "rgb_array" if path else None)
    try:
        start = start_of(seed, 0)
        if path is None:
            return record(env, loaded.agent, loaded.config, start, mode, max_steps, False, saliency=True)
        with VideoFile(path, frames_per_second(env), all_intra=True) as video:
            return record(env, loaded.agent, loaded.config, start, mode, max_steps, video.add, saliency=True)
    finally:
        env.close()


def _film_seen(episode: Episode, loaded: LoadedRun, name: Path) -> dict[str, Path]:
    """Videos of the first image of the observation, where it has one."""
    found = images(episode.observations)
    if not found:
        return {}
    leaf, stacked = next(iter(found)), loaded.config.frame_stack
    causes = {} if episode.saliency is None else {"action": episode.saliency.action, "value": episode.saliency.value}
    films: dict[str, Iterable[np.ndarray]] = {"seen": seen_frames(found[leaf], stacked)}
    films |= {kind: heat_frames(cause[leaf], stacked) for kind, cause in causes.items() if cause and leaf in cause}
    paths = {kind: name.with_name(f"{name.name}-{kind}.mp4") for kind in films}
    for kind, path in paths.items():
        with VideoFile(path, episode.fps, all_intra=True) as video:
            for frame in films[kind]:
                video.add(frame)
    return paths


def _forget_old(folder: Path) -> None:
    films = sorted(folder.glob("episode-*.mp4"), key=lambda path: path.stat().st_mtime_ns)
    for path in films[:-KEPT]:
        path.unlink(missing_ok=True)


def numbers(episode: Episode, loaded: LoadedRun) -> dict[str, Any]:
    """Everything but the frames, as plain lists of short floats; what is non-finite is null."""
    config = loaded.config
    names, observed = observed_numbers(episode.observations)
    _, seen = observed_numbers(episode.encoded)
    # what the first layer gets is shown beside what the world gave only where normalising made something else of it
    differs = seen.shape == observed.shape and not np.allclose(seen, observed, atol=1e-4)
    judgements = {name: brief(values) for name, values in judged(episode, config.gamma, _lambda(loaded)).items()}
    mask, pictures = leaves(episode.observations).get(MASK), images(episode.observations)
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
            name: brief(values.reshape(episode.length, -1)) for name, values in episode.distribution.items()
        },
        "allowed": None if mask is None else np.asarray(mask, bool).tolist(),
        "taken": brief(episode.taken),
        "observations": described(names, config.spec.observations, observed),
        "observed": brief(observed),
        "seen": brief(seen) if differs else None,
        "stacked": [len(tiles(leaf[0], config.frame_stack)) for leaf in pictures.values()][:1],
        "saliency": causes(episode),
        "spread": brief(np.nan_to_num(observed).std(0)),
        "dreams": episode.states is not None,
        "scaled": bool(config.normalize_reward),
        "gamma": config.gamma,
        **judgements,
    }


def causes(episode: Episode) -> dict[str, Any]:
    """Gradients [T][numbers] of action and value, for the numbers that are shown."""
    if episode.saliency is None:
        return {}
    parts = {"action": episode.saliency.action, "value": episode.saliency.value}
    return {kind: brief(gradients(found, episode.observations)) for kind, found in parts.items() if found is not None}


def _lambda(loaded: LoadedRun) -> float:
    found = loaded.facts["config"].get("gae_lambda", 1.0)
    return float(found) if isinstance(found, int | float) else 1.0


def judged(episode: Episode, gamma: float, gae_lambda: float) -> dict[str, np.ndarray]:
    """Per step: rewards, returns before and after it, and with a critic its value, TD error and advantage.

    `to_go` is the plain sum, as returns are reported; `discounted` is what a critic's value stands for. An episode that
    was cut, not ended, would have gone on: by the critic's word, where there is one.
    """
    rewards = episode.rewards
    after_all = 0.0 if episode.terminated or episode.values is None else float(episode.values[-1])
    discounted = np.zeros(len(rewards))
    for step in range(len(rewards) - 1, -1, -1):
        after_all = discounted[step] = rewards[step] + gamma * after_all
    found = {
        "reward": rewards,
        "so_far": np.cumsum(rewards),
        "to_go": np.cumsum(rewards[::-1])[::-1],
        "discounted": discounted,
        "entropy": episode.entropy,
    }
    if episode.values is None:
        return found
    values = episode.values.astype(np.float64)
    after = values[1:].copy()
    if episode.terminated:
        after[-1] = 0.0  # nothing comes after the end; a cut episode would have gone on
    td_error = rewards + gamma * after - values[:-1]
    advantage = np.zeros_like(td_error)
    carried = 0.0
    for step in range(len(td_error) - 1, -1, -1):
        carried = td_error[step] + gamma * gae_lambda * carried
        advantage[step] = carried
    return {**found, "value": values, "td_error": td_error, "advantage": advantage}


def leaves(tree: Observed, name: str = "") -> dict[str, np.ndarray]:
    """The arrays of an observation by dotted names, as the policy calls them; "" is all of one that is no dict."""
    if not isinstance(tree, dict):
        return {name: tree}
    inside = ((f"{name}.{key}" if name else str(key), child) for key, child in tree.items())
    return {path: leaf for inner, child in inside for path, leaf in leaves(child, inner).items()}


def images(tree: Observed) -> dict[str, np.ndarray]:
    """The leaves that are looked at."""
    return {name: leaf for name, leaf in leaves(tree).items() if leaf.ndim >= 3 and leaf.dtype == np.uint8}


def _numeric(tree: Observed) -> dict[str, np.ndarray]:
    """The other leaves, [T + 1, numbers] each; the action mask is shown with the actions."""
    looked_at = images(tree)
    named = {name: leaf for name, leaf in leaves(tree).items() if name not in looked_at and name != MASK}
    return {name: leaf.reshape(len(leaf), -1).astype(np.float64) for name, leaf in named.items()}


def observed_numbers(tree: Observed) -> tuple[list[str], np.ndarray]:
    """(names, [T + 1, numbers]) of the first MOST_OBSERVED numbers."""
    parts = _numeric(tree)
    names = [
        f"{name} {place}".strip() if leaf.shape[1] > 1 else name
        for name, leaf in parts.items()
        for place in range(leaf.shape[1])
    ]
    instants = len(next(iter(leaves(tree).values())))
    rows = np.concatenate([*parts.values(), np.zeros((instants, 0))], 1)
    return names[:MOST_OBSERVED], rows[:, :MOST_OBSERVED]


def gradients(found: Leaves, observations: Observed) -> np.ndarray:
    """[T, numbers] in the order of observed_numbers; NaN where there is none."""
    steps = len(next(iter(found.values())))
    parts = [
        found[name].reshape(steps, -1) if name in found else np.full((steps, leaf.shape[1]), np.nan)
        for name, leaf in _numeric(observations).items()
    ]
    return np.concatenate([*parts, np.zeros((steps, 0))], 1)[:, :MOST_OBSERVED]


def described(names: list[str], quantities: tuple[Quantity, ...], observed: np.ndarray) -> list[dict[str, Any]]:
    """Name and bounds of each number: the spec's, where it speaks of as many, else what this episode covered."""
    known = quantities if len(quantities) == len(names) else tuple(Quantity(name or "state") for name in names)
    described = []
    for place, item in enumerate(known):
        column = observed[:, place]
        reach = max(float(np.abs(column[np.isfinite(column)]).max(initial=0.0)), 1e-6)
        low = -reach if item.low is None or not math.isfinite(item.low) else item.low
        high = reach if item.high is None or not math.isfinite(item.high) else item.high
        bounded = item.low is not None and item.high is not None
        described.append({"name": item.name, "low": round(low, 4), "high": round(high, 4), "bounded": bounded})
    return described


def brief(values: np.ndarray) -> Any:
    """Lists of at most five digits; NaN and infinities, which JSON has no word for, as None."""
    if values.ndim > 1:
        return [brief(row) for row in values]
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def player_markup(recording: Recording) -> Markup:
    """The place episode.js finds: the numbers in an attribute, hence escaped once and never run."""
    data = {**recording.data, "videos": {kind: str(path) for kind, path in recording.videos.items()}}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return tag("div", class_="stride-episode", data_key=recording.key, data_episode=text)
