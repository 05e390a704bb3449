"""The compiled loops still work on whole vectors: a change that makes LLVM give up fails here, not in a benchmark."""

import platform
import re

import numpy as np
import pytest
from gymnasium.spaces import Box
from numba import njit

from stride.envs_fast.registry import WORLDS
from stride.envs_fast.tiles import MOVE, Tile
from stride.envs_fast.world import NUMBA, TILE, Stream

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="reads x86 assembly, this is another processor"
)
PACKED = re.compile(r"^\s*v?(?:mul|add|sub|div|fn?madd\d+|fn?msub\d+)pd\s", re.MULTILINE)
SCALAR = re.compile(r"^\s*v?(?:mul|add|sub|div|fn?madd\d+|fn?msub\d+)sd\s", re.MULTILINE)
CONTROL = [name for name, world in WORLDS.items() if isinstance(world.setting().observation_space, Box)]


OTHERS = [pytest.param(env_id, marks=pytest.mark.slow) for env_id in CONTROL if env_id != "CartPole-v1"]


@pytest.mark.parametrize("env_id", ["CartPole-v1", *OTHERS])
def test_the_step_loop_is_vectorised(env_id):
    move = WORLDS[env_id].kernels[NUMBA].advance.py_func.__globals__["move"]
    column, row, flags = np.zeros(TILE), np.zeros(TILE, np.int32), np.zeros(TILE, np.uint8)
    setting = WORLDS[env_id].setting()
    continuous = isinstance(setting.action_space, Box)
    obs = np.zeros(setting.observation_space.shape[0] * TILE, np.float32)
    action, reward = np.zeros(TILE, np.float32 if continuous else np.int64), np.zeros(TILE, np.float32)
    rows = tuple(np.zeros((WORLDS[env_id].state_size, TILE)))
    tile = Tile(rows, row, row.copy(), column, column.copy(), action, obs, reward, flags, flags.copy())
    kernel = njit(**{**MOVE, "cache": False})(move.py_func)  # kernels loaded from the cache keep no assembly
    kernel(tile, Stream(0, 0, 0), setting.parameters, setting.tables)
    (assembly,), (code,) = kernel.inspect_asm().values(), kernel.inspect_llvm().values()
    assert "vector.memcheck" not in code, "a loop that looks for overlaps first may find them where there are none"
    packed, scalar = len(PACKED.findall(assembly)), len(SCALAR.findall(assembly))
    print(env_id, packed, scalar)
    assert packed >= 8, f"{packed} packed and {scalar} scalar operations"
    assert packed >= 0.8 * scalar, f"{packed} packed, {scalar} scalar: the scalar loop for the rest does it once too"
    assert not re.search(r"\bcall\w*\s.*(sin|cos|exp|log|fmod|pow|rint|floor)", assembly)
