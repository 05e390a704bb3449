"""metrics.yaml is well-formed and says what the code relies on."""

import pytest
from refusals import refusals

from stride.config.fields import schedulable
from stride.config.metrics import declared, load_metrics
from stride.config.schema import PPOConfig
from stride.utils.user_error import UserError
from tests.metric_checks import checked_metrics

SOUND = "train/x: {title: X, meaning: M., unit: u, precision: 1"
RULE = "{}, alerts: [{{{}, means: M., tries: [lower it]}}]}}"
WRONG = [
    "train/x: {title: X, meaning: M., unit: u}", "tain/x: {}", "train/x: 5", f"{SOUND}.5}}", f"{SOUND}, colour: red}}",
    f"{SOUND}, better: more}}", f"{SOUND}, alerts: 5}}", RULE.format(SOUND, "above: 1, below: 0"),
    RULE.format(SOUND, "of: value"), RULE.format(SOUND, "above: 1, config: {learn: 1}"),
    f"{SOUND}, alerts: [{{above: 1}}]}}",
]  # fmt: skip
SCHEDULED = ("policy_lr", "clip_range", "clip_range_vf", "ent_coef", "vf_coef", "max_grad_norm", "target_kl")


def test_what_is_read_unchecked_is_what_the_checks_read():
    assert load_metrics() == checked_metrics() and [*load_metrics()] == [*checked_metrics()]


def test_every_metric_is_one_clear_sentence():
    for metric in load_metrics().values():
        assert metric.meaning.endswith(".") and ". " not in metric.meaning, metric.name
        assert metric.title and len(metric.title) <= 20 and metric.unit and 0 <= metric.precision <= 8, metric.name
        assert metric.table or not metric.highlight, metric.name
    assert len({metric.title for metric in load_metrics().values()}) == len(load_metrics())


def test_what_the_console_and_the_csv_rely_on():
    metrics = load_metrics()
    assert metrics["train/roll/ep_rew/mean"].better == "up" and metrics["train/roll/ep_rew/mean"].highlight
    assert all(rule.below is None for rule in metrics["train/policy/approx_kl"].alerts)  # sampled: may be negative
    assert metrics["train/value/explained_variance"].nan and "NaN" in metrics["train/value/explained_variance"].meaning
    assert {name for name, metric in metrics.items() if metric.wall_time} == {
        name for name in metrics if name.startswith("train/time/")
    }


def test_every_scheduled_hyperparameter_can_be_reported():
    assert {f"train/hyper/{name}" for name in SCHEDULED} <= set(load_metrics())
    assert set(SCHEDULED) == set(schedulable(PPOConfig))


def test_undeclared_metric_is_refused_by_name():
    with pytest.raises(UserError, match=r"train/los/policy.* is not declared.*did you mean train/loss/policy"):
        declared("train/los/policy")


def test_wrong_declarations(tmp_path, snapshot):
    path = tmp_path / "metrics.yaml"
    assert refusals(lambda text: (path.write_text(text), checked_metrics(path)), WRONG) == snapshot
