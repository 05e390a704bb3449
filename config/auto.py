"""`ENV:auto`: learner and width for a task without settings of its own, by the measured cost of a step and an update.

A choice is a few overrides on top of the general settings of an algorithm: `ENV:auto algo_id=sac recipe=flash ..`
needs no measurement. config.json holds what became of them, so nothing that reads a run knows of this module.
"""

from collections.abc import Sequence
from typing import NamedTuple

from stride.config.diff import override_text
from stride.config.general import CHOSEN_PREFIX, GENERAL, Costs, Look, Task, split, world_config
from stride.config.raw import EnvironmentFile

# all in updates of SAC with 256 x 2 units and a batch of 256
MAX_CHEAP_STEP = 1 / 50  # below it, 50 new steps are cheaper than one update on old ones
FLASH_UPDATES = {128: 9.2, 64: 2.4}  # arithmetic of an update by `recipe: flash`, with its batch of 512, by its width
FLASH_GPU_WIDTH = 256  # its width on a GPU, where launches cost more than arithmetic up to there


class Choice(NamedTuple):
    """An algorithm with the keys that it gets on top of its general settings, and why it was chosen."""

    algo_id: str
    reason: str
    keys: tuple[str, ...] = ()  # overrides

    @property
    def name(self) -> str:
        """As it is called in one line."""
        return " ".join((self.algo_id, *self.keys))


def choice_by(costs: Costs, on_gpu: bool = False) -> Choice:
    """The learner for numbers with bounds, by the cost of an env step in updates of SAC.

    A learner is as good as what it reaches in the time that is there, and each spends that otherwise. PPO learns from
    each step for 1/500 of SAC's arithmetic, but needs some ten times as many steps: where steps are next to free, it
    wins by the clock. TQC reaches more than SAC from the same steps, for a tenth more arithmetic. Flash needs the
    fewest steps, but its update costs several times SAC's, more at a greater width: it pays where the world is even
    slower, so that no more than half of the time goes into updates. (Published curves and arithmetic, not timed.)
    """
    step = costs.step / costs.update
    if step < MAX_CHEAP_STEP:
        return Choice(
            "ppo", f"a step costs less than 1/{1 / MAX_CHEAP_STEP:.0f} of an update, so more steps buy the most"
        )
    for width, updates in FLASH_UPDATES.items():
        if step >= updates:
            width = FLASH_GPU_WIDTH if on_gpu else width
            reason = f"a step costs as much as {updates:g} updates of SAC or more, so the fewest steps win"
            return Choice("sac", reason, ("recipe=flash", f"hidden_dims=[{width}]"))
    least = min(FLASH_UPDATES.values())
    reason = (
        f"a step costs 1/{1 / MAX_CHEAP_STEP:.0f} to {least:g} updates, so each is learnt from about once, and cheaply"
    )
    return Choice("tqc", reason)


class Decision(NamedTuple):
    """What `ENV:auto` becomes."""

    overrides: tuple[str, ...]
    line: str  # for people: what was chosen, and why


def decide(text: str, overrides: Sequence[str], look: Look) -> Decision:
    """The overrides that `ENV:auto` stands for; `overrides`: what was typed, of which every key wins."""
    config = world_config(text, overrides, more=("device",))
    task = look(config)
    choice, measured = _choice(task, config.on_cuda)
    file = EnvironmentFile.read(GENERAL / f"{choice.algo_id}.yaml")
    description = f"{file.raw(task.kind).values['description']}{CHOSEN_PREFIX}{choice.name}{measured}"
    keys = (f"algo_id={choice.algo_id}", *choice.keys, override_text("description", description))
    typed = {override.lstrip("-").partition("=")[0] for override in overrides}
    line = f"auto chose {choice.name} for {split(text)[0]}{measured}; {choice.reason}"
    return Decision(tuple(key for key in keys if key.partition("=")[0] not in typed), line)


def _choice(task: Task, on_gpu: bool) -> tuple[Choice, str]:
    """The choice, and what was measured for it in words; "" where PPO is the only one that is at home."""
    if task.actions != "bounded" or task.image is not None or task.measure is None:
        return Choice("ppo", f"{task.spaces_text}, which PPO takes whatever a step costs"), ""
    costs = task.measure()
    step, update = (f"{1e3 * seconds:.3g} ms" for seconds in costs)
    return choice_by(costs, on_gpu), f": a step takes {step}, an update of SAC {update}"
