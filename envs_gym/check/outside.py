"""Checks of a world besides playing: pictures, copies, its end, and Gymnasium's own checker."""

import multiprocessing.reduction
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from stride.envs_gym.answers import shown
from stride.envs_gym.blame import Blame, EnvError
from stride.envs_gym.check.finding import NOTE, EnvFinding, Findings, finding
from stride.envs_gym.check.study import Study
from stride.utils.user_error import UserError, one_line

WINDOW = "human"
REPORTED_BY = (  # part of a text of Gymnasium, and how our finding of it begins; "" where it is no problem
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


def check_end(study: Study) -> Findings:
    yield from _check_closing(study)
    with study.world() as world:
        world.reset(0)
        try:
            with Blame(study.subject.name, doing="copy"):
                multiprocessing.reduction.ForkingPickler.dumps(world.env)
        except EnvError as error:
            yield finding("not-picklable", error.reason)


def _check_closing(study: Study) -> Findings:
    with study.world() as world:
        world.reset(0)
        for time in ("once", "twice"):
            try:
                world.close()
            except EnvError as error:
                yield finding("close-fails", f"close called {time}: {error.reason}")
                return


def check_pictures(study: Study) -> Findings:
    """Draw in every mode that opens no window."""
    with study.world() as world:
        modes = world.env.metadata.get("render_modes") or ()
    if not modes:
        yield finding("no-render", "its metadata declares no render_modes")
    for mode in modes:
        if mode == WINDOW:
            continue
        level = ""
        try:
            with study.world(render_mode=mode) as world:
                world.reset(0)
                world.step(world.env.action_space.sample())
                problem = picture_problem(mode, world.render())
        except (EnvError, UserError) as error:
            problem = error.reason if isinstance(error, EnvError) else str(error)
            if isinstance(error.__cause__, gymnasium.error.DependencyNotInstalled):
                level = NOTE
        if problem:
            yield finding("render-fails", f"render_mode {mode!r}: {problem}", level)
            return  # what failed once may end the process the next time


def picture_problem(mode: str, picture: Any) -> str:
    """The problem of what render gave, "" where there is none."""
    if mode == "rgb_array":
        array = isinstance(picture, np.ndarray)
        if not array or picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            form = f"{picture.dtype}{list(picture.shape)}" if array else shown(picture)
            return f"render returns {form}, not bytes [height, width, 3]"
    elif mode == "ansi" and not isinstance(picture, str):
        return f"render returns {shown(picture)}, not a text"
    elif mode.endswith("_list") and not isinstance(picture, list):
        return f"render returns {shown(picture)}, not a list"
    return ""


def check_gymnasium(study: Study) -> Findings:
    """Run Gymnasium's checker. Its warnings are findings, too, except those that `reported_better` leaves out."""
    with warnings.catch_warnings(record=True) as caught, study.world() as world:
        warnings.simplefilter("always")
        try:
            with study.calling("Gymnasium's checker"), Blame(study.subject.name):
                check_env(world.env.unwrapped, skip_render_check=True)
        except EnvError as error:
            asserted = isinstance(error.__cause__, AssertionError | gymnasium.error.Error)
            yield finding("gymnasium-checker" if asserted else "raises", error.reason.removeprefix("AssertionError: "))
    for warning in caught:
        text = one_line(str(warning.message)).partition("WARN: ")[2].removesuffix("\\x1b[0m")
        if text:
            yield finding("gymnasium-bounds" if text.startswith(BOUNDS) else "gymnasium-warning", text)


def reported_better(text: str, findings: list[EnvFinding]) -> bool:
    """Whether one of our own findings says the same as a text of Gymnasium's checker, or it is no problem."""
    for component, name in REPORTED_BY:
        if component in text and (not name or any(finding.name.startswith(name) for finding in findings)):
            return True
    return False
