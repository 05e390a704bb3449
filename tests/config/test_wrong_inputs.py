"""Every wrong input gets one line that names what is wrong, where, and the nearest right name or the allowed values."""

import re
from dataclasses import fields
from pathlib import Path

import gymnasium
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refusal, refusals

from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.commands.train_opening import checked
from stride.config import foreign
from stride.config.fields import hints, known_keys
from stride.config.loader import from_plain, load_config, load_file, parse_config_id, to_plain
from stride.config.schema import ALGORITHMS, PPOConfig
from stride.utils.user_error import UserError

EXAMPLE = Path(__file__).parent / "CartPole-v1.yaml"
GOOD = "max_timesteps: 1e5\nppo: {}\n"
KEYS = [item.name for item in fields(PPOConfig) if len(item.name) > 5]

TOPS = [  # on top of a file that is right without
    "gama: 0.9", "env_kwarg: {x: 1}", "learning_rate: 2.5e-4", "threshold_solved: 200", "n_envs: 8\nn_envs: 16",
    "share_trunk: no", "eval_deterministic: on", "normalize_reward: 1", "gamma: high", "gamma: .nan", "gamma: true",
    "seed: [1, 2]", "seed: 1.5", "description: 5", "optimizer: adamm", "normalize_obs: off", "env_kwargs: [1]",
    "env_kwargs: {1: 2}", "env_kwargs: &a {x: *a}", "env_kwargs: {x: !!set {a}}", "env_wrappers: [FrameSkip]",
    "env_wrappers: [{skip: 4}]", "hidden_dims: [64, big]", "env_id: !!python/name:os.system", "1: 2",
    "_inherit_: ppo", "_base: {gamma: 1}\ngamma: 1", "_base: 5", "variant: x", "schema_version: 7",
    "spec: {gaol: 475}", "spec: {goal: high}", "spec: {returns: [5, 1]}", "spec: {returns: [0, 500], goal: 501}",
    "spec: {returns: [0, 1, 2]}", "spec: {observations: [{low: 0}]}", "spec: {observations: [{name: x, hihg: 0}]}",
    "spec: {actions: [{name: x, low: 1, high: 0}]}", "spec: {actions: [a, b], valid_actions: [2]}",
    "spec: {valid_actions: [1, 1]}", "spec: {rewards: {alive: 1}}", "policy_lr: {kind: linear, strat_value: 1}",
    "policy_lr_schedule_end: 0.5", "policy_lr: 1\npolicy_lr_schedule: linear\npolicy_lr_schedule_start_value: 2",
    "target_kl_schedule: linear", "n_envs_schedule: linear",
]  # fmt: skip
FILES = [
    "max_timesteps: 1e5\nppo: {clip_rnge: 0.2}", "max_timesteps: 1e5\nppo: {gamma: 1, seed: 2, gamma: 0.9}",
    "_a: &a {seed: 1}\n_b: &b {seed: 2}\nppo:\n  <<: *a\n  <<: *b", "ppo: {max_timesteps: 1e5\nseed: 1",
    "ppo:\n\tgamma: 1", "", "- ppo", "ppo: {1: 2}", "gamma: 0.9", "ppo:", "ppo: {}",
    "max_timesteps: 1e5\nmine: {gamma: 1}", "max_timesteps: 1e5\nmine: {algo_id: pppo}",
    "max_timesteps: 1e5\n'a b': {algo_id: ppo}", "ppo: {_inherit_: base}",
    "ppo: {_inherit_: b}\nb: {_inherit_: ppo}", "clip_range: 0.2\nmax_timesteps: 1e5\nreinforce: {}",
    "max_timesteps: 1e5\nreinforce: {vf_coef: 1}", "max_timesteps: 1e5\nreinforce: {policy_targets: gae}",
    "max_timesteps: 1e5\nreinforce: {returns_type: mc:rtgo}",
]  # fmt: skip
OVERRIDES = [  # of CartPole-v1:ppo; a list where a word holds a blank
    "polcy_lr=1e-3", "gamma", "=5", "+gamma=1", "++gamma=1", "~gamma", ["gamma=1\nseed=2"], ["gamma =1"], "seed=1,2",
    "seed=range(0,5)", "gamma=0.9,0.99", "gamma=[1", "gamma@x=1", "gamma.x=1", "spec.=1", "spec.gaol=1",
    "spec.goal.x=1", "hydra.run.dir=x", "variant=other", "seed=-1", "seed=9223372036854775808", "n_envs=0",
    "n_envs=1.5", "n_envs=many", "n_envs=", "n_envs=null", "n_envs=true", "gamma=1.01", "gamma=inf", "n_epochs=lin_4",
    "clip_range=0", "clip_range=lin_0", "policy_lr=lin_-1", "policy_lr=lin_fast", "policy_lr=linn_0.1",
    "policy_lr=exp_0", "policy_lr_schedule=linaer", "policy_lr_schedule_end=-1",
    "policy_lr_schedule_start=149000 policy_lr_schedule_end=0.5", "policy_lr_schedul=linear",
    "policy_targets=returns", "returns_type_schedule=linear", "algo_id=reinforce", "algo_id=a2c", "device=gpu",
    "device=cuda:01", "device=cuda:-1", "engine=fused_gpu", "engine=eagre", "engine=graphed",
    "engine=graphed device=cpu", "engine=fused_cpu device=cuda:1", "engine=fused_cpu precision=bf16",
    "precision=tf32", "precision=16", "precision=fp16", "env_backend=jax", "env_backend=envpool", "batch_size=1.5",
    "batch_size=0", "batch_size=100", "batch_size=0.3", "batch_size=512", "n_envs=3 batch_size=64", "batch_size=1",
    "max_timesteps=null", "max_timesteps=0", "max_timesteps=-5", "max_timesteps=100", "eval_freq_epochs=-1",
    "eval_freq_epochs=0 early_stop_on_eval_threshold=400", "early_stop_on_eval_threshold=never", "seed=1 seed=2",
    "spec={goal:1} spec.goal=2", "--gama=0.9",
]  # fmt: skip
PLATEAUS = [  # of plateau, where a word begins with a dot
    "plateau={}", "plateau=3", ".scal=3", ".metric=val/rol/ep_rew/mean .then=stop",
    ".metric=train/policy/entropy .then=stop", ".metric=train/time/seconds .then=stop",
    ".metric=test/roll/ep_rew/mean .then=stop",
    ".then=stop eval_freq_epochs=null early_stop_on_eval_threshold=false",
    ".then=stop .patience=0", ".then=halt",
    ".then=stop .times=null .scale.policy_lr=0.5", ".scale.policy_l=0.5", ".scale.n_epochs=0.5", ".scale.policy_lr=1",
    ".scale.policy_lr=half", ".scale.max_grad_norm=0.5 max_grad_norm=null", ".scale.ent_coef=0.5 ent_coef=0",
    ".scale.policy_lr=2 .times=null", ".scale.epsilon=3 .times=5",
]  # fmt: skip
IDS = ["CartPole-v1", "CartPole-v1:", "CartPole-v1:pppo", "CartPol-v1:ppo", "zzz:ppo", ":ppo", "", "CartPole-v1:ppo:x",
       "../CartPole-v1:ppo"]  # fmt: skip
PLAIN = [*({"schema_version": version} for version in (0, 2, 99, "1", None, True, 1.5)), {"n_env": 8},
         {"algo_id": "a2c"}, {"n_envs": "many"}, {"batch_size": 100}, {"returns_type": "mc:rtg"}]  # fmt: skip


def load(text):
    path = Path("Test-v0.yaml")
    path.write_text(text)
    return load_file(path)


def override(words):
    return load_file(EXAMPLE, "ppo", words if isinstance(words, list) else words.split())


def plateau(words):
    variant = "dqn" if "epsilon" in words else "ppo"
    return load_config("CartPole-v1", variant, [re.sub(r"^\.", "plateau.", word) for word in words.split()])


TABLES = {
    "above": (lambda text: load(f"{text}\n{GOOD}"), TOPS),
    "files": (load, FILES),
    "overrides": (override, OVERRIDES),
    "plateaus": (plateau, PLATEAUS),
    "ids": (parse_config_id, IDS),
    "config.json": (lambda change: from_plain({**to_plain(load_file(EXAMPLE, "ppo")), **change}), PLAIN),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_wrong_input_is_refused_in_a_line(name, tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    assert refusals(*TABLES[name]) == snapshot


@given(st.sampled_from(KEYS), st.integers(1, 50))
def test_a_key_without_one_of_its_letters_is_answered_with_the_key(key, place):
    letter = place % len(key)
    shorter = key[:letter] + key[letter + 1 :]
    assume(all(shorter not in hints(algorithm) for algorithm in ALGORITHMS.values()))  # n_steps, and n_step of dqn
    assert key in refusal(override, f"{shorter}=1").rpartition("did you mean")[2]


@pytest.mark.parametrize(("name", "contents"), [("none.yaml", None), ("", None), ("bytes.yaml", b"\xff\xfe\xff\xff")])
def test_what_is_no_file_of_text_is_refused_by_its_name(name, contents, tmp_path):
    path = tmp_path / name
    if contents:
        path.write_bytes(contents)
    line = refusal(load_file, path)
    assert path.name in line and ("UTF-8" in line if contents else "cannot read" in line)


@pytest.mark.parametrize("config_id", ["CartPole-v1:dqn", "CartPole-v1:pqn"])
def test_algorithms_of_raw_rewards_refuse_to_scale_them(config_id):
    line = refusal(lambda words: load_config(*config_id.split(":"), [words]), "normalize_reward=true")
    assert "raw rewards" in line


# ---- names of other frameworks

LINES = {
    "CartPole-v1:dqn target_update_interval=5": "in Stride it is called target_freq",
    "CartPole-v1:dqn exploration_fraction=0.1": "in Stride it is called epsilon_schedule_end",
    "CartPole-v1:ppo learning-rate=1e-3": "in Stride it is called policy_lr", "CartPole-v1:ppo verbose=1": "-q",
    "CartPole-v1:ppo env=x": "CartPole-v1:ppo", "CartPole-v1:ppo --track": r"logger=\[wandb\]",
    "--algo ppo --env CartPole-v1": "CartPole-v1:ppo", "CartPole-v1:ddpg": "Stride has no DDPG",
    "CartPole-v1:a2c": "Stride has no A2C, the closest is ppo",
    "PongNoFrameskip-v4:ppo": "its name in Gymnasium is ALE/Pong-v5", "Pong-v5:ppo": "did you mean ALE/Pong-v5",
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_foreign_name_is_answered_with_the_one_here(line, monkeypatch):
    for name in [name for name in gymnasium.registry if "Pong" in name]:  # ale-py was imported by another test
        monkeypatch.delitem(gymnasium.registry, name)
    with pytest.raises(UserError, match=LINES[line]):
        train.main(line.split())


def test_what_is_offered_exists():
    keys = {key for algo_id in ALGORITHMS for key in known_keys(algo_id)}
    assert {name for name in foreign.KEYS_HERE.values() if name != "spec.goal"} <= keys
    assert not keys & {*foreign.KEYS_HERE}
    assert {*foreign.NEAREST_ALGORITHM.values()} <= {*ALGORITHMS}


def test_a_package_that_is_not_installed_is_named_before_torch_is_loaded(monkeypatch):
    monkeypatch.setattr("stride.config.extras.find_spec", lambda module: None)
    with pytest.raises(UserError, match=r"LunarLander-v3 needs Box2D: pip install"):
        checked(parse_arguments(["LunarLander-v3:ppo"]))
