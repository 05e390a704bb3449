"""Train an agent from a config:   python train.py CartPole-v1:ppo   (python train.py --help says the rest)

The story of a run, top to bottom: arguments -> config -> worlds and agent -> run folder -> callbacks -> Trainer.fit.
"""

import utils.quick_start  # isort: skip  # before all others

import os
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from config.preflight import preflight
from utils.closed_pipe import outlive_readers

if __name__ == "__main__":
    outlive_readers()
    preflight(sys.argv[1:])  # here, as the imports below take seconds

import torch

from agents.algorithms import build_agent, may_be_fused
from agents.base import Agent
from agents.engines.fused_cpu.warm import warm
from agents.networks.policies import check_name
from config.commands.train import Arguments, build_parser, parse_arguments
from config.debugger import for_debugger
from config.listing import print_variants
from config.loader import to_plain
from config.manual import help_text
from config.schema import Config
from envs_gym.gym_env import EnvError
from envs_gym.make import choose_backend, env_info, make_envs
from report.sinks import sinks_of
from trainer_callbacks.debug import Debug
from trainer_callbacks.disk_space import NoRoomError, room_errors
from trainer_callbacks.interrupt import Dropped, Interrupts
from trainer_callbacks.resume import (
    Resumption,
    adopt,
    continued_facts,
    find_resumption,
    fork_facts,
    provenance_once,
    settings_hash,
)
from trainer_callbacks.session import Start, bits_rest_on, checkpoint_size, failures_told, fit
from utils import checkpoint_set, entry
from utils.durable_file import check_room
from utils.run_dir import RunDir, runs_root
from utils.run_fate import died
from utils.run_files import write_json
from utils.run_lock import locked
from utils.run_log import NOTE, open_run_log
from utils.seed_group import PREFIX, resume_seeds, train_seeds

utils.quick_start.loaded()

MARGIN = 16 << 20  # bytes for what a run writes beside checkpoints


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    if arguments.help:
        return print_help(arguments)
    if arguments.list_envs is not None:
        return print_variants(arguments.list_envs)
    if arguments.resume.startswith(PREFIX):
        return resume_seeds([sys.executable, __file__], arguments.resume, arguments.overrides, os.cpu_count() or 1)
    return train_group(arguments) if len(arguments.seeds) > 1 else train(arguments)


def train(arguments: Arguments) -> int:
    """One run, new, continued or forked, under the eyes of whoever may interrupt it."""
    with Interrupts() as interrupts, ExitStack() as stack:
        try:
            return _train(arguments, interrupts, stack)
        except Dropped:
            interrupts.stop_reminding()
            print(f"stopped by {interrupts.name} before there was anything to save", file=sys.stderr)
            return 128 + interrupts.number


def _train(arguments: Arguments, interrupts: Interrupts, stack: ExitStack) -> int:
    again, fate = find_and_lock(arguments, stack)
    config = again.config if again else arguments.load()
    if arguments.debug:
        config = for_debugger(config, tiny=not any(word.startswith("max_timesteps=") for word in arguments.overrides))
    torch.set_num_threads(config.threads)

    # every name is checked by its registry before a run folder exists
    with room_errors(config, "nothing was begun"):
        check_name(config)
        envs = make_envs(config, config.n_envs)
        warm(envs, config.algo_id if may_be_fused(config) else None, config.activation, arguments.quiet)
        agent = build_agent(config, envs)
    check_room(again.source.path if again else runs_root(), checkpoint_size(agent) + MARGIN)

    reached = env_info(config).reward_threshold
    goal = reached if config.spec.goal is None else config.spec.goal
    run, start = open_run(config, again, facts_of(config, agent, goal, arguments.group), stack)
    if again:
        exactly = again.lines(agent.collector.envs.resume, bits_rest_on(agent))
        start = start._replace(lines=(*filter(None, [fate]), *exactly))
    with open_run_log(run.run_log, arguments.quiet) as log:
        log.log(NOTE, shlex.join(sys.argv))
        with failures_told(run, stack), room_errors(config, f"continue: python train.py --resume {run.id}"):
            watchers = [Debug(run)] if arguments.debug else []
            sinks = sinks_of(run, start.env_steps, start.exported, arguments.quiet)
            outcome = fit(config, agent, goal, run, sinks, start, interrupts, watchers)
    if outcome.lost:
        print(outcome.lost, file=sys.stderr)
    return 128 + interrupts.number if interrupts.number else 0


def find_and_lock(arguments: Arguments, stack: ExitStack) -> tuple[Resumption | None, str]:
    """The run that --resume names, and how it died if it did; nobody else goes on with it meanwhile."""
    if not arguments.resume:
        return None, ""
    found = RunDir.find(arguments.resume)
    fate = died(found, found.facts())
    if arguments.checkpoint in ("", "last"):
        stack.enter_context(locked(found.path))
    return find_resumption(arguments.resume, arguments.checkpoint, arguments.overrides, arguments.accept_changes), fate


def facts_of(config: Config, agent: Agent, goal: float | None, group: str) -> dict[str, Any]:
    """config.json of a run that begins now."""
    backend = choose_backend(config)
    facts = {"env_id": config.env_id, "variant": config.variant, "seed": config.seed, "group": group}
    facts |= {"engine": agent.engine.name, "engine_reason": agent.engine.reason, "goal": goal}
    facts |= {"play": agent.engine.play.name, "learn": agent.engine.learn.name}
    facts |= {"env_backend": backend.name, "env_backend_reason": backend.reason, **provenance_once()}
    facts |= {"resume": agent.collector.envs.resume, "status": "running", "config": to_plain(config)}
    return {**facts, "settings_sha256": settings_hash(facts)}


def open_run(config: Config, again: Resumption | None, facts: dict[str, Any], stack: ExitStack) -> tuple[RunDir, Start]:
    """The folder to train in, locked: the run's own, or a new one; and where in it the training begins."""
    if again and not again.fork:
        run = again.source
        run.tidy()
        checkpoint_set.sweep_orphans(run.checkpoints)
        write_json(run.config_json, {**continued_facts(again, facts), "failure": ""})
    else:
        facts = fork_facts(again, facts) if again else facts
        run = RunDir.create(config.env_id, config.variant, config.seed, facts)
        stack.enter_context(locked(run.path))
    if not again or not again.checkpoint:
        return run, Start()
    path = adopt(run, again) if again.fork else again.checkpoint
    return run, Start(path, again.env_steps, again.sidecar["exported"], again.closing)


def train_group(arguments: Arguments) -> int:
    """One run per seed: processes side by side, or one after the other where a debugger looks on."""
    config = arguments.load()
    make_envs(config, 1).close()  # a wrong name is said once, not by every process
    if arguments.debug:
        each = [replace(arguments, overrides=(*arguments.overrides, f"seed={seed}")) for seed in arguments.seeds]
        return max(train(one) for one in each)
    words = [*filter(None, (arguments.config_id, *arguments.overrides))]
    words += ["--config", os.path.abspath(arguments.file)] if arguments.file else []
    workers = max(1, (os.cpu_count() or 1) // config.threads)
    return train_seeds([sys.executable, __file__], words, arguments.seeds, workers)


def print_help(arguments: Arguments) -> int:
    """The flags, and with ENV:VARIANT every key it has: its value there and what it means."""
    keys = f"\n{help_text(arguments.load())}" if arguments.config_id or arguments.file else ""
    build_parser().print_help()
    print(keys, end="\n" if keys else "")
    return 0


def command(argv: list[str]) -> int:
    """main with its errors as one line: 2 for what the person can right, 1 for what went wrong in training."""
    return entry.ended(main, argv, EnvError, NoRoomError)


if __name__ == "__main__":
    utils.quick_start.leave(command(sys.argv[1:]))
