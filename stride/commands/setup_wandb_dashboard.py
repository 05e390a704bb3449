"""Make the page of a W&B project that shows what Stride logs; made again it stays the same page.

stride setup-wandb-dashboard --entity me --project CartPole-v1             once for a project
stride setup-wandb-dashboard --entity me --project CartPole-v1 --dry-run   prints what it would send
"""

import argparse
import sys
from typing import Any

from stride.commands.usage import parser_of
from stride.report.trackers.registry import is_installed
from stride.report.trackers.wandb_dashboard import MOST, as_json, workspace
from stride.utils import entry
from stride.utils.user_error import UserError

CURE = "pip install 'stride-rl[wandb]'"


def main(argv: list[str]) -> int:
    """Exit code."""
    asked = parse(argv)
    if not is_installed("wandb_workspaces"):
        raise UserError(f"a dashboard needs the package wandb-workspaces: {CURE}")
    if asked.dry_run:
        if asked.select_latest:
            print("--select-latest: which runs there are is only asked when it is sent", file=sys.stderr)
        print(as_json(workspace(asked.entity, asked.project)))
        return 0
    return send(asked)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--entity", required=True, help="the user or team that the project belongs to")
    parser.add_argument("--project", required=True, help="the project; of a run that is its project_id")
    parser.add_argument("--overwrite", action="store_true", help="put it anew where it is there, own changes are lost")
    parser.add_argument("--select-latest", action="store_true", help="show the newest run, hide the others")
    parser.add_argument("--dry-run", action="store_true", help="print the JSON that would be sent, ask nobody")
    return parser.parse_args(argv)


def send(asked: argparse.Namespace) -> int:
    """Unless it is there; what W&B refuses is one line."""
    import wandb

    try:
        hidden = others(asked.entity, asked.project) if asked.select_latest else []
        page = workspace(asked.entity, asked.project, hidden)
        there = found(page)
        if there is not None and not asked.overwrite:
            print(f"it is there: {there.url}\n--overwrite puts it anew")
            return 0
        if there is not None:
            page._internal_id = there._internal_id
        page.save()
    except (wandb.Error, ValueError) as error:
        raise UserError(f"W&B: {error}") from error
    print(f"{'made' if there is None else 'put anew'}: {page.url}")
    return 0


def others(entity: str, project: str) -> list[str]:
    """Ids of the runs but the newest."""
    import wandb

    runs = wandb.Api().runs(f"{entity}/{project}", order="-created_at", per_page=MOST)
    return [run.id for run, _ in zip(runs, range(MOST), strict=False)][1:]


def found(page: Any) -> Any:
    """The page as W&B has it, None where it does not."""
    import wandb_workspaces.workspaces as pages

    try:
        return pages.Workspace.from_url(page.url)
    except ValueError as error:
        if str(error).startswith("Workspace "):  # `Workspace .. not found`: the project is there
            return None
        raise


if __name__ == "__main__":
    entry.run(main)
