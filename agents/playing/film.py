"""Episodes as videos, an episode a file or all of them in one; a strip below the picture says where it stands."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from stride.utils.user_error import UserError
from stride.utils.video_file import VideoFile, load_av

NARROWEST = 320  # pixels; smaller pictures are shown larger, or their strip could not be read


class Film:
    """`with Film(places, episodes, fps) as film: film.turn_to(0, picture); film.add(step, episode_return)`.

    `places` holds a path for each episode, or one for all. A file is whole or not there: an exception drops the
    one under way, and those before it stay. On a terminal a line on stderr says how far it is.
    """

    def __init__(self, places: Sequence[Path], episodes: int, fps: float, captions: bool = True) -> None:
        self.places, self.episodes, self.frames = list(places), episodes, 0
        self._fps, self._captions = fps, captions
        self._video: VideoFile | None = None
        self._picture: Callable[[], np.ndarray]
        self._number, self._told, self._line = 0, 0.0, sys.stderr.isatty()

    def __enter__(self) -> Self:
        load_av()  # here, or the first episode would be played in vain
        if self._captions:
            load_pillow()
        return self

    def turn_to(self, number: int, picture: Callable[[], np.ndarray]) -> None:
        """An episode has begun, of which `picture` gives uint8 [height, width, 3] at any time; its first frame."""
        self._number, self._picture = number, picture
        path = self.places[min(number, len(self.places) - 1)]
        if self._video is not None and self._video.path != path:
            self._close()
        if self._video is None:
            self._video = VideoFile(path, self._fps).__enter__()
        self.add(0, 0.0)

    def add(self, step: int, episode_return: float) -> None:
        """The world as it stands after this step."""
        assert self._video is not None
        words = f"episode {self._number + 1}/{self.episodes}   step {step:,}   return {episode_return:,.6g}"
        frame = self._picture()
        self._video.add(captioned(frame, words) if self._captions else frame)
        self.frames += 1
        if self._line and time.monotonic() - self._told > 0.2:
            self._told = time.monotonic()
            self._write(f"filming  {words}")

    def _write(self, words: str) -> None:
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)

    def _close(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._line and self._told:
            self._write("")
        if self._video is not None:
            self._video.__exit__(kind, error, trace)
            self._video = None

    __exit__ = _close

    def __str__(self) -> str:
        first = self.places[0]
        where = f"{first}" if len(self.places) == 1 else f"{len(self.places)} files in {first.parent}"
        return f"{where}, {self.frames:,} frames"


def captioned(frame: np.ndarray, words: str) -> np.ndarray:
    """uint8 [height, width, 3] with light words on a dark strip below it, enlarged where it is small."""
    pillow = load_pillow()
    times = -(-NARROWEST // frame.shape[1])
    picture = frame.repeat(times, 0).repeat(times, 1)
    width = picture.shape[1]
    size = max(12, width // 32)
    strip = pillow.Image.new("RGB", (width, 2 * size), (17, 20, 24))
    draw = pillow.ImageDraw.Draw(strip)
    draw.text((size // 2, size), words, fill=(230, 233, 237), font=_font(size), anchor="lm")
    return np.concatenate([picture, np.asarray(strip)])


@cache
def _font(size: int) -> Any:
    return load_pillow().ImageFont.load_default(size)


def load_pillow() -> Any:
    """Pillow, or the line that says how to get it."""
    try:
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        raise UserError("captions need Pillow: pip install 'stride-rl[video]', or --no-captions") from error
    return PIL
