"""`shards: S` over several machines: two network namespaces, each with an address of its own, are the hosts."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_runs import ended

from stride.runstore.run_dir import list_runs

ROOT = Path(__file__).parent.parent
NAMES = (f"stride-{os.getpid()}-a", f"stride-{os.getpid()}-b")
ADDRESSES = ("10.213.77.1", "10.213.77.2")  # only in these namespaces, which no other device leads out of
WORDS = (
    "CartPole-v1:ppo", "shards=4", "n_envs=8", "n_steps=16", "batch_size=0.5", "n_epochs=2", "max_timesteps=768",
    "normalize_obs=true", "normalize_reward=true", "target_kl=0.01", "log_freq_epochs=1", "eval_freq_epochs=3",
    "eval_episodes=3", "test_episodes=0",
)  # fmt: skip


@contextmanager
def two_hosts() -> Iterator[None]:
    """Two namespaces with a cable between them; skips where that cannot be made."""
    if not shutil.which("ip"):
        pytest.skip("network namespaces need the command ip (Debian's iproute2)")
    if os.geteuid():
        pytest.skip("network namespaces need root")
    try:
        for name in NAMES:
            made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
        ip("link", "add", "cable", "netns", NAMES[0], "type", "veth", "peer", "name", "cable", "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no network devices of our own here: ip {' '.join(words)}: {done.stderr.strip()}")


def on_host(number: int, *words: str) -> subprocess.Popen[str]:
    """torchrun's part on this host. Both have the name of this machine, so their addresses are named."""
    place = f"--rdzv-endpoint={ADDRESSES[0]}:29500", f"--rdzv-conf=is_host={1 - number}"
    torchrun = "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=night"
    command = [sys.executable, "-m", *torchrun, *place, f"--local-addr={ADDRESSES[number]}", str(ROOT / "train.py")]
    line = ["ip", "netns", "exec", NAMES[number], *command, "-q", *words]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "cable", "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
def test_torchrun_on_two_hosts_gives_the_bits_of_one_process(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    with two_hosts():
        children = [on_host(number, *WORDS) for number in range(2)]
        try:
            printed = [child.communicate(timeout=240) for child in children]
        finally:
            for child in children:
                child.kill()
    assert [child.returncode for child in children] == [0, 0], printed
    assert not printed[1][0], "rank 0 alone has a console"
    (of_two,) = list_runs()
    alone = [sys.executable, str(ROOT / "train.py"), "-q", *WORDS]
    subprocess.run(alone, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    (of_one,) = (run for run in list_runs() if run.id != of_two.id)
    assert ended(of_two) == ended(of_one)
