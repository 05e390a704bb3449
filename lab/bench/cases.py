"""The trainings that benchmarks time, each with its contenders: Stride by engine, and the peers that are installed.

lab.bench.train and lab.bench.beside use them. A peer is another library that does the same work (peers.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from gymnasium import spaces

import stride
from lab.bench import peers
from lab.bench.measure import OURS, lasting, setting
from lab.bench.peers import Inside, Library, PureJaxRL, Ready
from lab.bench.turns import Prepare
from stride.agents.engines.fused_cpu.kernel_tables import nets_of
from stride.agents.engines.fused_cpu.warm import warm
from stride.agents.trained.loading import LoadedRun
from stride.commands.train_arguments import parse_arguments
from stride.config.diff import IDENTITY_KEYS
from stride.config.general import load_general
from stride.config.loader import to_plain
from stride.config.schema import Config, PPOConfig, ReplayConfig
from stride.envs_gym.make import make_envs
from stride.envs_gym.task import task_of
from stride.runstore.run_names import runs_in

N_STEPS = 128  # of each environment in a rollout
MAX_ROLLOUT_ROWS = 1 << 18  # env steps; with more than 2048 environments a rollout has fewer steps
NO_EVALUATION = ("eval_freq_epochs=null", "test_episodes=0", "early_stop_on_eval_threshold=false")
# algorithm -> environment, and env steps of one timed training
REPLAY = {"dqn": ("CartPole-v1", 20_000), "sac": ("Pendulum-v1", 1_000), "td3": ("HalfCheetah-v5", 1_000)}
MIN_WARM_STEPS = 100  # env steps with updates before anything is timed
# products of a batch with a network in an update: 1 forward, 2 backward (1 if its weights are frozen); TD3 updates its
# actor in every second update
PASSES: dict[str, float] = {"dqn": 4, "sac": 16, "td3": 11.5}
# size -> overrides of the shipped variant, and products of an update as torch counts them (0: not known)
DREAMER: dict[str, tuple[tuple[str, ...], float]] = {
    "0.19 M weights": ((), 1.47e9),
    "0.66 M weights": (("deter=256", "width=128"), 5.16e9),
    "size 1m": (("size=1m",), 0),
}
PONG, PONG_SIZES = "ALE/Pong-v5", ("n_envs=8", "n_steps=128", "n_epochs=4", "batch_size=0.25")
IMAGES: tuple[str, ...] = ("policy=cnn", "hidden_dims=[]", "optimizer=adam", "policy_lr=3e-4", "clip_range=0.2")
IMAGES += ("ent_coef=0", "normalize_reward=false", "engine=eager", "log_freq_epochs=1")
# multiply-adds of an image of 4 x 84 x 84: three convolutions and the linear layer behind them
IMAGE_PRODUCTS = 400 * 256 * 32 + 81 * 512 * 64 + 49 * 576 * 64 + 3136 * 512
FIRST_LAYER_PRODUCTS = 400 * 256 * 32  # of the first convolution, whose input needs no gradient


class Case(NamedTuple):
    """One training and its contenders."""

    title: str
    config: Config
    contenders: Mapping[str, Prepare]  # Stride's come first
    flops: float  # multiplications and additions of an env step, or of an update; 0: not known
    of_an_update: bool = False  # `flops` are those of an update
    iterations: int = 0  # of a timed training; 0: as many as last the seconds that are asked for
    warm: int = 2  # iterations before anything is timed


def ppo_case(config: PPOConfig) -> Case:
    """Return the case of a PPO config.

    With `share_trunk`, which no peer has, SB3 uses two networks; SBX, CleanRL's and PureJaxRL's ways are left out.
    """
    contenders = our_engines(config)
    if peers.installed(peers.SB3):
        contenders["sb3, two nets" if config.share_trunk else "sb3"] = Library(config, peers.SB3)
    if peers.installed(peers.SBX) and not config.share_trunk:
        contenders["sbx"] = Library(config, peers.SBX)
    if config.env_id == "CartPole-v1" and not config.share_trunk:
        contenders["cleanrl style"] = partial(peers.cleanrl, config)
        if peers.installed(peers.JAX):
            contenders["purejaxrl style"] = PureJaxRL(config)
    nets = f"{'shared' if config.share_trunk else 'separate'} {'x'.join(map(str, config.hidden_dims))}"
    return Case(title_of(config, f"{nets} {config.activation}"), config, contenders, flops(config))


def ppo_setting(env_id: str, n_envs: int, threads: int, n_steps: int = 0) -> PPOConfig:
    """Return a PPO config for timing; `n_steps` 0: N_STEPS, or fewer for very many environments."""
    steps = n_steps or min(N_STEPS, MAX_ROLLOUT_ROWS // n_envs)
    return replace(setting(env_id, n_envs, steps, threads), log_freq_epochs=None)


def pufferlib_setting(threads: int) -> PPOConfig:
    """Return PufferLib's setting: 4096 environments, one epoch, one small shared network."""
    config = ppo_setting("CartPole-v1", 4096, threads, n_steps=64)
    return replace(config, n_epochs=1, batch_size=32768, hidden_dims=(128,), share_trunk=True)


def replay_case(algo_id: str, threads: int, env_id: str = "", more: Sequence[str] = ()) -> Case:
    """Return the case of "dqn", "sac" or "td3": the shipped variant with a short budget and without evaluations.

    `more`: further overrides. SB3 is timed with all threads and with one.
    """
    usual_env, steps = REPLAY[algo_id]
    config = config_of(f"{env_id or usual_env}:{algo_id}", (*more, f"max_timesteps={steps}"), threads)
    assert isinstance(config, ReplayConfig)
    contenders = our_engines(config)
    if peers.installed(peers.SB3):
        for count in sorted({config.torch_threads, 1}):
            contenders[f"sb3, {count} thread(s)"] = Library(config, peers.SB3, count)
    if peers.installed(peers.SBX):
        contenders["sbx"] = Library(config, peers.SBX)
    warm_steps = config.learning_starts + max(MIN_WARM_STEPS, 2 * config.train_freq)
    whole, first = (-(-count // config.iteration_steps) for count in (steps, warm_steps))  # iterations, rounded up
    widths = "x".join(map(str, config.hidden_dims))
    title = f"{algo_id} on {config.env_id}, {widths}, batch {config.batch_size}, {config.threads} thread(s)"
    hidden_layers = sum(a * b for a, b in pairwise(config.hidden_dims))  # multiply-adds of an update, these alone
    flops_of_update = 2.0 * PASSES[algo_id] * config.batch_size * hidden_layers
    return Case(title, config, contenders, flops_of_update, True, whole, first)


def dreamer_cases(threads: int, sizes: Sequence[str] = ()) -> Iterator[Case]:
    """Yield the cases of these sizes, keys of DREAMER; all if `sizes` is empty.

    The largest has eager only: the compiled kernels do not support its blocks.
    """
    for size in sizes or DREAMER:
        overrides, flops_of_update = DREAMER[size]
        config = config_of("CartPole-v1:dreamer", overrides, threads)
        assert isinstance(config, ReplayConfig)
        engines = OURS if flops_of_update else OURS[1:]
        contenders: dict[str, Prepare] = {engine: partial(ours, replace(config, engine=engine)) for engine in engines}
        whole, first = (-(-(config.learning_starts + more) // config.iteration_steps) for more in (256, 32))
        title = f"dreamer on CartPole-v1, {size}, {config.threads} thread(s)"
        yield Case(title, config, contenders, flops_of_update, True, whole, first)


def pong_case(threads: int) -> Case:
    """Return the case of Pong from its screen; all contenders use the "nature" network with 512 features."""
    config = pong_setting(threads)
    contenders: dict[str, Prepare] = {"eager": partial(ours, config)}
    contenders["eager, bf16"] = partial(ours, replace(config, precision="bf16"))
    if peers.installed(peers.SB3):
        contenders["sb3"] = Library(config, peers.SB3)
    contenders["cleanrl style"] = partial(peers.cleanrl, config)
    title = title_of(config, "nature network of 512 features, an env step is four frames")
    return Case(title, config, contenders, image_flops(config), iterations=2, warm=1)


def pong_setting(threads: int) -> PPOConfig:
    config = load_general(f"{PONG}:ppo", [*PONG_SIZES, *IMAGES, *NO_EVALUATION, f"threads={threads}"], task_of)
    assert isinstance(config, PPOConfig)
    return config


def config_of(words: str, overrides: Sequence[str], threads: int) -> Config:
    """Return the config of ENV:VARIANT (`words`) for a training without evaluations."""
    return parse_arguments([words, *NO_EVALUATION, *overrides, f"threads={threads}"]).load(task_of)


def title_of(config: PPOConfig, nets: str) -> str:
    minibatches = config.rollout_size // config.minibatch_size
    work = f"{config.n_envs} worlds x {config.n_steps} steps, {config.n_epochs} epochs x {minibatches} minibatches"
    return f"{config.env_id}, {work}, {nets}, {config.threads} thread(s)"


def our_engines(config: Config) -> dict[str, Prepare]:
    """Return Stride's contenders, one for each engine; kernels are compiled here, once for all processes."""
    warm(make_envs(config, 1), config.algo_id, nets_of(config))
    return {engine: partial(ours, replace(config, engine=engine)) for engine in OURS}


def ours(config: Config, iterations: int) -> Ready:
    """Prepare `stride.train(...)` as a program calls it, from its arguments to the run that it returns."""
    words, changes = call_of(lasting(config, iterations))
    folder = TemporaryDirectory(prefix="stride-bench-")

    def run() -> LoadedRun:
        with runs_in(folder.name), redirect_stdout(StringIO()):
            return stride.train(words, quiet=True, **changes)

    return Ready(run, folder.cleanup, inside)


def inside(run: LoadedRun) -> Inside:
    """Return the seconds of the training inside a whole call, and its updates."""
    outcome = run.outcome
    return Inside(outcome["seconds"], run.progress["updates"], outcome["seconds"] * outcome["phases"].get("learn", 0.0))


def call_of(config: Config) -> tuple[str, dict[str, Any]]:
    """Return the arguments of `stride.train` that give this config: ENV:ALGORITHM, and the keys that differ."""
    words, plain = f"{config.env_id}:{config.algo_id}", to_plain(config)
    base = to_plain(parse_arguments([words]).load(task_of))
    return words, {key: plain[key] for key in plain if key not in IDENTITY_KEYS and plain[key] != base[key]}


def flops(config: PPOConfig) -> int:
    """Return the multiplications and additions of one env step of PPO with dense layers.

    Acting and valuing need one forward pass, each epoch three more (forward, gradients of weights, of inputs). The
    first layer needs no gradient of its input.
    """
    envs = make_envs(config, 1)
    actions, observed = envs.action_space, spaces.flatdim(envs.observation_space)
    outputs = int(actions.n) if isinstance(actions, spaces.Discrete) else spaces.flatdim(actions)
    sizes = (observed, *config.hidden_dims)
    torso, trunks = sum(a * b for a, b in pairwise(sizes)), 1 if config.share_trunk else 2
    forward = 2 * (trunks * torso + sizes[-1] * (outputs + 1))
    return forward + config.n_epochs * (3 * forward - trunks * 2 * sizes[0] * sizes[1])


def image_flops(config: PPOConfig) -> int:
    """Return the multiplications and additions of one env step of PPO on images."""
    return 2 * (IMAGE_PRODUCTS * 2 + config.n_epochs * (3 * IMAGE_PRODUCTS - FIRST_LAYER_PRODUCTS))
