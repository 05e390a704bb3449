"""The list of Gymnasium's MuJoCo tasks that are compiled, and the check whether one can be used on this machine."""

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
_answers: dict[str, str] = {}  # id and arguments -> the result of `why_not` in this process


def why_not(env_id: str, env_kwargs: dict[str, object]) -> str:
    """Say why a task cannot be used with these arguments; "" if it can. The first use plays 100 steps (beside.py)."""
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
