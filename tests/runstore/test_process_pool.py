"""Commands side by side: results, output, limits, and what happens to children when the parent stops."""

import pytest

from stride.runstore.many.process_pool import run_all
from tests.runstore.processes import alive, pids, python, until

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
