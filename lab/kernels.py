"""Writes docs/benchmarks/kernels.md: what each kernel takes of each kind of GPU, by NVRTC, which needs none.

Registers spilled into memory are an error, and so are more than 128.
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
ARCHITECTURES = {  # the oldest and newest that CUDA 13 compiles for, and what is common between
    "sm_75": "T4, RTX 20", "sm_80": "A100", "sm_86": "RTX 30", "sm_90": "H100, H200", "sm_120": "RTX 50",
}  # fmt: skip
LOWERED, TENSOR_CORES = ("tf32", "bf16"), ("sm_80", "sm_86", "sm_90", "sm_120")  # precisions, and who multiplies these
MOST = 128  # registers: four blocks of 128 threads on a multiprocessor
MISSING = "NVRTC is not installed: pip install nvidia-cuda-nvrtc"
USED = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)


class Used(NamedTuple):
    kernel: str
    registers: int
    stack: int  # bytes
    spilled: int  # bytes stored and loaded because registers did not suffice


Table = dict[str, dict[str, Used]]  # by kernel, by architecture


def main(argv: list[str]) -> int:
    """Exit code: 1 where a kernel does not fit."""
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
    """The rollout of every twin for a net of 64 x 64, by each number of threads a world; the first world of a twin."""
    found: dict[Path, list[Source]] = {}
    for world in map(WORLDS.__getitem__, with_twin()):
        setting, twin = world.setting(), twin_of(world)
        space = setting.observation_space
        if twin in found or isinstance(space, Dict) or is_image(space):  # which no recipe reads
            continue
        policy = ActorCritic(Plan(setting.observation_space, setting.action_space))
        layout = lay_out(policy)
        found[twin] = [source_of(world, sizes_of(policy, layout, split)) for split in SPLITS]
    return [*chain.from_iterable(found.values())]


def updates() -> list[Source]:
    """What learns, for PPO's two nets of 64 x 64: of choices, of numbers, and of those of an older actor."""
    cases = (("CartPole-v1", 0), ("Pendulum-v1", 0), ("Pendulum-v1", 1))
    return [learn.source_of(sizes_for(*case, tile)) for case in cases for tile in learn.TILES]


def sizes_for(env_id: str, lag: int, tile: int) -> learn.Defines:
    config = load_config(env_id, "ppo", ["hidden_dims=[64,64]", f"lag={lag}", "engine=eager"])
    agent = build_agent(config, make_envs(config, 1))
    assert isinstance(agent, PPO)
    return learn.sizes_of(PPORecipe(agent), tile)


def lowered(precision: str, architectures: list[str]) -> Table:
    """Those of choices that multiply in fewer bits, under names of their own."""
    changed = {"PRECISION": learn.BITS[precision]}
    sources = [learn.source_of(sizes_for("CartPole-v1", 0, tile) | changed) for tile in learn.TILES]
    table = measured(sources, architectures)
    return {f"{kernel}_{precision}": table[kernel] for kernel in ("judge", "gradient")}


def measured(compiled: list[Source], architectures: list[str]) -> Table:
    table: Table = {}
    for source in compiled:
        for arch in architectures:
            for used in resources(source, arch):
                row = table.setdefault(used.kernel, {})
                row[arch] = Used(used.kernel, *map(max, used[1:], row.get(arch, used)[1:]))
    return table


def unfit(table: Table) -> list[str]:
    lines = []
    for kernel, row in table.items():
        for arch, used in row.items():
            if used.spilled:
                lines.append(f"{kernel} spills {used.spilled} bytes of registers into memory on {arch}")
            if used.registers > MOST:
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
        f"None spills a register into memory or takes more than {MOST}, which is checked. Nets are here of "
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
    """The newest that pip has installed; None where it has none."""
    spec = importlib.util.find_spec("nvidia")
    folders = map(Path, spec.submodule_search_locations or ()) if spec else ()
    found = [file for folder in folders for file in folder.glob("*/lib/libnvrtc.so.*")]
    return max(found, key=lambda file: int(file.name.rpartition(".")[2]), default=None)


@cache
def library() -> ctypes.CDLL:
    if (file := library_file()) is None:
        raise UserError(MISSING)
    return ctypes.CDLL(str(file))


def nvrtc_version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _demand(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def resources(source: Source, arch: str) -> list[Used]:
    """What the kernels of a source take, compiled for an architecture ("sm_90") as for a training."""
    log = _compile(source, [*OPTIONS, f"-arch={arch}", "--ptxas-options=-v"])
    found = []
    for kernel, *numbers in USED.findall(log):
        stack, stores, loads, registers = map(int, numbers)
        found.append(Used(kernel, registers, stack, stores + loads))
    if not found:
        raise RuntimeError(f"NVRTC {nvrtc_version()} does not say what {source.name} takes:\n{log}")
    return found


def _compile(source: Source, options: list[str]) -> str:
    nvrtc, program = library(), ctypes.c_void_p()
    text, name = source.text.encode(), f"{source.name}.cu".encode()
    _demand(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None))
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
        size = ctypes.c_size_t()
        _demand(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        _demand(nvrtc.nvrtcGetProgramLog(program, log))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(f"NVRTC refuses {source.name}:\n{log.value.decode()}")
    return log.value.decode()


def _demand(code: int) -> None:
    if code:
        say = library().nvrtcGetErrorString
        say.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {say(code).decode()}")


if __name__ == "__main__":
    entry.run(main)
