"""Gymnasium's MuJoCo tasks by their id, and why one cannot be played here."""

from stride.config.extras import missing
from stride.envs_fast.bodies import ant, humanoids, pendulums, reachers, runners, walkers
from stride.envs_fast.bodies.beside import STEPS, Beside
from stride.envs_fast.bodies.library import package
from stride.envs_fast.bodies.task import world_of
from stride.envs_fast.world import BODIES
from stride.utils.user_error import UserError

TASKS = (
    ant.ANT,
    runners.HALF_CHEETAH,
    walkers.HOPPER,
    humanoids.HUMANOID,
    humanoids.STANDUP,
    pendulums.DOUBLE,
    pendulums.SINGLE,
    reachers.PUSHER,
    reachers.REACHER,
    runners.SWIMMER,
    walkers.WALKER,
)
BODIES.update({task.env_id: world_of(task) for task in TASKS})
REFUSALS = (AssertionError, AttributeError, LookupError, OSError, TypeError, ValueError)  # of arguments, by Gymnasium
_answers: dict[str, str] = {}  # by id and arguments: what the trial of this process has shown


def why_not(env_id: str, env_kwargs: dict[str, object]) -> str:
    """Why a task cannot be played here with these arguments; "" where it can. Its first use is a trial of 100 steps."""
    extra = missing(env_id)
    if extra is not None:
        return extra.need(env_id)
    key = f"{env_id} {sorted(env_kwargs.items())!r}"
    if key not in _answers:
        _answers[key] = _try_out(env_id, env_kwargs)
    return _answers[key]


def _try_out(env_id: str, env_kwargs: dict[str, object]) -> str:
    try:
        beside = Beside(BODIES[env_id], env_kwargs)
    except UserError as error:  # of the library
        return str(error)
    except REFUSALS as error:
        return f"Gymnasium's environment, from which it takes its constants: {error}"
    different = beside.first_difference()
    beside.close()
    if different is None:
        return ""
    version = package().__version__
    return f"step {different} of {STEPS} is not Gymnasium's with MuJoCo {version}, so Gymnasium's environments step"
