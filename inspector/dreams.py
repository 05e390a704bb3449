"""What a world model imagines from one step of a recorded episode, as dreams.js draws it; made when it is asked for."""

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np
from torch import Tensor

from stride.agents.trained.episode import Episode, dream
from stride.agents.trained.player import Player
from stride.inspector.episode import Observed, brief, images, leaves, observed_numbers
from stride.inspector.markup import Markup, tag
from stride.inspector.pictures import tiles
from stride.utils.user_error import UserError

HORIZON = 15
SIDE = 128  # pixels of an imagined image that travel, at most


def dreamt(player: Player, episode: Episode, stacked: int, key: str, step: object) -> Markup:
    """The place dreams.js finds; `step` comes from a browser."""
    if type(step) is not int or not 0 <= step <= episode.length:
        raise UserError(f"an episode of {episode.length:,} steps has no step {str(step)[:40]}")
    told = {"step": step, **imagined(player, episode, stacked, step)}
    text = json.dumps(told, separators=(",", ":"), allow_nan=False)
    return tag("div", class_="stride-dreamt", data_key=key, data_dream=text)


def imagined(player: Player, episode: Episode, stacked: int, step: int) -> dict[str, Any]:
    """Lists over the steps imagined, fewer where the episode ends before; none at its end."""
    found = dream(player, episode, step, HORIZON)
    if found is None:
        return {"seen": [], "reward": [], "goes_on": [], "value": None, "film": None}
    there = leaves(episode.observations)
    seen = {name: leaf.numpy() for name, leaf in named(found.obs).items()}
    ordered: Observed = {name: seen[name] for name in there if name in seen}
    _, numbers = observed_numbers(ordered)
    pictures = [(name, true) for name, true in images(episode.observations).items() if name in seen]
    films = [filmed(true[step + 1 :], seen[name], stacked) for name, true in pictures[:1]]
    return {
        "seen": brief(numbers),
        "reward": brief(found.reward.numpy()),
        "goes_on": brief(found.goes_on.numpy()),
        "value": None if found.value is None else brief(found.value.numpy()),
        "film": films[0] if films else None,
    }


def named(seen: Any) -> dict[str, Tensor]:
    """The leaves by name, "" for one that is alone."""
    return {"": seen} if isinstance(seen, Tensor) else seen


def filmed(true: np.ndarray, told: np.ndarray, stacked: int) -> dict[str, Any]:
    """One picture, an instant below the other: what was seen on the left, what was dreamt on the right."""
    rows = [np.concatenate([newest(image, stacked) for image in pair], 1) for pair in zip(true, told, strict=False)]
    height, width = rows[0].shape[:2]
    data = base64.b64encode(png(np.concatenate(rows))).decode()
    return {"width": width // 2, "height": height, "count": len(rows), "png": f"data:image/png;base64,{data}"}


def newest(image: np.ndarray, stacked: int) -> np.ndarray:
    """uint8 [H, W, 3] of the last of stacked images, large ones made smaller by leaving pixels out."""
    picture = tiles(image, stacked)[-1]
    apart = -(-max(picture.shape[:2]) // SIDE)
    small = picture[::apart, ::apart]
    return np.broadcast_to(small, (*small.shape[:2], 3))


def png(pixels: np.ndarray) -> bytes:
    """uint8 [H, W, 3] as a file."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: no filter

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green, blue
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines.tobytes())), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
