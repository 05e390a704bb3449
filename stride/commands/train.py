"""Train an agent from a config: python train.py CartPole-v1:ppo (python train.py --help shows all flags)

Top to bottom: arguments -> config -> environments and agent -> run folder -> callbacks -> Trainer.fit.
"""

from stride.utils import quick_start  # isort: skip  # before all others

if __name__ == "__main__":
    quick_start.loading()

import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stride.runstore.many.ray_pool import reach

if __name__ == "__main__":
    reach(sys.argv[1:])  # before the imports below: the nodes of a cluster load for seconds meanwhile

from stride.commands.train_opening import (
    answer_early,
    for_debugger,
    is_done,
    print_help,
    report_again,
    standing_run,
)
from stride.utils import entry

if __name__ == "__main__":
    entry.begin(answer_early, "  loading torch ...")  # here, as the imports below take seconds

import stride.utils.lean_lightning  # isort: skip  # noqa: F401  # before any import of Lightning

import lightning as L
import torch

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent, may_be_fused
from stride.agents.engines.fused_cpu.kernel_tables import nets_of
from stride.agents.engines.fused_cpu.warm import load_numba, warm
from stride.agents.engines.process_group import ProcessGroup, RankLostError
from stride.agents.engines.ray_collectors import CollectorLostError, build_collectors, check_worlds
from stride.agents.networks.policies import check_name as check_policy_name
from stride.commands.rank import is_worker
from stride.commands.train_arguments import Arguments, check_pause, parse_arguments
from stride.commands.train_detached import is_background, open_monitor, train_in_background
from stride.commands.train_folder import facts_of, find_and_lock, open_run, opening_lines, resumption_of
from stride.commands.train_ranks import agent_of_rank_0, end_ranks, join_ranks, serve_rank_0
from stride.commands.train_several import start_all
from stride.config.extras import LOCAL
from stride.config.listing import print_variants
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.make import env_info, import_module, make_envs
from stride.envs_gym.own_code import import_own_modules, remember_code_of
from stride.envs_gym.task import task_of
from stride.envs_gym.wrappers import manual
from stride.report.sinks import group_watchers, sinks_of
from stride.report.trackers.registry import check_loggers
from stride.runstore.many.group_training import resume_seeds
from stride.runstore.many.nursery import words_of
from stride.runstore.many.ray_pool import RayPool, connected, pool_on
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_facts import PAUSED
from stride.runstore.run_lock import LockLostError, RunInTrainingError, owner
from stride.runstore.run_log import NOTE, open_run_log
from stride.runstore.seed_group import find_group, key_of, needs_of
from stride.trainer_callbacks.debug import Debug, OneWorld
from stride.trainer_callbacks.failures import failures_reported, interruption_reported, start_reported
from stride.trainer_callbacks.interrupt import Dropped, Interrupts
from stride.trainer_callbacks.resume import (
    Resumption,
)
from stride.trainer_callbacks.session import checkpoint_size, fit
from stride.trainer_callbacks.shortage import ShortageError, shortage_errors
from stride.trainer_callbacks.user_callbacks import user_callbacks
from stride.utils import places
from stride.utils.devices import prepare, training_device
from stride.utils.durable_file import check_room
from stride.utils.places import TRAIN, in_callers_folder
from stride.utils.streams import Events, only_events
from stride.utils.user_error import NumbersError, UserError

quick_start.loaded()

FAILURES = (EnvError, ShortageError, LockLostError, RankLostError, CollectorLostError)  # reported in one line
POLL_SECONDS = 1.0  # between two checks of a run that another process trains
EXTRA_BYTES = 16 << 20  # disk space for what a run writes besides checkpoints


class Ended(NamedTuple):
    """The exit code of a training; `run` is None if a signal came before there was anything to save."""

    code: int
    run: RunDir | None = None


def main(argv: list[str], events: Events | None = None) -> int:
    """Run what the command line asks for; return the exit code. `events` receives JSON events; None: for people."""
    if is_worker(os.environ):
        return serve_rank_0()
    arguments = parse_arguments(argv)
    if arguments.shows_wrappers:
        print(manual.help_text())
        return 0
    if arguments.help:
        import_own_modules(*folder_of_yaml(arguments))
        return print_help(arguments.decided(task_of), task_of)
    if arguments.list_envs is not None:
        return print_variants(arguments.list_envs)
    if is_background(arguments):
        return train_in_background(argv, arguments)
    if arguments.resumes_group:
        return resume_group(arguments)
    if arguments.many:
        return train_group(arguments)
    return train_claimed(arguments, events) if arguments.group else train(arguments, events)


def train(arguments: Arguments, events: Events | None = None) -> int:
    """Train one run and return the exit code."""
    return train_run(arguments, events).code


def train_run(arguments: Arguments, events: Events | None = None) -> Ended:
    """Train one run, new, resumed or forked; a signal may interrupt it."""
    with Interrupts() as interrupts, ExitStack() as stack, in_callers_folder():
        try:
            return _train(arguments, interrupts, stack, events)
        except Dropped:
            interrupts.stop_reminding()
            print(f"stopped by {interrupts.name} before there was anything to save", file=sys.stderr)
            return Ended(128 + interrupts.number)


def _train(arguments: Arguments, interrupts: Interrupts, stack: ExitStack, events: Events | None) -> Ended:
    """Do the steps of a run in order. `stack` holds what must be closed at the end, such as the run's lock."""
    resumption, failure = find_and_lock(arguments, stack)
    if not resumption:
        import_own_modules(*folder_of_yaml(arguments))
        arguments = arguments.decided(task_of)
    config = config_to_train(arguments, resumption)
    device = prepare_device(config, resumption)
    folder = resumption.source.path if resumption else runs_root()
    check_room(folder, 0)  # now, before kernels are compiled for seconds
    with (
        start_reported(config, arguments.group, resumption),
        shortage_errors(config, "nothing was started", arguments.again),
    ):
        user_callbacks = check_names(config)
        group = join_ranks(config, arguments.processes, arguments.mixed, stack)
        pool = pool_of_collectors(config, arguments.on, stack)
        agent = make_agent(config, device, arguments.quiet, group, pool)
        goal = goal_of(config, agent.collector.envs.reward_threshold)
    check_room(folder, checkpoint_size(agent) + EXTRA_BYTES)
    if arguments.require_goal:
        check_required(config, goal)

    run, start = open_run(config, resumption, facts_of(config, agent, goal, arguments), stack)
    with interruption_reported(run):
        start = start._replace(lines=opening_lines(arguments, config, resumption, failure, agent))
        if not run.foreign:
            remember_code_of(run, to_plain(config))
        if arguments.monitor:
            open_monitor(run.path)

        with open_run_log(run.run_log, arguments.quiet) as run_log:
            run_log.log(NOTE, shlex.join(sys.argv))
            continuation = f"continue: {TRAIN} --resume {run.id}"
            with (
                failures_reported(run, stack, config),
                shortage_errors(config, continuation, arguments.again, lambda: agent.memory.bytes),
            ):
                watchers = [Debug(run) if arguments.checks else OneWorld()] if arguments.debug else []
                sinks = sinks_of(run, start.env_steps, start.exported, arguments.quiet, events, config.logger)
                pause_at = arguments.pause_at
                outcome = fit(config, agent, goal, run, sinks, start, interrupts, watchers, user_callbacks, pause_at)
    if interrupts.number:
        return Ended(128 + interrupts.number, run)
    missed_goal = arguments.require_goal and not outcome.solved and outcome.reason != PAUSED
    return Ended(entry.GOAL_MISSED if missed_goal else 0, run)


def config_to_train(arguments: Arguments, resumption: Resumption | None) -> Config:
    """Return the checked config of a new or resumed run."""
    if resumption:
        config = resumption.config
    else:
        config = arguments.load(task_of)
    if arguments.debug:
        config = for_debugger(config, tiny=arguments.checks and not arguments.is_budget_typed)
    pause_at = arguments.pause_at
    check_pause(pause_at, config.max_timesteps)
    steps_done = resumption.env_steps if resumption and not arguments.claimed else -1
    if resumption and pause_at is not None and pause_at <= steps_done:
        raise UserError(
            f"--pause-at {pause_at:,} is too low: {resumption.source.id} has already done {steps_done:,} env steps"
        )
    return config


def folder_of_yaml(arguments: Arguments) -> list[Path]:
    """Return [folder of the --config file], where modules that it names may be; [] without such a file."""
    return [Path(arguments.file).absolute().parent] if arguments.file else []


def prepare_device(config: Config, resumption: Resumption | None) -> torch.device:
    """Set up torch for the config's device and return it; an error shows how to resume a GPU's run on the CPU."""
    torch.set_num_threads(config.torch_threads)
    try:
        device = training_device(config.device)
    except UserError as error:
        if resumption is None:
            raise
        command_text = f"{TRAIN} --resume {resumption.source.id} device=cpu"
        if resumption.facts["config"].get("engine") in ("graphed", "fused_gpu"):
            command_text += " engine=auto"
        if config.precision == "tf32":
            command_text += " precision=32"
        raise UserError(f"{error}; to continue on this machine: {command_text}") from error
    prepare(device, config.precision)
    return device


def check_names(config: Config) -> list[L.Callback]:
    """Check every name in the config by its registry, before a run folder exists; return the user's own callbacks."""
    import_module(config.env_id)  # its module may register a policy or a wrapper
    check_policy_name(config)
    check_loggers(config.logger)
    return user_callbacks(config)


def pool_of_collectors(config: Config, where: str, stack: ExitStack) -> RayPool | None:
    """Return the cluster on which collectors play, None without collectors; UserError if config and --on disagree."""
    if not config.collectors and where != LOCAL:
        raise UserError(f"--on {where} is for several runs; a single run trains here, unless it has collectors=N")
    if not config.collectors:
        return None
    if where == LOCAL:
        raise UserError("collectors are Ray actors: add --on ray, or --on ray:local to try them on this machine")
    check_worlds(config)
    handler = signal.getsignal(signal.SIGTERM)
    pool = stack.enter_context(connected(where))
    with suppress(ValueError):  # in another thread than the main one; there Ray has not replaced the handler
        signal.signal(signal.SIGTERM, handler)
    return pool


def make_agent(
    config: Config,
    device: torch.device,
    quiet: bool,
    group: ProcessGroup | None = None,
    pool: RayPool | None = None,
) -> Agent:
    """Build the agent in its environments and compile its kernels; with several shards, the agent of the first."""
    if pool:
        return build_collectors(config, pool.ray, pool.new_actor)
    if config.shards > 1:
        return agent_of_rank_0(config, group, quiet)
    envs = make_envs(config, config.n_envs, device)
    warm(envs, config.algo_id if may_be_fused(config) else None, nets_of(config), quiet)
    return build_agent(config, envs)


def goal_of(config: Config, registered: float | None) -> float | None:
    """Return the mean return that counts as solved: the config's, else the environment's registered threshold."""
    return registered if config.spec.goal is None else config.spec.goal


def check_required(config: Config, goal: float | None) -> None:
    """Raise UserError if --require-goal can never be answered: there is no goal, or no test."""
    if goal is None:
        raise UserError(f"--require-goal: {config.env_id} has no goal; set one with spec.goal=N")
    if not config.test_episodes:
        reason = "only the closing test decides whether the goal is reached"
        raise UserError(f"--require-goal: test_episodes is 0, and {reason}")


def train_claimed(arguments: Arguments, events: Events | None = None) -> int:
    """Train the group's run with this config: start it, resume it, report it again, or wait for its process."""
    import_own_modules(*folder_of_yaml(arguments))
    if arguments.fork:  # even if the other run's budget is spent by now
        config = resumption_of(arguments, fork=True, spent=True).config
    else:
        config = arguments.load(task_of)
    is_waiting = False
    while True:
        run = standing_run(arguments, config)
        if run and is_done(arguments, run):
            end_ranks()
            return report_again(arguments, run, events)
        try:
            if run is None:
                return train(arguments, events)
            resumed = replace(arguments, resume=run.id, config_id="", overrides=(), file="", group="", checkpoint="")
            return train(replace(resumed, fork=False, claimed=True), events)
        except RunInTrainingError as error:
            if not is_waiting:
                print(f"waiting: {str(error).partition(';')[0]}", file=sys.stderr, flush=True)
            is_waiting = True
        except UserError:
            if run is None or not is_done(arguments, run):
                raise
            continue  # it ended after we read its state and before we locked it
        run = standing_run(arguments, config)
        while run and owner(run.path):
            time.sleep(POLL_SECONDS)


def train_group(arguments: Arguments) -> int:
    """Train several runs in processes, or one by one under a debugger; also a single run whose collectors need --on."""
    import_own_modules(*folder_of_yaml(arguments))
    decided = [part.decided(task_of) for part in arguments.trainings()]
    parts = [(part, part.load(task_of)) for part in decided]
    if any(config.collectors for _, config in parts):
        if len(parts) * max(1, len(arguments.seeds)) > 1:
            raise UserError("collectors are for one run at a time: start a command for each seed and variant")
        return train_claimed(arguments) if arguments.group else train(arguments)
    for _, config in parts:  # report an error once, not in every process
        if arguments.on == LOCAL:
            training_device(config.device)
        with start_reported(config, "", None):
            goal = goal_of(config, env_info(config).reward_threshold)
        check_pause(arguments.pause_at, config.max_timesteps)
        if arguments.require_goal:
            check_required(config, goal)
    if not arguments.debug:
        return start_all(arguments, parts)
    worst = 0
    for part, config in parts:
        for seed in arguments.seeds or (config.seed,):
            worst = max(worst, train(replace(part, overrides=(*part.overrides, f"seed={seed}"))))
    return worst


def resume_group(arguments: Arguments) -> int:
    """Continue the unfinished runs of a group."""
    group = find_group(arguments.resume)
    program = places.program("train")
    threads, gpus = needs_of(group)
    with pool_on(arguments.on, threads, gpus, program) as (pool, workers):
        return resume_seeds(
            program, group, arguments.overrides, workers, group_watchers(arguments.quiet), arguments.require_goal,
            pool, arguments.pausing, key_with,
        )  # fmt: skip


def key_with(argument_texts: Sequence[str], seed: int) -> str:
    """Return the hash of the config that these arguments with this seed give."""
    arguments = parse_arguments([*argument_texts])
    import_own_modules(*folder_of_yaml(arguments))
    return key_of({**to_plain(arguments.load(task_of)), "seed": seed})


def load_early(argv: list[str]) -> None:
    """Import what every training with these arguments needs, before processes are forked."""
    load_numba()
    parse_arguments(argv).load(task_of)


def forked_early(argv: list[str]) -> list[str]:
    """Return the program of which a nursery forks the trainings; [] for a single run, or if they run elsewhere."""
    try:
        arguments = parse_arguments(argv)
    except UserError:  # reported by main
        return []
    is_several = arguments.many or arguments.resumes_group
    return places.program("train") if is_several and arguments.on == LOCAL and not arguments.debug else []


def command(argv: list[str]) -> int:
    """Run main and return the exit code; errors become one line: 2 if the user can fix it, 1 if the training failed."""
    return entry.ended(main_in_events if "--json" in argv else main, argv, *FAILURES)


def main_in_events(argv: list[str]) -> int:
    """Run main with nothing but JSON events on stdout."""
    with only_events(UserError, NumbersError, *FAILURES) as events:
        code = main(argv, events)
    return entry.printed(code)


if __name__ == "__main__":
    quick_start.leave(command(words_of(sys.argv[1:], load_early, forked_early)))
