"""Torch's parameters as kernels read them: a flat copy on the device, laid out by engines/plan."""

from torch import Tensor

from agents.engines.plan.layout import Layout


def fetch(layout: Layout, flat: Tensor) -> None:
    """As they are now, float32 [layout.whole]; what lies between them stays."""
    for place in layout.places:
        place.view(flat).copy_(place.parameter)
