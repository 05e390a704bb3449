"""The rooms of one run by its name, as the page asks for them: what is wrong is a line in the room, not an error."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from inspector import overview, videos
from inspector.markup import Markup, note, tag
from inspector.runs import Runs
from utils.checkpoint_set import EPOCH
from utils.run_dir import RunDir
from utils.run_files import list_names
from utils.user_error import UserError

MODES = ("greedy", "sampled", "random")  # those of agents.playing.player, which loads torch
WELCOME = note("choose a run above, or in the table of runs")
MOST_CHECKPOINTS = 500  # to choose from; any other can be typed
KEPT = 8  # overviews


def lined(make: Callable[["Rooms", str], Markup]) -> Callable[["Rooms", str | None], Markup]:
    """A room that says what is wrong, and one that says so where no run is chosen."""

    @wraps(make)
    def room(self: "Rooms", name: str | None) -> Markup:
        try:
            return make(self, name) if name else WELCOME
        except UserError as error:
            return tag("p", str(error), class_="damage")

    return room


class Rooms:
    """Asked by every page of the browser; videos are lent in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, Runs()
        self._overviews: OrderedDict[str, tuple[object, Markup]] = OrderedDict()

    @lined
    def overview(self, name: str) -> Markup:
        """Made again only where the run has changed since."""
        each = self.runs.look_into(name)
        state, page = self._overviews.get(each.run.id, (None, WELCOME))
        if state != each.state:
            state, page = each.state, overview.overview(each)
        self._overviews[each.run.id] = state, page
        self._overviews.move_to_end(each.run.id)
        if len(self._overviews) > KEPT:
            self._overviews.popitem(last=False)
        return page

    @lined
    def videos(self, name: str) -> Markup:
        return videos.videos(self.runs.look_into(name), self.folder)

    @lined
    def model(self, name: str) -> Markup:
        each = self.runs.look_into(name)
        from inspector import played  # torch is loaded for those who look at a network

        return played.network(each)

    def episode(self, name: str, checkpoint: str, seed: float, mode: str, steps: float) -> Markup:
        """A recording; UserError where there is none."""
        run = self.runs.look_into(name or "").run
        from inspector import played

        return played.recorded(run, str(checkpoint), int(seed), mode, int(steps), self.folder)

    def checkpoints(self, run: RunDir) -> list[str]:
        """`epoch=NN` of the newest, in order."""
        try:
            stems = [name.removesuffix(".ckpt") for name in list_names(run.checkpoints) if name.endswith(".ckpt")]
        except UserError:
            return []
        stems = [stem for stem in stems if EPOCH.fullmatch(stem)]
        return sorted(stems, key=lambda stem: int(stem.removeprefix("epoch=")))[-MOST_CHECKPOINTS:]
