"""Checks the configs of Dreamer and PlaNet, the algorithms with a world model; checks.py calls it last."""

from stride.config.schema import DreamerConfig, PlaNetConfig, WorldModelConfig
from stride.utils.user_error import UserError

# keys of every algorithm that an algorithm with a world model does not use -> why, or what to set instead
UNUSED_KEYS = {
    "policy": "it has its own network", "policy_kwargs": "it has its own network",
    "hidden_dims": "set width instead", "activation": "it is always SiLU",
    "share_trunk": "actor and critic always share the model",
    "normalize_obs": "it always scales numbers with symlog", "action_mask": "it does not support masks",
    "gradient_steps": "set train_ratio instead",
}  # fmt: skip
# keys that concern only the random part of the model's state, its `stoch` categorical variables
STOCHASTIC_KEYS = ("classes", "unimix", "free_nats", "prior_coef", "posterior_coef")


def check_world_model(config: WorldModelConfig) -> None:
    """Raise UserError for the first broken rule: a key without effect, or sizes that do not fit together."""
    default_values = vars(type(config)())
    for key, explanation in UNUSED_KEYS.items():
        if vars(config)[key] != default_values[key]:
            raise UserError(f"{key} has no effect in {config.algo_id}: {explanation}")
    for key in STOCHASTIC_KEYS if config.stoch == 0 else ():
        if vars(config)[key] != default_values[key]:
            raise UserError(f"{key} has no effect with stoch: 0, where no part of the state is drawn")
    if config.bins is not None and config.bins % 2 == 0:
        raise UserError(f"bins must be odd (the middle bin is 0), not {config.bins}; use {config.bins + 1}")
    if config.train_ratio is not None and config.updates_per_step is not None:
        raise UserError("train_ratio and updates_per_step set the same thing; give one of them")
    sequence_length = config.batch_length
    rows = -(-config.buffer_size // config.n_envs)  # of each environment in the replay memory, rounded up
    if sequence_length + 1 > rows:
        needed = f"batch_length {sequence_length} needs {sequence_length + 1} rows of each environment"
        raise UserError(f"{needed}, but buffer_size {config.buffer_size} gives {rows}; batch_length={rows - 1} fits")
    batch_states = config.batch_size * sequence_length
    if isinstance(config, DreamerConfig) and config.imagined_starts > batch_states:
        raise UserError(f"imagined_starts {config.imagined_starts} is more than the {batch_states} states of a batch")
    if isinstance(config, PlaNetConfig) and config.elites > config.candidates:
        raise UserError(f"elites {config.elites} are more than the {config.candidates} candidates of a round")
