"""Gives commands wrong configs, random words and YAML, and malicious run ids: one error line, exit code 2, no new run.

python -m lab.faults fuzz --commands 200 --ids 60 --words 20000

Each call is watched: its output, exit code and time, and what it wrote or executed without permission. Files are
watched by Python's audit events: every open, rename, link or removal, with the real path behind links. A file that is
opened relative to a descriptor of its folder (O_NOFOLLOW) has no known path there; but it cannot lead elsewhere.
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

from lab.faults.rig import OPENING, Report, Tally, finish, joined, refused_in_a_line, run_captured
from stride.commands import run_inspect, run_play, run_publish, train
from stride.commands.run_arguments import build_play_parser, build_publish_parser
from stride.commands.train_arguments import Arguments, build_parser
from stride.commands.train_opening import for_debugger
from stride.config.fields import known_keys
from stride.config.loader import environment_files
from stride.runstore.run_dir import RunDir
from stride.utils.interrupted import Interrupted

LIMIT = 5.0  # seconds that a call may take; of processor time if other processes use the machine, too
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
PLAIN = ("os.truncate",)  # events without the descriptor of a folder
ANYTHING = (  # every error that a bug may raise
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, ImportError, LookupError, MemoryError,
    NameError, OSError, RuntimeError, SyntaxError, SystemExit, TypeError, ValueError, yaml.YAMLError,
)  # fmt: skip
RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "webbrowser.open")


class Hang(BaseException):
    """A call took longer than LIMIT. A BaseException, so that no handler of errors catches it."""


class Seen(NamedTuple):
    """What a watched call did."""

    code: int | None  # the exit code; None if it raised an error
    said: str  # its output
    raised: str  # the error in one line; "" if none
    touched: tuple[str, ...]  # forbidden actions: writes elsewhere, reads of secrets, started programs

    @property
    def wrong(self) -> str:
        """What is wrong; "" for success, or failure with one error line."""
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


MOST_LINES = 12  # of output, with the notes before the error
_watching: list["Watch"] = []


class Watch:
    """Watches calls: only below `writable` may they write, and below `secret` they may not even read."""

    hooked = False

    def __init__(self, writable: tuple[Path, ...], secret: Path) -> None:
        self.writable = tuple(f"{os.path.realpath(path)}{os.sep}" for path in (*writable, Path("/dev")))
        self.secret = f"{os.path.realpath(secret)}{os.sep}"
        self.touched: list[str] = []
        if not Watch.hooked:
            sys.addaudithook(_hook)
            Watch.hooked = True

    def call(self, command: Callable[[], int | None]) -> Seen:
        """Call the command in this process, and return what it did."""
        output, raised, code = io.StringIO(), "", None
        variables = mock.patch.dict(os.environ)  # --project sets a variable of the process
        with self.under(), variables, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                code = command() or 0
            except Hang:
                raised = f"hangs: more than {LIMIT:g} s"
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except ANYTHING as error:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                raised = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {str(error)[:80]!r}"
        return Seen(code, output.getvalue(), raised, tuple(self.touched))

    @contextlib.contextmanager
    def under(self) -> Iterator[None]:
        """Watch files and time inside the block."""
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
        """Raise Hang, unless other processes used most of the time and this one still makes progress."""
        now = time.process_time()
        if now - self.clock >= 0.8 * LIMIT or now - self.last < 0.02 * LIMIT:
            raise Hang
        self.last = now

    def saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a forbidden audit event of Python.

        The last arguments are descriptors of folders (-1: none) that a relative path belongs to: two for a rename or
        link, else one.
        """
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
            is_pair = event in ("os.rename", "os.link")
            for index in (0, 1) if event == "os.rename" else (1,) if "link" in event else (0,):
                path = arguments[index]
                if isinstance(path, str | bytes | os.PathLike):
                    fd = arguments[2 + index] if is_pair else arguments[-1] if event not in PLAIN else -1
                    above = f"/proc/self/fd/{fd}" if isinstance(fd, int) and fd >= 0 else os.getcwd()
                    folder, name = os.path.split(os.path.join(above, os.fsdecode(path)))
                    real = os.path.join(os.path.realpath(folder), name)
                    if not self._may(real):
                        self.touched.append(f"{event} {real}")

    def _may(self, real: str) -> bool:
        return f"{real}{os.sep}".startswith(self.writable) or "__pycache__" in real


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and (event == "open" or event in CHANGES or event in RUNS):
        watch = _watching.pop()  # while this looks at links, nothing is watched
        try:
            watch.saw(event, arguments)
        finally:
            _watching.append(watch)


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    folder.joinpath("here").mkdir()
    os.chdir(folder / "here")  # executed code would create the file canary here
    wrong, ids = commands(counts["commands"], folder / "runs"), hostile_ids(counts["ids"], folder / "runs")
    return joined(wrong, ids, words(counts["words"], draw, folder))


def commands(number: int, root: Path) -> tuple[str, bool]:
    """Train with one wrong override among right ones."""
    tally = Tally()
    for trial in range(number):
        override, expected_text = [*WRONG.items()][trial % len(WRONG)]
        seed = [] if override.startswith("seed") else ["seed=3"]
        ended = finish(["CartPole-v1:ppo", "-q", *seed, override], root)
        good = ended.code == 2 and refused_in_a_line(ended.said) and expected_text in ended.said
        tally.add(override, "" if good else f"{ended.code} {ended.said[-500:]}")
    folders = [path for path in root.iterdir() if path.is_dir()]
    line = f"{tally} wrong configs on the command line: exit code 2, one line that names the key (and the nearest "
    return f"{line}right one), no traceback; {len(folders)} run folders made", tally.good and not folders


def hostile_ids(number: int, root: Path) -> tuple[str, bool]:
    """Give each malicious id to each command of OPENING (run_inspect.py has no id among its arguments)."""
    os.environ["STRIDE_RUNS"] = str(root)
    tally = Tally()
    for run_id in (IDS * (number // len(IDS) + 1))[:number]:
        for name, command in OPENING.items():
            code, output = run_captured(command, run_id)
            good = code == 2 and refused_in_a_line(output)
            tally.add(f"{name} {run_id!r}", "" if good else f"{code} {output[-300:]!r}")
    executed = Path("canary").exists()
    line = f"{tally} attempts refused: {number} hostile run ids, given to {', '.join(OPENING)}; "
    line += f"{int(executed)} executed code"
    return line, tally.good and not executed


DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
WRONG: dict[str, str] = DATA["wrong"]  # wrong key=value -> text that the error line must contain
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
    """The arguments were accepted: here the work would begin."""


def accepted(*arguments: object, **options: object) -> NoReturn:
    raise Accepted


def config_only(arguments: Arguments, events: object = None) -> int:
    """Do what a training does before it builds anything."""
    if arguments.resume:
        RunDir.find(arguments.resume)
        return 0
    config = arguments.load(accepted)
    if arguments.debug:
        for_debugger(config)
    return 0


@contextlib.contextmanager
def no_work() -> Iterator[None]:
    """Inside the block, commands end where they would load, create or serve a run."""
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
    """Try random command lines and YAML files in turn: each is accepted or refused in one line, and writes nothing."""
    (folder / "secret").mkdir(exist_ok=True)
    file, started, tally, refused = folder / "Fuzzed-v0.yaml", time.monotonic(), Tally(), 0
    watch = Watch((), folder / "secret")
    with no_work():  # an accepted command must not do its work
        for trial in range(number):
            if trial % 2:
                file.write_bytes(any_yaml(draw))
                variant = draw.choice(("ppo", "dqn", "", "reinforce", "x"))
                name, arguments = "train", ["--config", str(file), *([variant] if variant else [])]
                arguments += [*any_override(draw, 0.2), "-q"]
            else:
                name, arguments = any_words(draw)
            result = watch.call(partial(right_or_not, name, arguments))
            refused += bool(result.code)
            description = f"{name} {ascii(arguments)[:400]} {file.read_bytes()[:300] if trial % 2 else b''!r}"
            tally.add(f"words {trial}, {description}", result.wrong)
    line = (
        f"{tally} right: command lines and YAML files in turn, read by the commands as far as the config; "
        f"{refused:,} refused in one line of at most 300 characters, the others accepted; none took over 5 s, wrote "
        f"a file or called anything ({time.monotonic() - started:.0f} s)"
    )
    return line, tally.good


def right_or_not(name: str, arguments: list[str]) -> int:
    """Call a command; 0 if its arguments are accepted."""
    try:
        return STARTED[name](arguments)
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
    """Return [] or, with this probability, one random override such as ["ppo.goal=1e400"]."""
    if draw.random() >= chance:
        return []
    key = draw.choice(known_keys(draw.choice(("ppo", "dqn", "sac", "reinforce", "pqn", "q_learning"))))
    key += draw.choice(("", "", "", ".x", ".goal", ".", ".a.b", "." * 30, "@x"))
    return [f"{draw.choice(('', '', '', '--', '+', '~'))}{key}={any_text(draw)}"]


def any_words(draw: random.Random) -> tuple[str, list[str]]:
    """Return a command of STARTED and random arguments for it."""
    name = draw.choice(("train", "train", "train", "play", "publish", "inspect"))
    arguments: list[str] = []
    if name == "train":
        config_id = f"{draw.choice(list(environment_files()))}:{draw.choice(('ppo', 'dqn', 'ppo', 'x', ''))}"
        arguments += [draw.choice((config_id, "CartPole-v1:ppo", "CartPole-v1:ppo", any_text(draw)))]
        for _ in range(draw.randint(0, 3)):
            arguments += any_override(draw)
    for _ in range(draw.randint(0, 2)):
        ends = ("--list-envs", "-h", "--help")
        flag = draw.choice([flag for flag in FLAGS[name] if flag not in ends or draw.random() < 0.1])
        arguments += draw.choice(([flag], [flag, any_text(draw)], [f"{flag}={any_text(draw)}"]))
    if draw.random() < 0.1:
        draw.shuffle(arguments)
    return name, arguments


def any_yaml(draw: random.Random) -> bytes:
    """Return a YAML config with one to four wrong things in it, and perhaps some wrong bytes."""
    lines = ["max_timesteps: 1e5", "n_envs: 8", "spec: {goal: 475, returns: [0, 500], actions: [left, right]}"]
    lines += ["ppo: {n_steps: 32, batch_size: 0.25, policy_lr: lin_0.001}", "reinforce: {_inherit_: ppo, n_steps: 64}"]
    for _ in range(draw.randint(1, 4)):
        value = (f"{draw.choice(TAGS)} " if draw.random() < 0.3 else "") + any_text(draw)
        keys = [*known_keys("ppo"), *known_keys("dqn"), "ppo", "dqn", "_base", "_x", "_inherit_", "<<", any_text(draw)]
        key = draw.choice(keys)
        match draw.randrange(5):
            case 0:
                lines.insert(draw.randrange(len(lines) + 1), f"{key}: {value}")
            case 1:
                lines.append(f"dqn: {{{key}: {value}}}")
            case 2:
                index = draw.randrange(len(lines))
                lines[index] = lines[index].replace(draw.choice(("{", ":", "ppo", "1", " ", "[")), value, 1)
            case 3:
                lines.append(f"{key}:\n  - {value}\n  {draw.choice(TAGS)}")
            case 4:
                del lines[draw.randrange(len(lines)) :]
                lines.append(f'{key}: "{value}"')
    data = bytearray("\n".join(lines).encode("utf-8", "surrogatepass"))  # half a surrogate is no UTF-8
    for _ in range(draw.choice((0, 0, 1, 3))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)
