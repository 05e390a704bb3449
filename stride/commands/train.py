"""Train an agent from a config:   python train.py CartPole-v1:ppo   (python train.py --help says the rest)

The story of a run, top to bottom: arguments -> config -> worlds and agent -> run folder -> callbacks -> Trainer.fit.
"""

from stride.utils import quick_start  # isort: skip  # before all others

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from stride.runstore.many.ray_pool import reach

if __name__ == "__main__":
    reach(sys.argv[1:])  # here, as nodes of a cluster load for seconds, too

from stride.commands.train_opening import first_words
from stride.config.preflight import print_help
from stride.utils import entry

if __name__ == "__main__":
    entry.begin(first_words, "  loading torch ...")  # here, as the imports below take seconds

import stride.utils.late_dynamo  # isort: skip  # noqa: F401  # before whoever imports Lightning

import torch

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent, may_be_fused
from stride.agents.engines.fused_cpu.warm import load_numba, warm
from stride.agents.networks.policies import check_name
from stride.commands.train_claimed import is_done, standing_run, tell_again
from stride.commands.train_detached import apart, look_on, train_apart
from stride.commands.train_several import start_all
from stride.config.commands.machines import LOCAL
from stride.config.commands.train import Arguments, check_pause, parse_arguments
from stride.config.debugger import for_debugger
from stride.config.general import KEEP, is_general_config, to_keep
from stride.config.listing import print_variants
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.config.sweep import unheeded_sweep
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.given import is_given
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.make import env_info, import_module, make_envs
from stride.envs_gym.own_code import import_code_of, import_own_modules, remember_code_of
from stride.envs_gym.task import task_of
from stride.envs_gym.workers import workers_of
from stride.report.sinks import group_watchers, sinks_of
from stride.report.trackers.registry import check_loggers
from stride.runstore import checkpoint_set
from stride.runstore.many.group_training import resume_seeds
from stride.runstore.many.nursery import words_of
from stride.runstore.many.ray_pool import pool_on
from stride.runstore.run_dir import RunDir, new_id, runs_root
from stride.runstore.run_facts import PAUSED, mapping
from stride.runstore.run_fate import fate
from stride.runstore.run_files import write_json
from stride.runstore.run_lock import LockLostError, RunInTrainingError, locked, owner
from stride.runstore.run_log import NOTE, open_run_log
from stride.runstore.run_names import GROUP_PREFIX
from stride.runstore.seed_group import claim, find_group, key_of, needs_of
from stride.trainer_callbacks.caller import from_here
from stride.trainer_callbacks.debug import Debug
from stride.trainer_callbacks.disk_space import NoRoomError, room_errors
from stride.trainer_callbacks.failures import beginnings_told, failures_told
from stride.trainer_callbacks.interrupt import Dropped, Interrupts
from stride.trainer_callbacks.own import own_callbacks
from stride.trainer_callbacks.resume import (
    Resumption,
    adopt,
    continued_facts,
    find_resumption,
    fork_facts,
    provenance_once,
    settings_hash,
)
from stride.trainer_callbacks.session import Start, bits_rest_on, checkpoint_size, fit
from stride.utils import places
from stride.utils.devices import described, prepare, training_device
from stride.utils.durable_file import check_room
from stride.utils.events import Events, only_events
from stride.utils.places import TRAIN
from stride.utils.user_error import NumbersError, UserError

quick_start.loaded()

FAILURES = (EnvError, NoRoomError, LockLostError)  # said in one line
BETWEEN_LOOKS = 1.0  # seconds, at a run that another process trains
MARGIN = 16 << 20  # bytes for what a run writes beside checkpoints


class Ended(NamedTuple):
    """How a training ended; `run` is None where a signal came before there was anything to save."""

    code: int
    run: RunDir | None = None


def main(argv: list[str], events: Events | None = None) -> int:
    """`events`: where programs read what happens; None: people read it."""
    arguments = parse_arguments(argv)
    if arguments.help:
        import_own_modules(*folder_of_yaml(arguments))
        return print_help(arguments, task_of)
    if arguments.list_envs is not None:
        return print_variants(arguments.list_envs)
    if apart(arguments):
        return train_apart(argv, arguments)
    if arguments.resume.startswith(GROUP_PREFIX):
        return resume_group(arguments)
    if arguments.many:
        return train_group(arguments)
    return train_claimed(arguments, events) if arguments.group else train(arguments, events)


def train(arguments: Arguments, events: Events | None = None) -> int:
    """The exit code of one run."""
    return train_run(arguments, events).code


def train_claimed(arguments: Arguments, events: Events | None = None) -> int:
    """The same of the one run that the group has with this config: begun, continued, told again, or waited for."""
    import_own_modules(*folder_of_yaml(arguments))
    config, waits = forked(arguments) if arguments.fork else arguments.load(task_of), False
    while True:
        run = standing_run(arguments, config)
        if run and is_done(arguments, run):
            return tell_again(arguments, run, events)
        try:
            if run is None:
                return train(arguments, events)
            again = replace(arguments, resume=run.id, config_id="", overrides=(), file="", group="")
            return train(replace(again, fork=False, checkpoint="", claimed=True), events)
        except RunInTrainingError as error:
            if not waits:
                print(f"waiting: {str(error).partition(';')[0]}", file=sys.stderr, flush=True)
            waits = True
        run = standing_run(arguments, config)
        while run and owner(run.path):
            time.sleep(BETWEEN_LOOKS)


def forked(arguments: Arguments) -> Config:
    """The config of the run that --fork begins, whatever is left of the other's budget by now."""
    words = arguments.resume, arguments.checkpoint, arguments.overrides
    return find_resumption(*words, arguments.accept_changes, arguments.trust, fork=True, spent=True).config


def train_run(arguments: Arguments, events: Events | None = None) -> Ended:
    """One run, new, continued or forked, under the eyes of whoever may interrupt it."""
    with Interrupts() as interrupts, ExitStack() as stack, from_here():
        try:
            return _train(arguments, interrupts, stack, events)
        except Dropped:
            interrupts.stop_reminding()
            print(f"stopped by {interrupts.name} before there was anything to save", file=sys.stderr)
            return Ended(128 + interrupts.number)


def _train(arguments: Arguments, interrupts: Interrupts, stack: ExitStack, events: Events | None) -> Ended:
    again, past = find_and_lock(arguments, stack)
    if not again:
        import_own_modules(*folder_of_yaml(arguments))
    config = again.config if again else arguments.load(task_of)
    if arguments.debug:
        config = for_debugger(config, tiny=not any(word.startswith("max_timesteps=") for word in arguments.overrides))
    check_pause(arguments.pause_at, config.max_timesteps)
    if again and not arguments.claimed:
        check_ahead(arguments.pause_at, again)
    torch.set_num_threads(config.torch_threads)
    device = find_device(config, again)
    prepare(device, config.precision)

    folder = again.source.path if again else runs_root()
    check_room(folder, 0)  # before kernels are compiled in vain
    # every name is checked by its registry before a run folder exists
    with beginnings_told(config, arguments.group, again), room_errors(config, "nothing was begun", arguments.again):
        import_module(config.env_id)  # which may register a policy or a wrapper
        check_name(config)
        check_loggers(config.logger)
        own = own_callbacks(config)
        envs = make_envs(config, config.n_envs, device)
        warm(envs, config.algo_id if may_be_fused(config) else None, config.activation, arguments.quiet)
        agent = build_agent(config, envs)
        reached = env_info(config).reward_threshold
    check_room(folder, checkpoint_size(agent) + MARGIN)

    goal = reached if config.spec.goal is None else config.spec.goal
    if arguments.require_goal:
        check_required(config, goal)
    run, start = open_run(config, again, facts_of(config, agent, goal, arguments.group), stack)
    if not run.foreign:
        remember_code_of(run, to_plain(config))
    if again:
        exactly = again.lines(agent.collector.envs.resume, bits_rest_on(agent))
        start = start._replace(lines=(*filter(None, [past]), *exactly))
    elif is_general_config(config) and not is_given(config.env_id):  # no file could name that
        start = start._replace(lines=(KEEP, *to_keep(config)))
    if told := arguments.sweep.line if arguments.sweep else unheeded_sweep():
        start = start._replace(lines=(*start.lines, told))
    if arguments.monitor:
        look_on(run.path)
    with open_run_log(run.run_log, arguments.quiet) as log:
        log.log(NOTE, shlex.join(sys.argv))
        on, held = f"continue: {TRAIN} --resume {run.id}", lambda: agent.memory.bytes
        with failures_told(run, stack, config), room_errors(config, on, arguments.again, held):
            watchers = [Debug(run)] if arguments.debug else []
            sinks = sinks_of(run, start.env_steps, start.exported, arguments.quiet, events, config.logger)
            outcome = fit(config, agent, goal, run, sinks, start, interrupts, watchers, own, arguments.pause_at)
    if outcome.lost:
        print(outcome.lost, file=sys.stderr)
    if interrupts.number:
        return Ended(128 + interrupts.number, run)
    missed = arguments.require_goal and not outcome.solved and outcome.reason != PAUSED
    return Ended(entry.GOAL_MISSED if missed else 0, run)


def folder_of_yaml(arguments: Arguments) -> list[Path]:
    """Where the file of --config lies: what it names may lie there."""
    return [Path(arguments.file).absolute().parent] if arguments.file else []


def find_device(config: Config, again: Resumption | None) -> torch.device:
    """The device that the config names; a run that was trained on a GPU can go on without one, and is told how."""
    try:
        return training_device(config.device)
    except UserError as error:
        if again is None:
            raise
        written = again.facts["config"]  # where it asks for what there is on a GPU alone, that goes, too
        on_gpu, tf32 = written.get("engine") in ("graphed", "fused_gpu"), config.precision == "tf32"
        words = ["device=cpu", *["engine=auto"] * on_gpu, *["precision=32"] * tf32]
        how = f"{TRAIN} --resume {again.source.id} {' '.join(words)}"
        raise UserError(f"{error}; to go on there: {how}") from error


def check_required(config: Config, goal: float | None) -> None:
    """UserError where --require-goal asks for what no training could answer."""
    if goal is None:
        raise UserError(f"--require-goal: no goal of {config.env_id} is known; say which: spec.goal=N")
    if not config.test_episodes:
        raise UserError(
            "--require-goal: test_episodes is 0, and only the closing test says whether the goal is reached"
        )


def find_and_lock(arguments: Arguments, stack: ExitStack) -> tuple[Resumption | None, str]:
    """The run that --resume names, and how it failed or died if it did; nobody else goes on with it meanwhile."""
    if not arguments.resume:
        return None, ""
    found = RunDir.find(arguments.resume)
    past = fate(found, found.facts())
    if arguments.checkpoint in ("", "last") and not arguments.fork:
        stack.enter_context(locked(found.path))
    if not found.foreign:
        import_code_of(found)
    words = arguments.resume, arguments.checkpoint, arguments.overrides
    return find_resumption(*words, arguments.accept_changes, arguments.trust, arguments.fork), past


def check_ahead(pause_at: int | None, again: Resumption) -> None:
    """UserError where the run has been there."""
    if pause_at is not None and pause_at <= again.env_steps:
        raise UserError(
            f"--pause-at {pause_at:,} is behind {again.source.id}, which has done {again.env_steps:,} env steps"
        )


def facts_of(config: Config, agent: Agent, goal: float | None, group: str) -> dict[str, Any]:
    """config.json of a run that begins now."""
    backend, workers = choose_backend(config), workers_of(config)
    facts = {"env_id": config.env_id, "variant": config.variant, "seed": config.seed, "group": group}
    facts |= {"engine": agent.engine.name, "engine_reason": agent.engine.reason, "goal": goal}
    facts |= {"play": agent.engine.play.name, "learn": agent.engine.learn.name}
    facts |= {"device": described(agent.device)}
    facts |= {"threads": agent.engine.threads.number, "threads_reason": agent.engine.threads.why}
    facts |= {"env_backend": backend.name, "env_backend_reason": backend.reason, **provenance_once()}
    facts |= {"workers": workers.number, "workers_reason": workers.reason}
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
        named = config.env_id, config.variant, config.seed
        run_id = claim(facts["group"], facts["config"], new_id(*named)) if facts["group"] else ""
        try:
            # whole with what it begins from: killed at any time it is a fork, or not there
            run = RunDir.create(*named, facts, run_id, lambda made: adopt(made, again) if again else None)
        except FileExistsError as error:
            raise RunInTrainingError(f"{run_id} has just been begun by another process") from error
        stack.enter_context(locked(run.path))
    if not again or not again.checkpoint:
        return run, Start()
    tests = 0 if again.fork else mapping(again.facts.get("outcome")).get("tests", 0)
    return run, Start(
        run.checkpoints / again.checkpoint.name, again.env_steps, again.sidecar["exported"], again.closing, tests=tests
    )


def train_group(arguments: Arguments) -> int:
    """Several runs: processes side by side, or one after the other where a debugger looks on."""
    import_own_modules(*folder_of_yaml(arguments))
    each = [(one, one.load(task_of)) for one in arguments.each()]
    for _, config in each:  # what is wrong is said once, not by every process
        if arguments.on == LOCAL:
            training_device(config.device)
        with beginnings_told(config, "", None):
            reached = env_info(config).reward_threshold
        check_pause(arguments.pause_at, config.max_timesteps)
        if arguments.require_goal:
            check_required(config, reached if config.spec.goal is None else config.spec.goal)
    if arguments.debug:
        runs = [(one, seed) for one, config in each for seed in arguments.seeds or (config.seed,)]
        return max(train(replace(one, overrides=(*one.overrides, f"seed={seed}"))) for one, seed in runs)
    return start_all(arguments, each)


def resume_group(arguments: Arguments) -> int:
    """What is unfinished of a group goes on."""
    group = find_group(arguments.resume)
    watchers, program, goal = group_watchers(arguments.quiet), places.program("train"), arguments.require_goal
    with pool_on(arguments.on, *needs_of(group), program) as (pool, workers):
        rest = watchers, goal, pool, arguments.pausing, key_with
        return resume_seeds(program, group, arguments.overrides, workers, *rest)


def key_with(words: Sequence[str], seed: int) -> str:
    """The hash of the config that these words mean with this seed."""
    arguments = parse_arguments([*words])
    import_own_modules(*folder_of_yaml(arguments))
    return key_of({**to_plain(arguments.load(task_of)), "seed": seed})


def load_early(argv: list[str]) -> None:
    """What every training of such words loads, so that those that are forked find it there."""
    load_numba()
    parse_arguments(argv).load(task_of)


def forked_early(argv: list[str]) -> list[str]:
    """What several trainings of such words are started with here; nothing where there is one, or they run elsewhere."""
    try:
        arguments = parse_arguments(argv)
    except UserError:  # said by main
        return []
    several = arguments.many or arguments.resume.startswith(GROUP_PREFIX)
    return places.program("train") if several and arguments.on == LOCAL and not arguments.debug else []


def command(argv: list[str]) -> int:
    """main with its errors as one line: 2 for what the person can right, 1 for what went wrong in training."""
    return entry.ended(main_in_events if "--json" in argv else main, argv, *FAILURES)


def main_in_events(argv: list[str]) -> int:
    """main, with nothing but events on stdout."""
    with only_events(UserError, NumbersError, *FAILURES) as events:
        code = main(argv, events)
    return entry.printed(code)


if __name__ == "__main__":
    quick_start.leave(command(words_of(sys.argv[1:], load_early, forked_early)))
