"""Runs the notebooks of docs/notebooks, each in its own folder and kernel, and stores their outputs.

    python -m lab.notebooks                all of them, in place
    python -m lab.notebooks first_run      one of them

An error in a cell ends the command and nothing is written, unless the cell has the tag `raises-exception`.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.durable_file import replacing
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError, nearest

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = PROJECT / "docs" / "notebooks"
ORDER = ("first_run", "your_environment", "compare_and_publish")
SECONDS = 600  # that a cell may take, on a busy machine
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal; they are removed from outputs, as is the checkout's path
NEEDED = "notebooks need nbclient and ipykernel: pip install 'stride-rl[ci]'"


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ORDER)}; all of them by default")
    asked = parser.parse_args(argv)
    for name in asked.names:
        if name not in ORDER:
            raise UserError(f"there is no notebook {name!r}{nearest(name, ORDER)}")
    for name in asked.names or ORDER:
        print(f"{name} ...", flush=True)
        path = FOLDER / f"{name}.ipynb"
        text = as_text(carried_out(path))
        with replacing(path) as file:
            file.write(text.encode())
        print(f"{path}, {path.stat().st_size:,} bytes", flush=True)
    return 0


def carried_out(path: Path) -> "NotebookNode":
    """Run a notebook with this interpreter in an empty folder, and return it with its outputs."""
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        raise UserError(NEEDED) from error
    notebook = nbformat.read(path, as_version=4)
    metadata = notebook.metadata.copy()
    folder = Path(tempfile.mkdtemp(prefix="notebook-"))
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    try:
        client.execute(env=surroundings())
    except CellExecutionError as error:
        cell_number = max(cell.get("execution_count") or 0 for cell in notebook.cells)
        raise UserError(f"{path.name}, cell [{cell_number}]: {error.ename}: {error.evalue}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    notebook.metadata = metadata  # without the version of this interpreter
    checkout = os.path.relpath(PROJECT, folder.resolve()) + os.sep
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ()) if "text" in output):
        output["text"] = COLOURS.sub("", output["text"].replace(checkout, ""))
    return notebook


def surroundings() -> dict[str, str]:
    """Return the environment variables of a kernel: runs beside the notebook, `stride` from this checkout."""
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    programs = os.pathsep.join((str(Path(sys.prefix, "bin")), os.environ["PATH"]))
    own = {"STRIDE_RUNS": "runs", "PYTHONPATH": path, "PATH": programs, "VIRTUAL_ENV": sys.prefix, "COLUMNS": "110"}
    return {**os.environ, **own}


def as_text(notebook: "NotebookNode") -> str:
    import nbformat

    return nbformat.writes(notebook) + "\n"


def shown(output: Mapping[str, Any]) -> str:
    """Return an output of a cell as plain text; "" if it has none."""
    if output["output_type"] == "stream":
        return str(output["text"])
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    return str(output["data"].get("text/plain", ""))


if __name__ == "__main__":
    entry.run(main)
