"""The notebooks of docs/notebooks: what is committed, and what they show when they are carried out again."""

import ast
import json
import re

import pytest

from lab.notebooks import FOLDER, ORDER, carried_out, main, shown, surroundings
from stride.utils.user_error import UserError

LARGEST = 200_000  # bytes: they are in the repository
WORDS = {  # what its cells show, among other things
    "first_run": ["Solved (goal reached)", "actions [1 0]", "did you mean policy_lr", "True"],
    "your_environment": ["given/Dock:ppo: Trained", "given/Dock was made by", "no faults", "dock:Dock-v0:ppo: Trained"],
    "compare_and_publish": ["differ in policy_lr", "; all actions equal", "nothing was sent", "tensor([1])"],
}
FEWER = {"--seed 1,2,3,4,5 max_timesteps=12_000": "--seed 1,2 max_timesteps=4096"}  # each is a process
needs_kernels = pytest.mark.usefixtures("kernels")
each_notebook = pytest.mark.parametrize("name", ORDER)


@pytest.fixture
def kernels():
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package, reason="needs nbclient and ipykernel: pip install 'stride-rl[ci]'")


def read(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text())


def cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(notebook):
    """Of each cell, its outputs with lists of lines, as a file has them, joined."""
    for cell in cells(notebook):
        for output in cell["outputs"]:
            output["text"] = "".join(output.get("text", ""))
            data = output.get("data", {}).items()
            output["data"] = {kind: "".join(value) for kind, value in data if isinstance(value, str | list)}
        yield cell["outputs"]


def text_of(notebook):
    return "\n".join(shown(output) for of_cell in outputs(notebook) for output in of_cell)


def kinds(notebook):
    """Of each cell, what it shows: streams by name, displays by what they are made of."""
    keys = ("output_type", "name")
    return [[(*map(output.get, keys), *sorted(output["data"])) for output in of_cell] for of_cell in outputs(notebook)]


@each_notebook
def test_what_is_committed_was_carried_out_and_tells_nothing_of_a_machine(name):
    assert {path.stem for path in FOLDER.iterdir()} == {*ORDER} and (FOLDER / f"{name}.ipynb").stat().st_size < LARGEST
    notebook = read(name)
    assert [cell["execution_count"] for cell in cells(notebook)] == [*range(1, len(cells(notebook)) + 1)]
    text = text_of(notebook)
    assert [words for words in WORDS[name] if words not in text] == []
    assert not re.search(r"(/tmp|/home|/root|/work|/Users)/|Traceback|\x1b", text)
    for cell in cells(notebook):
        errors = [output["output_type"] for output in cell["outputs"]].count("error")
        assert errors == ("raises-exception" in cell["metadata"].get("tags", [])), cell["source"]
        source = "".join(line for line in cell["source"] if not line.startswith(("!", "%%")))
        ast.parse(re.sub(r"= !.*", "= None", source))
    prose = "".join(line for cell in notebook["cells"] if cell["cell_type"] == "markdown" for line in cell["source"])
    links = re.findall(r"\]\(([^)]+)\)", prose)
    assert links and all((FOLDER / link).is_file() for link in links if "://" not in link)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="did you mean first_run"):
        main(["first"])


@pytest.mark.slow
@needs_kernels
@each_notebook
def test_carried_out_it_shows_what_is_committed(name, tmp_path):
    text = (FOLDER / f"{name}.ipynb").read_text()
    for whole, part in FEWER.items():
        text = text.replace(whole, part)
    (tmp_path / "notebook.ipynb").write_text(text)
    again = carried_out(tmp_path / "notebook.ipynb")
    assert kinds(again) == kinds(read(name))
    assert [words for words in WORDS[name] if words not in text_of(again)] == []
    errors = [output for of_cell in outputs(again) for output in of_cell if output["output_type"] == "error"]
    assert all(error["traceback"] == [f"UserError: {error['evalue']}"] for error in errors)


@pytest.mark.slow
@needs_kernels
def test_a_kernel_that_is_interrupted_saves_its_run(tmp_path):
    from jupyter_client.manager import start_new_kernel

    env = {**surroundings(), "STRIDE_RUNS": str(tmp_path)}
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path), env=env)
    try:
        keys = "max_timesteps=10**9, early_stop_on_eval_threshold=False, engine='eager', n_envs=2, n_steps=64, "
        keys += "batch_size=64, epoch_iterations=1, eval_warmup_epochs=0, eval_episodes=1"
        train = f"import stride; stride.train('CartPole-v1:ppo', {keys})"
        client.execute(train, stop_on_error=False)  # else a kernel drops what reaches it soon after the error
        displays = [next_message(client.get_iopub_msg, "display_data")]
        while not [*tmp_path.glob("*/checkpoints/*.ckpt")]:  # where a machine is too slow to save, this is loaded
            displays.append(next_message(client.get_iopub_msg, "update_display_data"))
        manager.interrupt_kernel()
        assert next_message(client.get_shell_msg, "execute_reply")["ename"] == "KeyboardInterrupt"
        client.execute("stride.load('@last').outcome['reason']")
        assert next_message(client.get_shell_msg, "execute_reply")["status"] == "ok"
        assert next_message(client.get_iopub_msg, "execute_result")["data"]["text/plain"] == "'interrupted'"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert len({display["transient"]["display_id"] for display in displays}) == 1
    assert "of 1,000,000,000 env steps" in displays[-1]["data"]["text/plain"]


def next_message(receive, kind):
    """The next message of that kind; a kernel that says nothing for five minutes fails the test."""
    while (message := receive(timeout=300))["msg_type"] != kind:  # a slow kernel is asked again whether it is there
        pass
    return message["content"]
