"""Tables of evidence: two ways compared, world models and bands of curves."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lab.bench import peers
from lab.evidence import candidates, sensitivity
from lab.evidence.bands import text
from lab.evidence.families import in_order
from lab.evidence.file import Evidence, configured, summary
from lab.evidence.rows import row_of
from lab.evidence.runs import RESULTS, Store
from lab.evidence.seed import SECONDS, of_a_model
from lab.evidence.ways import ENGINES, comparison, reached
from stride.agents.engines.choice import build_agent
from stride.config.bands import FILE
from stride.config.loader import load_config, to_plain
from stride.config.schedule import Schedule
from stride.config.yaml_file import read_yaml
from stride.envs_gym.make import make_envs
from stride.runstore.history import STEPS, VAL
from stride.runstore.many.process_pool import Finished
from stride.utils.provenance import PROJECT
from stride.utils.typography import score
from stride.utils.user_error import UserError


def test_equal_ways_are_the_same_and_others_are_told_apart():
    rng = np.random.default_rng(5)
    one, other = rng.normal(0, 1, 10), rng.normal(0, 1, 10)
    assert [comparison(one, other + shift, ENGINES.level).same for shift in (0, 3, -3)] == [True, False, False]
    seeds = np.linspace(-100.0, 100.0, 10)
    assert comparison(seeds, seeds, ENGINES.level).same
    assert not comparison(seeds, seeds - 5.0, ENGINES.level).same, "the seeds' intervals overlap; the pairs tell"
    with pytest.raises(UserError, match="two seeds"):
        comparison([1.0], [1.0], 0.95)
    record = {"final": {"mean": 7}, "curve": {"val": [[100, 0.0], [200, 10.0], [400, 10.0]]}}
    assert reached(record, "area") == pytest.approx((5.0 * 100 + 10.0 * 200) / 300) and reached(record, "final") == 7


def test_the_evidence_and_the_bands_of_the_package_are_what_the_seeds_say():
    paths = sorted(RESULTS.glob("*.json"))
    assert FILE.read_text() == text(in_order(Store())), "stale: python -m lab.evidence page"
    for path in paths:
        evidence_file = Evidence.read(path)
        written, computed = json.loads(path.read_text())["summary"], summary(evidence_file.finished())
        assert (written["solved"], written["finished"]) == (computed["solved"], computed["finished"]), path.name
        assert written["final"]["iqm"] == pytest.approx(computed["final"]["iqm"])


def test_a_variant_of_other_settings_is_in_no_band():
    evidence = Evidence.read(RESULTS / "CartPole-v1-pqn.json")
    assert [*json.loads(text([evidence]))] == ["CartPole-v1:pqn"]
    evidence.overrides = ["gamma=0.5"]
    assert json.loads(text([evidence])) == {}


def test_what_is_recorded_of_a_model_beside_its_curve():
    """When it was evaluated and what an answer costs; of policies without a model nothing."""
    rows = [{SECONDS: 2.0, STEPS: 10.0}, {SECONDS: 5.0, STEPS: 20.0, VAL: 7.0}]
    results = []
    for variant, small in (("dreamer", ["deter=8", "width=8", "stoch=2"]), ("ppo", [])):
        config = load_config("CartPole-v1", variant, small)
        agent = build_agent(config, make_envs(config, 2))
        results.append(of_a_model(SimpleNamespace(agent=agent, config=config), rows))
    assert results[0]["val_seconds"] == [[20, 5.0]] and results[0]["ms_per_action"] > 0 and results[1] == {}


def test_a_rate_that_fades_is_of_the_share_that_is_left():
    fading = peers.rate(Schedule("linear", 3.0, 1.0))
    assert [fading(left) for left in (1.0, 0.5, 0.0)] == [3.0, 2.0, 1.0] and peers.rate(0.5) == 0.5


# ---- sensitivity


def test_the_ten_cheapest_variants_take_every_changed_value():
    rows = sensitivity.cheapest()
    assert len(rows) == 10
    for row in rows:
        values = {}
        for key, _, override in sensitivity.changes(row.config()):
            changed = configured(row.variant, [*row.overrides, override])
            values.setdefault(key, []).append(vars(changed)[key])
        assert [len(each) for each in values.values()] == [4, 4, 4]
        assert all(each.count(vars(row.config())[key]) <= 1 for key, each in values.items())


def test_a_changed_key_is_trained_kept_and_shown_beside_the_shipped_value(tmp_path, monkeypatch):
    row = row_of("CartPole-v1:ppo")._replace(budget=512)
    monkeypatch.setattr(sensitivity, "TRAININGS", tmp_path)
    monkeypatch.setattr(sensitivity, "KEYS", {"ppo": ("gamma",)})
    monkeypatch.setattr(sensitivity, "VALUES", {"gamma": (0.5,)})
    result = sensitivity.measured(row, 1, 1)
    [[shipped], [changed]] = result["shipped"][""], result["gamma"]["0.5"]
    assert 8 < shipped < 500 and 8 < changed < 500
    monkeypatch.setattr(sensitivity, "train", lambda files, *rest: next(iter(files.values())).finished()[0])
    assert sensitivity.measured(row, 1, 1) == result, "what is there is not trained again"
    [_, text, table] = sensitivity.page_part({"git_hash": "0" * 40, "seeds": [100], "variants": {row.variant: result}})
    assert f"| {row.variant} | {score(shipped)} | `gamma` | 0.5: {score(changed)} |" in table and "0000000000" in text


# ---- candidates


def result(candidate, task, seed, final, area=0.0):
    return {"candidate": candidate, "task": task, "seed": seed, "final": final, "area": area, "seconds": 60.0}


def test_candidates_are_ranked_by_their_places_between_a_tasks_worst_and_its_best():
    results = [result("A", "one", 100, 10.0), result("A", "one", 101, 30.0), result("B", "one", 100, 0.0)]
    results += [result("C", "one", 100, 40.0), result("A", "two", 100, -1.0), result("C", "two", 100, -3.0, -1.0)]
    assert candidates.shares(results, "final") == {"A": 0.75, "B": 0.0, "C": 0.5}
    assert candidates.shares(results, "area") == {"A": 1.0, "B": 1.0, "C": 0.5}, "where all are equal, all are the best"
    rows = candidates.ranking(results).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [
        "| A",
        "| C",
        "| B",
    ] and "| 0.750 | 1.000 | 3 | 20.0 | -1.00" in rows[0]


def test_the_candidates_for_continuous_tasks_are_configs_that_differ():
    plan = read_yaml(PROJECT / "lab" / "evidence" / "continuous.yaml")
    trials = [*candidates.trials_of(plan, ["Pendulum-v1"], None)]
    configs = [configured(*trial.arguments) for trial in trials]
    assert len(trials) == len({trial.group for trial in trials}) * 2 == 16
    assert all((config.n_envs, config.max_timesteps) == (64, 10**6) for config in configs)
    scales = [trial.candidate for trial, config in zip(trials, configs, strict=True) if config.value_scale == "popart"]
    assert scales == ["G", "H", "G", "H"]


@pytest.mark.parametrize("path", sorted((PROJECT / "lab" / "evidence").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_plan_has_candidates_that_differ(path):
    configs = {}
    for trial in candidates.trials_of(read_yaml(path), None, None):
        configs.setdefault((trial.task, trial.seed), []).append(to_plain(configured(*trial.arguments)))
    assert all(configs_of_task.count(config) == 1 for configs_of_task in configs.values() for config in configs_of_task)


def test_a_task_of_a_plan_may_have_settings():
    plan = {"algorithm": "ppo", "seeds": [1], "common": {"gamma": 0.9}, "candidates": {"A": {}}}
    [trial] = candidates.trials_of({**plan, "tasks": ["bsuite/DeepSea-v0 env_kwargs.size=20"]}, None, None)
    assert trial.task == "bsuite/DeepSea-v0:ppo env_kwargs.size=20"
    config = configured(*trial.arguments)
    assert (config.env_kwargs["size"], config.gamma) == (20, 0.9)


def test_a_result_is_kept_as_a_line_and_not_trained_again(tmp_path, monkeypatch, capsys):
    record = {"final": {"mean": 5.0}, "curve": {"val": [[0, 1.0], [10, 3.0]], "train": []}, "env_steps": 10}
    record |= {"seconds": 1.0, "engine": "eager", "git_hash": "0", "run": "r"}

    def trained(commands, workers):
        for number, command in enumerate(commands):
            Path(command[6]).write_text(json.dumps(record))
            yield Finished(number, number % 2, "no room")

    monkeypatch.setattr(candidates, "run_all", trained)
    monkeypatch.setattr(candidates, "configured", lambda *trial: None)
    plan = {
        "algorithm": "ppo",
        "tasks": ["E"],
        "seeds": [100],
        "common": {},
        "candidates": {"A": {}, "B": {"gamma": 0.9}},
    }
    trials, path = [*candidates.trials_of(plan, None, 50)], tmp_path / "new" / "r.jsonl"
    assert candidates.train(trials, path, 1) == 1 and "B on E:ppo, seed 100: FAILED: no room" in capsys.readouterr().out
    [line] = candidates.read(path)
    assert line["settings"][-1] == "max_timesteps=50" and (line["final"], line["area"]) == (5.0, 2.0)
    assert candidates.train(trials, path, 1) == 0, "only what failed is trained again, now the first command"
    assert [kept["candidate"] for kept in candidates.read(path)] == ["A", "B"]
