"""Writes docs/benchmarks/kernels.md: what each kernel takes of each kind of GPU, by NVRTC, which needs none.

Registers spilled into memory are an error, and so are more than 128.
"""

import sys
from itertools import chain
from pathlib import Path

from gymnasium.spaces import Dict

from lab import nvrtc
from lab.nvrtc import Used
from stride.agents.engines.choice import build_agent
from stride.agents.engines.fused_gpu import learn
from stride.agents.engines.fused_gpu.play import SPLITS, sizes_of, source_of
from stride.agents.engines.plan.on_policy import PPORecipe, lay_out
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.ppo import PPO
from stride.commands.usage import parser_of
from stride.config.loader import load_config
from stride.envs_fast.device_code import twin_of
from stride.envs_fast.registry import WORLDS
from stride.envs_gym.make import make_envs
from stride.utils import entry
from stride.utils.cuda_kernels import OPTIONS, PROJECT, Source, read_source

PAGE = PROJECT / "docs" / "benchmarks" / "kernels.md"
FOLDERS = ("agents", "envs_fast", "utils")
ARCHITECTURES = {  # the oldest and newest that CUDA 13 compiles for, and what is common between
    "sm_75": "T4, RTX 20", "sm_80": "A100", "sm_86": "RTX 30", "sm_90": "H100, H200", "sm_120": "RTX 50",
}  # fmt: skip
LOWERED, TENSOR_CORES = ("tf32", "bf16"), ("sm_80", "sm_86", "sm_90", "sm_120")  # precisions, and who multiplies these
MOST = 128  # registers: four blocks of 128 threads on a multiprocessor

Table = dict[str, dict[str, Used]]  # by kernel, by architecture


def main(argv: list[str]) -> int:
    """Exit code: 1 where a kernel does not fit."""
    parser_of(__doc__).parse_args(argv)
    table = everything()
    if lines := unfit(table):
        print("\n".join(lines), file=sys.stderr)
        return 1
    PAGE.write_text(markdown(table, nvrtc.version()), encoding="utf-8")
    return 0


def everything() -> Table:
    table = measured([*sources(), *rollouts(), *updates()], list(ARCHITECTURES))
    for precision in LOWERED:
        table |= lowered(precision, list(TENSOR_CORES))
    return table


def sources() -> list[Source]:
    """Every CUDA source of the project that needs no sizes."""
    files = sorted(chain.from_iterable((PROJECT / folder).rglob("*.cu") for folder in FOLDERS))
    return [read_source(file) for file in files]


def rollouts() -> list[Source]:
    """The rollout of every twin for a net of 64 x 64, by each number of threads a world; the first world of a twin."""
    found: dict[Path, list[Source]] = {}
    for world in WORLDS.values():
        setting, twin = world.setting(), twin_of(world)
        if twin in found or isinstance(setting.observation_space, Dict):  # which no recipe reads
            continue
        policy = ActorCritic(Plan(setting.observation_space, setting.action_space))
        layout = lay_out(policy)
        found[twin] = [source_of(world, sizes_of(policy, layout, split)) for split in SPLITS]
    return [*chain.from_iterable(found.values())]


def updates() -> list[Source]:
    """What learns, for PPO's two nets of 64 x 64: of choices, of numbers, and of those of an older actor."""
    return [learn.source_of(sizes_for(*case)) for case in (("CartPole-v1", 0), ("Pendulum-v1", 0), ("Pendulum-v1", 1))]


def sizes_for(env_id: str, lag: int) -> learn.Defines:
    """Of its update."""
    config = load_config(env_id, "ppo", ["hidden_dims=[64,64]", f"lag={lag}", "engine=eager"])
    agent = build_agent(config, make_envs(config, 1))
    assert isinstance(agent, PPO)
    return learn.sizes_of(PPORecipe(agent))


def lowered(precision: str, architectures: list[str]) -> Table:
    """Those of choices that multiply in fewer bits, under names of their own."""
    source = learn.source_of(sizes_for("CartPole-v1", 0) | {"PRECISION": learn.BITS[precision]})
    table = measured([source], architectures)
    return {f"{kernel}_{precision}": table[kernel] for kernel in ("judge", "gradient")}


def measured(compiled: list[Source], architectures: list[str]) -> Table:
    """What the kernels of these sources take; of one that is compiled for several sizes the most."""
    table: Table = {}
    for source in compiled:
        for arch in architectures:
            for used in nvrtc.resources(source, arch):
                row = table.setdefault(used.kernel, {})
                row[arch] = Used(used.kernel, *map(max, used[1:], row.get(arch, used)[1:]))
    return table


def unfit(table: Table) -> list[str]:
    """A line for each kernel that does not fit into the registers of an architecture."""
    lines = []
    for kernel, row in table.items():
        for arch, used in row.items():
            if used.spilled:
                lines.append(f"{kernel} spills {used.spilled} bytes of registers into memory on {arch}")
            if used.registers > MOST:
                lines.append(f"{kernel} takes {used.registers} registers on {arch}")
    return lines


def markdown(table: Table, version: str) -> str:
    """The page."""
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


if __name__ == "__main__":
    entry.run(main)
