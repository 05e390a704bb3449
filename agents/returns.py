"""Advantages and returns: pure functions of tensors [T, N], called by PPO, REINFORCE, PQN and DQN, SAC, TD3.

Bootstrapping (using V for rewards that were not seen) is decided here and in Memory, nowhere else. Letters: T steps,
N environments, S slots for final observations. Arguments of many functions, each [T, N] if not said otherwise:

    reward, terminated, truncated    of the action in the row; the flags are bool and never both set
    v_t        V of the row's observation
    v_tp1      V of the observation that the row's action led to (from `next_values`)
    v_next     [N] V of the observation after the last row
    v_final    [S, N] V of the last observations of truncated episodes; slot [T, N] int64 is a row's index into S

After a terminated row the return is 0; after a truncated row it is V(final observation). Rewards of the next episode
never flow in. A function marked `row_by_row` loops over the rows in torch, which defines its result; on a GPU one
kernel of returns.cu computes the same.
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
    """Run the kernel of this name from returns.cu; `arguments`: tensors [T, N], then numbers. -> [T, N]"""
    tensors = [x.contiguous() for x in arguments if isinstance(x, Tensor)]
    numbers = [np.float64(x) for x in arguments if not isinstance(x, Tensor)]
    out = torch.empty_like(tensors[0])
    steps, worlds = out.shape
    kernels = _kernels(compile, out.device)
    kernels.launch(kernel, worlds, *tensors, *numbers, out, np.int32(steps), np.int32(worlds))
    return out


def row_by_row(estimator: Estimator) -> Estimator:
    """Decorate an estimator: tensors on a GPU go to the kernel of the same name, others to the function itself."""

    @wraps(estimator)
    def dispatched(reward: Tensor, *arguments: Tensor | float) -> Tensor:
        if reward.is_cuda:
            return launch(estimator.__name__, reward, *arguments)
        return estimator(reward, *arguments)

    return cast(Estimator, dispatched)


def next_values(v_t: Tensor, v_next: Tensor, v_final: Tensor | None, truncated: Tensor, slot: Tensor) -> Tensor:
    """Return v_tp1 [T, N], V of the observation that each row's action led to, not that of an automatic reset.

    Values of terminated rows are meaningless; callers multiply them by 0. `v_final`: None if nothing was truncated.
    """
    following = torch.cat([v_t[1:], v_next[None]])
    return following if v_final is None else torch.where(truncated, v_final.gather(0, slot), following)


@row_by_row
def gae(
    reward: Tensor, terminated: Tensor, truncated: Tensor, v_t: Tensor, v_tp1: Tensor, gamma: float, lam: float
) -> Tensor:
    """Generalised advantage estimation, GAE(gamma, lambda) (Schulman et al. 2016). -> advantages A [T, N]

    delta_t = r_t + gamma (1 - terminated_t) V(s_t+1) - V(s_t)
    A_t = delta_t + gamma lam (1 - ended_t) A_t+1,  ended = terminated or truncated,  A_T = 0
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
    """Advantages of actions that another (older) policy mu chose: V-trace (Espeholt et al. 2018). -> A [T, N]

    A_t = rho_t (delta_t + gamma lam (1 - ended_t) A_t+1),  rho = min(1, ratio),  ratio [T, N] = pi(a|s) / mu(a|s)

    delta and ended are those of `gae`. In the paper's names rho-bar = c-bar = 1 and c_t = lam rho_t; its target of the
    critic is v_t + A_t, and the same A_t is the weight of the policy gradient. If every ratio is 1, the result equals
    `gae` bit for bit.
    """
    delta, keep = _errors(reward, terminated, truncated, v_t, v_tp1, gamma, lam)
    advantage = torch.empty_like(delta)
    future = torch.zeros_like(delta[0])
    for delta_t, keep_t, rho_t, advantage_t in _last_row_first(delta, keep, ratio.clamp(max=1), advantage):
        future = torch.addcmul(delta_t, keep_t, future, out=advantage_t).mul_(rho_t)
    return advantage


def _last_row_first(*columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows of columns [T, N] from the last to the first; one `unbind` is cheaper than T indexings."""
    return zip(*(column.unbind()[::-1] for column in columns), strict=True)


def _errors(
    reward: Tensor, terminated: Tensor, truncated: Tensor, v_t: Tensor, v_tp1: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Return the one-step errors delta, and the factors gamma lam (1 - ended) of the next advantage, [T, N] both."""
    delta = torch.addcmul(reward - v_t, v_tp1, ~terminated, value=gamma)
    return delta, (gamma * lam) * ~(terminated | truncated)


@row_by_row
def reward_to_go(reward: Tensor, terminated: Tensor, truncated: Tensor, v_tp1: Tensor, gamma: float) -> Tensor:
    """Discounted sum of the rewards from t to the end of the episode (Monte Carlo return). -> G [T, N]

    G_t = r_t + gamma G_t+1, where G_t+1 = 0 after a termination, and v_tp1 after a truncation or the rollout's last row
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
    """Lambda-returns, TD(lambda) targets. -> G [T, N]

    G_t = r_t + gamma ((1 - lam) V(s_t+1) + lam G_t+1); after a termination G_t = r_t, and after a truncation or the
    rollout's last row G_t = r_t + gamma V(s_t+1)
    """
    returns = torch.empty_like(reward)
    future = v_tp1[-1]
    for t in reversed(range(len(reward))):
        future = torch.where(truncated[t], v_tp1[t], torch.lerp(v_tp1[t], future, lam))
        future = torch.addcmul(reward[t], ~terminated[t], future, value=gamma, out=returns[t])
    return returns


@row_by_row
def from_episode_start(returns: Tensor, is_first: Tensor) -> Tensor:
    """Return for every row the return of the first row of its episode in this rollout, [T, N]."""
    of_episode = torch.empty_like(returns)
    current = returns[0]
    for t in range(len(returns)):
        current = torch.where(is_first[t], returns[t], current)
        of_episode[t] = current
    return of_episode


def ends_within(terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return whether each row's episode ends inside the rollout, [T, N] bool: only then is its return complete.

    Example of one environment: ended = 0 1 0 0 gives True True False False.
    """
    ended = (terminated | truncated).long()
    return ended.flip(0).cumsum(0).flip(0) > 0


def td_target(reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """TD target reward + discount * next_value; reward and discount [B], next_value [B], or quantiles [B, K]."""
    if next_value.dim() == 1:
        return torch.addcmul(reward, discount, next_value)
    return reward[:, None] + discount[:, None] * next_value


def explained_variance(v_t: Tensor, target: Tensor, variance: Callable[[Tensor], Tensor] = Tensor.var) -> Tensor:
    """Return 1 - Var(target - v) / Var(target) of v_t, target [T, N]: 1 is perfect, 0 no better than a constant.

    NaN if the target is constant. `variance`: the shards' own, if there are several.
    """
    spread = variance(target)
    return torch.where(spread > 0, 1 - variance(target - v_t) / spread, torch.nan)


def standardize(x: Tensor) -> Tensor:
    """Return x shifted and scaled to mean 0 and standard deviation 1 over all its numbers."""
    return (x - x.mean()) / (x.std(correction=0) + 1e-8)
