"""Makes the tables of docs/performance.md and docs/environments.md, from the benchmark files that they link to."""

import statistics
from typing import Any

from lab.bench import table as table_of_peers
from lab.evidence.report import table
from stride.utils.durable_file import read_json
from stride.utils.places import PROJECT
from stride.utils.typography import score

BENCHMARKS, RESULTS = PROJECT / "docs" / "benchmarks", PROJECT / "docs" / "results"
PEERS = {
    "sb3": "Stable-Baselines3",
    "sbx": "SBX",
    "cleanrl style": "CleanRL's way",
    "purejaxrl style": "PureJaxRL's way",
}
WIDE, WIDE_NAME = "CartPole-v1, 4096 x 64, one trunk", "4096 x 64, one pass, one layer of 128"
SIZES = ("4096", "256")  # copies; Gymnasium's toy environments are timed only with the second
COLUMNS = ("ours, T steps", "ours, 1 step", "ours, Gymnasium", "gymnasium sync")
OWN = "gymnasium native"
BACKENDS = ("fast", "ale", "gym", "gym, 2 workers", "SyncVectorEnv", "AsyncVectorEnv")


def peers() -> str:
    """Return the tables of lab.bench.beside; if they are not measured yet, thousands of env steps/s by older code."""
    if files := table_of_peers.files(BENCHMARKS):
        return "\n\n".join(table_of_peers.markdown(table_of_peers.read(file)) for file in files)
    tables = read_json(BENCHMARKS / "train.json")["tables"]
    rows = [["envs", "fused_cpu", "eager", *PEERS.values(), "to the best peer"]]
    for name, key in (*((str(envs), f"CartPole-v1, {envs} x 128") for envs in (8, 256, 2048)), (WIDE_NAME, WIDE)):
        rates = {peer.removesuffix(", two nets"): rate for peer, rate in tables[key].items()}
        names = ("fused_cpu", "eager", *PEERS)
        shown = [f"{rates[peer]['median'] / 1000:,.0f}" if peer in rates else "" for peer in names]
        best = max((rates[peer] for peer in PEERS if peer in rates), key=lambda rate: rate["median"])
        turns = zip(rates["fused_cpu"]["all"], best["all"], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in turns)
        rows.append([name, *shown, f"{ratio:.0f}x" if ratio > 10 else f"{ratio:.1f}x"])
    return f"Measured by older code, with older yardsticks, three turns:\n\n{table(rows)}"


def own_vector_env(data: dict[str, Any]) -> dict[str, float]:
    """Return number of copies -> speed of our CartPole, relative to Gymnasium's own vector CartPole."""
    measured = data.get("ratios", {}).get("CartPole-v1", {})
    times = {}
    for size, rates in data["steps_per_second"]["CartPole-v1"].items():
        if OWN in rates:
            ratio = measured.get(size, {}).get(OWN, {"median": rates[COLUMNS[2]] / rates[OWN]})
            times[f"{int(size):,}"] = ratio["median"]
    return times


def environments() -> str:
    """Return a table of millions of env steps/s; "times" is ours with Gymnasium's interface over SyncVectorEnv."""
    rows = [["environment", "copies", "T steps", "1 step", "Gymnasium", "SyncVectorEnv", "times"]]
    for name, sizes in read_json(BENCHMARKS / "envs.json")["steps_per_second"].items():
        size = next(size for size in SIZES if COLUMNS[-1] in sizes.get(size, {}))
        rates = [sizes[size][column] for column in COLUMNS]
        cells = [f"{rate / 1e6:.3g}" for rate in rates]
        rows.append([name, f"{int(size):,}", *cells, f"{rates[2] / rates[3]:,.0f}"])
    return table(rows)


def packages() -> str:
    """Return a table of env steps/s of environments of other packages, with ratios to the packages and gymnax."""
    data = read_json(BENCHMARKS / "worlds.json")
    rows = [["environment", "1 copy", "64", "4,096", "times the package's: 1", "64", "times gymnax's: 64", "4,096"]]
    for name, sizes in data["steps_per_second"].items():
        rates = [f"{rates[COLUMNS[0]] / 1e6:.3g} M" for rates in sizes.values()]
        ratios = data["ratios"][name]
        asked = (
            ("1", "package, sync"),
            ("64", "package, sync"),
            ("64", "gymnax, T steps"),
            ("4096", "gymnax, T steps"),
        )
        times = [f"{ratios[size][peer]['median']:,.1f}" if peer in ratios[size] else "" for size, peer in asked]
        rows.append([name, *rates, *times])
    return table(rows)


def off_policy() -> str:
    """Return the ratio of whole trainings of DQN and SAC to SB3's, if the tables of `peers` do not contain them."""
    if table_of_peers.files(BENCHMARKS):
        return "DQN and SAC run in the same engine; their rows are in the table above."
    data = read_json(BENCHMARKS / "offpolicy.json")
    dqn, sac = (f"{data[name]['ratio']['median']:.1f}" for name in ("dqn", "sac"))
    return (
        "DQN and SAC run in the same engine. By older code, whole trainings on CartPole and Pendulum were\n"
        f"{dqn} and {sac} times as fast as Stable-Baselines3's ([figures](benchmarks/offpolicy.json))."
    )


def mujoco() -> str:
    """Return a table of the last evaluations in docs/results/mujoco, ours and SB3's."""
    lines: dict[tuple[str, int], dict[str, str]] = {}
    for row in read_json(RESULTS / "mujoco" / "rows.json")["rows"]:
        last = score(row["points"][-1][1])
        lines.setdefault((row["words"], row["budget"]), {}).setdefault(row["who"], last)
    head = ("one seed", "env steps", "ours", "SB3")
    return table([head, *((name, f"{budget:,}", who["ours"], who["sb3"]) for (name, budget), who in lines.items())])


def families() -> str:
    """Return a table of env steps/s by each backend; the one that `auto` chooses is bold."""
    rows = [["", *BACKENDS]]
    for name, family in read_json(BENCHMARKS / "families.json")["families"].items():
        if "rates" not in family:
            continue
        rates = family["rates"]
        cells = {backend: f"{rates[backend]:,.0f}" if backend in rates else "" for backend in BACKENDS}
        cells[family["auto"]] = f"**{cells[family['auto']]}**"
        rows.append([name, *cells.values()])
    return table(rows)
