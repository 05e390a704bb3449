"""The estimators that a kernel computes on a device give what torch gives on the CPU, within rounding."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lab.gpu.driven import compiler
from lab.gpu.parts import Found, Machine
from stride.agents import returns
from stride.utils.counter_rng import ACT, Key, uniforms

STEPS, WIDTH = 128, 1000
NEAR = 1e-5  # of a number, or of 1 where it is smaller


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """All five, on rewards and values with every kind of end among them."""
    drawn = uniforms(Key(9, ACT), (7, STEPS, WIDTH))
    reward, value, following = drawn[0] * 4 - 2, drawn[1] * 20 - 10, drawn[2] * 20 - 10
    terminated, first = drawn[3] < 0.05, drawn[5] < 0.05
    truncated = (drawn[4] < 0.05) & ~terminated
    flags, numbers = (reward, terminated, truncated), (0.99, 0.95)
    asked: dict[Callable[..., Tensor], tuple[Tensor | float, ...]] = {
        returns.gae: (*flags, value, following, *numbers),
        returns.vtrace: (*flags, value, following, drawn[6] * 2, *numbers),
        returns.reward_to_go: (*flags, following, numbers[0]),
        returns.lambda_returns: (*flags, following, *numbers),
        returns.from_episode_start: (reward, first),
    }
    wrong, figures, device = list[str](), dict[str, float](), torch.device(machine.device)
    for estimator, arguments in asked.items():
        name, wanted = estimator.__name__, estimator(*arguments)
        there = [each.to(device) if isinstance(each, Tensor) else each for each in arguments]
        found = returns.launch(name, *there, compile=compiler(machine)).cpu()
        figures[name] = ((found - wanted).abs() / wanted.abs().clamp(min=1.0)).max().item()
        if not figures[name] <= NEAR:
            wrong.append(f"{name}: {figures[name]:.2g} from the CPU's")
    yield Found(f"{len(asked)} estimators within {max(figures.values()):.2g} of the CPU's", figures, wrong)
