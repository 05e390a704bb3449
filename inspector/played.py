"""Makes what needs a run's networks: the table of modules, recorded episodes, and dreams of a world model.

Only this module and episode.py import torch; rooms.py imports them late. A dream, what the world model imagines from a
step of an episode, is computed when the page asks for it; dreams.js draws it.
"""

import base64
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image
from torch import Tensor, nn

from stride.agents.trained.episode import Episode, dream
from stride.agents.trained.loading import LoadedRun, load_run
from stride.agents.trained.player import Player
from stride.config.diff import IDENTITY_KEYS, config_of, written
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.rendered import RenderError
from stride.inspector.episode import (
    Observed,
    images,
    leaves,
    observed_numbers,
    player_markup,
    record_for_browser,
    short_lists,
)
from stride.inspector.markup import Markup, card, join, note, table, tag
from stride.inspector.overview import configured, environment
from stride.inspector.pictures import tiles
from stride.inspector.runs import RunFacts
from stride.inspector.videos import RecordedEpisode
from stride.runstore.run_dir import RunDir
from stride.utils.typography import score
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError

DREAM_STEPS = 15  # imagined steps of a dream
MAX_PIXELS = 128  # longest side of an imagined image that is sent to the browser


def network(run: RunFacts) -> Markup:
    """Return the tab Config & Model; without a checkpoint that loads, it still shows the config."""
    try:
        return model(run, load_run(run.run.id))
    except (UserError, EnvError, RenderError) as error:
        return join([config(run), card("Network", note(str(error))), environment(run)])


def recorded(run: RunDir, checkpoint: str, seed: int, mode: str, steps: int, folder: Path) -> RecordedEpisode:
    """Record an episode, with its videos in `folder`; UserError, one line, if that fails."""
    try:
        loaded = load_run(run.id, checkpoint)
        recording = record_for_browser(loaded, seed, mode, steps, folder)
    except (EnvError, RenderError, VideoError) as error:
        raise UserError(str(error)) from error
    numbers = recording.data
    result = f"return {score(numbers['return'])} in {numbers['steps']:,} steps"
    description = f"recorded here: {numbers['checkpoint']}, {numbers['mode']}, seed {seed}: {result}"
    episode = recording.episode
    dream_of = None
    if episode.states is not None:
        dream_of = partial(dreamt, loaded.agent, episode, loaded.config.frame_stack, recording.key)
    videos = tuple(recording.videos.values())
    return RecordedEpisode(player_markup(recording), videos, description, recording.key, dream_of)


def model(run: RunFacts, loaded: LoadedRun) -> Markup:
    """Return the tab Config & Model of a run whose checkpoint was loaded."""
    network = loaded.agent.policy
    steps = loaded.progress.get("env_steps", 0)
    total = sum(parameter.numel() for parameter in network.parameters())
    last_step = run.brief.tail.steps
    remark = f", the best evaluation; the run continued to {last_step:,}" if steps < last_step else ""
    about = note(f"{total:,} parameters; weights of {loaded.checkpoint} at {steps:,} env steps{remark}")
    rows = table(("module", "kind", "tensors", "parameters"), modules(network), "network")
    return join([config(run), card("Network", about, rows), environment(run)])


def config(run: RunFacts) -> Markup:
    """Return cards with the settings that are not defaults, with every key, and the config as YAML."""
    facts = run.facts.get("config")
    yaml_text = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    raw = tag("details", tag("summary", "as YAML"), tag("pre", yaml_text))
    try:
        settings = [
            (config_key, written(value))
            for config_key, value in config_of(run.facts).items()
            if config_key not in IDENTITY_KEYS
        ]
        all_keys = tag("details", tag("summary", "every key"), table(("key", "value"), settings, "pairs"))
    except UserError:  # a config of another version; `configured` shows the message
        all_keys = Markup("")
    return join([configured(run), card("Full config", all_keys, raw)])


def modules(network: nn.Module) -> list[tuple[Markup, str, str, str]]:
    """Return a row per module with parameters: name indented by depth, class, tensors, number of parameters.

    A module that only wraps another one has no row; its name becomes the beginning of the other's name."""
    table_rows = []

    def add(name: str, module: nn.Module, depth: int) -> None:
        parameters = [*module.named_parameters(recurse=False)]
        children = children_of(module)
        if not parameters and len(children) == 1 and depth:
            [(child_name, child)] = children
            return add(f"{name}.{child_name}", child, depth)
        shapes = [f"{name} {'×'.join(map(str, tensor.shape)) or 'scalar'}" for name, tensor in parameters]
        count = sum(parameter.numel() for parameter in module.parameters())
        label = tag("span", name, style=f"padding-left:{depth * 1.2:.1f}em")
        table_rows.append((label, type(module).__name__, ", ".join(shapes), f"{count:,}"))
        for child_name, child in children:
            add(child_name, child, depth + 1)

    add("policy", network, 0)
    return table_rows


def children_of(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the children with parameters. A child that is also part of another child (a head of an actor) is left out
    here, because it is listed below that one."""
    held = {name: {*map(id, child.parameters())} for name, child in module.named_children()}
    children = []
    for name, child in module.named_children():
        is_part = any(held[name] < other for other in held.values())
        if held[name] and not is_part:
            children.append((name, child))
    return children


def dreamt(player: Player, episode: Episode, stacked: int, key: str, step: object) -> Markup:
    """Return the element that dreams.js reads. `step` comes from a browser; UserError if there is no such step."""
    if type(step) is not int or not 0 <= step <= episode.length:
        raise UserError(f"an episode of {episode.length:,} steps has no step {str(step)[:40]}")
    dream_object = {"step": step, **imagined(player, episode, stacked, step)}
    text = json.dumps(dream_object, separators=(",", ":"), allow_nan=False)
    return tag("div", class_="stride-dreamt", data_key=key, data_dream=text)


def imagined(player: Player, episode: Episode, stacked: int, step: int) -> dict[str, Any]:
    """Return lists over the imagined steps; they are shorter near the end of the episode, and empty at its end.

    `film`: true and imagined images as one picture, None if no images are observed."""
    result = dream(player, episode, step, DREAM_STEPS)
    if result is None:
        return {"seen": [], "reward": [], "goes_on": [], "value": None, "film": None}
    tensors = {"": result.obs} if isinstance(result.obs, Tensor) else result.obs  # as `leaves` names them
    arrays = {array_name: tensor.numpy() for array_name, tensor in tensors.items()}
    ordered: Observed = {
        array_name: arrays[array_name] for array_name in leaves(episode.observations) if array_name in arrays
    }
    film = None
    for array_name, true_images in images(episode.observations).items():
        if array_name in arrays:
            film = side_by_side_film(true_images[step + 1 :], arrays[array_name], stacked)
            break
    return {
        "seen": short_lists(observed_numbers(ordered)[1]),
        "reward": short_lists(result.reward.numpy()),
        "goes_on": short_lists(result.goes_on.numpy()),
        "value": None if result.value is None else short_lists(result.value.numpy()),
        "film": film,
    }


def side_by_side_film(true_images: np.ndarray, dreamt_images: np.ndarray, stacked: int) -> dict[str, Any]:
    """Return one PNG with a row for each step: the true image on the left, the imagined one on the right."""
    pairs = zip(true_images, dreamt_images, strict=False)
    rows = [np.concatenate([newest(image, stacked) for image in pair], 1) for pair in pairs]
    height, width, _ = rows[0].shape
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate(rows)).save(buffer, "PNG")
    picture = base64.b64encode(buffer.getvalue()).decode()
    return {"width": width // 2, "height": height, "count": len(rows), "png": f"data:image/png;base64,{picture}"}


def newest(image: np.ndarray, stacked: int) -> np.ndarray:
    """Return the newest of stacked images, uint8 [H, W, 3]; a large one is made smaller by leaving out pixels."""
    picture = tiles(image, stacked)[-1]
    stride = -(-max(picture.shape[:2]) // MAX_PIXELS)
    small = picture[::stride, ::stride]
    return np.broadcast_to(small, (*small.shape[:2], 3))
