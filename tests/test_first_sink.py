"""The tutorial first_sink.md, typed by a machine (tutorial_pages.py)."""

import json

import pytest
from tutorial_pages import Page

SINK = "report/json_lines.py"
BEAT = """
from stride.report.json_lines import JsonLines
from stride.runstore.run_dir import RunDir

JsonLines(RunDir.find("{run}")).beat({{"env_steps": 512}}, "test")
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A copy of the project with everything the page tells to type."""
    return Page("first_sink.md", tmp_path_factory.mktemp("sink"))


def test_one_file_and_one_row(page):
    assert page.changes() == ({SINK}, {"report/sinks.py"})
    assert [line for line in page.python() if line[0] == "+"] == [
        "+from stride.report.json_lines import JsonLines",
        "+        JsonLines(run),",
    ]


@pytest.mark.slow
def test_what_was_typed_is_in_house_style(page):
    for check in ("ruff check", "ruff format --check"):
        page.run(f"python -m {check} {SINK} report/sinks.py")
    page.run("python -m pytest tests/test_architecture.py -k house_keeps")


def test_it_is_told_what_happens(page):
    (training,) = page.commands("train.py")
    short = "n_envs=2 n_steps=64 batch_size=1.0 epoch_iterations=2 log_freq_epochs=1 eval_freq_epochs=2 eval_episodes=2"
    short += " engine=eager env_backend=gym"
    page.run(
        f"{training.replace('16384', '1024')} {short} video_freq_epochs=2 video_max_steps=20 eval_warmup_epochs=0 -q"
    )
    (run,) = (page.copy / "runs").glob("2*-s*")
    told = [json.loads(line) for line in (run / "logs" / "metrics.jsonl").read_text().splitlines()]
    kinds = [next(iter(each)) for each in told]
    assert kinds[0] == "begin" and kinds[-1] == "end" and kinds.count("row") == 5 and "media" in kinds
    assert told[0]["begin"]["config_id"] == "CartPole-v1:ppo" and told[-1]["end"]["env_steps"] == 1024
    rows = [each["row"] for each in told if "row" in each]
    assert "test/roll/ep_rew/mean" in rows[-1] and rows[-2]["train/clock/env_steps"] == 1024
    # rows came faster than a beat: one is told by hand
    (page.copy / "beat.py").write_text(BEAT.format(run=run.name))
    page.run("python beat.py")
    assert json.loads((run / "logs" / "progress.json").read_text()) == {"env_steps": 512, "playing": "test"}
