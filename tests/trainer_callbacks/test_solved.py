"""What is said of a goal: only what a whole test says; ways to be called solved, or best, by a part of the episodes."""

import json
import re

import pytest
from tiny_runs import tiny_run

from stride.agents.trained.loading import load_run
from stride.commands import runs, train
from stride.config.listing import print_variants
from stride.config.loader import from_plain, load_config, to_plain
from stride.inspector.table import verdict_badge
from stride.report.group import read_group
from stride.report.group_page import report
from stride.report.monitor.run_list import RunList, shown_state
from stride.runstore.history import STEPS
from stride.runstore.metrics_table import EPOCH, read_csv
from stride.runstore.run_brief import best_of
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_facts import verdict, verdict_words
from stride.runstore.run_index import look_at
from stride.trainer_callbacks.evaluate import cadence, is_due
from stride.utils.durable_file import read_json, write_json
from stride.utils.user_error import UserError

PART = {"eval_max_steps": 20, "eval_episodes": 100, "spec.goal": 5}  # of 100 untrained episodes about 60 end by then
STOP = {"early_stop_on_eval_threshold": "true", "max_timesteps": 160}
WAYS = {
    "a short limit": {},
    "a limit in which nothing ends": {"eval_max_steps": 1},
    "no evaluation": {"eval_freq_epochs": "null"},
    "an early stop": STOP,
    "an early stop by whole evaluations": {**STOP, "eval_episodes": 1},
    "an early stop by training": {"early_stop_on_train_threshold": 5, "max_timesteps": 3200},
    "a plateau": {"plateau": "{patience: 2, then: stop}", "eval_freq_epochs": 1, "eval_episodes": 1},
    "drawn actions": {"eval_deterministic": "false"},
    "the fused engine": {"engine": "fused_cpu"},
    "torch": {"engine": "eager"},
    "Gymnasium's worlds": {"env_backend": "gym"},
    "a lagging actor": {"engine": "eager", "lag": 1},
    "99 episodes": {"test_episodes": 99},
}


def check_is_not_tested(run):
    """Wherever it is said how it ended, and that no score of a part is kept."""
    ended, wanted = run.facts()["outcome"], run.facts()["config"]["test_episodes"]
    assert verdict(ended) == look_at(run.path).result == "not tested" and not ended["solved"]
    assert ended["test_mean"] is None and ended["test_episodes"] < ended["test_wanted"] == wanted
    assert f"{ended['test_episodes']} of {wanted} test episodes" in run.report.read_text().splitlines()[0]
    columns = run.metrics_csv.read_text().splitlines()[0]
    assert "test/roll/ep_rew/mean" not in columns and "test/roll/episodes" in columns


def check_has_no_score(run):
    assert best_of(run.path) == (None, "") and run.facts()["outcome"]["val_best"] is None
    assert "val/roll/ep_rew" not in run.metrics_csv.read_text().splitlines()[0]
    assert f"{run.id} has no evaluation in which every episode ended: using last" in load_run(run.id).notes


@pytest.mark.parametrize("way", [*WAYS, pytest.param("workers", marks=pytest.mark.slow)])
def test_a_part_of_a_test_solves_nothing(way, capsys):
    words = WAYS.get(way, {"env_backend": "gym", "workers": 2})
    run = tiny_run(**{**PART, **words})
    line = capsys.readouterr().out.splitlines()[-1]
    check_is_not_tested(run)
    episodes = run.facts()["outcome"]["test_episodes"]
    assert line.startswith(f"result=not_tested test_mean=none test_std=none test_episodes={episodes} ")
    if words.get("eval_episodes") != 1:
        check_has_no_score(run)


@pytest.mark.parametrize(("number", "early", "words"), [(1, STOP, "1 episode"), (99, {}, "99 episodes"), (100, {}, "")])
def test_a_test_of_fewer_than_100_episodes_says_so(number, early, words, capsys):
    run = tiny_run(**{"spec.goal": 5, "test_episodes": number, **early})
    outcome = run.facts()["outcome"]
    assert capsys.readouterr().out.startswith("result=solved ") and outcome["test_episodes"] == number
    assert run.report.read_text().startswith(f"**Solved ({words}; " if words else "**Solved (budget spent), test ")
    assert look_at(run.path).verdict == (f"solved ({words})" if words else "solved")
    assert look_at(run.path).result == "solved" and outcome["tests"] == 1


def test_a_run_goes_on_to_a_whole_test():
    run = tiny_run(**PART)
    check_is_not_tested(run)
    assert train.command(["--resume", run.id, "-q", "eval_max_steps=null", "max_timesteps=128"]) == 0
    outcome = run.facts()["outcome"]
    assert outcome["solved"] and outcome["test_episodes"] == 100 and outcome["tests"] == 2
    assert "over 100 episodes (test 2 of this run)" in run.report.read_text()
    words = [f"{key}={value}" for key, value in {**PART, "max_timesteps": 192}.items()]
    assert train.command(["--resume", run.id, "--fork", "-q", *words]) == 0
    fork = RunDir.find("@last").facts()["outcome"]
    assert verdict(fork) == "not tested" and fork["test_mean"] is None and fork["tests"] == 1


def test_what_older_versions_called_solved_is_read_as_not_tested():
    """Its files stay as they are."""
    run, sound = tiny_run(**{"spec.goal": 5}), tiny_run(**{"spec.goal": 5})
    facts = run.facts()
    facts["outcome"] |= {"test_episodes": 9, "test_mean": 500.0}
    del facts["outcome"]["test_wanted"], facts["outcome"]["tests"]
    write_json(run.config_json, facts)
    head, *rows = [line.split(",") for line in run.metrics_csv.read_text().splitlines()]
    place = head.index("val/roll/episodes")
    for row in rows:
        row[place] = row[place].replace("2", "1")
    run.metrics_csv.write_text("".join(f"{','.join(row)}\n" for row in (head, *rows)))
    for path in run.checkpoints.glob("*=*.json"):
        sidecar = read_json(path)
        sidecar["score"] = 500.0 if sidecar["score"] else None
        write_json(path, {key: value for key, value in sidecar.items() if key != "score_episodes"})
    files = run.config_json, run.checkpoints / "best.json"
    before = [file.read_bytes() for file in files]
    line = look_at(run.path)
    assert (line.result, line.test, line.score) == ("not tested", None, None)
    assert verdict(run.facts()["outcome"]) == "not tested"
    assert RunDir.find("@best").id == sound.id
    assert load_run(run.id).notes[0] == f"{run.id} has no evaluation in which every episode ended: using last"
    assert [file.read_bytes() for file in files] == before


def test_without_a_whole_evaluation_best_is_the_last_and_seeds_of_a_group_are_not_tested_either(caplog):
    runs = [tiny_run("CartPole-v1:ppo", "--group", "both", seed=seed, **PART) for seed in (1, 2)]
    assert RunDir.find("@best").id == RunDir.find("@best:CartPole-v1:ppo").id == runs[1].id
    assert "no run of CartPole-v1 has an evaluation in which every episode ended: using the last run" in caplog.text
    group = read_group("both")
    assert [seed.verdict for seed in group.seeds] == ["not tested"] * 2 and group.tested == []


def test_how_few_is_said_wherever_solved_is(capsys):
    few = "solved (5 episodes)"
    for seed in (1, 2):
        run = tiny_run("CartPole-v1:ppo", "--group", "few", seed=seed, **{"spec.goal": 5, "test_episodes": 5})
    capsys.readouterr()

    def printed(command, *words):
        assert command([*words]) == 0
        return capsys.readouterr().out

    assert printed(runs.main, "list").count(few) == 2
    assert "solved (5 episodes; budget spent), " in printed(runs.main, "show", run.id)
    assert printed(runs.main, "export", "--format", "latex").count(few) == 2
    assert " 2 (5 episodes) " in printed(runs.main, "export", "--format", "latex", "--by", "variant")
    assert printed(runs.main, "compare", *(run.id for run in list_runs())).count(few) == 2
    assert few in printed(lambda words: print_variants(*words), "CartPole-v1:ppo")
    lines = json.loads(printed(runs.main, "list", "--json", "--filter", "result=solved"))
    assert [(line["result"], line["test_episodes"]) for line in lines] == [("solved", 5)] * 2
    page = report(read_group("few"))
    assert page.startswith("**2 of 2 seeds solved (5 episodes), ") and page.count(f"| {few} |") == 2
    assert few in str(verdict_badge(look_at(run.path).verdict))
    run_list = RunList()
    run_list.refresh()
    assert [shown_state(member) for row in run_list.rows("newest") for member in row.members] == [few] * 2
    assert verdict_words("not solved", 5) == "not solved"


# ---- how often a run is evaluated, and what is said of a goal


@pytest.mark.parametrize(
    ("words", "limit", "number"),
    [
        ("ppo max_timesteps=1e7", None, 40),
        ("ppo max_timesteps=1e6", 500, 20),  # 20 x 500 steps each: a fifth of the budget
        ("ppo max_timesteps=1e5", 500, 10),
        ("ppo max_timesteps=2560", 500, 10),  # ten epochs in all
        ("ppo max_timesteps=512", 500, 2),  # of which there are two
        ("dqn epoch_iterations=1000", 500, 10),  # an epoch is five times the budget
        ("dqn epoch_iterations=1000 train_freq=1 max_timesteps=1e6", 500, 20),
        ("dqn eval_warmup_epochs=0 eval_freq_epochs=2", 500, 12),  # a number is what it was
        ("ppo eval_freq_epochs=null", 500, 0),
    ],
)
def test_left_to_itself_a_run_is_evaluated_10_to_40_times(words, limit, number):
    variant, *settings = words.split()
    auto = [] if "eval_freq" in words else ["eval_freq_epochs=auto"]
    config = load_config("CartPole-v1", variant, [*auto, *settings])
    every, iterations = cadence(config, limit), config.max_timesteps // config.iteration_steps
    evaluations = sum(is_due(iteration, every, 0) for iteration in range(1, iterations + 1))
    assert number <= evaluations <= number + number // 5
    assert every < config.epoch_iterations or every % config.epoch_iterations == 0


def test_an_evaluation_may_come_within_an_epoch_and_auto_stays_auto_in_config_json():
    run = tiny_run(eval_freq_epochs="auto", epoch_iterations=1000, max_timesteps=640, test_episodes=4)
    rows = [line.split(",") for line in run.metrics_csv.read_text().splitlines()]
    column = rows[0].index("val/roll/ep_rew/mean")
    assert sum(bool(row[column]) for row in rows[1:]) == 10
    assert run.facts()["config"]["eval_freq_epochs"] == "auto" and (run.checkpoints / "best.ckpt").exists()


@pytest.mark.parametrize("cadence", [None, 5])
def test_an_older_runs_cadence_means_what_it_meant(cadence):
    """Written before test_episodes was a key, with the early stop of every config, evaluated or not."""
    plain = to_plain(load_config("CartPole-v1", "ppo"))
    plain |= {"eval_freq_epochs": cadence, "early_stop_on_eval_threshold": True}
    del plain["test_episodes"]
    assert from_plain(plain).eval_freq_epochs == cadence and from_plain(plain).test_episodes == 100
    assert from_plain(plain, overrides=["eval_freq_epochs=auto"]).eval_freq_epochs == "auto"


def test_the_end_is_tested_with_evaluation_off_and_told():
    run = tiny_run(eval_freq_epochs="null", early_stop_on_eval_threshold=None, **{"spec.goal": 5})
    assert run.facts()["outcome"]["solved"] and run.facts()["outcome"]["test_episodes"] == 100
    assert "**Solved (budget spent), test " in run.report.read_text()
    assert "the run does not stop early at the goal of 5" in run.run_log.read_text()


@pytest.mark.parametrize("cadence", ["null", "2"])
def test_what_was_not_tested_is_neither_solved_nor_unsolved(cadence, capsys):
    run = tiny_run(eval_freq_epochs=cadence, test_episodes=0)
    outcome = run.facts()["outcome"]
    assert outcome["test_mean"] is None and verdict(outcome) == "not tested"
    assert run.report.read_text().startswith("**Not tested (budget spent), ")
    assert capsys.readouterr().out.startswith("result=not_tested test_mean=none ")
    assert print_variants("CartPole-v1:ppo") == 0 and re.search(r"\d+/\d+ +not tested", capsys.readouterr().out)


def test_as_many_episodes_as_asked_for_confirm_an_evaluation():
    words = {"early_stop_on_eval_threshold": "true", "max_timesteps": 1600, "spec.goal": 5}
    asked, none = (tiny_run(**words, test_episodes=number).facts()["outcome"] for number in (7, 0))
    assert asked["test_episodes"] == 7 and asked["reason"] == "goal reached" and asked["solved"]
    assert none["env_steps"] == asked["env_steps"] == 32
    assert none["reason"] == "evaluation return reached" and verdict(none) == "not tested"


# ---- counted in env steps, and given up after a time

EPISODES = "val/roll/episodes"


def evaluations(run):
    return [row for row in read_csv(run.metrics_csv) if EPISODES in row]


def test_it_is_evaluated_at_the_first_iteration_at_or_past_every_so_many_steps():
    run = tiny_run(max_timesteps=200, eval_freq_steps=50, eval_freq_epochs=None, log_freq_epochs=1)
    steps = [row[STEPS] for row in evaluations(run)]
    assert steps == [64, 112, 160], "iterations of 16 steps: 48, 64; 96, 112; 144, 160; 192"


def test_the_warmup_counts_in_epochs_still():
    run = tiny_run(max_timesteps=200, eval_freq_steps=50, eval_freq_epochs=None, eval_warmup_epochs=5)
    assert [row[EPOCH] for row in evaluations(run)] == [7, 10]


def test_only_one_key_says_when():
    with pytest.raises(UserError, match="give one of them"):
        load_config("CartPole-v1", "ppo", ["eval_freq_steps=1000", "eval_freq_epochs=3"])
    assert load_config("CartPole-v1", "ppo", ["eval_freq_steps=1000"]).eval_freq_epochs == "auto"
    assert load_config("CartPole-v1", "ppo", ["eval_freq_steps=0"]).eval_freq_steps is None
    assert load_config("CartPole-v1", "ppo", ["eval_freq_epochs=none"]).eval_freq_epochs is None
    assert load_config("CartPole-v1", "ppo", ["tags=[none]"]).tags == ("none",)


@pytest.mark.parametrize("engine", ["eager", "fused_cpu"])
def test_an_evaluation_that_is_cut_by_time_has_no_score(engine, capsys):
    run = tiny_run(engine=engine, eval_timeout_seconds=1e-9, early_stop_on_eval_threshold="true")
    rows = evaluations(run)
    assert rows and all(row[EPISODES] == 0 for row in rows)
    assert not any("val/roll/ep_rew/mean" in row or "val/roll/ep_rew/best" in row for row in rows)
    assert run.facts()["outcome"]["val_best"] is None
    assert "may depend on the machine" in (run.path / "run.log").read_text()
