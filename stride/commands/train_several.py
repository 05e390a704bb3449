"""Several runs of one command: make the plan of the group, and train it in a pool of processes. No torch."""

import os
from collections.abc import Sequence

from stride.commands.train_arguments import Arguments
from stride.config.general import KEEP_ADVICE, is_general_config, to_keep
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.report.sinks import group_watchers
from stride.runstore.many.group_training import train_all
from stride.runstore.many.ray_pool import pool_on
from stride.runstore.seed_group import GroupPlan, SeedPart, key_of
from stride.utils.places import program


def start_all(arguments: Arguments, parts: Sequence[tuple[Arguments, Config]]) -> int:
    """Train all runs and return the exit code. `parts`: arguments (without seeds) and config of every training."""
    plan_parts, threads, gpus = [], 1, 0
    for part, config in parts:
        if is_general_config(config) and not arguments.quiet:
            print("\n".join((config.description, KEEP_ADVICE, *to_keep(config))))
        plan_parts.append(part_of(part, config))
        threads, gpus = max(threads, config.torch_threads), max(gpus, int(config.on_cuda))
    train, watchers = program("train"), group_watchers(arguments.quiet)
    plan = GroupPlan(tuple(plan_parts), arguments.typed)
    goal, pausing, group = arguments.require_goal, arguments.pausing, arguments.group
    with pool_on(arguments.on, threads, gpus, train) as (pool, workers):
        return train_all(train, plan, workers, watchers, goal, pool, pausing, group)


def part_of(arguments: Arguments, config: Config) -> SeedPart:
    """Return the runs that these arguments mean, one per seed."""
    typed = [arguments.config_id] if arguments.config_id else []
    typed += arguments.chosen
    typed += [override for override in arguments.overrides if override.partition("=")[0] != "seed"]  # --seed sets it
    typed += ["--config", os.path.abspath(arguments.file)] if arguments.file else []
    seeds, plain_config = arguments.seeds or (config.seed,), to_plain(config)
    return SeedPart(tuple(typed), seeds, tuple(key_of({**plain_config, "seed": seed}) for seed in seeds))
