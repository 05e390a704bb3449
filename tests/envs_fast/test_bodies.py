"""Gymnasium's MuJoCo tasks as compiled worlds: their bits, threads, resume, first states, and who else plays them."""

import inspect

import gymnasium
import numpy as np
import pytest
import torch
from playing import bits, random_actions

from stride.config import extras
from stride.config.schema import ALGORITHMS
from stride.envs_fast import BODIES
from stride.envs_fast.bodies import registry as bodies
from stride.envs_fast.bodies.beside import Beside
from stride.envs_fast.bodies.task import pose
from stride.envs_fast.registry import make
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.make import make_envs
from stride.utils.user_error import UserError

FEW = ("HalfCheetah-v5", "Hopper-v5")  # the others are slow tests
TASKS = [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in BODIES]
LEGS = "Hopper-v5"
ONE = [pytest.param(name, marks=() if name == LEGS else pytest.mark.slow) for name in BODIES]
STALE = [LEGS, *(pytest.param(name, marks=pytest.mark.slow) for name in ("Ant-v5", "Humanoid-v5"))]


@pytest.fixture
def mujoco():
    return pytest.importorskip("mujoco")


def differing(env_id, steps, **kwargs):
    """Numbers of steps that differ from Gymnasium's, and how many episodes began."""
    beside = Beside(BODIES[env_id], kwargs)
    found = [0] if beside.begin() else []
    found += [number for number in range(1, steps + 1) if beside.step()]
    beside.close()
    return found, int(beside.ours.episodes[0]) + 1


@pytest.mark.parametrize("env_id", TASKS)
def test_every_number_is_gymnasiums(mujoco, env_id):
    found, episodes = differing(env_id, 1100)
    assert found == []
    assert episodes > 1 or BODIES[env_id].time_limit is None


def another(name, value):
    """A value of an argument that is not its default."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return tuple(0.9 * bound for bound in value)
    return value + 1 if name in ("frame_skip", "main_body") else 1.5 * value


@pytest.mark.parametrize("env_id", ONE)
def test_every_argument_is_gymnasiums(mujoco, env_id):
    defaults = {name: one.default for name, one in inspect.signature(BODIES[env_id].setting).parameters.items()}
    assert "frame_skip" in defaults and "xml_file" not in defaults
    for name, value in defaults.items():
        assert differing(env_id, 60, **{name: another(name, value)})[0] == [], name


def test_worlds_do_not_depend_on_their_number_nor_on_workers_nor_on_steps_per_call(mujoco):
    wide = make(LEGS, 13, seed=5, max_episode_steps=15)
    tape = random_actions(wide, 40)
    whole = wide.advance(tape)
    assert whole.terminated.any() and whole.truncated.any()
    for worlds, workers in ((1, 1), (4, 2), (13, 3)):
        env = make(LEGS, worlds, seed=5, workers=workers, max_episode_steps=15)
        mine = tape[:, :worlds].contiguous()
        for now, action in enumerate(mine[:3]):
            step = env.step(action)
            assert (step.obs == whole.obs[now, :worlds]).all() and (step.reward == whole.reward[now, :worlds]).all()
        rest = env.advance(mine[3:])
        for name in ("obs", "reward", "terminated", "truncated"):
            assert bool((getattr(rest, name) == getattr(whole, name)[3:, :worlds]).all()), name
        assert env.state.tobytes() == np.ascontiguousarray(wide.state[:, :worlds]).tobytes()
        env.close()


@pytest.mark.parametrize("env_id", STALE)
def test_a_resume_in_mid_episode_goes_on_to_the_bit(mujoco, env_id):
    env, fresh = make(env_id, 3, seed=1), make(env_id, 3)
    tape = random_actions(env, 24)
    env.advance(tape[:9])
    fresh.load_state_dict(env.state_dict())
    ours, theirs = env.advance(tape[9:]), fresh.advance(tape[9:])
    assert bits(ours) == bits(theirs)
    assert env.state.tobytes() == fresh.state.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("env_id", BODIES)
def test_first_states_are_gymnasiums_in_distribution(mujoco, env_id):
    """Positions and velocities of 3000 first states each: the largest distance of their distribution functions."""
    number = 3000
    env, theirs = make(env_id, number, seed=2), gymnasium.make(env_id).unwrapped
    ours, other = np.empty((2, number, theirs.model.nq + theirs.model.nv))
    drawn = gymnasium.make(env_id).unwrapped
    for k in range(number):
        pose(drawn, env.state[:, k])
        ours[k] = drawn.state_vector()
        theirs.reset(seed=k)
        other[k] = theirs.state_vector()
    bound = 3.0 * (2 / number) ** 0.5  # beyond which less than 1 in 10^7 of equal distributions is
    for mine, his in zip(ours.T, other.T, strict=True):
        points = np.sort(np.concatenate([mine, his]))
        heights = [np.searchsorted(np.sort(column), points, side="right") / number for column in (mine, his)]
        assert np.abs(heights[0] - heights[1]).max() < bound
    correlations = np.nan_to_num(np.corrcoef(ours.T)) if (ours.std(0) > 0).all() else np.zeros((1, 1))
    assert np.abs(correlations - np.diag(np.diag(correlations))).max() < 6 / number**0.5


def test_a_body_that_flies_apart_is_put_back_as_mujoco_does(mujoco):
    """Its warning comes to Python from a thread that does not hold Python's lock."""
    env, theirs = make(LEGS, 4, seed=1, workers=2), gymnasium.make(LEGS).unwrapped
    seen = []
    mujoco.set_mju_user_warning(seen.append)
    theirs.reset(seed=1)
    which = mujoco.mjtState.mjSTATE_INTEGRATION
    theirs.data.qvel[:] = 1e12
    row = np.zeros(mujoco.mj_stateSize(theirs.model, which))
    mujoco.mj_getState(theirs.model, theirs.data, row, which)
    env.state[-row.size :, :] = row[:, None]
    step = env.step(torch.zeros(4, 3))
    mujoco.set_mju_user_warning(None)
    observation, _, terminated, _, _ = theirs.step(np.zeros(3, np.float32))
    assert seen and "unstable" in seen[0]
    final = (step.final_obs if terminated else step.obs).numpy()
    assert all(bool(flag) == terminated for flag in step.terminated)
    assert (final == observation.astype(np.float32)).all()


def config(env_id="Hopper-v5", **keys):
    return ALGORITHMS["ppo"](env_id=env_id, algo_id="ppo", max_timesteps=1000, **keys)


def test_auto_takes_them_and_leaves_what_only_gymnasium_can_do(mujoco, monkeypatch):
    assert choose_backend(config()).name == "fast"
    for keys, reason in (
        ({"env_kwargs": {"xml_file": "hopper.xml"}}, "only gym supports env_kwargs.xml_file"),
        ({"env_kwargs": {"healthy_z_range": 1}}, "from which it takes its constants"),
    ):
        backend = choose_backend(config(**keys))
        assert backend.name == "gym" and reason in backend.reason
    monkeypatch.setattr(bodies, "_answers", {})
    monkeypatch.setattr(Beside, "first_difference", lambda self: 7)
    backend = choose_backend(config())
    assert backend.name == "gym" and backend.reason.startswith("step 7 of 100 is not Gymnasium's with MuJoCo ")
    with pytest.raises(UserError, match=r"step 7 of 100 .* use env_backend=auto, which takes gym"):
        choose_backend(config(env_backend="fast"))


def test_without_mujoco_the_ids_say_what_to_install(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    line = r"Ant-v5 needs MuJoCo: pip install 'stride-rl\[mujoco\]'"
    assert choose_backend(config("Ant-v5")).name == "gym"
    with pytest.raises(UserError, match=line):
        make("Ant-v5", 1)
    with pytest.raises(UserError, match=line):
        gymnasium.make_vec("fast/Ant-v5")


def test_they_are_stepped_on_the_cpu(mujoco):
    env = make_envs(config(), 8)
    assert env.device.type == "cpu" and env.resume == "exact"
    env.close()


@pytest.mark.parametrize("env_id", ["Hopper-v5", pytest.param("Humanoid-v5", marks=pytest.mark.slow)])
def test_behind_gymnasiums_face_actions_are_in_its_units_and_all_of_them_is_charged(mujoco, env_id):
    face, theirs = gymnasium.make_vec(f"fast/{env_id}", num_envs=2), gymnasium.make(env_id).unwrapped
    assert face.single_action_space == theirs.action_space
    face.reset(seed=3)
    theirs.reset(seed=3)
    theirs.set_state(*np.split(face.call("state_vector")[1], [theirs.model.nq]))
    action = theirs.action_space.high[None] * np.array([[0.3], [1.7]], np.float32)
    obs, reward, terminated, _, _ = face.step(action)
    observation, paid, over, _, _ = theirs.step(action[1])
    assert (obs[1] == observation.astype(np.float32)).all()
    assert reward[1] == np.float32(paid) and terminated[1] == over
    face.close()
