"""minGRU (Feng et al. 2024, "Were RNNs All We Needed?"): a recurrent layer whose gates depend on the input only.

h_t = (1 - z_t) h_{t-1} + z_t c_t, with z_t = sigmoid(W_z x_t) and c_t = W_c x_t, is linear in h. So a parallel scan
computes whole sequences: log2(T) rounds of products of complete tensors in place of T steps. Gates of one layer cannot
depend on what it remembers; those of the next layer can. T steps, N environments, H = hidden_size.
"""

import torch
from torch import Tensor, nn


class MinGRU(nn.Module):
    """Layers of minGRU; all but the first add their output to their input. The state: each layer's last h [N, H]."""

    def __init__(self, size: int, hidden_size: int, layers: int = 2) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        sizes = [size] + [hidden_size] * (layers - 1)
        self.layers = nn.ModuleList(nn.Linear(size_in, 2 * hidden_size) for size_in in sizes)

    def initial(self, num_envs: int) -> tuple[Tensor, ...]:
        weight = next(self.parameters())
        return tuple(weight.new_zeros(num_envs, self.hidden_size) for _ in self.layers)

    def run(self, x: Tensor, state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x [T, N, size], states before the first row [N, H], is_first [T, N] -> outputs [T, N, H], states after."""
        last_states = []
        for index, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            gate, candidate = layer(x).chunk(2, -1)
            gate = gate.sigmoid()
            kept = (1 - gate).masked_fill(is_first[..., None], 0)
            hidden = scan(kept, gate * candidate, before)
            last_states.append(hidden[-1])
            x = x + hidden if index else hidden
        return x, tuple(last_states)


def scan(factor: Tensor, added: Tensor, before: Tensor) -> Tensor:
    """Return h_t = factor_t h_{t-1} + added_t for t = 0 .. T - 1, with h_{-1} = `before` [N, H]; others [T, N, H].

    A parallel prefix scan (Hillis, Steele 1986): after the round with `span`, factor_t and added_t stand for the
    2 x span steps that end with t.
    """
    added = torch.cat((added[:1] + factor[:1] * before, added[1:]))
    span = 1
    while span < len(added):
        added = torch.cat((added[:span], added[span:] + factor[span:] * added[:-span]))
        factor = torch.cat((factor[:span], factor[span:] * factor[:-span]))
        span *= 2
    return added
