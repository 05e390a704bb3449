"""Makes the tab Videos. A run's videos are first copied into the inspector's own folder, the only one it serves."""

import re
import shutil
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from stride.inspector.markup import Markup, note, tag
from stride.inspector.runs import RunFacts
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import exists, list_names, open_file
from stride.runstore.run_names import PLAYED
from stride.utils.typography import score
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError, thumbnail

EPOCH_VIDEO = re.compile(r"epoch=([0-9]{1,18})\.mp4")
MAX_VIDEOS = 200  # of a run
MAX_VIDEO_BYTES, MAX_COPIED_BYTES = 200 << 20, 1 << 30  # bytes of one video, of all copies


class RecordedEpisode(NamedTuple):
    """An episode that was recorded in the inspector. It is defined here because played.py imports torch."""

    page: Markup  # the player
    videos: tuple[Path, ...]  # the one of the drawn frames first
    description: str
    key: str = ""  # the recording's name in the page
    dream: Callable[[object], Markup] | None = None
    """Makes the element for dreams.js of what is imagined from a step; None without a world model."""


def films_of(run: RunDir) -> list[Path]:
    """Return a run's videos in order: first those of run_play.py, then the newest `epoch=NN.mp4` of the training.

    Links are left out, because they could point to any file of the disk.
    """
    file_names: list[tuple[bool, tuple[Any, ...], str]] = []  # [(is from training, order, name)]
    for file_name in list_names(run.videos):
        with suppress(UserError):  # raised for a link
            if not exists(run.videos / file_name):
                continue
            if match := EPOCH_VIDEO.fullmatch(file_name):
                file_names.append((True, (int(match[1]),), file_name))
            elif match := PLAYED.fullmatch(file_name):
                file_names.append((False, (int(match[2]), int(match[3]), match[1]), file_name))
    return [run.videos / file_name for *_, file_name in sorted(file_names)][-MAX_VIDEOS:]


def lend(run: RunDir, folder: Path) -> list[Path]:
    """Copy a run's videos into `folder`, the newest first, while there is space; return the copies in order.

    Copies of other runs are deleted."""
    for old_copy in folder.glob("video-*.mp4"):
        if not old_copy.name.startswith(f"video-{run.id}-"):
            old_copy.unlink(missing_ok=True)
    copies = []
    space = MAX_COPIED_BYTES - sum(copy.stat().st_size for copy in folder.glob("video-*.mp4"))
    for video_path in reversed(films_of(run)):
        copy = folder / f"video-{run.id}-{video_path.name.replace('=', '')}"
        if not copy.exists():
            space -= _copy(video_path, copy, space)
        if copy.exists():
            copies.append(copy)
    return copies[::-1]


def _copy(video_path: Path, copy: Path, space: int) -> int:
    """Copy a video and return its size in bytes; 0, and no copy, if it is too large or cannot be read."""
    try:
        with open_file(video_path, min(MAX_VIDEO_BYTES, space)) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target)
            return target.tell()
    except (UserError, OSError):
        copy.unlink(missing_ok=True)
        return 0


def videos(run: RunFacts, folder: Path, episode: RecordedEpisode | None = None) -> Markup:
    """Return the complete tab: the videos of the run, then the episode that was recorded in the inspector."""
    figures = [_figure(video_path, caption(video_path, run.curves.returns)) for video_path in lend(run.run, folder)]
    if episode and episode.videos and episode.videos[0].exists():
        figures.append(_figure(episode.videos[0], episode.description))
    if not figures:
        hint = "video_freq_epochs=20 makes some"
        return note(f"no videos from training ({hint}); record an episode to make one")
    return tag("div", *figures, class_="films")


@lru_cache(maxsize=256)
def poster(video_path: Path) -> str:
    """Return a picture of the video as a data URL, "" if there is none.

    With it, the browser does not load every video to show it: each video takes one of its few connections."""
    try:
        return f"data:image/jpeg;base64,{b64encode(thumbnail(video_path)).decode()}"
    except (VideoError, UserError):  # damaged, or PyAV is missing: the browser may still play it
        return ""


def caption(video_path: Path, returns: dict[int, float]) -> str:
    """Return a description of a copied video, from its name, which has no "=": "epoch 20, mean return 412"."""
    _, is_played, name = video_path.stem.partition("-play-")
    if is_played:
        parts = [re.sub(r"([a-z])([0-9])", r"\1 \2", part) for part in name.split("-")]
        return ", ".join(["play", *parts])
    epoch = int(video_path.stem.rpartition("epoch")[2])
    return f"epoch {epoch}" + (f", mean return {score(returns[epoch])}" if epoch in returns else "")


def _figure(video_path: Path, text: str) -> Markup:
    address = f"/gradio_api/file={quote(str(video_path))}"
    player = tag("video", src=address, poster=poster(video_path), controls="", preload="none", playsinline="")
    return tag("figure", player, tag("figcaption", text))
