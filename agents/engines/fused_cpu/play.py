"""Collecting by compiled kernels, or by the collector where the kernels know the updates only."""

from stride.agents.engines.fused_cpu.bind import B, Binding
from stride.agents.engines.fused_cpu.frame import At
from stride.agents.engines.fused_cpu.worlds import CompiledWorlds
from stride.agents.sockets import Learner


class FusedPlay:
    """Compiled worlds and the policy in one kernel, all steps in one call."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[B]) -> None:
        self._binding = binding
        self._worlds: CompiledWorlds | None = None

    def collect(self, learner: Learner, steps: int) -> None:
        bound = self._binding.of(learner)
        bound.attach(learner.optimizer)
        if not bound.recipe.before_play(bound.live):
            learner.collector.collect(steps, learner.memory)
            return
        bound.begin()
        if self._worlds is None or self._worlds.bound is not bound:
            self._worlds = CompiledWorlds(learner, bound)
            bound.frame.table[At.HAS_LOG_PROB] = True
        self._worlds.play(steps)


class AttachedPlay:
    """The collector, on parameters that lie where the kernels learn: how torch rounds depends on how they lie."""

    name = "eager"

    def __init__(self, binding: Binding[B]) -> None:
        self._binding = binding

    def collect(self, learner: Learner, steps: int) -> None:
        self._binding.of(learner).attach(learner.optimizer)
        learner.collector.collect(steps, learner.memory)
