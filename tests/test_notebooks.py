"""The notebooks of docs/notebooks: what is committed, and what they show when they are carried out again."""

import ast
import json
import re
import time
from pathlib import Path

import pytest

from lab.notebooks import FOLDER, ORDER, carried_out, main, shown, surroundings
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 200_000  # bytes: they lie in the repository
SAID = {
    "first_run": ["CartPole-v1:ppo: Solved (goal reached)", "actions [1 0]", "did you mean policy_lr", "True"],
    "your_environment": ["given/Dock:ppo: Trained", "given/Dock was made by", "no faults", "dock:Dock-v0:ppo: Trained"],
    "compare_and_publish": ["apart in policy_lr", "; all actions equal", "nothing was sent", "tensor([1])"],
}  # fmt: skip
FEWER = {"--seed 1,2,3,4,5 max_timesteps=12_000": "--seed 1,2 max_timesteps=4096"}  # each is a process


def read(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text())


def cells(notebook, kind="code"):
    return [each for each in notebook["cells"] if each["cell_type"] == kind]


def text_of(notebook):
    return "\n".join("".join(shown(output)) for cell in cells(notebook) for output in plain(cell))


def plain(cell):
    """Outputs with their lists of lines, as a file has them, joined."""
    for output in cell["outputs"]:
        data = {kind: "".join(value) for kind, value in output.get("data", {}).items() if isinstance(value, str | list)}
        yield {**output, "text": "".join(output.get("text", "")), "data": data}


def kinds(notebook):
    """Of each cell, what it shows: streams by name, displays by what they are made of."""
    return [
        [(each["output_type"], each.get("name", ""), *sorted(each["data"])) for each in plain(cell)]
        for cell in cells(notebook)
    ]


def test_they_are_all_that_lies_there():
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.ipynb" for name in ORDER}


@pytest.mark.parametrize("name", ORDER)
def test_what_is_committed_was_carried_out_and_tells_nothing_of_a_machine(name):
    notebook, size = read(name), (FOLDER / f"{name}.ipynb").stat().st_size
    assert size < LARGEST
    numbers = [cell["execution_count"] for cell in cells(notebook)]
    assert numbers == [*range(1, len(numbers) + 1)]
    text = text_of(notebook)
    for said in SAID[name]:
        assert said in text, said
    assert not re.search(r"(/tmp|/home|/root|/work|/Users)/|Traceback|\x1b", text)
    for cell in cells(notebook):
        raises = [output["output_type"] for output in cell["outputs"]].count("error")
        assert raises == ("raises-exception" in cell["metadata"].get("tags", [])), cell["source"]


@pytest.mark.parametrize("name", ORDER)
def test_its_python_is_python_and_its_links_lead_somewhere(name):
    notebook = read(name)
    for cell in cells(notebook):
        source = "".join(line for line in cell["source"] if not line.startswith(("!", "%%")))
        ast.parse(re.sub(r"= !.*", "= None", source))
    links = [
        link for cell in cells(notebook, "markdown") for link in re.findall(r"\]\(([^)]+)\)", "".join(cell["source"]))
    ]
    assert links and all((FOLDER / link).is_file() for link in links if "://" not in link)


def test_an_unknown_name_is_one_line():
    with pytest.raises(UserError, match="no notebook 'first'; did you mean first_run"):
        main(["first"])


@pytest.fixture
def kernels():
    pytest.importorskip("nbclient", reason="needs nbclient and ipykernel: pip install 'stride-rl[ci]'")
    pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel: pip install 'stride-rl[ci]'")


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDER)
def test_carried_out_it_shows_what_is_committed(name, tmp_path, kernels):
    text = (FOLDER / f"{name}.ipynb").read_text()
    for whole, part in FEWER.items():
        text = text.replace(whole, part)
    (tmp_path / "notebook.ipynb").write_text(text)
    again = carried_out(tmp_path / "notebook.ipynb")
    assert kinds(again) == kinds(read(name))
    for said in SAID[name]:
        assert said in text_of(again), said
    errors = [output for cell in cells(again) for output in cell["outputs"] if output["output_type"] == "error"]
    assert all(error["traceback"] == [f"UserError: {error['evalue']}"] for error in errors)


@pytest.mark.slow
def test_a_kernel_that_is_interrupted_saves_its_run(tmp_path, monkeypatch, kernels):
    from jupyter_client.manager import start_new_kernel

    env = {**surroundings(), "STRIDE_RUNS": str(tmp_path)}
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path), env=env)
    try:
        endless = "max_timesteps=10**9, early_stop_on_eval_threshold=False, eval_freq_epochs=None"
        train = f"import stride; stride.train('CartPole-v1:ppo', engine='eager', {endless})"
        client.execute(train, stop_on_error=False)  # else a kernel drops what reaches it soon after the error
        drawn = [wait_for(client, "display_data"), wait_for(client, "update_display_data")]
        manager.interrupt_kernel()
        assert client.get_shell_msg(timeout=300)["content"]["ename"] == "KeyboardInterrupt"
        client.execute("stride.load('@last').outcome['reason']")
        assert client.get_shell_msg(timeout=300)["content"]["status"] == "ok"
        assert wait_for(client, "execute_result")["data"]["text/plain"] == "'interrupted'"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    same = {each["transient"]["display_id"] for each in drawn}
    assert len(same) == 1 and "of 1,000,000,000 env steps" in drawn[1]["data"]["text/plain"]


def wait_for(client, kind, seconds=300):
    """The next message of that kind."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        message = client.get_iopub_msg(timeout=seconds)
        if message["msg_type"] == kind:
            return message["content"]
    raise TimeoutError(kind)
