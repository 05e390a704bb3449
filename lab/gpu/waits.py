"""An iteration never makes the host wait: torch refuses every operation that would, and none is refused."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from lab.gpu.driven import agent_of, ppo, tick
from lab.gpu.parts import Found, Machine
from stride.utils.one_line import describe_error
from stride.utils.provenance import PROJECT

WARM, ITERATIONS = 3, 3


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """Engine by engine, once it is warm; that a wait would be noticed is shown first."""
    device = torch.device(machine.device)
    if device.type != "cuda":
        yield Found("a CPU is never waited for", {})
        return
    flag = torch.ones((), device=device)
    wrong = [] if waits(lambda: flag.item()) else ["a planted wait was not noticed"]
    figures = {"planted wait noticed": not wrong, "iterations": ITERATIONS}
    for engine, lag in [*((engine, 0) for engine in machine.engines), ("fused_gpu", 1)]:
        agent = agent_of(machine, ppo(machine, engine, 1024, policy_lr=1e-3, lag=lag))
        for _ in range(WARM):
            tick(agent)
        found = [place for place in (waits(agent.iteration) for _ in range(ITERATIONS)) if place]
        figures[f"{engine}, lag {lag}"] = len(found)
        wrong += [f"{engine}, lag {lag}: {place}" for place in dict.fromkeys(found)]
        yield Found(f"{', '.join(machine.engines)}: {len(wrong)} of {ITERATIONS} iterations wait", figures, wrong)


def waits(work: Callable[[], object]) -> str:
    """Where `work` would have waited for the device, and how; "" where it does not."""
    try:
        with waiting_refused():
            work()
    except RuntimeError as error:
        return f"{innermost(traceback.extract_tb(error.__traceback__))}: {describe_error(error)}"
    return ""


def innermost(frames: traceback.StackSummary) -> str:
    """The last place that is the project's own: file:line."""
    places = [(Path(frame.filename), frame.lineno) for frame in frames]
    ours = [(path.relative_to(PROJECT), line) for path, line in places if path.is_relative_to(PROJECT)]
    own = [f"{path}:{line}" for path, line in ours if not path.parts[0].startswith(".")]  # not of its .venv
    return own[-1]  # at least the line of `waits` that has called


@contextmanager
def waiting_refused() -> Iterator[None]:
    """torch raises where an operation would wait; CuPy's launches never do."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
