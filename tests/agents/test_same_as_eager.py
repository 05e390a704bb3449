"""Whatever an engine makes of a config is what eager makes of it: weights, moments, rows, metrics, episodes.

And a training that goes on from a checkpoint is to the bit one that was never stopped.
"""

import pytest
from fused_cases import (
    FIFTY,
    GPU,
    GRAPHED,
    LOWERED,
    MEMORIES,
    OFF_POLICY,
    ON_POLICY,
    REPLAY,
    ROLLOUT,
    SMALL,
    TINY,
    marks_on_gpu,
    named,
    off_policy_words,
    on_policy_words,
)
from same_as_eager import Case, assert_learns_as_eager, assert_resumes

CARTPOLE, FROZEN = "CartPole-v1:ppo", "FrozenLake-v1:ppo"
ONCE, THRICE = ((0, 1),), ((1, 1),) * 3
LAG = (*TINY, "policy_lr=0.01", "lag=1")
NARROW = ("hidden_dims=[16,16]",)  # threads of a GPU take turns here: 64 x 64 would take ten times as long
SCHEDULED = (*GPU, "lag=1", *NARROW, "policy_lr=1e-3")
BESIDE = (*GPU, "lag=1", *NARROW, "policy_lr=0.01")
STATIC = (*GPU, "normalize_obs=static", "hidden_dims=[16]")
PLACES = (*GPU, "hidden_dims=[16]")
LARGE = ("n_envs=20", "n_steps=32", "n_epochs=1", "batch_size=0.5", *NARROW)  # 320 rows: 2.5 tiles
HALF = ("n_envs=2", "n_steps=8", "batch_size=1.0", "n_epochs=1", "hidden_dims=[16,16]", "precision=bf16")
HALF_REPLAY = (*REPLAY, "precision=bf16")
QUANTILES = (*HALF_REPLAY, "dueling=true", "quantiles=5", "double_q=true")
MODEL = ("n_envs=4", "deter=16", "width=16", "batch_length=5", "learning_starts=40", "train_ratio=4", "lr_warmup=1")
MODEL += ("buffer_size=400", "train_freq=16", "horizon=3")
POPART = (*SMALL, "value_scale=popart", "share_trunk=true", "normalize_obs=true")
PICTURES = (*SMALL, "resize_obs=[10,12]", "policy_kwargs.cnn=small")
FLAT = (*PICTURES, "hidden_dims=[]")
REPLAYED = (*REPLAY, "obs=pixels", "policy=cnn", "resize_obs=[10,12]", "policy_kwargs.cnn=small", "hidden_dims=[]")
DEEPER = (*PICTURES, "policy_kwargs.channels=[16,20]", "policy_kwargs.kernel=2", "hidden_dims=[24]", "share_trunk=true")
BY_ALGORITHM = {CARTPOLE: SMALL, "CartPole-v1:reinforce": SMALL, "CartPole-v1:dqn": REPLAY, "Pendulum-v1:sac": REPLAY}
BY_ALGORITHM |= {"Pendulum-v1:td3": (*REPLAY, "actor_every=3"), "Pendulum-v1:tqc": REPLAY}


def moving(**values):
    """Words by which these numbers fall to a tenth within 600 env steps, a few iterations."""
    for key, value in values.items():
        yield from (f"{key}={value}", f"{key}_schedule=linear", f"{key}_schedule_end_value={value / 10}")
        yield f"{key}_schedule_end=600"


MOVING = (*moving(gamma=0.99, weight_decay=0.1, optimizer_eps=0.01),)
MOVING_PPO = (*MOVING, *moving(gae_lambda=0.95), "normalize_reward=true")
PQN = (*SMALL, *MOVING, *moving(return_lambda=0.9), "normalize_obs=true", "optimizer=radam")
MOVING_DQN = (*REPLAY, *MOVING, *moving(tau=0.9, huber=1.0), "n_step=3", "target_freq=8")
MOVING_SAC = (*REPLAY, *MOVING, *moving(tau=0.5))
MOVING_TD3 = (*MOVING_SAC, *moving(action_noise=0.5), "actor_every=3", "n_step=2")
MODEL_WEIGHTS = (*moving(prior_coef=1.0, posterior_coef=0.5, observation_coef=2.0, end_weight=3.0, free_nats=0.5),)
# an eps of this size: with a small one, roundings of gradients that vanish become steps as long as any other
DREAMS = (*MODEL, "imagined_starts=8", "optimizer_eps=0.001")
MOVING_DREAMS = (*DREAMS, *moving(gamma=0.99, return_lambda=0.95, tau=0.5), *MODEL_WEIGHTS)
MOVING_DREAMS += (*moving(return_rate=0.5, slow_coef=1.0, replay_value_coef=0.5),)

CASES = {
    **{
        f"{engine[:9]} {named(case)}": Case(case["config"], engine, on_policy_words(case))
        for engine in ("fused_cpu", "fused_gpu learns")
        for case in ON_POLICY
    },
    **{
        f"fused_cpu {named(case)}": Case(case["config"], "fused_cpu", off_policy_words(case), 1e-5, ((2, 1),) * 3)
        for case in OFF_POLICY  # three rounds: past the end of the ring
    },
    **{
        f"graphed {name}": Case(config, "graphed", tuple(words), 0.0, ((0, 2), (0, 3)))
        for name, (config, *words) in GRAPHED.items()
    },
    **{
        f"graphed {name} on a GPU's worlds": Case(
            GRAPHED[name][0], "graphed on a GPU's worlds", GRAPHED[name][1:], 0.0, ((0, 2), (0, 3))
        )
        for name in ("schedules", "numbers")
    },
    **{
        f"fused_cpu, gym's worlds, {config}": Case(config, "fused_cpu", (*words, "env_backend=gym"), 2e-5, ((0, 5),))
        for config, words in BY_ALGORITHM.items()
    },
    # layer norms
    "fused_cpu, pqn": Case("CartPole-v1:pqn", "fused_cpu", PQN, rounds=THRICE, resumes=(3, 3)),
    "fused_cpu, pqn, gym's worlds": Case("CartPole-v1:pqn", "fused_cpu", (*SMALL, "env_backend=gym"), rounds=((0, 5),)),
    # a critic in units of its targets, which a trunk is shared with; returns of hundreds
    "fused_cpu, popart": Case("Pendulum-v1:ppo", "fused_cpu", POPART, rounds=THRICE, resumes=(3, 3)),
    "fused_cpu, popart, pqn": Case("CartPole-v1:pqn", "fused_cpu", (*SMALL, "value_scale=popart"), resumes=(2, 2)),
    "fused_cpu, popart, reinforce": Case(
        "CartPole-v1:reinforce", "fused_cpu", (*SMALL, "value_scale=popart", "policy_targets=advantages")
    ),
    # memories
    **{
        f"fused_cpu, mingru, {name}": Case(config, "fused_cpu", (*words, "threads=2"), rounds=THRICE, resumes=(2, 2))
        for name, (config, *words) in MEMORIES.items()
    },
    "fused_cpu, mingru, popart": Case(
        "Pendulum-v1:ppo", "fused_cpu", (*MEMORIES["plain"][1:], "value_scale=popart"), rounds=THRICE
    ),
    "fused_cpu, mingru, gym's worlds": Case(
        CARTPOLE, "fused_cpu", (*MEMORIES["plain"][1:], "env_backend=gym"), rounds=((0, 2),)
    ),
    # small pictures
    "fused_cpu, pictures": Case("CartPole-v1:ppo_pixels", "fused_cpu", FLAT, rounds=ONCE),
    "fused_cpu, pictures, a trunk": Case("CartPole-v1:ppo_pixels", "fused_cpu", DEEPER, rounds=ONCE),
    "fused_cpu, pictures, dqn": Case("CartPole-v1:dqn", "fused_cpu", REPLAYED, 2e-5, ((0, 5),)),
    # fifty updates
    "fused_cpu, long": Case(CARTPOLE, "fused_cpu", (*FIFTY, "n_epochs=13"), rounds=ONCE),
    "fused_gpu, long": Case(CARTPOLE, "fused_gpu learns", (*FIFTY, *NARROW, "n_epochs=13"), rounds=ONCE),
    "fused_gpu, lag, long": Case(
        CARTPOLE, "fused_gpu learns", (*FIFTY, *NARROW, "n_epochs=1", "lag=1"), rounds=((0, 13),)
    ),
    # `engine: fused_gpu`
    "fused_gpu, lag": Case(CARTPOLE, "fused_gpu learns", LAG, rounds=THRICE, resumes=(2, 2)),
    "fused_gpu, lag, rolling": Case("Pendulum-v1:ppo", "fused_gpu", (*SCHEDULED, "normalize_obs=rolling")),
    "fused_gpu, lag, one trunk": Case("Acrobot-v1:ppo", "fused_gpu", (*SCHEDULED, "share_trunk=true")),
    "fused_gpu, all of it": Case(FROZEN, "fused_gpu", PLACES, 1e-5, ((1, 1), (1, 2))),
    "fused_gpu, large tiles": Case(CARTPOLE, "fused_gpu learns in large tiles", LARGE),
    # its graphs, and a rollout beside the updates, change no bit of it
    "graph, numbers": Case(
        "MountainCarContinuous-v0:ppo", "fused_gpu in a graph", STATIC, 0.0, ((0, 3), (0, 3)), "fused_gpu"
    ),
    "graph, places": Case(FROZEN, "fused_gpu in a graph", PLACES, 0.0, ((0, 3), (0, 3)), "fused_gpu", (3, 3)),
    "graph, lag": Case(FROZEN, "fused_gpu in a graph", (*PLACES, "lag=1"), 0.0, ((0, 4),), "fused_gpu"),
    "beside": Case(CARTPOLE, "fused_gpu beside", BESIDE, 0.0, ((0, 2), (0, 2)), "fused_gpu"),
    "beside, late": Case(CARTPOLE, "fused_gpu beside, late", BESIDE, 0.0, ((0, 2), (0, 2)), "fused_gpu", (2, 2)),
    # every number that an iteration reads follows its schedule
    "fused_cpu, moving, ppo": Case(CARTPOLE, "fused_cpu", (*SMALL, *MOVING_PPO), rounds=THRICE, resumes=(3, 3)),
    "fused_cpu, moving, dqn": Case("CartPole-v1:dqn", "fused_cpu", MOVING_DQN, 1e-5, ((2, 1),) * 3, resumes=(4, 3)),
    "fused_cpu, moving, sac": Case("Pendulum-v1:sac", "fused_cpu", MOVING_SAC, 1e-5, ((2, 1),) * 3, resumes=(4, 3)),
    "fused_cpu, moving, td3": Case("Pendulum-v1:td3", "fused_cpu", MOVING_TD3, 1e-5, ((2, 1),) * 3, resumes=(4, 3)),
    "fused_gpu, moving, learns": Case(
        CARTPOLE, "fused_gpu learns", (*TINY, *MOVING_PPO), rounds=THRICE, resumes=(2, 2)
    ),
    "fused_gpu, moving, in a graph": Case(
        CARTPOLE, "fused_gpu in a graph", (*GPU, *NARROW, *MOVING_PPO), 0.0, ((0, 3), (0, 3)), "fused_gpu", (3, 3)
    ),
    "fused_cpu, moving, dreamer": Case("CartPole-v1:dreamer", "fused_cpu", MOVING_DREAMS, 1e-4, ((0, 2),)),
    "fused_cpu, moving, planet": Case(
        "CartPole-v1:planet", "fused_cpu", (*MODEL, "elites=4", *MODEL_WEIGHTS), 3e-4, ((0, 3),)
    ),
    # world models: sums over sequences in another order
    "dreamer": Case("CartPole-v1:dreamer", "fused_cpu", (*MODEL, "imagined_starts=8"), 1e-4, ((0, 3),)),
    "planet": Case("CartPole-v1:planet", "fused_cpu", (*MODEL, "elites=4"), 1e-4, ((0, 3),)),
}
RESUMED = {
    **{f"fused_cpu, {config}": Case(config, "fused_cpu", words, resumes=(4, 4))
       for config, words in BY_ALGORITHM.items()},
    "fused_cpu, numbers": Case("Pendulum-v1:ppo", "fused_cpu", SMALL, resumes=(2, 2)),
    "graphed, schedules": Case(GRAPHED["schedules"][0], "graphed", GRAPHED["schedules"][1:], resumes=(4, 3)),
    "graphed, lstm": Case(GRAPHED["lstm"][0], "graphed", GRAPHED["lstm"][1:], resumes=(4, 3)),
    "lag": Case(CARTPOLE, "eager", (*LAG, "normalize_obs=true", "normalize_reward=true"), resumes=(3, 2)),
    "bf16, ppo": Case(CARTPOLE, "eager", HALF, resumes=(2, 2)),
    "bf16, lstm": Case(CARTPOLE, "eager", (*HALF, "policy=lstm"), resumes=(2, 2)),
    "bf16, dqn": Case("CartPole-v1:dqn", "eager", QUANTILES, resumes=(2, 2)),
    "bf16, sac": Case("Pendulum-v1:sac", "eager", HALF_REPLAY, resumes=(2, 2)),
    "moving, ppo": Case(CARTPOLE, "eager", (*SMALL, *MOVING_PPO), resumes=(3, 2)),
    "moving, pqn": Case("CartPole-v1:pqn", "eager", (*moving(gamma=0.99, return_lambda=0.9), *ROLLOUT), resumes=(3, 2)),
    "moving, dreamer": Case("CartPole-v1:dreamer", "eager", MOVING_DREAMS, resumes=(3, 2)),
    "moving, planet": Case("CartPole-v1:planet", "eager", (*MODEL, "elites=4", *MODEL_WEIGHTS), resumes=(3, 2)),
    "moving, dqn": Case("CartPole-v1:dqn", "eager", MOVING_DQN, resumes=(4, 3)),
    "fused_gpu": Case(CARTPOLE, "fused_gpu learns", TINY, resumes=(2, 2)),
    "fused_gpu, tf32": Case(CARTPOLE, "fused_gpu learns in tf32", LOWERED, resumes=(2, 1)),
    "fused_gpu, bf16": Case(CARTPOLE, "fused_gpu learns in bf16", LOWERED, resumes=(2, 1)),
    **{name: case for name, case in CASES.items() if case.resumes},
}  # fmt: skip
ON_GPU = {f"fused_gpu {named(case)}": marks_on_gpu(case) for case in ON_POLICY}
QUICK = ("fused_gpu", "fused_gpu, lag")  # of the others whose kernels take g++ some seconds
LONG = [f"graphed {name}" for name in ("adam", "gru", "images", "lag, lstm", "unguarded", "whole episodes")]


def names(cases):
    for name in cases:
        by_gpu = name.startswith(("fused_gpu", "graph,", "beside")) and name not in QUICK
        yield pytest.param(name, marks=ON_GPU.get(name, [pytest.mark.slow] * (by_gpu or name in LONG)))


@pytest.mark.parametrize("name", [*names(CASES)])
def test_training_is_that_of_eager(name):
    case = CASES[name]
    agent = assert_learns_as_eager(case)
    if case.engine.startswith("graphed"):
        replays = [socket._work._graph.replays for socket in (agent.engine.play, agent.engine.learn)]
        assert replays == [3, 3], "a rehearsal and a capture come before"


@pytest.mark.parametrize("name", [*names(RESUMED)])
def test_a_resumed_training_is_one_that_was_never_stopped(name):
    assert_resumes(RESUMED[name])
