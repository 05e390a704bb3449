"""For each file a folder of runs of its own, and where it wants them a running inspector and a browser."""

import http.client

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


@pytest.fixture(scope="session")
def ask():
    """(status, text, headers) of an answer; the path is sent as it is, dots and all."""

    def ask(host, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": host, "Content-Length": str(len(body or b"")), **headers}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        result = answer.status, answer.read(), dict(answer.getheaders())
        connection.close()
        return result

    return ask
