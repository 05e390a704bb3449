"""check-env's parts that do not play: close, copying to another process, pictures, and Gymnasium's own checker."""

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

WINDOW_MODE = "human"  # the render mode that opens a window
REPORTED_BY = (  # (part of Gymnasium's text, start of our finding's name for the same problem; "": it is no problem)
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
BOUNDS_TEXT = "A Box observation space m"  # start of two warnings: "... maximum (or minimum) value is infinity"


def check_end(study: Study) -> Findings:
    """Close an environment twice, and pickle one, as a start in another process needs it."""
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
        for count in ("once", "twice"):
            try:
                world.close()
            except EnvError as error:
                yield finding("close-fails", f"close called {count}: {error.reason}")
                return


def check_pictures(study: Study) -> Findings:
    """Draw in every mode that opens no window."""
    with study.world() as world:
        modes = world.env.metadata.get("render_modes") or ()
    if not modes:
        yield finding("no-render", "its metadata declares no render_modes")
    for mode in modes:
        if mode == WINDOW_MODE:
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
            return  # further attempts may end the process


def picture_problem(mode: str, picture: Any) -> str:
    """Return the problem with a result of render, "" where there is none."""
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
    """Run Gymnasium's checker. Its warnings become findings; examine.py leaves out those of `reported_better`."""
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
            yield finding("gymnasium-bounds" if text.startswith(BOUNDS_TEXT) else "gymnasium-warning", text)


def reported_better(text: str, findings: list[EnvFinding]) -> bool:
    """Whether a text of Gymnasium's checker is no problem, or one of `findings` reports the same problem."""
    for component, name in REPORTED_BY:
        if component in text and (not name or any(finding.name.startswith(name) for finding in findings)):
            return True
    return False
