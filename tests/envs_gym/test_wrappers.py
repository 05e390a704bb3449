"""Each wrapper against values worked out by hand, and what they never touch: the return that is reported."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given
from hypothesis import strategies as st
from playing import OTHERS, refused
from snapshots import shown

from stride.commands import train
from stride.config.schema import Config
from stride.envs_gym.gym_env import EnvError, GymEnv
from stride.envs_gym.make import env_info, make_envs
from stride.envs_gym.wrappers import manual
from stride.envs_gym.wrappers.registry import WRAPPERS, wrap, wrappers_of
from stride.utils.user_error import UserError

COUNTING = "stride-test/Counting-v0"
FIRST = torch.zeros(1, dtype=torch.int64)


def world(env_id, *wrappers, **kwargs):
    return wrap(gymnasium.make(env_id, **kwargs), wrappers).env


def worlds(env_id, wrapper, number=1, **keys):
    """Worlds with this wrapper, after their first reset."""
    envs = make_envs(Config(env_id=env_id, env_wrappers=() if wrapper is None else (wrapper,), **keys), number)
    envs.reset(0)
    return envs


# Names and arguments


WRONG = {  # environment: wrappers that do not fit it
    "CartPole-v1": [
        {"id": "StickyAction"},
        {"id": "zzz"},
        {"id": "StickyActions", "probabilty": 0.5},
        {"id": "StickyActions", "probability": 1},
        {"id": "StickyActions", "probability": "x"},
        {"id": "FrameSkip"},
        {"id": "MountainCarShaper"},
        {"id": "CountBonus"},
        {"id": "DiscreteEncoder"},
        {"id": "SelectObservation", "indices": [0, 4]},
        {"id": "ActionRemapper", "actions": [0, 2]},
        {"id": "ActionMask"},
        {"id": "ActionMask", "valid_actions": [1, 1]},
        {"id": "CarRacingPedals"},
        {"id": "MiniGridFlat"},
        {"id": "LifeLoss"},
        {"id": "no_such_module:Mine"},
    ],
    "Acrobot-v1": [{"id": "CartPoleShaper"}],
    "MountainCar-v0": [{"id": "MountainCarCountBonus", "bins": 0}],
    "Pendulum-v1": [{"id": "ActionRemapper", "actions": [0]}],
    "Taxi-v4": [{"id": "DiscreteEncoder", "encoding": "one_hot"}, {"id": "FrameStack", "frames": 2}],
}


def test_wrong_names_and_arguments_and_what_does_not_fit_say_why(snapshot):
    lines = [refused(env_id, env_wrappers=(wrapper,)) for env_id, wrappers in WRONG.items() for wrapper in wrappers]
    assert shown("\n".join(lines), *OTHERS) == snapshot


OWN = """
import gymnasium
from stride.envs_gym.wrappers.registry import WRAPPERS
class Double(gymnasium.RewardWrapper):
    def __init__(self, env, times=2): super().__init__(env); self.times = times
    def reward(self, reward): return self.times * reward
WRAPPERS["Double"] = Double
"""


def test_a_wrapper_of_ones_own_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "my_worlds.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    for env_id, wrapper in (("CartPole-v1", "my_worlds:Double"), ("my_worlds:CartPole-v1", "Double")):
        step = worlds(env_id, {"id": wrapper, "times": 3}).step(FIRST)
        assert (step.reward.item(), step.episode_return.item()) == (3.0, 1.0)
        assert "accepted: times" in refused(env_id, env_wrappers=({"id": wrapper, "tims": 3},))
    del WRAPPERS["Double"]


def test_the_manual_has_every_wrapper_with_every_argument(capsys):
    entries = {entry.name: entry for entry in manual.entries()}
    assert entries.keys() == WRAPPERS.keys()
    assert train.command(["--help", "wrappers"]) == 0
    text = capsys.readouterr().out
    for name, entry in entries.items():
        assert len(entry.doc) > 20 and f"\n{name}\n" in text, name
    arguments = [argument for entry in entries.values() for argument in entry.arguments]
    assert all(f"  {argument}\n" in text for argument in arguments)
    assert entries["FrameSkip"].arguments == ("skip: a whole number", "max_last_two=false: true or false")
    assert entries["PongShaper"].arguments == ("gamma=gamma of the run: a number", "scale=0.1: a number")


# Rewards


@pytest.mark.parametrize("limit", [None, 3])
def test_cartpole_potential_by_hand(limit):
    """Nothing is left where the task ended; where time cut it, the last state keeps its potential."""
    env = world("CartPole-v1", {"id": "CartPoleShaper", "gamma": 0.9, "scale": 2.0}, max_episode_steps=limit)
    env.reset(seed=3)

    def potential():
        x, _, theta, _ = env.unwrapped.state
        return 1 - max(abs(x) / 2.4, abs(theta) / (12 * math.pi / 180))

    before, terminated, truncated = potential(), False, False
    while not (terminated or truncated):
        _, reward, terminated, truncated, _ = env.step(0)
        after = 0.0 if terminated else potential()
        assert reward == pytest.approx(1 + 2.0 * (0.9 * after - before))
        before = after
    assert truncated == (before > 0.5) == (limit == 3)


SLOPE = 0.0025 / 3 * (1 + math.sin(1.5))  # the energy at the flag, above that of the bottom
POTENTIALS = [
    ("MountainCar-v0", (-math.pi / 6, 0.0), -1.0),  # the bottom, at rest
    ("MountainCar-v0", (0.5, 0.0), 0.0),
    ("MountainCar-v0", (0.4, 0.07), 0.0),  # more energy than needed
    ("MountainCar-v0", (-0.2, 0.02), ((math.sin(-0.6) - math.sin(1.5)) * 0.0025 / 3 + 0.02**2 / 2) / SLOPE),
    ("MountainCarContinuous-v0", (0.45, 0.0), 0.0),  # a flag of its own
]


@pytest.mark.parametrize(("env_id", "state", "potential"), POTENTIALS)
def test_mountain_car_potential_by_hand(env_id, state, potential):
    shaper = world(env_id, {"id": "MountainCarShaper", "gamma": 1.0})
    shaper.reset(seed=3)
    shaper.unwrapped.state = np.array(state)
    assert shaper.potential() == pytest.approx(potential)


def test_gamma_is_the_runs_own_unless_given():
    wrappers = {"id": "CartPoleShaper", "gamma": 0.5}, {"id": "MountainCarShaper"}
    stack = wrappers_of(Config(env_id="CartPole-v1", env_wrappers=wrappers, gamma=0.9))
    assert [wrapper["gamma"] for wrapper in stack] == [0.5, 0.9]


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


@pytest.mark.parametrize(
    ("space", "observed", "visits"),
    [
        (Discrete(3, start=5), [6, 6, 5, 6], [1, 2, 1, 3]),
        (MultiDiscrete([2, 4]), [np.array([1, 3]), np.array([0, 3]), np.array([1, 3])], [1, 1, 2]),
        (MultiBinary(2), [np.array([1, 0], np.int8)] * 2, [1, 2]),
        (Tuple((Discrete(32), Discrete(11), Discrete(2))), [(20, 10, 1), (20, 10, 1)], [1, 2]),
    ],
)
def test_a_count_bonus_for_any_discrete_state_by_hand(space, observed, visits):
    env, answers = gymnasium.Env(), iter(observed)
    env.observation_space = space
    env.step = lambda action: (next(answers), 1.0, False, False, {})
    counted = wrap(env, [{"id": "CountBonus", "scale": 2.0}]).env
    rewards = [counted.step(0)[1] for _ in observed]
    assert rewards == pytest.approx([1 + 2 / math.sqrt(visit) for visit in visits])


def test_a_count_bonus_refuses_more_states_than_it_can_count():
    env = gymnasium.Env()
    env.observation_space = MultiBinary(25)
    with pytest.raises(UserError, match="CountBonus counts at most 16,777,216 states, not 33,554,432"):
        wrap(env, [{"id": "CountBonus"}])


# Observations


@pytest.mark.parametrize("encoding", ["onehot", "binary", "array"])
@pytest.mark.parametrize(("env_id", "kwargs", "start", "n"), [("Taxi-v4", {}, 0, 500),
                                                              (COUNTING, {"kind": "discrete"}, 1, 100)])  # fmt: skip
def test_encodings_of_every_discrete_observation(encoding, env_id, kwargs, start, n):
    env = world(env_id, {"id": "DiscreteEncoder", "encoding": encoding}, **kwargs)
    width = {"onehot": n, "binary": math.ceil(math.log2(n)), "array": 1}[encoding]
    assert env.observation_space.shape == (width,)
    for index in range(n):
        code = env.observation(start + index)
        expected = {
            "onehot": [float(k == index) for k in range(n)],
            "binary": [float(index >> k & 1) for k in range(width)],
            "array": [start + index],
        }
        assert code.tolist() == expected[encoding] and env.observation_space.contains(code)


def test_select_observation_hides_the_rest():
    envs = worlds("CartPole-v1", {"id": "SelectObservation", "indices": [2, 0]}, 2)
    assert torch.equal(envs.reset(4), GymEnv("CartPole-v1", 2).reset(4)[:, [2, 0]])
    assert envs.observation_space.high.tolist() == pytest.approx([0.41887903, 4.8])


# Actions


def test_action_remapper_by_hand():
    envs = worlds("CliffWalking-v1", {"id": "ActionRemapper", "actions": [0, 3, 0]})
    assert envs.action_space == Discrete(3)
    assert [envs.step(torch.tensor([action])).obs.item() for action in (2, 0, 1)] == [24, 12, 12]  # up, up, left
    plain = world("Taxi-v4", {"id": "ActionMask"})
    renamed = world("Taxi-v4", {"id": "ActionRemapper", "actions": [4, 0, 1]}, {"id": "ActionMask"})
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


@given(skip=st.integers(1, 5), length=st.integers(1, 12), limit=st.none() | st.integers(1, 12))
def test_frame_skip_is_so_many_frames_of_one_action(skip, length, limit):
    """Rewards are added up, an end stops it, the return counts each frame; the limit is in the policy's steps."""
    config = Config(env_id=COUNTING, env_kwargs={"length": length}, frame_skip=skip, max_episode_steps=limit)
    assert env_info(config).max_episode_steps == (None if limit is None else math.ceil(limit / skip))
    envs = make_envs(config, 1)
    envs.reset(0)
    end = length if limit is None else min(length, limit)
    for start in range(0, end, skip):
        step, stop = envs.step(FIRST), min(start + skip, end)
        over = stop == end
        assert step.reward.item() == pytest.approx(sum(0.1 * frame for frame in range(start + 1, stop + 1)))
        assert step.terminated.item() == (over and end == length)
        assert step.truncated.item() == (over and end < length)
        assert (step.final_obs if over else step.obs)[0, 0] == stop
    assert step.episode_return.item() == pytest.approx(sum(0.1 * frame for frame in range(1, end + 1)))
    assert step.episode_length.item() == math.ceil(end / skip)


def test_frame_skip_can_show_the_brighter_of_the_last_two():
    env = world(COUNTING, {"id": "FrameSkip", "skip": 3, "max_last_two": True}, length=9)
    env.reset(seed=0)
    env.unwrapped.observe = lambda: np.array([env.unwrapped.count % 3, 9 * (env.unwrapped.count == 1)], np.float32)
    assert env.step(1)[0].tolist() == [2, 0]  # counts 2 and 3 show 2 and 0; count 1 is forgotten


@pytest.mark.parametrize(("skip", "wanted", "limit"), [(1, 30, 30), (4, 60, 50)])
def test_the_nearest_time_limit_counts_the_policys_steps(skip, wanted, limit):
    envs = worlds("MountainCar-v0", {"id": "TimeLimit", "max_episode_steps": wanted}, frame_skip=skip)
    assert envs.time_limit == limit
    ages = [age for age in range(1, limit + 1) if envs.step(torch.ones(1, dtype=torch.int64)).truncated]
    assert ages == [limit]


@pytest.mark.parametrize(
    ("action", "pedals"), [([0, 0], [0, 0, 0]), ([-1, 0.5], [-1, 0.5, 0]), ([1, -0.25], [1, 0, 0.25])]
)
def test_car_racing_pedals_by_hand(action, pedals):
    env = gymnasium.Env()
    env.action_space = gymnasium.spaces.Box(np.array([-1, 0, 0], np.float32), np.ones(3, np.float32))
    env.step = lambda action: (action, 0.0, False, False, {})
    assert WRAPPERS["CarRacingPedals"](env).step(np.array(action, np.float32))[0].tolist() == pedals


# Masks


def test_taxis_mask_arrives_as_bool():
    envs = worlds("Taxi-v4", None, 4, action_mask=True)
    assert envs.observation_space["action_mask"] == MultiBinary(6)
    assert envs.observation_space["obs"] == Discrete(500)
    for _ in range(250):  # over the time limit: through resets too
        obs = envs.step(torch.zeros(4, dtype=torch.int64)).obs
        expected = [env.unwrapped.action_mask(env.unwrapped.s).astype(bool).tolist() for env in envs.envs]
        assert obs["action_mask"].dtype == torch.bool and obs["action_mask"].tolist() == expected


def test_constant_masks_come_from_the_spec_or_the_wrapper():
    spec = type(Config(env_id="MountainCar-v0").spec)(valid_actions=(0, 2))
    for envs in (
        worlds("MountainCar-v0", None, 2, action_mask=True, spec=spec),
        worlds("MountainCar-v0", {"id": "ActionMask", "valid_actions": [2, 0]}, 2),
    ):
        assert envs.reset(0)["action_mask"].tolist() == [[True, False, True]] * 2
        assert envs.step(torch.zeros(2, dtype=torch.int64)).obs["action_mask"].tolist() == [[True, False, True]] * 2


@pytest.mark.parametrize("kind", ["masked", "dict"])
def test_a_mask_that_is_observed_or_joins_a_dict_is_bool(kind):
    kwargs = {"kind": kind, "action": "from 0"}
    envs = worlds(COUNTING, None, env_kwargs=kwargs, action_mask=kind == "dict")
    assert envs.reset(0)["action_mask"].tolist() == [[True, False, False]]
    step = envs.step(FIRST)
    assert step.obs["count"].tolist() == [1] and step.obs["action_mask"].tolist() == [[False, True, True]]
    assert isinstance(envs.observation_space["action_mask"], MultiBinary)
    assert "already has an action_mask" in refused(COUNTING, env_kwargs={**kwargs, "kind": "masked"}, action_mask=True)


@pytest.mark.parametrize("length", [9, 2])
def test_a_mask_without_an_action_is_an_error_unless_all_is_over(length):
    kwargs = {"kind": "dict", "action": "from 0", "fault": "mask", "length": length}
    envs = worlds(COUNTING, None, env_kwargs=kwargs, action_mask=True)
    envs.step(FIRST)
    if length == 2:
        assert envs.step(FIRST).final_obs["action_mask"].tolist() == [[True, True, True]]
        return
    with pytest.raises(EnvError, match="environment 0: ValueError: action_mask allows no action"):
        envs.step(FIRST)


# Order


def test_the_stack_of_a_config_from_the_world_outwards():
    own = {"id": "StickyActions"}, {"id": "CartPoleShaper"}
    drawn = {"obs": "pixels", "resize_obs": (42,), "frame_stack": 3}
    wrappers = wrappers_of(Config(env_id="CartPole-v1", frame_skip=2, env_wrappers=own, action_mask=True, **drawn))
    expected = ["FrameSkip", "StickyActions", "CartPoleShaper", "PixelObservation", "FrameStack", "ActionMask"]
    assert [wrapper["id"] for wrapper in wrappers] == expected
    assert wrappers[3]["size"] == (42,)  # drawn in the size that is wanted
    images = wrappers_of(Config(env_id="CartPole-v1", grayscale_obs=True, resize_obs=True))
    assert [wrapper["id"] for wrapper in images] == ["GrayscaleObservation", "ResizeObservation"]
    assert images[1]["size"] == (84, 84)  # unless it is said
    assert wrappers_of(Config(env_id="CartPole-v1")) == ()
