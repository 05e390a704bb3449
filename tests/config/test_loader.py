"""Files, inheritance, overrides, types and the way to plain data and back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stride.commands.train_arguments import for_debugger
from stride.config.checks import nearest_sizes
from stride.config.loader import environment_files, from_plain, load_config, load_file, parse_config_id, to_plain
from stride.config.raw import EnvironmentFile
from stride.config.schema import PPOConfig, REINFORCEConfig, RolloutConfig
from stride.config.yaml_file import read_yaml

ROOT = Path(__file__).parents[2]
SHIPPED = [(stem, name) for stem, path in environment_files().items() for name in EnvironmentFile.read(path).variants]
REQUIRED = [("CartPole-v1", "ppo"), ("CartPole-v1", "reinforce"), ("Acrobot-v1", "ppo"), ("Pendulum-v1", "ppo"),
            ("MountainCar-v0", "ppo"), ("FrozenLake-v1", "ppo")]  # fmt: skip


def ppo(tmp_path: Path, text: str, *overrides: str, variant: str = "ppo") -> PPOConfig:
    path = tmp_path / "Test-v0.yaml"
    path.write_text(text)
    config = load_file(path, variant, overrides)
    assert isinstance(config, PPOConfig)
    return config


def cartpole(*overrides: str) -> PPOConfig:
    config = load_file(Path(__file__).parent / "CartPole-v1.yaml", "ppo", overrides)
    assert isinstance(config, PPOConfig)
    return config


def test_required_variants_are_shipped() -> None:
    assert set(REQUIRED) <= set(SHIPPED)


@pytest.mark.parametrize(("stem", "variant"), SHIPPED)
def test_shipped_variant(stem: str, variant: str) -> None:
    config = load_config(stem, variant)
    assert config.env_id.replace("/", "-") == stem and config.variant == variant and config.project_id == stem
    assert 0 < len(config.description) <= 100 and "\n" not in config.description
    assert config.spec.description and config.spec.observations and config.spec.actions
    assert config.eval_freq_epochs is not None
    plain = json.loads(json.dumps(to_plain(config), allow_nan=False))
    assert from_plain(plain) == config
    assert for_debugger(config).n_envs == 1


def test_parse_config_id() -> None:
    assert parse_config_id("CartPole-v1:reinforce") == ("CartPole-v1", "reinforce")


def test_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config("CartPole-v1", "ppo").env_id == "CartPole-v1"


def test_the_stem_names_environment_and_project(tmp_path: Path) -> None:
    config = ppo(tmp_path, "ppo: {max_timesteps: 1e5}\n")
    assert (config.env_id, config.project_id, config.algo_id, config.variant) == ("Test-v0", "Test-v0", "ppo", "ppo")
    assert config.max_timesteps == 100_000 and isinstance(config.max_timesteps, int)


def test_a_flat_file_is_its_own_variant(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("env_id: CartPole-v1\nalgo_id: reinforce\nmax_timesteps: 10000\n")
    config = load_file(path)
    assert isinstance(config, REINFORCEConfig) and config.variant == "reinforce" and config.project_id == "mine"


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


def test_layers(tmp_path: Path) -> None:
    config = ppo(tmp_path, LAYERS, variant="faster")
    assert (config.gamma, config.n_envs, config.n_epochs) == (0.8, 32, 1)
    assert config.env_kwargs == {"a": 1, "b": {"c": 5, "d": 3}}
    assert ppo(tmp_path, LAYERS).env_kwargs == {"a": 1, "b": {"c": 2, "d": 3}}
    assert ppo(tmp_path, LAYERS, variant="private").n_envs == 32
    merged = ppo(tmp_path, LAYERS, variant="merged")
    assert (merged.n_envs, merged.seed) == (16, 7)
    assert EnvironmentFile.read(tmp_path / "Test-v0.yaml").variants == ["ppo", "fast", "faster", "private", "merged"]


def test_yaml_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1e-3\nb: 1e5\nc: no\nd: 010\ne: 1_000\nf: 12:30\ng: 2020-01-01\nh: .5\ni: -1.5\nj: true\n"
                    "k: ~\nl:\nm: '1e-3'\nn: on\no: 1E+2\nyes: y\n")  # fmt: skip
    assert read_yaml(path) == {
        "a": 1e-3, "b": 1e5, "c": "no", "d": 10, "e": 1000, "f": "12:30", "g": "2020-01-01", "h": 0.5, "i": -1.5,
        "j": True, "k": None, "l": None, "m": "1e-3", "n": "on", "o": 100.0, "yes": "y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("override", "name", "expected"),
    [
        ("policy_lr=1e-3", "policy_lr", 1e-3),
        ("max_timesteps=1e6", "max_timesteps", 1_000_000),
        ("max_timesteps=200_000", "max_timesteps", 200_000),
        ("seed=0", "seed", 0),
        ("gamma=1", "gamma", 1.0),
        ("gamma='0.5'", "gamma", 0.5),
        ("--gamma=0.5", "gamma", 0.5),
        ("hidden_dims=[32,16]", "hidden_dims", (32, 16)),
        ("hidden_dims=64", "hidden_dims", (64,)),
        ("hidden_dims=[]", "hidden_dims", ()),
        ("normalize_obs=true", "normalize_obs", "rolling"),
        ("normalize_obs=static", "normalize_obs", "static"),
        ("normalize_obs=false", "normalize_obs", False),
        ("normalize_advantages=off", "normalize_advantages", "off"),
        ("share_trunk=true", "share_trunk", True),
        ("clip_range_vf=0.1", "clip_range_vf", 0.1),
        ("clip_range_vf=null", "clip_range_vf", None),
        ("max_grad_norm=null", "max_grad_norm", None),
        ("eval_freq_epochs=0", "eval_freq_epochs", None),
        ("eval_freq_epochs=null", "eval_freq_epochs", None),
        ("early_stop_on_eval_threshold=15", "early_stop_on_eval_threshold", 15.0),
        ("early_stop_on_eval_threshold=-90", "early_stop_on_eval_threshold", -90.0),
        ("early_stop_on_eval_threshold=1", "early_stop_on_eval_threshold", 1.0),
        ("early_stop_on_train_threshold=true", "early_stop_on_train_threshold", True),
        ("device=cuda:1", "device", "cuda:1"),
        ("precision=32", "precision", 32),
        ("precision='32'", "precision", 32),
        ("precision=bf16", "precision", "bf16"),
        ("env_kwargs.render.size=[4,5]", "env_kwargs", {"render": {"size": [4, 5]}}),
        ("env_wrappers=[{id:A,x:1}]", "env_wrappers", ({"id": "A", "x": 1},)),
        ("description='a, b: c'", "description", "a, b: c"),
        ("batch_size=1.0", "batch_size", 1.0),
        ("batch_size=64", "batch_size", 64),
        ("batch_size=64.0", "batch_size", 64),
    ],
)
def test_override_types(override: str, name: str, expected: object) -> None:
    value = vars(cartpole(override))[name]
    assert value == expected and type(value) is type(expected)


def test_overrides_of_the_spec() -> None:
    config = cartpole("spec.goal=200", "spec.source=here")
    assert config.spec.goal == 200.0 and config.spec.source == "here"
    assert config.spec.actions == ("push left", "push right")
    assert cartpole("spec={returns: [-500, 0], goal: -90}").spec.goal == -90.0
    assert cartpole("spec={goal: 3}").spec.actions == ()


def test_algorithm_can_change_where_the_keys_allow(tmp_path: Path) -> None:
    path = tmp_path / "Test-v0.yaml"
    path.write_text("ppo: {max_timesteps: 1e5}\n")
    assert isinstance(load_file(path, "ppo", ["algo_id=reinforce", "policy_targets=advantages"]), REINFORCEConfig)


@pytest.mark.parametrize(
    ("overrides", "rows"),
    [
        (["batch_size=1.0"], 256),
        (["batch_size=0.25"], 64),
        (["batch_size=0.26", "n_envs=1", "n_steps=4"], 1),
        (["n_envs=3", "n_steps=100", "batch_size=0.01"], 3),
        (["n_envs=4", "n_steps=25", "batch_size=50"], 50),
    ],
)
def test_minibatch_size(overrides: list[str], rows: int) -> None:
    assert cartpole(*overrides, "normalize_advantages=off").minibatch_size == rows


def test_a_fraction_is_not_a_victim_of_rounding() -> None:
    assert PPOConfig(n_envs=1, n_steps=100, batch_size=0.29).minibatch_size == 29  # 0.29 * 100 = 28.999999999999996


def test_nearest_sizes_are_divisors() -> None:
    assert nearest_sizes(256, 100) == [64, 128]
    assert nearest_sizes(97, 50) == [1, 97]
    assert nearest_sizes(10**12, 3 * 10**5) == [256_000, 312_500]


@pytest.mark.parametrize(
    ("overrides", "batch_size"),
    [
        (["batch_size=0.25"], 0.25),
        (["batch_size=1.0"], 1.0),
        (["batch_size=64"], 32),
        (["batch_size=16"], 16),
        (["n_steps=30", "batch_size=0.25"], 6),
        (["n_steps=30", "n_envs=8", "batch_size=80"], 30),
        (["n_steps=1", "n_envs=64", "batch_size=0.5"], 2),
    ],
)
def test_for_debugger(overrides: list[str], batch_size: float) -> None:
    before = cartpole(*overrides)
    config = for_debugger(before)
    assert isinstance(config, RolloutConfig)
    assert config.n_envs == 1 and config.batch_size == batch_size and type(config.batch_size) is type(batch_size)
    assert config.rollout_size % config.minibatch_size == 0


def test_round_trip_of_everything_unusual() -> None:
    config = cartpole(
        "policy_lr=exp_1e-3", "hidden_dims=[8]", "env_kwargs={a: [1, {b: null}]}", "env_wrappers=[{id: X}]",
        "normalize_obs=static", "batch_size=1.0", "spec.valid_actions=[0]", "seed=9223372036854775807",
        "early_stop_on_eval_threshold=-1", "max_episode_steps=9",
    )  # fmt: skip
    plain = json.loads(json.dumps(to_plain(config), allow_nan=False))
    again = from_plain(plain)
    assert again == config and again.schedules() == config.schedules()
    assert isinstance(again, PPOConfig) and again.minibatch_size == config.minibatch_size
    assert to_plain(again) == plain


def test_importing_the_loader_loads_no_torch() -> None:
    code = "import sys; from stride.config import listing, loader, manual, metrics; "
    heavy = ("torch", "numba", "lightning", "gymnasium")
    code += f"print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_slash_in_the_id_is_a_dash_in_the_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ALE-Pong-v5.yaml").write_text("env_id: ALE/Pong-v5\nppo: {max_timesteps: 1e5}\n")
    monkeypatch.setattr("stride.config.loader.ENVIRONMENTS", tmp_path)
    config = load_config(*parse_config_id("ALE/Pong-v5:ppo"))
    assert (config.env_id, config.project_id) == ("ALE/Pong-v5", "ALE-Pong-v5")
