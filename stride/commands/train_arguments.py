"""The command line of train.py: flags and `key=value` overrides. Every word is checked. Nothing is trained here.

It is not in train.py, so that a wrong flag is reported, and a line completed, before torch is loaded.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stride.commands.rank import rank_of
from stride.commands.train_values import (
    MAX_RUNS,
    TRACKER,
    WandbSweep,
    combinations,
    find_sweep,
    parse_processes,
    parse_seeds,
    parse_steps,
)
from stride.commands.usage import OneLineParser, add_project
from stride.config.auto import decide
from stride.config.checks import refuse
from stride.config.diff import LABEL_KEYS, changes_between, merged_changes
from stride.config.extras import LOCAL, check_machines
from stride.config.foreign import flag_advice
from stride.config.general import Look, is_general, is_undecided, load_general, settings_of
from stride.config.loader import load_config, load_file, parse_config_id, to_plain
from stride.config.plugins import TooEarlyError, trusting
from stride.config.schema import Config
from stride.runstore.seed_group import check_group
from stride.runstore.select import names_group
from stride.utils.places import TRAIN
from stride.utils.user_error import UserError, nearest

EXAMPLES = """\
examples:
  python train.py CartPole-v1:ppo                      train a shipped variant
  python train.py CartPole-v1:ppo policy_lr=1e-3       change any key; schedules too: policy_lr=lin_0.001
  python train.py CartPole-v1:ppo --seed 1,2,3,4,5     one run per seed, as one group
  python train.py CartPole-v1:ppo Acrobot-v1:ppo -m policy_lr=1e-3,3e-4 gamma=0.98,0.99 --seed 1-5
                                                       both variants, every combination of values: 40 runs
  python train.py CartPole-v1:ppo device=cuda          on a GPU; docs/gpu.md: engine=graphed, precision=bf16
  python train.py Ant-v5:sac                           any Gymnasium environment, with general settings
  python train.py Ant-v5:auto                          the same, learner and width chosen by what a step costs
  python train.py --list-envs cart                     shipped variants, and the best results on this machine
  python train.py --resume @last                       continue exactly where a run stopped
  python train.py --resume group:NAME                  continue every unfinished run of a group
  python train.py CartPole-v1:ppo --group NAME         start the run, continue it, or report that it is finished; with
                                                       several runs, start the missing ones. For schedulers that
                                                       repeat commands (docs/scale.md)
  python train.py CartPole-v1:ppo --help               every key of that variant with its meaning and value
  python train.py --help wrappers                      every wrapper for env_wrappers, with its arguments
environment variables:
  STRIDE_RUNS=FOLDER    where all commands store and find runs. Without it: runs/ of your project (stride new makes
                        one), runs/ beside this program, or runs/ in the current folder if Stride is installed
  STRIDE_PROJECT=FOLDER like --project
  STRIDE_QUIET=1        like -q
  STRIDE_LEASE=SECONDS  how long a run stays locked after its machine stops answering (120); same on all machines
  STRIDE_NO_RUN_LOG=1   write no run.log
  WANDB_MODE=offline    W&B's own variables work with logger: wandb
exit codes:
  0 trained or paused; 1 the training failed; 2 wrong arguments, nothing was started; 3 with --require-goal: at least
  one seed did not reach the goal; 75 another machine has taken over the run; 130 and 143 stopped by Ctrl-C or SIGTERM,
  and saved
"""
TRUST = "allow a run from elsewhere to import these modules of this machine"
VALUES = (  # flag, name of its value, help
    ("--resume", "RUN", "continue a run: @last, @best, its id or its folder; or a group: group:NAME, group:@last"),
    (
        "--checkpoint",
        "NAME",
        "with --resume: start a new run from best or epoch=NN; with --fork also from last or step=N",
    ),
    (
        "--group",
        "NAME",
        "start or continue this group's run with exactly this config and seed; wait while another process trains it",
    ),
    ("--trust", "MODULE[,MODULE]", TRUST),
    ("--processes", "N", "carry the shards of a training (shards=S) by N processes, or by auto: one a core"),
)
SWITCHES = {
    "--fork": "with --resume: start a new run from there (seed= may change); the old run stays. --group: once",
    "--accept-changes": "with --resume: accept a config.json that was edited by hand",
    "--require-goal": "exit code 3 unless the closing test reaches the goal",
    "--json": "one JSON event per line on stdout, for programs (docs/events.md)",
    "--detach": "train in the background, also after this shell closes; prints how to watch and stop it",
    "--monitor": "watch with a monitor: beside the training in tmux; elsewhere instead of the console, with the "
    "training in the background",
    "--mixed": "let the processes of a training run on different processors: bits may differ",
    "--debug": "one environment, a tiny budget, all checks, a profiler trace",
}
Words = tuple[str, tuple[str, ...]]  # a training: ("CartPole-v1:ppo", ("gamma=0.98",))


@dataclass(frozen=True)
class Arguments:
    """How train.py was called."""

    config_id: str
    overrides: tuple[str, ...]
    file: str
    seeds: tuple[int, ...]
    resume: str
    checkpoint: str
    accept_changes: bool
    group: str
    list_envs: str | None
    quiet: bool
    json: bool
    debug: bool
    """one environment, one thread, no processes: because of --debug, or because a debugger is attached"""
    require_goal: bool
    help: bool
    checks: bool = False
    """--debug was typed: numbers of every layer are checked, and the budget is tiny"""
    trust: tuple[str, ...] = ()
    detach: bool = False
    monitor: bool = False
    pause_at: int | None = None
    fork: bool = False
    claimed: bool = False
    """Whether `resume` is a group's run; when its command is repeated, it may already be at its --pause-at."""
    sweep: WandbSweep | None = None
    """The sweep whose values are among the overrides."""
    several: tuple[Words, ...] = ()
    """ENV:VARIANT and overrides of each training, if there are several, not counting seeds."""
    typed: tuple[str, ...] = ()
    """The words that gave `several`, as typed."""
    on: str = LOCAL
    processes: int = 1  # 0: auto
    mixed: bool = False
    chosen: tuple[str, ...] = ()
    """The overrides that ENV:auto stands for."""

    @property
    def many(self) -> bool:
        """Whether several runs are started."""
        return len(self.seeds) > 1 or bool(self.several) or (self.on != LOCAL and not self.resume)

    @property
    def shows_wrappers(self) -> bool:
        return self.help and self.config_id == "wrappers"

    @property
    def resumes_group(self) -> bool:
        return names_group(self.resume)

    @property
    def pausing(self) -> tuple[str, ...]:
        """--pause-at, as arguments for the processes of several runs."""
        return () if self.pause_at is None else ("--pause-at", str(self.pause_at))

    @property
    def is_budget_typed(self) -> bool:
        return any(override.startswith("max_timesteps=") for override in self.overrides)

    def trainings(self) -> "list[Arguments]":
        """Return the arguments of every training, without seeds."""
        parts = [
            replace(self, config_id=config_id, overrides=overrides, several=()) for config_id, overrides in self.several
        ]
        return parts or [self]

    def decided(self, look: Look) -> "Arguments":
        """Return arguments with the choice of ENV:auto, made by a measurement and printed; others unchanged. Not in a
        named group: its command finds the run by its config, which a second measurement might change."""
        if self.file or self.group or not is_undecided(self.config_id, (*self.chosen, *self.overrides)):
            return self
        decision = decide(self.config_id, self.overrides, look)
        if not self.quiet:
            print(decision.line)
        return replace(self, chosen=decision.overrides)

    def load(self, look: Look | None = None) -> Config:
        """Return the checked config. `look` returns facts of an environment that has no settings of its own.

        A run of a W&B sweep reports to W&B, even if its config does not say so.
        """
        config = self._load(look)
        if self.sweep is None or TRACKER in config.logger:
            return config
        return replace(config, logger=(*config.logger, TRACKER))

    def _load(self, look: Look | None) -> Config:
        if self.file:
            return load_file(self.file, self.config_id.rpartition(":")[2], self.overrides)
        if not self.config_id:
            raise UserError("say what to train: ENV:VARIANT, for example CartPole-v1:ppo; --list-envs shows all")
        try:
            env_id, variant = parse_config_id(self.config_id)
        except UserError:
            if not is_general(self.config_id):
                raise
            return load_general(self.config_id, (*self.chosen, *self.overrides), look)
        return load_config(env_id, variant, self.overrides)

    def changes(self, config: Config) -> list[str]:
        """Return the overrides that make the config differ from its file. For general settings, which depend on the
        environment, and for a resumed run: those that were typed."""
        try:
            return changes_between(to_plain(replace(self, overrides=())._load(None)), to_plain(config))
        except (UserError, TooEarlyError):  # incomplete without overrides, or not known before torch is loaded
            typed = [text.lstrip("-") for text in self.overrides]
            return merged_changes([text for text in typed if text.partition("=")[0] not in LABEL_KEYS])

    def shipped(self, config: Config) -> list[str]:
        """Return the overrides that undo `changes`: ["gamma=0.98"]; [] for a resumed run."""
        if not self.overrides or self.resume:
            return []
        try:
            return changes_between(to_plain(config), to_plain(self._unchanged(config)))
        except UserError:  # incomplete without overrides
            return []

    def _unchanged(self, config: Config) -> Config:
        """Return the config without overrides."""
        try:
            return replace(self, overrides=())._load(None)
        except TooEarlyError:
            return settings_of(config, self.chosen)

    def again(self, override: str) -> str:
        """Return the command with this override changed; for a resumed run only the override, as it needs a new run."""
        if self.resume:
            return f"{override}, in a new run"
        command = [self.config_id] if self.config_id else []
        command += ["--config", self.file] if self.file else []
        key = override.partition("=")[0]
        command += [other for other in self.overrides if other.lstrip("-").partition("=")[0] != key]
        return f"{TRAIN} {shlex.join([*command, override])}"


def check_pause(pause_at: int | None, budget: int) -> None:
    """Raise UserError if --pause-at is above the budget, so that the run would never pause."""
    if pause_at is not None and pause_at > budget:
        raise UserError(
            f"--pause-at {pause_at:,} is above the budget of {budget:,} env steps; the run would never pause"
        )


def build_parser() -> OneLineParser:
    # --help is not argparse's: with ENV:VARIANT it shows that variant's keys
    parser = OneLineParser(
        prog="python train.py", description="Train an agent from a config.", epilog=EXAMPLES, add_help=False
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="ENV:VARIANT key=value", help="what to train, and what to change")
    text = "where to train several runs: local, ray (a cluster) or ray:local (one for this command); see docs/scale.md"
    add("--on", metavar="WHERE", default=LOCAL, help=text)
    text = "train every combination of values: key=1,2 or key=range(1,5) or key=[64,64],[128,128] (Hydra's grammar)"
    add("-m", "--multirun", action="store_true", help=f"multiply: {text}")
    add(
        "-h",
        "--help",
        action="store_true",
        help="show this help; with ENV:VARIANT: every key of that variant; with wrappers: every wrapper",
    )
    add("--config_id", "--config-id", metavar="ENV:VARIANT", help="the same as the first argument")
    text = "your own YAML file; modules beside it can be imported"
    add("--config", dest="file", metavar="FILE", default="", help=text)
    add_project(parser)
    add("--list-envs", nargs="?", const="", metavar="TERM", help="show the shipped variants")
    add("--max-timesteps", metavar="N", help="budget in env steps, for example 1e5")
    add("--seed", metavar="N[,N...]", help="one seed, or several (1,2,3 or 1-5): one run per seed")
    for flag, metavar, text in VALUES:
        add(flag, metavar=metavar, default="", help=text)
    text = "save and stop after N env steps, without the closing test; --resume continues exactly, as without the stop"
    add("--pause-at", metavar="STEPS", help=text)
    text = "use the values that a W&B sweep chose (automatic under a W&B agent); see docs/trackers.md"
    add("--wandb_sweep", "--wandb-sweep", action="store_true", help=text)
    add("-q", "--quiet", action="store_true", help="print only one line at the end, easy to grep")
    for flag, text in SWITCHES.items():
        add(flag, action="store_true", help=text)
    return parser


def parse_arguments(argv: list[str]) -> Arguments:
    """Parse argv, without the program's name; unknown flags raise UserError, `--key=value` is an override."""
    parser = build_parser()
    flags = parser.flags
    key_flags = [word for word in argv if word.startswith("--") and "=" in word and word.partition("=")[0] not in flags]
    # intermixed: flags may stand between the words
    parsed, unknown = parser.parse_known_intermixed_args([word for word in argv if word not in key_flags])
    if unknown:
        advice = flag_advice(unknown[0]) or nearest(unknown[0], flags)
        raise UserError(f"unknown flag {unknown[0]!r}{advice}; --help shows the flags")
    config_ids = [parsed.config_id] if parsed.config_id else []
    config_ids += [word for word in parsed.words if "=" not in word]
    overrides = [word for word in parsed.words if "=" in word] + key_flags
    if parsed.max_timesteps is not None:
        overrides.append(f"max_timesteps={parsed.max_timesteps}")
    seeds = () if parsed.seed is None else parse_seeds(parsed.seed)
    if len(seeds) == 1:
        overrides.append(f"seed={seeds[0]}")
    if len(seeds) > 1 and any(override.startswith("seed=") for override in overrides):
        raise UserError(f"both --seed {parsed.seed} and seed= are given; use --seed only")
    sweep = None if parsed.resume else find_sweep(parsed.wandb_sweep)
    if parsed.group:
        check_group(parsed.group)
    _check_conflicts(parsed, config_ids, seeds, sweep)
    multirun = parsed.multirun
    several = _each_training(config_ids, overrides, multirun)
    run_count = len(several) * max(1, len(seeds))
    if run_count > MAX_RUNS:
        raise UserError(f"this command would start {run_count:,} runs; the limit is {MAX_RUNS:,}")
    values = vars(parsed)
    for name in ("words", "multirun", "max_timesteps", "seed", "wandb_sweep"):  # not fields of Arguments
        del values[name]
    return Arguments(
        **values
        | {
            "config_id": config_ids[0] if config_ids else "",
            "overrides": sweep.overrides(overrides) if sweep else several[0][1],
            "seeds": seeds,
            "quiet": parsed.quiet or parsed.json or os.environ.get("STRIDE_QUIET") == "1",
            "debug": parsed.debug or attached(),
            "checks": parsed.debug,
            "trust": trusted(parsed.trust),
            "processes": parse_processes(parsed.processes),
            "pause_at": None if parsed.pause_at is None else parse_steps(parsed.pause_at),
            "sweep": sweep,
            "several": several if len(several) > 1 else (),
            "typed": (*config_ids, *["-m"] * multirun, *overrides),
        }
    )


def trusted(text: str) -> tuple[str, ...]:
    """Return the module names of --trust; UserError if one is not a name."""
    modules = tuple(part.strip() for part in text.split(",") if part.strip())
    trusting(modules)
    return modules


def _each_training(config_ids: Sequence[str], overrides: Sequence[str], multirun: bool) -> tuple[Words, ...]:
    """Combine each ENV:VARIANT with each combination of values."""
    for config_id in config_ids:
        if config_ids.count(config_id) > 1:
            raise UserError(f"{config_id} is given twice; name each training once")
        if ":" not in config_id and len(config_ids) > 1:
            example = f"not {config_id!r}; overrides are written key=value"
            raise UserError(f"name each training as ENV:VARIANT, {example}")
    values = combinations(overrides) if multirun else [tuple(overrides)]
    return tuple((config_id, overrides_of_one) for config_id in config_ids or [""] for overrides_of_one in values)


def _check_conflicts(
    flags: argparse.Namespace, config_ids: list[str], seeds: tuple[int, ...], sweep: WandbSweep | None
) -> None:
    """Raise UserError for flags that exclude each other, or that need another flag."""
    resume, group = flags.resume, names_group(flags.resume)
    ranked = flags.processes or rank_of(os.environ)
    has_many = len(seeds) > 1 or len(config_ids) > 1 or flags.multirun or flags.on != LOCAL
    refuse(
        (resume and (config_ids or flags.file or flags.multirun or len(seeds) > 1),
         "--resume takes its settings from the run's config.json; give it alone, or with key=value changes"),
        (resume and flags.wandb_sweep,
         "--wandb_sweep is for new runs; --resume takes its settings from the run's config.json"),
        (flags.checkpoint and group,
         "--checkpoint is for one run; a group resumes every run where it stopped"),
        (flags.checkpoint and not resume, "--checkpoint needs --resume; give both"),
        (flags.fork and not resume, "--fork needs --resume; give both"),
        (flags.fork and group, "--fork is for one run; a group resumes every run where it stopped"),
        (flags.group and resume and not flags.fork,
         "--group already finds the run to continue by its config; leave out --resume, or add --fork"),
        (flags.accept_changes and not resume, "--accept-changes needs --resume; give both"),
        (flags.trust and not resume,
         "--trust is for resuming a run from elsewhere; modules that you name yourself need no --trust"),
        (sweep and has_many,
         f"a run of a sweep has one seed, not {f'--seed {flags.seed}' if flags.seed else 'several'}; let the"
         " sweep choose the seed"),
        (flags.group and flags.debug, "--debug starts a separate run, outside any --group; give one of them"),
        (ranked and (has_many or group or flags.debug or flags.detach or flags.monitor),
         "--processes, torchrun and srun carry one training, in the foreground; leave out the other flag"),
        (flags.mixed and not ranked, "--mixed is for several processes of one training; give --processes, too"),
        (flags.json and (has_many or group), "--json reports one run; start one command per seed, each with --json"),
    )  # fmt: skip
    check_machines(flags.on)
    apart_flag = "--detach" if flags.detach else "--monitor"
    refuse(
        (flags.on != LOCAL and flags.debug,
         f"--debug works on this machine only, and --on {flags.on} trains elsewhere; give one of them"),
        ((flags.detach or flags.monitor) and (flags.json or flags.debug),
         f"{apart_flag} trains in the background, without output; --json and --debug need output: give one of them"),
        (flags.json and (flags.help or flags.list_envs is not None),
         "--json reports a training; --help and --list-envs are for people"),
    )  # fmt: skip


def attached() -> bool:
    """Whether a debugger is attached: by a trace function, or since Python 3.12 by sys.monitoring."""
    if sys.gettrace() is not None:
        return True
    return sys.version_info >= (3, 12) and sys.monitoring.get_tool(sys.monitoring.DEBUGGER_ID) is not None
