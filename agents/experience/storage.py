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
    make = _mapped if storage == "memmap" else _zeros
    return tree_map(lambda x: make(x, rows), example)


def _zeros(example: Tensor, rows: int) -> Tensor:
    """NumPy's zeros are pages that nobody touches before they are written; torch would fill a million rows first."""
    if example.device.type != "cpu":
        return example.new_zeros(rows, *example.shape)
    if channels_last(example):  # the channels of each pixel stay side by side
        return _zeros(example.movedim(1, -1), rows).movedim(-1, 2)
    return torch.from_numpy(np.zeros((rows, *example.shape), example.numpy().dtype))


def _mapped(example: Tensor, rows: int) -> Tensor:
    """Zeros in a file; its blocks are taken now, because a disk that fills up later would kill the process."""
    shape = (rows, *example.shape)
    size = rows * bytes_of(example)
    if not size:
        return example.new_zeros(shape)
    folder = runs_root()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return torch.from_numpy(np.memmap(file, example.numpy().dtype, "r+", shape=shape))


def bytes_of(example: Tree) -> int:
    """The size of one row."""
    return sum(x.nbytes for x in leaves(example))


def free_bytes(storage: str) -> int:
    """Free memory or disk space, before SPARE."""
    if storage == "memmap":
        folders = (runs_root(), *runs_root().resolve().parents)
        disk = os.statvfs(next(folder for folder in folders if folder.is_dir()))
        return disk.f_bavail * disk.f_frsize
    page = os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_PHYS_PAGES") * page
    if MEMINFO.is_file():
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    # a container's own limit (cgroup v2), which /proc/meminfo does not include; "max" where there is none
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit.is_file() and used.is_file() and limit.read_text().strip().isdigit():
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    # `ulimit -v`, and what batch systems set
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and STATM.is_file():
        free = min(free, allowed - int(STATM.read_text().split()[0]) * page)
    return max(0, free)


def check_fits(
    size: int, count: int, storage: str = "ram", key: str = "buffer_size", device: torch.device = CPU
) -> None:
    """UserError with the key to lower where the `size` bytes that its `count` asks for would not fit."""
    if device.type == "cuda":
        free, location = torch.cuda.mem_get_info(device)[0], f"on {device}"
    else:
        free, location = free_bytes(storage), "on the disk of the runs" if storage == "memmap" else "in memory"
    allowed = int(SPARE * free)
    if size > allowed:
        fits = f"{key}={allowed * count // size:_} fits"
        line = f"{key} {count:,} takes {readable_size(size)}, {readable_size(allowed)} may be taken {location}; {fits}"
        raise TooLargeError(line, key, allowed / size)


def check_iteration(config: Config, example: Row, draws: int, rows: int, slots: int) -> None:
    """UserError where the least that an iteration takes would not fit: a rollout's rows and final observations, or
    draws, and a batch with what follows it. Where episodes are cut more often than `slots`, the memory asks again."""
    row = bytes_of(example)
    device = example.reward.device
    if isinstance(config, ReplayConfig):
        check_fits(4 * draws * config.train_freq * config.n_envs, config.train_freq, key="train_freq", device=device)
        length = config.batch_length + 1 if isinstance(config, WorldModelConfig) else 1
        batch = 2 * row // config.n_envs * config.batch_size * length
        check_fits(batch, config.batch_size, key="batch_size", device=device)
    else:
        check_fits(row * rows + bytes_of(example.obs) * slots, rows, key="n_steps", device=device)


def readable_size(size: int) -> str:
    """Such as 3.2 GB, in powers of 1000."""
    number, unit = next((number, unit) for number, unit in UNITS if size >= number)
    return f"{size / (number or 1):.3g} {unit}"
