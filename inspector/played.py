"""What needs the networks themselves: a run's modules, and an episode of it. The only room that loads torch."""

from functools import partial
from pathlib import Path

from stride.agents.trained.loading import load_run
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.rendered import RenderError
from stride.inspector.dreams import dreamt
from stride.inspector.episode import player_markup, record_for_browser
from stride.inspector.markup import Markup, card, join, note
from stride.inspector.model import config, model
from stride.inspector.recorded import Recorded
from stride.inspector.runs import RunFacts
from stride.runstore.run_dir import RunDir
from stride.utils.typography import score
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError


def network(each: RunFacts) -> Markup:
    """Without a checkpoint that loads, the config is still worth reading."""
    try:
        return model(each, load_run(each.run.id))
    except (UserError, EnvError, RenderError) as error:
        return join([config(each), card("Network", note(str(error)))])


def recorded(run: RunDir, checkpoint: str, seed: int, mode: str, steps: int, folder: Path) -> Recorded:
    """An episode for episode.js, its videos in `folder`; UserError, one line, where there is none."""
    try:
        loaded = load_run(run.id, checkpoint)
        made = record_for_browser(loaded, seed, mode, steps, folder)
    except (EnvError, RenderError, VideoError) as error:
        raise UserError(str(error)) from error
    data = made.data
    said = (
        f"{data['checkpoint']}, {data['mode']}, seed {seed}: return {score(data['return'])} in {data['steps']:,} steps"
    )
    key, dreams = made.key, made.episode.states is not None
    asked = partial(dreamt, loaded.agent, made.episode, loaded.config.frame_stack, key) if dreams else None
    return Recorded(player_markup(made), tuple(made.videos.values()), f"recorded here: {said}", key, asked)
