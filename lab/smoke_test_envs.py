"""Plays random actions in every shipped environment, or any Gymnasium id, and checks each promise of VecEnv.

Nothing is trained here; smoke_train_envs does that. `--record FOLDER` stores what a policy would see in each.
"""

import re
import time
from collections.abc import Iterator
from importlib.util import find_spec as find_package
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch
from gymnasium import Space, spaces
from torch import Tensor

from stride.agents.experience.nouns import leaves, tree_map
from stride.commands.usage import parser_of
from stride.config.extras import EXTRAS, missing
from stride.config.listing import list_environments
from stride.config.loader import load_config
from stride.config.scenarios import DOOM, RETRO, doom_scenarios, retro_games
from stride.config.schema import Config
from stride.envs_fast.vec_env import Obs, Step, VecEnv
from stride.envs_gym.check.form import short
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.make import REGISTERED_BY, find_spec, import_module, make_envs
from stride.envs_gym.recorder import EpisodeRecording, Recorder
from stride.envs_gym.wrappers.registry import wrappers_of
from stride.utils import entry
from stride.utils.user_error import UserError

AT_END_ONLY = ("final_obs", "episode_return", "episode_length")  # defined only in environments whose episode ended
WORLDS = 8  # copies of each environment
AFTER_SNAPSHOT = 30  # steps that a restored copy has to repeat
SEED = 1


class PromiseError(AssertionError):
    """A step of an environment breaks a promise of VecEnv."""


class Played(NamedTuple):
    """Returns of the episodes, speed, and how a restored copy continued ("exact" or "seam")."""

    returns: list[float]
    steps_per_second: float
    resume: str


def main(argv: list[str]) -> int:
    """Exit code: 1 when an environment cannot be made or breaks a promise."""
    parser = parser_of(__doc__)
    parser.add_argument("--filter", default="", metavar="TERM", help="names with TERM: shipped, else any")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N environments")
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="steps of each of the 8 worlds")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="the first episode of each: .npz, images as .mp4")
    arguments = parser.parse_args(argv)
    for name, number in (("steps", arguments.steps), ("limit", arguments.limit)):
        if number is not None and number < 1:
            parser.error(f"--{name} takes a number from 1")
    configs = chosen(arguments.filter)
    absent = {config.env_id: extra for config in configs if (extra := missing(config.env_id))}
    configs = [config for config in configs if config.env_id not in absent][: arguments.limit]
    print(row(["environment", "observation", "action", "limit", "resume", "episodes", "random return", "env steps/s"]))
    failed = 0
    for config in configs:
        try:
            print(row([config.env_id, *cells(config, arguments.steps, arguments.record)]), flush=True)
        except (UserError, EnvError, PromiseError) as error:
            failed += 1
            print(f"{config.env_id:<25} FAILED: {error}", flush=True)
    print(f"\n{len(configs) - failed} of {len(configs)} keep the contract, {WORLDS} worlds of each")
    for env_id, extra in absent.items():
        print(f"{env_id} was not tried; it needs {extra.title}: {extra.cure}")
    return 1 if failed else 0


def chosen(term: str) -> list[Config]:
    """Return one config for each environment that `term` means.

    Shipped environments with the term in their name, else in their description; else any known id with it.
    """
    try:
        rows = list_environments(term)
    except UserError:
        env, colon, _ = term.partition(":")
        if colon and env in gymnasium.registry:  # `term` is ENV:VARIANT with a wrong variant
            raise
        return [Config(env_id=env_id) for env_id in ids_with(term)]
    named = [row for row in rows if term.casefold() in f"{row.env}:{row.variant}".casefold()]
    configs = [load_config(row.env, row.variant) for row in named or rows]
    return [*{environment(config): config for config in reversed(configs)}.values()][::-1]


def ids_with(term: str) -> list[str]:
    """Return [term] if it is an id; else the newest versions of all known ids that contain it."""
    families = [f"{DOOM}{name}" for name in doom_scenarios()] + [f"{RETRO}{name}" for name in retro_games()]
    # Atari games are found by any part of their names
    extras = [extra for extra in EXTRAS if extra.name == "atari" or extra.meant_by(term)]
    for extra in (extra for extra in extras if find_package(extra.module)):
        for prefix in REGISTERED_BY.keys() & extra.ids:
            import_module(prefix)
    if term in gymnasium.registry or ":" in term:
        find_spec(term)
        return [term]
    newest: dict[str, str] = {}
    for spec in sorted(gymnasium.registry.values(), key=lambda spec: (spec.name, spec.version or 0)):
        newest[f"{spec.namespace}/{re.sub('-v[0-9]+$', '', spec.id)}"] = spec.id
    known = [env_id for env_id in (*newest.values(), *families) if not env_id.startswith("fast/")]
    matches = [env_id for env_id in known if term.casefold() in env_id.casefold()]
    lacking = [extra for extra in extras if extra.meant_by(term) and find_package(extra.module) is None]
    if lacking and not matches:
        raise UserError(f"{term} needs {lacking[0].title}: {lacking[0].cure}")
    return matches or [find_spec(term).id]


def environment(config: Config) -> str:
    """Return a text that is equal for configs that make the same environments."""
    limit = config.max_episode_steps
    return repr((config.env_id, config.env_backend, config.env_kwargs, wrappers_of(config), limit))


def cells(config: Config, steps: int, record: Path | None = None) -> list[str]:
    """Play, and return the columns of the table; store the first episode of environment 0 in the folder `record`."""
    envs, copy = make_envs(config, WORLDS), make_envs(config, WORLDS)
    recordings: list[EpisodeRecording] = []
    recorder = Recorder(envs, lambda shot: recordings.append(shot) if not recordings else None) if record else envs
    played = play(recorder, copy, steps, raw=not config.env_wrappers)
    if record and recordings:
        keep(recordings[0], record, config.env_id.replace("/", "-").replace(":", "-"))
    envs.close()
    copy.close()
    mean = f"{sum(played.returns) / len(played.returns):.2f}" if played.returns else "-"
    counts = [f"{len(played.returns)}", mean, f"{played.steps_per_second:,.0f}"]
    return [
        short(envs.observation_space), short(envs.action_space), f"{envs.time_limit or '-'}", played.resume, *counts,
    ]  # fmt: skip


def keep(recording: EpisodeRecording, folder: Path, name: str) -> None:
    """Store an episode as NAME.npz, and each image as a video if PyAV is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    recording.save(folder / f"{name}.npz")
    for image in recording.images if find_package("av") else ():
        recording.film(folder / f"{name}{'-' if image else ''}{image}.mp4", image)


def row(texts: list[str]) -> str:
    """Return a row of the table: three columns of text, the others of numbers."""
    words, numbers = texts[:3], texts[3:]
    return f"{words[0]:<25} {words[1]:<20} {words[2]:<14}" + "".join(f"{text:>14}" for text in numbers)


def play(envs: VecEnv, copy: VecEnv, steps: int, raw: bool = True) -> Played:
    """Play random actions and check every step; then `copy` continues a snapshot, and is checked.

    `raw` says that no wrapper changes the reward: then returns must be the sums of the rewards.
    """
    check_observation(envs, envs.reset(SEED), torch.ones(WORLDS, dtype=torch.bool))
    sums, ages = torch.zeros(WORLDS, dtype=torch.float64), torch.zeros(WORLDS)
    returns: list[float] = []
    seconds = 0.0
    for action in random_actions(envs.action_space, steps):
        started = time.perf_counter()
        step = envs.step(action)
        seconds += time.perf_counter() - started
        sums += step.reward
        ages += 1
        ended = check_step(envs, step, sums if raw else step.episode_return.double(), ages)
        returns += step.episode_return[ended].tolist()
        sums[ended], ages[ended] = 0.0, 0.0
    actions = [*random_actions(envs.action_space, AFTER_SNAPSHOT)]
    return Played(returns, steps * WORLDS / seconds, check_snapshot(envs, copy, actions))


def random_actions(space: Space[Any], steps: int, worlds: int = WORLDS) -> Iterator[Tensor]:
    """Yield actions [worlds, ...] for so many steps: uniform, or normal where a Box has no bounds."""
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(steps):
        match space:
            case spaces.Discrete():
                yield torch.randint(int(space.n), (worlds,), generator=generator)
            case spaces.MultiDiscrete():
                counts = torch.from_numpy(space.nvec)
                yield (torch.rand(worlds, len(counts), generator=generator) * counts).long()
            case spaces.Box():
                bounded = torch.from_numpy(space.bounded_below & space.bounded_above)
                uniform = torch.rand(worlds, *space.shape, generator=generator) * 2 - 1
                yield torch.where(bounded, uniform, torch.randn(worlds, *space.shape, generator=generator))


def check(kept: bool, promise: str) -> None:
    """Raise PromiseError if the promise is not kept; `promise` says what is wrong."""
    if not kept:
        raise PromiseError(promise)


def check_observation(envs: VecEnv, obs: Obs, worlds: Tensor) -> None:
    """Check keys, shapes and types of an observation, and that it is finite where `worlds` (bool [N]) is set."""
    space = envs.observation_space
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    arrays = obs if isinstance(obs, dict) else {"": obs}
    check(arrays.keys() == parts.keys(), f"observation has {[*arrays]}, its space {[*parts]}")
    for name, part in parts.items():
        leaf, title = arrays[name], f"observation {name}".strip()
        check(leaf.shape == (WORLDS, *(part.shape or ())), f"{title} has shape {[*leaf.shape]}, its space {part.shape}")
        wanted = torch.bool if isinstance(part, spaces.MultiBinary) else getattr(torch, str(part.dtype))
        check(leaf.dtype == wanted, f"{title} is {leaf.dtype}, its space {wanted}")
        check(bool(leaf[worlds].isfinite().all()), f"{title} is not finite")


def check_step(envs: VecEnv, step: Step, sums: Tensor, ages: Tensor) -> Tensor:
    """Check all promises about one step; return bool [N], which episodes ended.

    `sums` are the rewards and `ages` the steps of each episode so far, [N].
    """
    for name in ("reward", "episode_return", "episode_length"):
        column = step._asdict()[name]
        check(column.shape == (WORLDS,) and column.dtype == torch.float32, f"{name} is not float32 [{WORLDS}]")
        check(bool(column.isfinite().all()), f"{name} is not finite")
    for name, column in (("terminated", step.terminated), ("truncated", step.truncated)):
        check(column.shape == (WORLDS,) and column.dtype == torch.bool, f"{name} is not bool [{WORLDS}]")
    check(not (step.terminated & step.truncated).any(), "a step is both terminated and truncated")
    ended = step.terminated | step.truncated
    check_observation(envs, step.obs, torch.ones_like(ended))
    check_observation(envs, step.final_obs, ended)
    ended &= step.episode_length > 0  # an end without a length is not counted as an episode
    close = torch.isclose(step.episode_return.double(), sums, rtol=1e-4, atol=1e-3)
    check(bool(close[ended].all()), "episode_return is not the sum of the episode's rewards")
    check(bool((step.episode_length == ages)[ended].all()), "episode_length is not the number of the episode's steps")
    if envs.time_limit is not None:
        check(bool((ages <= envs.time_limit).all()), f"an episode is longer than the time limit {envs.time_limit}")
        check(bool(ended[ages == envs.time_limit].all()), f"the time limit {envs.time_limit} did not end an episode")
    return ended


def check_snapshot(envs: VecEnv, copy: VecEnv, actions: list[Tensor]) -> str:
    """Return "exact" if the restored copy repeats every step, "seam" if its first step ends the other episodes."""
    state = envs.state_dict()
    copy.reset(SEED + 1)
    copy.load_state_dict(state)
    same = torch.ones(WORLDS, dtype=torch.bool)
    cut = torch.zeros(WORLDS, dtype=torch.bool)
    for index, action in enumerate(actions):
        first, second = (tree_map(torch.clone, worlds.step(action)) for worlds in (envs, copy))
        cut = second.truncated & (second.reward == 0) if index == 0 else cut
        ended = first.terminated | first.truncated
        for name, column in first._asdict().items():
            for left, right in zip(leaves(column), leaves(second._asdict()[name]), strict=True):
                equal = (left == right).flatten(1).all(1) if left.dim() > 1 else left == right
                same &= equal | ~ended if name in AT_END_ONLY else equal
    check(bool((same | cut).all()), "a restored snapshot goes on differently without having cut the episode")
    return "exact" if bool(same.all()) else "seam"


if __name__ == "__main__":
    entry.run(main)
