"""Alerts: judged by the rules of metrics.yaml, the same live, resumed and read again; told wherever a run is."""

import io
import logging
import math
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console as Terminal
from snapshots import shown

from stride.config.loader import load_config, to_plain
from stride.config.metrics import KEY, Rule, load_metrics
from stride.config.schema import ALGORITHMS
from stride.report.console import Console
from stride.report.log_lines import PROGRESS_LINES, LogLines
from stride.report.metrics_sinks import MetricsCsv
from stride.runstore.history import RATE, STEPS, TRAIN, VAL, counted
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import write_json
from stride.runstore.run_log import open_run_log
from stride.trainer_callbacks import export_metrics, watch
from stride.trainer_callbacks.cures import Cures, advice
from stride.trainer_callbacks.export_metrics import memory_shares
from stride.trainer_callbacks.watch import AlertWatch
from stride.utils.resources import memory_limit, memory_used
from stride.utils.user_error import UserError

PPO, DQN = load_config("CartPole-v1", "ppo"), load_config("CartPole-v1", "dqn")
SAC = load_config("Pendulum-v1", "sac")
BUDGET, EPISODES = PPO.max_timesteps, "test/roll/episodes"
HEADER = Header("CartPole-v1:ppo", "ppo", "eager", "", "fast", "here", "cpu", 8, 1, 9155, 475.0, BUDGET, "runs/x")
OUTCOME = Outcome(False, "budget spent", 475.0, 317.25, 301.5, 40.0, 100, BUDGET, 31.0, "runs/x")
NAMES = {
    "kl": "train/policy/approx_kl", "entropy": "train/policy/entropy", "clipped": "train/policy/clip_fraction",
    "train": TRAIN, "val": VAL, "q": "train/value/q", "explained": "train/value/explained_variance",
    "loss": "train/loss/policy", "value_loss": "train/loss/value", "episodes": "train/roll/episodes",
    "length": "train/roll/ep_len/mean", "std": "train/policy/std", "alpha": "train/policy/alpha",
    "critic": "train/grad_norm/critic", "rate": RATE, "collect": watch.COLLECT, "learn": watch.LEARN,
    "seconds": watch.SECONDS, "learnt": "train/roll/learnt_return", "q_loss": "train/loss/q",
}  # fmt: skip

Series = Callable[[int], float]  # of the row


def rows(number: int = 200, budget: int = BUDGET, **series: Series) -> list[dict[str, float]]:
    """Rows of a whole run that climbs to its goal; each of `series` by its short name."""
    series = {"train": lambda n: 20.0 + 500.0 * n / number, **series}
    made = []
    for n in range(number):
        row = {STEPS: float(budget * (n + 1) // number)}
        made.append(row | {NAMES[name]: float(value(n)) for name, value in series.items()})
    return made


def test_every_rule_says_what_to_change_in_every_algorithm_that_has_the_metric() -> None:
    for metric in load_metrics().values():
        for rule in metric.alerts:
            assert rule.means.endswith(".") and rule.tries, metric.name
            having = [cls for cls in ALGORITHMS.values() if rule.config.keys() <= {key.name for key in fields(cls)}]
            for cls in having:
                tip = advice(Cures({key.name: 1 for key in fields(cls)}).of(rule))
                assert tip and not KEY.search(tip), (metric.name, cls)
    rule = Rule(tries=("lower {policy_lr}", "raise {tau}", "set {target_kl} to 0.02"))
    assert (
        advice(Cures(to_plain(PPO)).of(rule))
        == "Try to lower policy_lr (now 0.001 to 0.0), or set target_kl (now null) to 0.02."
    )


def explorer(env_id: str, epsilon: float) -> Any:
    return load_config(env_id, "q_learning", [f"max_timesteps={BUDGET}", f"epsilon={epsilon}"])


def stepwise(first: float, last: float, *, at: int) -> Series:
    return lambda n: first if n < at else last


LATE, EARLY = stepwise(0.6, 1e-4, at=110), stepwise(0.6, 1e-4, at=20)
POOR, FLAT = stepwise(200.0, 20.0, at=60), lambda n: 20.0 + 0.01 * n
FIRST_COUNTS = stepwise(0.01, 5.0, at=20)  # the first reward that counts
DEAD = rows(budget=20_000, train=lambda n: -1200.0, alpha=lambda n: 1e-7)
SLOW = {"rate": lambda n: 1800.0 if 100 <= n < 130 else 9000.0, "collect": lambda n: 0.45, "learn": lambda n: 0.45}
# from the middle on nine tenths of the time is evaluation, at the same pace
EVALUATING = {"rate": stepwise(1e4, 1e3, at=100), "collect": stepwise(0.5, 0.05, at=100)}
EVALUATING |= {"learn": EVALUATING["collect"], "seconds": lambda n: n}
# worlds step fast until learning begins at a tenth of the run, and then all rows take their time
WARMING = {"rate": stepwise(3300.0, 200.0, at=20), "seconds": lambda n: 10 * n}
WARMING |= {"collect": stepwise(0.9, 0.1, at=20), "learn": stepwise(0.0, 0.8, at=20)}
LATE_LEARNER = replace(SAC, learning_starts=60_000, max_timesteps=90_000)
NEVER = {"train": lambda n: -200.0, "length": lambda n: 200.0, "episodes": lambda n: 4.0 * n}
# what a run reports, with its config and its goal where they are others
CASES: dict[str, tuple[Any, ...]] = {
    "calm": (rows(kl=lambda n: 0.01, entropy=lambda n: 0.69 - 0.001 * n, clipped=lambda n: 0.2),),
    "KL 9.46 and entropy 1.9e-21": (
        rows(
            kl=lambda n: 9.46 if n == 3 else 0.3 if n < 6 else 0.0,
            entropy=stepwise(0.5, 1.9e-21, at=3),
            train=lambda n: 9.4,
            val=lambda n: 9.35,
        ),
    ),
    "loss not a number": (rows(loss=lambda n: math.nan if n == 60 else 0.1),),
    "loss infinite": (rows(loss=lambda n: math.inf if n == 60 else 0.1),),
    "calm: all returns are equal": (rows(explained=lambda n: math.nan),),
    "calm: entropy of a Gaussian": (rows(entropy=lambda n: 1.4 - 0.05 * n, std=lambda n: 0.3),),
    "calm: entropy lost at the goal": (rows(entropy=stepwise(0.6, 1e-4, at=190)),),
    "entropy lost early": (rows(entropy=EARLY),),
    "calm: entropy lost late, no goal": (rows(entropy=LATE), PPO, None),
    "entropy lost early, no goal": (rows(entropy=EARLY), PPO, None),
    "loss jumps": (rows(value_loss=stepwise(2.0, 1e4, at=100)),),
    "calm: loss jumps, and is smaller than at the start": (
        rows(value_loss=lambda n: 8.2 if n < 10 else 0.05 if n < 100 else 4.8),
    ),
    "calm: loss grows with the returns": (rows(value_loss=lambda n: 1.1**n if n < 80 else 2000.0),),
    "calm: the first reward was met": (rows(critic=stepwise(1e-4, 0.05, at=91)),),
    "Q loss jumps": (rows(40, SAC.max_timesteps, q_loss=FIRST_COUNTS, train=lambda n: -1000.0), SAC, -150.0),
    # MountainCarContinuous, whose goal is worth 100 where a step costs a thousandth
    "Q loss multiplies as the return gets better": (
        rows(40, SAC.max_timesteps, q_loss=FIRST_COUNTS, train=lambda n: -1000.0 + 20 * max(0, n - 19)),
        SAC,
        -150.0,
    ),
    "explained variance lost": (rows(train=FLAT, explained=stepwise(0.8, -0.4, at=60)),),
    "values beyond any return": (rows(q=lambda n: 1.3**n if n < 60 else 1e6), DQN),
    "calm: values within": (rows(q=lambda n: min(99.0, n), length=lambda n: 20 + 2.5 * n), DQN),
    "temperature died": (DEAD, SAC, -250.0),
    "temperature is fixed": (DEAD, replace(SAC, ent_coef=0.0), -250.0),
    "return and evaluation collapse": (
        rows(train=stepwise(400.0, 60.0, at=100), val=lambda n: 20.0 if n < 5 else 480.0 if n < 99 else 9.0),
    ),
    "return collapses": (rows(train=lambda n: 20 + (4 * n if n < 90 else 0)),),
    "calm: a bad evaluation is luck": (rows(val=lambda n: 100.0 if n % 7 == 0 else 20.0 + 2.2 * n),),
    "return does not come": (rows(train=FLAT),),
    "calm: no goal": (rows(train=FLAT), PPO, None),
    "calm: almost there": (rows(train=lambda n: min(460.0, 20.0 + 10 * n)),),
    "calm: means of few episodes": (rows(train=stepwise(60.0, 20.0, at=3), episodes=lambda n: n / 2),),
    "means of enough episodes": (rows(train=stepwise(60.0, 20.0, at=3), episodes=lambda n: 100 + n / 2),),
    "return falls": (rows(train=POOR),),
    "calm: half of the actions are random": (rows(train=POOR), explorer("FrozenLake-v1", 0.5)),
    "a twentieth of the actions is random": (rows(train=POOR), explorer("Taxi-v4", 0.05)),
    "speed drops": (rows(**SLOW, seconds=lambda n: n),),
    "calm: a third of a second is no drop": (rows(**SLOW, seconds=lambda n: n / 100),),
    "calm: it evaluates": (rows(**EVALUATING),),
    "calm: learning begins": (rows(**WARMING), replace(SAC, learning_starts=15_000, max_timesteps=BUDGET), 475.0),
    "the goal is never met": (rows(**NEVER), PPO, -110.0),
    "calm: never met in a warm-up of half the run": (rows(120, 90_000, **NEVER), LATE_LEARNER, -110.0),
    "one episode met the goal once": (rows(**NEVER | {"train": stepwise(-200.0, -199.5, at=60)})[:110], PPO, -110.0),
    "no critic can know a goal that is never met": (rows(**NEVER, explained=stepwise(0.8, -3.39, at=60)), PPO, -110.0),
    "calm: few episodes": (rows(**NEVER | {"episodes": lambda n: n // 25}), PPO, -110.0),
    "worse than random, and rewarded": (rows(train=stepwise(22.0, 9.3, at=10), learnt=stepwise(-22.0, -9.3, at=10)),),
    "calm: shaped": (rows(train=lambda n: 22 + n, learnt=lambda n: 30 + 2 * n),),
    "calm: worse, but not rewarded for it": (
        rows(train=stepwise(22.0, 12.0, at=10), learnt=stepwise(30.0, 20.0, at=10))[:60],
    ),
}


def judged(rows: list[dict[str, float]], config: Any = PPO, goal: float | None = 475.0) -> list[str]:
    return [alert.sentence() for alert in AlertWatch(config, goal, rows).alerts]


def test_which_runs_are_alarming_and_which_are_not(snapshot) -> None:
    alerts = {case: judged(*run) for case, run in CASES.items()}
    assert not any(alerts[case] for case in CASES if case.startswith("calm"))
    assert alerts == snapshot
    worst = AlertWatch(PPO, 475.0, CASES["KL 9.46 and entropy 1.9e-21"][0]).alerts
    assert counted(worst) == "3 alerts: KL, Entropy, Return" and not worst[0].open


def test_an_alert_begins_once_and_ends_once_however_many_rows_it_lasts() -> None:
    alert_watch = AlertWatch(PPO, 475.0)
    events = []
    for row in rows(clipped=lambda n: 0.1 if n < 50 or n >= 120 or n % 10 == 0 else 0.6):
        events += alert_watch.add(row)
    assert [(event.begins, event.env_steps) for event in events] == [(True, 27_000), (False, 61_500)]
    assert events[0].sentence() == "! Clipped 0.600, above 0.4"
    assert (alert_watch.alerts[0].rows, alert_watch.alerts[0].times) == (63, 1)


def test_a_resumed_run_says_at_its_end_what_a_straight_one_says(tmp_path: Path) -> None:
    all_rows = rows(
        kl=lambda n: 0.3 + 1e-9 * n if 20 < n < 130 else 0.01,
        clipped=lambda n: 0.5 if n > 99 else 0.1,
        train=lambda n: 20,
    )
    straight = AlertWatch(PPO, 475.0, all_rows)
    csv = MetricsCsv(tmp_path / "metrics.csv")
    for row in all_rows[:110]:
        csv.row(row)
    csv.end(None)
    csv = MetricsCsv(tmp_path / "metrics.csv", int(all_rows[99][STEPS]))
    resumed = AlertWatch(PPO, 475.0, watch.past_rows(RunDir(tmp_path), all_rows[99][STEPS]))
    assert [alert.title for alert in resumed.alerts] == ["KL", "Return"]
    for row in all_rows[100:]:
        csv.row(row)
        resumed.add(row)
    csv.end(None)
    write_json(tmp_path / "config.json", {"config": to_plain(PPO), "goal": 475.0})
    assert straight.alerts == resumed.alerts == watch.read_alerts(RunDir(tmp_path)) != ()
    write_json(tmp_path / "config.json", {"config": to_plain(PPO), "goal": 15.0})  # reached: another verdict at once
    assert [alert.title for alert in watch.read_alerts(RunDir(tmp_path))] == ["KL", "Clipped"]
    with (tmp_path / "metrics.csv").open("a") as file:
        file.truncate(watch.MAX_CSV_BYTES + 1)
    with pytest.raises(UserError, match=r"too large \(4 MiB\); report.md lists the alerts"):
        watch.read_alerts(RunDir(tmp_path))


def test_memory_is_in_each_row_and_held_against_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 20 < memory_used() < memory_limit()
    alert_watch, csv, events = AlertWatch(DQN, 475.0), MetricsCsv(tmp_path / "metrics.csv"), []
    for n, row in enumerate(rows(20, budget=DQN.max_timesteps)):
        fraction = 0.2 if n < 5 else 0.9 if n < 10 else 0.1
        monkeypatch.setattr(export_metrics, "memory_used", lambda fraction=fraction: fraction * memory_limit())
        monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (1 << 30, 4 << 30))
        row |= memory_shares(torch.device("cuda"))
        events += alert_watch.add(row)
        csv.row(row)
    csv.end(None)
    sentences = ["! Memory 0.900, above 0.85", "ended: Memory 0.100, no longer above 0.85"]
    assert [event.sentence() for event in events] == sentences
    assert "lower buffer_size (now 100,000), or set replay_storage (now ram) to memmap" in alert_watch.alerts[0].tip
    read = watch.past_rows(RunDir(tmp_path), up_to=20_000)
    names = ("train/time/memory", "train/time/gpu_memory")
    assert [[row[name] for name in names] for row in read[-4:]] == [[0.2, 0.75], *[[0.9, 0.75]] * 3]
    assert [*memory_shares(torch.device("cpu"))] == ["train/time/memory"]


def test_a_pipe_is_told_when_an_alert_begins_and_ends_and_how_many_there_were(snapshot) -> None:
    """What to try is said with the first, and at the end."""
    terminal = Terminal(file=io.StringIO(), width=100, height=50, color_system=None, _environ={})
    view, alert_watch = Console(terminal=terminal, clock=lambda: 0.0), AlertWatch(PPO, 475.0)
    view.begin(HEADER, PPO)
    for row in rows(kl=lambda n: 0.2 if n // 10 % 2 else 0.01):
        view.row(row)
        for event in alert_watch.add(row):
            view.alert(event)
    view.end(replace(OUTCOME, alerts=alert_watch.alerts))
    text = terminal.file.getvalue()
    assert text.isascii()
    assert shown(text) == snapshot


def test_run_log_holds_what_happened_and_leaves_the_screen_alone(tmp_path: Path, snapshot, capsys) -> None:
    """Of a run that was stopped in the middle and went on."""
    run = RunDir(tmp_path)
    write_json(run.config_json, {"versions": {"torch": "2.13.0"}, "host": {"cpus": 2}, "git_hash": "4f2a9c1"})
    found = [*rows(kl=lambda n: 0.2 if 50 < n < 60 else 0.01), {"test/roll/ep_rew/mean": 301.5, EPISODES: 100.0}]
    found[49] |= {VAL: 92.6, "val/roll/ep_rew/std": 3.0, "val/roll/episodes": 20.0, RATE: 5000.0}
    alert_watch = AlertWatch(PPO, 475.0)
    with open_run_log(run.run_log, quiet=True):
        for part in (found[:100], found[100:]):
            sink = LogLines(run)
            sink.begin(HEADER, PPO)
            for row in part:
                sink.row(row)
                for event in alert_watch.add(row):
                    sink.alert(event)
            sink.end(None if part[0] is found[0] else replace(OUTCOME, alerts=alert_watch.alerts))
        assert logging.getLogger("stride").level == logging.DEBUG
    lines = [line[24:] for line in run.run_log.read_text().splitlines()]
    returns = [line for line in lines if ", return " in line]
    assert [line for line in lines if line not in returns or "evaluation" in line] == snapshot
    assert 20 <= len(returns) <= PROGRESS_LINES + 2 <= 50
    steps = [int(re.match(r"NOTE    ([\d,]+) steps", line)[1].replace(",", "")) for line in returns]
    assert steps == sorted(set(steps)) and steps[-1] == BUDGET
    assert capsys.readouterr().out == ""
