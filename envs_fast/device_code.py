"""A world's twin for a GPU: NAME.cu beside NAME.py; its kernels are NAME_advance and NAME_restart (world.cuh)."""

from pathlib import Path

from stride.envs_fast.world import NUMBA, WORLDS, World
from stride.utils.cuda_kernels import Source, read_source
from stride.utils.user_error import UserError


def twin_of(world: World) -> Path:
    """The file in which it is; a world need not have one."""
    return Path(world.kernels[NUMBA].advance.py_func.__code__.co_filename).with_suffix(".cu")


def with_twin() -> list[str]:
    """The ids of the worlds that have one: all but bsuite's Catch and MiniGrid's."""
    return [env_id for env_id, world in WORLDS.items() if twin_of(world).exists()]


def source_of(world: World) -> Source:
    """Its source; the kernels bear the source's name."""
    twin = twin_of(world)
    if not twin.exists():
        raise UserError(f"{world.env_id} has no GPU kernels ({twin} does not exist); use device=cpu")
    return read_source(twin)
