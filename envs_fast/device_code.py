"""Finds the GPU version ("twin") of a compiled environment: NAME.cu beside NAME.py.

Its kernels are NAME_advance and NAME_restart, with the arguments of world.cuh.
"""

from pathlib import Path

from stride.envs_fast.world import NUMBA, WORLDS, World
from stride.utils.cuda_kernels import Source, read_source
from stride.utils.user_error import UserError


def twin_of(world: World) -> Path:
    """Return the path of a world's CUDA source; the file need not exist."""
    return Path(world.kernels[NUMBA].advance.py_func.__code__.co_filename).with_suffix(".cu")


def with_twin() -> list[str]:
    """Return the ids with a GPU version, with which kernels are checked and timed.

    Of the MiniGrid tasks in one file only the last counts: the others differ only in parameters.
    """
    # the key is the file for MiniGrid's tasks, (file, id) for others; of equal keys the last id stays
    chosen = {(twin_of(world), "MiniGrid-" in env_id or env_id): env_id for env_id, world in WORLDS.items()}
    return [env_id for (twin, _), env_id in chosen.items() if twin.exists()]


def source_of(world: World) -> Source:
    """Return the CUDA source of a world, with all includes; UserError if it has no GPU version."""
    twin = twin_of(world)
    if not twin.exists():
        raise UserError(f"{world.env_id} has no GPU kernels ({twin} does not exist); use device=cpu")
    return read_source(twin)
