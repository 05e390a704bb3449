"""The backend `ale`: Atari games stepped by ale-py's own vector environment, in threads and without Python."""

import gymnasium

from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.envs_gym.ale_env import AleEnv, GameScreen
from stride.envs_gym.answers import Info
from stride.envs_gym.make import env_errors, find_spec
from stride.envs_gym.wrappers.atari import AtariScreen
from stride.envs_gym.wrappers.registry import is_atari, wrappers_of

NAME = "ale"
KNOWN_KWARGS = ("obs_type", "frameskip", "repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
OUTER_WRAPPERS = ("LifeLoss", "ClipReward")  # wrappers around AtariScreen that this backend does itself


def why_not(config: Config) -> str:
    """Return why this backend cannot play the config, "" where it can.

    It plays games seen by their screen, if AtariScreen is the first wrapper and only OUTER_WRAPPERS are around it.
    """
    if not is_atari(config.env_id):
        return f"{config.env_id} is not an Atari game of ale-py"
    kwargs = config.env_kwargs
    foreign = [name for name in kwargs if name not in KNOWN_KWARGS]
    if foreign:
        return f"only gym supports env_kwargs.{foreign[0]}"
    if kwargs.get("obs_type") in ("ram", "objects"):
        return f"only gym supports obs_type {kwargs['obs_type']}"
    if not isinstance(kwargs.get("frameskip", 4), int):
        return "only gym supports a random frameskip"
    wrappers = wrappers_of(config)
    if not wrappers or wrappers[0]["id"] != "AtariScreen":
        first = f"supports {wrappers[0]['id']}" if wrappers else "shows the whole screen"
        return f"only gym {first}; ale supports grayscale_obs, resize_obs and frame_stack"
    above = [wrapper["id"] for wrapper in wrappers[1:]]
    foreign = [name for name in above if name not in OUTER_WRAPPERS or above.count(name) > 1]
    return f"only gym supports {foreign[0]}" if foreign else ""


def make(config: Config, num_envs: int) -> VecEnv:
    """Make worlds on the CPU. First Gymnasium makes one world, which finds mistakes in the arguments."""
    screen, *above = wrappers_of(config)
    with env_errors(config):
        env_spec = find_spec(config.env_id)
        game = gymnasium.make(env_spec, disable_env_checker=True, **config.env_kwargs)
        arguments = {key: value for key, value in screen.items() if key != "id"}
        wrapper = AtariScreen(game, **arguments)
        game.close()
        game_screen = _game_screen({**env_spec.kwargs, **config.env_kwargs}, wrapper, config.max_episode_steps)
        names = [wrapper["id"] for wrapper in above]
        threads = 0 if config.threads == "auto" else config.threads
        return AleEnv(env_spec.id, num_envs, game_screen, "LifeLoss" in names, "ClipReward" in names, threads)


def _game_screen(kwargs: Info, screen: AtariScreen, max_steps: int | None) -> GameScreen:
    """Return how the game is shown; `max_steps`: the config's own limit, in steps of the policy."""
    limits = [2**31 - 1, kwargs.get("max_num_frames_per_episode")]
    if max_steps is not None:
        limits.append(max_steps * screen.skip)
    return GameScreen(
        game=kwargs["game"],
        skip=screen.skip,
        sticky=kwargs["repeat_action_probability"],
        full_actions=kwargs["full_action_space"],
        limit=min(limit for limit in limits if isinstance(limit, int)),
        grayscale=screen.grayscale,
        size=screen.size,
        stack=screen.stack,
        max_pool=screen.max_pool,
        noop_max=screen.noop_max,
    )
