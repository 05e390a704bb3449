"""Wrong configs, words and YAML of nobody's mind, hostile run ids: one line, exit code 2, no run folder.

python -m lab.faults fuzz --commands 200 --ids 60 --words 20000
"""

import contextlib
import io
import os
import random
from collections.abc import Callable
from pathlib import Path

import run_inspect
import run_play
import run_publish
import train
from inspector.runs import Runs
from lab.faults.fuzz_words import words
from lab.faults.rig import finish, refused_in_a_line
from utils import entry

WRONG = (  # key=value with one thing wrong, and what the line has to name
    ("gama=0.9", "gamma"), ("n_env=4", "n_envs"), ("policy_lr=fast", "policy_lr"), ("policy_lr=-1", "policy_lr"),
    ("policy_lr=nan", "policy_lr"), ("policy_lr=inf", "policy_lr"), ("n_envs=0", "n_envs"), ("n_envs=1.5", "n_envs"),
    ("n_envs=[1,2]", "n_envs"), ("batch_size=0.3", "batch_size"), ("batch_size=-1", "batch_size"),
    ("hidden_dims=big", "hidden_dims"), ("hidden_dims=[0]", "hidden_dims"), ("gamma=2", "gamma"),
    ("optimizer=adamm", "adam"), ("nan_guard=halt", "nan_guard"), ("checkpoint_minutes=0", "checkpoint_minutes"),
    ("checkpoint_keep_last=0", "checkpoint_keep_last"), ("accumulate=3", "accumulate"), ("seed=-1", "seed"),
    ("share_trunk=no", "share_trunk"), ("normalize_reward=1", "normalize_reward"), ("env_kwargs=[1]", "env_kwargs"),
    ("max_timesteps=0", "max_timesteps"), ("max_timesteps=1e400", "max_timesteps"), ("device=tpu", "device"),
    ("engine=warp", "engine"), ("env_id=CartPole-v9", "CartPole-v1"), ("spec.gaol=1", "goal"), ("n_envs.x=1", "n_envs"),
    ("env_wrappers=[{id: Nope}]", "Nope"), ("env_wrappers=[1]", "env_wrappers"), ("policy=mpl", "mlp"),
    ("policy_kwargs.log_std_int=0", "log_std_init"), ("+gamma=0.9", "key=value"), ("~gamma=0.9", "key=value"),
    ("gamma=0.9,0.99", "gamma"), ("n_steps=lin_8", "n_steps"), ("eval_freq_epochs=-1", "eval_freq_epochs"),
    ("clip_range=lin_", "clip_range"), ("schema_version=9", "schema_version"), ("algo_id=pppo", "ppo"),
    ("normalize_obs=off", "normalize_obs"), ("description=[a]", "description"), ("variant=x", "variant"),
    ("env_kwargs.x={a:", "env_kwargs"), ("n_epochs=", "n_epochs"), ("gae_lambda=null", "gae_lambda"),
    ("resize_obs=[1,2,3]", "resize_obs"), ("frame_stack=0", "frame_stack"),
)  # fmt: skip
IDS = (
    "../x", "..", ".", "/", "/etc", "/etc/passwd", "//etc", "a/../../b", "./../x", "~", "~root", "~/x", "", " ",
    "  @last", "@last ", "@last\n", "\n", "a\nb", "a\tb", "a b", "a\x00b", "\x00", "..%2f..%2fetc", "%2e%2e/",
    "..\\..\\x", "C:\\x", "\\\\host\\share", "‥/x", "．．/x", "ａ", "é",
    "$(touch canary)", "`touch canary`", ";touch canary", "|touch canary",
    "&touch canary", "$HOME", "*", "?", "[a-z]*", "{a,b}", "a" * 129, "a" * 5000, "../" * 400 + "etc/passwd", "-", "--",
    "--help-me", "@", "@best", "@best:", "@best:../x", "@best:/etc:x", "@nothing", "hub:", "hub:../x", "hub:a/b/c",
    "hub:a/b@../x", "file:///etc/passwd", "http://127.0.0.1/x",
)  # fmt: skip


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    folder.joinpath("here").mkdir()
    os.chdir(folder / "here")  # where a canary would appear
    parts = [
        commands(counts["commands"], folder / "runs"),
        hostile_ids(counts["ids"], folder / "runs"),
        words(counts["words"], draw, folder),
    ]
    return [line for line, _ in parts], all(good for _, good in parts)


def commands(number: int, root: Path) -> tuple[str, bool]:
    """A wrong word among right ones on the command line."""
    right = 0
    for trial in range(number):
        override, named = WRONG[trial % len(WRONG)]
        seed = [] if override.startswith("seed") else ["seed=3"]
        words = ["CartPole-v1:ppo", "-q", *seed, override]
        ended = finish(words, root)
        good = ended.code == 2 and refused_in_a_line(ended.said) and named in ended.said
        right += good
        if not good:
            print(f"{words}: {ended.code} {ended.said[-500:]}", flush=True)
    folders = [path for path in root.iterdir() if path.is_dir()]
    line = (
        f"**{right} of {number}** wrong configs on the command line: exit code 2, one line that names the key (and the "
    )
    return f"{line}nearest right one), no traceback; {len(folders)} run folders made", right == number and not folders


COMMANDS: dict[str, Callable[[str], int]] = {
    "train": lambda text: train.command(["--resume", text]),
    "fork": lambda text: train.command(["--resume", text, "--checkpoint", "best"]),
    "play": lambda text: run_play.command(["--run-id", text, "--headless"]),
    "publish": lambda text: run_publish.command(["--run-id", text, "--dry-run"]),
    "inspect": lambda text: entry.ended(looked, [text]),
}


def looked(argv: list[str]) -> int:
    """What the browser does with what was typed there."""
    Runs().find(argv[0])
    return 0


def hostile_ids(number: int, root: Path) -> tuple[str, bool]:
    """Each id on each command; run_inspect itself takes none."""
    assert run_inspect.command is not None
    os.environ["STRIDE_RUNS"] = str(root)
    refused = total = 0
    for text in (IDS * (number // len(IDS) + 1))[:number]:
        for name, command in COMMANDS.items():
            total += 1
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                code = command(text)
            good = code == 2 and refused_in_a_line(said.getvalue())
            refused += good
            if not good:
                print(f"{name} {text!r}: {code} {said.getvalue()[-300:]!r}", flush=True)
    canary = Path("canary").exists()
    line = (
        f"**{refused} of {total}** refused: {number} hostile run ids on {', '.join(COMMANDS)}; {int(canary)} executed"
    )
    return line, refused == total and not canary
