"""Wrong configs, words and YAML of nobody's mind, hostile run ids: one line, exit code 2, no run folder.

python -m lab.faults fuzz --commands 200 --ids 60 --words 20000

Each call is under watch: what it said and gave, how long it took, what it wrote or ran that it should not. Files are
watched by Python's audit events: every open, rename, link or removal, with where the path really leads. What is opened
beside a descriptor of its folder (O_NOFOLLOW) cannot be told from that; it cannot lead elsewhere, either.
"""

import contextlib
import io
import json
import os
import random
import signal
import string
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn
from unittest import mock

import yaml

from lab.faults.rig import OPENING, Tally, Told, finish, heard, refused_in_a_line, together
from stride.commands import run_inspect, run_play, run_publish, train
from stride.commands.run_arguments import build_play_parser, build_publish_parser
from stride.commands.train_arguments import Arguments, build_parser
from stride.commands.train_opening import for_debugger
from stride.config.fields import known_keys
from stride.config.loader import environment_files
from stride.runstore.run_dir import RunDir
from stride.utils.interrupted import Interrupted

LIMIT = 5.0  # seconds that a wrong word may take, of its own where others use the machine too
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
PLAIN = ("os.truncate",)  # takes no folder's descriptor
ANYTHING = (  # that a bug raises
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, ImportError, LookupError, MemoryError,
    NameError, OSError, RuntimeError, SyntaxError, SystemExit, TypeError, ValueError, yaml.YAMLError,
)  # fmt: skip
RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "webbrowser.open")


class Hang(BaseException):
    """It took longer than LIMIT; no handler for errors takes it for one."""


class Seen(NamedTuple):
    code: int | None  # None where it raised
    said: str
    raised: str
    touched: tuple[str, ...]  # what was written elsewhere, read that is secret, or executed

    @property
    def wrong(self) -> str:
        """What should not have been, "" where a line or nothing was said."""
        lines = self.said.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        if self.raised or self.touched:
            return self.raised or f"touched {self.touched[0]}"
        if self.code not in (0, 1, 2):
            return f"exit code {self.code}"
        if self.code and (len(errors) != 1 or len(lines) > MOST_LINES):
            return f"{len(lines)} lines, {len(errors)} of them errors"
        if any(len(line) > 300 or not line.isprintable() for line in errors):
            return "a line that is too long or cannot be printed"
        return ""


MOST_LINES = 12  # notes that stand before the error
_watching: list["Watch"] = []


class Watch:
    """Who is allowed to write where, and what must not even be read."""

    hooked = False

    def __init__(self, writable: tuple[Path, ...], secret: Path) -> None:
        self.writable = tuple(f"{os.path.realpath(path)}{os.sep}" for path in (*writable, Path("/dev")))
        self.secret = f"{os.path.realpath(secret)}{os.sep}"
        self.touched: list[str] = []
        if not Watch.hooked:
            sys.addaudithook(_hook)
            Watch.hooked = True

    def call(self, command: Callable[[], int | None]) -> Seen:
        said, raised, code = io.StringIO(), "", None
        variables = mock.patch.dict(os.environ)  # --project stays named for the rest of a process
        with self.under(), variables, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = command() or 0
            except Hang:
                raised = f"hangs: more than {LIMIT:g} s"
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except ANYTHING as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                raised = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {str(error)[:80]!r}"
        return Seen(code, said.getvalue(), raised, tuple(self.touched))

    @contextlib.contextmanager
    def under(self) -> Iterator[None]:
        self.touched = []
        self.clock = self.last = time.process_time()
        before = signal.signal(signal.SIGALRM, self.too_long)
        _watching.append(self)
        signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            _watching.pop()
            signal.signal(signal.SIGALRM, before)

    def too_long(self, number: int, frame: FrameType | None) -> None:
        """Over the limit, unless most of that time was spent on other processes and it does go on."""
        now = time.process_time()
        if now - self.clock >= 0.8 * LIMIT or now - self.last < 0.02 * LIMIT:
            raise Hang
        self.last = now

    def saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        """One audit event: folders' descriptors are its last arguments, two of a rename or link, else one; -1: none."""
        if event in RUNS:
            self.touched.append(f"{event} {arguments!r}"[:200])
        elif event == "open":
            path, _, flags = arguments
            if isinstance(path, int) or (flags & os.O_NOFOLLOW and not os.path.isabs(path)):
                return
            real = os.path.realpath(os.fsdecode(path)) if "\0" not in os.fsdecode(path) else ""
            if flags & WRITES and not self._may(real):
                self.touched.append(f"write {real}")
            elif real.startswith(self.secret):
                self.touched.append(f"read {real}")
        elif event in CHANGES:
            two = event in ("os.rename", "os.link")
            for place in (0, 1) if event == "os.rename" else (1,) if "link" in event else (0,):
                path = arguments[place]
                if isinstance(path, str | bytes | os.PathLike):
                    beside = arguments[2 + place] if two else arguments[-1] if event not in PLAIN else -1
                    above = f"/proc/self/fd/{beside}" if isinstance(beside, int) and beside >= 0 else os.getcwd()
                    folder, name = os.path.split(os.path.join(above, os.fsdecode(path)))
                    real = os.path.join(os.path.realpath(folder), name)
                    if not self._may(real):
                        self.touched.append(f"{event} {real}")

    def _may(self, real: str) -> bool:
        return f"{real}{os.sep}".startswith(self.writable) or "__pycache__" in real


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and (event == "open" or event in CHANGES or event in RUNS):
        watch = _watching.pop()  # its own look at links is nobody's
        try:
            watch.saw(event, arguments)
        finally:
            _watching.append(watch)


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    folder.joinpath("here").mkdir()
    os.chdir(folder / "here")  # where a canary would appear
    wrong, ids = commands(counts["commands"], folder / "runs"), hostile_ids(counts["ids"], folder / "runs")
    return together(wrong, ids, words(counts["words"], draw, folder))


def commands(number: int, root: Path) -> tuple[str, bool]:
    """A wrong word among right ones on the command line."""
    tally = Tally()
    for trial in range(number):
        override, named = [*WRONG.items()][trial % len(WRONG)]
        seed = [] if override.startswith("seed") else ["seed=3"]
        ended = finish(["CartPole-v1:ppo", "-q", *seed, override], root)
        good = ended.code == 2 and refused_in_a_line(ended.said) and named in ended.said
        tally.add(override, "" if good else f"{ended.code} {ended.said[-500:]}")
    folders = [path for path in root.iterdir() if path.is_dir()]
    line = f"{tally} wrong configs on the command line: exit code 2, one line that names the key (and the nearest "
    return f"{line}right one), no traceback; {len(folders)} run folders made", tally.good and not folders


def hostile_ids(number: int, root: Path) -> tuple[str, bool]:
    """Each id on each command; run_inspect itself takes none."""
    os.environ["STRIDE_RUNS"] = str(root)
    tally = Tally()
    for text in (IDS * (number // len(IDS) + 1))[:number]:
        for name, command in OPENING.items():
            code, said = heard(command, text)
            good = code == 2 and refused_in_a_line(said)
            tally.add(f"{name} {text!r}", "" if good else f"{code} {said[-300:]!r}")
    executed = Path("canary").exists()
    line = f"{tally} attempts refused: {number} hostile run ids, given to {', '.join(OPENING)}; "
    line += f"{int(executed)} executed code"
    return line, tally.good and not executed


DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
WRONG: dict[str, str] = DATA["wrong"]  # key=value with one thing wrong, and what the line has to name
IDS: list[str] = [*DATA["ids"], "a" * 129, "a" * 5000, "../" * 400 + "etc/passwd"]
NUMBERS: list[str] = [*DATA["numbers"], *(digit * count for digit, count in (("9", 310), ("9", 4301), ("0", 999)))]
TEXTS: list[str] = [*DATA["texts"], "x" * 299, "x" * 5000, "warmup_" + "9" * 5000]
WHOLES: list[str] = [*DATA["wholes"], "[" * 30 + "]" * 30, "[" * 400 + "]" * 400, "{a:" * 30]
TAGS: list[str] = DATA["tags"]
FLAGS = {
    parser: sorted({flag for action in build()._actions for flag in action.option_strings})
    for parser, build in (("train", build_parser), ("play", build_play_parser), ("publish", build_publish_parser))
}
FLAGS["inspect"] = ["--run-id", "--port", "--host", "--share", "--help"]


class Accepted(Interrupted):
    """The words were right: here the work would begin."""


def accepted(*arguments: object, **options: object) -> NoReturn:
    raise Accepted


def config_only(arguments: Arguments, events: object = None) -> int:
    """What train does before it builds anything."""
    if arguments.resume:
        RunDir.find(arguments.resume)
        return 0
    config = arguments.load(accepted)
    if arguments.debug:
        for_debugger(config)
    return 0


@contextlib.contextmanager
def no_work() -> Iterator[None]:
    """The commands end where a run would be loaded, made or served."""
    ends = ((run_play, "load_run"), (run_publish, "load_run"), (run_publish, "who_am_i"), (run_inspect, "free_port"))
    with contextlib.ExitStack() as stack:
        for name in ("train", "train_group"):
            stack.enter_context(mock.patch.object(train, name, config_only))
        for module, name in ends:
            stack.enter_context(mock.patch.object(module, name, accepted))
        yield


STARTED = {
    "train": train.command, "play": run_play.command, "publish": run_publish.command, "inspect": run_inspect.command,
}  # fmt: skip


def words(number: int, draw: random.Random, folder: Path) -> tuple[str, bool]:
    """Half command lines, half files; every one is taken or refused in one line, and nothing is written."""
    (folder / "secret").mkdir(exist_ok=True)
    file, began, tally, refused = folder / "Fuzzed-v0.yaml", time.monotonic(), Tally(), 0
    watch = Watch((), folder / "secret")
    with no_work():  # what is taken must not be carried out
        for trial in range(number):
            if trial % 2:
                file.write_bytes(any_yaml(draw))
                variant = draw.choice(("ppo", "dqn", "", "reinforce", "x"))
                name, given = "train", ["--config", str(file), *([variant] if variant else [])]
                given += [*any_override(draw, 0.2), "-q"]
            else:
                name, given = any_words(draw)
            seen = watch.call(partial(right_or_not, name, given))
            refused += bool(seen.code)
            text = f"{name} {ascii(given)[:400]} {file.read_bytes()[:300] if trial % 2 else b''!r}"
            tally.add(f"words {trial}, {text}", seen.wrong)
    line = (
        f"{tally} right: command lines and YAML files in turn, read by the commands as far as the config; "
        f"{refused:,} refused in one line of at most 300 characters, the others accepted; none took over 5 s, wrote "
        f"a file or called anything ({time.monotonic() - began:.0f} s)"
    )
    return line, tally.good


def right_or_not(name: str, given: list[str]) -> int:
    try:
        return STARTED[name](given)
    except Accepted:
        return 0


def any_text(draw: random.Random) -> str:
    kind = draw.randrange(5)
    if kind < 3:
        return draw.choice((NUMBERS, TEXTS, WHOLES)[kind])
    if kind == 3:
        return "".join(draw.choices(string.printable, k=draw.randint(1, 12)))
    return draw.choice(NUMBERS) + draw.choice(TEXTS)


def any_override(draw: random.Random, chance: float = 1.0) -> list[str]:
    if draw.random() >= chance:
        return []
    key = draw.choice(known_keys(draw.choice(("ppo", "dqn", "sac", "reinforce", "pqn", "q_learning"))))
    key += draw.choice(("", "", "", ".x", ".goal", ".", ".a.b", "." * 30, "@x"))
    return [f"{draw.choice(('', '', '', '--', '+', '~'))}{key}={any_text(draw)}"]


def any_words(draw: random.Random) -> tuple[str, list[str]]:
    name = draw.choice(("train", "train", "train", "play", "publish", "inspect"))
    found: list[str] = []
    if name == "train":
        known = f"{draw.choice(list(environment_files()))}:{draw.choice(('ppo', 'dqn', 'ppo', 'x', ''))}"
        found += [draw.choice((known, "CartPole-v1:ppo", "CartPole-v1:ppo", any_text(draw)))]
        for _ in range(draw.randint(0, 3)):
            found += any_override(draw)
    for _ in range(draw.randint(0, 2)):
        ends = ("--list-envs", "-h", "--help")
        flag = draw.choice([flag for flag in FLAGS[name] if flag not in ends or draw.random() < 0.1])
        found += draw.choice(([flag], [flag, any_text(draw)], [f"{flag}={any_text(draw)}"]))
    if draw.random() < 0.1:
        draw.shuffle(found)
    return name, found


def any_yaml(draw: random.Random) -> bytes:
    """A config with one to four things in it that do not belong there."""
    tops = ["max_timesteps: 1e5", "n_envs: 8", "spec: {goal: 475, returns: [0, 500], actions: [left, right]}"]
    tops += ["ppo: {n_steps: 32, batch_size: 0.25, policy_lr: lin_0.001}", "reinforce: {_inherit_: ppo, n_steps: 64}"]
    for _ in range(draw.randint(1, 4)):
        value = (f"{draw.choice(TAGS)} " if draw.random() < 0.3 else "") + any_text(draw)
        keys = [*known_keys("ppo"), *known_keys("dqn"), "ppo", "dqn", "_base", "_x", "_inherit_", "<<", any_text(draw)]
        key = draw.choice(keys)
        match draw.randrange(5):
            case 0:
                tops.insert(draw.randrange(len(tops) + 1), f"{key}: {value}")
            case 1:
                tops.append(f"dqn: {{{key}: {value}}}")
            case 2:
                at = draw.randrange(len(tops))
                tops[at] = tops[at].replace(draw.choice(("{", ":", "ppo", "1", " ", "[")), value, 1)
            case 3:
                tops.append(f"{key}:\n  - {value}\n  {draw.choice(TAGS)}")
            case 4:
                del tops[draw.randrange(len(tops)) :]
                tops.append(f'{key}: "{value}"')
    data = bytearray("\n".join(tops).encode("utf-8", "surrogatepass"))  # half a surrogate is no UTF-8
    for _ in range(draw.choice((0, 0, 1, 3))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)
