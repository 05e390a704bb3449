"""The callback that plays evaluations and tests, and decides when an evaluation is due.

They use environments and random numbers of their own, so training is the same bit for bit with them and without.
Each evaluation starts from the same seeds, so that results differ by the weights and not by luck; each test uses new
seeds. In this file `worlds` are vectorized environments (VecEnv).
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

MAX_ENVS = 32  # environments that an evaluation steps side by side
# eval_freq_epochs: auto gives 40 evaluations in a run, enough to stop soon after the goal is reached (shipped variants
# have 10 to 60, rl-zoo 40 to 100). If episodes are long there are fewer, so that evaluations take at most a fifth as
# many steps as the training, but at least 10: with 10 episodes each they are together as long as the closing test.
MAX_EVALUATIONS, MIN_EVALUATIONS, MAX_STEP_SHARE = 40, 10, 0.2
ASSUMED_LENGTH = 1000  # steps of an episode if the environment has no time limit

log = logging.getLogger("stride")


def is_due(epoch: int, every: int | None, warmup: int) -> bool:
    """Return whether `epoch` is a multiple of `every` and later than `warmup`.

    The first due epoch is 50 for every=50 and warmup=15, and 20 for every=10 and warmup=15. None: never.
    """
    return bool(every) and epoch > warmup and epoch % (every or 1) == 0


def cadence(config: Config, time_limit: int | None) -> int:
    """Return the iterations between evaluations, 0 for none; `time_limit`: steps of an episode at most.

    With `auto` it depends on config and environment only, so that a resumed run has the same. It is a multiple of an
    epoch, unless an epoch is longer: with a replay memory an epoch is 1000 iterations, maybe more than the budget.
    """
    every = config.eval_freq_epochs
    if every != "auto":
        return (every or 0) * config.epoch_iterations
    longest = config.eval_episodes * (time_limit or ASSUMED_LENGTH)
    count = min(MAX_EVALUATIONS, max(MIN_EVALUATIONS, int(MAX_STEP_SHARE * config.max_timesteps / longest)))
    iterations = max(1, config.max_timesteps // config.iteration_steps // count)
    return iterations - iterations % config.epoch_iterations or iterations


def summarize(stage: str, played: EpisodeResults, wanted: int) -> dict[str, float]:
    """Return the metrics of one evaluation; if fewer than `wanted` episodes ended, only their number.

    Short episodes end first, so the mean of those that ended is not the mean of all. `stage`: "val" or "test".
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
    """Return the environments' seed for an evaluation (always index 0) or a test (index 1, 2, ..)."""
    return integers(Key(config.seed, purpose, 0, index), 1, 1 << 32)[0]


class Playing(NamedTuple):
    """An evaluation or a test that is under way."""

    verb: str
    """evaluating or testing"""
    episodes: int
    """how many are wanted"""
    collector: Collector
    start: float
    """time of the beginning, by perf_counter()"""


class Evaluate(Callback):
    """Plays the live weights on its cadence and hands the numbers to the agent's metrics."""

    def __init__(
        self, config: Config, make_worlds: Callable[[int], VecEnv], max_envs: int = MAX_ENVS, earlier: int = 0
    ) -> None:
        """`make_worlds(n)` makes n environments; at most `max_envs` run at once. `earlier`: tests that config.json
        counted when this run ended before."""
        self.config = config
        self.mean = float("nan")  # mean return of the last evaluation, NaN if not all of its episodes ended
        self.best = float("-inf")  # highest mean of an evaluation in this run
        self.tests = 0
        self.seconds_per_episode = 0.0  # of the last evaluation or test
        self._playing: Playing | None = None  # while one is under way
        self._make_worlds = make_worlds
        self._max_envs = max_envs
        self._worlds: dict[int, VecEnv] = {}  # by number of environments; evaluation and test may need different ones
        self._agent: Agent | None = None  # its engine plays, and its `seconds` count the time
        self._iteration = 0  # of the last evaluation
        self._iterations_between: int | None = None  # None until it is first needed
        self._has_warned = False
        self._earlier_tests = earlier
        self._unsaved_tests = 0  # tests played after the checkpoint that this run continues from

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
        """Return whether the weights after the present iteration are to be evaluated."""
        config, iteration = self.config, agent.progress["iterations"]
        warmup = config.eval_warmup_epochs * config.epoch_iterations
        if config.eval_freq_steps:
            # due if a multiple of eval_freq_steps was passed during this iteration
            steps, every = agent.progress["env_steps"], config.eval_freq_steps
            return iteration > warmup and steps // every > (steps - config.iteration_steps) // every
        if self._iterations_between is None:
            self._iterations_between = cadence(config, agent.collector.envs.time_limit)
        return is_due(iteration, self._iterations_between, warmup)

    def evaluated(self, agent: Agent) -> bool:
        """Return whether the present weights were evaluated, so that `mean` belongs to them."""
        return self._iteration == agent.progress["iterations"] > 0

    def test(self, policy: Policy) -> dict[str, float]:
        """Play test_episodes new episodes with the present weights and return the metrics "test/roll/...".

        Each call plays other episodes than all before, also those before a resume. Training is the same with a test and
        without. If not every episode ended within eval_max_steps, the result has only their number and no mean.
        On a non-finite number: NumbersError with nan_guard: stop; with skip no episode counts.
        """
        self.tests += 1
        episodes = self.config.test_episodes
        return summarize("test", self._play(policy, TEST, self.tests, episodes), episodes)

    def _play(self, policy: Policy, purpose: int, index: int, episodes: int) -> EpisodeResults:
        """Play episodes and return those that ended; none if a number was not finite (see `test`).

        `purpose`: EVALUATE or TEST; with `index` it determines the seed.
        """
        config, agent = self.config, self._agent
        start = perf_counter()
        seed = worlds_seed(config, purpose, index)
        count = min(episodes, self._max_envs)
        if count not in self._worlds:
            self._worlds[count] = self._make_worlds(count)
        collector = Collector(self._worlds[count], policy, seed, purpose, greedy=config.eval_deterministic)
        self._playing = Playing("evaluating" if purpose == EVALUATE else "testing", episodes, collector, start)
        try:
            deadline = math.inf if config.eval_timeout_seconds is None else monotonic() + config.eval_timeout_seconds
            if agent is None:  # called without a training
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
                self._log_incomplete(purpose, f"{len(played.returns)} of {episodes} episodes", limit)
        finally:
            self._playing = None
        self.seconds_per_episode = (perf_counter() - start) / episodes
        if agent is not None:
            agent.seconds["evaluate"] += perf_counter() - start
        return played

    def doing(self) -> Doing:
        """Describe the evaluation or test under way and estimate its end; called from another thread."""
        activity = self._playing
        if activity is None:
            return NOTHING
        verb, wanted, collector, start = activity
        if collector.tally is None:  # a compiled engine plays all episodes in one call: its progress is unknown
            return Doing(f"{verb} {wanted} episodes")
        done = wanted - collector.tally.missing
        elapsed = perf_counter() - start
        fraction = collector.tally.fraction
        total = elapsed / fraction if fraction else self.seconds_per_episode * wanted
        return Doing(f"{verb} {done} of {wanted} episodes", max(0.0, total - elapsed))

    def _log_incomplete(self, purpose: int, episodes_text: str, limit: str) -> None:
        """Log that an evaluation (only the first time) or a test does not count; `limit`: the key that cut it."""
        line = f"only {episodes_text} ended within {limit} ({vars(self.config)[limit]:g})"
        if purpose == TEST:
            log.info(f"{line}: the test decides nothing")
        elif not self._has_warned:
            self._has_warned = True
            log.info(f"{line}: this evaluation has no score; raise {limit} (logged once)")

    def close(self) -> None:
        for worlds in self._worlds.values():
            worlds.close()

    @property
    def all_tests(self) -> int:
        """Tests played in this run, including those after the checkpoint that it continued from."""
        return self.tests + self._unsaved_tests

    def state_dict(self) -> dict:
        return {"best": self.best, "tests": self.tests}

    def load_state_dict(self, state: dict) -> None:
        self.best = state["best"]
        self.tests = state["tests"]
        self._unsaved_tests = max(0, self._earlier_tests - self.tests)
