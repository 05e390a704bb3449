"""Loads a run from disk as an agent that plays. It is the only module of the product that deserializes files.

    agent = load_run("@last").agent
    action = agent.act(obs)

Files are outside data: only plain tensors are read, and they must fit the network that the run's config builds.
"""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor
from torch._weights_only_unpickler import UnpicklingError

from stride.agents.algorithms import make_agent
from stride.agents.trained.allowance import Allowance
from stride.agents.trained.checkpoint_archive import check_archive
from stride.agents.trained.player import Player
from stride.config.loader import from_plain
from stride.config.plugins import check_names, trust_in, trusting
from stride.config.schema import Config, PPOConfig, PQNConfig, QLearningConfig, ReplayConfig, RolloutConfig
from stride.config.sizes import check_foreign
from stride.envs_fast.vec_env import VecEnv
from stride.envs_fast.world import WORLDS, fast_id
from stride.envs_gym import backend_gym
from stride.envs_gym.make import import_module, make_envs
from stride.envs_gym.own_code import import_code_of
from stride.envs_gym.rendered import make_rendered
from stride.runstore import checkpoint_set, run_files
from stride.runstore.checkpoint_set import LINKS, Chosen
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import finite, mapping
from stride.runstore.run_fate import fate
from stride.runstore.select import names_published
from stride.utils.user_error import UserError
from stride.utils.wings import load_wing

__all__ = ["LINKS", "LoadedRun", "build_player", "list_checkpoints", "load_run", "read_checkpoint"]

MAX_NUMBER_BYTES = 8  # of one number in an observation
PREFIX = "policy."  # the prefix of the policy's tensors in an agent's state_dict


@dataclass(frozen=True)
class LoadedRun:
    """A run, with one of its checkpoints loaded as an agent that plays."""

    run: RunDir
    config: Config
    agent: Player
    checkpoint: str
    """The file's name, such as epoch=40, also if it was loaded as `best` or `last`."""
    progress: dict[str, int]
    """The counters of the checkpoint: env_steps, iterations, updates."""
    facts: dict[str, Any]
    """config.json: goal, status, versions, and later the outcome."""
    notes: tuple[str, ...] = ()
    """How this differs from what was requested, one line each."""

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.run.path

    @property
    def id(self) -> str:
        """The name by which every command finds the run."""
        return self.run.id

    @property
    def outcome(self) -> dict[str, Any]:
        """How the training ended: solved, reason, test_mean, env_steps, ...; {} while it has not."""
        return mapping(self.facts.get("outcome"))

    @property
    def metrics(self) -> Any:
        """metrics.csv as a pandas.DataFrame, or a list of dicts where there is no pandas; read anew each time."""
        metric_rows = read_csv(self.run.metrics_csv)
        try:
            import pandas  # an optional package, and its import takes half a second
        except ImportError:
            return metric_rows
        return pandas.DataFrame(metric_rows)

    @property
    def goal(self) -> float | None:
        """The mean return that counts as solved; None if there is none."""
        return finite(self.facts.get("goal"))

    def make_envs(self, num_envs: int) -> VecEnv:
        """Make new environments of the run, `num_envs` side by side."""
        return make_envs(self.config, num_envs)

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env:
        """Make a new Gymnasium environment of the run."""
        return make_rendered(self.config, render_mode)


def load_run(selector: str = "@last", checkpoint: str = "best", trust: Sequence[str] = ()) -> LoadedRun:
    """Load the run that `selector` names (as RunDir.find, or hub:user/repo) at `checkpoint`: best, last or epoch=NN.

    If a run comes from elsewhere (the Hub, a path), code that it names is not imported, except modules in `trust`.

    Nothing of the run is changed, and no lock is taken. The run may still be training: its files are always complete.
    If `best` or `last` is damaged, the checkpoint before it is taken, and `notes` says so. UserError, one line, if
    anything is missing, damaged, of another config, or more than plain data. The agent plays; it cannot learn further.
    """
    if names_published(selector):
        return _load_published(selector, checkpoint, trust)
    run = RunDir.find(selector)
    facts = run.facts()
    if "config" not in facts:
        raise UserError(f"{run.config_json} has no config")
    trusted = trust_in(run, trust)
    check_names(facts["config"], trusted, run.id)
    if not run.foreign:
        import_code_of(run)
    config = from_plain(facts["config"], run.id, trust=trusted)
    if run.foreign:
        check_foreign(config, run.id)
    config = to_play(config, facts.get("env_backend"))
    (path, all_notes), state = open_checkpoint(run, checkpoint)
    weights, progress = _weights_and_clock(state, path)
    loaded_player = build_player(config, weights, f"{run.id}, {path.stem}")
    if outcome := fate(run, facts):
        all_notes = (*all_notes, outcome)
    return LoadedRun(run, config, loaded_player, path.stem, progress, facts, tuple(all_notes))


def to_play(config: Config, trained_on: object = "") -> Config:
    """Return the config for playing a run on any machine; `trained_on`: the env_backend of its training."""
    # Gymnasium's own environments can be drawn, so with them episodes watched and counted are the same
    import_module(config.env_id)
    world = WORLDS.get(config.env_id)
    if trained_on == "fast" and world is not None and world.draws_itself:
        ids = (world.env_id, fast_id(world.env_id))
        plain_entry, compiled_entry = (gymnasium.registry[name].entry_point for name in ids)
        if plain_entry != compiled_entry:  # the plain id is an installed package's, which draws it differently
            config = replace(config, env_id=fast_id(world.env_id))
    backend = config.env_backend if backend_gym.why_not(config) else "gym"
    return replace(config, env_backend=backend, device="cpu", engine="eager")


def _load_published(selector: str, checkpoint: str, trust: Sequence[str]) -> LoadedRun:
    """Load the only checkpoint of a repository on the Hub; the result's notes name the commit that was read."""
    published = load_wing("hub").fetch(selector, trusting(trust))
    facts = published.facts
    name = str(facts["checkpoint"])
    if checkpoint not in (*LINKS, name):
        raise UserError(f"{selector} has only the checkpoint {name}, not {checkpoint!r}")
    threads = published.config.threads
    if threads != "auto":
        threads = min(threads, os.cpu_count() or 1)
    config = replace(to_play(published.config, published.facts.get("env_backend")), threads=threads)
    player = build_player(config, published.weights, published.pinned)
    run = RunDir(Path(published.commit))
    return LoadedRun(run, config, player, name, facts["progress"], facts, (f"downloaded {published.pinned}",))


def open_checkpoint(run: RunDir, name: str) -> tuple[Chosen, dict[str, Any]]:
    """Read the checkpoint `name`: best, last or epoch=NN. Tries 3 times, as a training run may delete it meanwhile."""
    for _ in range(3):
        chosen = checkpoint_set.select(run.checkpoints, name, run.id)
        if run_files.exists(chosen.path):
            break
    return chosen, read_checkpoint(chosen.path)


def list_checkpoints(run: RunDir) -> list[str]:
    """Return the names epoch=NN of all checkpoints, in order."""
    return checkpoint_set.epochs(run.checkpoints)


def plain_data(data: bytes, sender: str) -> dict[str, Any]:
    """Unpack bytes from another process of the same training; UserError, naming `sender`, if not plain data."""
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise UserError(f"{sender} sent more than plain data, which was not read") from error
    return state


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint's plain data, on the CPU.

    UserError, one line, if the file differs from its sidecar, is damaged, or contains more than plain data.
    """
    if damage := checkpoint_set.fault(path):
        raise UserError(f"{path} {damage}")
    try:
        with run_files.open_file(path) as checkpoint_file:
            check_archive(checkpoint_file, str(path))
            checkpoint_file.seek(0)
            # weights_only: torch's own unpickler, which makes tensors and plain containers and follows no other name
            state = torch.load(checkpoint_file, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise UserError(f"{path} has more than plain data and was not loaded") from error
    except UserError:
        raise
    # torch.load has no special error for a damaged file: its zip reader and unpickler may raise any error. Only the
    # reading runs in this block, so no error of our own code is hidden
    except Exception as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(state, dict):
        raise UserError(f"{path} is not a checkpoint")
    return state


def _weights_and_clock(state: dict[str, object], path: Path) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Return the policy's tensors by name, and the counters; UserError if the state is not an agent's."""
    tensors, stride = state.get("state_dict"), state.get("stride")
    if not isinstance(tensors, dict) or not isinstance(stride, dict) or not isinstance(stride.get("progress"), dict):
        raise UserError(f"{path} is not a checkpoint of Stride")
    weights = {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}
    return weights, dict(stride["progress"])


def build_player(config: Config, weights: Mapping[str, Tensor], owner: str) -> Player:
    """Build a player of one environment with these weights (a policy's state_dict); UserError unless they fit.

    `owner`: begins error messages, such as "run-id, epoch=40".
    """
    env = make_rendered(config, None)
    observation_space, action_space = env.observation_space, env.action_space
    env.close()
    envs = make_envs(config, 1)
    single = replace(config, n_envs=1)
    if isinstance(single, RolloutConfig | QLearningConfig):
        single = replace(single, n_steps=1)
    if isinstance(single, RolloutConfig):
        single = replace(single, batch_size=1.0)  # one environment is the least for a policy with a memory
    if isinstance(single, PPOConfig | PQNConfig):
        single = replace(single, exploration=None)  # only training needs it
    if isinstance(single, ReplayConfig):
        single = replace(single, buffer_size=1, train_freq=1, replay_storage="ram")  # nothing will be stored
    with Allowance(weights, spaces.flatdim(observation_space) * MAX_NUMBER_BYTES, owner):
        built_policy = make_agent(single, envs).policy
    envs.close()
    _check_fit(built_policy.state_dict(), weights, owner)
    built_policy.load_state_dict(dict(weights))
    return Player(built_policy.eval(), observation_space, action_space)


def _check_fit(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], owner: str) -> None:
    """UserError for the first tensor whose name, shape or dtype differs."""
    consequence = "so weights and config do not match"
    for name in expected.keys() - weights.keys():
        raise UserError(f"{owner}: tensor {name} is missing, {consequence}")
    for name in weights.keys() - expected.keys():
        raise UserError(f"{owner}: the policy has no place for tensor {name}, {consequence}")
    for name, tensor in weights.items():
        tensor_form = _form(tensor) if isinstance(tensor, Tensor) else type(tensor).__name__
        policy_form = _form(expected[name])
        if tensor_form != policy_form:
            raise UserError(f"{owner}: tensor {name} is {tensor_form}, but {policy_form} in the policy, {consequence}")


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"
