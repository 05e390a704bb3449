"""Tests environments that raise, exit, hang, die or return wrong values: the error must name the environment at once.

    python -m lab.faults environments

Faults are planted in training (PPO and DQN, Gymnasium's environments in the training process), in evaluation and the
closing test, in playing and publishing, and where environments are created (tests/envs_gym/test_async_env.py tests
worker processes). An environment that hangs is ended by Ctrl-C or by step_timeout. One that dies ends the training
process, too, and the next command that reads the run says so. No process may stay, no wrong number may be counted, and
every run then resumes to the bits of the run in which nothing went wrong.

The environments are CartPoles that read $STRIDE_FAULT, for example {"what": "hangs in reset", "world": 2, "told":
"/tmp/x.told", "at": 83, "seeded": 3}. The environment number `world` (or "every" one) fails from its step number `at`
on (default 83), in the middle of an episode, after it was seeded `seeded` times if that is given; or in the next reset,
render or close. Before it fails it creates the file `told`.
"""

import json
import multiprocessing
import os
import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypedDict

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

from lab.faults import rig
from lab.faults.record import Report
from stride.commands import run_play, run_publish
from stride.runstore.run_dir import RunDir
from stride.runstore.run_fate import fate
from stride.utils.durable_file import read_json

VARIABLE = "STRIDE_FAULT"
ENV_ID = "stride-fault/Trouble-v0"
AT, LONGEST = 83, 49  # steps: since an environment was created, and the most in an episode before a fault
PLACES = ("reset", "close", "the constructor", "the picture")
Answer = tuple[Any, ...]  # what step returns: (obs, reward, terminated, truncated, info)

_made: list["Trouble"] = []  # every environment of this process, in order


class Fault(TypedDict, total=False):
    """The contents of $STRIDE_FAULT; the module's docstring explains the keys."""

    what: str
    world: int | str
    told: str
    at: int
    seeded: int


class TroubleError(ValueError):
    """An error whose text cannot be read."""

    def __str__(self) -> NoReturn:
        raise RuntimeError


def leave(error: BaseException) -> NoReturn:
    raise error


def recurse() -> None:
    recurse()


def compute() -> NoReturn:
    while True:
        pass


def alarm() -> None:
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    time.sleep(0.005)


def other(index: int, value: object, answer: Answer) -> Answer:
    """Return the answer with another value at this index."""
    return (*answer[:index], value, *answer[index + 1 :])


_ERRORS: dict[str, BaseException] = {
    "raises": ZeroDivisionError("the sky fell"),
    "raises coloured text": ValueError("one\ntwo\r\x1b[31mthree\x07\u202e"),
    "raises an error without text": TroubleError(),
    "calls sys.exit": SystemExit(0),  # would pass for a good end
    "calls sys.exit with a text": SystemExit("enough\nof this"),
    "raises KeyboardInterrupt": KeyboardInterrupt(),
    "raises GeneratorExit": GeneratorExit(),
    "raises something that is no Exception": type("Refusal", (BaseException,), {})("no"),
    "raises StopIteration": StopIteration(),
    "runs out of memory": MemoryError(),
}
# fault -> exit code of the process; negative: the number of the signal
DIES = {"ends its process": 3, "ends its process with code 0": 0, "is killed": -9, "crashes": -11}
ACTS: dict[str, Callable[[], object]] = {  # fault -> what is done before an answer
    **{what: partial(leave, error) for what, error in _ERRORS.items()},
    "recurses without end": recurse,
    "hangs": lambda: time.sleep(1000),
    "computes without end": compute,
    "waits for a lock": lambda: multiprocessing.Event().wait(),
    "waits for input": lambda: os.read(os.pipe()[0], 1),
    **{what: partial(os._exit, code) for what, code in DIES.items() if code >= 0},
    **{what: partial(signal.raise_signal, -code) for what, code in DIES.items() if code < 0},
    "sets an alarm": alarm,
}
NUMBERS: dict[str, float] = {"NaN": np.nan, "infinity": np.inf, "-infinity": -np.inf, "1e300": 1e300}
ODD: dict[str, tuple[int, object]] = {  # fault -> (index in the answer, wrong value)
    "observes a number": (0, 0.0), "observes text": (0, "left"), "observes None": (0, None),
    "observes objects": (0, [None] * 4), "observes complex numbers": (0, np.zeros(4, np.complex64)),
    "observes a dict": (0, {"a": 1.0}),
    "rewards with text": (1, "much"), "rewards with a number as text": (1, "1"), "rewards with None": (1, None),
    "gives two rewards": (1, np.ones(2)), "rewards with a list": (1, [1.0]), "rewards with a complex number": (1, 1j),
    "rewards with a dict": (1, {}),
    "ends with text": (2, "False"), "ends with 0.5": (2, 0.5), "ends with two flags": (2, np.ones(2, bool)),
}  # fmt: skip
_NUMBERS: dict[str, tuple[int, object]] = {
    **{f"rewards with {name}": (1, number) for name, number in NUMBERS.items()},
    **{f"observes {name}": (0, np.array([0.0, number, 0.0, 0.0])) for name, number in NUMBERS.items()},
}
GIVES: dict[str, Callable[[Answer], object]] = {  # fault -> the answer, made from the right one
    **{what: partial(other, *part) for what, part in {**ODD, **_NUMBERS}.items()},
    "observes one value too many": lambda answer: (np.append(answer[0], answer[0][:1]), *answer[1:]),
    "observes too few values": lambda answer: (answer[0][:1], *answer[1:]),
    "returns four values": lambda answer: answer[:4],
    "returns six values": lambda answer: (*answer, 0),
    "returns None": lambda answer: None,
}
RAISES = (*_ERRORS, "recurses without end", "raises in reset", "calls sys.exit in reset",
          "raises KeyboardInterrupt in reset")  # fmt: skip
CLOSES = ("raises in close", "calls sys.exit in close", "raises KeyboardInterrupt in close")
HANGS = ("hangs", "hangs in reset")
SPINS = ("computes without end", "waits for a lock", "waits for input")
UNSOUND = tuple(_NUMBERS)
ANSWERS = (*(what for what in GIVES if what not in UNSOUND), "observes too few values in reset",
           "returns None in reset")  # fmt: skip
_UNMADE = ("raises", "calls sys.exit", "raises KeyboardInterrupt", "raises coloured text",
           "raises something that is no Exception", "has no observation space", "has no action space",
           "sees nothing", "does nothing")  # fmt: skip
MAKING = tuple(f"{what} in the constructor" for what in _UNMADE)
HARMLESS = ("sets an alarm",)
FAULTS = (*RAISES, *HANGS, *SPINS, *DIES, *ANSWERS, *CLOSES, *UNSOUND, *HARMLESS)


class Trouble(CartPoleEnv):
    """A CartPole that fails as $STRIDE_FAULT says.

    `place` is its number in this process, `total_steps` its steps since it was created, `age` those of the episode.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.place, self.total_steps, self.age, self.seeded, self.has_failed = len(_made), 0, 0, 0, False
        _made.append(self)
        if fault := self.fault("the constructor"):
            wrong(fault, (None,))
            empty = gymnasium.spaces.Box(-1.0, 1.0, (0,), np.float32)
            match fault["what"].removesuffix(" in the constructor"):
                case "has no observation space":
                    del self.observation_space
                case "has no action space":
                    del self.action_space
                case "sees nothing":
                    self.observation_space = empty
                case "does nothing":
                    self.action_space = empty

    def step(self, action: object) -> Any:
        self.total_steps, self.age = self.total_steps + 1, self.age + 1
        answer = super().step(action)
        fault = self.fault("")
        if not fault or self.has_failed or answer[2] or self.age >= LONGEST or self.total_steps < fault.get("at", AT):
            return answer
        if self.seeded < fault.get("seeded", 0):
            return answer
        self.has_failed = True
        return wrong(fault, answer)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        answer = super().reset(seed=seed, options=options)
        self.age, self.seeded = 0, self.seeded + (seed is not None)
        fault = self.fault("reset")
        return wrong(fault, answer) if fault and self.total_steps >= fault.get("at", AT) else answer

    def render(self) -> Any:
        if fault := self.fault("the picture"):
            return wrong(fault, (None,))
        return super().render()

    def close(self) -> None:
        super().close()
        fault = self.fault("close")
        if fault and self.total_steps >= fault.get("at", AT):
            wrong(fault, (None,))

    def fault(self, place: str) -> Fault:
        """Return the fault if it is to happen here, else {}; `place` is one of PLACES, "" is step."""
        fault: Fault = json.loads(os.environ.get(VARIABLE, "{}"))
        is_ours = fault and fault["world"] in (self.place, "every")
        fault_place = next((name for name in PLACES if fault and fault["what"].endswith(f" in {name}")), "")
        return fault if is_ours and fault_place == place else {}


def wrong(fault: Fault, answer: Answer) -> Any:
    """Carry out the fault, or return a wrong answer made from `answer`."""
    Path(fault["told"]).write_text("here")  # first, because the process may end now
    what = fault["what"]
    for place in PLACES:
        what = what.removesuffix(f" in {place}")
    if what in ACTS:
        ACTS[what]()
    return GIVES[what](answer) if what in GIVES else answer


gymnasium.register(ENV_ID, Trouble, max_episode_steps=LONGEST + 1)


MODULE = f"lab.faults.environments:{ENV_ID}"
# workers=0, because `auto` would create another environment first, to time it, and this would shift their numbers
CHANGED = (f"env_id={MODULE}", "spec={}", "env_backend=gym", "workers=0")
AGENTS = {"ppo": (*rig.TINY, *CHANGED), "dqn": (*rig.REPLAY, *CHANGED)}
WORDS = AGENTS["ppo"]
WORLD = 2  # the number of the environment that fails in training
# environments 0 to 3 train; 4 was created only to read its spaces
EVALUATED, TESTED = Fault(world=5, at=3, seeded=3), Fault(world=8, at=20)
LIMIT = "step_timeout=0.5"
COUNTED = (*UNSOUND, "rewards with a number as text", "ends with text", "raises", "calls sys.exit",
           "raises KeyboardInterrupt")  # fmt: skip
PLAYING: dict[str, tuple[Callable[[list[str]], int], tuple[str, ...]]] = {
    "counting": (run_play.command, ("--headless", "--episodes", "3")),
    "watching": (run_play.command, ("--headless", "--episodes", "2", "--video", "VIDEO")),
    "publishing": (run_publish.command, ("--dry-run", "FOLDER")),
}
NAMED = re.compile(rf"^error: .*(world|environment) {WORLD}\b")


class Trial(NamedTuple):
    """A training with a fault: agent of AGENTS, fault of FAULTS, where it happens, more arguments."""

    agent: str
    what: str
    where: Fault
    words: tuple[str, ...] = ()


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    faults, counted_faults = rig.evenly(FAULTS, counts["faults"]), rig.evenly(COUNTED, counts["faults"])
    wanted = {agent: rig.comparable(rig.undisturbed(words, folder / agent)) for agent, words in AGENTS.items()}
    for reference in wanted.values():
        del reference["files"]
    training = [Trial(agent, what, {"world": WORLD}) for what in faults for agent in AGENTS if what not in SPINS]
    training += [Trial("ppo", what, {"world": WORLD}, (LIMIT,)) for what in faults if what in (*HANGS, *SPINS)]
    # all agents are evaluated by the same class, so one agent is enough
    evaluated = [Trial("ppo", what, where) for what in counted_faults for where in (EVALUATED, TESTED)]
    played = [(what, how) for what in counted_faults for how in PLAYING]
    good_end = "runs ended with one line that names environment and place; resumed, they equal a run without a fault"
    classes: dict[str, tuple[Sequence[Any], Callable[..., str], str]] = {
        "in training": (training, partial(trained, wanted), good_end),
        "in evaluation and the closing test": (evaluated, partial(trained, wanted), good_end),
        "where environments are made": (rig.evenly(MAKING, len(faults)), unmade, "ended with one line, status failed"),
        "in playing, filming and publishing": (played, misplayed, "ended with one line that names it, and no result"),
    }
    lines, good = list[str](), True
    for where, (cases, judge, what) in classes.items():
        tally = rig.Tally()
        for number, case in enumerate(cases):
            tally.add(f"{case} {where}", judge(case, folder / f"{len(lines)}-{number}"))
        good = good and tally.good
        lines.append(f"{where}: {tally} {what}")
    return [*lines, f"faults: an environment that {', '.join(faults)}"], good


def faulty(fault: Fault, root: Path) -> Callable[[], object]:
    """Return a `prepare` for `rig.start` that plants this fault; a file beside `root` shows that it happened."""
    contents = {"told": str(told_of(root)), **fault}
    return lambda: os.environ.update({VARIABLE: json.dumps(contents)})


def told_of(root: Path) -> Path:
    return root.parent / f"{root.name}.told"


def trained(wanted: dict[str, dict[str, object]], trial: Trial, root: Path) -> str:
    """Train with the fault, then resume; return what is wrong, "" if nothing is."""
    child = rig.start((*AGENTS[trial.agent], *trial.words), root, faulty({"what": trial.what, **trial.where}, root))
    is_interrupted = trial.what in HANGS and not trial.words
    while child.lives() and not (is_interrupted and told_of(root).exists()):
        time.sleep(0.01)
    started = time.monotonic()
    if is_interrupted:
        os.kill(child.pid, signal.SIGINT)
    ended = child.wait()
    seconds, remaining = time.monotonic() - started, len(living(child.pid))
    if remaining or not told_of(root).exists():
        return f"{remaining} processes left, or it never happened: {ended.said[-300:]}"
    if problem := misled(trial, ended, seconds, rig.last_run(root)):
        return f"{problem}: {ended.said[-500:]}"
    return rig.resumed(root, wanted[trial.agent])


def expected(trial: Trial) -> tuple[int, str]:
    """Return the exit code and the status in config.json that the training must end with."""
    if trial.what in DIES:
        return DIES[trial.what] if DIES[trial.what] >= 0 else 128 - DIES[trial.what], "running"
    if trial.what in HARMLESS:
        return 0, "finished"
    return (130, "interrupted") if trial.what in HANGS and not trial.words else (1, "failed")


def misled(trial: Trial, ended: rig.Ended, seconds: float, run: RunDir | None) -> str:
    """Return what is wrong for the person at the terminal or for the next reader of the run; "" if nothing is."""
    code, status = expected(trial)
    facts = read_json(run.config_json) if run else {}
    if run is None or (ended.code, facts.get("status")) != (code, status) or rig.faults(run):
        return f"exit code {ended.code} and status {facts.get('status')}, or a broken checkpoint"
    if status == "running":
        return "" if "died" in fate(run, facts) else "nobody says that it died"
    if status == "interrupted" and seconds > 5:
        return f"took {seconds:.1f} s"
    return unnamed(trial, rig.message_lines(ended.said)) if status == "failed" else ""


def unnamed(trial: Trial, said: list[str]) -> str:
    """Return what the error line does not name: the environment, or the file and line of the fault."""
    line = said[-1]
    if len(said) > 1 or not line.isprintable() or not line.startswith("error: "):
        return "not one line"
    if trial.where["world"] == WORLD and not NAMED.match(line):
        return "its world is not named"
    located = trial.what in UNSOUND or re.search(r"environments\.py:\d+\)", line)
    return "" if located else "its file and line are not named"


def unmade(what: str, root: Path) -> str:
    """Train with environments that fail when they are created; return what is wrong."""
    ended = rig.finish(WORDS, root, faulty(Fault(what=what, world="every"), root))
    line, run = ended.said.strip(), rig.last_run(root)
    good = re.fullmatch(r"error: .*\(.*environments\.py:\d+\); traceback.*", line) and line.isprintable()
    good = good and ended.code == 1 and run is not None and run.facts()["status"] == "failed"
    return "" if good else f"exit code {ended.code}: {ended.said[-500:]}"


def misplayed(case: tuple[str, str], root: Path) -> str:
    """Play or publish with a fault; `case` is (fault, key of PLAYING). Return what is wrong."""
    what, how = case
    command, arguments = PLAYING[how]
    published = root / "published"
    paths = {"VIDEO": str(root / "film.mp4"), "FOLDER": str(published)}
    words = ["--run-id", "@last", *(paths.get(word, word) for word in arguments)]
    root.mkdir()
    ended = rig.start(words, root.parent / "ppo", faulty(Fault(what=what, world="every", at=5), root), command).wait()
    errors = [line for line in ended.said.split("\n") if line.startswith("error: ")]
    last_line = ended.said.strip().split("\n")[-1]
    good = ended.code == 1 and errors == [last_line] and last_line.isprintable() and not published.exists()
    good = good and "mean " not in ended.said and "Traceback" not in ended.said
    return "" if good else f"exit code {ended.code}: {ended.said[-700:]}"


def living(group: int) -> list[int]:
    """Return the processes of a process group, without zombies."""
    alive = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == group and state not in "ZX":
            alive.append(int(path.parent.name))
    return alive
