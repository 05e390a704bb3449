"""Where the rows of a memory lie, and how many bytes they are before there is one.

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

SPARE = 0.9  # share of what is free that a memory may take
MEMINFO, CGROUP, STATM = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/statm")


class TooLargeError(UserError):
    """What a key asks for does not fit; `share` of it does."""

    def __init__(self, line: str, key: str, share: float) -> None:
        super().__init__(line)
        self.key, self.share = key, share


def allocate(example: T, rows: int, storage: str) -> T:
    """Zeros [rows, ...] for every leaf [...] of the example."""
    return tree_map(lambda x: _mapped(x, rows) if storage == "memmap" else _zeros(x, rows), example)


def _zeros(example: Tensor, rows: int) -> Tensor:
    """NumPy's zeros are pages that nobody touches before they are written; torch would fill a million rows first."""
    if example.device.type != "cpu":
        return example.new_zeros(rows, *example.shape)
    if channels_last(example):
        return torch.from_numpy(np.zeros((rows, *example.movedim(1, -1).shape), example.numpy().dtype)).movedim(-1, 2)
    return torch.from_numpy(np.zeros((rows, *example.shape), example.numpy().dtype))


def _mapped(example: Tensor, rows: int) -> Tensor:
    """The same on disk; the blocks are taken now, because a disk that fills up later would kill the process."""
    shape, dtype = (rows, *example.shape), example.numpy().dtype
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not size:
        return example.new_zeros(shape)
    folder = runs_root()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return torch.from_numpy(np.memmap(file, dtype, "r+", shape=shape))


def bytes_of(example: Tree) -> int:
    """What one row takes."""
    return sum(x.numel() * x.element_size() for x in leaves(example))


def free_bytes(storage: str) -> int:
    """What there is to take, before SPARE."""
    if storage == "memmap":
        folder = next(each for each in (runs_root(), *runs_root().resolve().parents) if each.is_dir())
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if MEMINFO.is_file():
        lines = (line.split() for line in MEMINFO.read_text().splitlines())
        free = next((int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"), free)
    # a container's own limit (cgroup v2), which /proc/meminfo does not know; "max" where there is none
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit.is_file() and used.is_file() and limit.read_text().strip().isdigit():
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    # `ulimit -v`, and what batch systems set
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY and STATM.is_file():
        free = min(free, most - int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE"))
    return max(0, free)


def check_fits(
    size: int, count: int, storage: str = "ram", key: str = "buffer_size", device: torch.device = CPU
) -> None:
    """UserError with the key to lower where the `size` bytes that its `count` asks for would not fit."""
    on_gpu = device.type == "cuda"
    allowed = int(SPARE * (torch.cuda.mem_get_info(device)[0] if on_gpu else free_bytes(storage)))
    if size > allowed:
        place = "on the disk of the runs" if storage == "memmap" else "in memory"
        place = f"on {device}" if on_gpu else place
        fits = f"{key}={allowed * count // size:,} fits".replace(",", "_")
        line = f"{key} {count:,} takes {readable_size(size)}, {readable_size(allowed)} may be taken {place}; {fits}"
        raise TooLargeError(line, key, allowed / size)


def check_iteration(config: Config, example: Row, draws: int, rows: int, slots: int) -> None:
    """The same for what an iteration takes at least: a rollout's rows and final observations, or draws, and a batch
    with what follows it. Where episodes are cut more often than `slots`, the memory asks again."""
    row, device = bytes_of(example), example.reward.device
    if isinstance(config, ReplayConfig):
        check_fits(4 * draws * config.train_freq * config.n_envs, config.train_freq, key="train_freq", device=device)
        drawn = config.batch_size * (config.batch_length + 1 if isinstance(config, WorldModelConfig) else 1)
        check_fits(2 * row // config.n_envs * drawn, config.batch_size, key="batch_size", device=device)
    else:
        check_fits(row * rows + bytes_of(example.obs) * slots, rows, key="n_steps", device=device)


def readable_size(size: int) -> str:
    """3.2 GB, as disks are sold."""
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
    number, unit = next((n, u) for n, u in units if size >= n or n == 1)
    return f"{size / number:.3g} {unit}"
