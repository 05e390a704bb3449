"""Iterations to which no callback reacts: the same training, whether Lightning makes each of them or not."""

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from tiny_runs import tiny_run

from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.runstore.metrics_table import read_csv
from stride.trainer_callbacks import session
from stride.trainer_callbacks.checkpoint import Ownership
from stride.trainer_callbacks.onward import hooks_batches

SCHEDULES = {"policy_lr": "lin_0.001", "clip_range": "lin_0.2", "ent_coef": 0.01}
PPO = {"max_timesteps": 640, "eval_freq_epochs": 6, "log_freq_epochs": 5, "epoch_iterations": 1, **SCHEDULES}
PPO |= {"checkpoint_freq_epochs": 7, "test_episodes": 4}


def results(run):
    """Its rows without what the wall's clock says, and everything in its last checkpoint that the future depends on."""
    rows = [{k: v for k, v in row.items() if "/time/" not in k} for row in read_csv(run.metrics_csv)]
    checkpoint = torch.load(run.checkpoints / "last.ckpt", weights_only=True)
    parts = ("state_dict", "optimizer_states", "stride", "callbacks")
    return rows, fingerprint([checkpoint[part] for part in parts])


@pytest.fixture
def ticks(monkeypatch):
    """Which iterations Lightning saw the end of."""
    seen = []
    check = Ownership.on_train_batch_end

    def noted(self, trainer, agent, *rest):
        seen.append(agent.progress["iterations"])
        check(self, trainer, agent, *rest)

    monkeypatch.setattr(Ownership, "on_train_batch_end", noted)
    return seen


def test_rows_and_checkpoints_do_not_depend_on_who_makes_the_iterations(ticks, monkeypatch):
    fast = results(tiny_run(**PPO))
    # rows after 5, evaluations after 6, checkpoints after 7; the budget is spent after 40
    assert ticks == sorted({n for n in range(1, 41) if 0 in (n % 5, n % 6, n % 7)})
    ticks.clear()
    monkeypatch.setattr(session, "Onward", lambda *given: L.Callback())
    assert results(tiny_run(**PPO)) == fast
    assert ticks == list(range(1, 41))


def test_a_signal_between_two_rows_ends_that_iteration_and_the_rest_can_be_resumed(stopped_at, ticks):
    straight = results(tiny_run(**PPO))
    ticks.clear()
    stopped = stopped_at(22, **PPO)
    assert ticks[-1] == 23 and stopped.facts()["status"] == "interrupted"
    assert train.command(["--resume", stopped.id, "-q"]) == 0
    assert results(stopped) == straight


def test_a_users_callback_around_batches_sees_every_iteration(ticks):
    tiny_run(**PPO, callbacks="['own_code:Slower']")
    assert ticks == list(range(1, 41))
    assert hooks_batches(LambdaCallback(on_train_batch_end=print)) and not hooks_batches(L.Callback())
