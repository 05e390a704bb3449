"""The pages for those who come from elsewhere: keys, defaults and signatures are looked up, commands are run."""

import ast
import importlib.util
import inspect
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from stride import agents
from stride.agents.networks.policies import mlp_policy
from stride.commands import run_play, run_publish, train
from stride.config.foreign import KEYS_HERE
from stride.config.loader import load_config
from stride.config.metrics import load_metrics
from stride.config.schema import DQNConfig, PPOConfig, SACConfig
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = Path(agents.__file__).parent.parent  # the checkout, or what the wheel installed
SKRL = "guides/from_skrl"
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("from_sb3", "from_cleanrl", SKRL)}
LEARNERS = {"PPO": PPOConfig, "DQN": DQNConfig, "SAC": SACConfig, "ppo.py": PPOConfig, "dqn.py": DQNConfig}
LEARNERS |= {"sac_continuous_action.py": SACConfig, "policy_kwargs": PPOConfig}
LEARNERS |= {"PPO_CFG": PPOConfig, "SAC_CFG": SACConfig, "DQN_CFG": DQNConfig}
EVERYONE = ("Every algorithm", "Arguments of every file", "VecNormalize", "Evaluation")
FILE = re.compile(r"^`([\w.]+)`[,:][^\n]*\n\n```yaml\n(.*?)^```$", re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
SAID = re.compile(r"`(\w+)(?:: |=)([^`]+)`")
THEIR_WORDS = {"key", "normalize", "learning_rate", "env_wrapper", "deterministic"}
COMMANDS = {"train.py": train.command, "run_play.py": run_play.command, "run_publish.py": run_publish.command}
SKRL_2_1_1 = {  # fields of its dataclasses, skrl/agents/torch/*/*_cfg.py; every one of PPO's
    "PPO_CFG": {
        "rollouts": 16, "learning_epochs": 8, "mini_batches": 2, "discount_factor": 0.99, "gae_lambda": 0.95,
        "learning_rate": 1e-3, "learning_rate_scheduler": None, "learning_rate_scheduler_kwargs": {},
        "observation_preprocessor": None, "observation_preprocessor_kwargs": {}, "state_preprocessor": None,
        "state_preprocessor_kwargs": {}, "value_preprocessor": None, "value_preprocessor_kwargs": {},
        "grad_norm_clip": 0.5, "ratio_clip": 0.2, "value_clip": 0.2, "entropy_loss_scale": 0.0,
        "value_loss_scale": 2.5, "kl_threshold": 0.0, "time_limit_bootstrap": False, "rewards_shaper": None,
        "mixed_precision": False,
    },
    "SAC_CFG": {
        "gradient_steps": 1, "batch_size": 64, "discount_factor": 0.99, "polyak": 0.005, "learning_rate": 1e-3,
        "random_timesteps": 0, "learning_starts": 0, "grad_norm_clip": 0, "learn_entropy": True,
        "initial_entropy_value": 0.2, "target_entropy": None,
    },
    "DQN_CFG": {
        "gradient_steps": 1, "batch_size": 64, "polyak": 0.005, "random_timesteps": 0, "learning_starts": 0,
        "update_interval": 1, "target_update_interval": 10, "exploration_scheduler": None,
    },
}  # fmt: skip
needs_sb3 = pytest.mark.skipif(not importlib.util.find_spec("stable_baselines3"), reason="its signatures are looked up")


Row = NamedTuple("Row", [(name, str) for name in ("section", "theirs", "their_default", "ours", "our_default")])


def tables(page):
    """(section, cells) of every row of every table, headings and rulers left out."""
    section, before = "", ""
    for line in PAGES[page].splitlines():
        if line.startswith("## "):
            section = line[3:]
        if line.startswith("|") and before.startswith("|") and not line.startswith("|---"):
            yield section, [cell.strip() for cell in line.strip("|").split("|")]
        before = line


def rows(page):
    """The rows that state a key; one of rl-zoo's says no default of its own."""
    found = []
    for section, cells in tables(page):
        if len(cells) == 4:
            cells.insert(1, "")
        if len(cells) == 5:
            found.append(Row(section, cells[0].strip("`"), cells[1], cells[2].strip("`"), cells[3]))
    return found


ROWS = [(page, row) for page in PAGES for row in rows(page)]


def test_the_tables_are_read():
    """Of this parser: it finds the rows there are, and no line of a wide table has another number of cells."""
    text = "\n".join(PAGES.values())
    wide, rulers = re.findall(r"^\|(?:[^|\n]*\|){4,}$", text, re.M), re.findall(r"^(?:\|---){4,}\|$", text, re.M)
    assert len(ROWS) == len(wide) - 2 * len(rulers) > 110


@pytest.mark.parametrize(("page", "row"), ROWS, ids=lambda each: getattr(each, "theirs", each))
def test_our_keys_and_their_defaults(page, row):
    if row.ours == "none":
        assert row.our_default == ""
        return
    stated = yaml.safe_load(row.our_default or '""')
    if row.ours.startswith("policy_kwargs."):
        assert inspect.signature(mlp_policy).parameters[row.ours.partition(".")[2]].default == stated
        return
    three = [PPOConfig, DQNConfig, SACConfig]
    configs = [LEARNERS[row.section]] if row.section in LEARNERS else [c for c in three if row.ours in vars(c())]
    assert configs, row.ours
    if row.section not in EVERYONE:
        configs = configs[:1]  # its text says it of PPO, and what others have
    for config in configs:
        default = vars(config()).get(row.ours, "no such key")
        default = list(default) if isinstance(default, tuple) else default
        assert default == stated and type(default) is type(stated), (config, default)


def test_what_the_text_says_of_dqn_and_sac():
    dqn, sac = DQNConfig(), SACConfig()
    assert (dqn.n_envs, sac.n_envs, dqn.activation, sac.activation) == (1, 1, "relu", "relu")
    assert dqn.hidden_dims == sac.hidden_dims == (256, 256)
    assert (dqn.optimizer, sac.optimizer, dqn.optimizer_eps, sac.optimizer_eps) == ("adam", "adam", 1e-8, 1e-8)
    assert (dqn.double_q, dqn.huber, dqn.max_grad_norm, sac.max_grad_norm) == (True, 1.0, 10.0, None)
    assert (dqn.epoch_iterations, sac.epoch_iterations, PPOConfig().epoch_iterations) == (1000, 1000, 1)
    assert PPOConfig().weight_decay == 0 and PPOConfig().test_episodes == 100


@pytest.mark.parametrize("page", PAGES)
def test_settings_in_the_text_load(page):
    """In one of the three at least."""
    stated = {(key, value) for key, value in SAID.findall(PAGES[page]) if key not in THEIR_WORDS}
    ours = [(key, value) for key, value in stated if "Policy'" not in value and "dict(" not in value]
    assert len(ours) > (2 if page == SKRL else 8)
    for key, value in ours:
        refused = 0
        for variant in ("CartPole-v1:ppo", "CartPole-v1:dqn", "Pendulum-v1:sac"):
            try:
                load_config(*variant.split(":"), [f"{key}={value}"])
            except UserError:
                refused += 1
        assert refused < 3, (key, value)


@pytest.mark.parametrize("page", [page for page in PAGES if page != SKRL])  # it names none
def test_metrics_and_files_that_are_named_are_there(page):
    right = "\n".join(cells[1] for section, cells in tables(page) if section == "Logging")
    named = re.findall(r"`((?:train|val|test)/[\w/]+)`", right or PAGES[page])
    assert len(named) > 5 and set(named) <= set(load_metrics())
    paths = [cells[0].strip("`") for section, cells in tables(page) if section == "Where the algorithm is"]
    assert all((PACKAGES / path).is_file() for path in paths if path not in COMMANDS)  # imported above


@needs_sb3
def test_sb3s_names_and_defaults_are_those_of_its_signatures():
    """All of them: an argument that the page leaves out fails, too. Of policies and callbacks those that are named."""
    from stable_baselines3 import DQN, PPO, SAC
    from stable_baselines3.common import callbacks
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.vec_env import VecNormalize

    everyone = {row.theirs: row for row in rows("from_sb3") if row.section == "Every algorithm"}
    for made in (PPO, DQN, SAC, VecNormalize, callbacks.EvalCallback):
        section = "Evaluation" if made is callbacks.EvalCallback else made.__name__
        told = {row.theirs: row for row in rows("from_sb3") if row.section == section}
        told |= everyone if made in (PPO, DQN, SAC) else {}
        there = {name: p.default for name, p in arguments(made).items() if not name.startswith("_")}
        assert set(told) == set(there), made
        assert {name: said(row) for name, row in told.items()} == there, made
    there = arguments(ActorCriticPolicy)
    for row in (row for row in rows("from_sb3") if row.section == "policy_kwargs"):
        default = there[row.theirs].default
        name = default.__name__ if isinstance(default, type) else repr(default)
        assert name == row.their_default.rpartition("nn.")[2], row
    listed = [name for section, (name, *_) in tables("from_sb3") if section == "Callbacks"]
    names = re.findall(r"`(\w+)`", " ".join(listed))
    assert len(names) == 7 and all(hasattr(callbacks, name) for name in names)


def arguments(made):
    return {name: p for name, p in inspect.signature(made.__init__).parameters.items() if name != "self"}


def said(row):
    return ast.literal_eval(row.their_default) if row.their_default else inspect.Parameter.empty


@pytest.mark.parametrize("section", SKRL_2_1_1)
def test_skrls_names_and_defaults_are_those_of_its_release(section):
    page = {row.theirs: said(row) for row in rows(SKRL) if row.section == section}
    assert page == SKRL_2_1_1[section]
    if importlib.util.find_spec("skrl"):
        name = section.removesuffix("_CFG").lower()
        there = vars(getattr(importlib.import_module(f"skrl.agents.torch.{name}"), section)())
        assert {key: there[key] for key in page} == page
        assert section != "PPO_CFG" or set(there) == {*page, "experiment"}


@pytest.fixture(params=PAGES)
def typed(request, tmp_path, monkeypatch):
    """The name of a page, whose files are in the folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    for path, text in FILE.findall(PAGES[request.param]):
        Path(path).write_text(text)
    return request.param


def commands(page, program):
    """The words behind each of the page's commands of that program."""
    lines = [line for block in SHELL.findall(PAGES[page]) for line in block.splitlines()]
    return [words[2:] for words in map(shlex.split, lines) if words[:2] == ["python", program]]


def test_every_training_begins_and_ends(typed):
    """With fewer steps than the page says."""
    begun = [words for words in commands(typed, "train.py") if "--resume" not in words]
    assert len(begun) == {"from_sb3": 3, "from_cleanrl": 3, SKRL: 1}[typed]
    for words in begun:
        rollouts = typed == SKRL or any(":ppo" in word for word in words)
        few = ["max_timesteps=1024"] if rollouts else ["max_timesteps=96", "learning_starts=32"]
        assert train.command([*words, "-q", *few, "test_episodes=1", "eval_freq_epochs=null"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["from_sb3"], indirect=True)
def test_what_is_typed_after_a_training_works(typed, tmp_path, capsys):
    """As the page says it, from the first command to the fourth."""
    lines = [shlex.split(line) for line in SHELL.search(PAGES["from_sb3"])[1].splitlines()[:4]]
    assert [words[1] for words in lines] == ["train.py", "run_play.py", "train.py", "run_publish.py"]
    for words in lines:
        assert COMMANDS[words[1]](words[2:]) == 0
    out = capsys.readouterr().out
    assert out.count("solved: goal reached") == 2
    assert "goal met (475)" in out
    assert "resuming " in out and "changed: max_timesteps" in out
    assert (tmp_path / "published" / "model.safetensors").is_file()


@pytest.mark.parametrize("page", PAGES)
def test_no_page_denies_a_key_that_is_there(page):
    """Names that an error message translates (config/foreign.py) are not said to be missing."""
    for row in rows(page):
        key = KEYS_HERE.get(row.theirs)
        assert row.ours != "none" or key is None or key in PAGES[page], row
    for theirs, flag in (("--track", "logger=[wandb]"), ("-optimize", "stride sweep"), ("SubprocVecEnv", "workers")):
        lines = [line for line in PAGES[page].splitlines() if line.startswith(f"| `{theirs}`")]
        assert all(flag in line for line in lines), lines
