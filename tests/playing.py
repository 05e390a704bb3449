"""How worlds are played in tests: random actions, and all that a step means, to the bit."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from replay_log import through_file

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.utils.user_error import UserError

ALWAYS = ("obs", "reward", "terminated", "truncated")
WHERE_ENDED = ("final_obs", "episode_return", "episode_length")  # elsewhere they mean nothing
OTHERS = [  # for snapshots: what else a test has registered, and words of other packages' versions
    (r"(did you mean [^,?]+), [^?]+\?", r"\1, ...?"),
    (r"known: .*", "known: ..."),
    (r"(maximum recursion depth exceeded)[^(]* \(", r"\1 ("),
    (r"(cannot be made: ).*(; the newest)", r"\1...\2"),
    (r"(is not a valid value: ).*", r"\1..."),
]


def random_actions(envs, steps, seed=1):
    """Actions [steps, N, ...] of whatever kind the worlds take."""
    rng, space = np.random.default_rng(seed), envs.action_space
    shape = (steps, envs.num_envs, *space.shape)
    if isinstance(space, spaces.Box):
        return torch.from_numpy(rng.uniform(-1, 1, shape).astype(np.float32))
    return torch.from_numpy(rng.integers(0, space.n if isinstance(space, spaces.Discrete) else space.nvec, shape))


def leaves(tree):
    """The tensors of an observation, each with its name."""
    return [*tree.items()] if isinstance(tree, dict) else [("", tree)]


def bits(step, worlds=slice(None)):
    """{name: (type, shape, bytes)} of all that a step, or a trajectory of steps, means in these worlds."""
    ended = (step.terminated | step.truncated)[..., worlds]
    result = {}
    for field in (*ALWAYS, *WHERE_ENDED):
        for name, leaf in leaves(getattr(step, field)):
            part = leaf[worlds] if ended.ndim == 1 else leaf[:, worlds]
            part = part[ended] if field in WHERE_ENDED else part
            result[field, name] = part.dtype, part.shape, part.numpy().tobytes()
    return result


def record(envs, actions):
    """All bits of all steps with these actions."""
    return [bits(envs.step(action)) for action in actions]


def columns(obs):
    """An observation as one array: the parts of a dict side by side."""
    parts = [leaf.numpy().copy() for _, leaf in leaves(obs)]
    return np.stack(parts, -1) if isinstance(obs, dict) else parts[0]


def whole_episodes(envs, steps):
    """(observations, actions, rewards) of each episode that begins and ends in so many steps; the last one is seen."""
    tape, first = random_actions(envs, steps), columns(envs.obs)
    told = envs.advance(tape)
    obs, final, acted, paid = columns(told.obs), columns(told.final_obs), tape.numpy(), told.reward.numpy()
    for world in range(envs.num_envs):
        begin, start = 0, first[world]
        for end in np.flatnonzero(told.terminated[:, world]):
            seen = [start, *obs[begin:end, world], final[end, world]]
            yield np.stack(seen), acted[begin : end + 1, world], paid[begin : end + 1, world]
            begin, start = end + 1, obs[end, world]


def hand_over(envs, fresh):
    """Let fresh worlds go on where `envs` are, through a file; gives what the file holds."""
    state = through_file(envs.state_dict())
    fresh.load_state_dict(state)
    return state


def refused(env_id="CartPole-v1", **keys):
    """The one line with which a config's worlds are refused."""
    with pytest.raises(UserError) as caught:
        make_envs(Config(env_id=env_id, **keys), 1)
    (line,) = str(caught.value).splitlines()
    return line


class Still(Policy):
    """Takes the first action."""

    draws = 1

    def initial(self, num_envs):
        return ()

    def act(self, obs, carry, is_first, noise, greedy):
        return Act(torch.zeros(len(is_first), dtype=torch.int64), ())
