"""What MuJoCo warns of: told once a process instead of by every world, and not in a MUJOCO_LOG.TXT where one stands."""

import importlib.util
import logging
import re

import gymnasium

WORLDS = "gymnasium.envs.mujoco."  # where Gymnasium's own with MuJoCo come from
HOLDERS: list[type[gymnasium.Env]] = []  # others whose `data` is MuJoCo's; envs_gym/dmc.py adds its worlds
DEPRECATED = " is deprecated "  # of their model files, which are Gymnasium's to mend

log = logging.getLogger("stride")
_told: set[str] = set()


def hush(env_id: str) -> None:
    """Before such a world is made."""
    spec = gymnasium.registry.get(env_id)
    if spec and str(spec.entry_point).startswith(WORLDS) and importlib.util.find_spec("mujoco"):
        import mujoco

        mujoco.set_mju_user_warning(tell)


def tell(warning: str) -> None:
    """The first of its kind: it names a joint and a time, too."""
    kind = re.sub(r"[0-9.]+", "", warning)
    if DEPRECATED not in warning and kind not in _told:
        _told.add(kind)
        log.warning(f"MuJoCo: {warning}")
