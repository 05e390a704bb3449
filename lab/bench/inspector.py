"""What the inspector costs with many runs: seconds to the first table, CPU of a tick, memory.

python -m lab.bench.inspector --runs 5000 --megabytes 100

Makes the runs (one of them live, with a metrics.csv of that many megabytes), starts run_inspect.py on them and asks as
an open page does, over HTTP: the page, then what its clock asks every two seconds.
"""

import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from config.loader import load_config, to_plain
from config.metrics import load_metrics
from inspector.runs import Runs
from inspector.table import runs_table
from report.history import VAL, VAL_BEST
from scripts.usage import parser_of
from utils import entry
from utils.provenance import PROJECT

NEW_YEAR = 1767225600  # 2026
PAUSE = 5.0  # seconds after which all runs are read
TICK = os.sysconf("SC_CLK_TCK")


def make_runs(root: Path, count: int, rows: int, megabytes: int) -> Path:
    """The newest is live and has the large file; -> that file."""
    config = to_plain(load_config("CartPole-v1", "ppo"))
    facts = {"env_id": "CartPole-v1", "variant": "ppo", "seed": 1, "group": "", "goal": 475.0, "status": "finished"}
    text = json.dumps({**facts, "config": config}, indent=2)
    names = [name for name in load_metrics() if not name.startswith("test/")]
    head = ",".join(names) + "\n"
    lines = [line(names, number) for number in range(rows)]
    for number in range(count):
        folder = root / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(NEW_YEAR + number))}-CartPole-v1-ppo-s1-aaaa"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "config.json").write_text(text)
        (folder / "metrics.csv").write_text(head + "".join(lines[: rows - number % 7]))
    (folder / "config.json").write_text(text.replace('"finished"', '"running"'))
    large = folder / "metrics.csv"  # of the folder made last, the newest by its name
    with open(large, "w", encoding="utf-8") as file:
        file.write(head)
        number = 0
        while file.tell() < megabytes * 1_000_000:
            file.write("".join(line(names, number + each) for each in range(1000)))
            number += 1000
    return large


def line(names: list[str], number: int) -> str:
    """A row as trainings write them: whole clocks, an evaluation in each tenth."""
    cells = {name: f"{random.uniform(-9, 9):.7g}" for name in names if not name.startswith("val/") or number % 10 == 9}
    cells |= {name: str(16 * number) for name in names if "/clock/" in name}
    cells |= {name: str(min(number, 400)) for name in (VAL, VAL_BEST) if name in cells}
    return ",".join(cells.get(name, "") for name in names) + "\n"


class Page:
    """What a browser asks of Gradio: an event of the page's own, waited for until it is done."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.config = json.loads(self.ask("GET", "/config"))
        self.session = f"{random.getrandbits(60):x}"

    def ask(self, method: str, path: str, body: object = None) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        found = answer.read().decode()
        assert answer.status == 200, (path, answer.status, found[:200])
        connection.close()
        return found

    def event(self, kind: str, which: int = 0) -> dict[str, Any]:
        found = [each for each in self.config["dependencies"] if any(target[1] == kind for target in each["targets"])]
        return found[which]

    def call(self, event: dict[str, Any], data: list[Any], pressed: dict[str, str] | None = None) -> list[Any]:
        asked = {"data": data, "fn_index": event["id"], "session_hash": self.session, "trigger_id": None}
        asked |= {"event_data": pressed} if pressed else {}
        self.ask("POST", "/gradio_api/queue/join", asked)
        told = self.ask("GET", f"/gradio_api/queue/data?session_hash={self.session}")
        messages = [json.loads(each[5:]) for each in told.split("\n\n") if each.startswith("data:")]
        done = next(each for each in messages if each["msg"] == "process_completed")
        assert done["success"], done
        return list(done["output"]["data"])


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory(pid: int, what: str = "VmRSS") -> float:
    words = Path(f"/proc/{pid}/status").read_text().split()
    return int(words[words.index(f"{what}:") + 1]) / 1024


def ticks(page: Page, pid: int, number: int, run: str, between: Callable[[], None] = lambda: None) -> float:
    """CPU milliseconds of one, the mean of many, as the kernel counts in hundredths of a second."""
    event, spent = page.event("tick"), 0.0
    for _ in range(number):
        between()
        before = cpu(pid)
        page.call(event, [None, None, None, run])
        spent += cpu(pid) - before
    return 1000 * spent / number


def measure(port: int, pid: int, large: Path, runs: int) -> None:
    began = time.monotonic()
    page = Page(port)
    loads = [each for each in page.config["dependencies"] if any(target[1] == "load" for target in each["targets"])]
    # Gradio calls events by numbers: the table is what takes nothing and gives one thing
    table = next(each for each in loads if len(each["outputs"]) == 1 and not each["inputs"])
    shown = str(page.call(table, [])[0])
    print(f"the page's table: {time.monotonic() - began:.2f} s over HTTP, {shown.count('<tr data')} rows")
    began = time.monotonic()
    page.call(page.event("tick"), [None, None, None, large.parent.name])
    print(f"overview of {large.stat().st_size / 1e6:.0f} MB: {time.monotonic() - began:.2f} s")

    def grow() -> None:
        names = large.open().readline().rstrip("\n").split(",")
        with open(large, "a", encoding="utf-8") as file:
            file.write(line(names, 10_000_000 + random.randrange(10**6)))

    run = large.parent.name
    print(f"tick, nothing new:       {ticks(page, pid, 40, run):6.1f} ms of CPU")
    print(f"tick, a row more:        {ticks(page, pid, 40, run, grow):6.1f} ms of CPU")
    time.sleep(PAUSE)
    for words in ("status:finished", "sort:-best", "best>390 took<1h sort:speed"):
        began = time.monotonic()
        page.call(page.event("input"), [], {"words": words})
        took = time.monotonic() - began
        print(f"{words} of {runs:,}: {took:.2f} s, then a tick {ticks(page, pid, 40, run):6.1f} ms of CPU")
    print(f"memory: {memory(pid):.0f} MiB, {memory(pid, 'VmHWM'):.0f} at most")


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=236, help="of a metrics.csv")
    parser.add_argument("--megabytes", type=int, default=100, help="of the live run's metrics.csv")
    parser.add_argument("--keep", metavar="FOLDER", help="make the runs there, or use those that are there")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-inspector-") as folder:
        root = Path(options.keep or folder)
        if not any(root.glob("2026*")):
            make_runs(root, options.runs, options.rows, options.megabytes)
        large = max(root.glob("2026*")) / "metrics.csv"
        words = [sys.executable, str(PROJECT / "run_inspect.py"), "--port", "0", "--run-id", large.parent.name]
        os.environ["STRIDE_RUNS"] = str(root)
        began = time.perf_counter()
        rows = runs_table(Runs().page()).count("<tr data")
        print(f"first table: {time.perf_counter() - began:.2f} s to read {rows} of {options.runs:,} runs from the disk")
        began = time.perf_counter()
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout
            url = [server.stdout.readline(), server.stdout.readline()][1]  # behind the line with the folder
            print(f"run_inspect.py: {time.perf_counter() - began:.2f} s to its address, {memory(server.pid):.0f} MiB")
            try:
                measure(int(url.split(":")[2].split("/")[0]), server.pid, large, options.runs)
            finally:
                server.terminate()
    return 0


if __name__ == "__main__":
    entry.run(main)
