"""Episodes in worlds of their own, with randomness of their own: training is the same with them and without.

Evaluations repeat one set of worlds, so that they compare weights and not luck; a test plays fresh ones.
"""

import logging
import math
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import NamedTuple

import lightning as L
from lightning.pytorch.callbacks import Callback

from stride.agents.base import Agent
from stride.agents.experience.collector import Collector, EpisodeResults, Policy
from stride.agents.experience.finite_guard import NonFiniteError
from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.trainer_callbacks.sink import NOTHING, Doing
from stride.utils.counter_rng import EVALUATE, TEST, Key, integers
from stride.utils.statistics import mean_and_deviation
from stride.utils.user_error import NumbersError

MOST_WORLDS = 32
# eval_freq_epochs: auto, with a goal and without one, as `best` needs evaluations, too: 40 show where a run stands and
# stop it close to where it could have stopped (shipped variants have 10 to 60, rl-zoo 40 to 100). Where episodes are
# long, so few that they take no more than a fifth as many steps as the training; but 10, which with 10 episodes each
# are together as long as the closing test.
MOST_EVALUATIONS, LEAST_EVALUATIONS, FRACTION = 40, 10, 0.2
LONGEST = 1000  # steps of an episode, where no limit is known

log = logging.getLogger("stride")


def is_due(epoch: int, every: int | None, warmup: int) -> bool:
    """On the cadence grid and strictly after the warm-up: every 50 after 15 is 50; every 10 after 15 is 20."""
    return bool(every) and epoch > warmup and epoch % (every or 1) == 0


def cadence(config: Config, time_limit: int | None) -> int:
    """Iterations between evaluations, 0 = none; `time_limit`: of an episode.

    With `auto` it depends on config and environment alone, so that a resumed run has the same; whole epochs, unless an
    epoch is longer (1000 iterations where there is a replay memory may be more than the budget).
    """
    every = config.eval_freq_epochs
    if every != "auto":
        return (every or 0) * config.epoch_iterations
    longest = config.eval_episodes * (time_limit or LONGEST)
    count = min(MOST_EVALUATIONS, max(LEAST_EVALUATIONS, int(FRACTION * config.max_timesteps / longest)))
    iterations = max(1, config.max_timesteps // config.iteration_steps // count)
    return iterations - iterations % config.epoch_iterations or iterations


def summarize(stage: str, played: EpisodeResults, wanted: int) -> dict[str, float]:
    """The metrics of one evaluation; where not all of its `wanted` episodes ended, only how many did.

    Short episodes end first: the mean of those that ended is not the mean of all.
    """
    episodes = {f"{stage}/roll/episodes": float(len(played.returns))}
    if len(played.returns) < wanted:
        return episodes
    mean, deviation = mean_and_deviation(played.returns)
    return {
        f"{stage}/roll/ep_rew/mean": mean,
        f"{stage}/roll/ep_rew/std": deviation,
        f"{stage}/roll/ep_rew/min": min(played.returns),
        f"{stage}/roll/ep_rew/max": max(played.returns),
        f"{stage}/roll/ep_len/mean": mean_and_deviation(played.lengths)[0],
        **episodes,
    }


def worlds_seed(config: Config, purpose: int, index: int) -> int:
    """The seed of the worlds of an evaluation (always index 0), or of a test (index 1, 2, ..)."""
    return integers(Key(config.seed, purpose, 0, index), 1, 1 << 32)[0]


class Playing(NamedTuple):
    """An evaluation or a test that is under way."""

    verb: str
    episodes: int
    """that are wanted"""
    collector: Collector
    start: float
    """perf_counter()"""


class Evaluate(Callback):
    """Plays the live weights on its cadence and hands the numbers to the agent's metrics."""

    def __init__(
        self, config: Config, make_worlds: Callable[[int], VecEnv], most: int = MOST_WORLDS, earlier: int = 0
    ) -> None:
        """`most`: worlds that play side by side. `earlier`: tests of this run, as counted when it last ended."""
        self.config = config
        self.mean = float("nan")
        self.best = float("-inf")
        self.tests = 0
        self.seconds_per_episode = 0.0  # of the last evaluation or test
        self._playing: Playing | None = None  # while one is under way
        self._make_worlds = make_worlds
        self._most = most
        self._worlds: dict[int, VecEnv] = {}  # by their count; evaluation and test may want different ones
        self._agent: Agent | None = None  # its engine plays, and it counts the seconds
        self._iteration = 0  # of the last evaluation
        self._every: int | None = None
        self._warned = False
        self._earlier = earlier
        self._unsaved = 0  # tests that no checkpoint counts

    def setup(self, trainer: L.Trainer, agent: Agent, stage: str) -> None:  # type: ignore[override]
        self._agent = agent

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        config, iteration = self.config, agent.progress["iterations"]
        if not self.is_due_now(agent):
            return
        row = summarize("val", self._play(agent.policy, EVALUATE, 0, config.eval_episodes), config.eval_episodes)
        self._iteration = iteration
        self.mean = row.get("val/roll/ep_rew/mean", float("nan"))
        if self.mean > self.best and math.isfinite(self.mean):
            self.best = self.mean
        if self.best > float("-inf"):
            row["val/roll/ep_rew/best"] = self.best
        agent.metrics.set(row)

    def is_due_now(self, agent: Agent) -> bool:
        """Whether the iteration just done is to be evaluated."""
        config, iteration = self.config, agent.progress["iterations"]
        warmup = config.eval_warmup_epochs * config.epoch_iterations
        if config.eval_freq_steps:
            steps, every = agent.progress["env_steps"], config.eval_freq_steps
            return iteration > warmup and steps // every > (steps - config.iteration_steps) // every
        if self._every is None:
            self._every = cadence(config, agent.collector.envs.time_limit)
        return is_due(iteration, self._every, warmup)

    def evaluated(self, agent: Agent) -> bool:
        """Whether the present weights were evaluated: `mean` is theirs, NaN where an episode did not end."""
        return self._iteration == agent.progress["iterations"] > 0

    def test(self, policy: Policy) -> dict[str, float]:
        """Fresh episodes of the weights as they are; every call plays others, counted over resumes, too.

        Worlds and draws are separate: training is the same with a test and without. Where not every episode ended
        (within eval_max_steps; none counts with non-finite numbers under nan_guard: skip) there is no mean, only their
        number. NumbersError where a number is not finite and nan_guard is stop.
        """
        self.tests += 1
        episodes = self.config.test_episodes
        return summarize("test", self._play(policy, TEST, self.tests, episodes), episodes)

    def _play(self, policy: Policy, purpose: int, index: int, episodes: int) -> EpisodeResults:
        """The episodes that ended; none where a number was not finite."""
        config, agent = self.config, self._agent
        start = perf_counter()
        seed = worlds_seed(config, purpose, index)
        count = min(episodes, self._most)
        if count not in self._worlds:
            self._worlds[count] = self._make_worlds(count)
        collector = Collector(self._worlds[count], policy, seed, purpose, greedy=config.eval_deterministic)
        self._playing = Playing("evaluating" if purpose == EVALUATE else "testing", episodes, collector, start)
        try:
            deadline = math.inf if config.eval_timeout_seconds is None else monotonic() + config.eval_timeout_seconds
            if agent is None:  # nobody trains
                played = collector.play(episodes, config.eval_max_steps, config.nan_guard != "off", deadline)
            else:
                played = agent.engine.episodes.play(agent, collector, episodes, config.eval_max_steps, deadline)
        except NonFiniteError as error:
            name = "evaluation" if purpose == EVALUATE else f"test of {episodes} episodes"
            line = f"{config.env_id}: {error} in the {name}, which does not count"
            if config.nan_guard == "stop":
                raise NumbersError(line) from error
            log.warning(f"{line} (nan_guard: skip)")
            played = EpisodeResults([], [])
        else:
            if len(played.returns) < episodes:
                limit = "eval_max_steps" if monotonic() < deadline else "eval_timeout_seconds"
                self._report_part(purpose, f"{len(played.returns)} of {episodes} episodes", limit)
        finally:
            self._playing = None
        self.seconds_per_episode = (perf_counter() - start) / episodes
        if agent is not None:
            agent.seconds["evaluate"] += perf_counter() - start
        return played

    def doing(self) -> Doing:
        """The evaluation or test that is under way; asked from another thread."""
        playing = self._playing
        if playing is None:
            return NOTHING
        verb, wanted, collector, start = playing
        if collector.tally is None:  # compiled: nothing is seen until it is over
            return Doing(f"{verb} {wanted} episodes")
        done = wanted - collector.tally.missing
        elapsed = perf_counter() - start
        fraction = collector.tally.fraction
        total = elapsed / fraction if fraction else self.seconds_per_episode * wanted
        return Doing(f"{verb} {done} of {wanted} episodes", max(0.0, total - elapsed))

    def _report_part(self, purpose: int, part: str, limit: str) -> None:
        """Log that it does not count; of evaluations once, however many there are. `limit`: the key that ended it."""
        line = f"only {part} ended within {limit} ({vars(self.config)[limit]:g})"
        if purpose == TEST:
            log.info(f"{line}: the test decides nothing")
        elif not self._warned:
            self._warned = True
            log.info(f"{line}: this evaluation has no score; raise {limit} (logged once)")

    def close(self) -> None:
        for worlds in self._worlds.values():
            worlds.close()

    @property
    def all_tests(self) -> int:
        """How many were played in this run, with those at ends that it went on from: no checkpoint counts these."""
        return self.tests + self._unsaved

    def state_dict(self) -> dict:
        return {"best": self.best, "tests": self.tests}

    def load_state_dict(self, state: dict) -> None:
        self.best = state["best"]
        self.tests = state["tests"]
        self._unsaved = max(0, self._earlier - self.tests)
