"""Makes the files of a published run, as bytes by name; the same run gives the same files.

The checkpoint is evaluated again for them. card.py writes the card, hub.py sends the files to the Hub.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from stride.agents.trained.episode import play_episodes, record_episode
from stride.agents.trained.loading import LoadedRun
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.rendered import RenderError, frames_per_second, make_rendered
from stride.publishing.card import CURVE, REPLAY, write_card
from stride.publishing.hub_run import FACTS, WEIGHTS, config_of
from stride.publishing.metrics_table import read_metrics, write_metrics
from stride.publishing.own_secrets import Secret, held
from stride.publishing.result import TestResult
from stride.publishing.weights_file import write_weights
from stride.runstore.history import TRAIN, VAL
from stride.runstore.metrics_table import points
from stride.utils.curve import curve_svg
from stride.utils.statistics import mean_and_deviation
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError, VideoFile

EPISODES, SEED = 100, 0  # of the evaluation
MAX_VIDEO_BYTES = 5_000_000
VIDEO_STEPS = (2000, 500, 100)  # lengths of the video that are tried until it is small enough
BINARY_FILES = {WEIGHTS, REPLAY}
Say = Callable[[str], None]  # prints one line


def build_files(
    loaded: LoadedRun, repo: str, facts: Mapping[str, object], say: Say, episodes: int = EPISODES
) -> dict[str, bytes]:
    """Return name -> bytes of all files to publish. `facts`: from public_facts."""
    rows = read_metrics(loaded.run)
    result = evaluate(loaded, episodes)
    say(
        f"evaluated  {result.mean_reward:.2f} ± {result.std_reward:.2f} over {episodes} episodes of {loaded.checkpoint}"
    )
    weights = write_weights(loaded.agent.policy.state_dict())
    refused = refusal(facts, len(weights))
    if refused:
        say(f"it cannot be loaded from the Hub: {refused}")
    files = {WEIGHTS: weights, FACTS: _json(facts), "results.json": _json(vars(result))}
    if rows:
        curve_title = f"{loaded.config.env_id}:{loaded.config.variant}, seed {loaded.config.seed}"
        files["metrics.csv"] = write_metrics(rows)
        files[CURVE] = curve_svg(curve_title, points(rows, TRAIN), points(rows, VAL), loaded.goal).encode()
    video_bytes = film(loaded, say)
    if video_bytes:
        files[REPLAY] = video_bytes
    # the card comes last, because it shows only files that exist
    files["README.md"] = write_card(repo, facts, result, frozenset(files), refused).encode()
    return files


def check_nothing_left(files: dict[str, bytes], own: list[Secret]) -> None:
    """Raise UserError if a file contains a secret of this machine in any spelling: the last check before sending."""
    for file_name, file_bytes in files.items():
        text = file_bytes.decode("latin-1" if file_name in BINARY_FILES else "utf-8", "replace")
        for secret in own:
            if secret.certain and held(text, secret):
                raise UserError(f"{file_name} contains {secret.kind}; nothing was published")


def evaluate(loaded: LoadedRun, episodes: int) -> TestResult:
    """Return the results of greedy episodes, on a seed that neither training nor its evaluations used."""
    played_episodes = list(play_episodes(loaded, episodes, SEED))
    returns = [episode.episode_return for episode in played_episodes]
    mean_return, deviation = mean_and_deviation(returns)
    return TestResult(
        env_id=loaded.config.env_id,
        env_steps=loaded.progress["env_steps"],
        checkpoint=loaded.checkpoint,
        mean_reward=mean_return,
        std_reward=deviation,
        n_eval_episodes=episodes,
        is_deterministic=True,
        seed=SEED,
        returns=returns,
        lengths=[episode.length for episode in played_episodes],
    )


def refusal(facts: Mapping[str, object], size: int) -> str:
    """Return why a download of this run would be refused, in one line; "" if it would be loaded.

    `size`: of the weights' file in bytes."""
    try:
        config_of(facts, size, FACTS)
    except UserError as error:
        return str(error)
    return ""


def film(loaded: LoadedRun, say: Say) -> bytes:
    """Return the first episode as a small mp4; b"", and one line to `say`, if it cannot be filmed or is too large."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / REPLAY
        try:
            env = make_rendered(loaded.config, "rgb_array")
            frame_rate = frames_per_second(env)
            env.close()
            for steps in VIDEO_STEPS:
                with VideoFile(path, frame_rate) as video_file:
                    record_episode(loaded, SEED, max_steps=steps, frames=video_file.add)
                if path.stat().st_size <= MAX_VIDEO_BYTES:
                    return path.read_bytes()
            say(f"no video: even {VIDEO_STEPS[-1]} steps are larger than {MAX_VIDEO_BYTES:,} bytes")
        except (RenderError, VideoError, UserError, EnvError) as error:
            say(f"no video: {error}")
    return b""


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
