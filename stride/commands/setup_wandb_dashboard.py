"""Make a W&B dashboard for what Stride logs. Running it again keeps the same page.

stride setup-wandb-dashboard --entity me --project CartPole-v1             once for a project
stride setup-wandb-dashboard --entity me --project CartPole-v1 --dry-run   prints what would be sent
"""

import argparse
import sys
from typing import Any

from stride.commands.usage import parser_of
from stride.report.trackers.registry import is_installed
from stride.report.trackers.wandb_dashboard import MAX_HIDDEN_RUNS, as_json, workspace
from stride.utils import entry
from stride.utils.user_error import UserError

CURE = "pip install 'stride-rl[wandb]'"


def main(argv: list[str]) -> int:
    """Create or print the dashboard; return the exit code."""
    arguments = parse(argv)
    if not is_installed("wandb_workspaces"):
        raise UserError(f"a dashboard needs the package wandb-workspaces: {CURE}")
    if arguments.dry_run:
        if arguments.select_latest:
            print("--select-latest has no effect with --dry-run: it needs the list of runs", file=sys.stderr)
        print(as_json(workspace(arguments.entity, arguments.project)))
        return 0
    return send(arguments)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--entity", required=True, help="the user or team that the project belongs to")
    parser.add_argument("--project", required=True, help="the project; the project_id of its runs")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing dashboard; your changes to it are lost"
    )
    parser.add_argument("--select-latest", action="store_true", help="show the newest run, hide the others")
    parser.add_argument("--dry-run", action="store_true", help="print the JSON that would be sent; no network")
    return parser.parse_args(argv)


def send(arguments: argparse.Namespace) -> int:
    """Save the page on W&B unless it exists; an error of W&B becomes one line."""
    import wandb

    try:
        hidden_runs = others(arguments.entity, arguments.project) if arguments.select_latest else []
        page = workspace(arguments.entity, arguments.project, hidden_runs)
        existing = find_page(page)
        if existing is not None:
            if not arguments.overwrite:
                print(f"the dashboard exists: {existing.url}\n--overwrite replaces it")
                return 0
            page._internal_id = existing._internal_id
        page.save()
    except (wandb.Error, ValueError) as error:
        raise UserError(f"W&B: {error}") from error
    print(f"{'made' if existing is None else 'replaced'}: {page.url}")
    return 0


def others(entity: str, project: str) -> list[str]:
    """Return the ids of all runs but the newest."""
    import wandb

    runs = wandb.Api().runs(f"{entity}/{project}", order="-created_at", per_page=MAX_HIDDEN_RUNS)
    return [run.id for run, _ in zip(runs, range(MAX_HIDDEN_RUNS), strict=False)][1:]


def find_page(page: Any) -> Any:
    """Return the page as W&B stores it, None if it does not exist."""
    import wandb_workspaces.workspaces as pages

    try:
        return pages.Workspace.from_url(page.url)
    except ValueError as error:
        if str(error).startswith("Workspace "):  # `Workspace .. not found`: the project exists, the page does not
            return None
        raise


if __name__ == "__main__":
    entry.run(main)
