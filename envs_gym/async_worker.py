"""What runs in a worker process of AsyncEnv: its worlds one after another, results into shared memory.

The protocol is here too; who waits for whom, and for how long, is decided in async_env.py.
"""

import faulthandler
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step
from stride.envs_gym.blame import Blame, EnvError
from stride.envs_gym.gym_env import SEEDS, GymEnv
from stride.envs_gym.wrappers.registry import WrapperConfig
from stride.utils import own_modules
from stride.utils.child_process import end_with_parent
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.interrupted import ENDING
from stride.utils.own_modules import UserModules
from stride.utils.streams import outlive_readers
from stride.utils.user_error import UserError

WHERE: signal.Signals | None = vars(signal).get("SIGUSR1")  # asks a worker for the line it is in; None on Windows
State = dict[str, Any]


class WorkerSetup(NamedTuple):
    """What a worker is told once, when it starts."""

    env_id: str
    env_kwargs: Mapping[str, Any]
    max_episode_steps: int | None
    worlds: Sequence[int]  # the global indices of its own
    variables: Mapping[str, str]  # the parent's environment now: a fork server remembers an older one
    imports: Sequence[str] = ()  # modules of the user's, which may register the environment or a wrapper
    wrappers: Sequence[WrapperConfig] = ()
    own: UserModules = UserModules()
    spec: EnvSpec | None = None  # Gymnasium's entry of the id, where a program made it; its entry point is a text


class Shared(NamedTuple):
    """Tensors both sides see; a row is written by the worker of that world only, while it steps it."""

    step: Step
    action: Tensor  # [N, ...]
    pulse: Tensor  # int64 [workers, 2]: the world being stepped (-1: none) and how many steps were begun


class Task(NamedTuple):
    """A message to a worker."""

    name: str  # reset | step | state | load
    worlds: Sequence[int] = ()
    payload: Any = None  # reset: the seed; load: a state of each world


class Answer(NamedTuple):
    """A message from a worker."""

    worlds: Sequence[int]  # that are done
    payload: Sequence[Any] = ()  # state: of each world; load: whether its episode was cut
    error: str = ""  # one line about `failed`
    failed: int = -1
    trace: str = ""
    lost: str = ""  # by the pool: the worker is a new one that knows nothing yet, and why


def work(setup: WorkerSetup, shared: Shared, place: int, pipe: Connection, last_words: Connection) -> None:
    """A worker's whole life: build the worlds, then do what the pipe says until it closes."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)  # the parent's; it closes the pipe
    if WHERE is not None:
        faulthandler.register(WHERE, last_words.fileno())  # answered even where machine code keeps Python's lock
    outlive_readers()
    end_with_parent()
    os.environ.clear()
    os.environ.update(setup.variables)
    torch.set_num_threads(1)
    logging.getLogger("stride").setLevel(logging.ERROR)  # the parent says once what all workers would say
    worker = Worker(setup.env_id, shared, place, pipe)
    try:
        own_modules.restore(setup.own)
        for module in (*setup.own.imports, *setup.imports):
            importlib.import_module(module)
        if setup.spec is not None:
            gymnasium.registry.setdefault(setup.spec.id, setup.spec)
        worker.build(setup)
        while True:
            worker.do(pipe.recv())
    except (EnvError, UserError) as error:  # its worlds are in an unknown state now: tell why, and end
        cause, reason = error.__cause__ or error, error.reason if isinstance(error, EnvError) else str(error)
        pipe.send(Answer((), error=reason, failed=worker.now, trace="".join(traceback.format_exception(cause))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent closed the pool, or is gone
    finally:
        worker.close()


class Worker:
    """The worlds of one process and their rows in shared memory."""

    def __init__(self, env_id: str, shared: Shared, place: int, pipe: Connection) -> None:
        self.worlds: dict[int, GymEnv] = {}
        self.now = -1
        self._blame, self._pipe, self._actions = Blame(env_id), pipe, shared.action
        self._pulse: np.ndarray = shared.pulse.numpy()[place]
        self._rows = [leaf.numpy() for leaf in leaves(shared.step)]

    def build(self, setup: WorkerSetup) -> None:
        integers(Key(0, WORLD), 1, SEEDS)  # a kernel is loaded: no limit of a step should have to hold that
        for index in setup.worlds:
            self._begin(index)
            with self._blame:
                asked = setup.env_kwargs, setup.max_episode_steps, setup.wrappers
                self.worlds[index] = GymEnv(setup.env_id, 1, *asked, first_world=index)
        self._pulse[0] = -1
        self._pipe.send(Answer(setup.worlds))

    def do(self, task: Task) -> None:
        """Carry out a task world by world."""
        payload: list[Any] = []
        for position, index in enumerate(task.worlds):
            self._begin(index)
            world = self.worlds[index]
            if task.name == "step":
                self._copy(index, leaves(world.step(self._actions[index : index + 1])))
            elif task.name == "reset":
                self._copy(index, leaves((world.reset(task.payload),)))  # the observation alone
            elif task.name == "state":
                payload.append(with_arrays(world.state_dict()))
            elif task.name == "load":
                world.load_state_dict(with_tensors(task.payload[position]))
                payload.append(bool(world.state_dict()["cut"]))
        self._pulse[0] = -1
        self._pipe.send(Answer(task.worlds, payload))

    def close(self) -> None:
        """Close every world; nobody waits any more, so what goes wrong is only told."""
        for index, world in self.worlds.items():
            try:
                world.close()
            except EnvError as error:
                print(f"world {index}: {error.reason}", file=sys.stderr)

    def _begin(self, index: int) -> None:
        self.now = index
        self._pulse[0] = index
        self._pulse[1] += 1

    def _copy(self, index: int, values: list[Tensor]) -> None:
        """Into the world's row; fewer values than a step has are its first ones."""
        for row, value in zip(self._rows, values, strict=False):
            row[index] = value.numpy()[0]


def leaves(trees: Sequence[Obs]) -> list[Tensor]:
    """The tensors of a step or of a part of it, in an order both sides agree on."""
    return [leaf for tree in trees for leaf in ([tree[k] for k in sorted(tree)] if isinstance(tree, dict) else [tree])]


def with_arrays(state: State) -> State:
    """A state of one world with arrays for tensors: a tensor in a pipe would ask for its sender to live on."""
    return {**state, "obs": None, "actions": [action.numpy() for action in state["actions"]]}


def with_tensors(state: State) -> State:
    """The way back; the parent has put the observation in, as arrays."""
    obs = state["obs"]
    return {
        **state,
        "obs": {k: torch.from_numpy(v) for k, v in obs.items()} if isinstance(obs, dict) else torch.from_numpy(obs),
        "actions": [torch.from_numpy(action) for action in state["actions"]],
    }
