"""A memory being written with made-up play, and a plain Python log of the same: what each view of it must answer."""

import io
import random
from typing import NamedTuple

import torch
from torch import Tensor

from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Act, Final, Row, leaves, tree_map
from stride.envs_fast.vec_env import Step


class Logged(NamedTuple):
    """One row of one world, in plain numbers; a stack is the frames' numbers, the oldest first."""

    stack: list[float]
    action: int
    reward: float
    terminated: bool
    truncated: bool
    final: list[float]


class Stored(NamedTuple):
    """What a policy might want to remember: (row, world), and twice the row."""

    mark: Tensor
    double: Tensor


def shown(stack: Tensor, named: bool):
    """What is seen of frames [..., frames]; `named`: also images of two channels a frame, and a mask."""
    if not named:
        return stack
    channels = (stack[..., None] * 2 + torch.arange(2)).flatten(-2) % 251
    image = channels.to(torch.uint8)[..., None, None].expand(*channels.shape, 3, 2)
    mask = stack[..., -1:].long() // torch.tensor([1, 2, 4]) % 2 == 1
    return {"at": stack, "image": image.contiguous(), "action_mask": mask}


def through_file(state):
    """A state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(mine, other):
    """Whether two states are equal to the bit, whatever they hold."""
    if isinstance(mine, dict):
        return mine.keys() == other.keys() and all(same(mine[key], other[key]) for key in mine)
    if isinstance(mine, list | tuple):
        return len(mine) == len(other) and all(map(same, mine, other))
    return torch.equal(mine, other) if isinstance(mine, Tensor) else mine == other


class ReplayLog:
    """N worlds whose frames are numbered, each frame a number of its own; `log[row][world]`.

    `ends` are the chances of a termination and of a cut; `limit` cuts episodes of that length as well.
    """

    def __init__(
        self, rows=32, n=2, frames=1, seed=0, slots=None, ends=(0.125, 0.125), named=False, limit=None, **options
    ):
        self.rows, self.n, self.frames, self.ends, self.named, self.limit = rows, n, frames, ends, named, limit
        self.seed, self.options, self.random = seed, options, random.Random(seed)
        self.log: list[list[Logged]] = []
        self.gammas: list[float] = []  # of each row, where the memory has them
        self.count = 0
        self.stacks = [self._first() for _ in range(n)]
        self.is_first, self.age = [True] * n, [0] * n
        self.slots = self.first_slots = rows if slots is None else min(rows, slots)
        self.memory = self.empty()

    def empty(self) -> Memory:
        """Another memory like this one, with nothing in it."""
        flag, mark = torch.zeros(self.n, dtype=torch.bool), torch.zeros(self.n, 2)
        obs = shown(torch.zeros(self.n, self.frames), self.named)
        example = Row(obs, flag, flag.long(), flag.float(), flag, flag, flag.long(), Stored(mark, mark[:, 0]))
        return Memory(example, (), self.rows, self.first_slots, self.seed, frames=self.frames, **self.options)

    def _frame(self):
        self.count += 1
        return float(self.count)

    def _first(self):
        return [self._frame()] * self.frames

    def write(self, steps, gamma=None):
        for _ in range(steps):
            line = []
            for world in range(self.n):
                u, reward = self.random.random(), self.random.random()
                terminated = u < self.ends[0]
                cut = u > 1 - self.ends[1] or self.age[world] + 1 == self.limit
                final = [*self.stacks[world][1:], self._frame()]
                action = self.random.randrange(1, 5)  # never 0, which stands for "no action led here"
                line.append(Logged(self.stacks[world], action, reward, terminated, cut and not terminated, final))
            self.put(line)
        if gamma is not None:
            self.memory.set_gamma(steps, gamma)
            self.gammas += [gamma] * steps
        return self

    def put(self, line):
        """One row of all worlds."""
        ended = [at.terminated or at.truncated for at in line]
        following = [self._first() if end else at.final for at, end in zip(line, ended, strict=True)]
        stack, action, reward, terminated, truncated, final = (torch.tensor(x) for x in zip(*line, strict=True))
        marks = torch.tensor([[float(len(self.log)), float(world)] for world in range(self.n)])
        obs, after, last = (shown(x, self.named) for x in (stack, torch.tensor(following), final))
        step = Step(after, reward, terminated, truncated, last, *torch.zeros(2, self.n))
        self.memory.write(obs, torch.tensor(self.is_first), Act(action, Stored(marks, 2 * marks[:, 0])), step)
        self.log.append(line)
        self.stacks, self.is_first = following, ended
        self.age = [0 if end else age + 1 for age, end in zip(self.age, ended, strict=True)]
        self._count_slots()

    def _count_slots(self):
        """Twice as many, where a world has been cut as often as there are slots."""
        if self.slots == self.rows:
            return
        last = len(self.log) - 1
        first = max(0, last + 1 - self.rows) if self.memory.replayed else last - last % self.rows
        cuts = [sum(self._leaves_final(line[world]) for line in self.log[first:]) for world in range(self.n)]
        if max(cuts) >= self.slots:
            self.slots = min(self.rows, 2 * self.slots)

    def _leaves_final(self, at):
        return at.truncated or (self.memory.keep_terminal and at.terminated)

    @property
    def valid(self):
        """The rows a window may start from, given its length."""
        written, rows = len(self.log), self.memory.rows
        return max(0, written - rows) + (self.frames - 1 if written > rows else 0)

    def possible(self, steps):
        """The ids of the rows that may be drawn."""
        return range(self.valid * self.n, (len(self.log) - steps) * self.n)

    def _same(self, obs, stacks):
        for mine, expected in zip(leaves(obs), leaves(shown(torch.tensor(stacks), self.named)), strict=True):
            assert torch.equal(mine, expected) and mine.dtype == expected.dtype

    def check(self, drawn, steps, gamma):
        """Every transition drawn is what the log says of its row."""
        windows = [self._window(row_id, steps, gamma) for row_id in drawn.row_id.tolist()]
        stack, action, reward, discount, following = zip(*windows, strict=True)
        self._same(drawn.obs, stack)
        assert drawn.action.tolist() == [*action]
        assert (drawn.reward - torch.tensor(reward)).abs().max() < 1e-5
        assert (drawn.discount - torch.tensor(discount)).abs().max() < 1e-6
        lives = drawn.discount > 0  # after a termination nobody may look at it; it is finite all the same
        if lives.any():
            next_obs = tree_map(lambda x: x[lives], drawn.next_obs)
            self._same(next_obs, [frames for frames, factor in zip(following, discount, strict=True) if factor])
        assert all(x.isfinite().all() for x in leaves(drawn.next_obs))

    def _window(self, row_id, steps, gamma):
        row, world = divmod(row_id, self.n)
        assert self.valid <= row < len(self.log) - steps, "a row that may not be drawn"
        first, reward, power = self.log[row][world], 0.0, 1.0
        gamma = self.gammas[row] if self.gammas else gamma
        for k in range(steps):
            at = self.log[row + k][world]
            reward, power = reward + power * at.reward, power * gamma
            if at.terminated or at.truncated:
                break
        following = at.final if at.truncated else self.log[row + k + 1][world].stack
        return first.stack, first.action, reward, 0.0 if at.terminated else power, following

    def check_sequences(self, drawn, length):
        """Every stretch drawn is what the log says follows the row that its extras name."""
        streams = [self._arrivals(world) for world in range(self.n)]
        for b, (row, world) in enumerate(drawn.extras.mark.long().tolist()):
            assert self.valid <= row < len(self.log) - length and drawn.extras.double[b] == 2 * row
            start = [arrival[-1] for arrival in streams[world]].index(row * self.n + world) + 1
            stacks, *expected = zip(*streams[world][start : start + length], strict=True)
            self._same(tree_map(lambda x, b=b: x[:, b], drawn.obs), stacks)
            columns = (drawn.action, drawn.reward, drawn.is_first, drawn.terminated, drawn.row_id)
            for column, numbers in zip(columns, expected, strict=True):
                assert torch.equal(column[:, b], torch.tensor(numbers))

    def _arrivals(self, world):
        """(stack, action that led here, reward on arrival, is_first, terminated, row_id) in order, finals included."""
        stream, action, reward, first = [], 0, 0.0, True
        for row, line in enumerate(self.log):
            at = line[world]
            stream.append((at.stack, action, reward, first, False, row * self.n + world))
            action, reward, first = at.action, at.reward, at.terminated or at.truncated
            if first:
                stream.append((at.final, action, reward, False, at.terminated, -1))
                action, reward = 0, 0.0
        return stream

    def check_rollout(self):
        """The rows of this iteration and the final observation of each that was cut are what the log says."""
        view, lines = self.memory.rollout((), Final((), ())), self.log[-self.rows :]
        for world in range(self.n):
            stack, action, reward, terminated, truncated, final = zip(*(line[world] for line in lines), strict=True)
            self._same(tree_map(lambda x, i=world: x[:, i], view.row.obs), stack)
            columns = (view.row.action, view.row.reward, view.row.terminated, view.row.truncated)
            for column, numbers in zip(columns, (action, reward, terminated, truncated), strict=True):
                assert torch.equal(column[:, world], torch.tensor(numbers))
            cut = torch.tensor(truncated).nonzero()[:, 0]
            final_obs = tree_map(lambda x, i=world, slot=view.row.slot[cut, world]: x[slot, i], view.final.obs)
            if len(cut):
                self._same(final_obs, [final[t] for t in cut.tolist()])
        return view
