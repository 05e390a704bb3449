"""Several runs of one command, started: what each is told, and on which machines they are trained. No torch."""

import os
from collections.abc import Sequence

from stride.config.commands.train import Arguments
from stride.config.general import KEEP, is_general_config, to_keep
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.report.sinks import group_watchers
from stride.runstore.many.group_training import train_all
from stride.runstore.many.ray_pool import pool_on
from stride.runstore.seed_group import GroupPlan, SeedPart, key_of
from stride.utils.places import program


def start_all(arguments: Arguments, each: Sequence[tuple[Arguments, Config]]) -> int:
    """The exit code of all; `each`: the words of every training, their seeds apart, and the config that they mean."""
    for _, config in each:
        if is_general_config(config) and not arguments.quiet:
            print("\n".join((config.description, KEEP, *to_keep(config))))
    watchers, train = group_watchers(arguments.quiet), program("train")
    plan = GroupPlan(tuple(part_of(one, config) for one, config in each), arguments.asked)
    threads, gpus = max(c.torch_threads for _, c in each), any(c.device.startswith("cuda") for _, c in each)
    with pool_on(arguments.on, threads, gpus, train) as (pool, workers):
        rest = arguments.require_goal, pool, arguments.pausing, arguments.group
        return train_all(train, plan, workers, watchers, *rest)


def part_of(arguments: Arguments, config: Config) -> SeedPart:
    """The runs that these words mean, one for each seed."""
    words = [*filter(None, (arguments.config_id, *arguments.overrides))]
    words = [word for word in words if word.partition("=")[0] != "seed"]  # which every run is told by a flag
    words += ["--config", os.path.abspath(arguments.file)] if arguments.file else []
    seeds, plain = arguments.seeds or (config.seed,), to_plain(config)
    return SeedPart(tuple(words), seeds, tuple(key_of({**plain, "seed": seed}) for seed in seeds))
