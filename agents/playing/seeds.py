"""The runs of a group at play: each plays the same episodes, and is judged by them instead of by its closing test."""

from collections.abc import Callable
from dataclasses import replace

import torch

from agents.trained.episode import play_episodes
from agents.trained.loading import load_run
from report.group import Group, Seed
from utils.statistics import mean_and_deviation
from utils.user_error import UserError


def play_group(
    group: Group,
    checkpoint: str,
    episodes: int,
    seed: int,
    mode: str,
    max_steps: int | None,
    say: Callable[[str], None],
) -> Group:
    """The group with what its runs reached now; a run that cannot play, having no checkpoint, say, has no return."""

    def played(each: Seed) -> Seed:
        silent = replace(each, mean=None, deviation=None, episodes=0)
        if each.run is None:
            return silent
        try:
            loaded = load_run(each.run.id, checkpoint)
        except UserError as error:
            return replace(silent, why=each.why or str(error))
        torch.set_num_threads(loaded.config.torch_threads)
        found = play_episodes(loaded, episodes, seed, mode, max_steps)
        mean, deviation = mean_and_deviation([episode.episode_return for episode in found])
        say(f"seed {each.seed}: {loaded.checkpoint} of {each.run.id}  {mean:.2f} ± {deviation:.2f}")
        return each.played(mean, deviation, episodes, group.goal)

    return replace(group, seeds=tuple(map(played, group.seeds)))
