"""For each file a folder of runs of its own, and where it wants them a running inspector and a browser."""

import pytest
from inspector_browsing import chromium, opened, serving


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """$STRIDE_RUNS of this file."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("runs")
        patch.setenv("STRIDE_RUNS", str(folder))
        yield folder


@pytest.fixture(scope="module")
def runs(root):
    """The file's own runs; a file with some overrides it."""


@pytest.fixture(scope="module")
def served(root, runs):
    """(inspector, URL) of the file's runs."""
    with serving() as inspector:
        yield inspector


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser, served):
    with opened(browser, served[1]) as page:
        yield page
