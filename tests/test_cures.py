"""What was changed of a shipped variant is shown wherever the run is; and taken back where it did not learn.

A run that does not learn ends with a command that changes the likeliest cause; so does one that stops at a NaN.
"""

import shlex
from types import SimpleNamespace

import pytest
import torch
from tiny_runs import tiny_run

from lab.spoiled import Flipped
from stride.agents.experience.memory import Memory
from stride.commands import runs, train
from stride.commands.train_arguments import parse_arguments
from stride.config import listing
from stride.config.general import Task
from stride.inspector.overview import configured
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table
from stride.report.console import next_block
from stride.runstore.history import Alert
from stride.runstore.metrics_table import read_csv
from stride.runstore.outcome import Header, Outcome, next_commands, task_words
from stride.runstore.run_brief import Brief, head_of
from stride.trainer_callbacks.export_metrics import LEARNT, LENGTH

FLIPPED = f"env_wrappers=[{{id:'{Flipped.__module__}:Flipped'}}]"
HEADER = Header(
    "CartPole-v1:ppo", "ppo", "eager", "", "fast", "", "cpu", 8, 3, 9155, 475.0, 150_000, "runs/x",
    task=("CartPole-v1:ppo", "--seed", "3", "gamma=0.1", "env_kwargs.gravity=5"),
)  # fmt: skip
KL = Alert("train/policy/approx_kl", "KL", "above 0.1", 8, 99, 1, 1, 0.2, "0.2", "It strays.", "Rest.", open=True)
FAILED = Outcome(False, "budget spent", 475.0, 9.0, 9.0, 0.0, 100, 150_000, 31.0, "runs/x")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def test_what_comes_next_is_the_same_training_with_the_cure_and_quoted(monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", "somewhere")
    cured = Outcome(**{**vars(FAILED), "cures": ("gamma=0.98", "env_kwargs={}")})
    first, second, _ = (shlex.split(command) for command in next_commands(cured, HEADER))
    assert first[-5:] == ["CartPole-v1:ppo", "--seed", "3", "env_kwargs.gravity=5", "gamma=0.98"]
    assert second[-5:] == ["CartPole-v1:ppo", "--seed", "3", "gamma=0.1", "env_kwargs={}"]
    assert "--resume x --max-timesteps 300000" in next_commands(cured, HEADER)[2], "no alert is open: it may learn yet"
    assert len(next_commands(Outcome(**{**vars(cured), "alerts": (KL,)}), HEADER)) == 2
    assert "--resume x --max-timesteps 300000" in next_commands(FAILED, HEADER)[0], "without a cure it is trained on"
    stopped = Outcome(**{**vars(cured), "reason": "interrupted"})
    assert "--resume" not in next_commands(stopped, HEADER)[0] and "--resume" in next_commands(stopped, HEADER)[-1]
    facts = {"command": "python train.py --config 'my own.yaml' fast", "changes": ["a=1; rm -rf x"]}
    words = task_words("CartPole-v1:fast", 7, facts)
    assert words == ("--config", "my own.yaml", "fast", "--seed", "7", "a=1; rm -rf x")
    header = Header(**{**vars(HEADER), "task": words})
    command = next_commands(Outcome(**{**vars(FAILED), "cures": ("gamma=0.98",)}), header)[0]
    assert shlex.split(command)[-2:] == ["a=1; rm -rf x", "gamma=0.98"] and "gamma=0.98" in next_block([command]).plain


def test_a_failed_run_names_its_far_keys_in_its_outcome_and_its_report():
    run = tiny_run(gamma=0.1)
    assert run.facts()["outcome"]["cures"] == ["max_timesteps=100000", "gamma=0.98"], "64 env steps are farther"
    assert "gamma=0.98" in run.facts()["shipped"] and "gamma=0.1" in run.facts()["changes"]
    next_section = run.report.read_text().partition("## Next")[2]
    assert next_section.index("gamma=0.98\n") < next_section.index("Play it")
    runs.main(["show", run.id])  # which reads the facts as anybody wrote them


def test_a_resumed_run_adds_what_was_changed_then_and_knows_what_the_variant_says_of_it():
    run = tiny_run(gamma=0.9)
    assert train.command(["--resume", run.id, "-q", "max_timesteps=96", "policy_lr=1"]) == 0
    changes, shipped = run.facts()["changes"], run.facts()["shipped"]
    assert "gamma=0.9" in changes and [word for word in changes if word.startswith("max_t")] == ["max_timesteps=96"]
    assert "gamma=0.98" in shipped and "policy_lr=lin_0.001" in shipped
    assert "max_timesteps=100000" in shipped, "what was changed twice comes back to what the variant says"


@pytest.mark.parametrize(("words", "shipped"), [
    (["CartPole-v1:ppo", "gamma=0.1"], ["gamma=0.98"]), (["CartPole-v1:ppo"], []),
    (["Pendulum-v1:reinforce", "gamma=0.1", "n_steps=8"], ["gamma=0.95", "n_steps=256"]),  # general settings
])  # fmt: skip
def test_what_takes_changes_back_is_known_of_shipped_and_of_general_settings(words, shipped):
    arguments = parse_arguments(words)
    assert arguments.shipped(arguments.load(lambda config: Task("bounded", "", None, None))) == shipped


def test_a_nan_ends_with_another_value_and_not_with_the_same_again(capsys):
    run = tiny_run(policy_lr=1e30, max_grad_norm="null", exit_code=1)
    error, report = capsys.readouterr().err, run.report.read_text()
    assert "with another value: " in error and "policy_lr=lin_0.001" in error and "--resume" not in error
    commands = report.partition("most likely fix first")[2].partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [shlex.split(command)[-1] for command in commands] == ["policy_lr=lin_0.001", "max_grad_norm=0.5"]


def test_where_a_wrapper_changes_rewards_their_return_is_a_metric_of_its_own_and_reported_nowhere_else():
    rows = read_csv(tiny_run("CartPole-v1:ppo", FLIPPED, max_timesteps=256).metrics_csv)
    learnt = [row for row in rows if LEARNT in row]
    assert learnt and all(row[LEARNT] == pytest.approx(-row[LENGTH]) for row in learnt), "each step pays -1"
    for stage in ("train", "val", "test"):
        raw = [row for row in rows if f"{stage}/roll/ep_rew/mean" in row]
        assert raw and all(row[f"{stage}/roll/ep_rew/mean"] == row[f"{stage}/roll/ep_len/mean"] for row in raw), stage
    assert not any(LEARNT in row for row in read_csv(tiny_run().metrics_csv))


def test_the_newest_rows_of_a_ring_make_the_mean_reward():
    ring = SimpleNamespace(rows=4, written=6, oldest=2, slot=torch.zeros(2), table=SimpleNamespace())
    ring.table.reward = torch.tensor([[4.0, 4.0], [5.0, 5.0], [2.0, 2.0], [3.0, 3.0]])  # rows 4, 5, 2, 3
    assert Memory.mean_reward(ring, 2) == 4.5 and Memory.mean_reward(ring, 100) == 3.5


# ---- what was changed is shown wherever the run is


def test_what_differs_from_the_variant_is_in_config_log_report_lists_and_the_inspector(capsys):
    run = tiny_run(gamma=0.9)
    changes = run.facts()["changes"]
    assert {"n_envs=2", "n_steps=8", "gamma=0.9"} <= {*changes} and head_of(run.path).changes == " ".join(changes)
    assert not any(text.startswith(("seed", "policy_lr")) for text in changes), "those are the variant's own"
    assert "gamma=0.9" in (run.path / "run.log").read_text()
    assert "| **`gamma`** | **`0.9`** |" in run.report.read_text()
    runs.main(["list", "--filter", "changes:gamma=0.9"])
    assert "gamma=0.9" in capsys.readouterr().out
    runs.main(["show", run.id])
    assert "gamma=0.9  (changed for this run, default 0.99)" in capsys.readouterr().out
    page = runs_table(Runs().page("changes:gamma=0.9"))
    assert 'class="changes"' in page and "gamma=0.9" in page
    assert "<b>gamma</b>" in configured(Runs().look_into(run.id))


def test_two_variants_of_one_command_have_two_names_in_a_paper(capsys):
    tiny_run(gamma=0.9)
    tiny_run()
    runs.main(["export", "--by", "variant", "--format", "latex"])
    table = capsys.readouterr().out
    rows = [line.partition(" & ")[0] for line in table.splitlines() if line.startswith("CartPole")]
    assert len({*rows}) == len(rows) == 2 and "gamma=0.9" in "".join(rows).replace("\\", "")
    assert r"\pm" not in table, "one run has no deviation"


def test_the_listing_shows_the_best_of_the_shipped_settings(monkeypatch):
    """A run with other settings says nothing of the variant, however new or good it is."""
    run_line = Brief("a", variant="CartPole-v1:ppo", result="not solved", status="finished", episodes=100)
    tests = [(499.0, "gamma=0.1"), (0.0, ""), (-3.0, "")]  # the newest first
    runs = [run_line._replace(test=test, changes=changes) for test, changes in tests]
    only_changed = run_line._replace(variant="CartPole-v1:dqn", test=9.5, changes="tau=1")
    failed = Brief("b", variant="Taxi-v4:ppo", status="failed")
    monkeypatch.setattr(listing, "run_lines", lambda: [*runs, only_changed, failed])
    expected = {
        "CartPole-v1:ppo": "0 not solved",
        "CartPole-v1:dqn": "9.5 not solved, changed",
        "Taxi-v4:ppo": "failed",
    }
    assert listing.results_here() == expected
