"""Compiled kernels lie where nobody else can write, old ones go, and what is called ready is there."""

import fcntl
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import numba
import pytest
from numba.core.caching import IndexDataCacheFile

from stride.agents.engines.fused_cpu import warm
from stride.utils import kernel_cache, kernel_folder
from stride.utils.kernel_cache import njit

DAY = 86_400


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home and a folder of temporary files, as on a machine of one's own."""
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    os.chmod(tmp_path / "tmp", 0o1777)
    return tmp_path / "home"


def spare(home):
    return home.parent / "tmp" / f"stride-{os.geteuid()}" / "kernels"


def test_kernels_lie_in_the_users_cache_folder(home):
    assert kernel_folder.root_of({}) == home / ".cache" / "stride" / "kernels"
    assert kernel_folder.root_of({"XDG_CACHE_HOME": str(home / "x")}) == home / "x" / "stride" / "kernels"
    assert kernel_folder.root_of({"XDG_CACHE_HOME": "relative"}) == home / ".cache" / "stride" / "kernels"
    assert kernel_folder.root_of({"NUMBA_CACHE_DIR": "named"}) == Path.cwd() / "named"
    assert not Path("named").exists()  # looked at by who compiles


def test_whatever_the_umask_nobody_else_can_write_there(home):
    before = os.umask(0)
    try:
        root = kernel_folder.root_of({})
    finally:
        os.umask(before)
    assert root == home / ".cache" / "stride" / "kernels"
    assert {path.stat().st_mode & 0o777 for path in (root, root.parent, home / ".cache")} == {0o700}


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_can_write_to_is_not_taken(home, mode):
    (home / ".cache" / "stride" / "kernels").mkdir(parents=True)
    os.chmod(home / ".cache" / "stride" / "kernels", mode)
    assert kernel_folder.root_of({}) == spare(home)
    assert spare(home).stat().st_mode & 0o777 == 0o700


def test_nor_one_that_others_could_put_theirs_in_the_place_of(home):
    (home / ".cache").mkdir()
    os.chmod(home / ".cache", 0o777)
    assert kernel_folder.root_of({}) == spare(home)
    os.chmod(home / ".cache", 0o1777)  # as /tmp: a name belongs to who made it
    assert kernel_folder.root_of({}) == home / ".cache" / "stride" / "kernels"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_nor_one_of_another_user_nor_below_theirs(home):
    (home / ".cache" / "stride" / "kernels").mkdir(parents=True, mode=0o700)
    os.chown(home / ".cache" / "stride" / "kernels", 12345, 12345)
    assert kernel_folder.root_of({}) == spare(home)
    os.chown(spare(home).parent, 12345, 12345)  # who came first in /tmp
    taken = kernel_folder.root_of({})
    assert taken.parent == home.parent / "tmp" and taken.name.startswith(kernel_folder.PASSING)
    assert taken.stat().st_mode & 0o777 == 0o700 and taken.stat().st_uid == os.geteuid()


def test_nor_a_link(home, tmp_path):
    (home / ".cache" / "stride").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (home / ".cache" / "stride" / "kernels").symlink_to(tmp_path / "elsewhere")
    assert kernel_folder.root_of({}) == spare(home)


def test_a_home_that_cannot_be_written_to_is_served(home, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    assert kernel_folder.root_of({}) == spare(home)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: (_ for _ in ()).throw(FileNotFoundError))
    assert kernel_folder.root_of({}) == Path("/proc/nowhere/.cache/stride/kernels")  # who compiles says so


def test_the_state_follows_sources_processor_and_switches(monkeypatch):
    before = kernel_folder.state()
    assert kernel_folder.FOLDER.name == before == kernel_folder.state()
    seen = {before}
    for name, value in {"NAME": "z80", "FEATURES": frozenset({"mmx"}), "ALONE": kernel_folder.ALONE[1:]}.items():
        with monkeypatch.context() as patch:
            patch.setattr(kernel_folder, name, value)
            seen.add(kernel_folder.state())
    monkeypatch.setattr(numba, "__version__", "0.1")
    seen.add(kernel_folder.state())
    assert len(seen) == 5


def states(root, ages):
    """A folder for each of these ages in days."""
    made = [root / f"{number:016x}" for number in range(len(ages))]
    for path, age in zip(made, ages, strict=True):
        (path / "q-123").mkdir(parents=True)
        os.utime(path, (1e9 - age * DAY, 1e9 - age * DAY))
    return made


def test_old_states_go_and_many(tmp_path):
    used, *others = states(tmp_path, [400, 0.1, 0.2, 0.3, 0.4, 0.5, 2, 3])
    kernel_folder.prune(tmp_path, used, 1e9)
    assert {*tmp_path.iterdir()} == {used, *others[:5]}  # all of today, though they are more than five with it
    for path in others[1:5]:
        os.utime(path, (1e9 - 70 * DAY, 1e9 - 70 * DAY))
    with open(others[1] / kernel_folder.LOCK, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # somebody compiles there
        os.utime(others[1], (1e9 - 70 * DAY, 1e9 - 70 * DAY))
        kernel_folder.prune(tmp_path, used, 1e9)
    assert {*tmp_path.iterdir()} == {used, others[0], others[1]}
    (tmp_path / "not ours").mkdir()
    (tmp_path / f"{others[2].name}.gone7").mkdir()  # left by a process that was killed at it
    kernel_folder.prune(tmp_path, used, 1e9 + 100 * DAY)
    assert {*tmp_path.iterdir()} == {used, tmp_path / "not ours"}


def test_ready_is_what_lies_there_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(warm, "FOLDER", tmp_path)
    stamp = tmp_path / "CartPole-v1-ppo-tanh.ready"
    assert not warm._ready(stamp)
    stamp.touch()  # names nothing
    assert not warm._ready(stamp)
    kernels = [tmp_path / "q-1" / name for name in ("a.nbi", "a.1.nbc")]
    (tmp_path / "q-1").mkdir()
    for path in kernels:
        path.write_text("code")
    warm._note(stamp)
    os.utime(tmp_path, (0, 0))
    assert warm._ready(stamp) and time.time() - tmp_path.stat().st_mtime < 60
    kernels[1].write_text("")  # a power cut
    assert not warm._ready(stamp)
    kernels[0].unlink()  # a cleaner of old files
    assert not warm._ready(stamp)
    (tmp_path / "q-1" / "a.nbi.tmp.0123").write_text("half")
    os.utime(tmp_path / "q-1" / "a.nbi.tmp.0123", (0, 0))
    (tmp_path / "q-1" / "b.nbi.tmp.4567").write_text("of a process that is at it")
    warm._sweep()
    assert [path.name for path in (tmp_path / "q-1").iterdir()] == ["b.nbi.tmp.4567"]


def add_all(kind, turns):
    """In a process of its own: one kernel for as many types as there are turns, while others do so for theirs."""
    kernel = kernel_of()
    for width in range(1, turns + 1):
        kernel(tuple(kind(number) for number in range(width)))


def kernel_of():
    @njit(cache=True)
    def first(numbers):
        return numbers[-1] + numbers[-1]

    return first


def test_processes_that_add_at_once_give_no_number_twice(tmp_path, monkeypatch):
    """Numba counts an index up: two that read it at once gave the same file to kernels of different types."""
    monkeypatch.setattr(kernel_cache, "FOLDER", tmp_path)
    save = IndexDataCacheFile._save_index
    monkeypatch.setattr(IndexDataCacheFile, "_save_index", lambda *given: (time.sleep(0.05), save(*given)))
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=add_all, args=(kind, 3)) for kind in (int, float, complex)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    kernel = kernel_of()
    for kind in (int, float, complex):
        for width in range(1, 4):
            found = kernel(tuple(kind(number) for number in range(width)))
            assert type(found) is kind and found == 2 * (width - 1)
    assert sum(kernel.stats.cache_hits.values()) == 9 and not kernel.stats.cache_misses
    assert len([*tmp_path.glob("*/*.nbc")]) == 9


def test_where_nothing_can_be_added_kernels_compile_all_the_same(monkeypatch):
    monkeypatch.setattr(kernel_cache, "FOLDER", Path("/proc/nowhere"))
    kernel = kernel_of()
    assert kernel((1, 2)) == 4 and sum(kernel.stats.cache_misses.values()) == 1


def test_a_function_that_was_typed_in_is_compiled():
    names = {"njit": njit}
    exec(compile("@njit\ndef f(x):\n    return x + 1\n", "<typed>", "exec"), names)
    assert names["f"](1) == 2
    assert kernel_cache.KernelLocator.from_function(names["f"].py_func, "<typed>") is None


def test_optimised_python_has_kernels_of_its_own(monkeypatch):
    """-O leaves assertions out of the bytecode, by which Numba looks kernels up."""
    before = kernel_folder.state()
    monkeypatch.setattr(kernel_folder.sys, "flags", type("Flags", (), {"optimize": 1 + sys.flags.optimize})())
    assert kernel_folder.state() != before
