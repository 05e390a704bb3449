"""Return estimators: pure functions of [T, N] tensors. Bootstrapping is decided here and in Memory, nowhere else.

v_t is V of the row's observation, v_next [N] V of the observation after the last row, v_final [S, N] V of the
observations a time limit cut off; `slot` says which of them belongs to a row. A terminated row has no future,
a truncated row's future is worth V(final observation), and neither lets anything flow in from the next episode.

Estimators that go through a rollout row by row are a few operations per row in torch, which is their meaning, and one
kernel of returns.cu on a GPU.
"""

from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from stride.utils.cuda_kernels import Compile, DeviceKernels, compile_cuda, read_source

Estimator = TypeVar("Estimator", bound=Callable[..., Tensor])


@cache
def _kernels(compile: Compile, device: torch.device) -> DeviceKernels:
    return compile(read_source(Path(__file__).with_suffix(".cu")), device)


def launch(kernel: str, *arguments: Tensor | float, compile: Compile = compile_cuda) -> Tensor:
    """The result of the estimator of this name, by its kernel: tensors [T, N] first, then numbers."""
    tensors = [x.contiguous() for x in arguments if isinstance(x, Tensor)]
    numbers = [np.float64(x) for x in arguments if not isinstance(x, Tensor)]
    out = torch.empty_like(tensors[0])
    steps, worlds = out.shape
    kernels = _kernels(compile, out.device)
    kernels.launch(kernel, worlds, *tensors, *numbers, out, np.int32(steps), np.int32(worlds))
    return out


def row_by_row(estimator: Estimator) -> Estimator:
    """The estimator itself, or its kernel where the tensors lie on a GPU."""

    @wraps(estimator)
    def dispatched(reward: Tensor, *arguments: Tensor | float) -> Tensor:
        if reward.is_cuda:
            return launch(estimator.__name__, reward, *arguments)
        return estimator(reward, *arguments)

    return cast(Estimator, dispatched)


def next_values(v_t: Tensor, v_next: Tensor, v_final: Tensor | None, truncated: Tensor, slot: Tensor) -> Tensor:
    """V of the observation each row's action truly led to, [T, N]; the terminated rows' values mean nothing.

    `v_final` is None where nothing was truncated.
    """
    following = torch.cat([v_t[1:], v_next[None]])
    return following if v_final is None else torch.where(truncated, v_final.gather(0, slot), following)


@row_by_row
def gae(
    reward: Tensor, terminated: Tensor, truncated: Tensor, v_t: Tensor, v_tp1: Tensor, gamma: float, lam: float
) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2016), [T, N].

    delta_t = r_t + gamma (1 - terminated_t) v_tp1 - v_t;   A_t = delta_t + gamma lam (1 - ended_t) A_t+1
    """
    delta, keep = _errors(reward, terminated, truncated, v_t, v_tp1, gamma, lam)
    advantage = torch.empty_like(delta)
    future = torch.zeros_like(delta[0])
    for delta_t, keep_t, advantage_t in _last_row_first(delta, keep, advantage):
        future = torch.addcmul(delta_t, keep_t, future, out=advantage_t)
    return advantage


@row_by_row
def vtrace(
    reward: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    v_t: Tensor,
    v_tp1: Tensor,
    ratio: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Advantages where somebody else chose the actions (V-trace, Espeholt et al. 2018), [T, N].

    A_t = rho_t (delta_t + gamma lam (1 - ended_t) A_t+1), rho = min(1, `ratio`); `ratio` [T, N] is pi(a|s) over that of
    who chose. So rho-bar = c-bar = 1 and c = lam rho. V-trace's target is v_t + A_t, and A_t is what it weighs an
    action by, bootstrapped with the same lambda. Where every ratio is 1 this is `gae`, to the bit.
    """
    delta, keep = _errors(reward, terminated, truncated, v_t, v_tp1, gamma, lam)
    advantage = torch.empty_like(delta)
    future = torch.zeros_like(delta[0])
    for delta_t, keep_t, rho_t, advantage_t in _last_row_first(delta, keep, ratio.clamp(max=1), advantage):
        future = torch.addcmul(delta_t, keep_t, future, out=advantage_t).mul_(rho_t)
    return advantage


def _last_row_first(*columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The rows of columns [T, N], unbound at once: to index a tensor costs as much as a sum."""
    return zip(*(column.unbind()[::-1] for column in columns), strict=True)


def _errors(
    reward: Tensor, terminated: Tensor, truncated: Tensor, v_t: Tensor, v_tp1: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """One-step errors delta, and how much of the next row's advantage flows into each row, [T, N] both."""
    delta = torch.addcmul(reward - v_t, v_tp1, ~terminated, value=gamma)
    return delta, (gamma * lam) * ~(terminated | truncated)


@row_by_row
def reward_to_go(reward: Tensor, terminated: Tensor, truncated: Tensor, v_tp1: Tensor, gamma: float) -> Tensor:
    """Discounted sum of the rewards from t to the end of the episode, [T, N].

    G_t = r_t + gamma G_t+1; 0 follows a termination, v_tp1 follows a time limit or the end of the rollout.
    """
    discount = ~terminated * gamma
    returns = torch.empty_like(reward)
    future = v_tp1[-1]
    for t in reversed(range(len(reward))):
        future = torch.where(truncated[t], v_tp1[t], future)
        future = torch.addcmul(reward[t], discount[t], future, out=returns[t])
    return returns


@row_by_row
def lambda_returns(
    reward: Tensor, terminated: Tensor, truncated: Tensor, v_tp1: Tensor, gamma: float, lam: float
) -> Tensor:
    """G_t = r_t + gamma ((1 - lam) v_t+1 + lam G_t+1), [T, N]; v_t+1 alone at a cut, nothing after an end."""
    returns = torch.empty_like(reward)
    future = v_tp1[-1]
    for t in reversed(range(len(reward))):
        future = torch.where(truncated[t], v_tp1[t], torch.lerp(v_tp1[t], future, lam))
        future = torch.addcmul(reward[t], ~terminated[t], future, value=gamma, out=returns[t])
    return returns


@row_by_row
def from_episode_start(returns: Tensor, is_first: Tensor) -> Tensor:
    """Give every row the return of its episode's first row in the rollout, [T, N]."""
    of_episode = torch.empty_like(returns)
    current = returns[0]
    for t in range(len(returns)):
        current = torch.where(is_first[t], returns[t], current)
        of_episode[t] = current
    return of_episode


def ends_within(terminated: Tensor, truncated: Tensor) -> Tensor:
    """Whether each row's episode ends inside the rollout, [T, N] bool: only then is its return complete."""
    ended = (terminated | truncated).long()
    return ended.flip(0).cumsum(0).flip(0) > 0


def td_target(reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """reward + discount * next_value, for values [B] or quantiles [B, K]."""
    if next_value.dim() == 1:
        return torch.addcmul(reward, discount, next_value)
    return reward[:, None] + discount[:, None] * next_value


def explained_variance(v_t: Tensor, target: Tensor, variance: Callable[[Tensor], Tensor] = Tensor.var) -> Tensor:
    """1 - Var(target - v) / Var(target): 1 is perfect, 0 as good as a constant; NaN when the target is constant."""
    spread = variance(target)
    return torch.where(spread > 0, 1 - variance(target - v_t) / spread, torch.nan)


def standardize(x: Tensor) -> Tensor:
    """Mean 0, deviation 1."""
    return (x - x.mean()) / (x.std(correction=0) + 1e-8)
