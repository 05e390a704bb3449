"""Chooses an algorithm for `ENV:auto`, by what an env step and an update cost on this machine (in seconds).

The choice becomes a few overrides on top of an algorithm's general settings, for example `algo_id=sac recipe=flash
hidden_dims=[128]`. config.json stores the resulting config, so code that reads a run does not need this module.
"""

from collections.abc import Sequence
from typing import NamedTuple

from stride.config.diff import override_text
from stride.config.general import CHOSEN_PREFIX, GENERAL, Costs, Look, Task, split, world_config
from stride.config.raw import EnvironmentFile

# The unit of cost is one update of SAC with 256 x 2 units and a batch of 256.
MAX_CHEAP_STEP = 1 / 50  # cost of an env step; below it, 50 new steps are cheaper than one update on old ones
FLASH_UPDATES = {128: 9.2, 64: 2.4}  # hidden width -> arithmetic of an update by `recipe: flash`, with its batch of 512
FLASH_GPU_WIDTH = 256  # hidden width on a GPU, where kernel launches cost more than arithmetic up to this width


class Choice(NamedTuple):
    """A chosen algorithm, and the overrides that it gets on top of its general settings."""

    algo_id: str
    reason: str  # why it was chosen, for the user
    keys: tuple[str, ...] = ()  # overrides

    @property
    def name(self) -> str:
        """The algorithm and its overrides in one line."""
        return " ".join((self.algo_id, *self.keys))


def choice_by(costs: Costs, on_gpu: bool = False) -> Choice:
    """Choose the algorithm for bounded actions by the cost of an env step, in updates of SAC.

    The best algorithm is the one that reaches most in the same wall time. PPO learns from a step with 1/500 of SAC's
    arithmetic, but needs about ten times as many steps; so it wins where steps are almost free. TQC reaches more than
    SAC from the same steps, for a tenth more arithmetic. Flash needs the fewest steps, but its update costs several
    times SAC's, and more at a greater width; so it wins where a step costs at least as much as its update. (These are
    published curves and counted arithmetic, not times that were measured.)
    """
    step = costs.step / costs.update
    if step < MAX_CHEAP_STEP:
        reason = f"a step costs less than 1/{1 / MAX_CHEAP_STEP:.0f} of an update, so more steps buy the most"
        return Choice("ppo", reason)
    for width, updates in FLASH_UPDATES.items():
        if step >= updates:
            width = FLASH_GPU_WIDTH if on_gpu else width
            reason = f"a step costs as much as {updates:g} updates of SAC or more, so the fewest steps win"
            return Choice("sac", reason, ("recipe=flash", f"hidden_dims=[{width}]"))
    cost_range = f"1/{1 / MAX_CHEAP_STEP:.0f} to {min(FLASH_UPDATES.values()):g}"
    reason = f"a step costs {cost_range} updates, so each is learnt from about once, and cheaply"
    return Choice("tqc", reason)


class Decision(NamedTuple):
    """The overrides that `ENV:auto` becomes."""

    overrides: tuple[str, ...]
    line: str  # for the user: what was chosen, and why


def decide(text: str, overrides: Sequence[str], look: Look) -> Decision:
    """Return the overrides that `ENV:auto` becomes. A key in `overrides`, which the user typed, is left as typed."""
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
    """Return the choice, and a text with the measured costs; "" if nothing was measured because only PPO fits."""
    if task.actions != "bounded" or task.image is not None or task.measure is None:
        return Choice("ppo", f"{task.spaces_text}, which PPO takes whatever a step costs"), ""
    costs = task.measure()
    step, update = (f"{1e3 * seconds:.3g} ms" for seconds in costs)
    return choice_by(costs, on_gpu), f": a step takes {step}, an update of SAC {update}"
