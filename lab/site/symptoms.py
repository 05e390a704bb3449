"""Makes parts of the troubleshooting page: alerts with their cures, measured cures, error lines as printed."""

import json
from collections import Counter

from lab.evidence.report import table
from stride.commands.train_arguments import parse_arguments
from stride.config.general import is_general, load_general
from stride.config.loader import load_config, parse_config_id
from stride.config.metrics import KEY, load_metrics
from stride.envs_gym.task import task_of
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

CURES = PROJECT / "docs" / "results" / "cures" / "rows.json"
MAX_ALERTS = 2  # shown for each way of breaking a run


def alerts() -> str:
    """Return a table of the alerts in config/metrics.yaml: condition, meaning, what to try."""
    rows = []
    for metric in load_metrics().values():
        for rule in metric.alerts:
            tries = "; ".join(KEY.sub(r"`\1`", text) for text in rule.tries)
            rows.append((f"{metric.title} {rule.words()}", rule.means, tries))
    return table([("alert", "what it means", "what to try, likeliest first"), *dict.fromkeys(rows)])


def cures() -> str:
    """Return a table of runs broken on purpose: their most frequent alerts, and the most frequent first cure."""
    rows: dict[str, list[dict[str, list[str]]]] = {}
    for row in json.loads(CURES.read_text(encoding="utf-8"))["rows"]:
        if row["cures"]:
            rows.setdefault(row["way"], []).append(row)
    lines = []
    for way, seeds in rows.items():
        raised = Counter(alert for row in seeds for alert in row["alerts"])
        first = Counter(row["cures"][0] for row in seeds)
        shown = "; ".join(alert for alert, _ in raised.most_common(MAX_ALERTS)) or "none"
        lines.append((way, shown, f"`{first.most_common(1)[0][0]}`"))
    return table([("what was broken", "alerts", "first cure in `next`"), *lines])


def refused(*words: str) -> str:
    """Return the error line of a training with these arguments; UserError if they are accepted."""
    try:
        arguments = parse_arguments([*words])
        for config_id, overrides in arguments.several or [(arguments.config_id, arguments.overrides)]:
            if is_general(config_id):
                load_general(config_id, overrides, task_of)
            else:
                load_config(*parse_config_id(config_id), overrides)
    except UserError as error:
        return f"```console\n$ stride train {' '.join(words)}\nerror: {error}\n```"
    raise UserError(f"<!-- refused {' '.join(words)} -->: it is not refused")
