"""Learning in compiled kernels: the socket of agents that learn from rollouts, and of those with a replay memory."""

from time import perf_counter

from stride.agents.base import Passes
from stride.agents.engines.fused_cpu import shard_learn
from stride.agents.engines.fused_cpu.bind import Binding, ReplayBound, RolloutBound
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
        bound = self._binding.get(learner)
        if not bound.begun:
            bound.attach(learner.optimizer)
            bound.begin()
        bound.begun = False
        if learner.poisoned:  # nothing is learnt from such rows, and the agent will say which
            return
        recipe, agent = bound.recipe, bound.recipe.agent
        bound.prepare(recipe.reward(work), recipe.order(), work.start)
        recipe.before_learning(bound.live)
        begun, epochs = perf_counter(), agent.config.n_epochs

        def show(done: int) -> None:
            agent.passes = Passes(done * epochs // recipe.updates, epochs, begun)

        if agent.shard.count > 1:
            shard_learn.learn(bound, agent.shard, recipe.updates)
        else:
            bound.learn(recipe.updates, show)
        agent.passes = None
        bound.end()
        learner.progress["updates"] += recipe.updates
        recipe.report(bound.stats, recipe.updates)
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
        bound = self._binding.get(learner)
        bound.attach(learner.optimizer)
        recipe, fields, progress = bound.recipe, bound.frame.fields, learner.progress
        recipe.renew_statistics()  # of what was collected, also where no update is due
        if not work:
            return
        bound.prepare()
        recipe.before_learning(bound.live)
        noise = recipe.noise(work)
        start_time = perf_counter()
        fields.threads = bound.pace.choose()
        first = 0
        for count in bound.draws(work, learner.live.gamma):
            if noise is not None:
                bound.frame.fill(noise=noise[first:])
            bound.clear_stats()
            # which updates are reported is counted over the complete run, not anew in each piece
            made = progress["updates"]
            bound.live.made = made
            bound.learn(count, lambda done, made=made: progress.update(updates=made + done))  # type: ignore[misc]
            progress["updates"] = made + count
            recipe.report(bound.stats, count)
            first += count
        bound.pace.took(fields.threads, (perf_counter() - start_time) / work)
        bound.parameters.give()
