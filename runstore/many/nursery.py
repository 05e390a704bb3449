"""A process that has imported what a command needs, and forks one of itself for each: a start without its imports.

The command's own program is it: told `--nursery FD PARENT` it serves there, and returns from `words_of` in each fork,
with the words of that fork's command, as if the process had been started with them. What follows are the words of one
such command, so that it knows what to load. A command that has imported everything itself forks its nursery (`early`),
and nothing is imported twice. Linux alone: elsewhere forking what has loaded torch is not safe. No torch.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stride.runstore.many.parent_death import die_with_parent
from stride.utils.streams import losses, nowhere
from stride.utils.user_error import UserError

FLAG = "--nursery"
REAP = 0.01  # seconds between looks at the forks, while there are any
LARGEST = 1 << 16  # bytes of a message
LOST = (
    128 + signal.SIGTERM
)  # the code of a fork whose nursery died: it is told so, saves, and nobody hears how it ended


class GoneError(Exception):
    """The nursery has ended."""


class Nursery:
    """The side of whoever wants commands run."""

    def __init__(self, line: socket.socket, pid: int, env: Mapping[str, str]) -> None:
        """`line`: to the child `pid`, whose environment was `env`."""
        self._socket, self._pid, self._env = line, pid, {**env}
        self._born: list[int] = []  # pids of forks that nobody asked for yet
        self._codes: dict[int, int] = {}
        self._warm = self._gone = False

    @property
    def settled(self) -> bool:
        """Whether it has imported everything, or never will."""
        self._listen(0.0)
        return self._warm or self._gone

    def fork(self, words: Sequence[str], output: int, env: Mapping[str, str]) -> "Fork":
        """Run its program with these words in `env`, stdout and stderr into the open file `output`; GoneError."""
        self._listen(0.0)
        names = {name for name, _ in env.items() ^ self._env.items()}
        asked = {"words": [*words], "env": {name: env.get(name) for name in names}}
        try:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], [output])
        except OSError as error:
            self._gone = True
            raise GoneError from error
        while not self._born:
            if self._gone:
                raise GoneError
            self._listen(None)
        return Fork(self, self._born.pop())

    def code_of(self, pid: int) -> int | None:
        """How the fork ended, as Popen has it; None while it runs."""
        self._listen(0.0)
        return self._codes.get(pid, LOST if self._gone else None)

    def close(self) -> None:
        """Nothing more is forked; forks that still run are told to end, as their parent does."""
        self._socket.close()
        os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)
        self._gone = True

    def _listen(self, seconds: float | None) -> None:
        """Take in what it says; wait for something where `seconds` is None."""
        while not self._gone and select.select([self._socket], [], [], seconds)[0]:
            try:
                data = self._socket.recv(LARGEST)
            except ConnectionError:
                data = b""
            if not data:
                self._gone = True
                return
            message = json.loads(data)
            if "code" in message:
                self._codes[message["pid"]] = message["code"]
            elif "pid" in message:
                self._born.append(message["pid"])
            else:
                self._warm = True
            seconds = 0.0


class Fork:
    """A command in a process that the nursery forked, with as much of Popen as a pool needs."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid

    @property
    def returncode(self) -> int | None:
        return self._nursery.code_of(self.pid)

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """subprocess.TimeoutExpired as Popen's."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(REAP)
        return code


_early: dict[tuple[str, ...], Nursery] = {}  # by program: what this process has forked and no pool has taken yet


def nursery_of(program: Sequence[str], words: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> Nursery:
    """The one that this process has forked for this program, or a process of its own."""
    if cwd is None and (early := _early.pop(tuple(program), None)):
        return early
    ours, theirs = _line()
    with theirs:
        process = subprocess.Popen(
            [*program, FLAG, str(theirs.fileno()), str(os.getpid()), *words], env=env, cwd=cwd,
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    process.returncode = 0  # whoever closes it waits for its pid
    return Nursery(ours, process.pid, env)


def words_of(
    argv: list[str], load: Callable[[list[str]], object], early: Callable[[list[str]], Sequence[str]] = lambda argv: ()
) -> list[str]:
    """The task of this process: `argv`, or, of a nursery, in each of its forks the words of that fork's command.

    `load` is told the words of one of them before the first fork; what it loads, none of them loads again. `early`: the
    program that this process is about to run several times, which then is forked from what is imported here.
    """
    if is_nursery(argv):
        return _prepared(int(argv[1]), argv[3:], load)
    program = early(argv) if sys.platform == "linux" else ()
    if not program:
        return argv
    ours, theirs = _line()
    mine = os.getpid()
    sys.stdout.flush()  # else each fork says it once more
    pid = os.fork()
    if pid:
        theirs.close()
        _early[tuple(program)] = Nursery(ours, pid, os.environ)
        return argv
    ours.close()
    os.setsid()
    die_with_parent(mine)
    _take(nowhere(), (0, 1, 2))
    return _prepared(theirs.detach(), argv, load)


def _line() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _prepared(number: int, words: list[str], load: Callable[[list[str]], object]) -> list[str]:
    with suppress(UserError):  # said by the forks
        load(words)
    return _serve(number)


def is_nursery(argv: Sequence[str]) -> bool:
    """Whether this process is to be one; if so, from now on it ends with its parent."""
    if argv[:1] != [FLAG]:
        return False
    die_with_parent(int(argv[2]))
    return True


def _serve(number: int) -> list[str]:
    """Forks until nobody listens; returns in the forks alone."""
    with socket.socket(fileno=number) as line:
        running = 0
        line.send(b"{}")
        while True:
            heard = bool(select.select([line], [], [], REAP if running else None)[0])
            while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                running -= 1
                _tell(line, pid=ended[0], code=os.waitstatus_to_exitcode(ended[1]))
            if not heard:
                continue
            data, outputs, _, _ = socket.recv_fds(line, LARGEST, 1)
            if not data:
                os._exit(0)
            parent_pid = os.getpid()
            pid = os.fork()
            if not pid:
                break
            os.setpgid(pid, pid)  # here and there: whoever comes first, it is so before anybody signals the group
            os.close(outputs[0])
            running += 1
            _tell(line, pid=pid)
    request = json.loads(data)
    return _begin(request["words"], request["env"], outputs[0], parent_pid)


def _begin(words: list[str], env: Mapping[str, str | None], output: int, parent: int) -> list[str]:
    """In the fork: what a process of its own would have from its start."""
    os.setpgid(0, 0)
    die_with_parent(parent)
    _take(output, (1, 2))
    losses.clear()  # those were of other files
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.argv[1:] = words
    return words


def _take(file: int, standards: Sequence[int]) -> None:
    """The open file in place of these; it is closed under its own number."""
    for standard in standards:
        os.dup2(file, standard)
    os.close(file)


def _tell(line: socket.socket, **facts: Any) -> None:
    try:
        line.send(json.dumps(facts).encode())
    except OSError:  # nobody listens: that is learnt, and acted upon, at the next look
        return
