"""What configs say of themselves: --list-envs, the manual and its page, the JSON Schema, the table of metrics."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import gymnasium
import pytest
from refusals import refusal

from stride.commands.schema import text
from stride.config import bands, extras, listing
from stride.config.checks import RANGES
from stride.config.fields import build, hints, schedulable, takes
from stride.config.general import Task, load_general
from stride.config.json_schema import schema
from stride.config.listing import MUJOCO_GOALS, evidence, general_rows, list_environments, print_variants
from stride.config.loader import load_config, load_file, shipped_files
from stride.config.manual import CLASSES, field_docs, help_text
from stride.config.metrics import KEY, PATH, Metric, Rule, declared, load_metrics
from stride.config.network import Network
from stride.config.schema import ALGORITHMS, CHANGES, SCHEMA_VERSION, Config
from stride.config.spec import Quantity, Spec
from stride.config.yaml_file import read_yaml
from stride.utils.durable_file import read_json
from stride.utils.user_error import UserError


@pytest.fixture
def terminal(monkeypatch):
    """Standard output as a terminal of so many columns."""

    def of(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    return of


@pytest.fixture
def uninstalled(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in ("Box2D", "ale_py") else found(name))


@pytest.mark.parametrize("term", ["", "cartpole", "Lunar", "q_learning"])
def test_it_fits_80_columns(term, terminal, uninstalled, monkeypatch, capsys):
    terminal(80)
    names = [f"{row.env_id}:{row.variant}" for row in list_environments()]
    monkeypatch.setattr(listing, "results_here", lambda: {name: "-1234.5 not solved" for name in names})
    print_variants(term)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) > 3


def test_variants_are_listed_in_the_order_of_their_file_each_with_its_goal_and_its_own_evidence(monkeypatch):
    rows = [row for row in list_environments("cartpole-v1") if row.algorithm in ("ppo", "reinforce")]
    assert [row.variant for row in rows] == ["ppo", "reinforce", "ppo_lstm", "ppo_pixels"]
    assert [row.goal for row in list_environments("pendulum-V1:PPO")] == [
        f"{load_config('Pendulum-v1', 'ppo').spec.goal:g}"
    ]
    (row,) = list_environments("CartPole-v1:pqn")
    entry = {**read_json(bands.FILE)["CartPole-v1:pqn"], "reached": 488.9, "solved": 4, "seeds": 5}
    monkeypatch.setattr(bands, "measured", lambda: {"CartPole-v1:pqn": bands._measured(entry)})
    assert evidence(row) == ("488.9", "4/5")
    (other,) = list_environments("Hopper-v5:sac")
    assert evidence(other) == ("unmeasured", "")


def test_descriptions_stand_where_there_is_room_and_few_variants_are_told_whole(terminal, capsys):
    row = list_environments("Taxi-v4:ppo")[0]
    for columns, there in ((80, False), (400, True)):
        terminal(columns)
        print_variants("")
        assert (row.description in capsys.readouterr().out) is there
    print_variants("CartPole-v1:ppo")
    out = " ".join(capsys.readouterr().out.split())
    words = ("+1 for every step", "1 to 500, at most 500 steps", "push left, push right", "pole angle", "https://")
    assert all(word in out for word in words)


def test_what_is_not_installed_is_marked_with_the_cure(uninstalled, capsys):
    print_variants("LunarLander-v3")
    out = capsys.readouterr().out
    assert "LunarLander-v3:ppo *" in out and "* needs Box2D: pip install 'stride-rl[box2d]'" in out
    print_variants("Taxi")
    assert "*" not in capsys.readouterr().out


def test_every_environment_of_an_extra_is_known_to_need_it():
    parts = {"box2d": "gymnasium.envs.box2d", "mujoco": "gymnasium.envs.mujoco"}
    for spec in gymnasium.registry.values():
        extra = extras.extra_of(spec.id)
        theirs = [name for name, part in parts.items() if part in str(spec.entry_point)]
        theirs += ["atari"] if spec.id.startswith("ALE/") else []
        if str(spec.entry_point).startswith("gymnasium.") or theirs:
            assert ([extra.name] if extra else []) == theirs, spec.id


def test_mujocos_bodies_are_listed_with_what_trains_them(capsys):
    print_variants("Ant-v5")
    out = capsys.readouterr().out
    assert "Ant-v5:ppo" in out and "Ant-v5:sac" in out and "Humanoid" not in out
    shipped = {f"{row.env}:{row.variant}" for row in list_environments()}
    rows = {f"{row.env}:{row.variant}": row for row in general_rows()}
    assert {
        spec.id: spec.reward_threshold for spec in gymnasium.registry.values() if spec.id in MUJOCO_GOALS
    } == MUJOCO_GOALS
    assert not shipped & {*rows} and {f"{env}:{name}" for env in MUJOCO_GOALS for name in ("ppo", "sac")} <= shipped | {
        *rows
    }
    for words, row in rows.items():
        config = load_general(words, [], lambda config: Task("bounded", "", None, None))
        assert config.max_timesteps == row.budget and config.description.startswith(row.description)
        assert config.spec.goal is None or row.goal == f"{config.spec.goal:g}"


# ---- the manual, and docs/config.md

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("algo_id", ALGORITHMS)
def test_every_field_has_a_text_and_every_number_a_range(algo_id):
    cls = ALGORITHMS[algo_id]
    docs = {name: doc for owner in CLASSES if issubclass(cls, owner) for name, doc in field_docs()[owner].items()}
    assert set(docs) == {item.name for item in fields(cls)}
    assert all(doc and "\n" not in doc for doc in docs.values())
    unbounded = {"schema_version", "early_stop_on_train_threshold", "early_stop_on_eval_threshold"}
    unbounded |= {"target_entropy", "initial_q"}
    assert {name for name, hint in hints(cls).items() if "number" in takes(hint)} - unbounded <= set(RANGES)
    assert max(CHANGES) == SCHEMA_VERSION == Config().schema_version


def test_help_names_every_key():
    for cls in ALGORITHMS.values():
        text = help_text(cls(), width=80)
        assert all(text.count(f"  {item.name}=") == 1 for item in fields(cls))
    owners = (Network, *ALGORITHMS.values())
    assert set(RANGES) <= {item.name for cls in owners for item in fields(cls)}, "no range without a field"
    text = help_text(load_config("CartPole-v1", "reinforce"), width=80)
    assert "n_steps=256" in text and "batch_size=1.0" in text  # the variant's value, the algorithm's own default


# ---- the JSON Schema: every shipped file is right by it, what the loader refuses is not

WRITTEN = json.loads(text())
SHIPPED = shipped_files().values()
WRONG_KEYS = [
    "gamma: 1.5", "clip_rang: 0.2", "buffer_size: 100", "policy_lr: wavy_0.1", "spec: {gaol: 3}",
    "spec: {observations: [{low: 3}]}", "activation: relu6", "normalize_obs: sometimes",
    "algo_id: sac, clip_range: 0.2",
]  # fmt: skip
WRONG = [
    *(f"ppo: {{max_timesteps: 1e5, {words}}}" for words in WRONG_KEYS),
    *(f"{words}\nppo: {{max_timesteps: 1e5}}" for words in ("gama: 0.9", "n_envs: many", "n_envs: 0")),
    "mine: {algo_id: dqn, max_timesteps: 1e5, clip_range: 0.2}",
    "my variant: {algo_id: ppo, max_timesteps: 1e5}",
    "mine: {algo_id: ppoo, max_timesteps: 1e5}",
]
RIGHT = [
    "ppo: {max_timesteps: '100_000', policy_lr: lin_3e-4, hidden_dims: 64, normalize_obs: true, batch_size: 0.25}",
    "_base: {n_envs: 4}\n_mine: {x: 1}\nppo: {max_timesteps: 1e5, clip_range: {kind: linear, start_value: 0.2}}",
    "mine: {algo_id: dqn, max_timesteps: 1e5, buffer_size: 1000}\nppo: {_inherit_: mine, max_timesteps: 2e5}",
    "ppo: {max_timesteps: 1e5, policy_lr_schedule: cosine, policy_lr_schedule_end: 0.5, resize_obs: [84, 84]}",
    "q_learning: {max_timesteps: 1e5}",
]


def faults(data):
    jsonschema = pytest.importorskip("jsonschema", reason="Jupyter's and Ray's packages bring it")
    return [error.message for error in jsonschema.Draft7Validator(WRITTEN).iter_errors(data)]


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_file_names_it_and_is_right_by_it(path):
    assert path.read_text().startswith("# yaml-language-server: $schema=../schema.json\n")
    assert faults(read_yaml(path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [*WRONG, *RIGHT])
def test_what_the_loader_takes_is_right_by_it_and_nothing_else(words, tmp_path):
    path = tmp_path / "CartPole-v1.yaml"
    path.write_text(words)
    if words in WRONG:
        refusal(load_file, path)
    else:
        load_file(path, "ppo" if "ppo:" in words else "")
    assert bool(faults(read_yaml(path))) == (words in WRONG)


def test_every_key_has_its_meaning_and_the_schema_is_printed_without_torch():
    made = schema()
    assert made == WRITTEN  # all of it survives JSON
    assert all(entry["description"] for entry in made["definitions"]["keys"].values())
    assert made["definitions"]["keys"]["priority_alpha"] | {"description": ""} == {
        "description": "", "default": 0.6,
        "anyOf": [{"type": "number", "minimum": 0, "maximum": 1},
                  {"type": "string", "pattern": made["definitions"]["keys"]["priority_alpha"]["anyOf"][1]["pattern"]}],
    }  # fmt: skip
    assert {*ALGORITHMS} <= made["definitions"].keys()
    code = "import sys; from stride.commands.schema import main; main([]); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == WRITTEN


# ---- metrics.yaml is well-formed and says what the code relies on


def test_metrics_yaml_which_commands_read_unchecked_keeps_its_rules():
    keys = {key for algorithm in ALGORITHMS.values() for key in hints(algorithm)}
    for name, entry in read_yaml(PATH).items():
        plain = {key: value for key, value in entry.items() if key != "alerts"}
        plain |= {"name": name, "better": None if entry.get("better") == "none" else entry.get("better")}
        rules = tuple(build(name, Rule, rule) for rule in entry.get("alerts", ()))
        assert replace(build(name, Metric, plain), alerts=rules) == load_metrics()[name], "types, and no other key"
        assert name.split("/")[0] in ("train", "val", "test") and {"title", "meaning", "unit", "precision"} <= {*entry}
        for rule in rules:
            assert rule.means and rule.tries and (rule.above is None) != (rule.below is None), name
            assert {*rule.config, *KEY.findall(" ".join(rule.tries))} <= keys, name
    assert [*load_metrics()] == [*read_yaml(PATH)]


def test_every_metric_is_one_clear_sentence_and_what_the_code_relies_on():
    for metric in load_metrics().values():
        assert metric.meaning.endswith(".") and ". " not in metric.meaning, metric.name
        assert metric.title and len(metric.title) <= 20 and metric.unit and 0 <= metric.precision <= 8, metric.name
        assert metric.table or not metric.highlight, metric.name
    assert len({metric.title for metric in load_metrics().values()}) == len(load_metrics())
    metrics = load_metrics()
    assert metrics["train/roll/ep_rew/mean"].better == "up" and metrics["train/roll/ep_rew/mean"].highlight
    assert all(rule.below is None for rule in metrics["train/policy/approx_kl"].alerts)  # sampled: may be negative
    assert metrics["train/value/explained_variance"].nan and "NaN" in metrics["train/value/explained_variance"].meaning
    assert {name for name, metric in metrics.items() if metric.wall_time} == {
        name for name in metrics if name.startswith("train/time/")
    }
    names = {name for config_class in ALGORITHMS.values() for name in schedulable(config_class)}
    assert {f"train/hyper/{name}" for name in names} <= set(load_metrics())
    assert {"gamma", "gae_lambda", "return_lambda", "tau", "weight_decay", "optimizer_eps", "huber"} <= names
    with pytest.raises(UserError, match=r"train/los/policy.* is not declared.*did you mean train/loss/policy"):
        declared("train/los/policy")


def test_bounds_and_valid_actions_are_shown():
    speeds = (Quantity("speed", -2, 2), Quantity("height", 0), Quantity("heat", high=9), Quantity("place"))
    spec = Spec(actions=("left", "none", "right"), observations=speeds, valid_actions=(0, 2))
    assert spec.observation_text() == "speed (-2 to 2), height (0 or more), heat (9 or less), place"
    assert spec.action_text() == "left, none, right; valid: left, right"
    assert Spec(valid_actions=(1,)).action_text() == "valid: 1" and Spec().action_text() == ""
