"""The parts that `stride` hands to programs of one's own: docs/parts.md, typed, and each part by hand."""

import os
import re
import signal
from pathlib import Path

import pytest
import torch
from commands import run_command

import stride
from stride.agents.returns import gae
from stride.envs_gym.blame import EnvError
from stride.envs_gym.gym_env import GymEnv
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parent.parent
TROUBLE = "async_worlds:stride-test/Trouble-v0"
FINE, RAISE, HANG = range(3)


def test_facts_about_an_environment():
    info = stride.env_info("CartPole-v1", max_episode_steps=50, env_wrappers=[{"id": "FrameStack", "frames": 2}])
    assert (info.reward_threshold, info.max_episode_steps, info.is_image) == (475.0, 50, False)
    assert info.observation_space.shape == (8,) and info.action_space.n == 2
    assert stride.env_info("CartPole-v1", obs="pixels").is_image


def test_a_wrong_environment_or_key_is_one_line():
    for keys, line in (
        ({"frame_stak": 2}, "unknown key 'frame_stak'; did you mean frame_stack"),
        ({"frame_stack": "two"}, "frame_stack takes a whole number"),
        ({"env_id": "CartPol-v1"}, "did you mean CartPole-v1"),
    ):
        with pytest.raises(UserError, match=line):
            stride.env_info(**{"env_id": "CartPole-v1", **keys})


def test_a_rollout_buffer_stores_what_was_acted_upon_and_values_ends_by_time():
    """By hand: one step an episode, cut by time in world 0 and ended in world 1; V(obs) is obs itself."""
    buffer = stride.RolloutBuffer(3)
    obs = buffer.begin(torch.tensor([[1.0], [2.0]]))
    for t in range(3):
        new_obs = torch.tensor([[10.0 + t], [20.0 + t]])
        last_obs = torch.tensor([[100.0 + t], [200.0 + t]])
        ended = torch.tensor([t == 1, t == 1])
        step = stride_step(new_obs, torch.tensor([1.0, 1.0]), ended, last_obs)
        assert not buffer.full
        obs = buffer.add(torch.tensor([t, t]), step, log_prob=torch.tensor([0.5, 0.25]))
        new_obs.zero_()  # as a step overwrites the one before
    rows = buffer.rows
    assert rows.obs[..., 0].tolist() == [[1, 2], [10, 20], [11, 21]] and obs[:, 0].tolist() == [12, 22]
    assert rows.is_first.tolist() == [[True, True], [False, False], [True, True]]
    assert rows.extras["log_prob"].tolist() == [[0.5, 0.25]] * 3
    advantage, target, value = buffer.advantages(lambda x: x[:, 0], gamma=0.5, gae_lambda=1.0)
    last = [1 + 0.5 * 12 - 11, 1 + 0.5 * 22 - 21]
    second = [1 + 0.5 * 101 - 10, 1 + 0.0 - 20]  # time cut world 0, world 1 terminated
    first = [1 + 0.5 * 10 - 1 + 0.5 * second[0], 1 + 0.5 * 20 - 2 + 0.5 * second[1]]
    assert advantage.tolist() == [first, second, last] and torch.equal(target, advantage + value)
    v_tp1 = torch.tensor([[10.0, 20.0], [101.0, 0.0], [12.0, 22.0]])
    assert torch.equal(advantage, gae(rows.reward, rows.terminated, rows.truncated, value, v_tp1, 0.5, 1.0))
    pieces = buffer.minibatches(4, (rows.action, advantage))
    assert [len(action) for action, _ in pieces] == [4, 2]
    assert sorted(torch.cat([action for action, _ in pieces]).tolist()) == [0, 0, 1, 1, 2, 2]


def stride_step(obs, reward, ended, final_obs):
    cut = torch.tensor([True, False])
    zeros = torch.zeros(2)
    return stride.Step(obs, reward, ended & ~cut, ended & cut, final_obs, zeros, zeros)


def test_a_rollout_buffer_refuses_what_is_incomplete():
    with pytest.raises(UserError, match="n_steps must be a whole number of at least 1, got 0"):
        stride.RolloutBuffer(0)
    buffer = stride.RolloutBuffer(2)
    step = stride_step(torch.zeros(2, 1), torch.zeros(2), torch.zeros(2, dtype=torch.bool), torch.zeros(2, 1))
    with pytest.raises(UserError, match=r"call begin\(envs.reset\(seed\)\) before"):
        buffer.add(torch.zeros(2), step)
    buffer.begin(torch.zeros(2, 1))
    buffer.add(torch.zeros(2), step, log_prob=torch.zeros(2))
    with pytest.raises(UserError, match="every row must have log_prob"):
        buffer.add(torch.zeros(2), step)
    with pytest.raises(UserError, match="not complete: 1 of 2 rows"):
        _ = buffer.rows


def test_normalisers_of_two_processes_merge_to_that_of_all_rows():
    rows = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)) * 3 + 5
    alone, other, everything = (stride.RunningNorm(2) for _ in range(3))
    alone.learn(rows[:100]), other.learn(rows[100:]), everything.learn(rows)
    alone.merge(other)
    alone.merge(stride.RunningNorm(2))  # which has learnt nothing
    assert alone.count == 300
    assert torch.allclose(alone.mean, rows.mean(0), atol=1e-5) and torch.allclose(
        alone.mean, everything.mean, atol=1e-6
    )
    assert torch.allclose(alone.var, rows.var(0, correction=0), rtol=1e-5)


@pytest.fixture
def pool():
    made = []

    def start(num_envs=3, **options):
        made.append(stride.async_pool(TROUBLE, num_envs, **{"workers": num_envs, **options}))
        made[-1].reset(0)
        return made[-1]

    yield start
    for envs in made:
        envs.close()


def test_the_first_ready_worlds_are_received_before_a_slow_one(pool):
    envs = pool()
    envs.send(torch.tensor([HANG, FINE, FINE]))
    first = envs.recv(2)
    assert sorted(first.ids.tolist()) == [1, 2] and first.step.obs[:, 0].tolist() == [1, 1]
    envs.send(torch.tensor([FINE, FINE]), first.ids)  # the fast ones go on while the slow one still thinks
    assert envs.under_way == [0, 1, 2]
    second = envs.recv(2)
    assert sorted(second.ids.tolist()) == [1, 2] and second.step.obs[:, 0].tolist() == [2, 2]
    assert first.step.obs[:, 0].tolist() == [1, 1] and envs.under_way == [0]  # copies


def test_worlds_sent_one_by_one_play_the_episodes_of_gym_env():
    envs, plain = stride.async_pool("CartPole-v1", 4, workers=2), GymEnv("CartPole-v1", 4)
    assert torch.equal(envs.reset(1), plain.reset(1))
    actions = torch.randint(2, (40, 4), generator=torch.Generator().manual_seed(0))
    expected = [[row for row in zip(*map(torch.clone, plain.step(action)[:4]), strict=True)] for action in actions]
    clock = [0] * 4
    envs.send(actions[0])
    while min(clock) < 39:
        ids, step = envs.recv(2)
        for row, world in enumerate(ids.tolist()):
            wanted = expected[clock[world]][world]
            assert all(torch.equal(mine[row], theirs) for mine, theirs in zip(step[:4], wanted, strict=True))
            clock[world] += 1
            if clock[world] < 40:
                envs.send(actions[clock[world]][world : world + 1], [world])
    envs.close()


def test_a_pool_names_what_failed(pool):
    envs = pool(2)
    envs.send(torch.tensor([FINE, RAISE]))
    with pytest.raises(EnvError, match=r"Trouble-v0, environment 1 \(worker 1\): ZeroDivisionError: the sky fell"):
        envs.recv()
    envs = pool(2)
    envs.send(torch.tensor([HANG]), [1])
    os.kill(envs.pids[1], signal.SIGKILL)
    with pytest.raises(EnvError, match="the worker was killed by SIGKILL"):
        envs.recv()


def test_a_hanging_world_is_noticed_although_others_answer(pool):
    envs = pool(2, step_timeout=3.0)
    envs.send(torch.tensor([HANG, FINE]))
    with pytest.raises(EnvError, match="no answer for 3 seconds in environment 0"):
        while True:
            ids, _ = envs.recv(1)
            envs.send(torch.tensor([FINE]), ids)


def test_misuse_of_a_pool_is_one_line(pool):
    envs = pool(2)
    calls = {
        "cannot receive 1 results of 0 environments": lambda: envs.recv(1),
        r"ids must be different numbers from 0 to 1, not \[0, 2\]": lambda: envs.send(
            torch.zeros(2, dtype=torch.int64), [0, 2]
        ),
        r"takes actions torch.int64\[2\], got torch.float32": lambda: envs.send(torch.zeros(2)),
        r"takes actions torch.int64\[2\], got list": lambda: envs.send([0, 0]),
    }
    for line, call in calls.items():
        with pytest.raises(ValueError, match=line):
            call()
    envs.send(torch.zeros(1, dtype=torch.int64), [1])
    for call in (lambda: envs.step(torch.zeros(2, dtype=torch.int64)), envs.state_dict):
        with pytest.raises(UserError, match=r"receive the results of environments \[1\] first"):
            call()
    with pytest.raises(UserError, match=r"environments \[1\] are still stepping; receive their results first"):
        envs.send(torch.zeros(2, dtype=torch.int64))
    assert envs.reset(1).shape == (2, 1) and envs.under_way == []  # drops what was under way
    assert envs.step(torch.zeros(2, dtype=torch.int64)).obs.flatten().tolist() == [1, 1]


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path):
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "parts.md").read_text(), re.M | re.S)
    (tmp_path / "page.py").write_text("".join(text for kind, text in blocks if kind == "python"))
    done = run_command("page.py", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = [line for kind, text in blocks if kind == "text" for line in text.splitlines()]
    numbers = re.compile(r"-?\d[\d.]*")
    assert [numbers.sub("0", line) for line in done.stdout.splitlines()] == [numbers.sub("0", x) for x in wanted]
