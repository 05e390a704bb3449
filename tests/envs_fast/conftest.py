"""Who makes compiled worlds: a test that takes `make` holds those on the CPU and those for a GPU to one contract."""

import pytest
from reachable import on_host

from stride.envs_fast import registry

MAKERS = {"numba": registry.make, "cuda": on_host}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]
