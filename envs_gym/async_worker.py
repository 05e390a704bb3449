"""The program of AsyncEnv's worker processes: it steps its worlds and writes results into shared memory.

Parent and worker exchange small messages through a pipe (WorkerTask, WorkerReply); observations, rewards and actions
are in SharedBuffers. async_pool.py is the parent's side.
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
import torch
from gymnasium.envs.registration import EnvSpec
from torch import Tensor

from stride.envs_fast.vec_env import Step
from stride.envs_gym.answers import State
from stride.envs_gym.blame import ASK_LINE, Blame, EnvError
from stride.envs_gym.gym_env import SEEDS, GymEnv
from stride.envs_gym.spaces import map_obs, step_tensors, tensors_of
from stride.envs_gym.wrappers.registry import WrapperConfig
from stride.utils import own_modules
from stride.utils.child_process import end_with_parent
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.interrupted import ENDING
from stride.utils.own_modules import UserModules
from stride.utils.streams import outlive_readers
from stride.utils.user_error import UserError


class WorkerSetup(NamedTuple):
    """Everything that a worker needs at its start."""

    env_id: str
    env_kwargs: Mapping[str, Any]
    max_episode_steps: int | None
    variables: Mapping[str, str]  # the parent's present environment variables: a fork server has older ones
    imports: Sequence[str]  # the user's modules, which may register the environment or a wrapper
    wrappers: Sequence[WrapperConfig]
    own: UserModules  # the user's folders and modules
    spec: EnvSpec | None  # Gymnasium's entry of the id, for ids that a program registered; its entry point is a text


class SharedBuffers(NamedTuple):
    """Tensors in memory that parent and workers share. Only the worker of a world writes that world's row."""

    step: Step
    action: Tensor  # [N, ...]
    pulse: Tensor  # int64 [workers, 2]: number of the world being stepped (-1: none), count of steps begun


class WorkerTask(NamedTuple):
    """A message to a worker."""

    name: str  # reset | step | state | load
    payload: Any = None  # reset: the seed; load: a state of each world
    only: int | None = None  # number of the one world to step; None: all worlds of the worker


class WorkerReply(NamedTuple):
    """A message from a worker."""

    payload: Sequence[Any] = ()  # one entry for each world; state: its state; load: whether its episode was cut
    error: str = ""  # one line on the world `failed`
    failed: int = -1
    trace: str = ""  # the traceback
    lost: str = ""  # set by the pool: why the process was replaced; the new one has no seed and no state yet


def work(
    setup: WorkerSetup, worlds: Sequence[int], shared: SharedBuffers, index: int, pipe: Connection, dump: Connection
) -> None:
    """Run a worker: make the worlds of these numbers, then do the tasks from `pipe` until it closes."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)  # the parent acts on them: it closes the pipe
    if ASK_LINE is not None:
        # writes a traceback into `dump` even while machine code holds Python's lock (GIL)
        faulthandler.register(ASK_LINE, dump.fileno())
    outlive_readers()
    end_with_parent()
    os.environ.clear()
    os.environ.update(setup.variables)
    torch.set_num_threads(1)
    logging.getLogger("stride").setLevel(logging.ERROR)  # the parent logs the same warnings once for all workers
    worker = Worker(setup, shared, index)
    try:
        own_modules.restore(setup.own)
        for module in (*setup.own.imports, *setup.imports):
            importlib.import_module(module)
        if setup.spec is not None:
            gymnasium.registry.setdefault(setup.spec.id, setup.spec)
        worker.build(worlds)
        pipe.send(WorkerReply())
        while True:
            pipe.send(WorkerReply(worker.run(pipe.recv())))
    except (EnvError, UserError) as error:  # the worlds are in an unknown state now: report the reason, then end
        reason = error.reason if isinstance(error, EnvError) else str(error)
        trace = "".join(traceback.format_exception(error.__cause__ or error))
        pipe.send(WorkerReply(error=reason, failed=worker.current, trace=trace))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent closed the pool, or is gone
    finally:
        worker.close()


class Worker:
    """The worlds of one process, by number, and the views of their rows in shared memory."""

    def __init__(self, setup: WorkerSetup, shared: SharedBuffers, index: int) -> None:
        self.worlds: dict[int, GymEnv] = {}
        self.current = -1
        self._setup = setup
        self._actions = shared.action
        self._pulse = shared.pulse[index].numpy()
        self._rows = [tensor.numpy() for tensor in step_tensors(shared.step)]

    def build(self, worlds: Sequence[int]) -> None:
        """Make the worlds of these numbers."""
        integers(Key(0, WORLD), 1, SEEDS)  # loads the kernel for random numbers now, not within a step's time limit
        setup = self._setup
        for world in worlds:
            self._begin(world)
            with Blame(setup.env_id):
                self.worlds[world] = GymEnv(
                    setup.env_id, 1, setup.env_kwargs, setup.max_episode_steps, setup.wrappers, first_world=world
                )
        self._pulse[0] = -1

    def run(self, task: WorkerTask) -> list[Any]:
        """Do a task for one world after the other; return the payload of the reply."""
        payload: list[Any] = []
        for position, (world, env) in enumerate(self.worlds.items()):
            if task.only is not None and world != task.only:
                continue
            self._begin(world)
            if task.name == "step":
                self._write(world, step_tensors(env.step(self._actions[world : world + 1])))
            elif task.name == "reset":
                self._write(world, tensors_of(env.reset(task.payload)))
            elif task.name == "state":
                payload.append(with_arrays(env.state_dict()))
            elif task.name == "load":
                env.load_state_dict(with_tensors(task.payload[position]))
                payload.append(bool(env.state_dict()["cut"]))
        self._pulse[0] = -1
        return payload

    def close(self) -> None:
        """Close every world. The parent no longer waits, so errors are only printed."""
        for world, env in self.worlds.items():
            try:
                env.close()
            except EnvError as error:
                print(f"environment {world}: {error.reason}", file=sys.stderr)

    def _begin(self, world: int) -> None:
        """Note in shared memory that work on this world begins; the parent measures its time limit from here."""
        self.current = world
        self._pulse[0] = world
        self._pulse[1] += 1

    def _write(self, world: int, values: list[Tensor]) -> None:
        """Write tensors into the world's row: all of a step, or only its first ones, the observation, for a reset."""
        for row, value in zip(self._rows, values, strict=False):
            row[world] = value.numpy()[0]


def with_arrays(state: State) -> State:
    """Return a world's state with NumPy arrays in place of tensors, and without the observation.

    A tensor sent through a pipe is only valid while its sender lives. The observation is in shared memory.
    """
    return {**state, "obs": None, "actions": [action.numpy() for action in state["actions"]]}


def with_tensors(state: State) -> State:
    """Return a world's state with tensors in place of NumPy arrays, for its observation too."""
    actions = [torch.from_numpy(action) for action in state["actions"]]
    return {**state, "obs": map_obs(state["obs"], torch.from_numpy), "actions": actions}
