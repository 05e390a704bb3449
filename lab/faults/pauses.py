"""`--pause-at` at random steps, then on: does the run end in the bits of the one that never paused, rows included?

    python -m lab.faults pauses --trials 200

PPO, DQN and SAC in turn, each paused once, twice or three times at steps drawn at random; every other time the run goes
on by `--resume`, else by the same command with `--group`.
"""

import random
from pathlib import Path

import torch

from lab.faults.rig import REPLAY, TINY, Tally, Told, amounts_to, finish, last_run, state_of, straight
from stride.agents.engines.choice import build_agent
from stride.commands.plain_tree import fingerprint
from stride.config.loader import from_plain
from stride.envs_gym.make import make_envs
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir

OTHERS = ("prioritised", "n_step", "buffer_size")
SAC = ("Pendulum-v1:sac", *(word for word in REPLAY[1:] if not word.startswith(OTHERS)), "buffer_size=1500")
AGENTS = {"PPO": TINY, "DQN": REPLAY, "SAC": SAC}
LAST = 1280 - 64  # env steps; whoever pauses later is through
SAME = ("rows", "increasing", "links", "report")  # an epoch that a pause saved may lie beside the others


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    wanted = {name: whole(words, folder / name) for name, words in AGENTS.items()}
    tallies, pauses = {name: Tally() for name in AGENTS}, dict.fromkeys(AGENTS, 0)
    for number in range(counts["trials"]):
        name = list(AGENTS)[number % len(AGENTS)]
        steps = sorted(draw.sample(range(1, LAST), draw.randint(1, 3)))
        root = folder / f"trial {number}"
        problem, stops = paused(AGENTS[name], steps, root, by_group=number % 2 == 1)
        pauses[name] += stops
        tallies[name].add(f"{name} paused at {steps}", problem or differing(outcome(root), wanted[name]))
    alike = "runs end in the same weights, optimizer, worlds, memory, counters and rows of metrics.csv"
    lines = [f"{name}, paused {pauses[name]} times: {tally} {alike}" for name, tally in tallies.items()]
    problems = [problem for tally in tallies.values() for problem in tally.problems]
    return lines + problems, not problems


def differing(ended: dict[str, object], wanted: dict[str, object]) -> str:
    other = [key for key in ended if ended[key] != wanted[key]]
    return f"{', '.join(other)} differ from the run that nobody disturbed" if other else ""


def whole(words: tuple[str, ...], root: Path) -> dict[str, object]:
    straight(words, root)
    return outcome(root)


def paused(words: tuple[str, ...], steps: list[int], root: Path, by_group: bool) -> tuple[str, int]:
    """Train with these pauses; what went wrong, and how many there were (two in one iteration are one)."""
    before, group, stops = words, ("--group", "g") if by_group else (), 0
    for step in steps:
        ended = finish((*before, *group, "--pause-at", str(step)), root)
        stood = ended.code == 0 and "result=paused" in ended.said
        if not stood and "is behind" not in ended.said:
            return f"--pause-at {step} ended with {ended.code}: {ended.said[-300:]}", stops
        stops += stood
        if not by_group:
            before = ("--resume", found(root).id, "-q")
    ended = finish((*before, *group), root)
    return "" if ended.code == 0 else f"the rest ended with {ended.code}: {ended.said[-300:]}", stops


def outcome(root: Path) -> dict[str, object]:
    """What a finished run amounts to, whichever checkpoint wrote which rows of its replay memory."""
    run = found(root)
    state, amount = state_of(run), amounts_to(run)
    parts = state["stride"]["parts"]  # type: ignore[index]
    if parts["memory"].get("segments"):
        parts["memory"]["segments"] = remembered(run, parts["memory"])
    return {"state": fingerprint(state), **{key: amount[key] for key in SAME}}


def remembered(run: RunDir, state: dict[str, object]) -> list[torch.Tensor]:
    config = from_plain(run.facts()["config"])
    memory = build_agent(config, make_envs(config, config.n_envs)).memory
    memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    memory.load_state_dict(state)
    return memory.columns_written()


def found(root: Path) -> RunDir:
    run = last_run(root)
    assert run is not None
    return run
