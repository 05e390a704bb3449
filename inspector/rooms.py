"""The rooms of one run by its name, as the page asks for them: what is wrong is a line in the room, not an error."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from stride.inspector import overview, reported, videos
from stride.inspector.markup import Markup, card, note, tag
from stride.inspector.recorded import Recorded
from stride.inspector.runs import Runs
from stride.runstore.checkpoint_set import EPOCH
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import list_names
from stride.utils.user_error import UserError

MODES = ("greedy", "sampled", "random")  # those of agents/trained/player.py, which loads torch
WELCOME = note("choose a run above, or in the table of runs")
COMING = note("reading …")
MOST_CHECKPOINTS = 500  # to choose from; any other can be typed
KEPT, KEPT_EPISODES = 8, 4  # overviews, and episodes of as many runs
INVITATION = card(
    "No episode yet",
    note("Record plays one episode with the weights of a checkpoint. Then every step can be looked at: the picture, "
         "what the policy thought of each action, what it saw and what its answer hangs on, values and rewards."),
    kind="invitation",
)  # fmt: skip


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
        self._episodes: OrderedDict[str, Recorded] = OrderedDict()

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
        each = self.runs.look_into(name)
        kept = self._episodes.get(each.run.id)
        return videos.videos(each, self.folder, kept.said if kept else "", kept.films[:1] if kept else ())

    @lined
    def report(self, name: str) -> Markup:
        return reported.report(self.runs.look_into(name))

    @lined
    def recorded(self, name: str) -> Markup:
        """The episode that was recorded last of this run, or what there would be to see."""
        run_id = self.runs.find(name).id
        kept = self._episodes.get(run_id)
        return kept.page if kept and all(path.exists() for path in kept.films) else INVITATION

    @lined
    def model(self, name: str) -> Markup:
        each = self.runs.look_into(name)
        from stride.inspector import played  # torch is loaded for those who look at a network

        return played.network(each)

    def episode(self, name: str, checkpoint: str, seed: float, mode: str, steps: float) -> Markup:
        """A recording, kept for when this room is entered again; UserError where there is none."""
        run = self.runs.look_into(name or "").run
        from stride.inspector import played

        made = played.recorded(run, str(checkpoint), int(seed), mode, int(steps), self.folder)
        self._episodes[run.id] = made
        self._episodes.move_to_end(run.id)
        if len(self._episodes) > KEPT_EPISODES:
            self._episodes.popitem(last=False)
        return made.page

    def dream(self, key: str, step: object) -> Markup:
        """What is imagined from a step of a recording that is kept; UserError where there is none."""
        for kept in [*self._episodes.values()]:
            if kept.key == key and kept.dream is not None:
                return kept.dream(step)
        raise UserError("this recording is not kept any more: record the episode again to see its dreams")

    def checkpoints(self, run: RunDir) -> list[str]:
        """`epoch=NN` of the newest, in order."""
        try:
            stems = [name.removesuffix(".ckpt") for name in list_names(run.checkpoints) if name.endswith(".ckpt")]
        except UserError:
            return []
        stems = [stem for stem in stems if EPOCH.fullmatch(stem)]
        return sorted(stems, key=lambda stem: int(stem.removeprefix("epoch=")))[-MOST_CHECKPOINTS:]
