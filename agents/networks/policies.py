"""The network that a policy's name stands for: POLICIES. A user's own policy is a row in this table.

A row is a class or a function that makes an ActorCritic (or a subclass) of a Plan; its further arguments, each with a
default, are the policy_kwargs, checked against names and types.
For example a subclass `Wide` whose constructor takes `plan, width: int = 256`: here `"wide": Wide`, in a config
`policy: my_module:Wide`, or the name that an installed package gives it by an entry point of the group stride.policies.
"""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, get_type_hints

import gymnasium as gym

from stride.agents.experience.memory import slots_for
from stride.agents.experience.storage import check_fits
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.cnn import CNN, CNNKind
from stride.agents.networks.encoders import images, reads
from stride.agents.networks.popart import scale_values
from stride.agents.networks.recurrent import (
    GRUActorCritic,
    LSTMActorCritic,
    MinGRUActorCritic,
    RecurrentActorCritic,
    TransformerActorCritic,
)
from stride.config.checks import nearest_sizes
from stride.config.fields import convert
from stride.config.plugins import find, registered
from stride.config.schema import Config, PolicyGradientConfig, RolloutConfig
from stride.envs_fast.vec_env import VecEnv
from stride.utils.user_error import UserError, nearest

MOST_FEATURES, MOST_MEMORY = 1 << 20, 1 << 16  # a memory of 65,536 has 17 billion weights
MOST_CHANNELS, MOST_KERNEL = 1 << 12, 64
MOST_LAYERS, MOST_WINDOW = 64, 1 << 12


def mlp_policy(plan: Plan, log_std_init: float = 0.0, flatten_images: bool = False) -> ActorCritic:
    """Hidden layers over flat features."""
    if not flatten_images:
        check_reads_no_images(plan.observation_space)
    return ActorCritic(plan, log_std_init)


def cnn_policy(
    plan: Plan,
    cnn: CNNKind = "nature",
    features: int = 512,
    channels: tuple[int, ...] | None = None,
    kernel: int | None = None,
    log_std_init: float = 0.0,
) -> ActorCritic:
    """Hidden layers over the features of a convolutional network, which actor and critic share."""
    network = checked_cnn(cnn, features, channels, kernel)
    check_reads_images(plan.observation_space, network)
    return ActorCritic(plan._replace(cnn=network), log_std_init)


def memory_policy(network: type[RecurrentActorCritic], **own_sizes: int) -> Callable[..., ActorCritic]:
    """The recipe of a policy with a memory in the place of the last hidden layer; its own sizes with their defaults."""

    def recipe(
        plan: Plan,
        hidden_size: int | None = None,
        cnn: CNNKind = "nature",
        features: int = 512,
        channels: tuple[int, ...] | None = None,
        kernel: int | None = None,
        log_std_init: float = 0.0,
        **given_sizes: int,
    ) -> ActorCritic:
        if hidden_size is None and not plan.hidden_dims:
            raise UserError("a recurrent policy with hidden_dims=[] needs policy_kwargs.hidden_size")
        if hidden_size is not None:
            _check_size("hidden_size", hidden_size, MOST_MEMORY)
            plan = plan._replace(hidden_dims=(*plan.hidden_dims[:-1], hidden_size))
        width, sizes = plan.hidden_dims[-1], own_sizes | given_sizes
        for key, limit in (("layers", MOST_LAYERS), ("window", MOST_WINDOW), ("heads", width)):
            _check_size(key, sizes.get(key, 1), limit)
        heads = sizes.get("heads", 1)
        if width % heads:
            near_counts = " or ".join(map(str, nearest_sizes(width, heads)))
            raise UserError(
                f"policy_kwargs.heads {heads} does not divide the memory's width {width}; {near_counts} does"
            )
        plan = plan._replace(cnn=checked_cnn(cnn, features, channels, kernel))
        return network(plan, log_std_init, **sizes)

    vars(recipe)["own_sizes"] = own_sizes
    return recipe


def check_reads_images(space: gym.Space, cnn: CNN) -> None:
    parts = space.values() if isinstance(space, gym.spaces.Dict) else [space]
    if any(reads(cnn, part) for part in parts):
        return
    advice = "policy=mlp"
    if any(reads(CNN("small"), part) for part in parts):
        advice = "policy_kwargs.cnn=small, which reads numbers, too"
    raise UserError(f"policy: cnn reads images, but the observation is {space}; use {advice}")


def check_reads_no_images(space: gym.Space) -> None:
    if image_shapes := images(space):
        shape_text = " and ".join(str(list(image_shape)) for image_shape in image_shapes)
        raise UserError(
            f"policy: mlp does not read images, but the observation has one {shape_text}; "
            "use policy=cnn, or policy_kwargs.flatten_images=true if it is not an image"
        )


def checked_cnn(
    cnn: CNNKind = "nature",
    features: int = 512,
    channels: tuple[int, ...] | None = None,
    kernel: int | None = None,
) -> CNN:
    """The network of these policy_kwargs; what is not given of `small` is as in MinAtar."""
    _check_size("features", features, MOST_FEATURES)
    network = CNN(cnn, features)
    if channels is not None:
        _check_small(cnn, "channels")
        if not channels:
            raise UserError("policy_kwargs.channels takes at least one number, not []")
        for count in channels:
            _check_size("channels", count, MOST_CHANNELS)
        network = network._replace(channels=channels)
    if kernel is not None:
        _check_small(cnn, "kernel")
        _check_size("kernel", kernel, MOST_KERNEL)
        network = network._replace(kernel=kernel)
    return network


def _check_small(cnn: str, key: str) -> None:
    if cnn != "small":
        raise UserError(f"policy_kwargs.{key} is an option of cnn: small; cnn: {cnn} has fixed sizes")


def _check_size(key: str, size: int, limit: int) -> None:
    if not 1 <= size <= limit:
        raise UserError(f"policy_kwargs.{key} must be at least 1 and at most {limit:,}, not {size}")


POLICIES: dict[str, Callable[..., ActorCritic]] = {
    "mlp": mlp_policy,
    "cnn": cnn_policy,
    "lstm": memory_policy(LSTMActorCritic),
    "gru": memory_policy(GRUActorCritic),
    "mingru": memory_policy(MinGRUActorCritic, layers=2),
    "transformer": memory_policy(TransformerActorCritic, layers=2, heads=4, window=32),
}


def build_policy(config: Config, envs: VecEnv, critic: bool) -> ActorCritic:
    """The network a config names, for these worlds; its first weights follow from the config and the spaces alone.

    They are drawn on the CPU, whatever the device of the worlds, to which the policy is moved. UserError where the
    name or an option is unknown, or the observation is not one it reads.
    """
    recipe = find_policy(config.policy)
    options = checked_options(config.policy, recipe, config.policy_kwargs)
    spaces = (envs.observation_space, envs.action_space)
    hidden_dims, activation, normalize = config.hidden_dims, config.activation, config.normalize_obs
    plan = Plan(*spaces, hidden_dims, activation, config.share_trunk, critic, normalize, config.seed)
    if isinstance(config, PolicyGradientConfig) and config.has_blocks:
        plan = plan._replace(shapes=(config.actor_shape, config.critic_shape))
    built_policy = recipe(plan, **options)
    if not isinstance(built_policy, ActorCritic):
        raise UserError(f"policy: {config.policy} made a {type(built_policy).__name__}, not an ActorCritic")
    if built_policy.cut == "worlds" and isinstance(config, RolloutConfig):  # others learn from complete rollouts
        check_complete_worlds(config)
        if isinstance(built_policy, TransformerActorCritic):
            check_window(config, built_policy, envs)
    scale_values(built_policy, config, "critic.1")
    return built_policy.to(envs.device)


def check_name(config: Config) -> None:
    """UserError where there is no such policy: before anything is compiled for it."""
    find_policy(config.policy)


def find_policy(name: str) -> Callable[..., ActorCritic]:
    """The class or function that makes the policy of that name: a row of the table, `module:Name`, or of an installed
    package; UserError with the nearest name where there is none."""
    recipe = POLICIES.get(name) or find("policy", "policies", name)
    if recipe is None:
        known_names = [*POLICIES, *registered("policies")]
        raise UserError(f"unknown policy {name!r}{nearest(name, known_names)} (known: {', '.join(known_names)})")
    if isinstance(recipe, type) and not issubclass(recipe, ActorCritic):
        raise UserError(f"policy: {name} is not a subclass of ActorCritic, or a function that makes one")
    if not callable(recipe):
        raise UserError(f"policy: {name} is {type(recipe).__name__}, neither a class nor a function")
    policy_maker: Callable[..., ActorCritic] = recipe
    return policy_maker


def checked_options(name: str, recipe: Callable[..., object], options: dict[str, object]) -> dict[str, Any]:
    """policy_kwargs, converted to the types the recipe declares."""
    accepted = options_of(recipe)
    converted = {}
    for key, value in options.items():
        if key not in accepted:
            names = ", ".join(accepted) or "none"
            raise UserError(f"policy_kwargs: {name} has no {key!r}{nearest(key, accepted)} (it has {names})")
        converted[key] = value if accepted[key] is Any else convert(f"policy_kwargs.{key}", accepted[key], value)
    return converted


def options_of(recipe: Callable[..., object]) -> dict[str, Any]:
    """Name -> type of its arguments with a default; a constructor with ** passes on what its base class takes.

    The recipe of a memory has sizes of its own beside them.
    """
    classes = recipe.__mro__ if isinstance(recipe, type) else ()
    options: dict[str, Any] = dict.fromkeys(getattr(recipe, "own_sizes", ()), int)
    for maker in [vars(base)["__init__"] for base in classes if "__init__" in vars(base)] or [recipe]:
        types = get_type_hints(maker)
        parameters = signature(maker).parameters.values()
        options = {p.name: types.get(p.name, Any) for p in parameters if p.default is not Parameter.empty} | options
        if all(p.kind is not Parameter.VAR_KEYWORD for p in parameters):
            break
    return options


def check_complete_worlds(config: RolloutConfig) -> None:
    """UserError unless a minibatch of a policy that remembers is complete sequences, n_steps rows each."""
    rows, steps = config.minibatch_size, config.n_steps
    if rows % steps:
        near_sizes = " or ".join(str(worlds * steps) for worlds in nearest_sizes(config.n_envs, rows // steps))
        raise UserError(
            f"batch_size {config.batch_size} ({rows} rows) cuts through sequences: policy {config.policy} learns "
            f"from whole sequences of n_steps = {steps} rows; {near_sizes} does"
        )


def check_window(config: RolloutConfig, policy: TransformerActorCritic, envs: VecEnv) -> None:
    """UserError where a window is longer than any episode, or keys and values of a rollout would not fit in memory."""
    limit, configured = envs.time_limit, config.policy_kwargs.get("window")
    window = policy.memories[0].cell.window
    if configured is not None and limit is not None and window >= limit > 1:
        steps = f"episodes have at most {limit} steps"
        raise UserError(f"policy_kwargs.window {window} is never filled: {steps}; window={limit - 1} sees all of one")
    # of final observations, and again while these are valued; the present step, the next, the rollout's start
    states = 2 * slots_for(config.n_steps, limit) + 3
    size = policy.carry_bytes * envs.num_envs * states
    check_fits(size, window, key="policy_kwargs.window", device=envs.device)
