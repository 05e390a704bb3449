"""Code of one's own, `module:Name` or an entry point: trained with, refused in a line, never followed for others.

Every module has one name, below `stride`; an old name is answered with the new one.
"""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from commands import refusal
from tiny_runs import tiny_run

from stride.agents.trained.loading import load_run
from stride.commands import run_play, runs, train
from stride.commands.plain_tree import fingerprint
from stride.commands.train_opening import answer_early
from stride.config import plugins
from stride.config.general import load_general, to_keep
from stride.config.loader import environment_files, load_config, load_file
from stride.config.plugins import NOBODY, TooEarlyError, Trust, check_names, named_modules, postponed, trusting
from stride.config.schema import ALGORITHMS
from stride.publishing.metrics_table import read_metrics, write_metrics
from stride.runstore import checkpoint_set
from stride.runstore.metrics_layout import NAME
from stride.runstore.metrics_reader import MetricsReader
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir
from stride.utils import entry
from stride.utils.places import IS_WHEEL, PROJECT, ROOT
from stride.utils.provenance import code_hash
from stride.utils.user_error import UserError

MINE = (Path(__file__).parent / "own_code.py").read_text()
FLAT = "algo_id: mypkg:Timid\nenv_id: CartPole-v1\nmax_timesteps: 64\nn_envs: 2\nn_steps: 8\ntimidity: 0.25\n"


@pytest.fixture
def mypkg(tmp_path, monkeypatch):
    """A module of one's own, on the path."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mypkg.py").write_text(MINE)
    (folder / "old_name.py").write_text("\nfrom agents.ppo import PPO\n\nclass Mine(PPO): ...\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    yield folder
    for name in ("mypkg", "old_name", "planted"):
        sys.modules.pop(name, None)
    for name in [name for name in ALGORITHMS if ":" in name or name == "timid"]:
        del ALGORITHMS[name]


def opening(argv):
    """The first words of a training as its process says them."""
    return entry.ended(answer_early, argv)


def last(run):
    return torch.load((run.checkpoints / "last.ckpt").resolve(), weights_only=True)


def test_policy_wrapper_and_callback_of_ones_own_are_trained_with(mypkg):
    words = {"policy": "mypkg:Net", "policy_kwargs": "{width:24}", "callbacks": "['mypkg:Slower']"}
    run = tiny_run(**words, env_wrappers="[{id:'mypkg:Halved',factor:0.25}]")
    assert any(24 in value.shape for value in last(run)["state_dict"].values())
    assert last(run)["callbacks"]["Slower"] == {"times": 4}
    assert run.facts()["config"]["callbacks"] == ["mypkg:Slower"]
    loaded = load_run("@last")
    assert loaded.agent.act(loaded.make_env().reset(seed=0)[0]) in (0, 1)


def test_a_callback_changes_the_run_and_a_resumed_one_goes_on_to_the_bit(mypkg, capsys):
    """What it counts comes back: the clip range of iteration 3 depends on how often it was halved before."""
    constant = {"policy_lr": 0.01, "clip_range": 0.2, "n_epochs": 20}
    slower = {"callbacks": "[{id:'mypkg:Slower',every:1}]", **constant}
    straight, without, halfway = tiny_run(**slower), tiny_run(**constant), tiny_run(max_timesteps=32, **slower)
    assert train.command(["--resume", halfway.id, "--max-timesteps", "64"]) == 0
    assert ", exact" in capsys.readouterr().out
    one, other, plain = (fingerprint(last(run)["state_dict"]) for run in (straight, halfway, without))
    assert one == other != plain


@pytest.mark.slow
def test_exact_is_not_said_when_the_named_code_was_edited(mypkg, capsys):
    halfway = tiny_run(max_timesteps=32, policy="mypkg:Net", clip_range=0.2, policy_lr=0.01)
    (mypkg / "mypkg.py").write_text(MINE + "\nMORE = 1\n")
    code_hash.cache_clear()
    assert train.command(["--resume", halfway.id, "--max-timesteps", "64"]) == 0
    assert "not bit-exact; code of mypkg" in capsys.readouterr().out


def test_an_agent_of_ones_own_brings_its_keys(mypkg, capsys, tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text(FLAT)
    config = load_file(path)
    assert (config.algo_id, config.timidity, config.variant) == ("mypkg:Timid", 0.25, "Timid")
    assert train.command(["--config", str(path), "-q", "timidity=0.75"]) == 0
    run = RunDir.find("@last")
    assert run.facts()["config"]["timidity"] == 0.75
    assert train.command(["--resume", run.id, "-q", "--max-timesteps", "96"]) == 0
    assert run_play.command(["--headless", "--episodes", "2"]) == 0
    assert train.command(["--config", str(path), "--help"]) == 0
    assert "Share of the clip range that is used." in capsys.readouterr().out
    line = refusal(capsys, train.command, "--config", path, "timiditi=1")
    assert "unknown key 'timiditi'; did you mean timidity" in line
    assert "timidity belongs to mypkg:Timid" in refusal(capsys, train.command, "CartPole-v1:ppo", "timidity=1")


def test_an_agent_on_any_environment_needs_no_file_and_the_file_that_is_printed_names_its_variant(
    mypkg, capsys, tmp_path
):
    facts = tiny_run("CartPole-v1:mypkg:Timid").facts()
    assert (facts["env_id"], facts["variant"]) == ("CartPole-v1", "mypkg:Timid")
    assert facts["config"]["spec"]["goal"] == 475  # what is known of the environment holds for any algorithm
    assert "max_timesteps is missing" in refusal(capsys, train.command, "CartPole-v1:mypkg:Timid")
    config = load_general("CartPole-v1:mypkg:Timid", ["max_timesteps=2048"], lambda config: None)
    (tmp_path / "my.yaml").write_text("\n".join(to_keep(config)))
    kept = load_file(tmp_path / "my.yaml")
    assert (kept.variant, kept.algo_id, kept.max_timesteps) == ("timid", "mypkg:Timid", 2048)


def test_a_metric_of_ones_own_algorithm_is_shown_and_an_unknown_one_refused_at_once(mypkg, capsys):
    run = tiny_run("CartPole-v1:mypkg:Timid", timidity=0.25)
    name = "train/mine/timidity"
    assert [row[name] for row in read_csv(run.metrics_csv) if name in row][-1] == 0.25
    assert f"| mine/timidity `{name}` | 0.250 |" in (run.path / "report.md").read_text()
    assert MetricsReader(run.path / NAME).read().values[name].value == 0.25, "the monitor's file"
    assert runs.main(["show", run.id]) == 0
    assert re.search(rf"mine/timidity +0.250 +{name}\n", capsys.readouterr().out)
    assert write_metrics(read_metrics(run)).decode().splitlines()[0].endswith(f",{name}"), "what is published"
    overrides = ["max_timesteps=8192", "log_freq_epochs=1000", "eval_freq_epochs=null"]  # no row before the end
    line = refusal(capsys, train.command, "CartPole-v1:mypkg:Chatty", "-q", *overrides)
    assert "'train/loss/polcy' is not declared in metrics.yaml; did you mean train/loss/policy" in line
    assert "name your own metric train/mine/polcy" in line
    assert not checkpoint_set.names(RunDir.find("@last").checkpoints), "refused in the first iteration"


WRONG = {
    "policy=mypkg:Nett": "policy: mypkg has no 'Nett'; did you mean Net?",
    "policy=mypgk:Net": "policy: there is no Python module 'mypgk'; did you mean mypkg",
    "policy=gymnasium.wrapers:X": "no Python module 'gymnasium.wrapers'; did you mean wrappers",
    "policy=mypkg:Slower": "policy: mypkg:Slower is not a subclass of ActorCritic",
    "policy=mypkg:NUMBER": "policy: mypkg:NUMBER is int, neither a class nor a function",
    "policy='mypkg:'": "policy: 'mypkg:' is not module:Name",
    "policy_kwargs={width:many} policy=mypkg:Net": "policy_kwargs.width takes a whole number",
    "policy_kwargs={widht:3} policy=mypkg:Net": "mypkg:Net has no 'widht'; did you mean width",
    "env_wrappers=[{id:'mypkg:Net'}]": "env_wrappers: mypkg:Net is not a gymnasium.Wrapper",
    "env_wrappers=[{id:'mypkg:Halved',facter:1}]": "env_wrappers: mypkg:Halved has no 'facter'; did you mean factor",
    "callbacks=['mypkg:Net']": "callbacks: mypkg:Net is not a subclass of lightning.Callback",
    "callbacks=['mypkg:Hoarder'] max_timesteps=2048": "Hoarder has a set",  # which no checkpoint could give back
    "callbacks=['Slower']": "callbacks takes [module:Name]",
    "callbacks=[{id:'mypkg:Slower',evry:2}]": "mypkg:Slower has no 'evry'; did you mean every",
    "callbacks=['mypkg:Slower','mypkg:Slower']": "two callbacks of the same class each need their own state_key",
    "algo_id=mypkg:Net": "mypkg:Net is not an agent",
    "algo_id=mypkg:Undecorated": "Bare needs @dataclass(frozen=True)",
    "algo_id=stride.agents.ppo:PPO": "algo_id: stride.agents.ppo:PPO is shipped as ppo; write ppo",
}
if not IS_WHEEL:  # a wheel has no folders beside the package
    WRONG["algo_id=agents.ppo:PPO"] = "stride.agents"
    WRONG["algo_id=old_name:Mine"] = "old_name cannot be imported: ImportError: write stride.agents ("


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_said_in_one_line(mypkg, capsys, words):
    line = refusal(capsys, train.command, "CartPole-v1:ppo", *words.split(" "))
    assert WRONG[words] in line, line
    assert not list((mypkg.parent / "runs").glob("2*")), "a run was begun"


def test_before_torch_is_loaded_nothing_of_ones_own_is(mypkg, tmp_path, capsys):
    """The first words come while torch loads: an algorithm's keys are known only later, and no policy is looked up."""
    path = tmp_path / "my.yaml"
    path.write_text(FLAT)
    assert answer_early(["--config", str(path)]) is None and "mypkg" not in sys.modules
    assert answer_early(["CartPole-v1:ppo", "policy=mypkg:Net", "-q"]) is None and "mypkg" not in sys.modules
    with postponed(), pytest.raises(TooEarlyError):
        load_file(path)
    for words in (["mypgk:World-v0:ppo"], ["CartPole-v1:mypgk:Timid"], ["CartPole-v1:ppo", "policy=mypgk:Net"]):
        assert "there is no Python module 'mypgk'; did you mean mypkg" in refusal(capsys, opening, *words)


def test_installed_packages_bring_names(mypkg, monkeypatch, capsys):
    configs = mypkg / "their_configs"
    configs.mkdir()
    (configs / "__init__.py").write_text("raise SystemExit('a folder of configs is not imported')")
    (configs / "Theirs-v0.yaml").write_text("env_id: CartPole-v1\nmax_timesteps: 1e5\ntimid: {timidity: 0.125}\n")
    points = {"algorithms": ("timid", "mypkg:Timid"), "policies": ("net", "mypkg:Net")}
    points |= {"wrappers": ("Halved", "mypkg:Halved"), "configs": ("theirs", "their_configs")}

    def entry_points(group):
        return [EntryPoint(*points[group.removeprefix("stride.")], group)]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    plugins.registered.cache_clear()
    try:
        assert {"Theirs-v0", "CartPole-v1"} <= {*environment_files()}
        assert load_config("Theirs-v0", "timid").timidity == 0.125
        run = tiny_run("Theirs-v0:timid", policy="net", env_wrappers="[{id:Halved}]")
        assert load_run(run.id).config.algo_id == "timid"
        assert "did you mean net" in refusal(capsys, train.command, "CartPole-v1:ppo", "policy=nett")
        assert "no algorithm 'timidd'" in refusal(capsys, train.command, "CartPole-v1:ppo", "algo_id=timidd")
        for key in ("algo_id", "policy", "env_wrappers"):
            with pytest.raises(UserError, match=f"{key} names the module 'mypkg'"):
                check_names({key: run.facts()["config"][key]}, NOBODY, "it")
    finally:
        plugins.registered.cache_clear()


PLANTED = "import pathlib\npathlib.Path(__file__).with_name('executed').touch()\n"
BRINGS = {
    "env_id": "planted:CartPole-v1", "policy": "planted:Net", "algo_id": "planted:Agent",
    "callbacks": ["planted:Callback"], "callbacks, with arguments": [{"id": "planted:Callback"}],
    "env_wrappers": [{"id": "planted:Wrapper"}], "env_kwargs": {"inner": {"env_id": "planted:Env-v0"}},
    "policy, of a sidecar": "planted:Net",
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("whole")))
        return tiny_run().path


@pytest.mark.parametrize("kind", BRINGS)
def test_a_run_from_elsewhere_never_imports_what_it_names(mypkg, whole, tmp_path, capsys, kind):
    """The module is there, on the path, and harms whoever imports it."""
    (mypkg / "planted.py").write_text(PLANTED)
    theirs = shutil.copytree(whole, tmp_path / "theirs" / "run", symlinks=True)
    name, _, place = kind.partition(", ")
    files = [theirs / "config.json"] if place != "of a sidecar" else theirs.glob("checkpoints/*.json")
    for path in [path for path in files if not path.is_symlink()]:
        facts = json.loads(path.read_text())
        path.write_text(json.dumps({**facts, "config": {**facts["config"], name: BRINGS[kind]}}))
    play = ["--run-id", str(theirs), "--headless"]
    commands = [(train.command, ["--resume", str(theirs), "--max-timesteps", "128", "--accept-changes"])]
    commands += [(run_play.command, play)] if place != "of a sidecar" else []
    for command, words in commands:
        assert command(words) == 2
        line = capsys.readouterr().err
        assert f"{name} names the module 'planted'" in line and "--trust planted" in line and line.count("\n") == 1
    assert run_play.command([*play, "--trust", "other"]) == (0 if place == "of a sidecar" else 2)
    assert "planted" not in sys.modules and not (mypkg / "executed").exists()


def test_a_run_from_elsewhere_whose_code_is_trusted_by_name_plays_and_goes_on(mypkg, tmp_path, capsys):
    run = tiny_run(policy="mypkg:Net", callbacks="['mypkg:Slower']")
    theirs = str(shutil.copytree(run.path, tmp_path / "theirs" / "run", symlinks=True))
    for command, *words in (
        [run_play.command, "--run-id", theirs, "--headless", "--episodes", "2"],
        [train.command, "--resume", theirs, "--max-timesteps", "128", "-q"],
    ):
        assert command(words) == 2
        assert command([*words, "--trust", "mypkg"]) == 0
    line = refusal(capsys, train.command, "CartPole-v1:ppo", "--trust", "mypkg")
    assert "--trust is for resuming a run from elsewhere" in line
    assert "module names" in refusal(capsys, train.command, "--resume", theirs, "--trust", "my pkg")


def test_what_a_config_names_and_what_is_trusted():
    names = {"env_kwargs": {"a": "x:Y-v0", "b": ["http://x", "4x4", "x y:z"]}, "callbacks": [{"id": "d.e:Y"}, 3]}
    assert named_modules(names) == {"x": "env_kwargs", "d.e": "callbacks"}
    assert named_modules({"env_id": ["x:y"], "callbacks": "x:y", "env_wrappers": {"id": "x:y"}}) == {}
    trust, names = trusting(["a", "d.e"]), ("a", "a.b", "ab", "d", "d.e", "d.e.f")
    assert [name for name in names if trust.allows(name)] == ["a", "a.b", "d.e", "d.e.f"]
    assert Trust(everybody=True).allows("x") and not NOBODY.allows("x")


OTHERS = {"lab", "stride", "commands", "scripts", "tests"}
ROOMS = sorted({file.parent.name for file in PROJECT.glob("*/__init__.py")} - OTHERS)
OLD_NAMES = f"""
for room in {ROOMS}:
    try:
        __import__(room)
    except ImportError as error:
        print(error)
"""
ONE_FILE = """
import importlib.util, os, stride
print(os.path.realpath(stride.__file__), importlib.util.find_spec("stride.agents.ppo").origin)
"""


def printed(code, cwd):
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(IS_WHEEL, reason="a wheel has no folders beside the package")
def test_every_module_has_one_name_and_an_old_one_says_the_new_one():
    assert len(ROOMS) > 8
    assert printed(OLD_NAMES, ROOT).splitlines() == [f"write stride.{room}" for room in ROOMS]
    assert printed(ONE_FILE, ROOT) == printed(ONE_FILE, "/"), "wherever the package was found"
