"""What is asked of a world besides playing: pictures, copies, its end, and what Gymnasium's own checker says."""

import multiprocessing.reduction
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from stride.envs_gym.answers import shown
from stride.envs_gym.blame import Blame, EnvError
from stride.envs_gym.check.catalogue import finding
from stride.envs_gym.check.finding import NOTE, Finding
from stride.envs_gym.check.study import Study
from stride.utils.user_error import UserError, one_line

WINDOW = "human"
SAID_BETTER = (  # what stands in Gymnasium's words, and what says the same with numbers; "" where it is nothing
    ("different from the unwrapped version", ""),
    ("not within the observation space", "observation-"),
    ("was expecting", "observation-"),
    ("should be an int or np.int64", "observation-"),
    ("reward is", "reward-"),
    ("non-deterministic", "differs-under-seed"),
    ("not equivalent", "differs-under-seed"),
    ("not equivalent", "reset-remembers"),
    ("not equal although similar", "reset-remembers"),
    ("share an object", "observation-overwritten"),
    ("does not call `super().reset(seed=seed)`", "differs-under-seed"),
    ("symmetric and normalized", "action-not-normalised"),
    ("A Box action space", "action-bounds-infinite"),
    ("on the closed environment", "close-fails"),
    ("default seed argument", "same-start-every-episode"),
    ("truncates after 1 step", "one-step-episodes"),
    ("to be able to be passed `seed`", "reset-without-seed"),
)
BOUNDS = "A Box observation space m"  # aximum, or minimum, is infinite


def check_end(study: Study) -> Iterator[Finding]:
    yield from _closing(study)
    with study.world() as world:
        world.reset(0)
        try:
            with Blame(study.subject.words, doing="copy"):
                multiprocessing.reduction.ForkingPickler.dumps(world.env)
        except EnvError as error:
            yield finding("not-picklable", error.reason)


def check_pictures(study: Study) -> Iterator[Finding]:
    """Every mode that opens no window."""
    with study.world() as world:
        declared = world.env.metadata.get("render_modes") or ()
    if not declared:
        yield finding("no-render", "its metadata declares no render_modes")
    for mode in declared:
        if mode == WINDOW:
            continue
        try:
            with study.world(render_mode=mode) as world:
                world.reset(0)
                world.step(world.env.action_space.sample())
                wrong = picture_fault(mode, world.render())
            if wrong:
                yield finding("render-fails", f"render_mode {mode!r}: {wrong}")
                return
        except (EnvError, UserError) as error:
            missing = isinstance(error.__cause__, gymnasium.error.DependencyNotInstalled)
            reason = error.reason if isinstance(error, EnvError) else str(error)
            yield finding("render-fails", f"render_mode {mode!r}: {reason}", NOTE if missing else "")
            return  # what failed once may end the process the next time


def picture_fault(mode: str, picture: Any) -> str:
    """What is wrong with what render gave, "" where nothing is."""
    if mode == "rgb_array":
        good = isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim == 3
        if not good or picture.shape[2] != 3:
            form = f"{picture.dtype}{list(picture.shape)}" if isinstance(picture, np.ndarray) else shown(picture)
            return f"render gives {form}, not bytes [height, width, 3]"
    elif mode == "ansi" and not isinstance(picture, str):
        return f"render gives {shown(picture)}, not a text"
    elif mode.endswith("_list") and not isinstance(picture, list):
        return f"render gives {shown(picture)}, not a list"
    return ""


def _closing(study: Study) -> Iterator[Finding]:
    with study.world() as world:
        world.reset(0)
        for time in ("once", "twice"):
            try:
                world.close()
            except EnvError as error:
                yield finding("close-fails", f"close called {time}: {error.reason}")
                return


def check_gymnasium(study: Study) -> Iterator[Finding]:
    """Its warnings are findings, too; what others have found with numbers is left out by `said_better`."""
    with warnings.catch_warnings(record=True) as told, study.world() as world:
        warnings.simplefilter("always")
        try:
            with study.watched("Gymnasium's checker"), Blame(study.subject.words, doing="step"):
                check_env(world.env.unwrapped, skip_render_check=True)
        except EnvError as error:
            asserted = isinstance(error.__cause__, AssertionError | gymnasium.error.Error)
            yield finding("gymnasium-checker" if asserted else "raises", error.reason.removeprefix("AssertionError: "))
    texts = [one_line(str(each.message)).partition("WARN: ")[2].removesuffix("\\x1b[0m") for each in told]
    if bounds := [text for text in texts if text.startswith(BOUNDS)]:
        yield finding("gymnasium-bounds", bounds[0])
    yield from (finding("gymnasium-warning", text) for text in texts if text and not text.startswith(BOUNDS))


def said_better(gymnasiums: Finding, found: list[Finding]) -> bool:
    """Whether one of ours says the same."""
    names = [each.name for each in found]
    for words, better in SAID_BETTER:
        if words in gymnasiums.seen and (not better or any(name.startswith(better) for name in names)):
            return True
    return False
