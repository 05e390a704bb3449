"""AsyncPool: worlds in worker processes that need not wait for each other, for worlds with slow steps.

Part of the Python interface (stride/environments.py): `send` actions to some worlds, `recv` the first results.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step
from stride.envs_gym import spaces
from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.async_worker import WorkerTask
from stride.utils.user_error import UserError


class Ready(NamedTuple):
    """Results of worlds that have finished their step; row k belongs to world ids[k]."""

    ids: Tensor  # int64 [B]
    step: Step  # copies, tensors [B, ...]


class AsyncPool(AsyncEnv):
    """AsyncEnv whose worlds need not wait for each other: `send` actions to some, `recv` those that are ready first.

    A worker steps its worlds one after the other, so use `workers=num_envs` to make all worlds independent. `step`,
    `state_dict` and `load_state_dict` are for all worlds together, and need that none is under way.
    """

    def __init__(self, *arguments: Any, **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        self._worker_of = {world: index for index, group in enumerate(self._groups) for world in group}
        self._sent: list[deque[int]] = [deque() for _ in self._groups]  # of each worker: its worlds that still step
        self._done: deque[int] = deque()  # worlds with a result that `recv` has not returned yet

    @property
    def under_way(self) -> list[int]:
        """Numbers of the worlds that got an action and whose result `recv` has not returned yet."""
        return sorted([*self._done, *(world for sent in self._sent for world in sent)])

    def send(self, action: Tensor, ids: Tensor | Sequence[int] | None = None) -> None:
        """Begin a step of these worlds (default: all) and return at once; row k of `action` is for world ids[k]."""
        if not self._started:
            raise UserError(f"{self.env_id}: call reset before the first step")
        worlds = list(range(self.num_envs)) if ids is None else [int(world) for world in ids]
        if len(set(worlds)) < len(worlds) or not all(0 <= world < self.num_envs for world in worlds):
            raise UserError(f"{self.env_id}: ids must be different numbers from 0 to {self.num_envs - 1}, not {worlds}")
        busy = sorted({*worlds} & {*self.under_way})
        if busy:
            raise UserError(f"{self.env_id}: environments {busy} are still stepping; receive their results first")
        spaces.check_action(self.env_id, action, (len(worlds), *self._action.shape[1:]), self._action.dtype)
        self._action[worlds] = action
        for world in worlds:
            index = self._worker_of[world]
            self._sent[index].append(world)
            self._pool.send(index, WorkerTask("step", only=world))

    def recv(self, batch_size: int | None = None) -> Ready:
        """Return the first `batch_size` worlds (default: all under way) that finish their step, in that order."""
        count = len(self.under_way) if batch_size is None else batch_size
        if not 0 < count <= len(self.under_way):
            raise UserError(f"{self.env_id}: cannot receive {count} results of {len(self.under_way)} environments")
        while len(self._done) < count:
            self._receive()
        ids = torch.tensor([self._done.popleft() for _ in range(count)])
        step = Step(*(spaces.map_obs(field, lambda tensor: tensor[ids]) for field in self._step))
        return Ready(ids, step)

    def reset(self, seed: int) -> Obs:
        """Seed and start every world, as GymEnv does; results that were not received are dropped."""
        while any(self._sent):
            self._receive()
        self._done.clear()
        return super().reset(seed)

    def _receive(self) -> None:
        self._done.extend(self._sent[index].popleft() for index in self._pool.receive())

    def _ask_all(self, name: str, payload: object = None, states: Sequence[Any] = ()) -> dict[int, Any]:
        if self.under_way:
            raise UserError(f"{self.env_id}: receive the results of environments {self.under_way} first")
        return super()._ask_all(name, payload, states)
