"""Memory, disk or descriptors that ran out are one line that says how to go on, with a command that fits."""

import errno
import os
import platform
import subprocess
import sys
from unittest.mock import Mock

import pytest
from commands import refusal

from stride.agents.experience import storage
from stride.agents.experience.storage import TooLargeError
from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.config.loader import load_config
from stride.config.schema import Config
from stride.trainer_callbacks.shortage import ShortageError, offer, shortage_errors

GB = 1 << 30
WORLDS = load_config("CartPole-v1", "ppo", ["n_envs=1000", "n_steps=32"])


class FitsError(Exception):
    """The agent was built."""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CartPole-v1:dqn", ["buffer_size=4_000_000", "gamma=0.9"]),
        ("CartPole-v1:ppo", ["n_envs=4096", "n_steps=256", "batch_size=16384", "max_timesteps=1e8"]),
    ],
)
def test_what_is_offered_fits_and_little_more_would(name, words, capsys, monkeypatch):
    monkeypatch.setattr(storage, "free_bytes", lambda _: 40_000_000)
    line = refusal(capsys, train.command, name, *words)
    key = words[0].partition("=")[0]
    command = line.rpartition("this fits: python train.py ")[2].split()
    assert command[0] == name and command[-1].startswith(f"{key}=") and {*words[1:]} <= {*command}
    assert sum(word.startswith(f"{key}=") for word in command) == 1
    offered = int(command[-1].partition("=")[2])
    assert f"{key} " in refusal(capsys, train.command, *command[:-1], f"{key}={2 * offered}") or key == "n_envs"
    monkeypatch.setattr(train, "open_run", Mock(side_effect=FitsError))
    with pytest.raises(FitsError):
        train.command([*command, "-q"])


HELD = "can't allocate memory: you tried to allocate {} bytes"
ON_GPU = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 8.00 GiB of which 1.00 GiB is free"


@pytest.mark.parametrize(
    ("words", "error", "held", "word"),
    [
        # 30 and 29 would not do: 32 x 30 rows are no batches of 128
        ("ppo n_envs=64 n_steps=32 batch_size=128", TooLargeError("n_steps", "n_steps", 0.5), 0, "n_envs=28"),
        ("dqn buffer_size=1_000_000", HELD.format(GB), 8 * GB, f"buffer_size={int(1e6 * 0.95 * (0.9 * 8 - 1) / 8)}"),
        ("ppo n_envs=1000 n_steps=32", ON_GPU, 2 * GB, f"n_envs={int(1000 * 0.95 * 0.9 * 3 / 4)}"),
        # nothing is offered that would not help
        ("ppo hidden_dims=[30000,30000]", HELD.format(4 * 30000**2), 0, ""),
        ("ppo hidden_dims=[30000,30000]", MemoryError(), 0, ""),
        ("dqn", TooLargeError("x", "batch_size", 0.5), 0, ""),
    ],
)
def test_what_is_offered_weighs_what_was_asked_for_with_what_is_held(words, error, held, word, monkeypatch):
    variant, *settings = words.split()
    monkeypatch.setattr("stride.trainer_callbacks.shortage.free_bytes", lambda _: 0)
    asked = RuntimeError(error) if isinstance(error, str) else error
    assert offer(load_config("CartPole-v1", variant, settings), asked, memory_bytes=held) == word


def test_out_of_memory_in_training_is_one_line_with_a_note(monkeypatch, capsys):
    words = parse_arguments(["CartPole-v1:ppo", "n_envs=1000", "env_kwargs.a='b c'"])
    monkeypatch.setattr("stride.trainer_callbacks.shortage.free_bytes", lambda _: 10**9)
    refused = pytest.raises(ShortageError, match=r"out of memory: lower n_envs \(1000\)")
    with refused as caught, shortage_errors(WORLDS, "go on", words.again):
        raise RuntimeError(HELD.format(4 * 10**9))
    (note,) = caught.value.__notes__
    assert note.startswith("this fits: python train.py CartPole-v1:ppo 'env_kwargs.a=") and note.endswith(" n_envs=213")
    assert "n_envs=1000" not in note
    assert parse_arguments(["--resume", "@last"]).again("n_envs=3") == "n_envs=3, in a new run"
    assert train.command(["CartPole-v1:ppo", "hidden_dims=[1048576,65536]"]) == 1  # 275 GB
    line = capsys.readouterr().err
    assert line.startswith("error: out of memory: lower n_envs (8), n_steps (32), hidden_dims ([1048576, 65536]); ")
    assert line.count("\n") == 1


def test_a_limit_of_the_process_is_known(monkeypatch):
    before = storage.free_bytes("ram")
    held = int(storage.STATM.read_text().split()[0]) * 4096
    monkeypatch.setattr(storage.resource, "getrlimit", lambda _: (held + 10**8, held + 10**8))
    assert 0 < storage.free_bytes("ram") <= 1.01e8 < before
    monkeypatch.setattr(storage.resource, "getrlimit", lambda _: (held // 2, held // 2))
    assert storage.free_bytes("ram") == 0


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ESTALE])
def test_descriptors_and_disk_that_ran_out_are_told_in_a_line(number):
    whole = pytest.raises(ShortageError, match=rf"{os.strerror(number)} \(a.ckpt\): .* complete; go on so")
    with whole, shortage_errors(Config("CartPole-v1", "ppo"), "go on so"):
        raise OSError(number, os.strerror(number), "a.ckpt")


@pytest.mark.parametrize("error", [RuntimeError("something else"), OSError(2, "No such file")])
def test_other_errors_are_not_taken_for_a_lack_of_room(error):
    with pytest.raises(type(error)), shortage_errors(None, ""):
        raise error


FREED = """
from resource import RUSAGE_THREAD, getrusage
from stride.trainer_callbacks.shortage import keep_freed_memory

def pages():
    for _ in range(6):
        before = getrusage(RUSAGE_THREAD).ru_minflt
        b"x" * (40 << 20)
    return getrusage(RUSAGE_THREAD).ru_minflt - before

print(pages())
keep_freed_memory()
keep_freed_memory()
print(pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_a_block_that_was_freed_is_used_again():
    """Pages that a block of 40 MB takes of the system after five others were freed, in a new process."""
    result = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    before, after = map(int, result.stdout.split())
    assert before > 5000
    assert after < 50
