"""The tabs about one run, by its name, as the page asks for them: a problem is a line in the tab, not an error."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from stride.inspector import markdown, overview, videos
from stride.inspector.markup import Markup, card, note, tag
from stride.inspector.runs import RunFacts, Runs, remember
from stride.inspector.videos import RecordedEpisode
from stride.runstore.checkpoint_set import EPOCH
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import list_names
from stride.utils.user_error import UserError

MODES = ("greedy", "sampled", "random")  # those of agents/trained/player.py, which loads torch
WELCOME = note("choose a run above, or in the table of runs")
COMING = note("reading …")
MOST_CHECKPOINTS = 500  # to choose from; any other can be typed
MOST_OVERVIEWS, MOST_EPISODES = 8, 4  # that are kept in memory
INVITATION = card(
    "No episode yet",
    note("Record plays one episode with the weights of a checkpoint. Then you can inspect every step: the picture, "
         "the policy's probability of each action, its observations, saliency, values and rewards."),
    kind="invitation",
)  # fmt: skip


def lined(make: Callable[["Rooms", RunFacts], Markup]) -> Callable[["Rooms", str | None], Markup]:
    """A tab by the name of its run; a line where no run is chosen, or where it cannot be shown."""

    @wraps(make)
    def room(self: "Rooms", name: str | None) -> Markup:
        try:
            return make(self, self.runs.look_into(name)) if name else WELCOME
        except UserError as error:
            return tag("p", str(error), class_="damage")

    return room


class Rooms:
    """Asked by every page of the browser; videos are copied into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = Runs()
        self._overviews: OrderedDict[str, tuple[object, Markup]] = OrderedDict()
        self._episodes: OrderedDict[str, RecordedEpisode] = OrderedDict()

    @lined
    def overview(self, run: RunFacts) -> Markup:
        """Made again only where the run has changed since."""
        old_state, page = self._overviews.get(run.run.id, (None, WELCOME))
        if old_state != run.state:
            page = overview.overview(run)
        remember(self._overviews, run.run.id, (run.state, page), MOST_OVERVIEWS)
        return page

    @lined
    def videos(self, run: RunFacts) -> Markup:
        return videos.videos(run, self.folder, self._episodes.get(run.run.id))

    @lined
    def report(self, run: RunFacts) -> Markup:
        return markdown.report(run)

    @lined
    def recorded(self, run: RunFacts) -> Markup:
        """The episode of this run that was recorded last, or an invitation."""
        episode = self._episodes.get(run.run.id)
        return episode.page if episode and all(path.exists() for path in episode.videos) else INVITATION

    @lined
    def model(self, run: RunFacts) -> Markup:
        from stride.inspector import played  # loads torch, which only this tab and episodes need

        return played.network(run)

    def episode(self, name: str, checkpoint: str, seed: float, mode: str, steps: float) -> Markup:
        """Record an episode, which is kept for the next visit of this tab; UserError where that fails."""
        run = self.runs.look_into(name or "").run
        from stride.inspector import played

        episode = played.recorded(run, str(checkpoint), int(seed), mode, int(steps), self.folder)
        remember(self._episodes, run.id, episode, MOST_EPISODES)
        return episode.page

    def dream(self, key: str, step: object) -> Markup:
        """The imagination from a step of a recording that is kept; UserError where there is none."""
        for episode in [*self._episodes.values()]:
            if episode.key == key and episode.dream is not None:
                return episode.dream(step)
        raise UserError("this recording is no longer stored; record the episode again to see its dreams")

    def checkpoints(self, run: RunDir) -> list[str]:
        """`epoch=NN` of the newest, in order."""
        try:
            names = [name.removesuffix(".ckpt") for name in list_names(run.checkpoints) if name.endswith(".ckpt")]
        except UserError:
            return []
        epochs = [name for name in names if EPOCH.fullmatch(name)]
        return sorted(epochs, key=lambda name: int(name.removeprefix("epoch=")))[-MOST_CHECKPOINTS:]
