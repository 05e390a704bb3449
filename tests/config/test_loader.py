"""Files, inheritance, overrides, types, schedules, and the way to plain data and back."""

import json
import math
import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from stride.commands.train_opening import for_debugger
from stride.config.checks import nearest_sizes
from stride.config.diff import command_of, differing, override_text, written
from stride.config.loader import (
    MIGRATIONS,
    environment_files,
    from_plain,
    load_config,
    load_file,
    migrate,
    parse_config_id,
    to_plain,
)
from stride.config.raw import EnvironmentFile
from stride.config.schedule import Schedule
from stride.config.schema import CHANGES, SCHEMA_VERSION, PPOConfig, REINFORCEConfig, RolloutConfig
from stride.config.yaml_file import read_yaml
from stride.utils.user_error import UserError

SHIPPED = [(stem, name) for stem, path in environment_files().items() for name in EnvironmentFile.read(path).variants]


EXAMPLE = Path(__file__).parent / "CartPole-v1.yaml"


def ppo(tmp_path, text, *overrides, variant="ppo"):
    path = tmp_path / "Test-v0.yaml"
    path.write_text(text)
    return load_file(path, variant, overrides)


def cartpole(*overrides):
    return load_file(EXAMPLE, "ppo", overrides)


def written_and_read(config):
    return from_plain(json.loads(json.dumps(to_plain(config), allow_nan=False)))


@pytest.mark.parametrize(("stem", "variant"), SHIPPED)
def test_shipped_variant(stem, variant):
    config = load_config(stem, variant)
    assert config.env_id.replace("/", "-") == stem and config.variant == variant and config.project_id == stem
    assert 0 < len(config.description) <= 100 and "\n" not in config.description
    assert config.spec.description and config.spec.observations and config.spec.actions
    assert config.eval_freq_epochs is not None
    assert written_and_read(config) == config
    assert for_debugger(config).n_envs == 1


def test_the_stem_names_environment_and_project_and_a_flat_file_is_its_own_variant(tmp_path, monkeypatch):
    config = ppo(tmp_path, "ppo: {max_timesteps: 1e5}\n")
    assert (config.env_id, config.project_id, config.algo_id, config.variant) == ("Test-v0", "Test-v0", "ppo", "ppo")
    assert config.max_timesteps == 100_000 and isinstance(config.max_timesteps, int)
    (tmp_path / "ALE-Pong-v5.yaml").write_text("env_id: ALE/Pong-v5\nppo: {max_timesteps: 1e5}\n")
    monkeypatch.setattr("stride.config.loader.ENVIRONMENTS", tmp_path)
    config = load_config(*parse_config_id("ALE/Pong-v5:ppo"))  # a slash in the id is a dash in the file's name
    assert (config.env_id, config.project_id) == ("ALE/Pong-v5", "ALE-Pong-v5")
    config = ppo(tmp_path, "env_id: CartPole-v1\nalgo_id: reinforce\nmax_timesteps: 10000\n", variant="")
    assert isinstance(config, REINFORCEConfig) and config.variant == "reinforce" and config.project_id == "Test-v0"


LAYERS = """
_base: {max_timesteps: 1e5, env_kwargs: {a: 1, b: {c: 2, d: 3}}}
_wide: &wide
  n_envs: 32
gamma: 0.9
ppo:
  <<: *wide
  n_epochs: 2
fast: {_inherit_: ppo, n_epochs: 1, env_kwargs: {b: {c: 5}}}
faster: {_inherit_: fast, gamma: 0.8}
private: {_inherit_: _wide, algo_id: ppo}
merged: {<<: [*wide, {seed: 7}], n_envs: 16, algo_id: ppo}
"""


def test_layers(tmp_path):
    config = ppo(tmp_path, LAYERS, variant="faster")
    assert (config.gamma, config.n_envs, config.n_epochs) == (0.8, 32, 1)
    assert config.env_kwargs == {"a": 1, "b": {"c": 5, "d": 3}}
    assert ppo(tmp_path, LAYERS).env_kwargs == {"a": 1, "b": {"c": 2, "d": 3}}
    assert ppo(tmp_path, LAYERS, variant="private").n_envs == 32
    merged = ppo(tmp_path, LAYERS, variant="merged")
    assert (merged.n_envs, merged.seed) == (16, 7)
    assert EnvironmentFile.read(tmp_path / "Test-v0.yaml").variants == ["ppo", "fast", "faster", "private", "merged"]


def test_yaml_reads_what_is_written(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1e-3\nb: 1e5\nc: no\nd: 010\ne: 1_000\nf: 12:30\ng: 2020-01-01\nh: .5\ni: -1.5\nj: true\n"
                    "k: ~\nl:\nm: '1e-3'\nn: on\no: 1E+2\nyes: y\n")  # fmt: skip
    assert read_yaml(path) == {
        "a": 1e-3, "b": 1e5, "c": "no", "d": 10, "e": 1000, "f": "12:30", "g": "2020-01-01", "h": 0.5, "i": -1.5,
        "j": True, "k": None, "l": None, "m": "1e-3", "n": "on", "o": 100.0, "yes": "y",
    }  # fmt: skip


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
PRINTABLE = st.characters(codec="utf-8", categories=("L", "N", "P", "S"))
NAMES = st.from_regex(r"x_[a-z0-9_-]{0,8}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(PRINTABLE),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(NAMES, part, max_size=3),
    max_leaves=5,
)
MAPPINGS = st.dictionaries(NAMES, VALUES, max_size=4)
TAGS = ["name:os.system", "object:os.system", "object/apply:os.system", "object/new:os.system", "module:os", "tuple",
        "bytes", "complex"]  # fmt: skip


@settings(max_examples=50)
@given(MAPPINGS.filter(bool))
def test_what_yaml_writes_is_read_again(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False))
    assert repr(read_yaml(path)) == repr(data)


@pytest.mark.parametrize("tag", TAGS)
def test_no_yaml_makes_an_object(tmp_path, tag):
    for value in ("x", "[touch owned]", "{x: 1}"):
        (tmp_path / "hostile.yaml").write_text(f"x: !!python/{tag} {value}\n")
        with pytest.raises(UserError, match="only plain data is read"):
            read_yaml(tmp_path / "hostile.yaml")


TYPED = {  # an override of the key that it begins with, and the value in the config
    "policy_lr=1e-3": 1e-3, "max_timesteps=1e6": 1_000_000, "max_timesteps=200_000": 200_000, "seed=0": 0,
    "gamma=1": 1.0, "gamma='0.5'": 0.5, "--gamma=0.5": 0.5, "hidden_dims=[32,16]": (32, 16), "hidden_dims=64": (64,),
    "hidden_dims=[]": (), "normalize_obs=true": "rolling", "normalize_obs=static": "static",
    "normalize_obs=false": False, "normalize_advantages=off": "off", "share_trunk=true": True,
    "clip_range_vf=0.1": 0.1, "clip_range_vf=null": None, "max_grad_norm=null": None, "eval_freq_epochs=0": None,
    "eval_freq_epochs=null": None, "early_stop_on_eval_threshold=15": 15.0, "early_stop_on_eval_threshold=-90": -90.0,
    "early_stop_on_eval_threshold=1": 1.0, "early_stop_on_train_threshold=true": True, "device=cuda:1": "cuda:1",
    "precision=32": 32, "precision='32'": 32, "precision=bf16": "bf16", "description='a, b: c'": "a, b: c",
    "env_kwargs.render.size=[4,5]": {"render": {"size": [4, 5]}}, "env_wrappers=[{id:A,x:1}]": ({"id": "A", "x": 1},),
    "batch_size=1.0": 1.0, "batch_size=64": 64, "batch_size=64.0": 64,
}  # fmt: skip


@pytest.mark.parametrize("override", TYPED)
def test_override_types(override):
    key = override.removeprefix("--").partition("=")[0].partition(".")[0]
    value = vars(cartpole(override))[key]
    assert value == TYPED[override] and type(value) is type(TYPED[override])


SETTINGS = {
    "gamma": st.floats(0, 1), "seed": st.integers(0, 2**63 - 1), "policy_lr": st.floats(1e-9, 1),
    "clip_range": st.sampled_from(["lin_0.1", "cos_2.5e-3", "exp_0.01"]), "max_episode_steps": st.integers(1, 2**31),
    "clip_range_vf": st.none() | st.floats(1e-9, 10), "hidden_dims": st.lists(st.integers(1, 512), max_size=3),
    "normalize_obs": st.sampled_from([False, "rolling", "static"]), "batch_size": st.sampled_from([1.0, 64, 0.25]),
    "description": st.text(PRINTABLE, min_size=1), "env_kwargs": MAPPINGS,
    "early_stop_on_eval_threshold": st.booleans() | st.floats(-1e6, 1e6),
    "env_wrappers": st.lists(MAPPINGS.map(lambda more: {**more, "id": "A"}), max_size=2),
}  # fmt: skip


@settings(max_examples=12, phases=[Phase.explicit, Phase.generate])
@given(st.fixed_dictionaries({}, optional=SETTINGS))
@example({"env_kwargs": {"x_": None, "x_a": "caf\u00e9"}, "description": "it's \\'"})
def test_what_is_typed_is_what_is_stored_and_what_the_command_says(values):
    config = load_config("CartPole-v1", "ppo", [override_text(key, value) for key, value in values.items()])
    for key, value in values.items():
        stored = vars(config)[key]
        if not isinstance(stored, Schedule):
            assert repr(list(stored) if isinstance(stored, tuple) else stored) == repr(value)
    again = written_and_read(config)
    assert again == config and again.schedules() == config.schedules() and to_plain(again) == to_plain(config)
    name, _, seed, *words = shlex.split(command_of(config))
    typed = to_plain(load_config(*parse_config_id(name), [f"seed={seed}", *words]))
    assert {**typed, "description": ""} == {**to_plain(config), "description": ""}


def test_what_is_typed_again_is_short_and_only_what_differs():
    def plain(*overrides):
        return to_plain(load_config("CartPole-v1", "ppo", overrides))

    short = plain("policy_lr=lin_0.00025", "ent_coef=warmup_0.01")
    assert (written(short["policy_lr"]), written(short["ent_coef"])) == ("lin_0.00025", "warmup_0.01")
    parts = plain("policy_lr_schedule=linear", "policy_lr_schedule_end=0.5")
    assert written(parts["policy_lr"]).startswith("{kind:linear,start_value:0.001")
    changed = differing(plain("hidden_dims=[64,64]", "optimizer_eps=1e-6"))
    assert "hidden_dims" not in changed and changed["optimizer_eps"] == 1e-6 and "spec" not in changed
    mine = load_config("CartPole-v1", "ppo")
    object.__setattr__(mine, "variant", "mine")
    assert command_of(mine) == "", "there is none where the variant is not a shipped one"


def test_overrides_of_the_spec_and_of_the_algorithm_where_the_keys_allow(tmp_path):
    config = cartpole("spec.goal=200", "spec.source=here")
    assert config.spec.goal == 200.0 and config.spec.source == "here"
    assert config.spec.actions == ("push left", "push right")
    assert cartpole("spec={returns: [-500, 0], goal: -90}").spec.goal == -90.0
    assert cartpole("spec={goal: 3}").spec.actions == ()
    words = ["algo_id=reinforce", "policy_targets=advantages"]
    assert isinstance(ppo(tmp_path, "ppo: {max_timesteps: 1e5}\n", *words), REINFORCEConfig)


MINIBATCHES = {
    "batch_size=1.0": 256, "batch_size=0.25": 64, "batch_size=0.26 n_envs=1 n_steps=4": 1,
    "n_envs=3 n_steps=100 batch_size=0.01": 3, "n_envs=4 n_steps=25 batch_size=50": 50,
}  # fmt: skip
FOR_DEBUGGER = {
    "batch_size=0.25": 0.25, "batch_size=1.0": 1.0, "batch_size=64": 32, "batch_size=16": 16,
    "n_steps=30 batch_size=0.25": 6, "n_steps=30 n_envs=8 batch_size=80": 30, "n_steps=1 n_envs=64 batch_size=0.5": 2,
}  # fmt: skip


@pytest.mark.parametrize("words", MINIBATCHES)
def test_minibatch_size(words):
    assert cartpole(*words.split(), "normalize_advantages=off").minibatch_size == MINIBATCHES[words]
    assert PPOConfig(n_envs=1, n_steps=100, batch_size=0.29).minibatch_size == 29  # 0.29 * 100 = 28.999999999999996
    assert nearest_sizes(256, 100) == nearest_sizes(256, 127) == [64, 128] and nearest_sizes(97, 50) == [1, 97]
    assert nearest_sizes(10**12, 3 * 10**5) == [256_000, 312_500]


@pytest.mark.parametrize("words", FOR_DEBUGGER)
def test_for_debugger(words):
    config = for_debugger(cartpole(*words.split()))
    assert isinstance(config, RolloutConfig) and config.n_envs == 1
    assert config.batch_size == FOR_DEBUGGER[words] and type(config.batch_size) is type(FOR_DEBUGGER[words])
    assert config.rollout_size % config.minibatch_size == 0


THREE = {1: "the first", 2: "lr is called policy_lr", 3: "batch_size counts rows"}
STEPS = {
    1: lambda plain: {"policy_lr": plain.pop("lr"), **plain},
    2: lambda plain: {**plain, "batch_size": plain["batch_size"] * 10},
}


def test_every_migration_is_done_once_and_where_one_is_missing_the_changes_since_are_listed():
    old = {"schema_version": 1, "lr": 0.1, "batch_size": 2}
    assert migrate(old, STEPS, 3, THREE) == {"schema_version": 3, "policy_lr": 0.1, "batch_size": 20}
    assert migrate({**old, "schema_version": 2}, STEPS, 3, THREE)["lr"] == 0.1
    assert old == {"schema_version": 1, "lr": 0.1, "batch_size": 2}, "the original is left alone"
    with pytest.raises(UserError, match=r"is 1, but this Stride reads 3; .*2: lr is called policy_lr; 3: batch_size"):
        migrate({"schema_version": 1}, {2: STEPS[2]}, 3, THREE)
    assert set(MIGRATIONS) == set(range(1, SCHEMA_VERSION)) and set(CHANGES) == set(range(1, SCHEMA_VERSION + 1))


def test_a_config_written_today_is_read_tomorrow_with_keys_it_lacks():
    """Keys that came later have defaults, so they need no version of their own."""
    plain = to_plain(load_config("CartPole-v1", "ppo"))
    for key in ("nan_guard", "checkpoint_minutes", "accumulate"):
        del plain[key]
    assert from_plain(plain) == load_config("CartPole-v1", "ppo")


# ---- schedules: values by hand, parsing, and how files, variants and overrides replace one another

AT = [  # at env steps of a run of 1000
    (Schedule("linear", 1.0, 0.0), {0: 1.0, 250: 0.75, 500: 0.5, 1000: 0.0, 5000: 0.0}),
    (Schedule("linear", 1.0, 0.2, 0.25, 0.75), {0: 1.0, 250: 1.0, 500: 0.6, 750: 0.2, 1000: 0.2}),
    (Schedule("linear", 1.0, 0.0, 100, 300), {0: 1.0, 100: 1.0, 200: 0.5, 300: 0.0, 1000: 0.0}),
    (Schedule("linear", 1.0, 0.0, 0.5, 900), {500: 1.0, 700: 0.5, 900: 0.0}),
    (Schedule("cosine", 2.0, 0.0), {0: 2.0, 250: 1 + math.sqrt(0.5), 500: 1.0, 1000: 0.0}),
    (Schedule("exponential", 1.0, 0.01), {0: 1.0, 500: 0.1, 1000: 0.01}),
    (Schedule("exponential", -1.0, -4.0), {0: -1.0, 500: -2.0, 1000: -4.0}),
    (Schedule("warmup", 0.0, 3.0, 0.0, 0.1), {0: 0.0, 50: 1.5, 100: 3.0, 1000: 3.0}),
    (Schedule("linear", 1.0, 5.0, 0.5, 0.5), {0: 1.0, 499: 1.0, 500: 5.0}),
]
PARTS = """
max_timesteps: 1e5
ppo:
  policy_lr: 1e-3
  policy_lr_schedule: linear
  policy_lr_schedule_end_value: 1e-4
  policy_lr_schedule_start: 0.5
  policy_lr_schedule_end: 80_000
"""
OF_PARTS = {  # an override, and the schedule that PARTS become by it
    "gamma=0.9": Schedule("linear", 1e-3, 1e-4, 0.5, 80_000),
    "policy_lr=5e-4": Schedule("linear", 5e-4, 1e-4, 0.5, 80_000), "policy_lr=cos_5e-4": Schedule("cosine", 5e-4, 0.0),
    "policy_lr_schedule=null": 1e-3, "policy_lr_schedule=cosine": Schedule("cosine", 1e-3, 1e-4, 0.5, 80_000),
    "policy_lr_schedule_start_value=2e-3": Schedule("linear", 2e-3, 1e-4, 0.5, 80_000),
    "policy_lr_schedule_end=1.0": Schedule("linear", 1e-3, 1e-4, 0.5, 1.0),
    "policy_lr={kind:linear,start_value:1}": Schedule("linear", 1.0, 0.0),
}  # fmt: skip
OF_NAME = {  # what lin_0.001 becomes
    "policy_lr=5e-4": 5e-4, "policy_lr=linear_1e-2": Schedule("linear", 0.01, 0.0),
    "policy_lr=exp_0.1": Schedule("exponential", 0.1, 0.001), "policy_lr_schedule=null": 1e-3,
    "policy_lr_schedule=exponential": Schedule("exponential", 1e-3, 1e-5),
    "policy_lr_schedule_end=0.5": Schedule("linear", 1e-3, 0.0, 0.0, 0.5),
    "policy_lr_schedule=warmup": Schedule("warmup", 0.0, 1e-3, 0.0, 0.05),
}  # fmt: skip


@pytest.mark.parametrize(("schedule", "expected"), AT)
def test_values(schedule, expected):
    assert {step: schedule.at(step, 1000) for step in expected} == pytest.approx(expected)
    assert Schedule("linear", 1.0, 0.0, 0, 1).span(1000) == (0, 1000), "a bound of one is the whole run"
    assert Schedule("linear", 1.0, 0.0, 2, 1000).span(1_000_000) == (2, 1000)


@pytest.mark.parametrize("override", OF_PARTS)
def test_overrides_of_parts(override, tmp_path):
    assert ppo(tmp_path, PARTS, override).policy_lr == OF_PARTS[override]


@pytest.mark.parametrize("override", OF_NAME)
def test_overrides_of_a_name(override):
    assert cartpole(override).policy_lr == pytest.approx(OF_NAME[override])


def test_the_default_is_where_a_schedule_starts(tmp_path):
    words = "policy_lr_schedule=linear", "clip_range_vf_schedule=cosine", "clip_range_vf_schedule_start_value=0.3"
    started = {"policy_lr": Schedule("linear", 3e-4, 0.0), "clip_range_vf": Schedule("cosine", 0.3, 0.0)}
    assert ppo(tmp_path, "ppo: {max_timesteps: 1e5}", *words).schedules() == started
    text = "policy_lr_schedule: linear\npolicy_lr_schedule_start_value: 1\nppo: {policy_lr: 0.5, max_timesteps: 1e5}\n"
    assert ppo(tmp_path, text).policy_lr == Schedule("linear", 0.5, 0.0)  # around the variant's own number
    assert cartpole().schedules().keys() == {"policy_lr", "clip_range"}
    assert load_file(EXAMPLE, "reinforce").schedules() == {}
