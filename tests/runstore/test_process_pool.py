"""Commands side by side: results, output, limits, and what happens to children when the parent stops."""

import sys
import time

import pytest

from stride.runstore.many.process_pool import run_all


def python(code):
    return [sys.executable, "-c", code]


def is_alive(pid):
    """Whether the process runs; a zombie waiting for its parent does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_each_command_reports_its_code_and_the_end_of_its_output():
    commands = [
        python("print('x' * 9000 + 'end')"),
        python("import sys; sys.stderr.write('oops'); sys.exit(3)"),
        python("import os; print(os.environ['WORD'])"),
    ]
    done = {finished.index: finished for finished in run_all(commands, 2, {"WORD": "hello"})}
    assert [done[i].returncode for i in range(3)] == [0, 3, 0]
    assert done[0].output_tail.endswith("end\n") and len(done[0].output_tail) == 4000
    assert done[1].output_tail == "oops" and done[2].output_tail == "hello\n"


def test_no_more_than_workers_run_at_once(tmp_path):
    code = f"""
import os, time
here = os.path.join({str(tmp_path)!r}, str(os.getpid()))
open(here, 'w').close(); time.sleep(.1); print(len(os.listdir({str(tmp_path)!r}))); os.remove(here)"""
    seen = [int(finished.output_tail) for finished in run_all([python(code)] * 5, 2)]
    assert len(seen) == 5 and max(seen) <= 2


def test_who_is_told_of_an_end_may_append_what_follows():
    commands, said = [python("print(0)")], []
    for finished in run_all(commands, 2):
        said.append(int(finished.output_tail))
        if len(commands) < 5:
            commands += [python(f"print({len(commands) + more})") for more in range(2)]
    assert sorted(said) == [0, 1, 2, 3, 4]


def test_a_slow_command_does_not_hold_back_a_quick_one(tmp_path):
    note = tmp_path / "the quick one is done"
    slow = python(f"import os, time\nwhile not os.path.exists({str(note)!r}): time.sleep(.01)")
    pool = run_all([slow, python("")], 2)
    assert next(pool).index == 1
    note.touch()
    assert [finished.index for finished in pool] == [0]


def test_closing_the_iterator_ends_children_and_grandchildren(tmp_path):
    note = tmp_path / "pids"
    code = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
open({str(note)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')
time.sleep(60)"""
    pool = run_all(
        [python(f"import os, time\nwhile not os.path.exists({str(note)!r}): time.sleep(.01)"), python(code)], 2
    )
    assert next(pool).index == 0
    while not note.read_text():
        time.sleep(0.01)
    pool.close()
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in note.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [is_alive(pid) for pid in note.read_text().split()] == [False, False]


def test_a_child_that_ignores_the_request_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("stride.runstore.many.process_pool.GRACE", 0.2)
    note = tmp_path / "pid"
    stubborn = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({str(note)!r}, 'w').write(str(os.getpid()))
time.sleep(60)"""
    pool = run_all(
        [python(f"import os, time\nwhile not os.path.exists({str(note)!r}): time.sleep(.01)"), python(stubborn)], 2
    )
    next(pool)
    while not note.read_text():
        time.sleep(0.01)
    pool.close()
    assert not is_alive(note.read_text())


def test_a_command_that_does_not_exist_raises_and_ends_the_others(tmp_path):
    note = tmp_path / "pid"
    sleeper = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    watcher = (
        f"import os, time\nwhile not (os.path.exists({str(note)!r}) and open({str(note)!r}).read()): time.sleep(.01)"
    )
    with pytest.raises(FileNotFoundError):
        list(run_all([python(sleeper), python(watcher), ["/no/such/program"]], 2))
    assert not is_alive(note.read_text())


def test_the_caller_is_asked_meanwhile():
    calls = []
    (done,) = run_all([python("import time; time.sleep(.3); print('late')")], 1, meanwhile=lambda: calls.append(1))
    assert done.output_tail == "late\n" and len(calls) >= 2
