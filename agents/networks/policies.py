"""Which network a policy's name stands for: POLICIES. A policy of one's own is a row in this table.

A row is a class or a function that makes an ActorCritic (or a subclass) of a Plan; its further arguments, each with a
default, are the policy_kwargs, checked against names and types. For example, in a module of one's own,

    class Wide(ActorCritic):
        def __init__(self, plan: Plan, width: int = 256) -> None:
            super().__init__(plan._replace(hidden_dims=(width,)))

and here `"wide": Wide`, or in a config `policy: my_module:Wide`, or the name that an installed package gives it by an
entry point of the group stride.policies.
"""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, get_type_hints

from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.cnn import CNN, CNNKind
from stride.agents.networks.encoders import images
from stride.agents.networks.recurrent import GRUActorCritic, LSTMActorCritic
from stride.config.checks import nearest_sizes
from stride.config.fields import convert
from stride.config.plugins import find, registered
from stride.config.schema import Config, RolloutConfig
from stride.envs_fast.vec_env import VecEnv
from stride.utils.user_error import UserError, nearest

MOST_FEATURES, MOST_MEMORY = 1 << 20, 1 << 16  # a memory of 65,536 has 17 billion weights


def mlp_policy(plan: Plan, log_std_init: float = 0.0, flatten_images: bool = False) -> ActorCritic:
    """Hidden layers over flat features."""
    shapes = images(plan.observation_space)
    if shapes and not flatten_images:
        seen = " and ".join(str(list(shape)) for shape in shapes)
        raise UserError(
            f"policy: mlp does not read images, and the observation has one {seen}; "
            "take policy=cnn, or policy_kwargs.flatten_images=true where it is none"
        )
    return ActorCritic(plan, log_std_init)


def cnn_policy(plan: Plan, cnn: CNNKind = "nature", features: int = 512, log_std_init: float = 0.0) -> ActorCritic:
    """Hidden layers over the features of a convolutional network, which actor and critic share."""
    if not images(plan.observation_space):
        raise UserError(f"policy: cnn reads images, but the observation is {plan.observation_space}; take policy=mlp")
    return ActorCritic(_with_cnn(plan, cnn, features), log_std_init)


def lstm_policy(
    plan: Plan,
    hidden_size: int | None = None,
    cnn: CNNKind = "nature",
    features: int = 512,
    log_std_init: float = 0.0,
) -> ActorCritic:
    """A memory in the place of the last hidden layer."""
    return LSTMActorCritic(_with_memory(_with_cnn(plan, cnn, features), hidden_size), log_std_init)


def gru_policy(
    plan: Plan,
    hidden_size: int | None = None,
    cnn: CNNKind = "nature",
    features: int = 512,
    log_std_init: float = 0.0,
) -> ActorCritic:
    """The same with a smaller cell."""
    return GRUActorCritic(_with_memory(_with_cnn(plan, cnn, features), hidden_size), log_std_init)


POLICIES: dict[str, Callable[..., ActorCritic]] = {
    "mlp": mlp_policy,
    "cnn": cnn_policy,
    "lstm": lstm_policy,
    "gru": gru_policy,
}


def build_policy(config: Config, envs: VecEnv, critic: bool) -> ActorCritic:
    """The network a config names, for these worlds; its first weights follow from the config and the spaces alone.

    They are drawn on the CPU, whatever the device is that the worlds lie on and it is moved to. UserError where the
    name or an option is unknown, or the observation is not one it reads.
    """
    recipe = find_policy(config.policy)
    options = checked_options(config.policy, recipe, config.policy_kwargs)
    plan = Plan(
        observation_space=envs.observation_space,
        action_space=envs.action_space,
        hidden_dims=config.hidden_dims,
        activation=config.activation,
        share_trunk=config.share_trunk,
        critic=critic,
        normalize_obs=config.normalize_obs,
        seed=config.seed,
    )
    policy = recipe(plan, **options)
    if not isinstance(policy, ActorCritic):
        raise UserError(f"policy: {config.policy} made a {type(policy).__name__}, not an ActorCritic")
    if policy.cut == "worlds" and isinstance(config, RolloutConfig):  # others learn from whole rollouts
        check_whole_worlds(config)
    return policy.to(envs.device)


def check_name(config: Config) -> None:
    """Whether there is such a policy at all: said before anything is compiled for it."""
    find_policy(config.policy)


def find_policy(name: str) -> Callable[..., ActorCritic]:
    """What makes the networks of that name: a row of the table, `module:Name`, or an installed package's; or the
    nearest names."""
    recipe = POLICIES.get(name) or find("policy", "policies", name)
    if recipe is None:
        known = [*POLICIES, *registered("policies")]
        raise UserError(f"unknown policy {name!r}{nearest(name, known)} (known: {', '.join(known)})")
    if isinstance(recipe, type) and not issubclass(recipe, ActorCritic):
        raise UserError(f"policy: {name} is no policy: a subclass of ActorCritic is, or a function that makes one")
    if not callable(recipe):
        raise UserError(f"policy: {name} is {type(recipe).__name__}, neither a class nor a function")
    made: Callable[..., ActorCritic] = recipe
    return made


def checked_options(name: str, recipe: Callable[..., object], given: dict[str, object]) -> dict[str, Any]:
    """policy_kwargs as the types the recipe declares."""
    accepted = options_of(recipe)
    for key in given:
        if key not in accepted:
            has = f"it has {', '.join(accepted)}" if accepted else "it has none"
            raise UserError(f"policy_kwargs: {name} has no {key!r}{nearest(key, accepted)} ({has})")
    return {
        key: value if accepted[key] is Any else convert(f"policy_kwargs.{key}", accepted[key], value)
        for key, value in given.items()
    }


def options_of(recipe: Callable[..., object]) -> dict[str, Any]:
    """Name -> type of its arguments with a default; a constructor with ** passes on what its base class takes."""
    bases = recipe.__mro__ if isinstance(recipe, type) else ()
    found: dict[str, Any] = {}
    for maker in [vars(base)["__init__"] for base in bases if "__init__" in vars(base)] or [recipe]:
        types, parameters = get_type_hints(maker), signature(maker).parameters.values()
        options = {p.name: types.get(p.name, Any) for p in parameters if p.default is not Parameter.empty}
        found = {**options, **found}
        if all(p.kind is not Parameter.VAR_KEYWORD for p in parameters):
            break
    return found


def check_whole_worlds(config: RolloutConfig) -> None:
    """A minibatch of a policy that remembers is whole sequences, n_steps rows each."""
    rows, steps = config.minibatch_size, config.n_steps
    if rows % steps:
        near = " or ".join(str(worlds * steps) for worlds in nearest_sizes(config.n_envs, rows // steps))
        raise UserError(
            f"batch_size {config.batch_size} ({rows} rows) cuts through sequences: policy {config.policy} learns "
            f"from whole worlds of n_steps = {steps} rows; {near} does"
        )


def _with_cnn(plan: Plan, kind: str, features: int) -> Plan:
    if not 1 <= features <= MOST_FEATURES:
        raise UserError(f"policy_kwargs.features must be at least 1 and at most {MOST_FEATURES:,}, not {features}")
    return plan._replace(cnn=CNN(kind, features))


def _with_memory(plan: Plan, hidden_size: int | None) -> Plan:
    """`hidden_size` in the place of the last hidden layer's width."""
    if hidden_size is None and not plan.hidden_dims:
        raise UserError("a recurrent policy with hidden_dims=[] needs policy_kwargs.hidden_size")
    if hidden_size is None:
        return plan
    if not 1 <= hidden_size <= MOST_MEMORY:
        raise UserError(f"policy_kwargs.hidden_size must be at least 1 and at most {MOST_MEMORY:,}, not {hidden_size}")
    return plan._replace(hidden_dims=(*plan.hidden_dims[:-1], hidden_size))
