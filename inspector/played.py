"""The tabs that need the networks themselves: a run's modules, and an episode of it. The only file that loads torch."""

from functools import partial
from pathlib import Path

from stride.agents.trained.loading import load_run
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.rendered import RenderError
from stride.inspector.dreams import dreamt
from stride.inspector.episode import player_markup, record_for_browser
from stride.inspector.markup import Markup, card, join, note
from stride.inspector.model import config, model
from stride.inspector.runs import RunFacts
from stride.inspector.videos import RecordedEpisode
from stride.runstore.run_dir import RunDir
from stride.utils.typography import score
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError


def network(run: RunFacts) -> Markup:
    """Without a checkpoint that loads, the config is shown all the same."""
    try:
        return model(run, load_run(run.run.id))
    except (UserError, EnvError, RenderError) as error:
        return join([config(run), card("Network", note(str(error)))])


def recorded(run: RunDir, checkpoint: str, seed: int, mode: str, steps: int, folder: Path) -> RecordedEpisode:
    """An episode for episode.js, its videos in `folder`; UserError, one line, where that fails."""
    try:
        loaded = load_run(run.id, checkpoint)
        recording = record_for_browser(loaded, seed, mode, steps, folder)
    except (EnvError, RenderError, VideoError) as error:
        raise UserError(str(error)) from error
    numbers = recording.data
    result = f"return {score(numbers['return'])} in {numbers['steps']:,} steps"
    description = f"recorded here: {numbers['checkpoint']}, {numbers['mode']}, seed {seed}: {result}"
    episode = recording.episode
    dream = None
    if episode.states is not None:
        dream = partial(dreamt, loaded.agent, episode, loaded.config.frame_stack, recording.key)
    videos = tuple(recording.videos.values())
    return RecordedEpisode(player_markup(recording), videos, description, recording.key, dream)
