"""Writes frames to an mp4 file that plays everywhere: H.264, yuv420p, the index at its beginning.

The file appears under its name only when it is complete. PyAV, with its own ffmpeg, is needed only to write or read
videos: pip install 'stride-rl[video]'.
"""

import io
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from stride.utils.durable_file import temporary
from stride.utils.user_error import UserError

QUALITY = {"crf": "23", "preset": "veryfast"}  # options of the encoder x264


class VideoError(RuntimeError):
    """A video could not be written."""


class VideoFile:
    """`with VideoFile(path, fps) as video: video.add(frame)`; an exception inside the block leaves no file.

    `all_intra` makes every frame a key frame, for players that jump to any frame.
    """

    def __init__(self, path: Path, fps: float, all_intra: bool = False) -> None:
        self.path, self.count = path, 0
        self._rate = Fraction(fps).limit_denominator(1000)
        self._options = {**QUALITY, **({"g": "1", "bf": "0"} if all_intra else {})}
        self._temporary = temporary(path)
        self._size: tuple[int, ...] = ()
        self._stream: Any = None

    def __enter__(self) -> Self:
        self._av = load_av()
        with self._errors():
            self._container = self._av.open(str(self._temporary), "w", format="mp4", options={"movflags": "+faststart"})
        return self

    def add(self, frame: np.ndarray) -> None:
        """Append a frame, uint8 [height, width, 3]; VideoError if it differs in size from the first one.

        An odd height or width loses one pixel, because yuv420p needs even ones.
        """
        if self._stream is None:
            self._size = frame.shape
            self._begin(*frame.shape[:2])
        if frame.shape != self._size or frame.dtype != np.uint8:
            raise VideoError(f"a frame is {frame.dtype}{list(frame.shape)}, the first was {list(self._size)}")
        even = np.ascontiguousarray(frame[: self._stream.height, : self._stream.width])
        with self._errors():
            self._container.mux(self._stream.encode(self._av.VideoFrame.from_ndarray(even, format="rgb24")))
        self.count += 1

    def _begin(self, height: int, width: int) -> None:
        with self._errors():
            self._stream = self._container.add_stream("libx264", rate=self._rate, options=self._options)
            self._stream.height, self._stream.width = height - height % 2, width - width % 2
            self._stream.pix_fmt = "yuv420p"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._errors():
                if error is None and self._stream is not None:
                    self._container.mux(self._stream.encode(None))
                self._container.close()
            if error is None:
                if not self.count:
                    raise VideoError(f"{self.path} would be empty: no frame was added")
                os.replace(self._temporary, self.path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def _errors(self) -> AbstractContextManager[None]:
        return _errors(self.path, self._av.FFmpegError)


def thumbnail(path: Path, width: int = 320) -> bytes:
    """Return the frame in the middle of a video as a JPEG that is `width` pixels wide."""
    av = load_av()
    with _errors(path, av.FFmpegError, "read"), av.open(str(path)) as container:
        stream = container.streams.video[0]
        container.seek((stream.duration or 0) // 2, stream=stream)
        frame = next(container.decode(stream))
        codec = av.CodecContext.create("mjpeg", "w")
        codec.width, codec.height = width, max(2, round(frame.height * width / frame.width / 2) * 2)
        codec.pix_fmt, codec.time_base = "yuvj420p", Fraction(1, 1)
        picture = frame.reformat(codec.width, codec.height, codec.pix_fmt)
        picture.pts = None
        return b"".join(bytes(packet) for packet in [*codec.encode(picture), *codec.encode(None)])


class Gif(NamedTuple):
    """A video as a GIF file."""

    data: bytes
    height: int  # pixels
    width: int


def gif(path: Path, width: int = 160, most: int = 100) -> Gif:
    """Make a GIF of a video with at most `most` frames, evenly spread, that takes as long as the video."""
    from PIL import Image

    av = load_av()
    with _errors(path, av.FFmpegError, "read"), av.open(str(path)) as container:
        stream = container.streams.video[0]
        every = max(1, -(-stream.frames // most))
        height = max(1, round(stream.height * width / stream.width))
        shown = islice(container.decode(stream), 0, None, every)
        pixels = [frame.to_ndarray(format="rgb24", width=width, height=height) for frame in shown]
        images = [Image.fromarray(picture) for picture in pixels]
        milliseconds = max(20, round(1000 * every / float(stream.average_rate)))  # browsers slow down faster ones
        output = io.BytesIO()
        images[0].save(output, "GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0)
    return Gif(output.getvalue(), height, width)


@contextmanager
def _errors(path: Path, raised: type[BaseException], verb: str = "written") -> Iterator[None]:
    """Turn errors of ffmpeg inside the block into a VideoError that names the file."""
    try:
        yield
    except (raised, OSError, StopIteration, IndexError) as error:
        raise VideoError(f"{path} cannot be {verb}: {' '.join(str(error).split())}") from error


def load_av() -> Any:
    """Import PyAV; UserError, a line that says how to install it, if it is missing."""
    try:
        import av
    except ImportError as error:
        raise UserError("videos need PyAV: pip install 'stride-rl[video]'") from error
    return av
