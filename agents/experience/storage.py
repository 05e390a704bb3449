"""Allocate the rows of a memory, and check first that they fit.

`storage: ram` is the memory of the device that learns. `storage: memmap` is a file without a name on the disk of the
runs: the system pages it in and out, and deletes it when the process ends, in any way.
"""

import os
import resource
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stride.agents.experience.nouns import Row, T, Tree, channels_last, leaves, tree_map
from stride.config.schema import Config, ReplayConfig, WorldModelConfig
from stride.envs_fast.vec_env import CPU
from stride.runstore.run_dir import runs_root
from stride.utils.user_error import UserError

SPARE = 0.9  # fraction of the free memory that a memory may take
MEMINFO, CGROUP, STATM = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/statm")
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (0, "bytes"))


class TooLargeError(UserError):
    """The value of config key `key` needs too much memory; `fraction` of the value would fit."""

    def __init__(self, line: str, key: str, fraction: float) -> None:
        super().__init__(line)
        self.key = key
        self.fraction = fraction


def allocate(example: T, rows: int, storage: str) -> T:
    """Return zeros [rows, ...] for every tensor [...] of the example."""
    make_zeros = _mapped if storage == "memmap" else _zeros
    return tree_map(lambda x: make_zeros(x, rows), example)


def _zeros(example: Tensor, rows: int) -> Tensor:
    """Return zeros in memory. On the CPU NumPy makes them: it takes pages only when they are written, torch at once."""
    if example.device.type != "cpu":
        return example.new_zeros(rows, *example.shape)
    if channels_last(example):  # keep the channels of each pixel side by side
        return _zeros(example.movedim(1, -1), rows).movedim(-1, 2)
    return torch.from_numpy(np.zeros((rows, *example.shape), example.numpy().dtype))


def _mapped(example: Tensor, rows: int) -> Tensor:
    """Return zeros in a file. Its blocks are taken now, because a disk that fills up later would kill the process."""
    table_shape = (rows, *example.shape)
    file_bytes = rows * bytes_of(example)
    if not file_bytes:
        return example.new_zeros(table_shape)
    runs_folder = runs_root()
    runs_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=runs_folder) as table_file:
        os.posix_fallocate(table_file.fileno(), 0, file_bytes)
        return torch.from_numpy(np.memmap(table_file, example.numpy().dtype, "r+", shape=table_shape))


def bytes_of(example: Tree) -> int:
    """Return the bytes of all tensors of the example."""
    return sum(x.nbytes for x in leaves(example))


def free_bytes(storage: str) -> int:
    """Return the free bytes of the memory or the disk; a memory may take the fraction SPARE of them."""
    if storage == "memmap":
        folders = (runs_root(), *runs_root().resolve().parents)
        disk_status = os.statvfs(next(disk_folder for disk_folder in folders if disk_folder.is_dir()))
        return disk_status.f_bavail * disk_status.f_frsize
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    available_bytes = os.sysconf("SC_PHYS_PAGES") * page_bytes
    if MEMINFO.is_file():
        for info_line in MEMINFO.read_text().splitlines():
            if info_line.startswith("MemAvailable:"):
                available_bytes = int(info_line.split()[1]) * 1024
    # a container's own limit (cgroup v2), which /proc/meminfo does not include; "max" where there is none
    limit_file, used_file = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit_file.is_file() and used_file.is_file() and limit_file.read_text().strip().isdigit():
        available_bytes = min(available_bytes, int(limit_file.read_text()) - int(used_file.read_text()))
    # the limit of `ulimit -v`, which batch systems set, too
    address_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_limit != resource.RLIM_INFINITY and STATM.is_file():
        available_bytes = min(available_bytes, address_limit - int(STATM.read_text().split()[0]) * page_bytes)
    return max(0, available_bytes)


def check_fits(
    size: int, count: int, storage: str = "ram", key: str = "buffer_size", device: torch.device = CPU
) -> None:
    """Raise TooLargeError if `size` bytes, which the value `count` of config key `key` needs, do not fit."""
    if device.type == "cuda":
        available, location = torch.cuda.mem_get_info(device)[0], f"on {device}"
    else:
        available, location = (free_bytes(storage), "on the disk of the runs" if storage == "memmap" else "in memory")
    allowed = int(SPARE * available)
    if size > allowed:
        fits = f"{key}={allowed * count // size:_} fits"
        line = f"{key} {count:,} needs {readable_size(size)}, {readable_size(allowed)} may be used {location}; {fits}"
        raise TooLargeError(line, key, allowed / size)


def check_iteration(config: Config, example: Row, draws: int, rows: int, slots: int) -> None:
    """Raise TooLargeError if the least memory that an iteration needs does not fit.

    That is a rollout with `slots` final observations (checked again when slots are added), or `draws` random numbers of
    each world and step, and a batch of transitions. `example`: a row [N, ...]; `rows`: steps of a rollout.
    """
    row_bytes = bytes_of(example)
    device = example.reward.device
    if isinstance(config, ReplayConfig):
        check_fits(4 * draws * config.train_freq * config.n_envs, config.train_freq, key="train_freq", device=device)
        row_count = config.batch_length + 1 if isinstance(config, WorldModelConfig) else 1
        batch_bytes = 2 * row_bytes // config.n_envs * config.batch_size * row_count
        check_fits(batch_bytes, config.batch_size, key="batch_size", device=device)
    else:
        check_fits(row_bytes * rows + bytes_of(example.obs) * slots, rows, key="n_steps", device=device)


def readable_size(size: int) -> str:
    """Return a size as text, such as 3.2 GB, in powers of 1000."""
    unit_size, unit_name = next((unit_size, unit_name) for unit_size, unit_name in UNITS if size >= unit_size)
    return f"{size / (unit_size or 1):.3g} {unit_name}"
