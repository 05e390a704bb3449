"""`stride runs` over 50 trainings' own folders, three of them damaged, and LaTeX by its compiler where there is one."""

import json
import shutil
import subprocess
import time

import pytest

from stride.commands import runs, train
from stride.runstore.run_dir import RunDir
from stride.utils import entry

pytestmark = pytest.mark.slow
BRIEF = ("-q", "early_stop_on_eval_threshold=false", "test_episodes=2", "eval_episodes=2", "threads=1")
ROLLOUT = ("max_timesteps=128", "n_envs=4", "n_steps=16", "batch_size=0.5", "n_epochs=1")
REPLAY = ("max_timesteps=128", "buffer_size=200", "learning_starts=32", "train_freq=16", "gradient_steps=1")
TRAINED = {
    "CartPole-v1:ppo": ROLLOUT,
    "Acrobot-v1:ppo": ROLLOUT,
    "CartPole-v1:reinforce": ("max_timesteps=128", "n_envs=4", "n_steps=32"),
    "CartPole-v1:dqn": (*REPLAY, "batch_size=16"),
    "FrozenLake-v1:q_learning": ("max_timesteps=128", "n_envs=4"),
}
SEEDS = range(1, 11)
COMPILER = shutil.which("tectonic") or shutil.which("pdflatex")


def said(capsys, *words):
    """What a command tells; it ends well."""
    code = entry.ended(runs.main, [*words])
    told, wrong = capsys.readouterr()
    assert code == 0, wrong
    return told


def cut(path):
    """What a full disk leaves of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.fixture
def trained(tmp_path, monkeypatch, capsys):
    """All runs, and those that are damaged: half a config, a lost block of numbers, half a score."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    found = []
    for name, words in TRAINED.items():
        for seed in SEEDS:
            assert train.command([name, *BRIEF, *words, f"seed={seed}"]) == 0
            found.append(RunDir.find("@last"))
    capsys.readouterr()
    config, numbers, best = found[3], found[14], found[25]
    cut(config.path / "config.json")
    numbers.metrics_csv.write_bytes(bytes(64) + numbers.metrics_csv.read_bytes()[64:])
    cut(best.checkpoints / "best.json")
    return found, {config.id, numbers.id, best.id}


def test_fifty_real_runs_of_which_three_are_damaged(trained, tmp_path, capsys):
    found, damaged = trained
    lines = json.loads(said(capsys, "list", "--json"))
    assert [line["id"] for line in lines] == sorted((run.id for run in found), reverse=True) and len(lines) == 50
    assert {line["id"] for line in lines if line["status"] == "damaged"} == damaged
    of_one = json.loads(said(capsys, "list", "--json", "--filter", "env=Acrobot seed=1-3", "--sort", "-test"))
    assert {line["id"] for line in of_one} == {run.id for run in found[10:13]}
    for run in found:
        code = entry.ended(runs.main, ["show", run.id])
        told, wrong = capsys.readouterr()
        assert run.id in (told if code == 0 else wrong)
        assert code == 0 or (run.id in damaged and wrong.count("\n") == 1)
    assert found[0].id in said(capsys, "compare", found[0].id, found[31].id)
    said(capsys, "tag", found[0].id, "keep")
    out = json.loads(said(capsys, "export", "--by", "variant", "--format", "json"))
    # two of the damaged have their outcome yet
    assert sum(line["runs"] for line in out) == 49 and len(out) == len(TRAINED)
    gone = said(capsys, "cleanup", "--keep-best", "1", "--keep-recent", "0d", "--dry-run")
    assert found[0].id not in gone and not any(run_id in gone for run_id in damaged)
    assert sum(run.id in gone for run in found) >= 50 - 3 - 1 - len(TRAINED) - 1  # the last one stays, too
    assert all(run.path.is_dir() for run in found)
    for words in (("list",), ("list", "--filter", "policy_lr<1 train/policy/entropy>0")):
        began = time.process_time()
        said(capsys, *words)
        with capsys.disabled():
            print(f"{' '.join(words)}: {time.process_time() - began:.3f} s of a core over {len(found)} runs")


@pytest.mark.skipif(not COMPILER, reason="no LaTeX here; tests/scripts/test_runs.py reads its tables as LaTeX would")
def test_a_table_is_compiled_by_latex(trained, tmp_path, capsys):
    table = said(capsys, "export", "--by", "variant", "--format", "latex")
    page = tmp_path / "page.tex"
    page.write_text(f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}{table}\\end{{document}}")
    done = subprocess.run([COMPILER, page.name], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and page.with_suffix(".pdf").stat().st_size > 1000, done.stdout[-2000:]
