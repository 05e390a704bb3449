"""A resume says "exact" only where it is: what was edited or lost, or is another now, is refused or named."""

import shutil

import pytest
from tiny_runs import tiny_run

from stride.agents.trained.loading import read_checkpoint
from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.config.diff import NEUTRAL_KEYS
from stride.report import page
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import read_json, write_json
from stride.trainer_callbacks.resume import find_resumption
from stride.utils.interrupted import CtrlC

MORE = ("--max-timesteps", "160")
EDITED = "was edited by hand"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("whole")))
        return tiny_run(max_timesteps=96, checkpoint_freq_epochs=2, policy_lr=3e-4, clip_range=0.2)


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    return RunDir(shutil.copytree(finished.path, tmp_path / finished.id, symlinks=True))


def resumed(run, *words):
    """run.log after a resume."""
    assert train.command(["--resume", run.id, "-q", *words]) == 0
    return run.run_log.read_text()


def rewrite(path, without=(), **changes):
    """A JSON file with other facts, or without some."""
    facts = {key: value for key, value in read_json(path).items() if key not in without}
    write_json(path, facts | changes)


def edit(run, **changes):
    rewrite(run.config_json, config=read_json(run.config_json)["config"] | changes)


def newest(run):
    return run.checkpoints / checkpoint_set.target(run.checkpoints / "last.ckpt")


def forge(run, without=(), **changes):
    """The newest checkpoint's sidecar, as another program, machine or engine would have written it."""
    rewrite(newest(run).with_suffix(".json"), without, **changes)


def weights(run):
    state = read_checkpoint(newest(run).with_suffix(".ckpt"))
    return fingerprint({name: state[name] for name in ("state_dict", "optimizer_states")})


def assert_refused(run, capsys):
    assert train.command(["--resume", run.id, *MORE]) == 2
    line = capsys.readouterr().err
    assert EDITED in line and line.count("\n") == 1
    return line


def test_another_engine_is_named_and_not_exact(run):
    before = read_json(run.config_json)["engine"]
    line = resumed(run, *MORE, "engine=eager")
    assert f"not bit-exact; engine {before} then, eager now" in line and f"engine {before} -> eager" in line
    facts = read_json(run.config_json)
    assert facts["engine"] == facts["config"]["engine"] == "eager"
    assert "not bit-exact" not in resumed(run, "--max-timesteps", "192").split("changed:")[-1]


@pytest.mark.parametrize(
    ("key", "then"), [("code", "0123456789abcdef"), ("device", "cuda"), ("cpu", "AVX9"), ("versions", {"torch": "1.0"})]
)
def test_what_the_bits_rest_on_is_compared(run, key, then):
    forge(run, **{key: then})
    name, value = ("torch", "1.0") if key == "versions" else (key, then)
    line = resumed(run, *MORE)
    assert "not bit-exact" in line and f"{name} {value} then, " in line


def test_another_gpu_is_named_and_none_where_there_was_none(run):
    """What goes on without one is in tests/utils/test_devices.py."""
    now = {"engine": "eager", "device": "cuda", "versions": {}, "gpu": "NVIDIA H200", "driver": "580.95"}
    for device, reason in {"cuda": "gpu NVIDIA L40 then, NVIDIA H200 now", "cpu": "device cpu then, cuda now"}.items():
        forge(run, **now | {"device": device, "gpu": "NVIDIA L40"})
        again = find_resumption(run.id, "last", ("max_timesteps=160",))
        assert again.exactness("exact", now) == f"not bit-exact; {reason}"


def test_an_edited_config_is_refused_by_its_keys(run, capsys):
    before = weights(run)
    edit(run, gamma=0.5)
    line = assert_refused(run, capsys)
    assert "gamma 0.98 -> 0.5" in line and "--accept-changes" in line
    assert weights(run) == before and read_json(run.config_json)["status"] == "finished"
    log = resumed(run, *MORE, "--accept-changes")
    assert "not bit-exact; gamma changed" in log and "edited by hand in config.json: gamma 0.98 -> 0.5" in log
    assert "exact" in resumed(run, "--max-timesteps", "224"), "what was accepted is the run's own from then on"


@pytest.mark.parametrize("without", [("engine",), ("settings_sha256",), ("settings_sha256", "engine")])
def test_a_removed_fact_is_an_edit(run, without, capsys):
    rewrite(run.config_json, without)
    assert_refused(run, capsys)


def test_an_older_runs_config_is_compared_with_its_sidecar(run, capsys):
    rewrite(run.config_json, ("settings_sha256",))
    forge(run, ("config", "engine", "device", "code"))
    edit(run, gamma=0.5)
    assert_refused(run, capsys)
    edit(run, gamma=0.98)
    assert "not bit-exact; engine unknown then" in resumed(run, *MORE)


def dies(*_, **__):
    raise CtrlC


def test_a_resume_that_died_before_its_first_checkpoint_left_no_edit(run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(train, "fit", dies)
        assert train.command(["--resume", run.id, "-q", *MORE, "gamma=0.5"]) == 130
    assert read_json(run.config_json)["config"]["gamma"] == 0.5
    assert "not bit-exact; gamma changed" in resumed(run)


@pytest.mark.parametrize(("key", "value"), [("eval_freq_epochs", 1), ("eval_freq_steps", 16)])
def test_keys_that_are_called_neutral_are(key, value, run, tmp_path):
    """All of them at once, and the budget: equal weights at the end of the same steps."""
    other = RunDir(shutil.copytree(run.path, tmp_path / "other", symlinks=True))
    changed = {
        "log_freq_epochs": 3, key: value, "eval_warmup_epochs": 1, "eval_episodes": 1, "threads": 2,
        "eval_deterministic": "false", "early_stop_on_train_threshold": 1000, "early_stop_on_eval_threshold": 1000,
        "early_stop_patience": 3, "checkpoint_freq_epochs": 1, "checkpoint_minutes": "null", "checkpoint_keep_last": 2,
        "checkpoint_keep_best": 2, "test_episodes": 7, "video_max_steps": 5, "description": "other",
        "project_id": "other", "device": "cpu", "workers": 0,
    }  # fmt: skip
    others = {"video_freq_epochs", "engine", "eval_freq_epochs", "eval_freq_steps"}
    assert {*changed, *others} == {*NEUTRAL_KEYS, "threads"}
    log = resumed(run, *MORE)
    assert "(epoch=06), exact" in log and "metrics.csv" not in log and not list(run.path.glob("metrics.damaged*"))
    line = resumed(other, *MORE, *(f"{key}={value}" for key, value in changed.items()))
    assert "(epoch=06), exact" in line and "changed: " in line
    assert weights(run) == weights(other)


def test_a_budget_that_schedules_count_from_is_not_neutral(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    scheduled = tiny_run(policy_lr="lin_0.001")
    assert "not bit-exact; max_timesteps changed" in resumed(scheduled, *MORE)


LOSSES = {  # how rows are lost, the words of run.log, and how many files are put aside
    "gone": (lambda path: path.unlink(), "metrics.csv is missing: the rows up to 96 env steps are lost", 0),
    "emptied": (lambda path: path.write_bytes(b""), "it is empty; kept as metrics.damaged-1.csv", 1),
    "garbage": (lambda path: path.write_bytes(b"GARBAGE\nx\n"), "does not have the names of metrics; kept as", 1),
    "zeros": (lambda path: path.write_bytes(path.read_bytes() + b"\0\0\n"), "1 of its lines are damaged; kept as", 1),
    "cut": (lambda path: path.write_text(path.read_text().split("\n")[0] + "\n"), "its rows end at 0 env steps;", 1),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_lost_rows_are_named_and_what_is_left_is_put_aside(run, loss):
    spoil, words, files = LOSSES[loss]
    spoil(run.metrics_csv)
    left = run.metrics_csv.read_bytes() if files else b""
    assert words in resumed(run, *MORE)
    aside = sorted(run.path.glob("metrics.damaged-*.csv"))
    assert len(aside) == files and all(path.read_bytes() == left for path in aside)
    lines = run.metrics_csv.read_text().splitlines()
    assert "train/clock/env_steps" in lines[0].split(",") and "GARBAGE" not in lines


def test_the_report_is_there_before_the_run_is_called_finished(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))

    with monkeypatch.context() as patch, pytest.raises(CtrlC):
        patch.setattr(page, "write_report", dies)
        train.main(["CartPole-v1:ppo", "-q", "n_envs=2", "n_steps=8", "batch_size=1.0", "max_timesteps=32"])
    run = RunDir.find("@last")
    assert read_json(run.config_json)["status"] == "failed" and "**Failed**" in run.report.read_text()
    assert train.command(["--resume", run.id, "-q"]) == 0
    assert read_json(run.config_json)["status"] == "finished" and "**Failed**" not in run.report.read_text()
