"""report.md of a run that failed: why, where the traceback is, how to go on."""

import os
import shlex

from stride.runstore import checkpoint_set, run_files
from stride.runstore.run_dir import RunDir
from stride.runstore.run_fate import continuation


def write_failed(run: RunDir, line: str) -> None:
    """In the place of any report there was: it comes again with the end of the run."""
    facts = run.facts()
    saved = checkpoint_set.facts_of(run.checkpoints / "last.ckpt")
    command = facts.get("command", "")
    exact = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
    reached = f"Its last checkpoint is of {saved['env_steps']:,} env steps." if saved else "It has no checkpoint yet."
    log = f"The traceback is at the end of [{run.run_log.name}]({run.run_log.name})." if _logged(run) else ""
    parts = [
        "**Failed**",
        f"# {facts.get('env_id')}:{facts.get('variant')}",
        f"```text\n{line}\n```",
        " ".join(filter(None, (log, reached))),
        "## Next",
        f"Mend what failed, then:\n\n```sh\n{continuation(run).partition(': ')[2]}\n```",
        f"Repeat it:\n\n```sh\n{exact}\n```" if exact else "",
    ]
    run_files.write_text(run.report, "\n\n".join(part for part in parts if part) + "\n")


def _logged(run: RunDir) -> bool:
    return os.environ.get("STRIDE_NO_RUN_LOG") != "1"
