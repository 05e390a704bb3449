"""Words and files of another mind: each is refused in one line of at most 300 characters, and nothing is made."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stride.agents.experience import storage
from stride.commands import run_inspect, run_play, run_publish, train
from stride.config.loader import from_plain, load_config, to_plain
from stride.utils.user_error import UserError, one_line

ROOT = Path(__file__).resolve().parent.parent
NINES = {n: "9" * n for n in (41, 310, 4300, 5000)}
DEEP = "[" * 500 + "]" * 500
CHAIN = "max_timesteps: 1e5\nv0: {algo_id: ppo}\n" + "".join(
    f"v{n}: {{_inherit_: v{n - 1}, seed: {n}}}\n" for n in range(1, 3000)
)
GOOD = "max_timesteps: 1e5\nppo: {}\n"

WORDS = [
    *(["--seed", digits] for digits in NINES.values()),
    *([f"{key}={digits}"] for key in ("gamma", "seed", "policy_lr") for digits in NINES.values()),
    ["--seed", "1-99999999999"], ["--seed", f"1-{NINES[5000]}"], [f"spec.returns=[0,{NINES[310]}]"],
    [f"policy_lr=lin_{NINES[5000]}"], [f"policy_lr={{kind:linear,start_value:{NINES[310]}}}"],
    [f"env_kwargs.x={NINES[310]}"], [f"n_steps=int('{NINES[5000]}')"], [f"n_envs={'0' * 5000}"], ["n_envs=1e300"],
    [f"hidden_dims={DEEP}"], [f"env_kwargs.{'a.' * 300}b=1"], [f"env_kwargs.x={'{a:' * 300}"],
    ["description=\udcff"], ["--group", "x", "\ud800:ppo"], ["description=" + "x" * 20_000],
    [f"{'x' * 5000}=1"], [f"--{'x' * 5000}"], [f"env_kwargs.k{n}=1" for n in range(3000)],
    ["gamma=\x1b[31mred"], ["gamma=‮9.0"], ["--resume", "a/" * 4000], ["--resume", "\ud800/x"],
    *(["--config", name] for name in ("/dev/zero", "/dev/stdin", "x" * 300, "\x00", "/", "\ud800", "/proc/self/mem")),
]  # fmt: skip
FILES = [
    *(f"x: !!{tag}\n" for tag in ("bool maybe", "float ''", "int ''", "timestamp xyz", "binary xyz")),
    'description: "\\ud800"\n', "env_kwargs: {x: 2001-01-01T00:00:00 , y: !!omap 3}\n",
    *(f"gamma: {digits}\n" for digits in NINES.values()), f"spec: {{returns: [0, {NINES[4300]}]}}\n",
    f"env_kwargs: {{x: {NINES[310]}}}\n", f"policy_lr: {{kind: linear, start_value: {NINES[4300]}}}\n",
    f"policy_kwargs: {{x: {'[' * 21}{']' * 21}}}\n", f"x: {'{a: ' * 300}\n", "- " * 50_000,
    CHAIN, f"{'x' * 5000}: 1\n", "# " + "x" * (1 << 19) + "\n", "? [1, [2]]\n: 1\n",
    "a: &a {x: 1}\n" + "".join(f"a{n}: &a{n} [*a{n - 1 or ''}, *a{n - 1 or ''}]\n" for n in range(1, 40)),
    "? &a [1]\n: 1\n" + "".join(f"? &a{n} [*a{n - 1 or ''}, *a{n - 1 or ''}]\n: 1\n" for n in range(1, 40)),
]  # fmt: skip
OTHERS = [
    *((run_play, [f"--{name}", NINES[5000]]) for name in ("episodes", "max-steps", "seed", "fps")),
    *((run_play, ["--video", name]) for name in ("x" * 300 + ".mp4", "\x00.mp4", "a/" * 3000 + "b.mp4")),
    *((run_publish, ["--dry-run", name]) for name in ("x" * 300, "\x00")), (run_inspect, ["--port", NINES[5000]]),
    *((run_inspect, ["--host", name]) for name in ("x" * 300, "\x00", "\ud800")),
    (run_play, ["--run-id", "x" * 5000]), (run_publish, ["--repo", "x" * 5000]),
]  # fmt: skip

PPO, DQN = "CartPole-v1:ppo", "MountainCar-v0:dqn"
TOO_LARGE = [
    *(f"{PPO} {key}=1e12" for key in ("n_envs", "n_steps", "hidden_dims", "frame_stack", "frame_skip", "batch_size")),
    *(f"{DQN} {key}=1e12" for key in ("train_freq", "buffer_size", "quantiles", "n_step")), f"{PPO} resize_obs=1e6",
    f"{PPO} hidden_dims=[1e6,1e6,1e6]", f"{PPO} n_envs=1e7 n_steps=1e7 max_timesteps=1e15", f"{DQN} batch_size=1e9",
    f"{DQN} n_envs=1e6 train_freq=1e6 buffer_size=1e9",
]  # fmt: skip
LARGE = [
    f"{PPO} n_envs=262144 n_steps=1024 max_timesteps=1e9", f"{PPO} hidden_dims=[16384,16384]", f"{PPO} resize_obs=2048",
    f"{DQN} buffer_size=64e9", f"{DQN} batch_size=1e6", f"{DQN} n_envs=4096 buffer_size=1e8",
]  # fmt: skip


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def refused(command, words, capfd):
    """The one line of it."""
    code = command(words)
    said = capfd.readouterr()
    lines = (said.out + said.err).splitlines()
    assert code == 2 and len(lines) == 1, (words, code, said)
    assert lines[0].startswith("error: ") and len(lines[0]) <= 300 and lines[0].isprintable()
    assert not Path("runs").exists()
    return lines[0]


def named(words):
    return one_line(" ".join([words] if isinstance(words, str) else words))[:40].encode("unicode_escape").decode()


@pytest.mark.parametrize("words", [*WORDS, *map(str.split, TOO_LARGE)], ids=named)
def test_words_of_train(words, capfd):
    name = [] if words[0] in ("--resume", "--config", "--group", PPO, DQN) else [PPO]
    refused(train.command, [*name, "-q", *words], capfd)


@pytest.mark.parametrize("text", FILES, ids=named)
def test_files_of_train(text, capfd, tmp_path):
    file = tmp_path / "Test-v0.yaml"
    file.write_text(text if "max_timesteps" in text else text + GOOD)
    refused(train.command, ["--config", str(file), "-q"], capfd)


@pytest.mark.parametrize(("program", "words"), OTHERS)
def test_words_of_the_others(program, words, capfd):
    refused(program.command, words, capfd)


def test_a_pipe_is_no_config_and_a_file_no_folder_of_runs(tmp_path, capfd, monkeypatch):
    os.mkfifo(tmp_path / "pipe.yaml")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.yaml"))
        for name in ("pipe.yaml", "socket.yaml"):
            assert "cannot read" in refused(train.command, ["--config", str(tmp_path / name)], capfd)
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nothing")
    for where in ("file", "file/x", "x" * 300, "dangling"):
        monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / where))
        for command, words in (
            (train.command, ["CartPole-v1:ppo", "engine=eager", "env_backend=gym"]),
            (train.command, ["--resume", "@last"]),
            (train.command, ["--list-envs"]), (run_play.command, []), (run_publish.command, ["--dry-run"]),
        ):  # fmt: skip
            assert "STRIDE_RUNS is" in refused(command, words, capfd)


@pytest.mark.parametrize("case", [f"{DQN} train_freq=16e6", f"{DQN} batch_size=6e7", f"{PPO} n_steps=16e6"])
def test_memory_that_cannot_be_had_is_refused_before_a_folder_is_made(case, capfd, monkeypatch):
    monkeypatch.setattr(storage, "free_bytes", lambda storage: 64 << 20)
    config_id, word = case.split()
    words = [config_id, "-q", word, "max_timesteps=1e14", "engine=eager", "env_backend=gym"]
    words += ["buffer_size=1000"] if config_id == DQN else []
    line = refused(train.command, words, capfd)
    assert f"; {word.partition('=')[0]}=" in line and line.endswith(" fits")


@pytest.mark.parametrize("closed", ["1", "1 2", "0 1 2"])
def test_a_closed_stream_is_nobody_who_listens(closed):
    """Descriptor 1 is not taken by the next file that is opened, nor is sys.stdout missing."""
    program = "import sys, os; sys.path.insert(0, sys.argv[1]); from stride.utils.streams import outlive_readers\n"
    program += "outlive_readers(); sys.stdout.isatty(); print('x'); print('y', file=sys.stderr); sys.stdin.read()\n"
    program += "assert open(sys.argv[1] + '/Makefile').fileno() > 2; print('z', flush=True); sys.exit(7)"
    streams = " ".join(f"{number}{'<' if number == '0' else '>'}&-" for number in closed.split())
    done = subprocess.run(
        ["bash", "-c", f'"$@" {streams}', "-", sys.executable, "-c", program, ROOT], capture_output=True
    )
    assert done.returncode == 7 and done.stdout == b"" and done.stderr == (b"" if "2" in closed else b"y\n")


@pytest.mark.parametrize("text", LARGE)
def test_what_some_machine_holds_is_a_config(text):
    config_id, *words = text.split()
    assert load_config(*config_id.split(":"), words)


def test_a_config_that_is_no_mapping_or_has_a_number_that_none_means():
    for values in ("x", ["x"], None, 5):
        with pytest.raises(UserError, match=r"config.json: a config must be a mapping"):
            from_plain(values)
    plain = to_plain(load_config("CartPole-v1", "ppo"))
    for key, value in {"seed": 2**63, "spec": {**plain["spec"], "goal": -(10**4000)}, "hidden_dims": [10**400]}.items():
        with pytest.raises(UserError, match=r"config.json holds a number of \d+ digits"):
            from_plain({**plain, key: value})
