"""What a seed gives does not depend on how many threads work: first weights anywhere, results where it is promised.

And `threads: auto`: more than one only where there is work for them, cores, and an engine that gives the same bits.
"""

import pytest
import torch
from driven import advance, agent_for

from stride.agents.engines import choice
from stride.agents.networks.layers import LayerNorm, one_thread
from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.config.loader import load_config
from stride.runstore import seed_group
from stride.runstore.many import group_training
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import read_json
from stride.utils.resources import CORES_VARIABLE
from stride.utils.user_error import UserError

ROLLOUT = "n_envs=4 n_steps=16 batch_size=0.5 n_epochs=2"
WIDE = "n_envs=8 n_steps=64 batch_size=256 n_epochs=2 engine=fused_cpu"
REPLAY = "n_envs=2 buffer_size=500 learning_starts=32 train_freq=16 gradient_steps=4"
MODEL = "n_envs=2 buffer_size=500 learning_starts=64 batch_length=8 train_freq=40 train_ratio=8"
TRAINED = {
    "ppo, fused": f"CartPole-v1:ppo {ROLLOUT} engine=fused_cpu",
    "ppo, fused, on gym's worlds": f"CartPole-v1:ppo {ROLLOUT} engine=fused_cpu env_backend=gym",
    "ppo, eager": f"CartPole-v1:ppo {ROLLOUT} engine=eager normalize_obs=true normalize_reward=true",
    "ppo, lstm": f"CartPole-v1:ppo {ROLLOUT} policy=lstm",
    "reinforce, fused": "CartPole-v1:reinforce n_envs=4 n_steps=64 engine=fused_cpu",
    "reinforce, gru": "CartPole-v1:reinforce n_envs=4 n_steps=32 policy=gru engine=eager",
    "pqn": f"CartPole-v1:pqn {ROLLOUT}",
    "ppo, fused, wide": f"CartPole-v1:ppo {WIDE}",
    "ppo, fused, normalised": f"CartPole-v1:ppo {WIDE} normalize_obs=true normalize_reward=true target_kl=0.01",
    **{
        f"{config[-3:]}, fused, wide, {size} rows": f"{config} {REPLAY} engine=fused_cpu batch_size={size}"
        for config in ("CartPole-v1:dqn", "Pendulum-v1:sac", "Pendulum-v1:td3", "Pendulum-v1:tqc")
        for size in (64, 200, 300)
    },
    "dqn, eager": f"CartPole-v1:dqn {REPLAY} engine=eager batch_size=32 prioritised=true n_step=3 dueling=true",
    "sac, eager": f"Pendulum-v1:sac {REPLAY} engine=eager batch_size=32",
    "q_learning": "FrozenLake-v1:q_learning",
    "dreamer, fused": f"CartPole-v1:dreamer {MODEL}",
}
BEGUN = TRAINED | {"wide": "CartPole-v1:ppo hidden_dims=[512,512]"}
# torch's threads wait long where cores are short
LONG = ("ppo, lstm", "reinforce, gru", "ppo, eager", "sac, eager", "dreamer, fused")


def made(words, threads):
    torch.set_num_threads(threads)
    return agent_for(*words.split(), f"threads={threads}", "seed=7717")


@pytest.mark.parametrize("name", BEGUN)
def test_first_weights_are_the_same_for_any_number_of_threads(name):
    assert len({fingerprint(made(BEGUN[name], threads).state_dict()) for threads in (1, 2, 3)}) == 1


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in TRAINED])
def test_what_was_learnt_is_the_same_for_any_number_of_threads(name):
    """Also where all of them must work, though fewer would be faster."""
    is_fused = "engine=fused_cpu" in TRAINED[name]
    learnt = set()
    for threads in (1, 2, 3):
        agent = advance(made(TRAINED[name], threads), 1)
        if is_fused:
            bound = agent.engine.learn.bound
            bound.pace.choose = lambda bound=bound: bound.workers.threads
            assert (bound.workers.threads > 1) == (threads > 1) or "wide" not in name
        advance(agent, 11 if "wide" in name else 1)
        assert agent.progress["updates"]
        optimizer = agent.optimizers()  # Q-learning has none
        parts = [agent.state_dict(), optimizer and optimizer.state_dict(), agent.memory.columns_written()]
        learnt.add(fingerprint([*parts, agent.collector.window.state_dict()]))
    assert len(learnt) == 1


def test_a_layer_norm_gives_the_gradients_of_torchs_own():
    x = torch.randn(300, 17, generator=torch.Generator().manual_seed(1))
    results = set()
    for threads, norm in enumerate((torch.nn.LayerNorm(17), LayerNorm(17), LayerNorm(17), LayerNorm(17))):
        torch.set_num_threads(max(1, threads))
        seen = x.clone().requires_grad_()
        y = norm(seen)
        y.square().sum().backward()
        results.add(fingerprint([seen.grad, norm.weight.grad, norm.bias.grad, y.detach()]))
    assert len(results) == 1
    LayerNorm(17)(x).sum().backward()
    assert x.grad is None


def test_one_thread_ends_with_as_many_as_before():
    torch.set_num_threads(2)
    with pytest.raises(KeyError), one_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == 2


# --- `threads: auto`

FASTER = "auto: switches to 1 if that is faster"


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(4))
    monkeypatch.setattr(choice, "idle", lambda: 4)
    monkeypatch.delenv(CORES_VARIABLE, raising=False)


CONSTANT = ("policy_lr=1e-3", "clip_range=0.2", "eval_freq_epochs=null")  # nothing depends on the budget
SHARED = (
    "CartPole-v1:ppo", "CartPole-v1:ppo n_envs=64 n_steps=128", "Pendulum-v1:sac",
    "Pendulum-v1:sac hidden_dims=[64,64]", "CartPole-v1:dreamer", "Pendulum-v1:ppo", "CartPole-v1:ppo engine=eager",
    "CartPole-v1:ppo threads=3",
)  # fmt: skip


def test_as_many_as_pay(four_cores, snapshot):
    threads = {words: agent_for(*words.split()).engine.threads for words in SHARED}
    assert {words: f"{number} {why}" for words, (number, why) in threads.items()} == snapshot


def test_a_machine_that_is_busy_is_not_made_busier(four_cores, monkeypatch):
    monkeypatch.setattr(choice, "idle", lambda: 1)
    assert agent_for("CartPole-v1:ppo").engine.threads == (1, "auto: other programs use the cores")


def test_a_run_records_how_many_there_were_and_goes_on_anywhere(four_cores, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    before, torch_threads = torch.get_num_threads(), []
    monkeypatch.setattr(torch, "set_num_threads", torch_threads.append)
    assert train.command(["CartPole-v1:ppo", "max_timesteps=1280", *CONSTANT]) == 0
    run = RunDir.find("@last")
    facts = read_json(run.config_json)
    assert facts["threads"] == 2 and facts["config"]["threads"] == "auto" and {*torch_threads} <= {1, before}
    assert f"threads 2 ({FASTER})" in capsys.readouterr().out
    monkeypatch.setenv(CORES_VARIABLE, "1")  # as on another machine
    assert train.command(["--resume", run.id, "max_timesteps=2560"]) == 0
    output = capsys.readouterr().out
    assert "threads 1 (auto: only one core is available)" in output and ", exact" in output
    assert read_json(run.config_json)["threads"] == 1


def test_a_word_that_is_no_number_is_refused():
    with pytest.raises(UserError, match="threads takes a whole number or auto, not 'atuo'; did you mean auto"):
        load_config("CartPole-v1", "ppo", ["threads=atuo"])


def test_trainings_side_by_side_share_the_cores(four_cores, tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    shares = []

    def pool(commands, workers, env, **rest):
        shares.append(env[CORES_VARIABLE])
        return []

    for seeds, workers in ((1, 4), (2, 4), (8, 4), (8, 1)):
        plan = seed_group.GroupPlan((seed_group.SeedPart(("x:y",), tuple(range(seeds))),))
        group_training.train_all(["python", "train.py"], plan, workers, [], pool=pool)
    assert shares == ["4", "2", "1", "4"]
