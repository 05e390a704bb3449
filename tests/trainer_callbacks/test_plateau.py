"""A metric that gets no better: what counts as that, what follows, and that a resumed run counts on, to the bit."""

import pytest
from tiny_runs import tiny_run

from stride.agents.base import Agent
from stride.agents.trained.loading import read_checkpoint
from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.config.diff import changes, unproven
from stride.config.loader import from_plain, load_config, to_plain
from stride.config.plateau import Plateau
from stride.runstore.metrics_table import read_csv
from stride.trainer_callbacks.schedule import AtPlateau

LOSS, TRAIN = "train/loss/value", "train/roll/ep_rew/mean"
NEVER = 1e9  # a gain that nothing reaches: every value after the first is no better
LR = "train/hyper/policy_lr"
SOON = {"test_episodes": 0, "eval_episodes": 1, "eval_max_steps": 200}
NAN = float("nan")


def block(**keys):
    inside = {"min_delta": NEVER, "patience": 2, **keys}
    return "{" + ",".join(f"{key}:{value}" for key, value in inside.items()) + "}"


def watched(values, **keys):
    """For each value the factor of policy_lr from there on; and the callback in the end."""
    config = Plateau(**{"patience": 2, "scale": {"policy_lr": 0.5}, **keys})
    row: dict[str, float] = {}
    watching = AtPlateau(config, lambda: row)
    factors = []
    for value in values:
        row = {} if value is None else {config.metric: value, "train/roll/episodes": 99 + len(factors)}
        look(watching)
        factors.append(watching.factors.get("policy_lr"))
    return factors, watching


def look(watching):
    agent = Agent.__new__(Agent)
    vars(agent)["progress"] = {"env_steps": 100}
    watching.on_train_batch_end(None, agent, None, None, 0)


@pytest.mark.parametrize(
    ("keys", "values", "factors"),
    [
        ({}, [1, 2, 2, 3, 3, 3, 3], [1, 1, 1, 1, 1, 0.5, 0.5]),
        ({"times": None}, [1, 2, 2, 3, 3, 3, 3, 3], [1, 1, 1, 1, 1, 0.5, 0.5, 0.25]),
        ({}, [1, None, 1, None, 2, None, 1, 1], [1, 1, 1, 1, 1, 1, 1, 0.5]),  # iterations without a row do not count
        ({"min_delta": 1}, [1, 1.5, 2, 2.5], [1, 1, 0.5, 0.5]),  # a gain is more than that
        ({"min_delta": 1}, [1, 1.5, 2.1, 2.5], [1, 1, 1, 1]),
        ({"metric": TRAIN}, [9, 8, 7, 8], [1, 1, 1, 0.5]),  # the first is a mean of 99 episodes and does not count
        ({"metric": LOSS}, [3, 2, 1, 0], [1, 1, 1, 1]),  # a loss gets better downwards
        ({"metric": LOSS}, [0, 1, 2, 3], [1, 1, 0.5, 0.5]),
        ({}, [NAN, NAN], [1, 0.5]),  # what is no number is no better
        ({}, [1, NAN, NAN], [1, 1, 0.5]),
    ],
    ids=str,
)
def test_as_many_values_in_a_row_without_a_better_one_are_a_plateau(keys, values, factors):
    assert watched(values, **keys)[0] == factors


def test_stop_comes_after_the_last_time():
    stops = {"then": "stop", "min_delta": NEVER, "patience": 1}
    assert [watched([0] * n, **stops, times=2)[1].over for n in (1, 2, 3, 4)] == [False, False, False, True]
    assert [watched([0] * n, **stops, scale={})[1].over for n in (1, 2)] == [False, True]


def test_a_metric_that_never_comes_is_told_once(caplog):
    row = {"train/clock/updates": 4.0, "train/loss/value": 1.0, "train/policy/entropy": 1.0}
    watching = AtPlateau(Plateau("train/loss/q", 2, then="stop"), lambda: row)
    for _ in range(5):
        look(watching)
    (line,) = [record.message for record in caplog.records]
    assert "no train/loss/q in 2 rows" in line and line.endswith("available: train/loss/value")


def test_a_state_goes_on_with_what_is_still_meant():
    state = watched([5, 5, 5])[1].state_dict()
    same = AtPlateau(Plateau(scale={"policy_lr": 0.1, "clip_range": 0.5}), dict)
    same.load_state_dict(state)
    assert (same.factors, same.best, same.plateaus) == ({"policy_lr": 0.5, "clip_range": 1.0}, 5, 1)
    other = AtPlateau(Plateau(metric=LOSS, scale={"clip_range": 0.5}), dict)
    other.load_state_dict(state)
    assert (other.factors, other.best, other.waited) == ({"clip_range": 1.0}, None, 0)


@pytest.mark.parametrize("engine", ["eager", "fused_cpu"])
def test_a_run_is_scaled_over_its_schedule_and_ended_and_gets_patience_anew(engine):
    words = block(scale="{policy_lr:0.5,clip_range:0.9}", then="stop")
    keys = {"policy_lr": "lin_0.01", "clip_range": 0.2, "max_timesteps": 640, "engine": engine, "log_freq_epochs": 1}
    run = tiny_run(plateau=words, **keys, **SOON)
    rows = {row["train/clock/iterations"]: row for row in read_csv(run.metrics_csv) if LR in row}
    assert max(rows) == 10  # evaluations after 2, 4, 6: a plateau; after 8 and 10 the next, the end
    for done, row in rows.items():
        halved = 0.5 if done > 6 else 1.0
        assert row[LR] == pytest.approx(0.01 * (1 - (done - 1) / 40) * halved)
        assert row["train/hyper/clip_range"] == pytest.approx(0.2 * (0.9 if done > 6 else 1), rel=1e-6)
    ended = run.facts()["outcome"]
    assert (ended["reason"], ended["env_steps"]) == ("plateau reached", 160)
    log = run.run_log.read_text()
    assert "plateau: evaluations steer this run: 2 in a row without a better val/roll/ep_rew/mean by more than" in log
    assert "plateau at 96 env steps" in log and "policy_lr x 0.5 from now on, clip_range x 0.9 from now on" in log
    assert train.command(["--resume", run.id, "-q", "max_timesteps=1280"]) == 0
    ended = run.facts()["outcome"]
    assert (ended["reason"], ended["env_steps"]) == ("plateau reached", 224)


@pytest.mark.parametrize("name", ["CartPole-v1:dqn", "Pendulum-v1:sac", "FrozenLake-v1:q_learning"])
def test_other_algorithms_learn_by_it(name):
    """What is learnt is another: whoever learns reads what is scaled."""
    tabular = name.endswith("q_learning")
    keys = {"n_steps": 8 if tabular else None, "batch_size": None if tabular else 8, "max_timesteps": 160, **SOON}
    keys |= {"n_envs": 2, "epoch_iterations": 2, "log_freq_epochs": 1, "policy_lr": 0.01}
    keys |= {} if tabular else {"learning_starts": 8, "train_freq": 4, "buffer_size": 400, "hidden_dims": 16}
    steered, plain = (tiny_run(name, **keys, plateau=p) for p in (block(patience=1, scale="{policy_lr:0.001}"), "null"))
    assert [list(rates(run).values())[-1] for run in (steered, plain)] == pytest.approx([1e-5, 0.01])
    assert learnt(steered) != learnt(plain)


def learnt(run):
    return fingerprint(read_checkpoint(run.checkpoints / "last.ckpt")["state_dict"])


def rates(run):
    """The learning rate by iteration."""
    return {row["train/clock/iterations"]: row[LR] for row in read_csv(run.metrics_csv) if LR in row}


def test_a_resumed_run_counts_on_to_the_bit(stopped_at):
    """Stopped in the middle of the wait for the second plateau, with a factor at work."""
    words = {"plateau": block(patience=2, times=2, scale="{policy_lr:0.1,clip_range:0.5}"), "max_timesteps": 320}
    words |= {**SOON, "log_freq_epochs": 1, "policy_lr": 1e-3, "clip_range": 0.2}
    straight, halted = tiny_run(**words), stopped_at(8, **words)
    assert len(rates(halted)) < len(rates(straight))
    assert train.command(["--resume", halted.id, "-q"]) == 0
    assert learnt(halted) == learnt(straight) and rates(halted) == rates(straight)
    assert min(rates(halted).values()) == pytest.approx(0.01 * max(rates(halted).values()))


def test_how_often_is_looked_is_no_longer_neutral():
    plain = load_config("CartPole-v1", "ppo", ["policy_lr=1e-3", "clip_range=0.2"])
    steered = load_config("CartPole-v1", "ppo", ["policy_lr=1e-3", "clip_range=0.2", "plateau.then=stop"])
    for config, unsure in ((plain, []), (steered, ["max_timesteps", "eval_freq_epochs"])):
        other = from_plain({**to_plain(config), "eval_freq_epochs": 7, "max_timesteps": 200_000})
        keys = [change.key for change in unproven(changes(config, other), config, "eager")]
        assert sorted(keys) == sorted(unsure)
