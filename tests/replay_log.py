"""A memory being written with made-up play, and a plain Python log of the same, for tests that compare the two."""

import random
from typing import NamedTuple

import torch

from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Act, Row
from stride.envs_fast.vec_env import Step


class Logged(NamedTuple):
    """One row of one world, in plain numbers; a stack is the frames' numbers, the oldest first."""

    stack: list[float]
    action: int
    reward: float
    terminated: bool
    truncated: bool
    final: list[float]


class ReplayLog:
    """N worlds whose frames are numbered, each frame a number of its own; `log[row][world]`."""

    def __init__(self, rows=32, n=2, frames=1, seed=0, slots=None, storage="ram", p_end=0.25):
        self.n, self.frames, self.random, self.p_end = n, frames, random.Random(seed), p_end
        self.log: list[list[Logged]] = []
        self.count = 0
        self.stacks = [self._first() for _ in range(n)]
        self.is_first = [True] * n
        flag = torch.zeros(n, dtype=torch.bool)
        obs = torch.zeros(n, frames)
        example = Row(obs, flag, flag.long(), flag.float(), flag, flag, flag.long(), ())
        slots = rows if slots is None else slots
        self.memory = Memory(example, (), rows, slots, seed, storage=storage, frames=frames)

    def _frame(self):
        self.count += 1
        return float(self.count)

    def _first(self):
        return [self._frame()] * self.frames

    def write(self, steps):
        for _ in range(steps):
            line = []
            for world in range(self.n):
                u, reward = self.random.random(), self.random.random()
                terminated, truncated = u < self.p_end / 2, self.p_end / 2 <= u < self.p_end
                final = [*self.stacks[world][1:], self._frame()]
                line.append(Logged(self.stacks[world], self.random.randrange(5), reward, terminated, truncated, final))
            self.put(line)
        return self

    def put(self, line):
        """One row of all worlds."""
        ended = [at.terminated or at.truncated for at in line]
        following = [self._first() if end else at.final for at, end in zip(line, ended, strict=True)]
        columns = [torch.tensor([at[k] for at in line]) for k in range(6)]
        step = Step(torch.tensor(following), *columns[2:5], columns[5], torch.zeros(self.n), torch.zeros(self.n))
        self.memory.write(torch.tensor(self.stacks), torch.tensor(self.is_first), Act(columns[1]), step)
        self.log.append(line)
        self.stacks, self.is_first = following, ended

    @property
    def valid(self):
        """The rows a window may start from, given its length."""
        written, rows = len(self.log), self.memory.rows
        return max(0, written - rows) + (self.frames - 1 if written > rows else 0)

    def check(self, drawn, steps, gamma):
        """Every transition drawn is what the log says of its row."""
        names = ("row_id", "obs", "action", "reward", "discount", "next_obs")  # as lists: a tensor is slow to ask
        columns = (getattr(drawn, name).tolist() for name in names)
        for row_id, obs, action, paid, discount, next_obs in zip(*columns, strict=True):
            row, world = divmod(row_id, self.n)
            assert self.valid <= row < len(self.log) - steps, "a row that may not be drawn"
            first, reward, power = self.log[row][world], 0.0, 1.0
            for k in range(steps):
                at = self.log[row + k][world]
                reward, power = reward + power * at.reward, power * gamma
                if at.terminated or at.truncated:
                    break
            following = at.final if at.truncated else self.log[row + k + 1][world].stack
            assert obs == first.stack
            assert action == first.action
            assert abs(paid - reward) < 1e-5
            assert abs(discount - (0.0 if at.terminated else power)) < 1e-6
            if not at.terminated:
                assert next_obs == following
