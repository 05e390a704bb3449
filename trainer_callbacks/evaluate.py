"""Episodes in worlds of their own, with randomness of their own: training cannot tell whether it was watched.

Evaluations repeat one set of worlds, so that they compare weights and not luck; a test plays 100 fresh ones.
"""

import logging
import math
from collections.abc import Callable

import lightning as L
from lightning.pytorch.callbacks import Callback

from agents.base import Agent
from agents.experience.collector import Collector, Played, Policy
from agents.experience.finite_guard import NonFiniteError
from config.schema import Config
from envs_fast.vec_env import VecEnv
from utils.counter_rng import EVALUATE, TEST, Key, integers
from utils.statistics import mean_and_deviation
from utils.user_error import NumbersError

TEST_EPISODES = 100
MOST_WORLDS = 32

log = logging.getLogger("stride")


def is_due(epoch: int, every: int | None, warmup: int) -> bool:
    """On the cadence grid and strictly after the warm-up: every 50 after 15 is 50; every 10 after 15 is 20."""
    return bool(every) and epoch > warmup and epoch % (every or 1) == 0


def summarize(stage: str, played: Played) -> dict[str, float]:
    """The metrics of one evaluation; without a finished episode only their number."""
    if not played.returns:
        return {f"{stage}/roll/episodes": 0.0}
    mean, deviation = mean_and_deviation(played.returns)
    return {
        f"{stage}/roll/ep_rew/mean": mean,
        f"{stage}/roll/ep_rew/std": deviation,
        f"{stage}/roll/ep_rew/min": min(played.returns),
        f"{stage}/roll/ep_rew/max": max(played.returns),
        f"{stage}/roll/ep_len/mean": mean_and_deviation(played.lengths)[0],
        f"{stage}/roll/episodes": float(len(played.returns)),
    }


def worlds_seed(config: Config, purpose: int, index: int) -> int:
    """What the worlds of an evaluation begin with: always index 0, or of a test: 1, 2, .."""
    return integers(Key(config.seed, purpose, 0, index), 1, 1 << 32)[0]


class Evaluate(Callback):
    """Plays the live weights on its cadence and hands the numbers to the agent's metrics."""

    def __init__(self, config: Config, make_worlds: Callable[[int], VecEnv], most: int = MOST_WORLDS) -> None:
        """`most`: how many worlds play side by side."""
        self.config, self._make_worlds, self._most = config, make_worlds, most
        self._worlds: dict[int, VecEnv] = {}  # by their number; evaluation and test may want different ones
        self.epoch, self.mean, self.best, self.tests = 0, float("nan"), float("-inf"), 0

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: object, batch: object, index: int
    ) -> None:
        assert isinstance(agent, Agent)
        config = self.config
        if not (agent.epoch_ended and is_due(agent.epoch, config.eval_freq_epochs, config.eval_warmup_epochs)):
            return
        row = summarize("val", self._play(agent.policy, EVALUATE, 0, config.eval_episodes))
        self.epoch, self.mean = agent.epoch, row.get("val/roll/ep_rew/mean", float("nan"))
        if self.mean > self.best and math.isfinite(self.mean):
            self.best = self.mean
        agent.metrics.set(row | ({"val/roll/ep_rew/best": self.best} if self.best > float("-inf") else {}))

    def test(self, policy: Policy) -> dict[str, float]:
        """100 fresh episodes of the weights as they are; every call plays others, counted over resumes, too.

        Worlds and draws of their own: training goes on as if nobody had looked. Without a finished episode (within
        eval_max_steps; or non-finite ones under nan_guard: skip) there is no mean, only their number, 0.
        NumbersError where a number is not finite and nan_guard is stop.
        """
        self.tests += 1
        return summarize("test", self._play(policy, TEST, self.tests, TEST_EPISODES))

    def _play(self, policy: Policy, purpose: int, index: int, episodes: int) -> Played:
        config = self.config
        seed = worlds_seed(config, purpose, index)
        number = min(episodes, self._most)
        if number not in self._worlds:
            self._worlds[number] = self._make_worlds(number)
        collector = Collector(self._worlds[number], policy, seed, purpose, greedy=config.eval_deterministic)
        try:
            played = collector.play(episodes, config.eval_max_steps, config.nan_guard != "off")
        except NonFiniteError as error:
            what = "evaluation" if purpose == EVALUATE else f"test of {episodes} episodes"
            line = f"{config.env_id}: {error} in the {what}; nothing of it counts"
            if config.nan_guard == "stop":
                raise NumbersError(line) from error
            log.warning(f"{line} (nan_guard: skip)")
            return Played([], [])
        if len(played.returns) < episodes:
            log.info(f"only {len(played.returns)} of {episodes} episodes ended within eval_max_steps")
        return played

    def close(self) -> None:
        for worlds in self._worlds.values():
            worlds.close()

    def state_dict(self) -> dict:
        return {"best": self.best, "tests": self.tests}

    def load_state_dict(self, state: dict) -> None:
        self.best, self.tests = state["best"], state["tests"]
