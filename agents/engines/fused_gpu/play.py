"""Collecting in one launch (rollout.cuh): the actor and the worlds of a GPU, all steps, straight into the memory."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stride.agents.engines.fused_gpu.parameters import fetch
from stride.agents.engines.plan.layout import FlatLayout
from stride.agents.engines.plan.on_policy import OnPolicy, lay_out
from stride.agents.experience.nouns import leaves
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.encoders import FlatEncoder, OneHot, RunningNorm, StaticNorm
from stride.agents.networks.heads import Gaussian
from stride.agents.sockets import Learner
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.device_code import twin_of
from stride.envs_fast.world import World
from stride.utils.cuda_kernels import Source, read_source, with_sizes

ROLLOUT, EPISODES = Path(__file__).with_name("rollout.cuh"), Path(__file__).with_name("episodes.cu")
BLOCK, ONE_BLOCK = 128, 1024  # threads
BUSY = 1 << 15  # threads: two blocks for each of 128 multiprocessors
WORLDS = 4  # tensors that are the worlds' own, first of what their kernels take
SPLITS = (1, 2, 4, 8)  # threads of a world, which are neighbours in a warp


class RolloutSizes(NamedTuple):
    """The constants that rollout.cuh is compiled with, which explains them."""

    block: int
    split: int
    features: int
    hidden: list[int]
    actions: int
    depth: int
    widest: int
    weights: list[int]
    biases: list[int]
    gaussian: bool
    log_std: int
    relu: bool
    one_hot: bool
    rolling: bool
    variance_added: np.float32
    bound: np.float32

    @property
    def shared(self) -> int:
        """Bytes of a block's shared memory, as the kernel lays it out."""
        inner, widths = (self.features, *self.hidden), (*self.hidden, self.actions)
        matrices = [a * b for a, b in zip(inner, widths, strict=True)][self.one_hot :]
        weights = sum(map(whole, (*matrices, *widths, self.features, self.features)))
        return 4 * (weights + (2 * self.widest + self.actions) * (self.block // self.split))


def whole(floats: int) -> int:
    """Fours of floats, as they are fetched."""
    return -(-floats // 4) * 4


def sizes_of(policy: ActorCritic, layout: FlatLayout, split: int) -> RolloutSizes:
    """Sizes of a policy with this layout, whose worlds are played by so many threads each."""
    encoder, net = policy.encoder, layout.nets[0]
    leaf, torso = encoder.leaf[0], policy.actor[0] if isinstance(policy.trunk, nn.Identity) else policy.trunk
    assert isinstance(torso, nn.Sequential)
    hidden: list[int] = net["width"][:-1].tolist()
    one_hot = isinstance(leaf, OneHot)
    return RolloutSizes(
        block=BLOCK,
        split=split,
        features=encoder.size,
        hidden=hidden,
        actions=policy.head.linear.out_features,
        depth=len(hidden),
        widest=max(*hidden, 0 if one_hot else encoder.size),
        weights=net["weight"].tolist(),
        biases=net["bias"].tolist(),
        gaussian=isinstance(policy.head, Gaussian),
        log_std=layout.log_std,
        relu=isinstance(torso[1], nn.ReLU),
        one_hot=one_hot,
        rolling=isinstance(leaf, RunningNorm),
        variance_added=np.float32(RunningNorm.epsilon),
        bound=np.float32(RunningNorm.bound),
    )


def fitting(recipe: OnPolicy, room: int) -> RolloutSizes:
    """Those with as few threads for a world as keep a GPU busy, more where a block's worlds would take more shared
    memory than there is `room`; results do not depend on it. With the most threads it may still be too little."""
    agent, layout = recipe.agent, recipe.shape.layout
    fewest = next((split for split in SPLITS if agent.memory.num_envs * split >= BUSY), SPLITS[-1])
    choices = [sizes_of(agent.policy, layout, split) for split in SPLITS if split >= fewest]
    return next((sizes for sizes in choices if sizes.shared <= room), choices[-1])


def source_of(world: World, sizes: RolloutSizes) -> Source:
    """The kernel that plays it: NAME_rollout of the twin's name."""
    named = {name.upper(): value for name, value in sizes._asdict().items()}
    return with_sizes(read_source(ROLLOUT, twin_of(world)), named)


class RolloutBuffers(NamedTuple):
    """The memory that a rollout is written to, and the state from which it goes on."""

    rows: list[Tensor]  # [T, N, ...]: the memory's columns, log-probabilities, and what is told of episodes that ended
    state: list[Tensor]  # of worlds, collector, slots and window: read and written


class FusedPlay:
    """The collector's steps, in one launch. Owns a copy of the actor, and results that the memory has no column for."""

    name = "fused_gpu"

    def __init__(self, recipe: OnPolicy, sizes: RolloutSizes) -> None:
        collector, memory = recipe.agent.collector, recipe.agent.memory
        envs, policy = collector.envs, collector.policy  # which is the agent's, or that of one iteration before
        assert isinstance(envs, CudaEnv) and isinstance(policy, ActorCritic)
        self._envs, self._sizes, self._layout = envs, sizes, lay_out(policy)
        self._kernels = envs.compile(source_of(envs.world, sizes), envs.device)
        self._kernel = f"{twin_of(envs.world).stem}_rollout"
        self._window = envs.compile(read_source(EPISODES), envs.device)
        self.parameters = torch.zeros(self._layout.full_size, device=envs.device)
        self._scaling = scaling_of(policy.encoder, envs.device)
        self.log_prob, self._returns, self._lengths = torch.zeros(3, memory.rows, memory.num_envs, device=envs.device)

    @torch.no_grad()
    def collect(self, learner: Learner, steps: int) -> None:
        buffers = self.buffers(learner, steps)
        self.fetch()
        self.launch(buffers, learner.collector.noise(steps))
        learner.memory.written += steps

    def buffers(self, learner: Learner, steps: int) -> RolloutBuffers:
        """The memory's and the collector's own, from the memory's next row on."""
        collector, memory = learner.collector, learner.memory
        head = memory.written % memory.rows
        if head + steps > memory.rows:
            raise ValueError(f"{steps} steps do not fit into the {memory.rows} rows of a rollout from row {head} on")
        rows = (*leaves(memory.table), self.log_prob, self._returns, self._lengths)
        worlds = self._envs.simulation[:WORLDS]
        (env_obs,), (next_obs,), (final_obs,) = leaves(self._envs.obs), leaves(collector.obs), leaves(memory.final.obs)
        between = env_obs, next_obs, collector.is_first, memory.slot, final_obs, self._envs.wrong
        state = [*worlds, *between, collector.window.ring, collector.window.count]
        return RolloutBuffers([column[head : head + steps] for column in rows], state)  # type: ignore[arg-type]

    def fetch(self) -> None:
        """Copy the policy that plays, as it is now."""
        fetch(self._layout, self.parameters)

    def launch(self, buffers: RolloutBuffers, noise: Tensor) -> None:
        """A step for each row; then the episodes that ended."""
        steps, width = buffers.rows[0].shape[:2]
        worlds = buffers.state[:WORLDS]
        *between, wrong, ring, count = buffers.state[WORLDS:]
        self._kernels.launch(
            self._kernel,
            width * self._sizes.split,
            *worlds,
            *self._envs.simulation[WORLDS:],
            np.int32(steps),
            self.parameters,
            *self._scaling,
            noise,
            *buffers.rows,
            *between,
            np.int32(len(between[-1])),  # slots
            wrong,
            block=self._sizes.block,
            shared=self._sizes.shared,
        )
        *_, terminated, truncated, _, _, returns, lengths = buffers.rows
        episodes = terminated, truncated, returns, lengths, np.int64(steps * width), ring, count
        self._window.launch("note_episodes", ONE_BLOCK, *episodes, block=ONE_BLOCK)


def scaling_of(encoder: FlatEncoder, device: torch.device) -> tuple[Tensor, Tensor]:
    """Centre and scale of features, of a RunningNorm their variance: the encoder's own, where it has some."""
    encoding = encoder.leaf[0]
    if isinstance(encoding, RunningNorm):
        return encoding.mean, encoding.var
    if isinstance(encoding, StaticNorm):
        return encoding.centre, encoding.scale
    return torch.zeros(encoder.size, device=device), torch.ones(encoder.size, device=device)
