"""The Learn sockets of the fused CPU engine: one for agents with rollouts, one for agents with a replay memory.

Both fetch what the kernels need, run the updates in compiled code, and hand results and metrics back to the agent.
"""

from time import perf_counter

from stride.agents.base import Passes
from stride.agents.engines.fused_cpu import shard_learn
from stride.agents.engines.fused_cpu.bind import Binding, ReplayBound, RolloutBound
from stride.agents.experience.nouns import Rollout
from stride.agents.sockets import Learner


class RolloutLearn:
    """Makes all updates of a rollout by kernels: in one call, or in several of about 0.1 s where it takes longer."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[RolloutBound]) -> None:
        self._binding = binding

    @property
    def bound(self) -> RolloutBound:
        """The filled frame; it exists after the first call of play or learn."""
        return self._binding.bound

    def learn(self, learner: Learner, work: Rollout) -> None:
        bound = self._binding.get(learner)
        if not bound.begun:  # the collector played this rollout, so nobody has fetched the parameters yet
            bound.attach(learner.optimizer)
            bound.begin()
        bound.begun = False
        if learner.poisoned:  # a collected number is not finite: learn nothing; the agent reports which number
            return
        recipe, agent = bound.recipe, bound.recipe.agent
        bound.prepare(recipe.reward(work), recipe.order(), work.start)
        recipe.before_learning(bound.live)
        start_time, epochs = perf_counter(), agent.config.n_epochs

        def show(done: int) -> None:
            agent.passes = Passes(done * epochs // recipe.updates, epochs, start_time)

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
    """Makes the updates that are due, in the same pieces as the replay memory draws transitions."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[ReplayBound]) -> None:
        self._binding = binding

    @property
    def bound(self) -> ReplayBound:
        """The filled frame; it exists after the first call of play or learn."""
        return self._binding.bound

    def learn(self, learner: Learner, work: int) -> None:
        bound = self._binding.get(learner)
        bound.attach(learner.optimizer)
        recipe, fields, progress = bound.recipe, bound.frame.fields, learner.progress
        recipe.renew_statistics()  # from the collected observations, also where no update is due
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
            # kernels choose the updates to report by their number in the complete run, not in this piece
            made = progress["updates"]
            bound.live.made = made
            bound.learn(count, lambda done, made=made: progress.update(updates=made + done))  # type: ignore[misc]
            progress["updates"] = made + count
            recipe.report(bound.stats, count)
            first += count
        bound.pace.record(fields.threads, (perf_counter() - start_time) / work)
        bound.parameters.give()
