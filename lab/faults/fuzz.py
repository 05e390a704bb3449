"""Mutated configs and hostile run ids: one line that names the key, exit code 2, no traceback, no run folder.

python -m lab.faults.fuzz --commands 200 --loads 10000 --ids 60 --words 20000 --folders 2000
"""

import contextlib
import io
import os
import random
import string
from collections.abc import Callable
from pathlib import Path

import run_inspect
import run_play
import run_publish
import train
from config.loader import load_config, load_file
from config.variants import EnvironmentFile
from inspector.runs import Runs
from lab.faults.fuzz_folders import folders
from lab.faults.fuzz_words import words
from lab.faults.record import command_line
from lab.faults.rig import finish, refused_in_a_line
from lab.faults.watch import ANYTHING
from utils import entry
from utils.user_error import UserError

BASE = """\
env_id: CartPole-v1
max_timesteps: 1e5
n_envs: 8
spec: {goal: 475, returns: [0, 500], actions: [left, right]}
ppo: {n_steps: 32, batch_size: 0.25, policy_lr: lin_0.001, clip_range: 0.2, hidden_dims: [64, 64]}
reinforce: {_inherit_: ppo, n_steps: 64}
"""
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
        commands(counts["commands"], draw, folder / "runs"),
        loads(counts["loads"], draw, folder / "CartPole-v1.yaml"),
        hostile_ids(counts["ids"], folder / "runs"),
    ]
    several = [words(counts["words"], draw, folder), folders(counts["folders"], draw, folder)]
    lines = [*(line for line, _ in parts), *(line for each, _ in several for line in each)]
    return lines, all(good for _, good in (*parts, *several))


def commands(number: int, draw: random.Random, root: Path) -> tuple[str, bool]:
    """A wrong word among right ones on the command line; and files that are wrong, by --config."""
    found = 0
    for trial in range(number):
        if trial % 2:
            text, named = mutated(draw), ""
            file = root.parent / "Mutated-v0.yaml"
            file.write_bytes(text)
            if not wrong_file(file):  # a mutation that changes nothing that matters
                text, file = BASE.replace("n_envs:", "n_env:").encode(), root.parent / "Mutated-v0.yaml"
                file.write_bytes(text)
            words = ["--config", str(file), "ppo", "-q"]
        else:
            override, named = WRONG[trial // 2 % len(WRONG)]
            words = (
                ["CartPole-v1:ppo", "-q", "seed=3", override]
                if override[:4] != "seed"
                else ["CartPole-v1:ppo", override]
            )
        ended = finish(words, root)
        good = ended.code == 2 and refused_in_a_line(ended.said) and named in ended.said
        found += good
        if not good:
            print(f"{words}: {ended.code} {ended.said[-500:]}", flush=True)
    folders = [path for path in root.iterdir() if path.is_dir()]
    line = (
        f"**{found} of {number}** wrong configs on the command line: exit code 2, one line that names the key (and the "
    )
    return f"{line}nearest right one), no traceback; {len(folders)} run folders made", found == number and not folders


def wrong_file(file: Path) -> bool:
    try:
        load_file(file, "ppo")
    except UserError:
        return True
    return False


def mutated(draw: random.Random) -> bytes:
    """The base with one to three things cut, doubled, swapped, or put in."""
    text = bytearray(BASE.encode())
    # the first leaves a file where tags are obeyed
    pieces = (b"!!python/object/apply:os.system ['touch canary']", *b"{ ] \t \x00 \xff ' # > | % @ ~".split(b" "),
              b"&a ", b"*a", b"<<: ", b"1e999", b".nan", b"- ", b": ", b"? ", b"no", b"0x1F", b"1_0", b'"')  # fmt: skip
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(text))
        match draw.randrange(5):
            case 0:
                del text[at : at + draw.randint(1, 12)]
            case 1:
                text[at:at] = text[at : at + draw.randint(1, 30)]
            case 2:
                text[at] = draw.choice(string.printable.encode())
            case 3:
                text[at:at] = draw.choice(pieces)
            case 4:
                lines = bytes(text).split(b"\n")
                draw.shuffle(lines)
                text = bytearray(b"\n".join(lines))
    return bytes(text) or b"x"


def loads(number: int, draw: random.Random, file: Path) -> tuple[str, bool]:
    """Files and overrides through the loader: a config, or a UserError of one line."""
    refused = accepted = escaped = 0
    for trial in range(number):
        override = ""
        try:
            if trial % 2:
                file.write_bytes(mutated(draw))
                for variant in EnvironmentFile.read(file).variants:
                    load_file(file, variant)
            else:
                override = garbled(draw)
                load_config("CartPole-v1", "ppo", [override])
            accepted += 1
        except UserError as error:
            refused += 1
            if len(str(error).splitlines()) != 1 or len(str(error)) > 2000:
                escaped += 1
                print(f"not one line: {error!r} from {override or file.read_bytes()!r}"[:900], flush=True)
        except ANYTHING as error:
            escaped += 1
            print(f"{type(error).__name__}: {error} from {override or file.read_bytes()!r}"[:900], flush=True)
            if escaped > 50:  # one bug is met thousands of times
                raise
    canary = Path("canary").exists()
    line = f"{number:,} mutated files and overrides through the loader: {refused:,} refused in one line, {accepted:,} "
    return f"{line}sound, **{escaped} other exceptions**, {int(canary)} executed", not escaped and not canary


def garbled(draw: random.Random) -> str:
    key, _ = draw.choice(WRONG)
    text = list(key if draw.random() < 0.5 else f"{key.partition('=')[0]}={draw.choice(VALUES)}")
    for _ in range(draw.randint(0, 3)):
        at = draw.randrange(len(text)) if text else 0
        match draw.randrange(3):
            case 0:
                text[at:at] = draw.choice(string.printable)
            case 1:
                del text[at : at + 1]
            case 2:
                text[at:at] = draw.choice(
                    ("${oc.env:HOME}", "{", "[", "'", "\\", "1e999", "💥", "\x00", "=", "!!", "@", "=")
                )
    return "".join(text)


VALUES = (
    "1",
    "-1",
    "1e5",
    "1e-3",
    "1e999",
    "nan",
    "true",
    "no",
    "null",
    "''",
    "[1,[2]]",
    "{a: 1}",
    "lin_1",
    "exp_1_2",
    "x" * 300,
)
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


if __name__ == "__main__":
    entry.run(
        command_line(
            __doc__,
            "fuzz",
            "Wrong configs, hostile run ids, damaged run folders",
            run,
            commands=200,
            loads=10_000,
            ids=60,
            words=20_000,
            folders=2_000,
        )
    )
