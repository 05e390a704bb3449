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


def kernels(home):
    return home / ".cache" / "stride" / "kernels"


def test_kernels_lie_in_the_users_cache_folder_whatever_the_umask(home):
    before = os.umask(0)
    try:
        root = kernel_folder.root_of({})
    finally:
        os.umask(before)
    assert root == kernels(home)
    assert {path.stat().st_mode & 0o777 for path in (root, root.parent, home / ".cache")} == {0o700}
    assert kernel_folder.root_of({"XDG_CACHE_HOME": str(home / "x")}) == home / "x" / "stride" / "kernels"
    assert kernel_folder.root_of({"XDG_CACHE_HOME": "relative"}) == kernels(home)
    assert kernel_folder.root_of({"NUMBA_CACHE_DIR": "named"}) == Path.cwd() / "named"
    assert not Path("named").exists()  # looked at by who compiles


def linked(home):
    kernels(home).rmdir()
    kernels(home).symlink_to(spare(home).parents[1])


HOSTILE = {  # what others could have made of the folder
    "the group can write to it": lambda home: kernels(home).chmod(0o770),
    "all can write to it": lambda home: kernels(home).chmod(0o707),
    "another could stand in its place": lambda home: (home / ".cache").chmod(0o777),
    "a link": linked,
    "of another user": lambda home: os.chown(kernels(home), 12345, 12345),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_a_folder_that_is_not_ones_own_alone_is_not_taken(home, change):
    if "user" in change and os.geteuid() != 0:
        pytest.skip("gives a folder to another user")
    kernels(home).mkdir(parents=True, mode=0o700)
    HOSTILE[change](home)
    assert kernel_folder.root_of({}) == spare(home) and spare(home).stat().st_mode & 0o777 == 0o700
    if "stand in its place" in change:
        (home / ".cache").chmod(0o1777)  # as /tmp: a name belongs to who made it
        assert kernel_folder.root_of({}) == kernels(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_where_another_user_came_first_in_tmp_a_new_name_is_made(home):
    kernels(home).mkdir(parents=True)
    kernels(home).chmod(0o770)
    spare(home).mkdir(parents=True)
    os.chown(spare(home).parent, 12345, 12345)
    taken = kernel_folder.root_of({})
    assert taken.parent == home.parent / "tmp" and taken.name.startswith(kernel_folder.PASSING)
    assert taken.stat().st_mode & 0o777 == 0o700 and taken.stat().st_uid == os.geteuid()


def test_a_home_that_cannot_be_written_to_is_served(home, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    assert kernel_folder.root_of({}) == spare(home)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: (_ for _ in ()).throw(FileNotFoundError))
    assert kernel_folder.root_of({}) == Path("/proc/nowhere/.cache/stride/kernels")  # who compiles says so


def test_the_state_follows_sources_processor_and_switches(monkeypatch):
    """-O, too, leaves assertions out of the bytecode, by which Numba looks kernels up."""
    before = kernel_folder.state()
    assert kernel_folder.FOLDER.name == before == kernel_folder.state()
    flags = type("Flags", (), {"optimize": 1 + sys.flags.optimize})()
    changes = {"NAME": "z80", "FEATURES": frozenset({"mmx"}), "ALONE": kernel_folder.ALONE[1:]}
    places = [(kernel_folder, *change) for change in changes.items()]
    places += [(kernel_folder.sys, "flags", flags), (numba, "__version__", "0.1")]
    states = {before}
    for owner, name, value in places:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            states.add(kernel_folder.state())
    assert len(states) == 6


def test_old_states_go_and_many(tmp_path):
    def aged(path, days):
        path.mkdir(exist_ok=True)
        os.utime(path, (1e9 - days * DAY, 1e9 - days * DAY))
        return path

    ages = [400, 0.1, 0.2, 0.3, 0.4, 0.5, 2, 3]
    used, *others = [aged(tmp_path / f"{number:016x}", age) for number, age in enumerate(ages)]
    kernel_folder.prune(tmp_path, used, 1e9)
    assert {*tmp_path.iterdir()} == {used, *others[:5]}  # all of today, though they are more than five with it
    with open(others[1] / kernel_folder.LOCK, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # somebody compiles there
        for path in others[1:5]:
            aged(path, 70)
        kernel_folder.prune(tmp_path, used, 1e9)
    assert {*tmp_path.iterdir()} == {used, *others[:2]}
    (tmp_path / "not ours").mkdir()
    (tmp_path / f"{others[2].name}.gone7").mkdir()  # left by a process that was killed at it
    kernel_folder.prune(tmp_path, used, 1e9 + 100 * DAY)
    assert {*tmp_path.iterdir()} == {used, tmp_path / "not ours"}


def test_ready_is_what_lies_there_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(warm, "FOLDER", tmp_path)
    stamp, folder = tmp_path / "CartPole-v1-ppo-tanh.ready", tmp_path / "q-1"
    assert not warm._ready(stamp)
    stamp.touch()  # names nothing
    assert not warm._ready(stamp)
    folder.mkdir()
    for name in ("a.nbi", "a.1.nbc"):
        (folder / name).write_text("code")
    warm._note(stamp)
    os.utime(tmp_path, (0, 0))
    assert warm._ready(stamp) and tmp_path.stat().st_mtime > 0
    (folder / "a.1.nbc").write_text("")  # a power cut
    assert not warm._ready(stamp)
    (folder / "a.nbi").unlink()  # a cleaner of old files
    assert not warm._ready(stamp)
    for name in ("a.nbi.tmp.0123", "b.nbi.tmp.4567"):
        (folder / name).write_text("half")
    os.utime(folder / "a.nbi.tmp.0123", (0, 0))  # the other is of a process that is at it
    warm._sweep()
    assert [path.name for path in folder.iterdir()] == ["b.nbi.tmp.4567"]


def kernel_of():
    @njit(cache=True)
    def first(numbers):
        return numbers[-1] + numbers[-1]

    return first


def all_of(kind):
    """One kernel for three types of this kind, while other processes do so for theirs."""
    kernel = kernel_of()
    for width in range(1, 4):
        result = kernel(tuple(kind(number) for number in range(width)))
        assert type(result) is kind and result == 2 * (width - 1)
    return kernel.stats


def test_processes_that_add_at_once_give_no_number_twice(tmp_path, monkeypatch):
    """Numba counts an index up: two that read it at once gave the same file to kernels of different types."""
    monkeypatch.setattr(kernel_cache, "FOLDER", tmp_path)
    save, kinds = IndexDataCacheFile._save_index, (int, float, complex)
    monkeypatch.setattr(IndexDataCacheFile, "_save_index", lambda *given: (time.sleep(0.05), save(*given)))
    processes = [multiprocessing.get_context("fork").Process(target=all_of, args=(kind,)) for kind in kinds]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    for kind in kinds:
        stats = all_of(kind)
        assert sum(stats.cache_hits.values()) == 3 and not stats.cache_misses
    assert len([*tmp_path.glob("*/*.nbc")]) == 9


def test_what_cannot_be_kept_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setattr(kernel_cache, "FOLDER", Path("/proc/nowhere"))
    kernel = kernel_of()
    assert kernel((1, 2)) == 4 and sum(kernel.stats.cache_misses.values()) == 1
    names = {"njit": njit}
    exec(compile("@njit\ndef f(x):\n    return x + 1\n", "<typed>", "exec"), names)
    assert names["f"](1) == 2
    assert kernel_cache.KernelLocator.from_function(names["f"].py_func, "<typed>") is None
