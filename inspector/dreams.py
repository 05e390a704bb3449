"""The dream of a world model from one step of a recorded episode, as dreams.js draws it; made when it is asked for."""

import base64
import io
import json
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from stride.agents.trained.episode import Episode, dream
from stride.agents.trained.player import Player
from stride.inspector.episode import Observed, images, leaves, observed_numbers, short_lists
from stride.inspector.markup import Markup, tag
from stride.inspector.pictures import tiles
from stride.utils.user_error import UserError

HORIZON = 15
MOST_PIXELS = 128  # of a side of an imagined image that is sent


def dreamt(player: Player, episode: Episode, stacked: int, key: str, step: object) -> Markup:
    """The element that dreams.js reads; `step` comes from a browser."""
    if type(step) is not int or not 0 <= step <= episode.length:
        raise UserError(f"an episode of {episode.length:,} steps has no step {str(step)[:40]}")
    dream_object = {"step": step, **imagined(player, episode, stacked, step)}
    text = json.dumps(dream_object, separators=(",", ":"), allow_nan=False)
    return tag("div", class_="stride-dreamt", data_key=key, data_dream=text)


def imagined(player: Player, episode: Episode, stacked: int, step: int) -> dict[str, Any]:
    """Lists over the imagined steps, fewer where the episode ends before; none at its end."""
    result = dream(player, episode, step, HORIZON)
    if result is None:
        return {"seen": [], "reward": [], "goes_on": [], "value": None, "film": None}
    tensors = {"": result.obs} if isinstance(result.obs, Tensor) else result.obs  # "" for one that has no name
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
    """One picture, an instant below the other: the true image on the left, the imagined one on the right."""
    pairs = zip(true_images, dreamt_images, strict=False)
    rows = [np.concatenate([newest(image, stacked) for image in pair], 1) for pair in pairs]
    height, width, _ = rows[0].shape
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate(rows)).save(buffer, "PNG")
    picture = base64.b64encode(buffer.getvalue()).decode()
    return {"width": width // 2, "height": height, "count": len(rows), "png": f"data:image/png;base64,{picture}"}


def newest(image: np.ndarray, stacked: int) -> np.ndarray:
    """uint8 [H, W, 3] of the last of stacked images, large ones made smaller by leaving pixels out."""
    picture = tiles(image, stacked)[-1]
    stride = -(-max(picture.shape[:2]) // MOST_PIXELS)
    small = picture[::stride, ::stride]
    return np.broadcast_to(small, (*small.shape[:2], 3))
