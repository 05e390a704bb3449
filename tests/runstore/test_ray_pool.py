"""Commands on a Ray cluster: a real one, a head and two nodes of one CPU each, all on this machine."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import pytest
from refusals import refusals

from lab.faults.pauses import cluster as a_cluster
from lab.faults.rig import TINY
from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.runstore.many import ray_pool
from stride.runstore.run_dir import list_runs
from stride.utils.user_error import UserError
from tests.runstore.processes import python

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.usefixtures("root")


WRONG = [["A-v0:x", "--on", "rya"], ["A-v0:x", "--on", "ray", "--debug"], ["A-v0:x", "--on", "ray", "--json"]]


def test_words_that_mean_nothing_are_one_line(monkeypatch, snapshot):
    monkeypatch.setattr("stride.config.extras.find_spec", lambda name: name)
    assert refusals(parse_arguments, WRONG) == snapshot


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("stride.config.extras.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--on ray needs Ray: pip install 'stride-rl\[cluster\]'"):
        parse_arguments(["CartPole-v1:ppo", "--on", "ray"])


def test_a_node_that_sees_other_files_or_has_other_code_says_so(tmp_path):
    (tmp_path / "note").write_text("x")
    same = ray_pool.NodeContract(str(tmp_path / "note"), "x", ray_pool.facts())
    assert ray_pool.differing(*same) == ""
    assert "is not shared with it" in ray_pool.differing(*same._replace(token="y"))
    assert "cannot read the new" in ray_pool.differing(*same._replace(file=str(tmp_path / "other")))
    other = ray_pool.differing(*same._replace(facts={**same.facts, "code": "abc", "torch": "1.0"}))
    assert "code" in other and "torch" in other and "'abc' there" not in other and "'abc' here" in other


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="pip install 'stride-rl[cluster]'")
    before = dict(os.environ)
    with a_cluster() as made:
        yield made
    os.environ.clear()
    os.environ.update(before)


def pooled(commands, **more):
    with ray_pool.connected("ray") as pool:
        assert pool.workers == 2
        return {done.index: done for done in pool.run_all(commands, 1, {"WORD": "hello"}, **more)}


@pytest.mark.slow
def test_codes_output_and_variables_are_those_of_a_process(cluster, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    show = "import os; e = os.environ; print(e['WORD'], e['STRIDE_RUNS'], e.get('OMP_NUM_THREADS'), os.getcwd())"
    begun = []
    done = pooled([python(show), python("import sys; print('no'); sys.exit(2)")], began=begun.append)
    assert done[0].output_tail == f"hello {tmp_path / 'runs'} None {os.getcwd()}\n" and done[0].returncode == 0
    assert (done[1].returncode, done[1].output_tail, sorted(begun)) == (2, "no\n", [0, 1])
    assert not list((tmp_path / "runs").iterdir()), "the file that nodes were to read is gone"


@pytest.mark.slow
def test_what_was_saved_is_tried_again_and_nothing_else(cluster, tmp_path):
    count = "import os, sys; open(sys.argv[1], 'a').write('x'); n = os.path.getsize(sys.argv[1]); sys.exit({})"
    ends = ["143 if n < 3 else 0", "75 if n < 2 else 1", "1", "143"]
    commands = [[*python(count.format(end)), str(tmp_path / str(place))] for place, end in enumerate(ends)]
    done = pooled(commands)
    assert [done[place].returncode for place in range(4)] == [0, 1, 1, 143]
    assert [(tmp_path / str(place)).stat().st_size for place in range(4)] == [3, 2, 1, ray_pool.TRIES]


@pytest.mark.slow
def test_what_stops_it_ends_what_runs(cluster, tmp_path):
    saves = "import signal, sys, time; signal.signal(15, lambda *_: (open(sys.argv[1], 'w').close(), sys.exit(143))); "
    saves += "open(sys.argv[1] + ' runs', 'w').close(); time.sleep(600)"
    commands = [[*python(saves), str(tmp_path / str(place))] for place in range(3)]
    runs = [tmp_path / f"{place} runs" for place in range(2)]
    done = pooled(commands, stop=lambda: all(path.exists() for path in runs))
    assert {finished.returncode for finished in done.values()} == {143} and len(done) == 2
    assert (tmp_path / "0").exists() and (tmp_path / "1").exists() and not (tmp_path / "2").exists()


@pytest.mark.slow
def test_nodes_that_differ_are_refused_before_anything_is_begun(cluster, root, monkeypatch, capsys):
    monkeypatch.setattr(ray_pool, "facts", lambda: {"code": "another"})
    assert train.command(["CartPole-v1:ppo", "--seed", "1,2", "--on", "ray", "-q"]) == 2
    told = capsys.readouterr().err
    assert "of the Ray cluster differs" in told and "'another' here" in told and not list_runs()
    assert not list(root.iterdir())


@pytest.mark.slow
@pytest.mark.soak
def test_a_node_loads_once_and_the_leader_loads_no_torch(cluster, tmp_path):
    command = [sys.executable, "-X", "importtime", str(ROOT / "train.py"), *TINY, "--seed", "1-6", "--on", "ray"]
    with (tmp_path / "imports").open("w") as imports:
        led, nurseries = subprocess.Popen(command, stderr=imports, cwd=ROOT), set()
    while led.poll() is None:
        nurseries |= {words[words.index("--nursery") + 2] for words in processes() if "--nursery" in words}
        time.sleep(0.02)
    imported = {line.rpartition("|")[2].strip() for line in (tmp_path / "imports").read_text().splitlines()}
    assert led.returncode == 0 and len(list_runs()) == 6
    assert len(nurseries) == 2, "one of each node's workers, whose later commands find it"
    assert "ray" in imported and not {"torch", "lightning", "gymnasium"} & imported


def processes():
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (folder / "cmdline").read_text().split("\0")


@pytest.mark.slow
def test_a_node_that_died_a_moment_ago_is_left_out(cluster):
    """Ray notices it half a minute later, and calls it alive until then."""
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    cluster.add_node(num_cpus=1)
    with ray_pool.connected("ray") as pool:
        assert [done.returncode for done in pool.run_all([python("pass")], 1)] == [0]


def listening(mark):
    """The addresses, as /proc has them, at which processes with this text in their environment listen."""
    sockets = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            if mark.encode() in (folder / "environ").read_bytes():
                sockets |= {os.readlink(file) for file in (folder / "fd").iterdir()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return [line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]


@pytest.mark.slow
def test_a_cluster_of_one_command_listens_on_localhost_only(tmp_path):
    pytest.importorskip("ray", reason="pip install 'stride-rl[cluster]'")
    code = "from stride.runstore.many.ray_pool import connected\n"
    code += "with connected('ray:local'): print('up', flush=True), input()"
    mark = f"STRIDE_MARK={tmp_path}"
    env = {**os.environ, "STRIDE_MARK": str(tmp_path), "RAY_ADDRESS": "127.0.0.1:1"}  # not what is meant
    with subprocess.Popen(python(code), cwd=ROOT, env=env, text=True, stdin=PIPE, stdout=PIPE) as made:
        assert "up\n" in iter(made.stdout.readline, "")
        found = listening(mark)
        made.communicate("\n")
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert len(found) >= 3 and {*found} <= loopback and made.returncode == 0
