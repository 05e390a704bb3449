"""Learning in compiled kernels: the socket of agents that learn from rollouts, and of those with a replay memory."""

from time import perf_counter

from stride.agents.engines.fused_cpu.bind import Binding, ReplayBound, RolloutBound
from stride.agents.engines.fused_cpu.frame import At
from stride.agents.engines.fused_cpu.kernels import minibatches, replay
from stride.agents.engines.plan.numbers import Live
from stride.agents.experience.nouns import Rollout
from stride.agents.sockets import Learner


class RolloutLearn:
    """All epochs of a rollout in one call, or in a few of a tenth of a second."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[RolloutBound]) -> None:
        self._binding = binding

    @property
    def bound(self) -> RolloutBound:
        """After the first call."""
        return self._binding.bound

    def learn(self, learner: Learner, work: Rollout) -> None:
        bound = self._binding.of(learner)
        if not bound.begun:
            bound.attach(learner.optimizer)
            bound.begin()
        bound.begun = False
        if learner.poisoned:  # nothing is learnt from such rows, and the agent will say which
            return
        recipe = bound.recipe
        bound.prepare(recipe.reward(work), recipe.order())
        recipe.before_learning(bound.live)
        bound.learn(minibatches.learn, recipe.updates)
        bound.give()
        learner.progress["updates"] += recipe.updates
        recipe.tell(bound.stats, recipe.updates)
        recipe.after_learning(work)


class ReplayLearn:
    """All updates that are due, in the pieces in which the memory draws."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[ReplayBound]) -> None:
        self._binding = binding

    @property
    def bound(self) -> ReplayBound:
        """After the first call."""
        return self._binding.bound

    def learn(self, learner: Learner, work: int) -> None:
        bound = self._binding.of(learner)
        bound.attach(learner.optimizer)
        recipe, table, progress = bound.recipe, bound.frame.table, learner.progress
        recipe.renew_statistics()  # of what was collected, also where no update is due
        if not work:
            return
        bound.prepare()
        recipe.before_learning(bound.live)
        noise = recipe.noise(work)
        began, table[At.THREADS] = perf_counter(), bound.pace.choose()
        first = 0
        for count in bound.draws(work, learner.live.gamma):
            if noise is not None:
                bound.frame.point(At.NOISE, noise[first:])
            bound.stats[:] = 0.0
            # which updates are told of is counted over the whole run, not anew in each piece
            bound.live[Live.MADE] = progress["updates"]
            bound.learn(replay.learn, count)
            progress["updates"] += count
            recipe.tell(bound.stats, count)
            first += count
        bound.pace.took(int(table[At.THREADS]), (perf_counter() - began) / work)
        bound.note_steps()
