"""Wrong configs, words and YAML of nobody's mind, hostile run ids: one line, exit code 2, no run folder.

python -m lab.faults fuzz --commands 200 --ids 60 --words 20000
"""

import contextlib
import io
import os
import random
import string
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn
from unittest import mock

from lab.faults.rig import OPENING, finish, refused_in_a_line
from lab.faults.watch import Watch
from stride.commands import run_inspect, run_play, run_publish, train
from stride.config.commands.play import build_play_parser
from stride.config.commands.publish import build_publish_parser
from stride.config.commands.train import Arguments, build_parser
from stride.config.debugger import for_debugger
from stride.config.keys import known_keys
from stride.config.loader import environment_files
from stride.runstore.run_dir import RunDir
from stride.utils.interrupted import Interrupted

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
        given = ["CartPole-v1:ppo", "-q", *seed, override]
        ended = finish(given, root)
        good = ended.code == 2 and refused_in_a_line(ended.said) and named in ended.said
        right += good
        if not good:
            print(f"{given}: {ended.code} {ended.said[-500:]}", flush=True)
    folders = [path for path in root.iterdir() if path.is_dir()]
    line = (
        f"**{right} of {number}** wrong configs on the command line: exit code 2, one line that names the key (and the "
    )
    return f"{line}nearest right one), no traceback; {len(folders)} run folders made", right == number and not folders


def hostile_ids(number: int, root: Path) -> tuple[str, bool]:
    """Each id on each command; run_inspect itself takes none."""
    os.environ["STRIDE_RUNS"] = str(root)
    refused = total = 0
    for text in (IDS * (number // len(IDS) + 1))[:number]:
        for name, command in OPENING.items():
            total += 1
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                code = command(text)
            good = code == 2 and refused_in_a_line(said.getvalue())
            refused += good
            if not good:
                print(f"{name} {text!r}: {code} {said.getvalue()[-300:]!r}", flush=True)
    canary = Path("canary").exists()
    line = f"**{refused} of {total}** refused: {number} hostile run ids on {', '.join(OPENING)}; {int(canary)} executed"
    return line, refused == total and not canary


NUMBERS = (
    "0", "-1", "1", "2.5", "1e5", "1e400", "-1e-400", "nan", "inf", "9" * 41, "9" * 310, "9" * 4301, "0" * 999, "1_0",
    "0x1F", "1e", "--5", "1,2", "1-5", "5-1", "1-99999999999", "1e308", "9223372036854775808", "٣", "1.0e+2",
)  # fmt: skip
TEXTS = (
    "", " ", "a", "null", "true", "off", "~", "é", "\ud800", "\udcff", "\x00", "\x1b[31m", "\u202e", "💥", "x" * 299,
    "x" * 5000, "a b", "a\nb", "../..", "/dev/zero", "/dev/stdin", "/", ".", "~/x", "$HOME", "@last",
    "@best:x", "hub:a/b",
    "${oc.env:HOME}", "!!python/name:os.system", "lin_0.001", "lin_", "exp_-1", "cos_nan", "warmup_" + "9" * 5000, "*",
)  # fmt: skip
WHOLES = (
    "[1,[2]]", "{a: 1}", "{a:{b:{c:1}}}", "[" * 30 + "]" * 30, "[" * 400 + "]" * 400, "{a:" * 30, "(", "[", "]", "{",
    "'",
    '"', "int('5')", "int('x')", "float(1)", "choice(1,2)", "range(0,5)", "sort([2,1])", "glob(*)", "json_str({})",
    "[a,b",
    "{1: 2}", "[null]", "[[64],[64]]", "{id: x}", "[{id: x}]", "extend_list(1)", "{kind: linear, start_value: 1}",
)  # fmt: skip
TAGS = ("!!bool", "!!int", "!!float", "!!str", "!!null", "!!timestamp", "!!binary", "!!set", "!!omap", "!!pairs",
        "!!map", "!!seq", "!!merge", "!!python/object/apply:os.system", "!x", "&a", "*a", "? ", "- ",
        "<<: ", "|", ">", "%YAML 9")  # fmt: skip
FLAGS = {
    parser: sorted({flag for action in build()._actions for flag in action.option_strings})
    for parser, build in (("train", build_parser), ("play", build_play_parser), ("publish", build_publish_parser))
}
FLAGS["inspect"] = ["--run-id", "--port", "--host", "--share", "--help"]


class Accepted(Interrupted):
    """The words were right: here the work would begin."""


def accepted(*arguments: object, **options: object) -> NoReturn:
    raise Accepted


def config_only(arguments: Arguments, events: object = None) -> int:
    """What train does before it builds anything."""
    if arguments.resume:
        RunDir.find(arguments.resume)
        return 0
    config = arguments.load(accepted)
    if arguments.debug:
        for_debugger(config)
    return 0


@contextlib.contextmanager
def no_work() -> Iterator[None]:
    """The commands end where a run would be loaded, made or served."""
    with (
        mock.patch.object(train, "train", config_only),
        mock.patch.object(train, "train_group", config_only),
        mock.patch.object(run_play, "load_run", accepted),
        mock.patch.object(run_publish, "load_run", accepted),
        mock.patch.object(run_publish, "who_am_i", accepted),
        mock.patch.object(run_inspect, "free_port", accepted),
    ):
        yield


STARTED: dict[str, Callable[[list[str]], int]] = {
    "train": lambda words: train.command(words),
    "play": lambda words: run_play.command(words),
    "publish": lambda words: run_publish.command(words),
    "inspect": lambda words: run_inspect.command(words),
}


def words(number: int, draw: random.Random, folder: Path) -> tuple[str, bool]:
    """Half command lines, half files; every one is taken or refused in one line, and nothing is written."""
    (folder / "secret").mkdir(exist_ok=True)
    file, began = folder / "Fuzzed-v0.yaml", time.monotonic()
    watch = Watch((), folder / "secret")
    counts = {"lines": 0, "files": 0, "taken": 0, "refused": 0, "wrong": 0, "hangs": 0, "touched": 0}
    with no_work():  # what is taken must not be carried out
        for trial in range(number):
            name, given = "train", []
            if trial % 2:
                file.write_bytes(any_yaml(draw))
                variant = draw.choice(("ppo", "dqn", "", "reinforce", "x"))
                given = ["--config", str(file), *([variant] if variant else []), *any_override(draw, 0.2), "-q"]
            else:
                name, given = any_words(draw)
            seen = watch.call(partial(right_or_not, name, given))
            counts["files" if trial % 2 else "lines"] += 1
            counts["refused" if seen.code else "taken"] += not seen.wrong
            counts["hangs"] += "hangs" in seen.raised
            counts["touched"] += bool(seen.touched)
            counts["wrong"] += bool(seen.wrong)
            if seen.wrong and counts["wrong"] <= 50:
                text = file.read_bytes()[:300] if trial % 2 else b""
                print(
                    f"words {trial}: {seen.wrong}: {name} {ascii(given)[:400]} {text!r} {seen.said[-200:]!r}",
                    flush=True,
                )
    seconds = time.monotonic() - began
    line = (
        f"**{counts['wrong']} of {number:,}** wrong: {counts['lines']:,} command lines and {counts['files']:,} YAML "
        f"files through the commands as far as the config; {counts['refused']:,} refused in one line of at most 300 "
        f"characters, {counts['taken']:,} taken, {counts['hangs']} over 5 s, {counts['touched']} that wrote or called "
        f"anything ({seconds:.0f} s)"
    )
    return line, not counts["wrong"]


def right_or_not(name: str, given: list[str]) -> int:
    try:
        return STARTED[name](given)
    except Accepted:
        return 0


def any_text(draw: random.Random) -> str:
    """A value: a number, a text, brackets, or noise."""
    match draw.randrange(5):
        case 0:
            return draw.choice(NUMBERS)
        case 1:
            return draw.choice(TEXTS)
        case 2:
            return draw.choice(WHOLES)
        case 3:
            return "".join(draw.choices(string.printable, k=draw.randint(1, 12)))
    return draw.choice(NUMBERS) + draw.choice(TEXTS)


def any_override(draw: random.Random, chance: float = 1.0) -> list[str]:
    if draw.random() >= chance:
        return []
    key = draw.choice(known_keys(draw.choice(("ppo", "dqn", "sac", "reinforce", "pqn", "q_learning"))))
    key += draw.choice(("", "", "", ".x", ".goal", ".", ".a.b", "." * 30, "@x"))
    return [f"{draw.choice(('', '', '', '--', '+', '~'))}{key}={any_text(draw)}"]


def any_words(draw: random.Random) -> tuple[str, list[str]]:
    name = draw.choice(("train", "train", "train", "play", "publish", "inspect"))
    found: list[str] = []
    if name == "train":
        known = f"{draw.choice(list(environment_files()))}:{draw.choice(('ppo', 'dqn', 'ppo', 'x', ''))}"
        found += [draw.choice((known, "CartPole-v1:ppo", "CartPole-v1:ppo", any_text(draw)))]
        for _ in range(draw.randint(0, 3)):
            found += any_override(draw)
    for _ in range(draw.randint(0, 2)):
        flag = draw.choice(
            [each for each in FLAGS[name] if each not in ("--list-envs", "-h", "--help") or draw.random() < 0.1]
        )
        found += draw.choice(([flag], [flag, any_text(draw)], [f"{flag}={any_text(draw)}"]))
    if draw.random() < 0.1:
        draw.shuffle(found)
    return name, found


def any_yaml(draw: random.Random) -> bytes:
    """A config with one to four things in it that do not belong there."""
    tops = ["max_timesteps: 1e5", "n_envs: 8", "spec: {goal: 475, returns: [0, 500], actions: [left, right]}"]
    tops += ["ppo: {n_steps: 32, batch_size: 0.25, policy_lr: lin_0.001}", "reinforce: {_inherit_: ppo, n_steps: 64}"]
    for _ in range(draw.randint(1, 4)):
        tag = f"{draw.choice(TAGS)} " if draw.random() < 0.3 else ""
        value = f"{tag}{any_text(draw)}"
        key = draw.choice(
            [*known_keys("ppo"), *known_keys("dqn"), "ppo", "dqn", "_base", "_x", "_inherit_", "<<", any_text(draw)]
        )
        match draw.randrange(5):
            case 0:
                tops.insert(draw.randrange(len(tops) + 1), f"{key}: {value}")
            case 1:
                tops.append(f"dqn: {{{key}: {value}}}")
            case 2:
                at = draw.randrange(len(tops))
                tops[at] = tops[at].replace(draw.choice(("{", ":", "ppo", "1", " ", "[")), value, 1)
            case 3:
                tops.append(f"{key}:\n  - {value}\n  {draw.choice(TAGS)}")
            case 4:
                del tops[draw.randrange(len(tops)) :]
                tops.append(f'{key}: "{value}"')
    data = bytearray("\n".join(tops).encode("utf-8", "surrogatepass"))  # half a surrogate is no UTF-8
    for _ in range(draw.choice((0, 0, 1, 3))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)
