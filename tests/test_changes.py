"""What was changed of a shipped variant is shown wherever the run is."""

import pytest
from tiny_runs import tiny_run

from stride.commands import runs, train
from stride.config import listing
from stride.inspector.overview import configured
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table
from stride.runstore.run_brief import Brief, head_of

CHANGES = ["n_envs=2", "n_steps=8", "gamma=0.9"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield tiny_run(gamma=0.9)


def test_the_run_stores_what_differs_from_the_variant_but_the_seed(run):
    changes = run.facts()["changes"]
    assert {*CHANGES} <= {*changes}
    assert not any(text.startswith(("seed", "policy_lr")) for text in changes), "those are the variant's own"
    assert head_of(run.path).changes == " ".join(changes)


def test_it_is_in_the_header_the_report_and_the_list(run, capsys):
    assert "gamma=0.9" in (run.path / "run.log").read_text()
    assert "| **`gamma`** | **`0.9`** |" in run.report.read_text()
    runs.main(["list", "--filter", "changes:gamma=0.9"])
    assert "gamma=0.9" in capsys.readouterr().out
    runs.main(["show", run.id])
    assert "gamma=0.9  (changed for this run, default 0.99)" in capsys.readouterr().out


def test_two_variants_of_one_command_have_two_names_in_a_paper(run, capsys):
    tiny_run()
    runs.main(["export", "--by", "variant", "--format", "latex"])
    rows = [line.partition(" & ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("CartPole")]
    assert len({*rows}) == len(rows) == 2 and "gamma=0.9" in "".join(rows)
    assert r"\pm" not in capsys.readouterr().out, "one run has no deviation"


def test_it_is_in_the_inspector(run):
    page = runs_table(Runs().page("changes:gamma=0.9"))
    assert 'class="changes"' in page and "gamma=0.9" in page
    assert "<b>gamma</b>" in configured(Runs().look_into(run.id))


def test_a_resumed_run_adds_what_was_changed_then(run):
    assert train.command(["--resume", run.id, "-q", "max_timesteps=96"]) == 0
    assert "max_timesteps=96" in run.facts()["changes"] and "gamma=0.9" in run.facts()["changes"]
    assert sum(text.startswith("max_timesteps=") for text in run.facts()["changes"]) == 1


def test_the_listing_shows_the_best_of_the_shipped_settings(monkeypatch):
    """A run with other settings says nothing of the variant, however new or good it is."""
    run_line = Brief("a", variant="CartPole-v1:ppo", result="not solved", status="finished", episodes=100)
    tests = [(499.0, "gamma=0.1"), (0.0, ""), (-3.0, "")]  # the newest first
    runs = [run_line._replace(test=test, changes=changes) for test, changes in tests]
    only_changed = run_line._replace(variant="CartPole-v1:dqn", test=9.5, changes="tau=1")
    monkeypatch.setattr(listing, "run_lines", lambda: [*runs, only_changed])
    expected = {"CartPole-v1:ppo": "0 not solved", "CartPole-v1:dqn": "9.5 not solved, changed"}
    assert listing.results_here() == expected
