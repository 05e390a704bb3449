"""Never more than there are for this process: affinity, control groups of both versions, its share in a group."""

import pytest

from stride.utils.resources import CORES_VARIABLE, cores, idle, quota

NONE = 1 << 20
V1 = {"cpu/x/cpu.cfs_period_us": "100000"}
QUOTAS = [  # a process's own groups, their files, the whole cores it may use
    ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
    ("0::/a/b\n", {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "max 100000\n", "cpu.max": "400000 100000\n"}, 1),
    ("0::/a\n", {"a/cpu.max": "max 100000\n"}, NONE),
    ("4:cpu,cpuacct:/x\n3:memory:/y\n", {"cpu/x/cpu.cfs_quota_us": "50000", **V1}, 1),
    ("4:cpu,cpuacct:/x\n", {"cpu/x/cpu.cfs_quota_us": "-1", **V1}, NONE),
    ("nonsense\n0::/a/../../etc\n", {"cpu.max": "0 0"}, NONE),
    ("", {}, NONE),
]


@pytest.mark.parametrize(("own", "files", "most"), QUOTAS)
def test_the_smallest_quota_on_the_way_to_the_root(tmp_path, own, files, most):
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own").write_text(own)
    assert quota(tmp_path / "groups", tmp_path / "own") == most


def test_affinity_and_share(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(6))
    monkeypatch.setattr("stride.utils.resources.quota", lambda groups, own: 4)
    monkeypatch.delenv(CORES_VARIABLE, raising=False)
    assert cores() == 4
    for text, count in (("3", 3), ("0", 1), ("99", 4), ("many", 4)):
        monkeypatch.setenv(CORES_VARIABLE, text)
        assert cores() == count


BUSY = [("0.0 0.0 0.0 1/99 7\n", 8), ("0.5 1.0 1.0 4/99 7\n", 5), ("9 9 9 30/99 7", 1), ("", 8)]


@pytest.mark.parametrize(("told", "found"), BUSY)
def test_who_is_busy_just_now_counts_and_not_a_minute_ago(tmp_path, monkeypatch, told, found):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("stride.utils.resources.LOAD", tmp_path / "loadavg")
    (tmp_path / "loadavg").write_text(told)
    assert idle() == found
