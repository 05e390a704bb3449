"""What a run that does not learn is told to change: which key, to which value, in which order."""

import pytest

from stride.config.loader import from_plain, load_config, to_plain
from stride.config.metrics import Rule
from stride.runstore.history import STEPS, TRAIN
from stride.trainer_callbacks.cures import Cures, advice, scaled, slower
from stride.trainer_callbacks.watch import AlertWatch

PPO, DQN = (to_plain(load_config("CartPole-v1", variant)) for variant in ("ppo", "dqn"))
SHIPPED = ["gamma=0.98", "policy_lr=lin_0.001", "ent_coef=0.0", "n_envs=8", "max_grad_norm=0.5", "hidden_dims=[64,64]"]
SHIPPED += ["env_wrappers=[]", "max_timesteps=150_000", "eval_episodes=20", "seed=1"]
LOWER = Rule(tries=("lower {policy_lr}", "raise {ent_coef}", "set {max_grad_norm} to 0.5"))


def changed(plain, *overrides):
    return to_plain(from_plain(plain, overrides=overrides))


def cures_of(*overrides, shipped=SHIPPED):
    return Cures(changed(PPO, *overrides), [text for text in shipped if _is_changed(text, overrides)])


def _is_changed(text, overrides):
    return text.partition("=")[0] in [override.partition("=")[0] for override in overrides]


@pytest.mark.parametrize(
    ("overrides", "far"),
    [
        (["gamma=0.1"], ["gamma=0.98"]),
        (["gamma=0.95"], []),  # forgets in 20 steps instead of 50
        (["gamma=0.9999"], []),
        (["policy_lr=1e-8"], ["policy_lr=lin_0.001"]),
        (["policy_lr=3e-4"], []),
        (["ent_coef=1"], ["ent_coef=0.0"]),
        (["ent_coef=0.01"], []),
        (["n_envs=64"], ["n_envs=8"]),
        (["n_envs=16"], []),
        (["max_grad_norm=null"], ["max_grad_norm=0.5"]),
        (["env_wrappers=[{id:CartPoleShaper}]"], ["env_wrappers=[]"]),
        (["max_timesteps=10_000"], ["max_timesteps=150000"]),
        (["max_timesteps=10_000_000"], []),  # more is no fault
        (["eval_episodes=1", "seed=99"], []),  # nothing is learnt from these
        (["gamma=0.1", "policy_lr=1e30", "n_envs=64"], ["policy_lr=lin_0.001", "gamma=0.98", "n_envs=8"]),
    ],
)
def test_a_key_is_named_where_it_is_far_from_what_the_variant_says(overrides, far):
    assert [cure.override for cure in cures_of(*overrides).far] == far


def test_no_exploration_is_far_from_a_share_that_falls():
    shipped = ["epsilon={kind:linear,start_value:1,end_value:0.04}"]
    assert Cures(changed(DQN, "epsilon=0"), shipped).far[0].key == "epsilon"


def test_a_changed_key_comes_back_to_what_the_variant_says_and_others_move_by_a_factor():
    far = cures_of("policy_lr=1", "gamma=0.1")
    assert [cure.override for cure in far.of(LOWER)][:3] == ["policy_lr=lin_0.001", "gamma=0.98", "ent_coef=0.01"]
    near = cures_of("policy_lr=2e-3")
    assert near.of(LOWER)[0].override == "policy_lr=lin_0.001", "lower, and known to work"
    other_way = cures_of("policy_lr=5e-4")
    assert other_way.of(LOWER)[0].override == "policy_lr=0.0002", "raising it to the variant's would not lower it"
    assert Cures(PPO).of(LOWER)[0].override == "policy_lr=lin_0.0003"
    assert "set policy_lr back to lin_0.001 (now 1.0), or set gamma back to 0.98 (now 0.1)" in advice(far.of(LOWER))


def test_what_is_so_already_is_no_cure():
    assert [cure.key for cure in Cures(PPO).of(LOWER)] == ["policy_lr", "ent_coef"], "max_grad_norm is 0.5"


def test_only_a_config_that_keeps_every_rule_is_offered():
    """Half of 20 epochs is fine; half of a batch of 7 rows does not divide a rollout."""
    cures = Cures(changed(PPO, "n_steps=7", "n_envs=1", "batch_size=7"))
    tried = cures.of(Rule(tries=("lower {batch_size}", "lower {n_epochs}", "raise {n_epochs}")))
    assert [cure.override for cure in tried] == ["batch_size=3", "n_epochs=10"], "one for each key"
    assert cures.checked(tried, 2) == ("n_epochs=10",)
    assert cures.checked(tried, 0) == ()


@pytest.mark.parametrize(
    "text", ["algo_id=os:system", "nokey=1", "gamma", "gamma=$(rm -rf x)", "spec.goal=1", "env_id=x"]
)
def test_what_anybody_may_have_written_into_a_folder_changes_nothing(text):
    assert Cures(PPO, [text]).usual == PPO and not Cures(PPO, [text]).far


def test_numbers_are_raised_and_lowered():
    assert (scaled("n_steps", 32, True), scaled("n_epochs", 1, False), scaled("ent_coef", 0.0, True)) == (64, 1, 0.01)
    assert scaled("ent_coef", 0.0, False) is None and scaled("policy", "mlp", True) is None
    assert scaled("target_entropy", None, True) is None and scaled("share_trunk", True, True) is None
    override = slower("epsilon", DQN["epsilon"])
    assert from_plain(DQN, overrides=[override]).epsilon.end == 0.32, override
    assert slower("epsilon", 0.0) == "epsilon=0.1"


def watched(returns, shipped=(), overrides=(), **metrics):
    config = load_config("CartPole-v1", "ppo", overrides)
    watch = AlertWatch(config, 475.0, shipped=shipped)
    for n in range(200):
        row = {STEPS: 750.0 * (n + 1), TRAIN: returns(n)}
        watch.add(row | {name: metric(n) for name, metric in metrics.items()})
    return watch


def test_the_end_offers_cures_of_open_alerts_alone_and_the_most_telling_first():
    over = watched(lambda n: 20 + 2.3 * n, **{"train/policy/approx_kl": lambda n: 0.3 if n < 20 else 0.01})
    assert len(over.alerts) == 1 and over.cures(is_failed=False) == over.cures(is_failed=True) == ()
    met = watched(lambda n: 9.0, **{"train/policy/clip_fraction": lambda n: 0.6})
    assert [alert.title for alert in met.alerts] == ["Clipped", "Return"]
    assert met.cures(is_failed=True)[0] == "ent_coef=0.01", "of the goal that was never met, though it began later"


def test_a_run_that_failed_without_an_alert_still_names_the_far_key():
    slow = watched(lambda n: 20 + n, ["gamma=0.98"], ["gamma=0.1"])
    assert slow.alerts == () and slow.cures(is_failed=False) == () and slow.cures(is_failed=True) == ("gamma=0.98",)
