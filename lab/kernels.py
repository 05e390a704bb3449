"""Writes docs/benchmarks/kernels.md: the registers and stack of each kernel on each kind of GPU.

NVRTC compiles the kernels; no GPU is needed. It is an error if registers are spilled into memory, or if a kernel needs
more than 128.
"""

import ctypes
import importlib.util
import re
import sys
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from gymnasium.spaces import Dict

from stride.agents.engines.choice import build_agent
from stride.agents.engines.fused_gpu import learn
from stride.agents.engines.fused_gpu.play import SPLITS, sizes_of, source_of
from stride.agents.engines.plan.on_policy import PPORecipe, lay_out
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.ppo import PPO
from stride.commands.usage import parser_of
from stride.config.loader import load_config
from stride.envs_fast.device_code import twin_of, with_twin
from stride.envs_fast.registry import WORLDS
from stride.envs_gym.make import make_envs
from stride.envs_gym.spaces import is_image
from stride.utils import entry
from stride.utils.cuda_kernels import OPTIONS, PROJECT, Source, read_source
from stride.utils.user_error import UserError

PAGE = PROJECT / "docs" / "benchmarks" / "kernels.md"
FOLDERS = ("agents", "envs_fast", "utils")
ARCHITECTURES = {  # the oldest and newest that CUDA 13 supports, and common ones between
    "sm_75": "T4, RTX 20", "sm_80": "A100", "sm_86": "RTX 30", "sm_90": "H100, H200", "sm_120": "RTX 50",
}  # fmt: skip
LOWERED, TENSOR_CORES = (
    ("tf32", "bf16"),
    ("sm_80", "sm_86", "sm_90", "sm_120"),
)  # precisions, and GPUs that have them
MAX_REGISTERS = 128  # of a thread: then a multiprocessor has four blocks of 128 threads
MISSING = "NVRTC is not installed: pip install nvidia-cuda-nvrtc"
USED = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)


class Used(NamedTuple):
    """What a kernel needs on one architecture; registers are those of a thread."""

    kernel: str
    registers: int
    stack: int  # bytes
    spilled: int  # bytes stored and loaded because registers did not suffice


Table = dict[str, dict[str, Used]]  # kernel -> architecture -> what it needs


def main(argv: list[str]) -> int:
    """Exit code 1: a kernel does not fit."""
    parser_of(__doc__).parse_args(argv)
    table = everything()
    if lines := unfit(table):
        print("\n".join(lines), file=sys.stderr)
        return 1
    PAGE.write_text(markdown(table, nvrtc_version()), encoding="utf-8")
    return 0


def everything() -> Table:
    table = measured([*sources(), *rollouts(), *updates()], list(ARCHITECTURES))
    for precision in LOWERED:
        table |= lowered(precision, list(TENSOR_CORES))
    return table


def sources() -> list[Source]:
    files = sorted(chain.from_iterable((PROJECT / folder).rglob("*.cu") for folder in FOLDERS))
    return [read_source(file) for file in files]


def rollouts() -> list[Source]:
    """Return the sources of rollouts for a net of 64 x 64, with each number of threads per environment.

    There is one for each file of device code, for the first environment that uses it.
    """
    by_file: dict[Path, list[Source]] = {}
    for world in map(WORLDS.__getitem__, with_twin()):
        setting, twin = world.setting(), twin_of(world)
        space = setting.observation_space
        if twin in by_file or isinstance(space, Dict) or is_image(space):  # no recipe supports these observations
            continue
        policy = ActorCritic(Plan(setting.observation_space, setting.action_space))
        layout = lay_out(policy)
        by_file[twin] = [source_of(world, sizes_of(policy, layout, split)) for split in SPLITS]
    return [*chain.from_iterable(by_file.values())]


def updates() -> list[Source]:
    """Return the sources of PPO's updates for nets of 64 x 64: discrete actions, real ones, real ones with lag."""
    cases = (("CartPole-v1", 0), ("Pendulum-v1", 0), ("Pendulum-v1", 1))
    return [learn.source_of(sizes_for(*case, tile)) for case in cases for tile in learn.TILES]


def sizes_for(env_id: str, lag: int, tile: int) -> learn.Defines:
    config = load_config(env_id, "ppo", ["hidden_dims=[64,64]", f"lag={lag}", "engine=eager"])
    agent = build_agent(config, make_envs(config, 1))
    assert isinstance(agent, PPO)
    return learn.sizes_of(PPORecipe(agent), tile)


def lowered(precision: str, architectures: list[str]) -> Table:
    """Compile the updates of discrete actions in a lower precision; their names end in it, such as judge_bf16."""
    changed = {"PRECISION": learn.BITS[precision]}
    sources = [learn.source_of(sizes_for("CartPole-v1", 0, tile) | changed) for tile in learn.TILES]
    table = measured(sources, architectures)
    return {f"{kernel}_{precision}": table[kernel] for kernel in ("judge", "gradient")}


def measured(compiled: list[Source], architectures: list[str]) -> Table:
    """Compile each source for each architecture; of kernels with the same name keep the largest numbers."""
    table: Table = {}
    for source in compiled:
        for arch in architectures:
            for used in resources(source, arch):
                row = table.setdefault(used.kernel, {})
                row[arch] = Used(used.kernel, *map(max, used[1:], row.get(arch, used)[1:]))
    return table


def unfit(table: Table) -> list[str]:
    """Return a line for each kernel that spills registers or needs too many."""
    lines = []
    for kernel, row in table.items():
        for arch, used in row.items():
            if used.spilled:
                lines.append(f"{kernel} spills {used.spilled} bytes of registers into memory on {arch}")
            if used.registers > MAX_REGISTERS:
                lines.append(f"{kernel} takes {used.registers} registers on {arch}")
    return lines


def markdown(table: Table, version: str) -> str:
    rows = [
        f"| `{kernel}` | {' | '.join(str(row[arch].registers) if arch in row else '-' for arch in ARCHITECTURES)} "
        f"| {max(used.stack for used in row.values())} |"
        for kernel, row in sorted(table.items())
    ]
    return "\n".join([
        "# Kernels on GPUs",
        "",
        f"Registers of a thread, and the most bytes of stack, as NVRTC {version} compiles every kernel with "
        f"`{' '.join(OPTIONS)}`.",
        f"None spills a register into memory or takes more than {MAX_REGISTERS}, which is checked. Nets are here of "
        "64 x 64 units,",
        f"and a rollout's row the most that it takes with {', '.join(map(str, SPLITS[:-1]))} or {SPLITS[-1]} threads "
        "a world. No GPU is needed to",
        "write this page, `python -m lab.kernels`, and it says nothing about speed.",
        "",
        "| | " + " | ".join(f"{arch} ({cards})" for arch, cards in ARCHITECTURES.items()) + " | stack |",
        "|---|" + "---:|" * (len(ARCHITECTURES) + 1),
        *rows,
        "",
    ])  # fmt: skip


def library_file() -> Path | None:
    """Return the newest NVRTC library that pip has installed; None if there is none."""
    spec = importlib.util.find_spec("nvidia")
    folders = map(Path, spec.submodule_search_locations or ()) if spec else ()
    libraries = [file for folder in folders for file in folder.glob("*/lib/libnvrtc.so.*")]
    return max(libraries, key=lambda file: int(file.name.rpartition(".")[2]), default=None)


@cache
def library() -> ctypes.CDLL:
    if (file := library_file()) is None:
        raise UserError(MISSING)
    return ctypes.CDLL(str(file))


def nvrtc_version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def resources(source: Source, arch: str) -> list[Used]:
    """Compile a source for an architecture ("sm_90") as for a training; return what each kernel needs."""
    log = _compile(source, [*OPTIONS, f"-arch={arch}", "--ptxas-options=-v"])
    results = []
    for kernel, *numbers in USED.findall(log):
        stack, stores, loads, registers = map(int, numbers)
        results.append(Used(kernel, registers, stack, stores + loads))
    if not results:
        raise RuntimeError(f"NVRTC {nvrtc_version()} does not say what {source.name} takes:\n{log}")
    return results


def _compile(source: Source, options: list[str]) -> str:
    nvrtc, program = library(), ctypes.c_void_p()
    text, name = source.text.encode(), f"{source.name}.cu".encode()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None))
    try:
        option_array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), option_array)
        size = ctypes.c_size_t()
        _check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetProgramLog(program, log))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(f"NVRTC refuses {source.name}:\n{log.value.decode()}")
    return log.value.decode()


def _check(code: int) -> None:
    """Raise RuntimeError if an NVRTC function returned an error code."""
    if code:
        error_string = library().nvrtcGetErrorString
        error_string.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {error_string(code).decode()}")


if __name__ == "__main__":
    entry.run(main)
