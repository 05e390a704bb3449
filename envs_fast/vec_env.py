"""The interface that every vector environment has: N worlds stepped together, compiled or Gymnasium's.

Agents use only this interface; envs_fast/ and envs_gym/ implement it. Autoreset is SAME_STEP: an ended episode is reset
inside the same `step`, so `obs` is already the first observation of the next episode and `final_obs` keeps the last
observation of the ended one.
"""

from typing import Any, NamedTuple, Protocol

import torch
from gymnasium import Space, spaces
from torch import Tensor

from stride.utils.devices import CPU as CPU
from stride.utils.user_error import NumbersError

Obs = Tensor | dict[str, Tensor]  # an observation: one tensor, or one per name; nested names are joined by "."


class Step(NamedTuple):
    """The results of one action. The buffers belong to the environment and are overwritten by its next step."""

    obs: Obs  # [N, ...] the observation for the next action
    reward: Tensor  # [N] float32
    terminated: Tensor  # [N] bool: the task ended, there is no future
    truncated: Tensor  # [N] bool: cut short, never together with terminated; the future is worth V(final_obs)
    final_obs: Obs  # [N, ...] the last observation of an episode that ended in this step, undefined elsewhere
    episode_return: Tensor  # [N] float32: raw return of an episode that ended in this step, undefined elsewhere
    episode_length: Tensor  # [N] float32: steps of that episode, undefined elsewhere; 0: the end is not counted


class VecEnv(Protocol):
    """N environments behind one `step`.

    Spaces are those of a single world as the policy sees it: `Box`, `Discrete` (int64 [N]), `MultiDiscrete`
    (int64 [N, K]) or a flat `Dict` of these. Bounded action boxes are [-1, 1]; the environment scales and clips.
    Images are `Box` uint8 [C, H, W] and stay bytes. A `Dict` may carry the leaf `action_mask`: space `MultiBinary(A)`,
    bool [N, A], true where a discrete action makes sense, at least one per world; heads read it, encoders do not.
    """

    num_envs: int
    device: torch.device  # the device of everything that `step` returns, and of the actions that it takes
    observation_space: Space[Any]
    action_space: Space[Any]
    time_limit: int | None  # steps after which an episode is truncated; None: not known
    resume: str  # exact: a checkpoint continues every episode bit for bit; seam: it truncates those that are running
    reward_threshold: float | None  # the mean return that counts as solved; None: the environment defines none

    @property
    def wrong(self) -> Tensor | None:
        """A flag, int32 [1] on `device`: not 0 after an invalid action, until `wrong_action` clears it.

        The environments have continued with the nearest valid action. None if `step` refuses invalid actions at once.
        """
        ...

    def reset(self, seed: int) -> Obs:
        """Reset every environment; with the same seed, environment i starts the same for any N.

        The observation is a buffer that `step` overwrites.
        """
        ...

    def step(self, action: Tensor) -> Step:
        """Step every environment by one action, [N] or [N, ...] on `device`; finished episodes are reset in this step.

        All of Step is buffers, valid until the next step: copy what must last. `action` is not kept.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state as plain data, copied.

        With `resume: seam` running episodes are not in it: loading it ends them as truncated.
        """
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, in this or another process."""
        ...

    def close(self) -> None:
        """Release windows, files and simulators."""
        ...


def legal_actions(space: Space[Any]) -> str:
    """Say in words which actions are valid in this action space, for error messages."""
    if isinstance(space, spaces.Discrete):
        return f"actions are 0 to {int(space.n) - 1}"
    return "actions are numbers; -1 to 1 spans the bounds"


def wrong_action(envs: VecEnv) -> ValueError:
    """Clear the flag `envs.wrong` and return the error to raise for it.

    The flag says neither which environment got the invalid action nor in which step.
    """
    assert envs.wrong is not None
    envs.wrong.zero_()
    kind = NumbersError if isinstance(envs.action_space, spaces.Box) else ValueError
    return kind(f"the environments received an invalid action; {legal_actions(envs.action_space)}")
