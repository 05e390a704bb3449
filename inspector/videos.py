"""The videos a training left: copied into the inspector's own folder first, because only that folder is served."""

import re
import shutil
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from stride.inspector.markup import Markup, join, note, tag
from stride.inspector.runs import RunFacts
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import exists, list_names, open_file
from stride.runstore.run_names import PLAYED
from stride.utils.typography import score
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError, thumbnail

NAME = re.compile(r"epoch=([0-9]{1,18})\.mp4")
MOST_FILMS, MOST_BYTES, MOST_ROOM = 200, 200 << 20, 1 << 30  # of a run, of one video, of all that are lent


def films_of(run: RunDir) -> list[Path]:
    """What run_play.py filmed, then the newest `epoch=NN.mp4` of the training, each in order.

    Links are left out, as they could name any file of the disk.
    """
    names = list_names(run.videos)
    trained = sorted((int(match[1]), name) for name in names if (match := NAME.fullmatch(name)))
    played = sorted((int(m[2]), int(m[3]), m[1], name) for name in names if (m := PLAYED.fullmatch(name)))
    found = [run.videos / name for name in (*(film[-1] for film in played), *(film[-1] for film in trained))]
    return [path for path in found if _lies_there(path)][-MOST_FILMS:]


def _lies_there(path: Path) -> bool:
    try:
        return exists(path)
    except UserError:
        return False


def lend(run: RunDir, folder: Path) -> list[Path]:
    """Copies in `folder`, which replace those of another run."""
    for old in folder.glob("video-*.mp4"):
        if not old.name.startswith(f"video-{run.id}-"):
            old.unlink(missing_ok=True)
    lent, room = [], MOST_ROOM - sum(film.stat().st_size for film in folder.glob("video-*.mp4"))
    for path in films_of(run)[::-1]:
        copy = folder / f"video-{run.id}-{path.name.replace('=', '')}"
        room -= 0 if copy.exists() else _copy(path, copy, room)
        if copy.exists():
            lent.append(copy)
    return lent[::-1]


def _copy(path: Path, copy: Path, room: int) -> int:
    """-> bytes; nothing of a file that is larger than the room for it, or has become something else meanwhile."""
    try:
        with open_file(path, min(MOST_BYTES, room)) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target)
            return target.tell()
    except (UserError, OSError):
        copy.unlink(missing_ok=True)
        return 0


def videos(each: RunFacts, folder: Path, said: str = "", recorded: Sequence[Path] = ()) -> Markup:
    """The whole room: what the training left, then what was recorded here."""
    films = [_film(path, words_of(path, each.curves.returns)) for path in lend(each.run, folder)]
    films += [_film(path, said) for path in recorded if path.exists()]
    if not films:
        return note(
            "training left no videos (video_freq_epochs=20 would make some); record an episode and there is one"
        )
    return tag("div", *films, class_="films")


@lru_cache(maxsize=256)
def poster(path: Path) -> str:
    """A picture of the video in the page itself: browsers open only a few connections, and each video takes one."""
    try:
        return f"data:image/jpeg;base64,{b64encode(thumbnail(path)).decode()}"
    except (VideoError, UserError):  # damaged, or PyAV is missing: the browser may still play it
        return ""


def words_of(path: Path, returns: dict[int, float]) -> str:
    """What a copy is of; its name has no "="."""
    _, played, name = path.stem.partition("-play-")
    if played:
        return ", ".join(["play", *(re.sub(r"([a-z])([0-9])", r"\1 \2", word) for word in name.split("-"))])
    epoch = int(path.stem.rpartition("epoch")[2])
    return f"epoch {epoch}" + (f", mean return {score(returns[epoch])}" if epoch in returns else "")


def _film(path: Path, words: str) -> Markup:
    address = f"/gradio_api/file={quote(str(path))}"
    player = tag("video", src=address, poster=poster(path), controls="", preload="none", playsinline="")
    return tag("figure", player, join([tag("figcaption", words)]))
