"""Worlds that raise, leave, hang, die or answer what they should not: named at once, never counted, nobody left behind.

    python -m lab.faults environments

In training (PPO and DQN, Gymnasium's worlds, in the process itself), in evaluation and the closing test, in playing and
publishing, and where worlds are made (worker processes are tried by tests/envs_gym/test_async_env.py). A world that
hangs is ended by Ctrl-C or by step_timeout; one that dies takes the process along, and the next reader says so. Every
run then resumes to the bits of the run in which nothing went wrong.

The worlds are CartPoles, told by $STRIDE_FAULT: {what, world, told, at, seeded}. The world of that number (or "every"
one) goes wrong from its `at`th step on, 83 where nothing is said, in the middle of an episode (the first after it was
seeded so many times, if that is said), or in the next reset, picture or farewell, and writes into `told` before.
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
from lab.faults.record import Told
from stride.commands import run_play, run_publish
from stride.runstore.run_dir import RunDir
from stride.runstore.run_fate import fate
from stride.utils.durable_file import read_json

VARIABLE = "STRIDE_FAULT"
ENV_ID = "stride-fault/Trouble-v0"
AT, LONGEST = 83, 49  # steps: of a life, and of an episode that goes on
PLACES = ("reset", "close", "the constructor", "the picture")
Answer = tuple[Any, ...]

_made: list["Trouble"] = []


class Fault(TypedDict, total=False):
    """What $STRIDE_FAULT tells, as the module says."""

    what: str
    world: int | str
    told: str
    at: int
    seeded: int


class TroubleError(ValueError):
    """Cannot speak."""

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


def other(place: int, value: object, answer: Answer) -> Answer:
    return (*answer[:place], value, *answer[place + 1 :])


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
DIES = {"ends its process": 3, "ends its process with code 0": 0, "is killed": -9, "crashes": -11}
ACTS: dict[str, Callable[[], object]] = {  # what is done in the place of an answer
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
ODD: dict[str, tuple[int, object]] = {  # an answer's things by their place, and what stands there
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
GIVES: dict[str, Callable[[Answer], object]] = {  # what is answered
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
    """Knows its number and how many steps it has made in its life."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.place, self.lived, self.age, self.seeded, self.over = len(_made), 0, 0, 0, False
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
        self.lived, self.age = self.lived + 1, self.age + 1
        answer = super().step(action)
        fault = self.fault("")
        if not fault or self.over or answer[2] or self.age >= LONGEST or self.lived < fault.get("at", AT):
            return answer
        if self.seeded < fault.get("seeded", 0):
            return answer
        self.over = True
        return wrong(fault, answer)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        answer = super().reset(seed=seed, options=options)
        self.age, self.seeded = 0, self.seeded + (seed is not None)
        fault = self.fault("reset")
        return wrong(fault, answer) if fault and self.lived >= fault.get("at", AT) else answer

    def render(self) -> Any:
        if fault := self.fault("the picture"):
            return wrong(fault, (None,))
        return super().render()

    def close(self) -> None:
        super().close()
        fault = self.fault("close")
        if fault and self.lived >= fault.get("at", AT):
            wrong(fault, (None,))

    def fault(self, place: str) -> Fault:
        """What is to go wrong here; {} for nothing."""
        told: Fault = json.loads(os.environ.get(VARIABLE, "{}"))
        here = told and told["world"] in (self.place, "every")
        where = next((each for each in PLACES if told and told["what"].endswith(f" in {each}")), "")
        return told if here and where == place else {}


def wrong(fault: Fault, answer: Answer) -> Any:
    """Does it, or gives the answer as it should not be."""
    Path(fault["told"]).write_text("here")  # first: there may be no afterwards
    what = fault["what"]
    for place in PLACES:
        what = what.removesuffix(f" in {place}")
    if what in ACTS:
        ACTS[what]()
    return GIVES[what](answer) if what in GIVES else answer


gymnasium.register(ENV_ID, Trouble, max_episode_steps=LONGEST + 1)


MODULE = f"lab.faults.environments:{ENV_ID}"
# workers=0: `auto` makes a world before those that train, to time it, and worlds are counted here
CHANGED = (f"env_id={MODULE}", "spec={}", "env_backend=gym", "workers=0")
AGENTS = {"ppo": (*rig.TINY, *CHANGED), "dqn": (*rig.REPLAY, *CHANGED)}
WORDS = AGENTS["ppo"]
WORLD = 2  # which goes wrong
# worlds 0 to 3 train, 4 was asked what it is
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
    agent: str
    what: str
    where: Fault
    words: tuple[str, ...] = ()


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    chosen, counted = rig.evenly(FAULTS, counts["faults"]), rig.evenly(COUNTED, counts["faults"])
    wanted = {agent: rig.amounts_to(rig.straight(words, folder / agent)) for agent, words in AGENTS.items()}
    for amount in wanted.values():
        del amount["files"]
    training = [Trial(agent, what, {"world": WORLD}) for what in chosen for agent in AGENTS if what not in SPINS]
    training += [Trial("ppo", what, {"world": WORLD}, (LIMIT,)) for what in chosen if what in (*HANGS, *SPINS)]
    # one class evaluates all agents, so one of them will do
    evaluated = [Trial("ppo", what, where) for what in counted for where in (EVALUATED, TESTED)]
    played = [(what, how) for what in counted for how in PLAYING]
    ended = "runs ended with one line that names environment and place; resumed, they equal a run without a fault"
    parts: dict[str, tuple[Sequence[Any], Callable[..., str], str]] = {
        "in training": (training, partial(trained, wanted), ended),
        "in evaluation and the closing test": (evaluated, partial(trained, wanted), ended),
        "where environments are made": (rig.evenly(MAKING, len(chosen)), unmade, "ended with one line, status failed"),
        "in playing, filming and publishing": (played, misplayed, "ended with one line that names it, and no result"),
    }
    lines, good = list[str](), True
    for where, (cases, judge, what) in parts.items():
        tally = rig.Tally()
        for number, case in enumerate(cases):
            tally.add(f"{case} {where}", judge(case, folder / f"{len(lines)}-{number}"))
        good = good and tally.good
        lines.append(f"{where}: {tally} {what}")
    return [*lines, f"faults: an environment that {', '.join(chosen)}"], good


def faulty(fault: Fault, root: Path) -> Callable[[], object]:
    """Has a process of `start` have this fault; the file beside `root` tells that it came."""
    whole = {"told": str(told_of(root)), **fault}
    return lambda: os.environ.update({VARIABLE: json.dumps(whole)})


def told_of(root: Path) -> Path:
    return root.parent / f"{root.name}.told"


def trained(wanted: dict[str, dict[str, object]], trial: Trial, root: Path) -> str:
    child = rig.start((*AGENTS[trial.agent], *trial.words), root, faulty({"what": trial.what, **trial.where}, root))
    interrupted = trial.what in HANGS and not trial.words
    while child.lives() and not (interrupted and told_of(root).exists()):
        time.sleep(0.01)
    began = time.monotonic()
    if interrupted:
        os.kill(child.pid, signal.SIGINT)
    ended = child.wait()
    seconds, left = time.monotonic() - began, len(living(child.pid))
    if left or not told_of(root).exists():
        return f"{left} processes left, or it never happened: {ended.said[-300:]}"
    if problem := misled(trial, ended, seconds, rig.last_run(root)):
        return f"{problem}: {ended.said[-500:]}"
    return rig.resumed(root, wanted[trial.agent])


def expected(trial: Trial) -> tuple[int, str]:
    if trial.what in DIES:
        return DIES[trial.what] if DIES[trial.what] >= 0 else 128 - DIES[trial.what], "running"
    if trial.what in HARMLESS:
        return 0, "finished"
    return (130, "interrupted") if trial.what in HANGS and not trial.words else (1, "failed")


def misled(trial: Trial, ended: rig.Ended, seconds: float, run: RunDir | None) -> str:
    """What a person at the terminal, or who reads the run next, would miss; "" for nothing."""
    code, status = expected(trial)
    facts = read_json(run.config_json) if run else {}
    if run is None or (ended.code, facts.get("status")) != (code, status) or rig.faults(run):
        return f"exit code {ended.code} and status {facts.get('status')}, or a broken checkpoint"
    if status == "running":
        return "" if "died" in fate(run, facts) else "nobody says that it died"
    if status == "interrupted" and seconds > 5:
        return f"took {seconds:.1f} s"
    return unnamed(trial, rig.told(ended.said)) if status == "failed" else ""


def unnamed(trial: Trial, said: list[str]) -> str:
    line = said[-1]
    if len(said) > 1 or not line.isprintable() or not line.startswith("error: "):
        return "not one line"
    if trial.where["world"] == WORLD and not NAMED.match(line):
        return "its world is not named"
    located = trial.what in UNSOUND or re.search(r"environments\.py:\d+\)", line)
    return "" if located else "its file and line are not named"


def unmade(what: str, root: Path) -> str:
    ended = rig.finish(WORDS, root, faulty(Fault(what=what, world="every"), root))
    line, run = ended.said.strip(), rig.last_run(root)
    good = re.fullmatch(r"error: .*\(.*environments\.py:\d+\); traceback.*", line) and line.isprintable()
    good = good and ended.code == 1 and run is not None and run.facts()["status"] == "failed"
    return "" if good else f"exit code {ended.code}: {ended.said[-500:]}"


def misplayed(case: tuple[str, str], root: Path) -> str:
    what, how = case
    main, given = PLAYING[how]
    published = root / "published"
    places = {"VIDEO": str(root / "film.mp4"), "FOLDER": str(published)}
    words = ["--run-id", "@last", *(places.get(word, word) for word in given)]
    root.mkdir()
    ended = rig.start(words, root.parent / "ppo", faulty(Fault(what=what, world="every", at=5), root), main).wait()
    errors = [line for line in ended.said.split("\n") if line.startswith("error: ")]
    last = ended.said.strip().split("\n")[-1]
    good = ended.code == 1 and errors == [last] and last.isprintable() and not published.exists()
    good = good and "mean " not in ended.said and "Traceback" not in ended.said
    return "" if good else f"exit code {ended.code}: {ended.said[-700:]}"


def living(group: int) -> list[int]:
    """Processes of that group, zombies not counted."""
    alive = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == group and state not in "ZX":
            alive.append(int(path.parent.name))
    return alive
