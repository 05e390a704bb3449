"""Collect a rollout with one kernel launch (rollout.cuh): actor and worlds, all steps, written into the memory."""

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

ROLLOUT_SOURCE, EPISODES_SOURCE = Path(__file__).with_name("rollout.cuh"), Path(__file__).with_name("episodes.cu")
BLOCK_THREADS, EPISODES_THREADS = 128, 1024  # of a block of the rollout kernel; of the only block of note_episodes
BUSY_THREADS = 1 << 15  # keep a GPU busy: two blocks of 128 threads for each of 128 multiprocessors
WORLD_TENSORS = 4  # state, ages, episodes, returns: the first arguments of the worlds' kernels
SPLITS = (1, 2, 4, 8)  # numbers of threads that may share a world; they are neighbours in a warp


class RolloutSizes(NamedTuple):
    """The constants that rollout.cuh is compiled with, in capitals there; its head explains them."""

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
        """Bytes of shared memory of a block: weights (no first layer if one-hot), biases, scaling, activations."""
        inner, widths = (self.features, *self.hidden), (*self.hidden, self.actions)
        matrices = [a * b for a, b in zip(inner, widths, strict=True)][self.one_hot :]
        weights = sum(map(multiple_of_4, (*matrices, *widths, self.features, self.features)))
        return 4 * (weights + (2 * self.widest + self.actions) * (self.block // self.split))


def multiple_of_4(floats: int) -> int:
    """Round up to a multiple of 4, since kernels read four floats (16 bytes) at once."""
    return -(-floats // 4) * 4


def sizes_of(policy: ActorCritic, layout: FlatLayout, split: int) -> RolloutSizes:
    """Return the sizes for a policy with this layout; `split` threads play a world."""
    encoder, net = policy.encoder, layout.nets[0]
    leaf, torso = encoder.leaf[0], policy.actor[0] if isinstance(policy.trunk, nn.Identity) else policy.trunk
    assert isinstance(torso, nn.Sequential)
    hidden: list[int] = net["width"][:-1].tolist()
    one_hot = isinstance(leaf, OneHot)
    return RolloutSizes(
        block=BLOCK_THREADS,
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


def choose_sizes(recipe: OnPolicy, room: int) -> RolloutSizes:
    """Return the sizes with the fewest threads per world that keep a GPU busy and fit into shared memory.

    `room`: bytes of shared memory of a block. Fewer worlds per block need less; even with the most threads per world it
    may be too little (see `why_not_fused`). Results do not depend on the choice.
    """
    agent, layout = recipe.agent, recipe.shape.layout
    fewest = next((split for split in SPLITS if agent.memory.num_envs * split >= BUSY_THREADS), SPLITS[-1])
    choices = [sizes_of(agent.policy, layout, split) for split in SPLITS if split >= fewest]
    return next((sizes for sizes in choices if sizes.shared <= room), choices[-1])


def source_of(world: World, sizes: RolloutSizes) -> Source:
    """Return the source of the kernel that plays this world: NAME_rollout, NAME being that of the world's CUDA file."""
    defines = {name.upper(): value for name, value in sizes._asdict().items()}
    return with_sizes(read_source(ROLLOUT_SOURCE, twin_of(world)), defines)


class RolloutBuffers(NamedTuple):
    """The tensors that a rollout is written to, and the state of worlds and collector, in the kernel's order."""

    rows: list[Tensor]  # [T, N, ...]: the memory's columns, log-probabilities, returns and lengths of episodes
    state: list[Tensor]  # of worlds, collector, slots and window; read and written


class FusedPlay:
    """The socket Play in one launch. Owns a flat copy of the actor, and results that the memory has no column for."""

    name = "fused_gpu"

    def __init__(self, recipe: OnPolicy, sizes: RolloutSizes) -> None:
        collector, memory = recipe.agent.collector, recipe.agent.memory
        envs, policy = collector.envs, collector.policy  # the agent's policy, or with `lag: 1` an older one
        assert isinstance(envs, CudaEnv) and isinstance(policy, ActorCritic)
        self._envs, self._sizes, self._layout = envs, sizes, lay_out(policy)
        self._kernels = envs.compile(source_of(envs.world, sizes), envs.device)
        self._kernel = f"{twin_of(envs.world).stem}_rollout"
        self._window = envs.compile(read_source(EPISODES_SOURCE), envs.device)
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
        """Return the memory's next `steps` rows and the collector's state, not copies."""
        collector, memory = learner.collector, learner.memory
        head = memory.written % memory.rows
        if head + steps > memory.rows:
            raise ValueError(f"{steps} steps do not fit into the {memory.rows} rows of a rollout from row {head} on")
        rows = (*leaves(memory.table), self.log_prob, self._returns, self._lengths)
        worlds = self._envs.simulation[:WORLD_TENSORS]
        (env_obs,), (next_obs,), (final_obs,) = leaves(self._envs.obs), leaves(collector.obs), leaves(memory.final.obs)
        between = env_obs, next_obs, collector.is_first, memory.slot, final_obs, self._envs.wrong
        state = [*worlds, *between, collector.window.ring, collector.window.count]
        return RolloutBuffers([column[head : head + steps] for column in rows], state)  # type: ignore[arg-type]

    def fetch(self) -> None:
        """Copy the current parameters of the policy that plays."""
        fetch(self._layout, self.parameters)

    def launch(self, buffers: RolloutBuffers, noise: Tensor) -> None:
        """Play a step for each row of the buffers; then add ended episodes to the window.

        `noise` [T, N, draws]: uniforms of the collector.
        """
        steps, width = buffers.rows[0].shape[:2]
        worlds = buffers.state[:WORLD_TENSORS]
        *between, wrong, ring, count = buffers.state[WORLD_TENSORS:]
        self._kernels.launch(
            self._kernel,
            width * self._sizes.split,
            *worlds,
            *self._envs.simulation[WORLD_TENSORS:],
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
        self._window.launch("note_episodes", EPISODES_THREADS, *episodes, block=EPISODES_THREADS)


def scaling_of(encoder: FlatEncoder, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the encoder's own tensors (centre, scale) of features; of a RunningNorm (mean, variance)."""
    encoding = encoder.leaf[0]
    if isinstance(encoding, RunningNorm):
        return encoding.mean, encoding.var
    if isinstance(encoding, StaticNorm):
        return encoding.centre, encoding.scale
    return torch.zeros(encoder.size, device=device), torch.ones(encoder.size, device=device)
