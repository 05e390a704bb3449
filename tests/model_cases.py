"""For tests of a world model's kernels: weights that make all parts matter, and how near gradients must be."""

import torch


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed))


@torch.no_grad()
def randomise(parameters, seed=0):
    """Weights as large as keeps what passes through them as it is; scales and offsets about 1."""
    g = generator(seed)
    for parameter in parameters:
        inputs = parameter[0].numel() if parameter.dim() > 1 else 4
        parameter.copy_(torch.randn(parameter.shape, generator=g) * inputs**-0.5 + (parameter.dim() == 1))


def assert_near(mine, exact, within):
    """Each gradient within a share of its largest number."""
    assert mine.keys() == exact.keys()
    for name, gradient in exact.items():
        largest = gradient.abs().max()
        apart = (mine[name] - gradient).abs().max()
        assert largest > 0 and apart <= within * largest, (name, apart / largest)
