"""Contenders of lab.bench.envs: the packages whose environments Stride has compiled, and gymnax's versions of them.

    pip install --no-deps minatar minigrid popgym bsuite dm_env gymnax

A package steps one object for each environment, in a Python loop. Gymnax steps all environments in one jitted scan, as
our kernel does; it is compiled before anything is timed. A package that is not installed is left out.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

from lab.bench.families import ACTIONS, Contender, in_turn, of_gymnasium

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
BSUITE: dict[str, tuple[str, str, dict[str, int]]] = {  # our id -> module, class, and arguments as our defaults
    "bsuite/Catch-v0": ("catch", "Catch", {}),
    "bsuite/DeepSea-v0": ("deep_sea", "DeepSea", {"size": 10}),
    "bsuite/DiscountingChain-v0": ("discounting_chain", "DiscountingChain", {}),
    "bsuite/MemoryChain-v0": ("memory_chain", "MemoryChain", {"memory_length": 10}),
}
GYMNAX = {
    **{f"MinAtar/{game}-v1": f"{game}-MinAtar" for game in ("Asterix", "Breakout", "Freeway", "SpaceInvaders")},
    **{env_id: f"{name}-bsuite" for env_id, (_, name, _) in BSUITE.items()},
    **{
        env_id: env_id
        for env_id in ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
    },
}
MODULES = {"MinAtar/SpaceInvaders": "space_invaders"}  # modules of minatar that are not the game's name in lower case


def package(env_id: str, size: int, widest: int = 256) -> Contender | None:
    """Return `size` environments of the package; None above `widest`: a loop over more objects is not faster."""
    if size > widest:
        return None
    try:
        if env_id in BSUITE:
            return _of_bsuite(env_id, size)
        make = _maker(env_id)
    except ImportError:
        return None
    return of_gymnasium(gymnasium.vector.SyncVectorEnv([make] * size)) if make else None


def _maker(env_id: str) -> Callable[[], gymnasium.Env[Any, Any]] | None:
    """Return a function that makes one environment of the package with Gymnasium's interface; None if there is none."""
    if env_id.startswith("MinAtar/"):
        base, plain = import_module("minatar.gym").BaseEnv, env_id.rpartition("-")[0]
        module = MODULES.get(plain, plain.partition("/")[2].lower())
        return lambda: base(module, use_minimal_action_set=env_id.endswith("v1"))
    if env_id.startswith("MiniGrid-"):
        image_only = import_module("minigrid.wrappers").ImgObsWrapper
        return lambda: image_only(gymnasium.make(env_id, disable_env_checker=True))
    if env_id.startswith("popgym-"):
        kind = getattr(import_module("popgym.envs"), env_id[len("popgym-") :].removesuffix("-v0"))
        return lambda: kind()
    return None


def _of_bsuite(env_id: str, size: int) -> Contender:
    """Return environments of bsuite in a loop; after an episode's end, `step` begins the next episode."""
    module, name, arguments = BSUITE[env_id]
    kind = getattr(import_module(f"bsuite.environments.{module}"), name)
    worlds = [kind(**arguments) for _ in range(size)]
    generator = np.random.default_rng(0)
    actions = [generator.integers(worlds[0].action_spec().num_values, size=size).tolist() for _ in range(ACTIONS)]

    def step(chosen: list[int]) -> None:
        for world, action in zip(worlds, chosen, strict=True):
            world.step(action)

    return Contender(in_turn(step, actions), lambda: None, steps=ACTIONS)


def gymnax(env_id: str, size: int, steps: int = 64) -> Contender | None:
    """Return gymnax's version: `steps` steps of all `size` environments in one compiled call; None if there is none.

    Actions are drawn before anything is timed; after an end the next episode begins.
    """
    if env_id not in GYMNAX:
        return None
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    try:
        jax, package = import_module("jax"), import_module("gymnax")
    except ImportError:
        return None
    *_, arguments = BSUITE.get(env_id, ({},))
    size_of_world = {key: value for key, value in arguments.items() if key == "size"}  # others: parameters
    world, parameters = package.make(GYMNAX[env_id], **size_of_world)
    parameters = parameters.replace(**{key: value for key, value in arguments.items() if key not in size_of_world})
    key = jax.random.key(0)
    actions = jax.vmap(lambda key: jax.vmap(world.action_space(parameters).sample)(jax.random.split(key, size)))(
        jax.random.split(key, steps)
    )

    def played(state: Any, key: Any) -> Any:
        def step(state: Any, row: tuple[Any, Any]) -> Any:
            key, action = row
            keys = jax.random.split(key, size)
            obs, state, *rest, _ = jax.vmap(world.step, (0, 0, 0, None))(keys, state, action, parameters)
            return state, (obs, *rest)

        return jax.lax.scan(step, state, (jax.random.split(key, steps), actions))

    compiled = jax.jit(played)
    _, state = jax.jit(jax.vmap(world.reset, (0, None)))(jax.random.split(key, size), parameters)
    return Contender(lambda: jax.block_until_ready(compiled(state, key)), lambda: None, steps=steps)
