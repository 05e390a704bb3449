"""Commands side by side, also forked by a process that has imported what they need: words, output, how they end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.faults.rig import TINY, comparable, state_of
from stride.commands.plain_tree import fingerprint
from stride.runstore.many.nursery import LOST
from stride.runstore.many.process_pool import run_all
from stride.runstore.run_dir import list_runs
from tests.runstore.processes import alive, pids, python, until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, subprocess, sys, time
sys.path.insert(0, {root!r})
from stride.runstore.many.nursery import words_of
with open({folder!r} + "/imported", "a") as file:
    print(os.getpid(), file=file)
{more}
words = words_of(sys.argv[1:], lambda words: open({folder!r} + "/loaded", "a").write(" ".join(words) + ";"))
exec(words[0])
"""


@pytest.fixture
def program(tmp_path):
    return written(tmp_path, "")


def written(folder, more):
    path = folder / "program.py"
    path.write_text(PROGRAM.format(root=str(ROOT), folder=str(folder), more=more))
    return [sys.executable, str(path)]


def pooled(program, codes, workers=2, **more):
    done = run_all([[*program, code, "x"] for code in codes], workers, {"WORD": "hello"}, program=program, **more)
    return {finished.index: finished for finished in done}


def test_each_has_its_words_its_output_and_its_code_after_one_import(program, tmp_path):
    codes = [
        "print(sys.argv[1:], os.environ['WORD'])",
        "sys.stderr.write('x' * 9000 + 'oops'); sys.exit(3)",
        "os.kill(os.getpid(), 9)",
        "print('in' in sys.stdin.read(), os.getpid() == os.getpgid(0))",
    ]
    done = pooled(program, codes)
    assert [done[index].returncode for index in range(4)] == [0, 3, -9, 0]
    assert done[0].output_tail == f"{[codes[0], 'x']} hello\n"
    assert done[1].output_tail.endswith("xoops") and len(done[1].output_tail) == 4000
    assert done[3].output_tail == "False True\n"
    assert len(pids(tmp_path / "imported")) == 1 and (tmp_path / "loaded").read_text() == f"{codes[0]} x;"


def test_one_command_alone_is_a_process_of_its_own(program, tmp_path):
    assert pooled(program, ["print(os.getppid())"])[0].output_tail == f"{os.getpid()}\n"
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("more", ["if len(sys.argv) != 3: sys.exit(5)", "if sys.argv[1] == '--nursery': os.abort()"])
def test_a_program_that_cannot_be_one_is_started_for_each_command(tmp_path, more):
    done = pooled(written(tmp_path, more), ["print(1)", "print(2)", "print(3)"])
    assert [done[index].output_tail for index in range(3)] == ["1\n", "2\n", "3\n"]


def test_when_it_is_killed_its_forks_are_asked_to_end_and_the_others_are_run_all_the_same(program, tmp_path):
    waiting = "import signal; signal.signal(15, lambda *_: (open({0!r}, 'w').close(), sys.exit(143))); "
    waiting += "open({0!r} + ' waits', 'w').close(); time.sleep(600)"
    note = str(tmp_path / "asked")
    killing = (
        f"while not os.path.exists({note + ' waits'!r}): time.sleep(0.02)\n"
        f"time.sleep(0.5); os.getppid() == {os.getpid()} or os.kill(os.getppid(), 9); time.sleep(60)"
    )
    done = pooled(program, [waiting.format(note), killing, "print(os.getppid())"])
    assert [done[0].returncode, done[1].returncode, done[2].returncode] == [LOST, LOST, 0]
    assert done[2].output_tail == f"{os.getpid()}\n"
    until(Path(note).exists)


def test_what_stops_the_pool_ends_forks_and_what_they_started(program, tmp_path):
    note = tmp_path / "pids"
    code = f"""
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(note)!r}, "w").write(f"{{os.getpid()}} {{child.pid}} ")
time.sleep(600)"""
    done = pooled(program, [code, "pass", "print('never')"], 1, stop=lambda: len(pids(note)) == 2)
    assert done.keys() == {0} and done[0].returncode == -signal.SIGTERM
    until(lambda: not any(map(alive, pids(note))))


EARLY = """
import os, sys
sys.path.insert(0, {root!r})
from stride.runstore.many.nursery import words_of
from stride.runstore.many.process_pool import run_all
print("once")
words = words_of(sys.argv[1:], lambda words: None, lambda words: ["me"])
if words[0] != "lead":
    print(words, os.environ.get("WORD"), os.environ.get("GONE"), os.getppid() == int(words[1]))
    sys.exit(3)
del os.environ["GONE"]
commands = [["me", str(number), str(os.getpid())] for number in range(2)]
for done in run_all(commands, 1, {{"WORD": "hello"}}, program=["me"]):
    print(done.index, done.returncode, done.output_tail, end="")
"""


def test_a_command_forks_what_it_has_imported_itself():
    """`me` is no program: nothing but the fork can have run these."""
    lines = [*python(EARLY.format(root=str(ROOT))), "lead"]
    done = subprocess.run(lines, env={**os.environ, "GONE": "x"}, capture_output=True, text=True, check=True)
    once, *outputs = done.stdout.splitlines()
    assert once == "once" and len(outputs) == 2
    for number, line in enumerate(outputs):
        assert line.startswith(f"{number} 3 ['{number}', ") and line.endswith("hello None False")


@pytest.mark.slow
def test_a_forked_training_has_the_bits_of_a_fresh_process(tmp_path, monkeypatch):
    train = [sys.executable, str(ROOT / "train.py")]
    ends = []
    for name, commands in (("fresh", [["--seed", "1"], ["--seed", "2"]]), ("forked", [["--seed", "1,2"]])):
        monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / name))
        for more in commands:
            subprocess.run([*train, *TINY, *more], check=True, capture_output=True)
        runs = sorted(list_runs(), key=lambda run: run.facts()["seed"])
        keys = ("rows", "increasing", "links", "report")
        ends.append([(fingerprint(state_of(run)), {key: comparable(run)[key] for key in keys}) for run in runs])
    assert len(ends[0]) == 2 and ends[0] == ends[1] and ends[0][0] != ends[0][1]


# ---- each a process of its own

CHILD = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\nmore = [child.pid]"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nmore = []"


def waiting(note):
    """A command that ends when something is in the file."""
    note = repr(str(note))
    return python(f"import os, time\nwhile not (os.path.exists({note}) and open({note}).read()): time.sleep(.01)")


def lasting(note, before="more = []"):
    """A command that does not end, and notes its processes in the file."""
    code = f"import os, signal, subprocess, sys, time\n{before}\n"
    return python(f"{code}open({str(note)!r}, 'w').write(' '.join(map(str, [os.getpid(), *more])))\ntime.sleep(600)")


def test_no_more_than_workers_run_at_once(tmp_path):
    code = f"""
import os, time
here = os.path.join({str(tmp_path)!r}, str(os.getpid()))
open(here, 'w').close(); time.sleep(.1); print(len(os.listdir({str(tmp_path)!r}))); os.remove(here)"""
    counts = [int(finished.output_tail) for finished in run_all([python(code)] * 5, 2)]
    assert len(counts) == 5 and max(counts) <= 2


def test_whoever_hears_of_an_end_may_append_what_follows():
    commands, outputs = [python("print(0)")], []
    for finished in run_all(commands, 2):
        outputs.append(int(finished.output_tail))
        if len(commands) < 5:
            commands += [python(f"print({len(commands) + more})") for more in range(2)]
    assert sorted(outputs) == [0, 1, 2, 3, 4]


def test_a_slow_command_does_not_hold_back_a_quick_one_and_the_caller_is_asked_meanwhile(tmp_path):
    calls = []
    pool = run_all([waiting(tmp_path / "note"), python("")], 2, meanwhile=lambda: calls.append(1))
    assert next(pool).index == 1
    before = len(calls)
    (tmp_path / "note").write_text("the quick one is done")
    assert [finished.index for finished in pool] == [0] and len(calls) > before


@pytest.mark.parametrize("before", [CHILD, STUBBORN], ids=["a grandchild", "one that ignores the request"])
def test_closing_the_iterator_ends_all_processes(tmp_path, monkeypatch, before):
    monkeypatch.setattr("stride.runstore.many.process_pool.GRACE", 0.2)
    note = tmp_path / "pids"
    pool = run_all([waiting(note), lasting(note, before)], 2)
    assert next(pool).index == 0
    pool.close()
    assert not alive(pids(note)[0])
    until(lambda: not any(map(alive, pids(note))))


def test_a_command_that_does_not_exist_raises_and_ends_the_others(tmp_path):
    note = tmp_path / "pid"
    with pytest.raises(FileNotFoundError):
        list(run_all([lasting(note), waiting(note), ["/no/such/program"]], 2))
    assert not any(map(alive, pids(note)))
