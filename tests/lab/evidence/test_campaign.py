"""The campaign of evidence: its rules, what a kill leaves, receipts that catch what is stale, and figures twice."""

import json
import math
import os
import random
import re
import signal
import subprocess
import time
from functools import partial

import numpy as np
import pytest

from lab import host
from lab.evidence import aggregate, campaign, families, receipts, runs
from lab.evidence.aggregate import held_from, pooled_iqm, profile, wilson
from lab.evidence.campaign import check_tree, due_runs, work
from lab.evidence.families import PAGE, markdown, measured_row
from lab.evidence.receipts import SAME, STALE, first_tenth, judged, restamped, sources_hash, syntax
from lab.evidence.rows import ROWS, TUNING, chosen, row_of, seeds_of, settings
from lab.evidence.runs import DONE, TAKEN, Run, Store, keep, size
from stride.config.listing import list_environments
from stride.runstore.history import STEPS, VAL
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

ROW = row_of("CartPole-v1:ppo")
LIMIT = 5 << 20  # bytes of all records in git


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "claims"))
    return Store(tmp_path / "runs", tmp_path / "curves")


def record_of(seed, mean=500.0, **changes):
    values = {"mean": mean, "episodes": 100}
    record = {
        "seed": seed, "status": "finished", "solved": mean >= 475, "reason": "budget spent", "env_steps": 100_000,
        "seconds": 9.0, "core_seconds": 12.0, "goal": 475.0, "final": values, "best": values, "git_hash": "a" * 40,
        "engine": "fused_cpu", "versions": {"torch": "2"}, "processor": "znver3, AVX2", "machine": "AMD EPYC, 2 cores",
        "settings": settings(ROW), "budget": 100_000, "sources": "s", "tenth": "t",
    }  # fmt: skip
    return record | changes


def curve_of(mean):
    return {"val": [[1000, 0.0], [9000, mean], [100_000, mean]], "train": [], "sources": []}


def fill(store, means=(500.0, 500.0, 490.0, 480.0, 100.0)):
    for seed, mean in enumerate(means, 1):
        store.write(ROW.variant, record_of(seed, mean), curve_of(mean))


def test_every_shipped_variant_is_in_the_table_once():
    names = [row.variant for row in ROWS]
    shipped = {f"{row.env}:{row.variant}" for row in list_environments()}
    assert len({*names}) == len(names) and shipped <= {*names} and {*TUNING} <= {*names}
    assert [row_of(name).seeds for name in ("CartPole-v1:ppo", "CartPole-v1:ppo_lstm", "Hopper-v5:sac")] == [20, 10, 5]
    assert chosen(["P2"]) == [row for row in ROWS if row.piece == "P2"]
    config = ROW.config()
    assert (config.max_timesteps, config.threads, config.test_episodes) == (100_000, 1, 100)
    assert config.early_stop_on_eval_threshold is False and config.early_stop_on_train_threshold is False


def test_a_seed_is_spent_by_a_changed_setting_and_the_next_round_begins(store):
    assert seeds_of(ROW, {}, "new") == range(1, 21)
    assert seeds_of(ROW, {1: {"new"}, 7: {"new", "old"}}, "new") == range(1001, 1021)
    assert seeds_of(ROW, {7: {"old"}, 1001: {"older"}, 1002: {"new"}}, "new") == range(2001, 2021)
    assert row_of("CartPole-v1:dreamer").spent == range(1, 6)
    assert store.seeds(row_of("CartPole-v1:dreamer")).start == 1001
    fill(store)
    assert store.seeds(ROW) == range(1, 21) and store.due(ROW) == [*range(6, 21)]
    store.write(ROW.variant, record_of(3, settings="other"), curve_of(500.0))
    assert store.due(ROW) == [*range(1001, 1021)]
    assert "earlier round, seeds 1-5: 500.0, 500.0, 500.0" in "\n".join(families.rounds(ROW, store))


@pytest.mark.parametrize(("then", "first"), [({}, 1), ({"gamma": 0.5}, 1001)])
def test_a_key_that_came_later_spends_no_seed(store, monkeypatch, then, first):
    """Records of before it: its default is what they were trained with."""
    monkeypatch.setattr(
        runs, "settings_only", lambda plain: {k: v for k, v in plain.items() if k != "target_kl"} | then
    )
    store.keep_settings(ROW)
    monkeypatch.undo()
    store.settings_file(ROW.variant, settings(ROW)).rename(store.settings_file(ROW.variant, "older"))
    store.write(ROW.variant, record_of(3, settings="older"), curve_of(500.0))
    assert store.seeds(ROW).start == first


def fake(log, run):
    """A training of milliseconds."""
    with log.open("a") as file:
        file.write(f"{run.seed}\n")
    time.sleep(0.004)
    return record_of(run.seed), curve_of(500.0)


class Forked:
    """A run in a process of its own."""

    def __init__(self, store, log, run):
        self.pid = os.fork()
        self.code = None
        if not self.pid:
            os._exit(keep(store, run, partial(fake, log, run)))

    def poll(self):
        if self.code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if done else None
        return self.code

    def send_signal(self, number):
        os.kill(self.pid, number)


def test_the_runner_killed_at_20_instants_loses_no_run_and_counts_none_twice(store, tmp_path, monkeypatch):
    """At instants from 1 to 60 ms, in turns alone and with its trainings; every call goes on with what is missing."""
    monkeypatch.setattr(campaign, "POLL_PERIOD", 0.001)
    log, instants, left = tmp_path / "log", random.Random(5), []

    def campaign_once():
        return work(due_runs([ROW], store), store, 60, 2, partial(Forked, store, log))

    for trial in range(20):
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            os._exit(campaign_once())
        os.setpgid(pid, pid)
        time.sleep(instants.uniform(0.001, 0.06))
        (os.killpg if trial % 2 else os.kill)(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        left.append(len(store.due(ROW)))
    assert left == sorted(left, reverse=True), "what is recorded stays"
    while store.due(ROW):  # a training whose runner died may have its run for a moment
        assert campaign_once() == 0
    assert [*store.records(ROW.variant)] == [*range(1, 21)]
    assert all(record["earlier"] == [] for record in store.records(ROW.variant).values()), "each is recorded once"
    assert len(log.read_text().split()) >= 20


def test_two_runners_do_not_take_one_run(store):
    run = Run(ROW, 4)
    with store.claimed(run) as ours, store.claimed(run) as theirs, store.claimed(Run(ROW, 5)) as other:
        assert (ours, theirs, other) == (True, False, True)
        assert keep(store, run, lambda: pytest.fail("is being trained")) == TAKEN
    assert keep(store, run, lambda: 143) == 143 and 4 in store.due(ROW), "a person stopped it"
    assert keep(store, run, lambda: (record_of(4), curve_of(500.0))) == DONE
    assert keep(store, run, lambda: pytest.fail("is recorded")) == DONE


def test_a_record_without_its_own_curve_is_due_again(store):
    fill(store)
    store.curve_file(ROW.variant, 2).write_bytes(store.curve_file(ROW.variant, 5).read_bytes())
    assert store.due(ROW)[0] == 2


def test_the_cheapest_rows_come_first_and_five_seeds_before_more(store):
    order = due_runs(chosen(["CartPole-v1:ppo", "CartPole-v1:dqn", "P2"]), store)
    first = [(run.row.variant, run.seed) for run in order if run.row.piece == "P1"]
    assert [name for name, _ in first[:10]] == [ROW.variant] * 5 + ["CartPole-v1:dqn"] * 5
    assert first[10] == (ROW.variant, 6) and order[-1].row.piece == "P2"


def test_changed_code_is_refused_and_records_are_not_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "PROJECT", tmp_path)
    with pytest.raises(UserError, match="git checkout"):
        check_tree()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for folder in ("docs", "evidence"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "record").touch()
    check_tree()
    (tmp_path / "new.py").touch()
    with pytest.raises(UserError, match=r"new\.py is not committed"):
        check_tree()


def test_comments_change_no_receipt_and_code_does():
    one = syntax('"""Doc."""\n\ndef f(x):\n    """More."""\n    return x + 1  # why\n')
    assert one == syntax("def f( x ):\n    return (x + 1)\n") != syntax("def f(x):\n    return x + 2\n")


def test_a_restamped_commit_is_caught():
    """A record of today's code that names the commit in which another of its files was written."""
    path = "lab/evidence/receipts.py"
    log = subprocess.run(["git", "log", "--format=%H", "--", path], cwd=PROJECT, capture_output=True, text=True)
    head = log.stdout.split()[0] if log.stdout else ""
    if not head:
        pytest.skip("no git history here")
    record = {"git_hash": head, "sources": sources_hash([path], partial(receipts.from_git, head))}
    assert not restamped(record, [path])
    assert restamped({**record, "git_hash": f"{log.stdout.split()[-1]}~1"}, [path])


def test_every_record_is_of_the_code_of_its_commit():
    store, checked = Store(), {}
    for row in ROWS:
        for seed, record in store.records(row.variant).items():
            key = record["git_hash"], record["sources"]
            if receipts.is_in_git(key[0]) and key not in checked:
                checked[key] = restamped(record, store.curve(row.variant, seed)["sources"])
                assert not checked[key], f"{row.variant} seed {seed} names a commit of other code"


def test_a_stale_row_is_caught_listed_and_due_again(store, monkeypatch):
    fill(store)
    again = record_of(1, git_hash="b" * 40, sources="now", last={"curve": "val", "step": 9000, "value": 485.0})
    assert judged(ROW, store, record_of(1), again).result == SAME
    stamp = store.check(ROW.variant)
    assert (stamp["measured"], stamp["checked"]) == ("a" * 40, "b" * 40) and store.due(ROW)[0] == 6
    verdict = judged(ROW, store, record_of(1), {**again, "tenth": "other bits"})
    assert verdict.result == STALE and verdict.is_red and store.due(ROW)[:2] == [1, 2]
    monkeypatch.setattr(families, "ROWS", [ROW])
    assert "- CartPole-v1:ppo: **stale**, newer code gives other bits than seeds 1-5" in markdown(store)
    store.write(ROW.variant, record_of(1, sources="now"), curve_of(500.0))
    assert store.due(ROW)[0] == 2, "a new run is not stale"
    elsewhere = {**again, "tenth": "other bits", "processor": "skylake, AVX512"}
    verdict = judged(ROW, store, record_of(1), elsewhere)
    assert not verdict.is_red and "not comparable to the bit" in verdict.line and verdict.line.endswith(": near")
    lost = {**elsewhere, "last": {"curve": "val", "step": 9000, "value": -900.0}}
    assert judged(ROW, store, record_of(1), lost).is_red, "no processor makes that"


@pytest.mark.parametrize(("recorded", "features", "name"), [
    ("znver3, AVX2", {"fma": True, "avx2": True, "avx512f": True, "sse4a": False}, "znver3"),
    ("haswell, AVX2", {"fma": True, "avx2": True}, "haswell"),
    ("skylake-avx512, AVX512", {"fma": True, "avx2": True, "avx512f": True}, ""),
    ("apple-m1, DEFAULT", {"neon": True}, ""),
    ("znver3, AVX2", {"neon": True}, ""),
    ("this, AVX2", {"fma": True, "avx2": True}, ""),
])  # fmt: skip
def test_a_newer_processor_computes_as_the_one_of_a_record(recorded, features, name, monkeypatch):
    monkeypatch.setattr(host.llvm, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(host.kernel_folder, "NAME", "this")
    wanted = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": "+avx2,+fma", **host.NO_WIDER} if name else {}
    assert host.switches(recorded) == wanted


def test_the_first_tenth_has_losses_and_no_times():
    rows = [{STEPS: 100.0, "train/loss/policy": 0.5, "train/time/seconds": 1.0}, {STEPS: 200.0, VAL: 3.0}]
    same = [{**rows[0], "train/time/seconds": 2.0}, {STEPS: 999.0, VAL: 4.0}]
    assert first_tenth(rows, 1500) == first_tenth(same, 1500) != first_tenth(rows, 2500)
    assert first_tenth([{**rows[0], "train/loss/policy": 0.25}], 1500) != first_tenth(rows, 1500)


def test_the_page_is_what_its_generator_writes():
    assert PAGE.read_text(encoding="utf-8") == markdown(Store()), "stale: python -m lab.evidence page"


def results_in(text):
    """Test mean and env steps that a page prints for CartPole-v1:ppo: of a training's end, and of --quiet."""
    told = re.findall(r"test +(-?[\d.]+) \+- .*\n  spent +([\d,]+) env steps", text)
    quiet = re.findall(r"test_mean=(-?[\d.]+) .*?env_steps=(\d+)", text)
    return {(round(float(mean), 1), int(steps.replace(",", ""))) for mean, steps in (*told, *quiet)}


def test_one_command_has_one_published_result():
    """README's sample and every page that shows what `train.py CartPole-v1:ppo` prints."""
    pages = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
    texts = [text for text in (page.read_text(encoding="utf-8") for page in pages) if "CartPole-v1:ppo" in text]
    found = [results_in(text) for text in texts]
    assert results_in(texts[0]) and len(set().union(*found)) == 1
    changed = re.sub(r"(spent +)[\d,]+", r"\g<1>1,280", texts[0])
    assert len(results_in(changed) | set().union(*found)) == 2, "a changed sample is caught"


def test_records_stay_small_in_git():
    store = Store()
    assert size([store.runs, store.curves]) <= LIMIT


def test_a_row_recomputed_by_other_lines_is_equal(store, monkeypatch):
    """CartPole's planted row from the files on disk, and a stored older one: by plain Python."""
    fill(store)
    cells = dict(zip(families.MEASURED, measured_row(ROW, store.evidence(ROW), store), strict=True))
    means = sorted(json.loads(path.read_text())["final"]["mean"] for path in store.runs.rglob("seed-*.json"))
    assert cells["mean"] == f"{sum(means) / 5:.1f}" and cells["IQM [95 %]"].startswith(f"{sum(means[1:4]) / 3:.1f} [")
    share, z = 4 / 5, 1.96
    low, high = (
        (share + z * z / 10 + sign * z * math.sqrt(share / 25 + z * z / 100)) / (1 + z * z / 5) for sign in (-1, 1)
    )
    assert cells["solved [Wilson 95 %]"] == f"4 of 5 [{low:.2f}, {high:.2f}]"
    areas = [(mean / 2 * 8000 + mean * 91_000) / 99_000 for mean in means]
    assert cells["area"] == f"{sum(areas) / 5:.1f}" and cells["goal held from, median"] == "9,000 (4 of 5)"
    assert cells["worst"] == "100.0" and cells["seeds"] == "1-5"
    older = json.loads((runs.RESULTS / "Pendulum-v1-sac.json").read_text())
    values = sorted(record["final"]["mean"] for record in older["seeds"].values())
    assert older["summary"]["final"]["iqm"] == pytest.approx(sum(values[1:-1]) / (len(values) - 2))
    store.write(ROW.variant, record_of(6), curve_of(500.0))
    few = Store(store.runs.parent / "few", store.curves.parent / "few_curves")
    fill(few, (500.0, 480.0, 470.0, 500.0))
    cells = measured_row(ROW, few.evidence(ROW), few)
    assert not any("[" in cell for cell in cells), "no interval below five seeds"


def test_aggregates_by_hand():
    assert wilson(4, 5) == pytest.approx((0.3755, 0.9638), abs=1e-4) and wilson(20, 20)[1] == pytest.approx(1.0)
    assert aggregate.normalised([20.0, 260.0, 500.0], 20.0, 500.0) == [0.0, 0.5, 1.0]
    scores = [[0.0, 1.0, 1.0, 1.0], [0.5, 0.5]]
    assert [point.y for point in profile(scores, [0.4, 0.5, 1.0])] == [(0.75 + 1) / 2, 0.375, 0.0]
    assert pooled_iqm(scores).value == pytest.approx((0.5 + 0.5 + 1 + 1) / 4)
    low, high = pooled_iqm([[1.0] * 5, [1.0] * 5])[1:]
    assert (low, high) == (1.0, 1.0)
    assert aggregate.improvement([[1.0, 3.0], [0.0]], [[2.0, 2.0], [0.0]]) == 0.5
    assert aggregate.area(np.array([[0, 0.0], [10, 10.0], [30, 10.0]])) == pytest.approx((50 + 200) / 30)
    assert (
        held_from([(1, 5.0), (2, 9.0), (3, 1.0), (4, 9.0), (5, 9.0)], 8.0) == 4 and held_from([(1, 9.0)], 8.0) is None
    )


@pytest.mark.slow
def test_a_real_run_leaves_its_record_and_its_tenth_has_the_same_bits(store, monkeypatch):
    """FrozenLake by tabular Q-learning, a hundredth of its budget."""
    from lab.evidence import run as module

    row = row_of("FrozenLake-v1:q_learning")._replace(budget=4_000)
    run = Run(row, 1)
    assert keep(store, run, lambda: module.trained(run)) == DONE
    record = store.records(row.variant)[1]
    assert record["final"]["episodes"] == 100 and record["reason"] == "budget spent" and record["engine"]
    assert store.curve(row.variant, 1)["sources"] == sorted(store.curve(row.variant, 1)["sources"])
    assert "agents/q_learning.py" in store.curve(row.variant, 1)["sources"]
    assert module.tenth(run)["tenth"] == record["tenth"]
    monkeypatch.setattr(
        module, "trained", lambda run: ({**record, "git_hash": "HEAD", "sources": "others"}, {"sources": []})
    )
    with pytest.raises(UserError, match="nothing is recorded"):
        module.trained_by_its_commit(run)
