"""Each wrapper against values worked out by hand, and what they never touch: the return that is reported."""

import math

import gymnasium
import numpy as np
import pytest
import torch

from stride.config.schema import Config
from stride.envs_gym.gym_env import EnvError, GymEnv
from stride.envs_gym.make import env_info, make_envs
from stride.envs_gym.wrappers.registry import WRAPPERS, wrap, wrappers_of
from stride.utils.user_error import UserError

COUNTING = "stride-test/Counting-v0"


def world(env_id, *wrappers, **kwargs):
    return wrap(gymnasium.make(env_id, **kwargs), wrappers).env


def refused(env_id="CartPole-v1", **keys):
    with pytest.raises(UserError) as caught:
        make_envs(Config(env_id=env_id, **keys), 1)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Names and arguments


def test_wrong_names_and_arguments_are_refused_before_anything_is_made():
    assert "'StickyAction' is not registered; did you mean StickyActions" in refused(
        env_wrappers=({"id": "StickyAction"},)
    )
    wrong = refused(env_wrappers=({"id": "StickyActions", "probabilty": 0.5},))
    assert "StickyActions has no 'probabilty'; did you mean probability?; accepted: probability" in wrong
    assert "FrameSkip needs 'skip'; accepted: skip, max_last_two" in refused(env_wrappers=({"id": "FrameSkip"},))
    assert "probability must be in [0, 1), not 1" in refused(env_wrappers=({"id": "StickyActions", "probability": 1},))
    assert "StickyActions refuses {'probability': 'x'}: TypeError" in refused(
        env_wrappers=({"id": "StickyActions", "probability": "x"},)
    )


@pytest.mark.parametrize(
    ("env_id", "wrapper", "problem"),
    [
        ("Acrobot-v1", {"id": "CartPoleShaper"}, "CartPoleShaper needs CartPole, not Acrobot-v1"),
        ("CartPole-v1", {"id": "MountainCarShaper"}, "MountainCarShaper needs MountainCar, not CartPole-v1"),
        ("CartPole-v1", {"id": "MountainCarCountBonus"}, "needs MountainCar, not CartPole-v1"),
        ("MountainCar-v0", {"id": "MountainCarCountBonus", "bins": 0}, "bins must be at least 1, not 0"),
        ("CartPole-v1", {"id": "DiscreteEncoder"}, "DiscreteEncoder needs a discrete observation"),
        ("Taxi-v4", {"id": "DiscreteEncoder", "encoding": "one_hot"}, "no encoding 'one_hot'; did you mean onehot"),
        ("CartPole-v1", {"id": "SelectObservation", "indices": [0, 4]}, "entries from 0 to 3, not [0, 4]"),
        ("CartPole-v1", {"id": "ActionRemapper", "actions": [0, 2]}, "actions from 0 to 1, not [0, 2]"),
        ("Pendulum-v1", {"id": "ActionRemapper", "actions": [0]}, "needs discrete actions from 0 on, not Box"),
        ("CartPole-v1", {"id": "ActionMask"}, "CartPole-v1 gives no action_mask of 2 actions in its info"),
        ("CartPole-v1", {"id": "ActionMask", "valid_actions": [1, 1]}, "lists each action once, not [1, 1]"),
        ("CartPole-v1", {"id": "FrameSkip", "skip": 0}, "skip must be at least 1, not 0"),
        ("Taxi-v4", {"id": "FrameStack", "frames": 2}, "FrameStack needs a box, not Discrete(500)"),
        ("CartPole-v1", {"id": "CarRacingPedals"}, "CarRacingPedals needs steering, gas and brake, not Discrete(2)"),
        ("CartPole-v1", {"id": "no_such_module:Mine"}, "no Python module 'no_such_module' to import"),
    ],
)
def test_wrappers_that_do_not_fit_say_why(env_id, wrapper, problem):
    assert problem in refused(env_id, env_wrappers=(wrapper,))


def test_a_wrapper_of_ones_own_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "my_worlds.py").write_text(
        "import gymnasium\n"
        "from stride.envs_gym.wrappers.registry import WRAPPERS\n"
        "class Double(gymnasium.RewardWrapper):\n"
        "    def __init__(self, env, times=2): super().__init__(env); self.times = times\n"
        "    def reward(self, reward): return self.times * reward\n"
        'WRAPPERS["Double"] = Double\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    for env_id, wrapper in (("CartPole-v1", "my_worlds:Double"), ("my_worlds:CartPole-v1", "Double")):
        envs = make_envs(Config(env_id=env_id, env_wrappers=({"id": wrapper, "times": 3},)), 1)
        envs.reset(0)
        step = envs.step(torch.zeros(1, dtype=torch.int64))
        assert (step.reward.item(), step.episode_return.item()) == (3.0, 1.0)
        assert "accepted: times" in refused(env_id, env_wrappers=({"id": wrapper, "tims": 3},))
    del WRAPPERS["Double"]


# Rewards


def test_shaped_rewards_never_appear_as_returns():
    config = Config(env_id="CartPole-v1", env_wrappers=({"id": "CartPoleShaper", "scale": 5.0},), gamma=0.5)
    envs = make_envs(config, 3)
    envs.reset(1)
    ages, paid = torch.zeros(3), []
    for _ in range(60):
        step = envs.step(torch.ones(3, dtype=torch.int64))
        ages += 1
        assert torch.equal(step.episode_return, ages) and torch.equal(step.episode_length, ages)
        paid += step.reward.tolist()
        ages[step.terminated] = 0
    assert len(set(paid)) > 100  # the policy is paid something else


def test_cartpole_potential_by_hand():
    env = world("CartPole-v1", {"id": "CartPoleShaper", "gamma": 0.9, "scale": 2.0})
    env.reset(seed=3)

    def potential():
        x, _, theta, _ = env.unwrapped.state
        return 1 - max(abs(x) / 2.4, abs(theta) / (12 * math.pi / 180))

    before, terminated = potential(), False
    while not terminated:
        _, reward, terminated, _, _ = env.step(0)
        after = 0.0 if terminated else potential()
        assert reward == pytest.approx(1 + 2.0 * (0.9 * after - before))
        before = after
    assert before == 0.0


def test_mountain_car_potential_by_hand():
    env = world("MountainCar-v0", {"id": "MountainCarShaper", "gamma": 1.0})
    env.reset(seed=3)
    shaper = env
    env.unwrapped.state = (-math.pi / 6, 0.0)  # the bottom, at rest
    assert shaper.potential() == pytest.approx(-1.0)
    env.unwrapped.state = (0.5, 0.0)
    assert shaper.potential() == pytest.approx(0.0)
    env.unwrapped.state = (0.4, 0.07)  # more energy than needed
    assert shaper.potential() == 0.0
    env.unwrapped.state = (-0.2, 0.02)
    height = (math.sin(-0.6) - math.sin(1.5)) * 0.0025 / 3
    assert shaper.potential() == pytest.approx((height + 0.02**2 / 2) / (0.0025 / 3 * (1 + math.sin(1.5))))


def test_the_continuous_mountain_car_has_its_own_flag_and_its_raw_return():
    shaper = world("MountainCarContinuous-v0", {"id": "MountainCarShaper", "gamma": 0.5, "scale": 2.0})
    shaper.reset(seed=3)
    shaper.unwrapped.state = np.array([0.45, 0.0])
    assert shaper.potential() == pytest.approx(0.0)
    shaper.unwrapped.state = np.array([-math.pi / 6, 0.0])
    shaper._potential = shaper.potential()
    _, reward, *_ = shaper.step(np.array([0.0], np.float32))  # no force at the bottom: it stays there
    assert reward == pytest.approx(2.0 * (0.5 * -1.0 + 1.0), abs=1e-6)
    wrapper = {"id": "MountainCarCountBonus", "bins": 3}
    envs = make_envs(Config(env_id="MountainCarContinuous-v0", env_wrappers=(wrapper,), max_episode_steps=2), 1)
    envs.reset(0)
    full = torch.ones(1, 1)
    first, last = envs.step(full).reward.item(), envs.step(full)
    assert first == pytest.approx(1 - 0.1) and last.reward.item() == pytest.approx(1 / math.sqrt(2) - 0.1)
    assert last.truncated and last.episode_return.item() == pytest.approx(-0.2)


def test_potentials_telescope_over_an_episode():
    """Discounted, the shaping of a terminated episode adds up to -Phi(first state): it favours no way to end."""
    gamma, scale, total, factor = 0.97, 4.0, 0.0, 1.0
    env = world("CartPole-v1", {"id": "CartPoleShaper", "gamma": gamma, "scale": scale})
    env.reset(seed=5)
    first, terminated = env.potential(), False
    while not terminated:
        _, reward, terminated, _, _ = env.step(1)
        total += factor * (reward - 1.0)
        factor *= gamma
    assert total == pytest.approx(-scale * first)


def test_a_truncated_episode_keeps_its_last_potential():
    env = world("CartPole-v1", {"id": "CartPoleShaper", "gamma": 1.0}, max_episode_steps=3)
    env.reset(seed=1)
    first, total = env.potential(), 0.0
    for _ in range(3):
        _, reward, terminated, truncated, _ = env.step(0)
        total += reward - 1.0
    assert truncated and not terminated and env.potential() > 0.5
    assert total == pytest.approx(env.potential() - first)


def test_gamma_is_the_runs_own_unless_given():
    given, filled = {"id": "CartPoleShaper", "gamma": 0.5}, {"id": "MountainCarShaper"}
    wrappers = wrappers_of(Config(env_id="CartPole-v1", env_wrappers=(given, filled), gamma=0.9))
    assert [wrapper["gamma"] for wrapper in wrappers] == [0.5, 0.9]


def test_count_bonus_by_hand():
    env = world("MountainCar-v0", {"id": "MountainCarCountBonus", "bins": 2, "scale": 3.0})
    env.reset(seed=0)
    bonuses = []
    for position, velocity in [(-0.5, -0.01), (-0.6, -0.02), (-0.5, 0.02), (0.1, -0.02), (-0.6, -0.03)]:
        env.unwrapped.state = (position, velocity)
        bonuses.append(env.step(1)[1] + 1.0)
    assert bonuses == pytest.approx([3, 3 / math.sqrt(2), 3, 3, 3 / math.sqrt(3)])
    assert env.visits.tolist() == [[3, 1], [1, 0]]
    env.reset()  # another episode of the same world remembers
    assert env.visits.sum() == 5
    env.reset(seed=0)
    assert env.visits.sum() == 0


# Observations


def test_discrete_encodings_by_hand():
    env = world("CliffWalking-v1", {"id": "DiscreteEncoder"})
    obs, _ = env.reset(seed=0)
    assert env.observation_space.shape == (48,) and np.flatnonzero(obs).tolist() == [36] and obs.sum() == 1
    env = world("CliffWalking-v1", {"id": "DiscreteEncoder", "encoding": "binary"})
    obs, _ = env.reset(seed=0)
    assert obs.tolist() == [0, 0, 1, 0, 0, 1]  # 36 = 4 + 32
    env = world("CliffWalking-v1", {"id": "DiscreteEncoder", "encoding": "array"})
    assert env.reset(seed=0)[0].tolist() == [36] and env.observation_space.high.tolist() == [47]
    env = world(COUNTING, {"id": "DiscreteEncoder", "encoding": "array"}, kind="discrete")
    assert env.reset(seed=0)[0].tolist() == [1]  # counts from 1


@pytest.mark.parametrize("encoding", ["onehot", "binary", "array"])
def test_encodings_tell_all_observations_apart(encoding):
    env = world("Taxi-v4", {"id": "DiscreteEncoder", "encoding": encoding})
    codes = {env.observation(index).tobytes() for index in range(500)}
    assert len(codes) == 500 and all(env.observation_space.contains(env.observation(i)) for i in (0, 499))


def test_select_observation_hides_the_rest():
    envs = make_envs(Config(env_id="CartPole-v1", env_wrappers=({"id": "SelectObservation", "indices": [2, 0]},)), 2)
    whole = GymEnv("CartPole-v1", 2)
    assert torch.equal(envs.reset(4), whole.reset(4)[:, [2, 0]])
    assert envs.observation_space.high.tolist() == pytest.approx([0.41887903, 4.8])


# Actions


def test_action_remapper_by_hand():
    envs = GymEnv(COUNTING, 1, {"length": 9}, wrappers=[{"id": "TimeLimit", "max_episode_steps": 5}])
    assert envs.time_limit == 5
    envs = make_envs(
        Config(env_id="CliffWalking-v1", env_wrappers=({"id": "ActionRemapper", "actions": [0, 3, 0]},)), 1
    )
    assert envs.action_space == gymnasium.spaces.Discrete(3)
    envs.reset(0)
    assert [envs.step(torch.tensor([action])).obs.item() for action in (2, 0, 1)] == [24, 12, 12]  # up, up, left


def test_a_remapped_mask_has_the_new_names():
    wrappers = {"id": "ActionRemapper", "actions": [4, 0, 1]}, {"id": "ActionMask"}
    plain = world("Taxi-v4", {"id": "ActionMask"})
    renamed = world("Taxi-v4", *wrappers)
    mask = plain.reset(seed=5)[0]["action_mask"]
    assert renamed.reset(seed=5)[0]["action_mask"].tolist() == mask[[4, 0, 1]].tolist()


def test_sticky_actions_repeat_what_the_worlds_generator_says():
    env = world(COUNTING, {"id": "StickyActions", "probability": 0.4}, length=10**6)
    env.reset(seed=0)
    generator = np.random.Generator(np.random.PCG64())
    generator.bit_generator.state = env.unwrapped.np_random.bit_generator.state
    wanted = [1 + step % 3 for step in range(200)]
    for action in wanted:
        env.step(action)
    expected = wanted[:1]
    for action in wanted[1:]:
        expected.append(expected[-1] if generator.random() < 0.4 else action)
    assert env.unwrapped.actions == expected != wanted


def test_frame_skip_adds_rewards_and_stops_at_an_end():
    env = world(COUNTING, {"id": "FrameSkip", "skip": 3}, length=5)
    env.reset(seed=0)
    obs, reward, terminated, *_ = env.step(1)
    assert (obs[0], terminated) == (3, False) and reward == pytest.approx(0.1 + 0.2 + 0.3)
    obs, reward, terminated, *_ = env.step(1)
    assert (obs[0], terminated) == (5, True) and reward == pytest.approx(0.4 + 0.5)


def test_frame_skip_can_show_the_brighter_of_the_last_two():
    env = world(COUNTING, {"id": "FrameSkip", "skip": 3, "max_last_two": True}, length=9)
    env.reset(seed=0)
    env.unwrapped.observe = lambda: np.array([env.unwrapped.count % 3, 9 * (env.unwrapped.count == 1)], np.float32)
    assert env.step(1)[0].tolist() == [2, 0]  # counts 2 and 3 show 2 and 0; count 1 is forgotten


def test_raw_returns_count_every_skipped_frame():
    envs = GymEnv(COUNTING, 2, {"length": 7}, wrappers=[{"id": "FrameSkip", "skip": 3}])
    envs.reset(0)
    action = torch.zeros(2, dtype=torch.int64)
    steps = [envs.step(action).episode_return.tolist() for _ in range(3)]
    assert np.array(steps)[:, 0] == pytest.approx([0.6, 2.1, 2.8])
    assert envs._step.terminated.all() and envs._step.episode_length.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("keys", "limit"),
    [
        ({"frame_skip": 3}, 67),  # 200 frames
        ({"frame_skip": 3, "max_episode_steps": 10}, 4),
        ({"env_wrappers": ({"id": "TimeLimit", "max_episode_steps": 30},)}, 30),
        ({"frame_skip": 4, "env_wrappers": ({"id": "TimeLimit", "max_episode_steps": 60},)}, 50),
        ({}, 200),
    ],
)
def test_the_time_limit_counts_the_policys_steps(keys, limit):
    config = Config(env_id="MountainCar-v0", **keys)
    assert env_info(config).max_episode_steps == limit
    envs = make_envs(config, 1)
    envs.reset(0)
    ages = [age for age in range(1, limit + 1) if envs.step(torch.ones(1, dtype=torch.int64)).truncated]
    assert ages == [limit]


# Masks


def test_taxis_mask_arrives_as_bool():
    envs = make_envs(Config(env_id="Taxi-v4", action_mask=True), 4)
    assert envs.observation_space["action_mask"] == gymnasium.spaces.MultiBinary(6)
    assert envs.observation_space["obs"] == gymnasium.spaces.Discrete(500)
    obs = envs.reset(0)
    generator = np.random.default_rng(0)
    for _ in range(250):  # over the time limit: through resets too
        assert obs["action_mask"].dtype == torch.bool and obs["action_mask"].shape == (4, 6)
        expected = [env.unwrapped.action_mask(env.unwrapped.s) for env in envs.envs]
        assert obs["action_mask"].tolist() == np.array(expected, bool).tolist()
        obs = envs.step(torch.from_numpy(generator.integers(0, 6, 4))).obs


def test_constant_masks_come_from_the_spec_or_the_wrapper():
    valid = {"valid_actions": (0, 2)}
    spec = Config(env_id="MountainCar-v0").spec
    config = Config(env_id="MountainCar-v0", action_mask=True, spec=type(spec)(**valid))
    wrapped = Config(env_id="MountainCar-v0", env_wrappers=({"id": "ActionMask", "valid_actions": [2, 0]},))
    for envs in (make_envs(config, 2), make_envs(wrapped, 2)):
        assert envs.reset(0)["action_mask"].tolist() == [[True, False, True]] * 2
        assert envs.step(torch.zeros(2, dtype=torch.int64)).obs["action_mask"].tolist() == [[True, False, True]] * 2


class Masked(gymnasium.Env):
    """Tells masks of its own in a Dict; `none_at` is the step whose mask allows nothing."""

    def __init__(self, none_at=0, last=9, inside=True):
        self.none_at, self.last, self.inside = none_at, last, inside
        parts = {"x": gymnasium.spaces.Box(0, 9, (1,), np.float32)}
        if inside:
            parts["action_mask"] = gymnasium.spaces.Box(0, 1, (2,), np.int8)
        self.observation_space, self.action_space = gymnasium.spaces.Dict(parts), gymnasium.spaces.Discrete(2)

    def observe(self):
        mask = np.array([0, self.count != self.none_at], np.int8)
        obs = {"x": np.array([self.count], np.float32)} | ({"action_mask": mask} if self.inside else {})
        return obs, {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observe()[0], {"action_mask": np.array([1, 0])}

    def step(self, action):
        self.count += 1
        obs, info = self.observe()
        return obs, 0.0, self.count == self.last, False, info


gymnasium.register("stride-test/Masked-v0", Masked)


def test_a_mask_that_is_observed_already_is_bool_too():
    envs = make_envs(Config(env_id="stride-test/Masked-v0"), 1)
    envs.reset(0)
    step = envs.step(torch.zeros(1, dtype=torch.int64))
    assert step.obs["action_mask"].tolist() == [[False, True]] and step.obs["x"].tolist() == [[1.0]]
    assert isinstance(envs.observation_space["action_mask"], gymnasium.spaces.MultiBinary)
    assert "has an action_mask already" in refused("stride-test/Masked-v0", action_mask=True)


def test_a_mask_joins_a_dict():
    envs = make_envs(Config(env_id="stride-test/Masked-v0", env_kwargs={"inside": False}, action_mask=True), 1)
    assert envs.reset(0)["action_mask"].tolist() == [[True, False]]
    step = envs.step(torch.zeros(1, dtype=torch.int64))
    assert sorted(step.obs) == ["action_mask", "x"] and step.obs["action_mask"].tolist() == [[False, True]]


def test_a_mask_without_an_action_is_an_error_unless_all_is_over():
    action = torch.zeros(1, dtype=torch.int64)
    keys = {"env_id": "stride-test/Masked-v0", "action_mask": True}
    envs = make_envs(Config(**keys, env_kwargs={"inside": False, "none_at": 2}), 1)
    envs.reset(0)
    envs.step(action)
    with pytest.raises(EnvError, match="world 0: ValueError: action_mask allows no action"):
        envs.step(action)
    envs = make_envs(Config(**keys, env_kwargs={"inside": False, "none_at": 2, "last": 2}), 1)
    envs.reset(0)
    envs.step(action)
    assert envs.step(action).final_obs["action_mask"].tolist() == [[True, True]]


# Order


def test_the_stack_of_a_config_from_the_world_outwards():
    config = Config(
        env_id="CartPole-v1",
        frame_skip=2,
        env_wrappers=({"id": "StickyActions"}, {"id": "CartPoleShaper"}),
        obs="pixels",
        resize_obs=(42,),
        frame_stack=3,
        action_mask=True,
    )
    wrappers = wrappers_of(config)
    expected = ["FrameSkip", "StickyActions", "CartPoleShaper", "PixelObservation", "FrameStack", "ActionMask"]
    assert [wrapper["id"] for wrapper in wrappers] == expected
    assert wrappers[3]["size"] == (42,)  # drawn in the size that is wanted
    seen = [wrapper["id"] for wrapper in wrappers_of(Config(env_id="CartPole-v1", grayscale_obs=True, resize_obs=True))]
    assert seen == ["GrayscaleObservation", "ResizeObservation"]
    assert wrappers_of(Config(env_id="CartPole-v1")) == ()


def test_car_racing_pedals_by_hand():
    class Pedals(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (1,))
        action_space = gymnasium.spaces.Box(np.array([-1, 0, 0], np.float32), np.ones(3, np.float32))

        def step(self, action):
            return action, 0.0, False, False, {}

    env = WRAPPERS["CarRacingPedals"](Pedals())
    given = [env.step(np.array(action, np.float32))[0].tolist() for action in ([0, 0], [-1, 0.5], [1, -0.25])]
    assert given == [[0, 0, 0], [-1, 0.5, 0], [1, 0, 0.25]]
