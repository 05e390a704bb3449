"""Brax's worlds as one simulation that answers tensors: compiled by JAX, handed over through dlpack without a copy.

Importing this registers `brax/ant` and its like; Brax itself is imported where one is made. Brax's own wrappers begin
every episode in the same state and do not say where one ended. Here each begins at a state of its own, drawn by seed,
world and episode; the end is reported; and as all there is is a tree of arrays, a resume is exact.
"""

import io
import os
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from stride.envs_gym.answers import Info, State
from stride.utils.user_error import UserError, nearest

PREFIX = "brax/"
TASKS = ("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum",
         "inverted_pendulum", "pusher", "reacher", "swimmer", "walker2d", "fast")  # fmt: skip
LIMIT = 1000  # steps of an episode, as everywhere with Brax


class BraxState(NamedTuple):
    """Everything that the future of N worlds depends on, beside the key; JAX's arrays [N, ...]."""

    state: Any  # brax.envs.State
    ages: Any
    episodes: Any


class BraxWorlds(VectorEnv):
    """N worlds of a task of Brax, on the CPU or on a GPU that JAX finds."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        task: str,
        num_envs: int,
        device: torch.device,
        max_episode_steps: int = LIMIT,
        **env_kwargs: Any,
    ) -> None:
        """`env_kwargs`: of the task itself, such as backend: spring."""
        jax, envs = _imported(task)
        self.num_envs, self.device, self._jax = num_envs, device, jax
        self._jax_device = _jax_device(jax, device)
        if task not in envs._envs:
            raise UserError(f"Brax has no {task}{nearest(task, envs._envs)}")
        with jax.default_device(self._jax_device), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Brax says at each one that it is not maintained: our page says it once
            env = envs.get_environment(task, **env_kwargs)
        self.single_observation_space = Box(-np.inf, np.inf, (env.observation_size,), np.float32)
        self.single_action_space = Box(-1, 1, (env.action_size,), np.float32)
        self._begin, self._advance = _compiled(jax, env, num_envs, max_episode_steps)
        self._seed = 0
        self._worlds: BraxState | None = None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Tensor, Info]:
        """Every world at its episode 0; world i of a seed is the same whatever the number of worlds."""
        self._seed = self._seed if seed is None else seed
        with self._jax.default_device(self._jax_device):
            self._key = self._jax.random.PRNGKey(self._seed)
            # put where it is, as a step's answer will be: else the first step is compiled apart from all others
            self._worlds = self._jax.device_put(self._begin(self._key), self._jax_device)
        return torch.from_dlpack(self._worlds.state.obs), {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Info]:
        """All worlds by one action; `final_obs` in the info, and no world's memory is written again."""
        with self._jax.default_device(self._jax_device):
            jax_actions = self._jax.numpy.from_dlpack(actions.contiguous())
            self._worlds, results = self._advance(self._worlds, self._key, jax_actions)
        observation, reward, terminated, truncated, final_obs = map(torch.from_dlpack, results)
        return observation, reward, terminated, truncated, {"final_obs": final_obs}

    def state_dict(self) -> State:
        """Every array of the worlds, in the tree's order."""
        tensors = [torch.from_numpy(np.array(array)) for array in self._jax.tree.leaves(self._worlds)]
        return {"seed": self._seed, "leaves": tensors}

    def load_state_dict(self, state: State) -> None:
        """Back into the tree of worlds that have been reset."""
        jax = self._jax
        tensors = state["leaves"]
        arrays, structure = jax.tree.flatten(self._worlds)
        if [array.shape for array in arrays] != [tuple(tensor.shape) for tensor in tensors]:
            raise UserError("the checkpoint's environments are of another version of Brax, or of another task")
        self._seed = state["seed"]
        with jax.default_device(self._jax_device):
            self._key = jax.random.PRNGKey(self._seed)
            self._worlds = structure.unflatten([jax.numpy.array(tensor.numpy()) for tensor in tensors])

    def close_extras(self, **kwargs: Any) -> None:
        """JAX keeps what it compiled; the worlds go."""
        self._worlds = None


def _imported(task: str) -> tuple[Any, Any]:
    """JAX and Brax's environments."""
    if find_spec("brax") is None:
        raise UserError(f"{PREFIX}{task} needs Brax: pip install 'stride-rl[brax]'")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of a GPU, and torch has none
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():  # MJX prints what it does not find
        warnings.simplefilter("ignore")
        import jax  # type: ignore[import-not-found]  # only where Brax is
        from brax import envs
    return jax, envs


def _jax_device(jax: Any, device: torch.device) -> Any:
    """JAX's name of a device of torch; UserError where this JAX knows none."""
    if device.type == "cpu":
        return jax.devices("cpu")[0]
    try:
        return jax.devices("gpu")[device.index or 0]
    except RuntimeError as error:
        raise UserError(f"device: {device}: JAX finds no GPU: pip install 'jax[cuda13]'") from error


def _compiled(jax: Any, env: Any, num_envs: int, limit: int) -> tuple[Callable[..., BraxState], Callable[..., Any]]:
    """`begin(key)` and `advance(worlds, key, actions)` for N worlds, each one program of XLA."""
    jnp = jax.numpy

    def solid(tree: Any) -> Any:
        """Types that do not change from step to step: a second program would be compiled for those that do."""
        return jax.tree.map(lambda array: jax.lax.convert_element_type(array, array.dtype), tree)

    def states(key: Any, episodes: Any) -> Any:
        def first_state(world: Any, episode: Any) -> Any:
            return env.reset(jax.random.fold_in(jax.random.fold_in(key, world), episode))

        return solid(jax.vmap(first_state)(jnp.arange(num_envs), episodes))

    def begin(key: Any) -> BraxState:
        zeros = jnp.zeros(num_envs, jnp.int32)
        return BraxState(states(key, zeros), zeros, zeros)

    def advance(worlds: BraxState, key: Any, actions: Any) -> tuple[BraxState, tuple[Any, ...]]:
        state = solid(jax.vmap(env.step)(worlds.state, actions))
        ages = worlds.ages + 1
        terminated = state.done > 0
        truncated = (ages >= limit) & ~terminated
        finished = terminated | truncated
        episodes = worlds.episodes + finished

        def renewed() -> Any:
            def choose(new: Any, old: Any) -> Any:
                return jnp.where(finished.reshape(-1, *[1] * (old.ndim - 1)), new.astype(old.dtype), old)

            return jax.tree.map(choose, states(key, episodes), state)

        next_state = jax.lax.cond(finished.any(), renewed, lambda: state)  # a step in which nobody ends begins nobody
        results = next_state.obs, state.reward, terminated, truncated, state.obs
        return BraxState(next_state, jnp.where(finished, 0, ages), episodes), results

    return jax.jit(begin), jax.jit(advance)


for _task in TASKS:
    gymnasium.register(f"{PREFIX}{_task}", vector_entry_point=partial(BraxWorlds, task=_task), max_episode_steps=LIMIT)
