"""metrics.yaml is well-formed and says what the code relies on."""

from pathlib import Path

import pytest

from stride.config.fields import schedulable
from stride.config.metrics import declared, load_metrics
from stride.config.schema import PPOConfig
from stride.utils.user_error import UserError
from tests.metric_checks import checked_metrics

RULE = "train/x: {{title: X, meaning: M., unit: u, precision: 1, alerts: [{{{}, means: M., tries: [lower it]}}]}}\n"
SCHEDULED = ("policy_lr", "clip_range", "clip_range_vf", "ent_coef", "vf_coef", "max_grad_norm", "target_kl")


def test_what_is_read_unchecked_is_what_the_checks_read() -> None:
    assert load_metrics() == checked_metrics() and [*load_metrics()] == [*checked_metrics()]


def test_every_metric_is_one_clear_sentence() -> None:
    for metric in load_metrics().values():
        assert metric.meaning.endswith(".") and ". " not in metric.meaning, metric.name
        assert metric.title and len(metric.title) <= 20 and metric.unit and 0 <= metric.precision <= 8, metric.name
        assert metric.table or not metric.highlight, metric.name
    assert len({metric.title for metric in load_metrics().values()}) == len(load_metrics())


def test_what_the_console_and_the_csv_rely_on() -> None:
    metrics = load_metrics()
    assert metrics["train/roll/ep_rew/mean"].better == "up" and metrics["train/roll/ep_rew/mean"].highlight
    assert all(rule.below is None for rule in metrics["train/policy/approx_kl"].alerts)  # sampled: may be negative
    assert metrics["train/value/explained_variance"].nan and "NaN" in metrics["train/value/explained_variance"].meaning
    assert {name for name, metric in metrics.items() if metric.wall_time} == {
        name for name in metrics if name.startswith("train/time/")
    }


def test_every_scheduled_hyperparameter_can_be_reported() -> None:
    assert {f"train/hyper/{name}" for name in SCHEDULED} <= set(load_metrics())
    assert set(SCHEDULED) == set(schedulable(PPOConfig))


def test_undeclared_metric_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"train/los/policy.* is not declared.*did you mean train/loss/policy"):
        declared("train/los/policy")


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("train/x: {title: X, meaning: M., unit: u}\n", "metrics.yaml: train/x lacks precision"),
        ("tain/x: {}\n", "tain/x starts with none of train, val, test"),
        ("train/x: 5\n", "takes a mapping"),
        ("train/x: {title: X, meaning: M., unit: u, precision: 1.5}\n", "precision takes a whole number"),
        ("train/x: {title: X, meaning: M., unit: u, precision: 1, colour: red}\n", "has no 'colour'"),
        ("train/x: {title: X, meaning: M., unit: u, precision: 1, better: more}\n", "better takes up, down or null"),
        ("train/x: {title: X, meaning: M., unit: u, precision: 1, alerts: 5}\n", "alerts takes a list of rules"),
        (RULE.format("above: 1, below: 0"), "train/x: a rule has either above or below"),
        (RULE.format("of: value"), "train/x: a rule has either above or below"),
        (RULE.format("above: 1, config: {learn: 1}"), "no algorithm has the key 'learn'"),
        ("train/x: {title: X, meaning: M., unit: u, precision: 1, alerts: [{above: 1}]}\n", "what it means and what"),
    ],
)
def test_wrong_declaration(text: str, fragment: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        checked_metrics(path)
    assert fragment in str(caught.value) and "\n" not in str(caught.value)
