"""Brax's tasks as one simulation of N worlds that returns torch tensors, compiled by JAX.

Importing this module registers `brax/ant` and the other tasks; Brax itself is imported when one is made. Arrays pass
between JAX and torch through dlpack without a copy. Brax's own wrappers begin every episode in the same state and do
not report its last observation. Here the first state of an episode is drawn by seed, world and episode, the last
observation is reported, and the whole state is a tree of arrays, so a resume is exact.
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
MAX_EPISODE_STEPS = 1000  # Brax's usual limit


class BraxState(NamedTuple):
    """The state of N worlds: everything that their future depends on, except the random key. JAX arrays [N, ...]."""

    state: Any  # brax.envs.State
    ages: Any  # int32: steps of the running episode
    episodes: Any  # int32: number of the running episode


class BraxWorlds(VectorEnv):
    """N worlds of one Brax task, on the CPU or on a GPU that JAX finds."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        task: str,
        num_envs: int,
        device: torch.device,
        max_episode_steps: int = MAX_EPISODE_STEPS,
        **env_kwargs: Any,
    ) -> None:
        """`env_kwargs`: arguments of the task itself, such as backend: spring."""
        jax, envs = _imported(task)
        self.num_envs, self.device, self._jax = num_envs, device, jax
        self._jax_device = _jax_device(jax, device)
        if task not in envs._envs:
            raise UserError(f"Brax has no {task}{nearest(task, envs._envs)}")
        with jax.default_device(self._jax_device), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Brax warns each time that it is not maintained; our docs say it once
            env = envs.get_environment(task, **env_kwargs)
        self.single_observation_space = Box(-np.inf, np.inf, (env.observation_size,), np.float32)
        self.single_action_space = Box(-1, 1, (env.action_size,), np.float32)
        self._begin, self._advance = _compiled(jax, env, num_envs, max_episode_steps)
        self._seed = 0
        self._worlds: BraxState | None = None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Tensor, Info]:
        """Begin episode 0 in every world; world i of a seed begins the same for any number of worlds."""
        self._seed = self._seed if seed is None else seed
        with self._jax.default_device(self._jax_device):
            self._key = self._jax.random.PRNGKey(self._seed)
            # results of a step are committed to the device, too: otherwise JAX compiles the first step separately
            self._worlds = self._jax.device_put(self._begin(self._key), self._jax_device)
        return torch.from_dlpack(self._worlds.state.obs), {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Info]:
        """Advance all worlds; the info has `final_obs`. Results are in new memory at each step."""
        with self._jax.default_device(self._jax_device):
            jax_actions = self._jax.numpy.from_dlpack(actions.contiguous())
            self._worlds, results = self._advance(self._worlds, self._key, jax_actions)
        observation, reward, terminated, truncated, final_obs = map(torch.from_dlpack, results)
        return observation, reward, terminated, truncated, {"final_obs": final_obs}

    def state_dict(self) -> State:
        """Return the seed and all arrays of the worlds, in the order of JAX's tree."""
        tensors = [torch.from_numpy(np.array(array)) for array in self._jax.tree.leaves(self._worlds)]
        return {"seed": self._seed, "leaves": tensors}

    def load_state_dict(self, state: State) -> None:
        """Load saved arrays; the worlds must have been reset before, which makes the tree for them."""
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
        """Release the worlds' arrays; JAX keeps the compiled programs."""
        self._worlds = None


def _imported(task: str) -> tuple[Any, Any]:
    """Import and return JAX and `brax.envs`; UserError where Brax is not installed."""
    if find_spec("brax") is None:
        raise UserError(f"{PREFIX}{task} needs Brax: pip install 'stride-rl[brax]'")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of the GPU's memory
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():  # MJX prints which packages it does not find
        warnings.simplefilter("ignore")
        import jax  # type: ignore[import-not-found]  # only where Brax is
        from brax import envs
    return jax, envs


def _jax_device(jax: Any, device: torch.device) -> Any:
    """Return JAX's device for a torch device; UserError where this JAX finds no GPU."""
    if device.type == "cpu":
        return jax.devices("cpu")[0]
    try:
        return jax.devices("gpu")[device.index or 0]
    except RuntimeError as error:
        raise UserError(f"device: {device}: JAX finds no GPU: pip install 'jax[cuda13]'") from error


def _compiled(jax: Any, env: Any, num_envs: int, limit: int) -> tuple[Callable[..., BraxState], Callable[..., Any]]:
    """Return `begin(key)` and `advance(worlds, key, actions)` for N worlds, each compiled to one XLA program.

    `begin` returns the first BraxState. `advance` returns the next BraxState and (obs, reward, terminated, truncated,
    final_obs).
    """
    jnp = jax.numpy

    def with_strong_types(tree: Any) -> Any:
        """Make "weak" types strong, so that types are equal at each step: JAX compiles again for other types."""
        return jax.tree.map(lambda array: jax.lax.convert_element_type(array, array.dtype), tree)

    def first_states(key: Any, episodes: Any) -> Any:
        """Return the first state of these episodes, one for each world."""

        def first_state(world: Any, episode: Any) -> Any:
            return env.reset(jax.random.fold_in(jax.random.fold_in(key, world), episode))

        return with_strong_types(jax.vmap(first_state)(jnp.arange(num_envs), episodes))

    def begin(key: Any) -> BraxState:
        zeros = jnp.zeros(num_envs, jnp.int32)
        return BraxState(first_states(key, zeros), zeros, zeros)

    def advance(worlds: BraxState, key: Any, actions: Any) -> tuple[BraxState, tuple[Any, ...]]:
        state = with_strong_types(jax.vmap(env.step)(worlds.state, actions))
        ages = worlds.ages + 1
        terminated = state.done > 0
        truncated = (ages >= limit) & ~terminated
        finished = terminated | truncated
        episodes = worlds.episodes + finished

        def with_new_episodes() -> Any:
            def choose(new: Any, old: Any) -> Any:
                return jnp.where(finished.reshape(-1, *[1] * (old.ndim - 1)), new.astype(old.dtype), old)

            return jax.tree.map(choose, first_states(key, episodes), state)

        next_state = jax.lax.cond(finished.any(), with_new_episodes, lambda: state)  # no reset is computed without need
        results = next_state.obs, state.reward, terminated, truncated, state.obs
        return BraxState(next_state, jnp.where(finished, 0, ages), episodes), results

    return jax.jit(begin), jax.jit(advance)


for _task in TASKS:
    gymnasium.register(
        f"{PREFIX}{_task}", vector_entry_point=partial(BraxWorlds, task=_task), max_episode_steps=MAX_EPISODE_STEPS
    )
