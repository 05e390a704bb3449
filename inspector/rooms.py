"""Makes the HTML of the tabs about one run; app.py asks for it by the run's name.

A problem with a run's files becomes a line in the tab, not an error.
"""

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

MODES = ("greedy", "sampled", "random")  # a copy from agents/trained/player.py, which imports torch
WELCOME = note("choose a run above, or in the table of runs")
COMING = note("reading …")
MAX_CHECKPOINTS = 500  # newest checkpoints in the menu; any other can be typed
MAX_OVERVIEWS, MAX_EPISODES = 8, 4  # kept in memory
INVITATION = card(
    "No episode yet",
    note("Record plays one episode with the weights of a checkpoint. Then you can inspect every step: the picture, "
         "the policy's probability of each action, its observations, saliency, values and rewards."),
    kind="invitation",
)  # fmt: skip


def error_as_line(make: Callable[["Rooms", RunFacts], Markup]) -> Callable[["Rooms", str | None], Markup]:
    """Decorate a method that makes a tab from RunFacts: the new one takes the run's name, or None.

    It returns a welcome if no run is chosen, and the message of a UserError as a line."""

    @wraps(make)
    def room(self: "Rooms", name: str | None) -> Markup:
        try:
            return make(self, self.runs.look_into(name)) if name else WELCOME
        except UserError as error:
            return tag("p", str(error), class_="damage")

    return room


class Rooms:
    """Makes the tabs for all browser pages and remembers recordings; videos are put into `folder`, which is served."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = Runs()
        self._overviews: OrderedDict[str, tuple[object, Markup]] = OrderedDict()
        self._episodes: OrderedDict[str, RecordedEpisode] = OrderedDict()

    @error_as_line
    def overview(self, run: RunFacts) -> Markup:
        """Return the tab Overview; it is made again only if the run has changed since."""
        old_state, page = self._overviews.get(run.run.id, (None, WELCOME))
        if old_state != run.state:
            page = overview.overview(run)
        remember(self._overviews, run.run.id, (run.state, page), MAX_OVERVIEWS)
        return page

    @error_as_line
    def videos(self, run: RunFacts) -> Markup:
        return videos.videos(run, self.folder, self._episodes.get(run.run.id))

    @error_as_line
    def report(self, run: RunFacts) -> Markup:
        return markdown.report(run)

    @error_as_line
    def recorded(self, run: RunFacts) -> Markup:
        """Return the last recorded episode of this run, or an invitation to record one."""
        episode = self._episodes.get(run.run.id)
        return episode.page if episode and all(path.exists() for path in episode.videos) else INVITATION

    @error_as_line
    def model(self, run: RunFacts) -> Markup:
        from stride.inspector import played  # imports torch, which only this tab and episodes need

        return played.network(run)

    def episode(self, name: str, checkpoint: str, seed: float, mode: str, steps: float) -> Markup:
        """Record an episode and return its player; it is kept for the next visit of the tab. UserError if it fails."""
        run = self.runs.look_into(name or "").run
        from stride.inspector import played

        episode = played.recorded(run, str(checkpoint), int(seed), mode, int(steps), self.folder)
        remember(self._episodes, run.id, episode, MAX_EPISODES)
        return episode.page

    def dream(self, key: str, step: object) -> Markup:
        """Return what a world model imagines from a step of the recording `key`; UserError if that is not kept."""
        for episode in [*self._episodes.values()]:
            if episode.key == key and episode.dream is not None:
                return episode.dream(step)
        raise UserError("this recording is no longer stored; record the episode again to see its dreams")

    def checkpoints(self, run: RunDir) -> list[str]:
        """Return the newest epoch checkpoints in order: ["epoch=10", "epoch=20"]."""
        try:
            names = [name.removesuffix(".ckpt") for name in list_names(run.checkpoints) if name.endswith(".ckpt")]
        except UserError:
            return []
        epochs = [name for name in names if EPOCH.fullmatch(name)]
        return sorted(epochs, key=lambda name: int(name.removeprefix("epoch=")))[-MAX_CHECKPOINTS:]
