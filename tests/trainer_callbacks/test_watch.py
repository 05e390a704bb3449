"""Alerts: judged by the rules of metrics.yaml, the same live, resumed and read again; told wherever a run is."""

import io
import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console as Terminal

from stride.config.loader import load_config, to_plain
from stride.config.metrics import KEY, Rule, load_metrics
from stride.config.schema import ALGORITHMS
from stride.report.console import Console
from stride.report.log_lines import LINES, LogLines
from stride.report.metrics_sinks import MetricsCsv
from stride.report.page import write_report
from stride.runstore.history import RATE, STEPS, TRAIN, VAL, Alert, Event, counted
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import write_json
from stride.runstore.run_log import open_run_log
from stride.trainer_callbacks import watch as watch_module
from stride.trainer_callbacks.watch import (
    COLLECT,
    LEARN,
    MEMORY,
    MOST_BYTES,
    SECONDS,
    AlertWatch,
    MemoryNotes,
    advice,
    past_rows,
    read_alerts,
    read_memory,
)
from stride.utils.resources import memory_limit, memory_used
from stride.utils.user_error import UserError

PPO, DQN = load_config("CartPole-v1", "ppo"), load_config("CartPole-v1", "dqn")
SAC = load_config("Pendulum-v1", "sac")
BUDGET = PPO.max_timesteps
KL, ENTROPY, CLIPPED = (f"train/policy/{name}" for name in ("approx_kl", "entropy", "clip_fraction"))
HEADER = Header("CartPole-v1:ppo", "ppo", "eager", "", "fast", "here", "cpu", 8, 1, 9155, 475.0, BUDGET, "runs/x")
OUTCOME = Outcome(False, "budget spent", 475.0, 317.25, 301.5, 40.0, 100, BUDGET, 31.0, "runs/x")


def rows(number: int = 200, budget: int = BUDGET, **series: Any) -> list[dict[str, float]]:
    """Rows of a whole run that climbs to its goal; each of `series`, by a short name, is a function of the row."""
    names = {"kl": KL, "entropy": ENTROPY, "clipped": CLIPPED, "train": TRAIN, "val": VAL, "q": "train/value/q"}
    series = {"train": lambda n: 20.0 + 500.0 * n / number, **series}
    found = []
    for n in range(number):
        row = {STEPS: float(budget * (n + 1) // number)}
        found.append(row | {names.get(name, name): float(value(n)) for name, value in series.items()})
    return found


def alerts_of(rows: list[dict[str, float]], config: Any = PPO, goal: float | None = 475.0) -> dict[str, Alert]:
    return {f"{alert.title} {alert.bound}": alert for alert in AlertWatch(config, goal, rows).alerts}


def test_every_rule_says_what_to_change_in_every_algorithm_that_has_the_metric() -> None:
    for metric in load_metrics().values():
        for rule in metric.alerts:
            assert rule.means.endswith(".") and rule.tries, metric.name
            having = [cls for cls in ALGORITHMS.values() if rule.config.keys() <= {each.name for each in fields(cls)}]
            for cls in having:
                told = advice(rule, {each.name: 1 for each in fields(cls)})
                assert told and not KEY.search(told), (metric.name, cls)
    tips = advice(Rule(tries=("lower {policy_lr}", "raise {tau}", "set {target_kl} to 0.02")), to_plain(PPO))
    assert tips == "Try to lower policy_lr (now 0.001 to 0.0), or set target_kl (now null) to 0.02."


def test_a_calm_run_raises_nothing() -> None:
    calm = rows(
        kl=lambda n: 0.01, entropy=lambda n: 0.69 - 0.001 * n, clipped=lambda n: 0.2, val=lambda n: 30.0 + 2 * n
    )
    assert alerts_of(calm) == {}


def test_the_run_that_ended_without_a_word() -> None:
    """KL 9.46 and entropy 1.9e-21."""
    broken = rows(
        kl=lambda n: 9.46 if n == 3 else 0.3 if n < 6 else 0.0,
        entropy=lambda n: 0.5 if n < 3 else 1.9e-21,
        train=lambda n: 9.4,
        val=lambda n: 9.35,
    )
    found = alerts_of(broken)
    assert [*found] == ["KL above 0.1", "Entropy below 2% of its start", "Return no better for 34% of the budget"]
    kl = found["KL above 0.1"]
    assert (kl.worst, kl.first, kl.rows, kl.times, kl.open) == (9.46, 750, 6, 1, False)
    assert found["Entropy below 2% of its start"].worst_words == "1.9e-21"
    assert "lower policy_lr (now 0.001 to 0.0)" in kl.tip and "target_kl" in kl.tip
    assert counted(found.values()) == "3 alerts: KL, Entropy, Return"


def test_an_alert_begins_once_and_ends_once_however_many_rows_it_lasts() -> None:
    watch = AlertWatch(PPO, 475.0)
    events = []
    for row in rows(clipped=lambda n: 0.1 if n < 50 or n >= 120 or n % 10 == 0 else 0.6):
        events += watch.add(row)
    assert [(event.begins, event.env_steps) for event in events] == [(True, 40_500), (False, 92_250)]
    assert events[0].sentence() == "! Clipped 0.600, above 0.4"
    assert (watch.alerts[0].rows, watch.alerts[0].times) == (63, 1)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_told_at_once(value: float) -> None:
    found = alerts_of(rows(**{"train/loss/policy": lambda n: value if n == 60 else 0.1}))
    assert found["Policy loss not a number"].rows == 1 and found["Policy loss not a number"].worst is None
    assert not alerts_of(rows(**{"train/value/explained_variance": lambda n: math.nan}))  # may be: all returns equal


def test_entropy_of_a_gaussian_may_be_negative_and_of_a_solved_policy_small() -> None:
    gaussian = rows(entropy=lambda n: 1.4 - 0.05 * n, **{"train/policy/std": lambda n: 0.3})
    assert not alerts_of(gaussian)
    assert not alerts_of(rows(entropy=lambda n: 0.6 if n < 190 else 1e-4))  # at its goal by then
    assert alerts_of(rows(entropy=lambda n: 0.6 if n < 20 else 1e-4))
    late, early = (rows(entropy=lambda n, at=at: 0.6 if n < at else 1e-4) for at in (110, 20))
    assert not alerts_of(late, goal=None) and alerts_of(early, goal=None)


def test_a_loss_that_multiplies_at_once_and_one_that_grows_with_the_returns() -> None:
    jump = rows(**{"train/loss/value": lambda n: 1e4 if n >= 100 else 2.0})
    assert "Value loss above 30 times the rows before" in alerts_of(jump)
    assert not alerts_of(rows(**{"train/loss/value": lambda n: 1.1**n if n < 80 else 2000.0}))
    sparse = rows(**{"train/grad_norm/critic": lambda n: 0.05 if n > 90 else 1e-4})
    assert not alerts_of(sparse)  # the first reward was met
    lost = rows(train=lambda n: 20.0, **{"train/value/explained_variance": lambda n: 0.8 if n < 60 else -0.4})
    assert "Explained variance down by more than 1 at once" in alerts_of(lost)


def test_values_beyond_any_return() -> None:
    found = alerts_of(rows(q=lambda n: 1.3**n if n < 60 else 1e6), DQN)
    assert "Q above 3 times any return" in found
    assert not alerts_of(rows(q=lambda n: min(99.0, n), **{"train/roll/ep_len/mean": lambda n: 20 + 2.5 * n}), DQN)


def test_a_temperature_that_died_is_told_where_it_is_learnt() -> None:
    dead = rows(budget=20_000, train=lambda n: -1200.0, **{"train/policy/alpha": lambda n: 1e-7})
    assert "Temperature below 1e-05" in alerts_of(dead, SAC, -250.0)
    assert "Temperature below 1e-05" not in alerts_of(dead, replace(SAC, ent_coef=0.0), -250.0)


def test_return_that_collapses_or_does_not_come() -> None:
    up_and_down = rows(
        train=lambda n: 400.0 if n < 100 else 60.0, val=lambda n: 20.0 if n < 5 else 480.0 if n < 99 else 9.0
    )
    assert "Evaluation left with less than 50% of its gain" in alerts_of(up_and_down)
    assert "Return left with less than 50% of its gain" in alerts_of(
        rows(train=lambda n: 20 + (4 * n if n < 90 else 0))
    )
    noisy = rows(val=lambda n: 100.0 if n % 7 == 0 else 20.0 + 2.2 * n)  # one bad evaluation now and then is luck
    assert not alerts_of(noisy)
    slow = alerts_of(rows(train=lambda n: 20.0 + 0.01 * n))
    assert slow["Return no better for 34% of the budget"].first == 52_500
    assert not alerts_of(rows(train=lambda n: 20.0 + 0.01 * n), goal=None)
    assert not alerts_of(rows(train=lambda n: min(460.0, 20.0 + 10 * n)))  # almost there


def test_a_mean_of_few_episodes_is_luck_and_no_progress_to_be_missed() -> None:
    """A budget of 3,000 steps of CartPole was told that a third of it had brought nothing."""
    found = rows(**{"train/roll/ep_rew/mean": lambda n: 60.0 if n < 3 else 20.0})
    for n, row in enumerate(found):
        row["train/roll/episodes"] = n / 2
    assert alerts_of(found) == {}
    for row in found:
        row["train/roll/episodes"] += 100
    assert [*alerts_of(found)] == ["Return no better for 34% of the budget"]


def test_the_return_of_who_explores_says_little() -> None:
    """Q-learning solved FrozenLake and CliffWalking with half and a tenth of its actions random, and was alarmed."""
    poor = rows(train=lambda n: 200.0 if n < 60 else 20.0)
    assert alerts_of(poor)
    for variant, calm in (("FrozenLake-v1", True), ("Taxi-v4", False)):
        config = load_config(variant, "q_learning", [f"max_timesteps={BUDGET}", f"epsilon={0.5 if calm else 0.05}"])
        assert (alerts_of(poor, config) == {}) is calm


def timed(share: float, seconds: float) -> list[dict[str, float]]:
    """10,000 steps per second of collecting and learning, which are `share` of the time; a fifth in rows 100 to 130."""
    pace = {n: 2000.0 if 100 <= n < 130 else 10_000.0 for n in range(200)}
    more = {COLLECT: lambda n: share / 2, LEARN: lambda n: share / 2, SECONDS: lambda n: seconds * n}
    return rows(**{RATE: lambda n: pace[n] * share}, **more)


def test_speed_that_drops_for_long() -> None:
    found = alerts_of(timed(0.9, 1.0))
    assert found["Speed below 33% of its median"].rows == 30
    assert not alerts_of(timed(0.9, 0.01))  # a third of a second is no drop
    evaluating = timed(1.0, 1.0)
    for n, row in enumerate(evaluating):  # the same pace, but from the middle on it is nine tenths evaluation
        factor = 0.1 if n >= 100 else 1.0
        row |= {RATE: 10_000.0 * factor, COLLECT: 0.5 * factor, LEARN: 0.5 * factor}
    assert not alerts_of(evaluating)


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
    resumed = AlertWatch(PPO, 475.0, past_rows(RunDir(tmp_path), all_rows[99][STEPS]))
    assert [alert.title for alert in resumed.alerts] == ["KL", "Return"]
    for row in all_rows[100:]:
        csv.row(row)
        resumed.add(row)
    csv.end(None)
    write_json(tmp_path / "config.json", {"config": to_plain(PPO), "goal": 475.0})
    assert straight.alerts == resumed.alerts == read_alerts(RunDir(tmp_path)) != ()
    write_json(tmp_path / "config.json", {"config": to_plain(PPO), "goal": 15.0})  # reached: another verdict at once
    assert [alert.title for alert in read_alerts(RunDir(tmp_path))] == ["KL", "Clipped"]
    with (tmp_path / "metrics.csv").open("a") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(UserError, match="has 4 MiB: its alerts stand in report"):
        read_alerts(RunDir(tmp_path))


def test_memory_is_looked_at_and_noted_beside_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 20 < memory_used() < memory_limit()
    (tmp_path / "logs").mkdir()
    fraction = {"now": 0.2}
    monkeypatch.setattr(watch_module, "memory_used", lambda: fraction["now"] * memory_limit())
    notes, watch = MemoryNotes(tmp_path / "logs"), AlertWatch(DQN, 475.0)
    events = []
    for n, row in enumerate(rows(20, budget=DQN.max_timesteps)):
        fraction["now"] = 0.2 if n < 5 else 0.9 if n < 10 else 0.1
        events += watch.add(row | notes.measure(row))
    assert [event.sentence() for event in events] == [
        "! Memory 0.90, above 0.85",
        "over: Memory 0.10, no longer above 0.85",
    ]
    assert "lower buffer_size (now 100,000), or set replay_storage (now ram) to memmap" in watch.alerts[0].tip
    notes = read_memory(tmp_path / "logs")
    assert len(notes) == 15 and min(notes) == 15_000 and notes[50_000.0] == 0.1
    MemoryNotes(tmp_path / "logs", up_to=20_000)
    assert [*read_memory(tmp_path / "logs")] == [15_000.0, 17_500.0, 20_000.0]
    csv = MetricsCsv(tmp_path / "metrics.csv")
    for row in rows(20, budget=DQN.max_timesteps):
        csv.row(row)
    csv.end(None)
    read = past_rows(RunDir(tmp_path))
    assert [row[MEMORY] for row in read if MEMORY in row] == [0.9, 0.9, 0.9]


def shown(quiet: bool, tty: bool = False, width: int = 100) -> tuple[Console, Terminal]:
    terminal = Terminal(file=io.StringIO(), width=width, height=50, force_terminal=tty, color_system=None, _environ={})
    view = Console(quiet, terminal=terminal, clock=lambda: 0.0)
    view.begin(HEADER, PPO)
    return view, terminal


def fed(view: Console, terminal: Terminal, found: list[dict[str, float]]) -> str:
    watch = AlertWatch(PPO, 475.0)
    for row in found:
        view.row(row)
        for event in watch.add(row):
            view.alert(event)
    view.end(replace(OUTCOME, alerts=watch.alerts))
    assert isinstance(terminal.file, io.StringIO)
    return terminal.file.getvalue()


FLAPPING = rows(kl=lambda n: 0.2 if n // 10 % 2 else 0.01)


def test_a_pipe_is_told_when_an_alert_begins_and_ends_and_how_many_there_were() -> None:
    text = fed(*shown(quiet=False), FLAPPING)
    assert text.isascii()
    assert text.count("! KL 0.200, above 0.1 at ") == 3 == text.count("over: KL 0.0100, no longer above 0.1 at ")
    assert text.count("Try to lower policy_lr") == 2  # with the first, and at the end
    assert "  1 alert: KL\n    KL above 0.1 in 100 rows from 8,250 steps on (worst 0.200)\n" in text


def test_quiet_counts_them_in_its_one_line() -> None:
    text = fed(*shown(quiet=True), FLAPPING)
    assert text.count("\n") == 1 and " alerts=1 run=runs/x" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_marks_what_is_open_and_says_what_to_try(width: int) -> None:
    view, terminal = shown(quiet=False, tty=True, width=width)
    text = fed(view, terminal, rows(kl=lambda n: 0.2))
    drawing = re.split(r"\x1b\[[0-9]*[AK]", text.split("not solved")[0])
    page = "".join(drawing)
    assert "! KL above 0.1  Try to lower policy_lr" in page
    assert max(len(line) for part in drawing for line in part.splitlines()) <= width
    assert re.search(r"KL +! 0\.20000", page)


def test_report_has_a_row_for_each(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {})
    watch = AlertWatch(PPO, 475.0, FLAPPING)
    write_report(RunDir(tmp_path), PPO, FLAPPING, replace(OUTCOME, alerts=watch.alerts))
    text = (tmp_path / "report.md").read_text()
    assert "| KL above 0.1 | 8,250 | 150,000 (to the end) | 100, begun 10 times | 0.200 |" in text


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    facts = {"versions": {"torch": "2.13.0"}, "host": {"cpus": 2}, "git_hash": "4f2a9c1"}
    write_json(tmp_path / "config.json", facts)
    with open_run_log(tmp_path / "run.log", quiet=True):
        yield RunDir(tmp_path)


def lines_of(run: RunDir) -> list[str]:
    return [line[24:] for line in run.run_log.read_text().splitlines()]


def logged(run: RunDir, found: list[dict[str, float]], config: Any = PPO, end: Mapping[str, Any] | None = None) -> None:
    sink, watch = LogLines(run), AlertWatch(config, 475.0)
    sink.begin(HEADER, config)
    for row in found:
        sink.row(row)
        for event in watch.add(row):
            sink.alert(event)
    sink.end(None if end is None else replace(OUTCOME, alerts=watch.alerts, **end))


def test_run_log_holds_what_happened(run: RunDir) -> None:
    test = {"test/roll/ep_rew/mean": 301.5, "test/roll/episodes": 100.0}
    found = [*rows(kl=lambda n: 0.2 if 50 < n < 60 else 0.01), test]
    found[49] |= {VAL: 92.6, "val/roll/ep_rew/std": 3.0, "val/roll/episodes": 20.0, RATE: 5000.0}
    logged(run, found, end={})
    lines = lines_of(run)
    assert "NOTE    engine: eager, cpu, 9,155 parameters" in lines
    assert "NOTE    versions: torch 2.13.0, git 4f2a9c1" in lines
    (line,) = [line for line in lines if "evaluation" in line]
    assert line == "NOTE    37,500 steps, 25%, return 142.5, evaluation 92.6 +- 3.00 over 20 episodes, 5,000 steps/s"
    assert 20 <= sum(", return " in line for line in lines) <= LINES + 1 <= 50
    assert sum("alert ! KL" in line for line in lines) == 1 == sum("alert over: KL" in line for line in lines)
    assert "NOTE    test 301.5 over 100 episodes" in lines
    assert lines[-1] == f"NOTE    {replace(OUTCOME, alerts=AlertWatch(PPO, 475.0, found).alerts).sentence()}"


def test_run_log_goes_on_with_a_resumed_run_and_leaves_the_screen_alone(
    run: RunDir, capsys: pytest.CaptureFixture
) -> None:
    logged(run, rows()[:100])
    logged(run, rows()[100:], end={})
    lines = lines_of(run)
    assert sum(line.endswith("CartPole-v1:ppo") for line in lines) == 2 and lines[-1].startswith("NOTE    Not solved")
    steps = [int(match[1].replace(",", "")) for line in lines if (match := re.match(r"NOTE    ([\d,]+) steps, ", line))]
    assert steps == sorted(set(steps)) and steps[-1] == BUDGET
    assert capsys.readouterr().out == ""
    assert logging.getLogger("stride").level == logging.DEBUG


def test_an_event_is_a_sentence() -> None:
    alert = Alert("n", "KL", "above 0.1", 1, 2, 1, 1, 0.2, "0.2", "M.", "T.")
    assert Event(True, alert, 2, "0.2").sentence() == "! KL 0.2, above 0.1"
