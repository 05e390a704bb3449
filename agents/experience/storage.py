"""Where the rows of a memory are stored, and how many bytes they will take.

`ram` is the memory of the device that learns; `memmap` is an unlinked file on the disk of the runs, which the
system pages in and out and which vanishes with the process, however that ends.
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
    """The value of a key does not fit; `fraction` of it does."""

    def __init__(self, line: str, key: str, fraction: float) -> None:
        super().__init__(line)
        self.key = key
        self.fraction = fraction


def allocate(example: T, rows: int, storage: str) -> T:
    """Zeros [rows, ...] for every tensor [...] of the example."""
    make_zeros = _mapped if storage == "memmap" else _zeros
    return tree_map(lambda x: make_zeros(x, rows), example)


def _zeros(example: Tensor, rows: int) -> Tensor:
    """NumPy's zeros are pages that nobody touches before they are written; torch would fill a million rows first."""
    if example.device.type != "cpu":
        return example.new_zeros(rows, *example.shape)
    if channels_last(example):  # the channels of each pixel stay side by side
        return _zeros(example.movedim(1, -1), rows).movedim(-1, 2)
    return torch.from_numpy(np.zeros((rows, *example.shape), example.numpy().dtype))


def _mapped(example: Tensor, rows: int) -> Tensor:
    """Zeros in a file; its blocks are taken now, because a disk that fills up later would kill the process."""
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
    """The size of one row."""
    return sum(x.nbytes for x in leaves(example))


def free_bytes(storage: str) -> int:
    """Free memory or disk space, before SPARE."""
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
    # `ulimit -v`, and what batch systems set
    address_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_limit != resource.RLIM_INFINITY and STATM.is_file():
        available_bytes = min(available_bytes, address_limit - int(STATM.read_text().split()[0]) * page_bytes)
    return max(0, available_bytes)


def check_fits(
    size: int, count: int, storage: str = "ram", key: str = "buffer_size", device: torch.device = CPU
) -> None:
    """UserError with the key to lower where the `size` bytes that its `count` asks for would not fit."""
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
    """UserError where the least that an iteration takes would not fit: a rollout's rows and final observations, or
    draws, and a batch with what follows it. Where episodes are cut more often than `slots`, the memory asks again."""
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
    """Such as 3.2 GB, in powers of 1000."""
    unit_size, unit_name = next((unit_size, unit_name) for unit_size, unit_name in UNITS if size >= unit_size)
    return f"{size / (unit_size or 1):.3g} {unit_name}"
