"""Every wrong input gets one line that names what is wrong, where, and the nearest right name or the allowed values."""

from pathlib import Path

import pytest

from stride.config.loader import from_plain, load_file, parse_config_id, to_plain
from stride.config.schema import ALGORITHMS
from stride.utils.user_error import UserError

EXAMPLE = Path(__file__).parent / "CartPole-v1.yaml"
KNOWN = ", ".join(ALGORITHMS)
GOOD = "max_timesteps: 1e5\nppo: {}\n"

FILES = [  # (YAML text, fragment of the error)
    ("gama: 0.9\n" + GOOD, "Test-v0.yaml: unknown key 'gama'; did you mean gamma"),
    ("max_timesteps: 1e5\nppo: {clip_rnge: 0.2}\n", ":ppo: unknown key 'clip_rnge'; did you mean clip_range"),
    ("env_kwarg: {x: 1}\n" + GOOD, f"Test-v0.yaml:env_kwarg: needs algo_id ({KNOWN}); did you mean env_kwargs"),
    ("learning_rate: 2.5e-4\n" + GOOD, "unknown key 'learning_rate'; it is called policy_lr here"),
    ("threshold_solved: 200\n" + GOOD, "unknown key 'threshold_solved'; it is called spec.goal here"),
    ("n_envs: 8\nn_envs: 16\n" + GOOD, "Test-v0.yaml:2: 'n_envs' is given twice, first on line 1"),
    ("max_timesteps: 1e5\nppo: {gamma: 1, seed: 2, gamma: 0.9}\n", "Test-v0.yaml:2: 'gamma' is given twice"),
    ("_a: &a {seed: 1}\n_b: &b {seed: 2}\nppo:\n  <<: *a\n  <<: *b\n", "Test-v0.yaml:5: '<<' is given twice"),
    ("share_trunk: no\n" + GOOD, "share_trunk takes true or false, not 'no' (only true and false are; no is text)"),
    ("eval_deterministic: on\n" + GOOD, "eval_deterministic takes true or false, not 'on'"),
    ("normalize_reward: 1\n" + GOOD, "normalize_reward takes true or false, not 1"),
    ("gamma: high\n" + GOOD, "Test-v0.yaml: gamma takes a number, not 'high'"),
    ("gamma: .nan\n" + GOOD, "gamma takes a number, not nan"),
    ("gamma: true\n" + GOOD, "gamma takes a number, not true"),
    ("seed: [1, 2]\n" + GOOD, "seed takes a whole number, not [1, 2]"),
    ("seed: 1.5\n" + GOOD, "seed takes a whole number, not 1.5"),
    ("description: 5\n" + GOOD, "description takes text, not 5 (put it in quotes)"),
    ("optimizer: adamm\n" + GOOD, "optimizer takes adamw, adam, rmsprop, sgd, laprop, not 'adamm'; did you mean adam"),
    ("normalize_obs: off\n" + GOOD, "normalize_obs takes false, rolling, static, not 'off'"),
    ("env_kwargs: [1]\n" + GOOD, "env_kwargs takes a mapping, not [1]"),
    ("env_kwargs: {1: 2}\n" + GOOD, "env_kwargs has the key 1, which is not text"),
    ("env_kwargs: &a {x: *a}\n" + GOOD, "nested too deep"),
    ("env_kwargs: {x: !!set {a, b}}\n" + GOOD, "env_kwargs.x takes numbers, text"),
    ("env_wrappers: [FrameSkip]\n" + GOOD, "env_wrappers[0] takes a mapping, not 'FrameSkip'"),
    ("env_wrappers: [{skip: 4}]\n" + GOOD, "{'skip': 4} has no id"),
    ("hidden_dims: [64, big]\n" + GOOD, "hidden_dims takes a list (a whole number each), not [64, 'big']"),
    ("env_id: !!python/name:os.system\n" + GOOD, "Test-v0.yaml:1: could not determine a constructor"),
    ("ppo: {max_timesteps: 1e5\nseed: 1\n", "Test-v0.yaml:2:"),
    ("ppo:\n\tgamma: 1\n", "Test-v0.yaml:2: found character '\\t'"),
    ("", "Test-v0.yaml holds nothing"),
    ("- ppo\n", "Test-v0.yaml holds no mapping"),
    ("1: 2\n" + GOOD, "the key 1 is not text"),
    ("ppo: {1: 2}\n", "the key 1 is not text"),
    ("gamma: 0.9\n", "Test-v0.yaml has no variant"),
    ("ppo:\n", "the variant 'ppo' is empty; write ppo: {}"),
    ("ppo: {}\n", "Test-v0.yaml:ppo: max_timesteps is missing"),
    ("max_timesteps: 1e5\nmine: {gamma: 1}\n", f"Test-v0.yaml:mine: needs algo_id ({KNOWN})"),
    ("max_timesteps: 1e5\nmine: {algo_id: pppo}\n", f"no algorithm 'pppo' ({KNOWN}); did you mean ppo"),
    ("max_timesteps: 1e5\n'a b': {algo_id: ppo}\n", "'a b' cannot name a variant"),
    ("ppo: {_inherit_: base}\n", "Test-v0.yaml:ppo: _inherit_ names no block of this file: 'base'"),
    ("ppo: {_inherit_: b}\nb: {_inherit_: ppo}\n", "_inherit_ goes in a circle: ppo -> b -> ppo"),
    ("_inherit_: ppo\n" + GOOD, "_inherit_ belongs inside a variant"),
    ("_base: {gamma: 1}\ngamma: 1\n" + GOOD, "gamma is given both on top and under _base"),
    ("_base: 5\n" + GOOD, "_base holds fields, not 5"),
    ("variant: x\n" + GOOD, "variant is set by ENV:VARIANT"),
    ("schema_version: 7\n" + GOOD, "schema_version is 7, this program reads 1"),
    ("clip_range: 0.2\nmax_timesteps: 1e5\nreinforce: {}\n", "clip_range belongs to ppo; reinforce has returns_type"),
    ("max_timesteps: 1e5\nreinforce: {vf_coef: 1}\n", "vf_coef does nothing without policy_targets: advantages"),
    ("max_timesteps: 1e5\nreinforce: {policy_targets: gae}\n", "policy_targets takes returns, advantages, not 'gae'"),
    ("max_timesteps: 1e5\nreinforce: {returns_type: mc:rtgo}\n", "did you mean mc:rtg"),
    ("spec: {gaol: 475}\n" + GOOD, "Test-v0.yaml: spec has no 'gaol'; did you mean goal"),
    ("spec: {goal: high}\n" + GOOD, "spec.goal takes a number or null, not 'high'"),
    ("spec: {returns: [5, 1]}\n" + GOOD, "spec.returns: low 5 is above high 1"),
    ("spec: {returns: [0, 500], goal: 501}\n" + GOOD, "spec.goal 501 is outside spec.returns [0, 500]"),
    ("spec: {returns: [0, 1, 2]}\n" + GOOD, "spec.returns takes [low, high] or null"),
    ("spec: {observations: [{low: 0}]}\n" + GOOD, "spec.observations[0] needs a name"),
    ("spec: {observations: [{name: x, hihg: 0}]}\n" + GOOD, "spec.observations[0] has no 'hihg'; did you mean high"),
    ("spec: {actions: [{name: x, low: 1, high: 0}]}\n" + GOOD, "spec: x: low 1 is above high 0"),
    ("spec: {actions: [a, b], valid_actions: [2]}\n" + GOOD, "spec.valid_actions has 2"),
    ("spec: {valid_actions: [1, 1]}\n" + GOOD, "spec.valid_actions lists each action once"),
    ("spec: {rewards: {alive: 1}}\n" + GOOD, "spec.rewards.alive takes text, not 1"),
    ("policy_lr: {kind: linear, strat_value: 1}\n" + GOOD, "policy_lr: a schedule has no 'strat_value'"),
    ("policy_lr_schedule_end: 0.5\n" + GOOD, "policy_lr_schedule_end needs policy_lr_schedule (linear"),
    ("policy_lr: 1\npolicy_lr_schedule: linear\npolicy_lr_schedule_start_value: 2\n" + GOOD, "contradict each other"),
    ("target_kl_schedule: linear\n" + GOOD, "target_kl_schedule needs target_kl_schedule_start_value"),
    ("gamma_schedule: linear\n" + GOOD, "gamma cannot follow a schedule; policy_lr, max_grad_norm"),
]

OVERRIDES = [  # (overrides on CartPole-v1:ppo, fragment)
    ("polcy_lr=1e-3", "polcy_lr=1e-3: unknown key 'polcy_lr'; did you mean policy_lr"),
    ("gamma", "'gamma' is not an override; write key=value"),
    ("=5", "'=5' is not an override"),
    ("+gamma=1", "+gamma=1: overrides change keys that exist"),
    ("++gamma=1", "'++' is not needed"),
    ("~gamma", "'~' is not needed"),
    ("gamma=1\nseed=2", "gamma=1 seed=2: an override is one line"),
    ("gamma =1", "no spaces around '='"),
    ("seed=1,2", "seed=1,2: several values for one run; use --seed 1,2,3"),
    ("seed=range(0,5)", "use --seed 1,2,3"),
    ("gamma=0.9,0.99", "gamma=0.9,0.99: several values for one run"),
    ("gamma=[1", "gamma=[1: cannot be read"),
    ("gamma@x=1", "unknown key 'gamma@x'"),
    ("gamma.x=1", "gamma.x=1: gamma has no parts; only spec, env_kwargs, policy_kwargs, plateau do"),
    ("spec.=1", "the key ends in a dot"),
    ("spec.gaol=1", "spec.gaol=1: spec has no 'gaol'; did you mean goal"),
    ("spec.goal.x=1", "spec.goal.x=1: goal is 475, which has no parts"),
    ("hydra.run.dir=x", "unknown key 'hydra'"),
    ("variant=other", "variant is set by ENV:VARIANT"),
    ("seed=-1", "seed must be at least 0"),
    ("seed=9223372036854775808", "seed must be at least 0 and at most 9223372036854775807"),
    ("n_envs=0", "n_envs must be at least 1, not 0"),
    ("n_envs=1.5", "n_envs=1.5: n_envs takes a whole number, not 1.5"),
    ("n_envs=many", "n_envs takes a whole number, not 'many'"),
    ("n_envs=", "n_envs takes a whole number, not ''"),
    ("n_envs=null", "n_envs takes a whole number, not null"),
    ("n_envs=true", "n_envs takes a whole number, not true"),
    ("gamma=1.01", "gamma must be at least 0 and at most 1, not 1.01"),
    ("gamma=inf", "gamma takes a number, not inf"),
    ("gamma=lin_0.9", "gamma=lin_0.9: gamma cannot follow a schedule; policy_lr"),
    ("clip_range=0", "clip_range must be above 0, not 0"),
    ("clip_range=lin_0", "clip_range: the schedule must rise above 0 somewhere"),
    ("policy_lr=lin_-1", "policy_lr_schedule_start_value must be at least 0, not -1"),
    ("policy_lr=lin_fast", "'lin_fast' is not a schedule; write lin_0.001"),
    ("policy_lr=linn_0.1", "policy_lr takes a number or a schedule, not 'linn_0.1'"),
    ("policy_lr=exp_0", "an exponential schedule cannot go from 0 to 0"),
    ("policy_lr_schedule=linaer", "'linaer' is not a kind of schedule (linear, cosine, exponential, warmup)"),
    ("policy_lr_schedule_end=-1", "a schedule's start and end are at 0 or later, not at -1"),
    ("policy_lr_schedule_start=149000 policy_lr_schedule_end=0.5", "ends at 75000 env steps, before"),
    ("policy_lr_schedul=linear", "did you mean policy_lr_schedule"),
    ("policy_targets=returns", "policy_targets belongs to reinforce; ppo has gae_lambda"),
    ("returns_type_schedule=linear", "returns_type belongs to reinforce"),
    ("algo_id=reinforce", "CartPole-v1.yaml:ppo: clip_range belongs to ppo; reinforce has"),
    ("algo_id=a2c", f"algo_id=a2c: no algorithm 'a2c' ({KNOWN})"),
    ("device=gpu", "device takes auto, cpu, cuda or cuda:N, not 'gpu'"),
    ("device=cuda:01", "device takes auto, cpu, cuda or cuda:N, not 'cuda:01'"),
    ("device=cuda:-1", "device takes auto, cpu, cuda or cuda:N, not 'cuda:-1'"),
    ("engine=fused_gpu", "CartPole-v1.yaml:ppo: engine: fused_gpu needs device: cuda"),
    ("engine=eagre", "engine takes auto, eager, fused_cpu, graphed, fused_gpu, not 'eagre'; did you mean eager"),
    ("engine=graphed", "CartPole-v1.yaml:ppo: engine: graphed needs device: cuda"),
    ("engine=graphed device=cpu", "engine: graphed needs device: cuda"),
    ("engine=fused_cpu device=cuda:1", "engine: fused_cpu needs device: cpu"),
    ("engine=fused_cpu precision=bf16", "engine: fused_cpu needs precision: 32, not bf16"),
    ("precision=tf32", "precision: tf32 needs device: cuda"),
    ("precision=16", "precision=16: precision takes 32, tf32, bf16, not 16"),
    ("precision=fp16", "precision takes 32, tf32, bf16, not 'fp16'"),
    ("env_backend=jax", "env_backend takes auto, fast, gym, ale, torch, not 'jax'"),
    (
        "env_backend=envpool",
        "env_backend=envpool: EnvPool's worlds are no env_backend any more: register a task with Gym",
    ),
    ("batch_size=1.5", "batch_size takes a fraction in (0, 1] or a whole number of rows, not 1.5"),
    ("batch_size=0", "batch_size must be above 0, not 0"),
    ("batch_size=100", "rollout of 256 rows (8 environments x 32 steps) evenly; 64 or 128 does"),
    ("batch_size=0.3", "batch_size 0.3 (76 rows) does not divide the rollout of 256 rows"),
    ("batch_size=512", "does not divide the rollout of 256 rows (8 environments x 32 steps) evenly; 256 does"),
    ("n_envs=3 batch_size=64", "rollout of 96 rows (3 environments x 32 steps) evenly; 48 or 96 does"),
    ("batch_size=1", "normalize_advantages: batch needs at least 2 rows per batch"),
    ("max_timesteps=null", "max_timesteps takes a whole number, not null"),
    ("max_timesteps=0", "max_timesteps is missing"),
    ("max_timesteps=-5", "max_timesteps must be at least 1, not -5"),
    ("max_timesteps=100", "max_timesteps 100 is less than one rollout of 256 rows"),
    ("eval_freq_epochs=-1", "eval_freq_epochs must be at least 1, not -1"),
    ("eval_freq_epochs=0 early_stop_on_eval_threshold=400", "needs evaluation, but eval_freq_epochs is null"),
    ("early_stop_on_eval_threshold=never", "takes true or false or a number, not 'never'"),
    ("seed=1 seed=2", "seed=2: seed is already given by seed=1"),
    ("spec={goal:1} spec.goal=2", "spec is already given by spec={goal:1}"),
    ("--gama=0.9", "unknown key 'gama'; did you mean gamma"),
]


def one_line(error: UserError, fragment: str) -> None:
    text = str(error)
    assert "\n" not in text and len(text) < 400
    assert fragment in text, text


@pytest.mark.parametrize(("text", "fragment"), FILES, ids=[fragment for _, fragment in FILES])
def test_wrong_file(text: str, fragment: str, tmp_path: Path) -> None:
    path = tmp_path / "Test-v0.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_file(path)
    one_line(caught.value, fragment)


@pytest.mark.parametrize(("overrides", "fragment"), OVERRIDES, ids=[text for text, _ in OVERRIDES])
def test_wrong_override(overrides: str, fragment: str) -> None:
    words = [overrides] if overrides in ("gamma =1", "gamma=1\nseed=2") else overrides.split()
    with pytest.raises(UserError) as caught:
        load_file(EXAMPLE, "ppo", words)
    one_line(caught.value, fragment)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("CartPole-v1", "'CartPole-v1' needs a variant: CartPole-v1:ppo, CartPole-v1:reinforce"),
        ("CartPole-v1:", "needs a variant"),
        ("CartPole-v1:pppo", "no variant 'pppo' (CartPole-v1:ppo, CartPole-v1:reinforce, CartPole-v1:ppo_lstm"),
        ("CartPol-v1:ppo", "no environment 'CartPol-v1' among the shipped configs; did you mean CartPole-v1"),
        ("zzz:ppo", "--list-envs shows them"),
        (":ppo", "':ppo' is not ENV:VARIANT"),
        ("", "is not ENV:VARIANT"),
        ("CartPole-v1:ppo:x", "is not ENV:VARIANT"),
        ("../CartPole-v1:ppo", "no environment '../CartPole-v1'"),
    ],
)
def test_wrong_id(text: str, fragment: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config_id(text)
    one_line(caught.value, fragment)


def test_wrong_path(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff\xff")
    for name, fragment in (("none.yaml", "cannot read"), ("", "cannot read"), ("bytes.yaml", "utf")):
        path = tmp_path / name
        with pytest.raises(UserError) as caught:
            load_file(path)
        assert "\n" not in str(caught.value) and fragment.lower() in str(caught.value).lower()


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"schema_version": 0}, "schema_version is 0, this program reads 1; changes since: 1: the first version"),
        ({"schema_version": 2}, "schema_version is 2, this program reads 1; it comes from a newer program"),
        ({"schema_version": None}, "schema_version is None"),
        ({"schema_version": True}, "schema_version is True"),
        ({"n_env": 8}, "config.json: unknown key 'n_env'; did you mean n_envs"),
        ({"algo_id": "a2c"}, "no algorithm 'a2c'"),
        ({"n_envs": "many"}, "config.json: n_envs takes a whole number"),
        ({"batch_size": 100}, "does not divide"),
        ({"returns_type": "mc:rtg"}, "returns_type belongs to reinforce"),
    ],
)
def test_wrong_plain_data(change: dict[str, object], fragment: str) -> None:
    with pytest.raises(UserError) as caught:
        from_plain({**to_plain(load_file(EXAMPLE, "ppo")), **change})
    one_line(caught.value, fragment)
