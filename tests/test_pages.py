"""The tutorials, typed by a machine (tutorial_pages.py); what pages name is there, what they draw is what there is."""

import ast
import json
import re
import shlex
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from driven import advance, agent_for
from tutorial_pages import FILE, ROOT, Page

from lab.house_rules import STOREYS
from stride.commands.train_arguments import parse_arguments
from stride.config.auto import decide
from stride.config.general import Task, is_general, is_undecided, load_general
from stride.config.loader import load_config
from stride.utils.user_error import UserError


class Typed(NamedTuple):
    """What the reader of a tutorial has made at its end."""

    new: str
    changed: str
    rows: int  # lines added to what is changed
    python: int  # at most, in lines


TUTORIALS = {
    "first_algorithm": Typed(
        "agents/a2c.py tests/agents/test_a2c.py envs_gym/catch.py config/environments/Catch-v0.yaml",
        "agents/algorithms.py", rows=2, python=130,
    ),
    "first_sink": Typed("report/json_lines.py", "report/sinks.py", rows=2, python=40),
    "first_world": Typed(
        "envs_fast/harbour.py envs_fast/harbour.cu tests/envs_fast/test_harbour.py config/environments/Harbour-v0.yaml",
        "envs_fast/registry.py tests/reachable.py tests/envs_fast/test_reset_distributions.py", rows=4, python=80,
    ),
}  # fmt: skip
UNSOLVED = 9  # the seed of runs that are only compared
SHORT = "n_envs=2 n_steps=64 batch_size=1.0 epoch_iterations=2 log_freq_epochs=1 eval_freq_epochs=2 eval_episodes=2"
SHORT += " engine=eager env_backend=gym video_freq_epochs=2 video_max_steps=20 eval_warmup_epochs=0 -q"
BEAT = """
from stride.report.json_lines import JsonLines
from stride.runstore.run_dir import RunDir

JsonLines(RunDir.find("@last")).beat({"env_steps": 512}, "testing 2 of 4 episodes")
"""


@pytest.fixture(scope="module")
def page(request, tmp_path_factory):
    """A copy of the project with everything the page tells to type."""
    return Page(f"{request.param}.md", tmp_path_factory.mktemp(request.param))


def typed(*names):
    return pytest.mark.parametrize("page", names, indirect=True)


trains = pytest.mark.parametrize(
    ("page", "config_id"),
    [("first_algorithm", "Catch-v0:a2c"), ("first_world", "Harbour-v0:ppo")],
    indirect=["page"],
)


@pytest.mark.parametrize(("page", "promise"), TUTORIALS.items(), ids=TUTORIALS, indirect=["page"])
def test_one_file_each_and_one_row(page, promise):
    assert page.changes() == ({*promise.new.split()}, {*promise.changed.split()})
    assert len(page.rows()) == promise.rows and len(page.python()) <= promise.python


@pytest.mark.slow
@typed(*TUTORIALS)
def test_what_was_typed_is_in_house_style(page):
    files = " ".join(path for paths in page.changes() for path in sorted(paths) if path.endswith(".py"))
    for check in ("ruff check", "ruff format --check"):
        page.run(f"python -m {check} {files}")
    page.run("python -m pytest tests/test_architecture.py -k house_keeps")


@pytest.mark.slow
@trains
def test_every_training_of_the_page_is_solved(page, config_id):
    texts = {command: page.run(command) for command in page.commands("train.py")}
    assert "solved: goal reached" in texts[f"python train.py {config_id}"]
    outcomes = [run["outcome"] for (_, seed), run in page.facts().items() if seed != UNSOLVED]
    assert len(outcomes) >= 5 and {(run["solved"], run["test_episodes"]) for run in outcomes} == {(True, 100)}
    assert "a2c" in config_id or "fused_cpu" in str(page.facts()["ppo", 1])


@pytest.mark.slow
@trains
def test_a_resumed_run_equals_the_straight_one(page, config_id):
    begin = f"python train.py {config_id} -q seed={UNSOLVED} early_stop_on_eval_threshold=false eval_freq_epochs=null"
    page.run(f"{begin} max_timesteps=8192")
    page.run(f"{begin} max_timesteps=4096")
    page.run("python train.py --resume @last --max-timesteps 8192 -q")
    files = (page.copy / "runs").glob(f"2*-s{UNSOLVED}-*/checkpoints/last.ckpt")
    straight, resumed = (torch.load(file, weights_only=True)["state_dict"] for file in files)
    assert straight.keys() == resumed.keys() and all(straight[name].equal(resumed[name]) for name in straight)


@typed("first_algorithm")
def test_the_keys_of_an_algorithm_have_a_manual(page):
    (manual,) = page.commands("--help")
    text = page.run(manual)
    assert "gae_lambda=1.0" in text and "What an action is compared with" in text and "n_envs=16" in text
    (listing,) = page.commands("--list-envs")
    assert {"Catch-v0:a2c", "Catch-v0:ppo"} <= {*page.run(listing).split()}


@pytest.mark.slow
@typed("first_algorithm")
def test_the_losses_of_an_algorithm_are_checked_by_hand(page):
    (tests,) = page.commands("pytest")
    assert "1 passed" in page.run(tests)


@pytest.mark.slow
@typed("first_world")
def test_the_tests_of_all_worlds_take_it_up(page):
    (tests,) = page.commands("pytest")
    report = page.run(f"{tests} -vv")
    for name in ("is_vectorised", "bit_for_bit", "uniform_starts", "free_steps"):
        assert re.search(rf"{name}\[[^\]]*Harbour-v0.* PASSED", report), name
    assert re.search("steps_by_hand PASSED", report)
    (rate,) = page.commands("lab.bench.rate")
    assert float(page.run(rate).split()[-1]) > 0  # it runs; no claim about this machine


@typed("first_sink")
def test_a_sink_is_called_with_what_happens(page):
    (training,) = page.commands("train.py")
    page.run(f"{training.replace('16384', '1024')} {SHORT}")
    (run,) = (page.copy / "runs").glob("2*-s*")
    events = [json.loads(line) for line in (run / "logs" / "metrics.jsonl").read_text().splitlines()]
    kinds = [next(iter(event)) for event in events]
    assert kinds[0] == "begin" and kinds[-1] == "end" and kinds.count("row") == 5 and "media" in kinds
    assert events[0]["begin"]["config_id"] == "CartPole-v1:ppo" and events[-1]["end"]["env_steps"] == 1024
    rows = [event["row"] for event in events if "row" in event]
    assert "test/roll/ep_rew/mean" in rows[-1] and rows[-2]["train/clock/env_steps"] == 1024
    # rows came faster than a beat: one is called by hand
    (page.copy / "beat.py").write_text(BEAT)
    page.run("python beat.py")
    (page.copy / "beat.py").unlink()  # no file of the tutorial
    assert json.loads((run / "logs" / "progress.json").read_text()) == {
        "env_steps": 512,
        "doing": "testing 2 of 4 episodes",
    }


PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in (".", "docs/**", "lab")
    for path in sorted(ROOT.glob(f"{folder}/*.md"))
}
SENTENCE = re.compile(r"`python train\.py ([A-Z][\w/-]+-v\d:\w+(?: [^`]+)?)`")
TYPED = re.compile("tutorials|guides/own")  # run by the tests above and test_guides.py
TASKS = (Task("bounded", "", None, None), Task("choice", "", None, None), Task("bounded", "", None, 84))


def trainings(text):
    """The words of every training in a page's blocks and sentences; what follows two spaces or a pipe is none."""
    yield from map(shlex.split, SENTENCE.findall(text))
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("python train.py "):
                yield shlex.split(re.split(r"  +| \|", line)[0])[2:]


def returned(task, config):
    return task


def load(words, overrides):
    """The config of a command, for whichever kind of task it may be."""
    if not is_general(words):
        return load_config(*words.split(":"), overrides)
    problem = None
    for task in TASKS:
        look = partial(returned, task)
        chosen = decide(words, overrides, look).overrides if is_undecided(words, overrides) else ()
        try:
            return load_general(words, (*chosen, *overrides), look)
        except UserError as error:
            problem = error
    raise problem


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if any(trainings(text))])
def test_every_training_of_a_page_is_understood(name, monkeypatch):
    monkeypatch.setattr("stride.config.extras.find_spec", lambda module: module)  # to read is not to need Ray
    for words in trainings(PAGES[name]):
        arguments = parse_arguments(words)
        for config_id, overrides in arguments.several or [(arguments.config_id, arguments.overrides)]:
            if config_id and not arguments.file and not TYPED.search(name):  # modules that its reader types
                assert load(config_id, [*overrides]).max_timesteps, words


def test_every_extra_that_a_page_names_can_be_installed():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"stride-rl\[([\w,]+)\]", "".join(PAGES.values()))
    assert named and {extra for names in named for extra in names.split(",")} <= extras.keys()


PLAN = PAGES["docs/architecture.md"]
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
FOLDERS = {line.partition("/")[0] for storey in STOREYS for line in storey if "/" in line} | {"docs", "tests"}
PATH = re.compile(rf"`((?:{'|'.join(sorted(FOLDERS))})/[\w/.-]*)`")
NOT_THERE = {"config/schema.json", "config/environments/MyEnv-v0.yaml"}  # made by `make`; an example's


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_is_there(name):
    text = PAGES[name]
    links = [(ROOT / name).parent / link for link in LINK.findall(text) if "://" not in link]
    typed = {path for path, *_ in FILE.findall(text)}  # by the reader of a tutorial
    paths = {*PATH.findall(text)} - typed - NOT_THERE if name != "CHANGELOG.md" else ()
    assert [str(path) for path in (*links, *(ROOT / path for path in paths)) if not path.exists()] == []


def test_every_decision_is_listed_once_and_in_order():
    listed = re.findall(r"^\| (\d+) \| \[(.*)\]\(decisions/(.*)\): .+\|$", PLAN, re.MULTILINE)
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [(path.read_text().partition("\n")[0], path.name) for path in files]
    assert [(f"# {number}. {title}", name) for number, title, name in listed] == titles
    numbers = [*range(1, len(files) + 1)]
    assert [int(number) for number, *_ in listed] == [int(path.name[:2]) for path in files] == numbers


def block(name):
    """The lines of the plan's fenced block of this name."""
    return re.search(rf"```{name}\n(.*?)```", PLAN, re.DOTALL)[1].splitlines()


def test_the_storeys_drawn_are_the_storeys_held():
    drawn = [re.match(r"(\S+, )*\S+", line)[0].split(", ") for line in block("storeys")]
    assert drawn == [list(storey) for storey in STOREYS]


def test_a_profiled_tick_enters_the_files_drawn():
    agent = advance(agent_for("CartPole-v1:ppo", "engine=eager"), 2)  # what is made once has been made
    entered = {}  # file -> the file that called it first

    def note(frame, event, _):
        here = ours(frame)
        if event == "call" and here and here not in entered and frame.f_back:  # Numba's have nobody above them
            entered[here] = next((file for file in map(ours, callers(frame)) if file not in ("", here)), "")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        agent.training_step(iter([2]))
    finally:
        sys.setprofile(before)
    agent.collector.envs.close()
    trail, drawn = [], {}
    for line in block("tick"):
        path, depth = line.split()[0], (len(line) - len(line.lstrip())) // 4
        trail[depth:] = [path]
        drawn.setdefault(path, trail[depth - 1] if depth else "")
    assert entered == drawn


def ours(frame):
    """The product file that runs in a frame, "" where it is somebody else's."""
    file = Path(frame.f_code.co_filename)
    path = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else ""
    return "" if path.startswith(("tests/", ".")) else path


def callers(frame):
    """The frames that led to this one, the nearest first."""
    while frame := frame.f_back:
        yield frame


DIALECT = re.compile(  # each has a plain word: logged, owner, no one, stored, non-finite, the same bits, continue
    r"\b(told|lent|whoever|nobody|lies|stands(?! for)|strays|unheeded|what is no number|to the bit|the same of"
    r"|in silence|one does with|for who|who looks on|anybody's|fit of|train it further|keys of their configs"
    r"|seeds come to)\b",
    re.I,
)
CODE = re.compile(r"^ *```.*?^ *```|`[^`]*`|\]\([^)]*\)|<!--.*?-->|\"[^\"\n]*\n?[^\"\n]*\"", re.M | re.S)  # and quotes
PRODUCT = FOLDERS - {"docs", "lab", "scripts", "tests"}


def sentences():
    """(where, text) of what users read: pages without their code, notebooks, and the strings of the product."""
    for name, text in PAGES.items():
        if name not in ("CHANGELOG.md", "docs/reference/python.md"):  # the last has the docstrings of the code
            yield name, CODE.sub("", text)
    for path in (ROOT / "docs").rglob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        yield path.name, CODE.sub("", "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"))
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
            strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in alone]
            yield path.name, "\n".join(text for text in strings if isinstance(text, str) and " " in text)
        for path in (ROOT / folder).rglob("*.yaml"):
            yield path.name, re.sub(r"#.*", "", path.read_text())
        for path in (ROOT / folder).rglob("*.js"):
            yield path.name, "\n".join(re.findall(r"\"[^\"\n]* [^\"\n]*\"", re.sub(r"//.*", "", path.read_text())))


def test_what_users_read_has_no_word_of_the_old_dialect():
    hits = [(where, match[0]) for where, text in sentences() for match in DIALECT.finditer(text)]
    assert hits == []
