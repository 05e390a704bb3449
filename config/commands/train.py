"""The command line of train.py: flags and `key=value` overrides, every word accounted for. No training here."""

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stride.config.commands.machines import check_place
from stride.config.commands.one_line import OneLineParser as OneLineParser
from stride.config.commands.one_line import add_project
from stride.config.debugger import attached
from stride.config.general import Look, is_general, load_general
from stride.config.loader import load_config, load_file, parse_config_id
from stride.config.multirun import MOST, combinations
from stride.config.plugins import trusting
from stride.config.schema import Config
from stride.config.sweep import TRACKER, Sweep, find_sweep
from stride.runstore.seed_group import check_group, names_group, spelled_out
from stride.utils.places import TRAIN
from stride.utils.user_error import UserError, nearest

EXAMPLES = """\
examples:
  python train.py CartPole-v1:ppo                      train a shipped variant
  python train.py CartPole-v1:ppo policy_lr=1e-3       change any key; schedules too: policy_lr=lin_0.001
  python train.py CartPole-v1:ppo --seed 1,2,3,4,5     one run per seed, as one group
  python train.py CartPole-v1:ppo Acrobot-v1:ppo -m policy_lr=1e-3,3e-4 gamma=0.98,0.99 --seed 1-5
                                                       each of them with each combination of these values: 40 runs
  python train.py CartPole-v1:ppo device=cuda          on a GPU; engine=graphed and precision=bf16 are docs/gpu.md
  python train.py Ant-v5:sac                           any Gymnasium environment, with the algorithm's general settings
  python train.py --list-envs cart                     what is there, and what it reached here
  python train.py --resume @last                       continue exactly where a run stopped
  python train.py --resume group:NAME                  the same for every unfinished run of a group
  python train.py CartPole-v1:ppo --group NAME         begin the run, or go on with it, or say that it is done: for a
                                                       scheduler that starts commands again (docs/scale.md); of
                                                       several runs those that are missing
  python train.py CartPole-v1:ppo --help               every key of that variant with its meaning and value
environment variables:
  STRIDE_RUNS=FOLDER    where runs lie, for every command; else in runs/ of a project of one's own (made by
                        python -m stride new), beside this program, or where one stands if it was installed
  STRIDE_PROJECT=FOLDER as --project
  STRIDE_QUIET=1        as -q
  STRIDE_LEASE=SECONDS  when a run is nobody's whose machine no longer answers (120); the same on all machines
  STRIDE_NO_RUN_LOG=1   no run.log in a run's folder
  WANDB_MODE=offline    what W&B's own variables say goes for logger: wandb
exit codes:
  0 trained, or paused; 1 the training failed; 2 the words are wrong, nothing was begun; 3 with --require-goal: the
  goal was not reached, or not by every seed; 75 another machine has taken the run over; 130 and 143 stopped by Ctrl-C
  or SIGTERM, and saved
"""
IN_SWEEP = "take the values that a sweep of W&B chose (its agent's variables alone say it, too): docs/trackers.md"
TRUST = "import these modules of this machine where a run from elsewhere names them"


@dataclass(frozen=True)
class Arguments:
    """What was asked for."""

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
    require_goal: bool
    help: bool
    trust: tuple[str, ...] = ()
    detach: bool = False
    monitor: bool = False
    pause_at: int | None = None
    fork: bool = False
    claimed: bool = False
    """Whether `resume` is the run that a group has: started again, it may stand where it was to pause."""
    sweep: Sweep | None = None
    """Whose values are among the overrides."""
    several: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """ENV:VARIANT and overrides of each training, where there is more than one beside the seeds."""
    asked: tuple[str, ...] = ()
    """What was typed of them."""
    on: str = "local"

    @property
    def many(self) -> bool:
        """Whether these are the words of several runs."""
        return len(self.seeds) > 1 or bool(self.several) or (self.on != "local" and not self.resume)

    @property
    def pausing(self) -> tuple[str, ...]:
        """--pause-at, for the processes of several runs."""
        return () if self.pause_at is None else ("--pause-at", str(self.pause_at))

    def each(self) -> "list[Arguments]":
        """The words of every training; seeds do not count."""
        one = [replace(self, config_id=config_id, overrides=words, several=()) for config_id, words in self.several]
        return one or [self]

    def load(self, look: Look | None = None) -> Config:
        """The checked config that the words describe; `look` at an environment that has none of its own.

        A run of a sweep tells W&B how it went, whether or not anybody wrote that down.
        """
        config = self._load(look)
        told = self.sweep is None or TRACKER in config.logger
        return config if told else replace(config, logger=(*config.logger, TRACKER))

    def _load(self, look: Look | None) -> Config:
        if self.file:
            return load_file(self.file, self.config_id.rpartition(":")[2], self.overrides)
        if not self.config_id:
            raise UserError("which environment? ENV:VARIANT, for example CartPole-v1:ppo; --list-envs shows them")
        try:
            named = parse_config_id(self.config_id)
        except UserError:
            if not is_general(self.config_id):
                raise
            return load_general(self.config_id, self.overrides, look)
        return load_config(*named, self.overrides)

    def again(self, word: str) -> str:
        """The command that differs in this override; of a run that goes on the override, as another value is another
        run."""
        if self.resume:
            return f"{word}, in a new run"
        kept = (each for each in self.overrides if each.lstrip("-").partition("=")[0] != word.partition("=")[0])
        file = ("--config", self.file) if self.file else ()
        return f"{TRAIN} {shlex.join([*filter(None, [self.config_id]), *file, *kept, word])}"


def check_pause(pause_at: int | None, budget: int) -> None:
    """UserError where no iteration of a training of this budget could be the one to pause after."""
    if pause_at is not None and pause_at > budget:
        raise UserError(f"--pause-at {pause_at:,} is beyond the budget of {budget:,} env steps; nothing pauses there")


def build_parser() -> OneLineParser:
    # --help is a flag of ours: with ENV:VARIANT it shows that variant's keys. No abbreviations: a word that is
    # mistyped is refused with the nearest flag, not guessed
    parser = OneLineParser(
        prog="python train.py",
        description="Train an agent from a config.",
        epilog=EXAMPLES,
        add_help=False,
    )
    parser.add_argument("words", nargs="*", metavar="ENV:VARIANT key=value", help="what to train, and what to change")
    text = "where several runs are trained: local; ray, a cluster; or ray:local, one for this command (docs/scale.md)"
    parser.add_argument("--on", metavar="WHERE", default="local", help=text)
    text = (
        "multiply: each combination of values, key=1,2 or key=range(1,5) or key=[64,64],[128,128], in Hydra's grammar"
    )
    parser.add_argument("-m", "--multirun", action="store_true", help=text)
    parser.add_argument("-h", "--help", action="store_true", help="this, or with ENV:VARIANT every key of that variant")
    parser.add_argument("--config_id", "--config-id", metavar="ENV:VARIANT", help="the same as the first word")
    parser.add_argument("--config", metavar="FILE", default="", help="a YAML file of your own; modules beside it count")
    add_project(parser)
    parser.add_argument("--list-envs", nargs="?", const="", metavar="TERM", help="show the shipped variants")
    parser.add_argument("--max-timesteps", metavar="N", help="budget in env steps, for example 1e5")
    parser.add_argument("--seed", metavar="N[,N...]", help="one seed, or several: one run each (1,2,3 or 1-5)")
    resume = "continue a run: @last, @best, its id or its folder; or group:NAME, group:@last"
    parser.add_argument("--resume", metavar="RUN", default="", help=resume)
    text = "with --resume: best or epoch=NN, as a new run; with --fork last and step=N, too"
    parser.add_argument("--checkpoint", metavar="NAME", default="", help=text)
    text = "with --resume: a new run from there, which may have another seed; the old one stays. --group: once"
    parser.add_argument("--fork", action="store_true", help=text)
    text = "stop at so many env steps, saved and untested, to go on another time as if nothing had been"
    parser.add_argument("--pause-at", metavar="STEPS", help=text)
    text = "the run of this group with exactly this config and seed: begun, continued, or waited for where it trains"
    parser.add_argument("--group", metavar="NAME", default="", help=text)
    parser.add_argument(
        "--accept-changes", action="store_true", help="with --resume: take a config.json that was edited by hand"
    )
    parser.add_argument("--wandb_sweep", "--wandb-sweep", action="store_true", help=IN_SWEEP)
    parser.add_argument("--trust", metavar="MODULE[,MODULE]", default="", help=TRUST)
    parser.add_argument("-q", "--quiet", action="store_true", help="one line at the end, made for grep, nothing else")
    parser.add_argument(
        "--require-goal", action="store_true", help="exit code 3 unless the closing test reaches the goal"
    )
    parser.add_argument("--json", action="store_true", help="an event a line on stdout, for programs: docs/events.md")
    text = "train in the background, which outlives this shell; says how to look on and how to stop it"
    parser.add_argument("--detach", action="store_true", help=text)
    text = "a monitor beside the training, in tmux; elsewhere in the console's place, the training in the background"
    parser.add_argument("--monitor", action="store_true", help=text)
    parser.add_argument("--debug", action="store_true", help="one world, a tiny budget, all checks, a profiler trace")
    return parser


def parse_arguments(argv: list[str]) -> Arguments:
    """argv without the program's name; unknown flags are refused with the nearest, `--key=value` is an override."""
    parser = build_parser()
    flags = parser.flags
    tracker = [word for word in argv if word.startswith("--") and "=" in word and word.partition("=")[0] not in flags]
    # intermixed: flags may stand between the words
    found, unknown = parser.parse_known_intermixed_args([word for word in argv if word not in tracker])
    if unknown:
        raise UserError(f"unknown flag {unknown[0]!r}{nearest(unknown[0], flags)}; --help shows the flags")
    words = [word for word in found.words if "=" not in word]
    if found.config_id:
        words.insert(0, found.config_id)
    overrides = [word for word in found.words if "=" in word] + tracker
    if found.max_timesteps is not None:
        overrides.append(f"max_timesteps={found.max_timesteps}")
    seeds = parse_seeds(found.seed) if found.seed is not None else ()
    if len(seeds) == 1:
        overrides.append(f"seed={seeds[0]}")
    if len(seeds) > 1 and any(word.startswith("seed=") for word in overrides):
        raise UserError(f"--seed {found.seed} and seed= at once; --seed alone says it")
    found.resume = spelled_out(found.resume)
    sweep = None if found.resume else find_sweep(found.wandb_sweep)
    if found.group:
        check_group(found.group)
    _check_resume(found, words, seeds)
    _check_togetherness(found, len(seeds) > 1 or len(words) > 1 or found.multirun or found.on != "local", sweep)
    several = product_of(words, overrides, found.multirun)
    if max(1, len(several)) * max(1, len(seeds)) > MOST:
        raise UserError(f"{len(several) * max(1, len(seeds)):,} runs; one command has at most {MOST:,}")
    return Arguments(
        config_id=words[0] if words else "",
        overrides=sweep.overrides(overrides) if sweep else several[0][1],
        file=found.config,
        seeds=seeds,
        resume=found.resume,
        checkpoint=found.checkpoint,
        accept_changes=found.accept_changes,
        group=found.group,
        list_envs=found.list_envs,
        quiet=found.quiet or found.json or os.environ.get("STRIDE_QUIET") == "1",
        json=found.json,
        debug=found.debug or attached(),
        require_goal=found.require_goal,
        help=found.help,
        trust=trusted(found.trust),
        detach=found.detach,
        monitor=found.monitor,
        pause_at=steps_of(found.pause_at),
        fork=found.fork,
        sweep=sweep,
        several=several if len(several) > 1 else (),
        asked=(*words, *["-m"] * found.multirun, *overrides),
        on=found.on,
    )


def product_of(
    words: Sequence[str], overrides: Sequence[str], multirun: bool
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each ENV:VARIANT with each combination of values."""
    if len({*words}) < len(words):
        raise UserError(f"{next(word for word in words if words.count(word) > 1)} is given twice")
    if any(":" not in word for word in words) and len(words) > 1:
        wrong = next(word for word in words if ":" not in word)
        raise UserError(f"several trainings are each named ENV:VARIANT, not {wrong!r}; overrides are written key=value")
    values = combinations(overrides) if multirun else [tuple(overrides)]
    return tuple((word, each) for word in words or [""] for each in values)


def _check_resume(found: argparse.Namespace, words: list[str], seeds: tuple[int, ...]) -> None:
    """What may stand beside --resume, and what says nothing without it."""
    if found.resume and (words or found.config or found.multirun or len(seeds) > 1):
        raise UserError(
            "--resume takes everything from the run's config.json; give it alone, or with key=value changes"
        )
    if found.resume and found.wandb_sweep:
        raise UserError(
            "--wandb_sweep says what a run begins with; --resume takes everything from the run's config.json"
        )
    if found.checkpoint and names_group(found.resume):
        raise UserError("a group goes on where each of its runs stopped; --checkpoint is for one run")
    if found.checkpoint and not found.resume:
        raise UserError("--checkpoint says where to --resume a run; give both")
    if found.fork and not found.resume:
        raise UserError("--fork says how to --resume a run; give both")
    if found.fork and names_group(found.resume):
        raise UserError("--fork is for one run; a group goes on where each of its runs stopped")
    if found.group and found.resume and not found.fork:
        raise UserError("--group finds the run to go on with by its config; give it, or --resume, or --fork as well")
    if found.accept_changes and not found.resume:
        raise UserError("--accept-changes says how to --resume a run; give both")
    if found.trust and not found.resume:
        raise UserError("--trust is for a run from elsewhere that is to go on; what you name yourself is imported")


def _check_togetherness(found: argparse.Namespace, many: bool, sweep: Sweep | None) -> None:
    """Flags that cannot be meant at once; `many`: several runs."""
    if sweep and many:
        told = f"--seed {found.seed}" if found.seed else "several"
        raise UserError(f"a sweep's run has one seed, not {told}; let the sweep choose among seeds")
    if found.group and found.debug:
        raise UserError("--debug makes a run of its own, which no --group has; give one of them")
    if found.json and (many or found.resume.startswith("group:")):
        raise UserError("--json tells of one run; start one for each seed, each with --json")
    check_place(found.on)
    if found.on != "local":
        if found.resume and not names_group(found.resume):
            raise UserError(f"--on {found.on} is for several runs; one goes on where you are")
        if found.debug:
            raise UserError(f"--debug looks at what happens here, and --on {found.on} is elsewhere: give one of them")
    if (found.detach or found.monitor) and (found.json or found.debug):
        apart = "--detach" if found.detach else "--monitor"
        raise UserError(f"{apart} trains where nobody reads; --json and --debug are for who does: give one of them")
    if found.json and (found.help or found.list_envs is not None):
        raise UserError("--json tells of a training; --help and --list-envs are for people")


def trusted(text: str) -> tuple[str, ...]:
    """The modules of --trust, each a name."""
    modules = tuple(part.strip() for part in text.split(",") if part.strip())
    trusting(modules)
    return modules


def steps_of(text: str | None) -> int | None:
    """Env steps, as 20000, 20_000 or 2e4; None where nothing was said."""
    if text is None:
        return None
    try:
        steps = float(text)
    except ValueError:
        steps = 0.0
    if not 1 <= steps < 2**63 or steps != int(steps):
        raise UserError(f"--pause-at {text}: env steps are a whole number above 0, such as 20000 or 2e4")
    return int(steps)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`3`, `1,2,3` or `1-5`, each once."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,40})\s*(?:-\s*(\d{1,40})\s*)?", part)
        if not match:
            raise UserError(f"--seed {text}: seeds are whole numbers from 0, such as 3, 1,2,3 or 1-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"--seed {text}: {first}-{last} runs backwards")
        if len(seeds) + last - first >= MOST:
            raise UserError(f"--seed {text}: a group has at most {MOST:,} seeds")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seed {text}: a seed is given twice")
    return tuple(seeds)
