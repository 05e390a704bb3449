"""Lists the combinations of actor and critic keys that a config may not have; checks.py refuses them."""

from collections.abc import Iterator

from stride.config.schema import BoundedConfig, PolicyGradientConfig, REINFORCEConfig, SACConfig, TQCConfig

TwoNetworks = BoundedConfig | PolicyGradientConfig  # an actor and critics, each with a block
Conflict = tuple[object, str]  # (condition, message for the user if the condition is true)


def conflicts(config: TwoNetworks) -> Iterator[Conflict]:
    """Yield all forbidden combinations for this kind of config, whether or not their conditions are true."""
    if isinstance(config, PolicyGradientConfig) and not config.has_blocks:
        return
    shapes = {"actor": config.actor_shape, "critic": config.critic_shape}
    for part, shape in shapes.items():
        widths = list(shape.hidden_dims)
        line = f"blocks have one width: {part} has hidden_dims {widths}; write one number, as in hidden_dims=128"
        yield shape.blocks and len(widths) != 1, line
    by_batch = [part for part, shape in shapes.items() if shape.norm == "batch"]
    if isinstance(config, PolicyGradientConfig):
        lacks_critic = isinstance(config, REINFORCEConfig) and config.policy_targets == "returns"
        yield config.share_trunk, "blocks actor and critic are networks apart from each other; set share_trunk=false"
        yield config.critic and lacks_critic, "critic has no effect without a critic; set policy_targets=advantages"
        yield by_batch, f"{[*by_batch, ''][0]}.norm: batch is for sac, tqc and td3; use layer or rms"
        return
    scale, has_bins = config.value_scale, config.bins is not None
    yield from (
        (by_batch and config.batch_size == 1, "norm: batch needs a batch_size of 2 or more; one row has no deviation"),
        (by_batch and config.nan_guard == "skip",
         "norm: batch would keep the moments of a batch that is skipped; use nan_guard=stop"),
        (config.joint_batch and "critic" not in by_batch,
         "joint_batch has no effect without batch norm in the critics; set norm=batch"),
        (not has_bins and config.bin_range != BoundedConfig.bin_range,
         "bin_range has no effect on critics of one value; set bins, for example bins=101"),
        (has_bins and scale != "raw",
         f"value_scale: {scale} scales values that bins fix; use normalize_reward=true"),
        (has_bins and isinstance(config, TQCConfig), "bins: tqc learns quantiles; use sac or bins=null"),
        (config.weight_projection and scale != "raw",
         f"weight_projection fixes the length of weights that value_scale: {scale} moves; use one of them"),
        (config.noise_hold > 1 and config.noise_correlation > 0,
         "noise_hold and noise_correlation both make noise last; give one of them"),
    )  # fmt: skip
    if isinstance(config, SACConfig):
        has_target = config.target_std is not None
        yield (
            has_target and config.target_entropy is not None,
            "target_entropy and target_std set the same thing; give one of them",
        )
        yield (
            config.ent_coef is not None and (has_target or config.initial_alpha != 1),
            "target_std and initial_alpha have no effect where ent_coef is given; set ent_coef=null",
        )
