"""A run resumed on the device is the run that was never stopped, to the bit; and engines follow schedules alike."""

from collections.abc import Iterator

from lab.gpu.commands import resumed, runs_folder, state_of, trained
from lab.gpu.parts import ROUNDING, Found, Machine
from stride.commands.plain_tree import differences, fingerprint

ITERATIONS = 10
CONSTANT = ("policy_lr=1e-3", "clip_range=0.2")  # so that half a training does not know how long the whole one is
MOST = 5  # lines of what differs


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """Engine by engine; then one against the other."""
    wrong, figures, scheduled = list[str](), dict[str, object](iterations=2 * ITERATIONS), {}
    first, *others = machine.engines
    for engine in machine.engines:
        with runs_folder():
            straight, again = (state_of(trained(machine, engine, 2 * ITERATIONS, *CONSTANT)) for _ in range(2))
            half = trained(machine, engine, ITERATIONS, *CONSTANT)
            halves = state_of(resumed(half, machine, engine, 2 * ITERATIONS))
            scheduled[engine] = state_of(trained(machine, engine, ITERATIONS))["weights"]
        for name, other in (("the same again", again), ("resumed", halves)):
            wrong += [f"{engine}, {name}: {each.name} {each.words}" for each in differences(straight, other)[:MOST]]
        figures[engine] = fingerprint(straight)[:16]
        yield Found(f"{ITERATIONS} + {ITERATIONS} iterations: {len(wrong)} numbers differ", figures, wrong)
    for engine in others:
        pairs = [(scheduled[engine][name], value) for name, value in scheduled[first].items()]
        apart = max((one - other).abs().max().item() for one, other in pairs)
        figures[f"{engine}, scheduled weights apart"] = apart
        if not apart <= ROUNDING:
            wrong.append(f"{engine}: schedules lead {apart:.2g} away from {first}'s weights")
    yield Found(f"{ITERATIONS} + {ITERATIONS} iterations: {len(wrong)} numbers differ", figures, wrong)
