"""Fixtures that several files of this folder share."""

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """Networks that are too small to share: the threads of torch only get in each other's way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
