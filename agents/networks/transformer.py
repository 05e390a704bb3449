"""Gated Transformer-XL, GTrXL (Parisotto et al. 2020): attention over the last steps of the episode, and GRU gates.

The carry is the keys and values of the last `window` steps (Dai et al. 2019). A sequence is computed in segments, each
attends to the keys before it. Gradients flow through all segments of a rollout, but not into its first carry.
Letters in shapes: N worlds, T steps of a segment, M steps of the window, D width, H heads of d numbers each.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from stride.agents.networks.layers import LayerNorm

GATE_BIAS = 2.0  # gates begin near the identity, so that a memoryless policy is learnt first (their section 3.2)
MIN_SEGMENT = 64  # steps; shorter segments mean more calls from Python
Cache = tuple[Tensor, ...]


class Attention(NamedTuple):
    """The sizes of a transformer, except its width."""

    layers: int = 2
    heads: int = 4
    window: int = 32
    """past steps that a layer attends to; all layers together look back layers x window steps"""


DEFAULT_SIZES = Attention()


class Gate(nn.Module):
    """The GRU gate g(x, y) of GTrXL, in place of a residual sum x + y; both [..., D]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_new = nn.Linear(width, 3 * width)
        self.of_old = nn.Linear(width, 2 * width, bias=False)
        self.of_reset = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        new_reset, new_update, new_candidate = self.of_new(y).chunk(3, -1)
        old_reset, old_update = self.of_old(x).chunk(2, -1)
        reset = (new_reset + old_reset).sigmoid()
        update = (new_update + old_update - GATE_BIAS).sigmoid()
        candidate = (new_candidate + self.of_reset(reset * x)).tanh()
        return x + update * (candidate - x)


class Layer(nn.Module):
    """Attention to earlier steps, then two dense layers on each step; both have a norm before and a gate after them."""

    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__()
        self.heads = attention.heads
        head_width = width // attention.heads
        self.scale = head_width**-0.5
        self.before_attention, self.after_attention = LayerNorm(width), Gate(width)
        self.before_hidden, self.after_hidden = LayerNorm(width), Gate(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        # learnt vectors added to the key of a step, by its age: 0 to M steps ago
        self.ages = nn.Parameter(torch.zeros(attention.heads, attention.window + 1, head_width))
        self.hidden = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, cache: Cache, age: Tensor, allowed: Tensor) -> tuple[Tensor, Cache, Tensor]:
        """Compute one segment: x [N, T, D], `cache` = keys and values [N, H, M, d], age and allowed [.., T, M + T].

        Returns outputs [N, T, D], the last M keys and values, and the attention weights [N, H, T, M + T].
        """
        window = cache[0].shape[2]
        projected = self.project(self.before_attention(x)).unflatten(-1, (3, self.heads, -1))
        query, *new = projected.permute(2, 0, 3, 1, 4).unbind()  # [N, H, T, d] each
        key, value = (torch.cat(pair, 2) for pair in zip(cache, new, strict=True))
        by_content = query @ key.mT
        by_age = (query @ self.ages.mT).gather(-1, age.expand(by_content.shape))
        scores = (self.scale * (by_content + by_age)).masked_fill(~allowed[:, None], float("-inf"))
        weights = scores.softmax(-1)
        attended = (weights @ value).transpose(1, 2).flatten(2)
        x = self.after_attention(x, self.join(attended).relu())
        x = self.after_hidden(x, self.hidden(self.before_hidden(x)).relu())
        return x, (key[:, :, -window:], value[:, :, -window:]), weights


class Transformer(nn.Module):
    """Layers of attention. State: keys, values [N, layers, H, M, d], and [N, M] with 1 for steps of this episode."""

    def __init__(self, size: int, width: int, attention: Attention = DEFAULT_SIZES) -> None:
        super().__init__()
        self.window = attention.window
        # shape of one environment's keys, and of its values
        self.cache_shape = (attention.layers, attention.heads, attention.window, width // attention.heads)
        self.embed = nn.Linear(size, width)
        self.layers = nn.ModuleList(Layer(width, attention) for _ in range(attention.layers))

    def initial(self, num_envs: int) -> Cache:
        shapes = (self.cache_shape, self.cache_shape, (self.window,))
        return tuple(self.embed.weight.new_zeros(num_envs, *shape) for shape in shapes)

    def run(
        self, x: Tensor, state: Cache, is_first: Tensor, weights_out: list[Tensor] | None = None
    ) -> tuple[Tensor, Cache]:
        """x [T, N, size], state before the first row, is_first [T, N] -> outputs [T, N, D], state afterwards.

        `weights_out`: a list that gets each layer's attention weights, as in `segment`.
        """
        length = max(MIN_SEGMENT, self.window)
        outputs = []
        # transpose before the product: so its result is contiguous, for which CUDA graphs give the same bits as eager
        embedded = self.embed(x.transpose(0, 1))
        for rows, begins in zip(embedded.split(length, 1), is_first.t().split(length, 1), strict=True):
            output, state = self.segment(rows, state, begins, weights_out)
            outputs.append(output)
        return torch.cat(outputs, 1).transpose(0, 1), state

    def segment(
        self, x: Tensor, state: Cache, begins: Tensor, weights_out: list[Tensor] | None = None
    ) -> tuple[Tensor, Cache]:
        """x [N, T, D], begins [N, T] bool (a new episode) -> outputs [N, T, D], state afterwards.

        `weights_out`: a list to which each layer's attention weights [N, H, T, M + T] are appended.
        """
        keys, values, known = state
        steps = torch.arange(self.window + x.shape[1], device=x.device)
        age = steps[self.window :, None] - steps  # [T, M + T]
        # number of each step's episode: 0 was running before the segment, -1 is a cached step of an earlier episode
        episode = begins.long().cumsum(1)
        episodes = torch.cat((known.long() - 1, episode), 1)
        allowed = (episodes[:, None] == episode[..., None]) & (age >= 0) & (age <= self.window)
        age = age.clamp(0, self.window)
        caches = []
        for layer, key, value in zip(self.layers, keys.unbind(1), values.unbind(1), strict=True):
            x, cache, weights = layer(x, (key, value), age, allowed)
            caches.append(cache)
            if weights_out is not None:
                weights_out.append(weights)
        known = (episodes[:, -self.window :] == episode[:, -1:]).to(known.dtype)
        keys, values = (torch.stack(layer_caches, 1) for layer_caches in zip(*caches, strict=True))
        return x, (keys, values, known)
