"""An episode recorded once, as an all-intra video and one compact JSON; all scrubbing happens in the browser.

How the numbers are shown is episode.js; how an episode is played is agents/episode.py.
"""

import json
import math
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from agents.episode import Episode, record, start_of
from agents.loading import LoadedRun
from agents.player import Mode, check_mode
from config.spec import Quantity
from envs_gym.drawn import RenderError, frames_per_second, make_drawn
from inspector.markup import Markup, tag
from utils.user_error import UserError
from utils.video_file import VideoError, VideoFile

MOST_STEPS = 5000
MOST_OBSERVED = 64  # numbers of an observation that are shown; images are in the video
KEPT = 12  # recordings whose video stays on disk


class Recording(NamedTuple):
    """What the browser gets."""

    data: dict[str, Any]
    video: Path | None


def record_for_browser(loaded: LoadedRun, seed: int, mode: str, max_steps: int, folder: Path) -> Recording:
    """Play, film into `folder` and put the numbers together; what cannot be drawn is recorded without a video."""
    checked = check_mode(mode)
    if not 0 <= seed < 2**63:
        raise UserError(f"the seed is a whole number from 0 on, not {seed}")
    if not 1 <= max_steps <= MOST_STEPS:
        raise UserError(f"max steps lies between 1 and {MOST_STEPS:,}, not at {max_steps}")
    path: Path | None = folder / f"episode-{secrets.token_hex(8)}.mp4"
    try:
        episode, space = _play(loaded, seed, checked, max_steps, path)
        note = ""
    except (RenderError, VideoError) as error:
        episode, space = _play(loaded, seed, checked, max_steps, None)
        path, note = None, f"no video: {error}"
    _forget_old(folder)
    return Recording({**numbers(episode, loaded, space), "seed": seed, "note": note}, path)


def _play(
    loaded: LoadedRun, seed: int, mode: Mode, max_steps: int, path: Path | None
) -> tuple[Episode, spaces.Space[Any]]:
    env = make_drawn(loaded.config, "rgb_array" if path else None)
    try:
        start = start_of(seed, 0)
        if path is None:
            return record(env, loaded.agent, loaded.config, start, mode, max_steps, False), env.action_space
        with VideoFile(path, frames_per_second(env), all_intra=True) as video:
            return record(env, loaded.agent, loaded.config, start, mode, max_steps, video.add), env.action_space
    finally:
        env.close()


def _forget_old(folder: Path) -> None:
    films = sorted(folder.glob("episode-*.mp4"), key=lambda path: path.stat().st_mtime_ns)
    for path in films[:-KEPT]:
        path.unlink(missing_ok=True)


def numbers(episode: Episode, loaded: LoadedRun, action_space: spaces.Space[Any]) -> dict[str, Any]:
    """Everything but the frames, as plain lists of short floats; what is no number is null."""
    config = loaded.config
    names, observed = observed_numbers(episode.observations)
    _, seen = observed_numbers(episode.seen)
    differs = seen.shape == observed.shape and not np.allclose(seen, observed, atol=1e-4)
    told = {name: brief(values) for name, values in judged(episode, config.gamma, _lambda(loaded)).items()}
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
        "taken": taken(episode.policy_actions, action_space),
        "observations": described(names, config.spec.observations, observed),
        "observed": brief(observed),
        "seen": brief(seen) if differs else None,
        "scaled": bool(config.normalize_reward),
        **told,
    }


def _lambda(loaded: LoadedRun) -> float:
    found = loaded.facts["config"].get("gae_lambda", 1.0)
    return float(found) if isinstance(found, int | float) else 1.0


def judged(episode: Episode, gamma: float, gae_lambda: float) -> dict[str, np.ndarray]:
    """Per step: rewards, returns before and after it, and with a critic its value, TD error and advantage."""
    rewards = episode.rewards
    found = {
        "reward": rewards,
        "so_far": np.cumsum(rewards),
        "to_go": np.cumsum(rewards[::-1])[::-1],
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


def observed_numbers(tree: Any) -> tuple[list[str], np.ndarray]:
    """(names, [T + 1, numbers]) of the first MOST_OBSERVED numbers; images are left out, as they are looked at."""
    if isinstance(tree, dict):
        parts = [observed_numbers(leaf) for leaf in tree.values()]
        outer = list(tree)
        names = [f"{key} {name}".strip() for key, (inner, _) in zip(outer, parts, strict=True) for name in inner]
        return names[:MOST_OBSERVED], np.concatenate([rows for _, rows in parts], 1)[:, :MOST_OBSERVED]
    if tree.ndim >= 3 and tree.dtype == np.uint8:
        return [], np.zeros((len(tree), 0))
    rows = tree.reshape(len(tree), -1).astype(np.float64)
    rows = rows[:, :MOST_OBSERVED]
    return [str(place) if rows.shape[1] > 1 else "" for place in range(rows.shape[1])], rows


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


def taken(policy_actions: np.ndarray, action_space: spaces.Space[Any]) -> list[list[float]]:
    """Per step: the places of the choices that were made among all choices, or the numbers that were given."""
    rows = policy_actions.reshape(len(policy_actions), -1)
    if isinstance(action_space, spaces.MultiDiscrete):
        counts = action_space.nvec.reshape(-1)
        rows = rows + np.concatenate([[0], np.cumsum(counts)[:-1]])
    return brief(rows)


def brief(values: np.ndarray) -> Any:
    """Lists of at most five digits; NaN and infinities, which JSON has no word for, as None."""
    if values.ndim > 1:
        return [brief(row) for row in values]
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def player_markup(recording: Recording) -> Markup:
    """The place episode.js finds: the numbers in an attribute, hence escaped once and never run."""
    data = {**recording.data, "video": str(recording.video) if recording.video else None}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return tag("div", class_="stride-episode", data_key=secrets.token_hex(8), data_episode=text)
