"""Write episodes to video files, one for each episode or one for all, with step and return in a caption below."""

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

MIN_WIDTH = 320  # pixels; narrower pictures are enlarged, so that the caption can be read


class Film:
    """Writes videos: `with Film(paths, episodes, fps) as film: film.turn_to(0, picture); film.add(step, return)`.

    `paths` has a path for each episode, or one for all. A file is complete or missing: an exception deletes the
    unfinished file, and earlier ones stay. On a terminal, a line on stderr shows the progress.
    """

    def __init__(self, paths: Sequence[Path], episodes: int, fps: float, captions: bool = True) -> None:
        self.paths = list(paths)
        self.episodes = episodes
        self.frames = 0
        self._fps = fps
        self._captions = captions
        self._video: VideoFile | None = None
        self._picture: Callable[[], np.ndarray]
        self._number = 0
        self._printed = 0.0  # time.monotonic() when the progress line was last printed
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        load_av()  # fail here if it is missing, before the first episode is played
        if self._captions:
            load_pillow()
        return self

    def turn_to(self, number: int, picture: Callable[[], np.ndarray]) -> None:
        """Begin episode `number` (from 0) with its first frame; `picture()` gives the present one, uint8 [H, W, 3]."""
        self._number = number
        self._picture = picture
        path = self.paths[min(number, len(self.paths) - 1)]
        if self._video is not None and self._video.path != path:
            self._close()
        if self._video is None:
            self._video = VideoFile(path, self._fps).__enter__()
        self.add(0, 0.0)

    def add(self, step: int, episode_return: float) -> None:
        """Add the present picture of the environment, with a caption for this step and return so far."""
        assert self._video is not None
        caption = f"episode {self._number + 1}/{self.episodes}   step {step:,}   return {episode_return:,.6g}"
        frame = self._picture()
        self._video.add(captioned(frame, caption) if self._captions else frame)
        self.frames += 1
        if self._terminal and time.monotonic() - self._printed > 0.2:
            self._printed = time.monotonic()
            self._print(f"filming  {caption}")

    def _print(self, line: str) -> None:
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def _close(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._terminal and self._printed:
            self._print("")
        if self._video is not None:
            self._video.__exit__(kind, error, trace)
            self._video = None

    __exit__ = _close

    def __str__(self) -> str:
        files = f"{self.paths[0]}" if len(self.paths) == 1 else f"{len(self.paths)} files in {self.paths[0].parent}"
        return f"{files}, {self.frames:,} frames"


def captioned(frame: np.ndarray, caption: str) -> np.ndarray:
    """Return the frame, uint8 [height, width, 3], with a caption strip below; narrow frames are enlarged first."""
    pillow = load_pillow()
    enlargement = -(-MIN_WIDTH // frame.shape[1])
    picture = frame.repeat(enlargement, 0).repeat(enlargement, 1)
    width = picture.shape[1]
    font_size = max(12, width // 32)
    caption_strip = pillow.Image.new("RGB", (width, 2 * font_size), (17, 20, 24))
    drawing = pillow.ImageDraw.Draw(caption_strip)
    drawing.text((font_size // 2, font_size), caption, fill=(230, 233, 237), font=_font(font_size), anchor="lm")
    return np.concatenate([picture, np.asarray(caption_strip)])


@cache
def _font(size: int) -> Any:
    return load_pillow().ImageFont.load_default(size)


def load_pillow() -> Any:
    """Import Pillow; UserError with the command that installs it, if it is missing."""
    try:
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        raise UserError("captions need Pillow: pip install 'stride-rl[video]', or --no-captions") from error
    return PIL
