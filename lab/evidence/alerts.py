"""Which alerts did runs raise?

    python -m lab.evidence.alerts               of every run under $STRIDE_RUNS
    python -m lab.evidence.alerts @last RUN     of those that are named

Bounds are right when what is shipped runs in silence and what is broken does not; this says it, a line for each run.
"""

import argparse
from collections.abc import Iterator

from stride.runstore.run_dir import RunDir, list_runs
from stride.trainer_callbacks.watch import read_alerts
from stride.utils import entry


def lines(run: RunDir) -> Iterator[str]:
    facts = run.facts()
    outcome = facts.get("outcome") or {}
    word = "solved" if outcome.get("solved") else facts.get("status", "?")
    alerts = read_alerts(run)
    yield f"{facts.get('env_id')}:{facts.get('variant')} seed {facts.get('seed')}, {word}: {len(alerts)} alerts"
    for alert in alerts:
        yield f"    {alert.sentence()}{', still open' if alert.open else ''}"


def main(argv: list[str]) -> int:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m lab.evidence.alerts", description=__doc__, formatter_class=kind)
    parser.add_argument("runs", nargs="*", metavar="RUN")
    named = parser.parse_args(argv).runs
    for run in [RunDir.find(name) for name in named] or list_runs()[::-1]:
        print("\n".join(lines(run)))
    return 0


if __name__ == "__main__":
    entry.run(main)
