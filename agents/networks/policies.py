"""The table POLICIES: the on-policy network that each name of the key `policy` stands for.

A row is a class or a function (a "recipe") that makes an ActorCritic or a subclass from a Plan. Its other arguments,
each with a default, are the policy_kwargs; their names and types are checked.
For example a user's subclass `Wide` has a constructor with `plan, width: int = 256`. It can be a row `"wide": Wide`
here, `policy: my_module:Wide` in a config, or a package's entry point in the group stride.policies.
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

MAX_FEATURES, MAX_MEMORY = 1 << 20, 1 << 16  # widths; a memory of 65,536 has 17 billion weights
MAX_CHANNELS, MAX_KERNEL = 1 << 12, 64  # filters; pixels
MAX_LAYERS, MAX_WINDOW = 64, 1 << 12  # of a memory; steps


def mlp_policy(plan: Plan, log_std_init: float = 0.0, flatten_images: bool = False) -> ActorCritic:
    """Make hidden layers over flat features; `flatten_images`: accept images, too, flattened."""
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
    """Make hidden layers over the features of a convolutional network, which actor and critic share."""
    network = checked_cnn(cnn, features, channels, kernel)
    check_reads_images(plan.observation_space, network)
    return ActorCritic(plan._replace(cnn=network), log_std_init)


def memory_policy(network: type[RecurrentActorCritic], **own_sizes: int) -> Callable[..., ActorCritic]:
    """Return the recipe of a policy with a memory in place of its last hidden layer.

    `own_sizes`: the options of this kind of memory with their defaults, such as layers=2.
    """

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
            _check_size("hidden_size", hidden_size, MAX_MEMORY)
            plan = plan._replace(hidden_dims=(*plan.hidden_dims[:-1], hidden_size))
        width, sizes = plan.hidden_dims[-1], own_sizes | given_sizes
        for key, limit in (("layers", MAX_LAYERS), ("window", MAX_WINDOW), ("heads", width)):
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
    """UserError if the observation has no part that this network reads as an image."""
    parts = space.values() if isinstance(space, gym.spaces.Dict) else [space]
    if any(reads(cnn, part) for part in parts):
        return
    advice = "policy=mlp"
    if any(reads(CNN("small"), part) for part in parts):
        advice = "policy_kwargs.cnn=small, which reads numbers, too"
    raise UserError(f"policy: cnn reads images, but the observation is {space}; use {advice}")


def check_reads_no_images(space: gym.Space) -> None:
    """UserError if the observation has images of bytes."""
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
    """Return the CNN of these policy_kwargs; default sizes of `small` are MinAtar's. UserError if one is invalid."""
    _check_size("features", features, MAX_FEATURES)
    network = CNN(cnn, features)
    if channels is not None:
        _check_small(cnn, "channels")
        if not channels:
            raise UserError("policy_kwargs.channels takes at least one number, not []")
        for count in channels:
            _check_size("channels", count, MAX_CHANNELS)
        network = network._replace(channels=channels)
    if kernel is not None:
        _check_small(cnn, "kernel")
        _check_size("kernel", kernel, MAX_KERNEL)
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
    """Build the network that a config names, on the device of the environments.

    Its first weights depend on the config and the spaces only: they are drawn on the CPU and then moved. UserError if
    the name or an option is unknown, or if the policy cannot read the observation.
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
    if built_policy.cut == "worlds" and isinstance(config, RolloutConfig):  # other algorithms have no minibatches
        check_complete_worlds(config)
        if isinstance(built_policy, TransformerActorCritic):
            check_window(config, built_policy, envs)
    scale_values(built_policy, config, "critic.1")
    return built_policy.to(envs.device)


def check_name(config: Config) -> None:
    """UserError if the config's policy does not exist; called before anything is compiled."""
    find_policy(config.policy)


def find_policy(name: str) -> Callable[..., ActorCritic]:
    """Return the recipe of a policy: a row of the table, `module:Name`, or a plugin of an installed package.

    UserError, with the nearest known name, if there is none.
    """
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
    """Return policy_kwargs converted to the types that the recipe `name` declares; UserError for an unknown key."""
    accepted = options_of(recipe)
    converted = {}
    for key, value in options.items():
        if key not in accepted:
            names = ", ".join(accepted) or "none"
            raise UserError(f"policy_kwargs: {name} has no {key!r}{nearest(key, accepted)} (it has {names})")
        converted[key] = value if accepted[key] is Any else convert(f"policy_kwargs.{key}", accepted[key], value)
    return converted


def options_of(recipe: Callable[..., object]) -> dict[str, Any]:
    """Return {name: type} of a recipe's arguments that have a default.

    If a constructor takes **kwargs, arguments of its base class count, too; for `memory_policy` also `own_sizes`.
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
    """UserError unless minibatches are complete sequences of n_steps rows, as a policy with a memory needs."""
    rows, steps = config.minibatch_size, config.n_steps
    if rows % steps:
        near_sizes = " or ".join(str(worlds * steps) for worlds in nearest_sizes(config.n_envs, rows // steps))
        raise UserError(
            f"batch_size {config.batch_size} ({rows} rows) cuts through sequences: policy {config.policy} learns "
            f"from whole sequences of n_steps = {steps} rows; {near_sizes} does"
        )


def check_window(config: RolloutConfig, policy: TransformerActorCritic, envs: VecEnv) -> None:
    """UserError if the window is longer than any episode, or if keys and values of a rollout do not fit in memory."""
    limit, configured = envs.time_limit, config.policy_kwargs.get("window")
    window = policy.memories[0].cell.window
    if configured is not None and limit is not None and window >= limit > 1:
        steps = f"episodes have at most {limit} steps"
        raise UserError(f"policy_kwargs.window {window} is never filled: {steps}; window={limit - 1} sees all of one")
    # carries in memory at once: with final observations, twice while these are valued; and 3 more for the present
    # step, the next one and the start of the rollout
    states = 2 * slots_for(config.n_steps, limit) + 3
    size = policy.carry_bytes * envs.num_envs * states
    check_fits(size, window, key="policy_kwargs.window", device=envs.device)
