"""A world's twin for a GPU: NAME.cu beside NAME.py; its kernels are NAME_advance and NAME_restart (world.cuh)."""

from pathlib import Path

from stride.envs_fast.world import NUMBA, WORLDS, World
from stride.utils.cuda_kernels import Source, read_source
from stride.utils.user_error import UserError


def twin_of(world: World) -> Path:
    """The file in which it is; a world need not have one."""
    return Path(world.kernels[NUMBA].advance.py_func.__code__.co_filename).with_suffix(".cu")


def with_twin() -> list[str]:
    """The ids that GPU kernels are checked and timed with: all that have some, but of MiniGrid's tasks the last of each
    file, whose others differ in numbers alone.
    """
    # one entry for each file of MiniGrid's tasks, and one for each other id; of equal keys the last id stays
    chosen = {(twin_of(world), "MiniGrid-" in env_id or env_id): env_id for env_id, world in WORLDS.items()}
    return [env_id for (twin, _), env_id in chosen.items() if twin.exists()]


def source_of(world: World) -> Source:
    """Its source; the kernels bear the source's name."""
    twin = twin_of(world)
    if not twin.exists():
        raise UserError(f"{world.env_id} has no GPU kernels ({twin} does not exist); use device=cpu")
    return read_source(twin)
