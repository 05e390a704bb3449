"""The videos a training left: copied into the inspector's own folder first, because only that folder is served."""

import os
import re
import shutil
from base64 import b64encode
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from inspector.markup import Markup, join, note, tag
from inspector.runs import RunFacts
from trainer_callbacks.history import VAL
from trainer_callbacks.typography import score
from utils.run_dir import RunDir
from utils.user_error import UserError
from utils.video_file import VideoError, thumbnail

NAME = re.compile(r"epoch=(\d+)\.mp4")
MOST_BYTES = 200 << 20  # of one video
EPOCH = "train/clock/epoch"


def epoch_videos(run: RunDir) -> list[Path]:
    """`epoch=NN.mp4` in order; links are left out, as they could name any file of the disk."""
    if run.videos.is_symlink() or not run.videos.is_dir():
        return []
    found = [path for path in run.videos.iterdir() if NAME.fullmatch(path.name)]
    found = [path for path in found if not path.is_symlink() and path.is_file()]
    return sorted(found, key=_epoch)


def _epoch(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def lend(run: RunDir, folder: Path) -> list[Path]:
    """Copies in `folder`, which replace those of another run."""
    for old in folder.glob("video-*.mp4"):
        if not old.name.startswith(f"video-{run.id}-"):
            old.unlink(missing_ok=True)
    lent = []
    for path in epoch_videos(run):
        copy = folder / f"video-{run.id}-{path.name.replace('=', '')}"
        if not copy.exists() and path.stat().st_size <= MOST_BYTES:
            _copy(path, copy)
        if copy.exists():
            lent.append(copy)
    return lent


def _copy(path: Path, copy: Path) -> None:
    """The file itself: should it have become a link meanwhile, opening it fails."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target)


def videos(each: RunFacts, folder: Path) -> Markup:
    """The whole room."""
    lent = lend(each.run, folder)
    if not lent:
        return note("this run left no videos; train with video_freq_epochs=20 and there will be some")
    returns = {int(row[EPOCH]): row[VAL] for row in each.rows if EPOCH in row and VAL in row}
    return tag("div", *(_film(path, returns) for path in lent), class_="films")


@lru_cache(maxsize=256)
def poster(path: Path) -> str:
    """A picture of the video in the page itself: browsers open only a few connections, and each video takes one."""
    try:
        return f"data:image/jpeg;base64,{b64encode(thumbnail(path)).decode()}"
    except (VideoError, UserError):  # damaged, or PyAV is missing: the browser may still play it
        return ""


def _film(path: Path, returns: dict[int, float]) -> Markup:
    epoch = int(path.stem.rpartition("epoch")[2])
    words = f"epoch {epoch}" + (f", mean return {score(returns[epoch])}" if epoch in returns else "")
    address = f"/gradio_api/file={quote(str(path))}"
    player = tag("video", src=address, poster=poster(path), controls="", preload="none", playsinline="")
    return tag("figure", player, join([tag("figcaption", words)]))
