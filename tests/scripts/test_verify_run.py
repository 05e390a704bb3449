"""A run repeats, to the bit or within a tolerance, or it is said where it first does not."""

import shutil

import pytest
import torch
from tiny_runs import tiny_run

from stride.agents.trained.loading import read_checkpoint
from stride.commands.plain_tree import differences, fingerprint
from stride.commands.verify_run import main
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.utils.durable_file import read_json, write_json
from stride.utils.user_error import UserError


def change(run, stem="epoch=02", by=0.0, **sidecar):
    """Nudge a weight of a checkpoint, with a sidecar that vouches for it."""
    path = run.checkpoints / f"{stem}.ckpt"
    state = read_checkpoint(path)
    state["state_dict"]["policy.head.linear.bias"] += by
    torch.save(state, path)
    write_json(path.with_suffix(".json"), {**checkpoint_set.facts_of(path), **checkpoint_set.digest(path), **sidecar})


def tell(run, part, **changes):
    """Other facts in config.json, or in its part `config` or `outcome`."""
    facts = read_json(run.config_json)
    write_json(run.config_json, {**facts, part: {**facts[part], **changes}} if part else {**facts, **changes})


def changed(part, **changes):
    return lambda run: tell(run, part, **changes)


def row(run, name, value, number=-1):
    """Another number in metrics.csv, in the first or the last row that has one."""
    head, *lines = [line.split(",") for line in run.metrics_csv.read_text().splitlines()]
    place = head.index(name)
    [line for line in lines if line[place]][number][place] = str(value)
    run.metrics_csv.write_text("".join(",".join(line) + "\n" for line in (head, *lines)))


def forged_test(run):
    row(run, "test/roll/ep_rew/mean", 500)
    tell(run, "outcome", solved=True, test_mean=500)


def forged_goal(run):
    tell(run, "", goal=1)
    tell(run, "outcome", goal=1, solved=True)


def unlinked(run):
    facts = read_json(run.checkpoints / "best.json")
    (run.checkpoints / "best.json").unlink()
    write_json(run.checkpoints / "best.json", {**facts, "score": 500})


LATER = "not verified: best and last (--iterations 8 compares them)"
TEST = "the closing test (--test repeats it)"
FORGED = {  # what was done to a run that reached 8 iterations; words, and what is said of it
    "nothing": (lambda run: None, "", f"identical: compared up to iteration 2 of 8 (epoch=02); {LATER}, {TEST}"),
    "nothing, all": (lambda run: None, "--iterations 8 --test", "identical: compared up to iteration 8 of 8 (e"),
    "weight": (lambda run: change(run, by=1e-3), "", "state_dict.policy.head.linear.bias differs by up to"),
    "later weight": (lambda run: change(run, "epoch=04", by=1e-3), "", LATER),
    "gamma": (changed("config", gamma=0.5), "", "0.train/loss/value is "),
    "seed": (changed("config", seed=2), "", "0.train/loss/policy is "),
    "a row": (lambda run: row(run, "train/loss/value", 7, 0), "", "0.train/loss/value is 7.0, not "),
    "solved": (changed("outcome", solved=True, test_mean=500), "", "outcome.test_mean is 500, but "),
    "episodes": (changed("outcome", test_episodes=3), "", "outcome.test_episodes is 3, but 100.0 according to "),
    "goal": (changed("outcome", goal=1, solved=True), "", "outcome.goal is 1, but 475.0 according to config.json"),
    "both goals": (forged_goal, "", "goal is 1, but 475.0 according to its config"),
    "env_steps": (changed("outcome", env_steps=9), "", "outcome.env_steps is 9, but 128 according to the last"),
    "val_best": (changed("outcome", val_best=500), "", "outcome.val_best is 500, but "),
    "score": (lambda run: change(run, score=500), "", "epoch=02.json: score is 500, but "),
    "best.json": (unlinked, "", "checkpoints/best cannot be compared"),
    "never reached": (lambda run: change(run, "epoch=08", iterations=90), "--iterations 90", "was not reached"),
    "test and its row": (forged_test, "", f"compared up to iteration 2 of 8 (epoch=02); {LATER}, {TEST}"),
    "test and its row, all": (forged_test, "--test", "test/roll/ep_rew/mean is 500.0, not "),
}  # fmt: skip
UNSEEN = ("nothing", "nothing, all", "later weight", "test and its row")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("sound")))
        return tiny_run(max_timesteps=128)


@pytest.fixture
def run(trained, root):
    return RunDir(shutil.copytree(trained.path, root / trained.id, symlinks=True))


@pytest.fixture
def verified(capsys):
    """(exit code, the lines of it)."""

    def verify(run, words=""):
        capsys.readouterr()
        return main([run.id, *words.split()]), capsys.readouterr().out.splitlines()

    return verify


@pytest.mark.parametrize("name", FORGED)
def test_what_was_forged_is_named_or_said_not_to_be_verified(name, run, verified):
    forge, words, said = FORGED[name]
    forge(run)
    code, lines = verified(run, words)
    assert said in "\n".join(lines)
    assert (code, lines[-1].partition(":")[0]) == ((0, "identical") if name in UNSEEN else (1, "different"))


def test_a_small_difference_is_measured(run, verified):
    change(run, by=1e-6, cpu="another")
    code, lines = verified(run)
    out = "\n".join(lines)
    assert code == 0 and "same within tolerance: " in out and "warning: cpu was another, is " in out
    assert "state_dict.policy.head.linear.bias differs by up to 9" in out
    assert verified(run, "--tolerance 1e-9")[0] == 1


@pytest.mark.parametrize("changes", [
    {"spec.goal": 9},  # confirmed by a test before the training ended
    {"plateau": "{metric: val/roll/ep_rew/mean, patience: 1, scale: {policy_lr: 0.5}}"},
    {"early_stop_on_train_threshold": 1},
    # the score of `best` is the test's; a row behind the last
    {"eval_freq_epochs": "null", "early_stop_on_eval_threshold": "false", "log_freq_epochs": 3},
], ids=str)  # fmt: skip
def test_whole_runs_repeat(changes, verified):
    run = tiny_run(**{"early_stop_on_eval_threshold": "true", **changes})
    code, lines = verified(run, "--iterations 1000000 --test")
    assert code == 0 and lines[-1].startswith("identical: ")


def test_what_cannot_be_repeated_is_refused_and_nothing_imported_for_a_run_from_elsewhere(run, tmp_path):
    refused = {"--iterations 1": "no checkpoint before iteration 2", "--iterations -1": "a whole number",
               "--tolerance nan": "a number, 0 or more", "--tset": "did you mean --test"}  # fmt: skip
    for words, line in refused.items():
        with pytest.raises(UserError, match=line):
            main([run.id, *words.split()])
    tell(run, "", parent={"run": "other"})
    with pytest.raises(UserError, match="is a fork of other"):
        main([run.id])
    foreign = RunDir(shutil.move(run.path, tmp_path / "foreign"))
    tell(foreign, "", parent={})
    tell(foreign, "config", env_id="antigravity:CartPole-v1")
    with pytest.raises(UserError, match="modules named by a run from elsewhere are not imported"):
        main([str(foreign.path)])


def test_trees_are_compared_leaf_by_leaf():
    one = {"a": torch.tensor([1.0, 2.0]), "b": [1, {"c": "x"}], "d": {}}
    same = {"d": {}, "b": [1, {"c": "x"}], "a": torch.tensor([1.0, 2.0])}
    assert differences(one, same) == [] and fingerprint(one) == fingerprint(dict(one))
    other = {"a": torch.tensor([1.0, 2.5]), "b": [2, {"c": "y"}]}
    assert [(d.name, d.size) for d in differences(one, other)] == [
        ("d", float("inf")), ("a", 0.5), ("b.0", 1), ("b.1.c", float("inf"))]  # fmt: skip
    assert differences({"a": torch.zeros(1)}, {"a": torch.zeros(2)})[0].words == "differs in shape or type"
    assert differences({"a": torch.tensor([-0.0])}, {"a": torch.tensor([0.0])})[0].size == 0.0, "bits, not values"


def test_the_rows_of_a_memory_are_compared_however_they_were_saved(verified):
    small = {"train_freq": 16, "gradient_steps": 1, "batch_size": 4, "learning_starts": 0, "epoch_iterations": 1}
    small |= {"buffer_size": 200, "hidden_dims": 8, "checkpoint_freq_epochs": 1, "n_steps": None, "max_timesteps": 320}
    run = tiny_run("CartPole-v1:dqn", **small, test_episodes=2)
    tell(run, "config", checkpoint_freq_epochs=3)  # so that the segments are others
    code, lines = verified(run, "--iterations 9")
    assert code == 0 and lines[-1].startswith("identical: ")
    tell(run, "config", gamma=0.5)
    assert verified(run, "--iterations 9")[0] == 1
