"""`stride runs`: what each of its words does to runs on the disk, and what it refuses."""

import csv
import io
import json
import re
import shlex
from xml.etree import ElementTree

import pytest
from snapshots import shown

from lab.bench.runs import make
from stride.commands import runs
from stride.config.metrics import load_metrics
from stride.report.ledger import explain
from stride.report.ledger.export import escaped
from stride.report.ledger.table import COLUMNS
from stride.runstore.run_brief import Brief, Labels, read_labels
from stride.runstore.run_dir import RunDir
from stride.utils import entry

RUNS = 24


@pytest.fixture
def ids(root):
    """Runs of which the last three are damaged, the last of all in its config.json."""
    return make(root, RUNS)


@pytest.fixture
def command(capsys):
    """(exit code, what was said, the line about what was wrong)."""

    def run(*words):
        code = entry.ended(runs.main, [*words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def output(command):
    """What a command says that ends well; --json as what it holds."""

    def run(*words):
        code, out, err = command(*words)
        assert code == 0, err
        return json.loads(out) if "--json" in words or "json" in words else out

    return run


@pytest.fixture
def facts(root):
    return lambda run_id: json.loads((root / run_id / "config.json").read_text())


def test_a_filter_finds_what_the_files_say_by_keys_of_configs_and_metrics_too(ids, output, facts):
    lines = {line["id"]: line for line in output("list", "--json")}
    assert [lines[run_id]["status"] for run_id in ids[-3:]] == ["damaged"] * 3 and len(lines) == RUNS
    out = output("list")
    assert f"{ids[-1]}: config.json is not valid JSON" in out and out.splitlines()[0].split() == [*COLUMNS]
    found = output("list", "--json", "--filter", "env=CartPole and test>=100", "--sort", "-test")
    wanted = [run_id for run_id in ids[:-1] if facts(run_id)["env_id"] == "CartPole-v1"]
    wanted = [run_id for run_id in wanted if facts(run_id)["outcome"]["test_mean"] >= 100]
    assert {line["id"] for line in found} == {*wanted} and wanted
    tests = [line["test"] for line in found]
    assert tests == sorted(tests, reverse=True)
    low = "policy_lr < 5e-4"
    found = output("list", "--json", "--filter", f"{low} train/policy/entropy<=0.5", "--columns", "policy_lr,gamma")
    rates = {line["id"]: line["policy_lr"] for line in found}
    assert found and all(rate == facts(run_id)["config"]["policy_lr"] < 5e-4 for run_id, rate in rates.items())
    assert len(found) < len(output("list", "--json", "--filter", low))


WRONG = [
    "lst", "list --fliter x", "list --filter 'polcy_lr>1'", "list --filter 'test>=many'",
    "list --filter 'seed=1 or seed=2'", "list --filter 'reward>3'", "list --sort tset", "list --limit -1", "show @lost",
    "compare @best:CartPole-v1", "explain aprox_kl", "tag @best:CartPole-v1 'a b'", "cleanup",
    "cleanup --keep-recent 30", "cleanup --keep-best 0", "export --out /nowhere/at/all.csv",
    "export --by variant --columns id",
]  # fmt: skip


def test_wrong_words_are_one_line_and_change_nothing(ids, root, command, snapshot):
    before = sorted(path.name for path in root.iterdir())
    lines = {}
    for words in WRONG:
        code, out, lines[words] = command(*shlex.split(words))
        assert (code, out) == (2, "") and lines[words].count("\n") == 1
    assert {words: shown(line) for words, line in lines.items()} == snapshot
    assert sorted(path.name for path in root.iterdir()) == before


def test_the_metrics_of_a_console_are_shown_and_every_one_is_explained(ids, root, output):
    numbers = {name: 0.5 + place for place, name in enumerate(load_metrics())}
    (root / ids[0] / "metrics.csv").write_text(f"{','.join(numbers)}\n{','.join(map(str, numbers.values()))}\n")
    lines = {line.split()[-1]: line.split()[:-1] for line in output("show", ids[0]).splitlines() if line[:2] == "  "}
    for name, metric in load_metrics().items():
        if metric.table and "/clock/" not in name and name != "train/time/seconds":
            assert " ".join(lines.pop(name)).startswith(f"{metric.title} "), name
        assert name not in lines
        text = "\n".join(explain.explained(name))
        assert metric.meaning in text and all(rule.means in text for rule in metric.alerts)
    assert output("show", ids[0], "--json")["metrics"] == numbers


def test_compare_tells_numbers_differences_and_curves(ids, root, output, facts):
    rates = {run_id: facts(run_id)["config"]["policy_lr"] for run_id in ids[:-3]}
    first = ids[0]
    second = next(run_id for run_id in rates if rates[run_id] != rates[first])
    picture = root / "curves.svg"
    text = output("compare", first, second, "--metrics", "entropy", "--svg", str(picture))
    assert f"A  {first}" in text and f"B  {second}" in text and "train/policy/entropy" in text
    assert re.search(rf"policy_lr +{rates[first]} +{rates[second]}", text)
    assert {"A", "B"} <= {*text.rpartition("train/policy/entropy")[2].partition("+---")[0]}
    assert len(ElementTree.fromstring(picture.read_text()).findall(".//{*}polyline")) == 2
    differences = output("compare", first, second, "--json")["differences"]
    assert differences["policy_lr"] == [str(rates[first]), str(rates[second])]


def test_exports_hold_the_same_table_and_seeds_of_a_variant_are_one_line_with_its_interval(ids, root, output):
    words = ("export", "--filter", "env=CartPole test>0", "--columns", "id,run,seed,test,policy_lr", "--format")
    as_csv = [*csv.DictReader(io.StringIO(output(*words, "csv")))]
    as_json = output(*words, "json")
    assert as_csv and [{key: str(value) for key, value in row.items()} for row in as_json] == as_csv
    assert output(*words, "latex", "--out", str(root / "table.tex")).endswith("table.tex\n")
    body = tabular((root / "table.tex").read_text())
    assert [row[0] for row in body[1:]] == [escaped(row["id"]) for row in as_csv]
    latex = output("export", "--by", "variant", "--format", "latex")
    data = output("export", "--by", "variant", "--format", "json")
    assert len(tabular(latex)) == len(data) + 1 and sum(line["runs"] for line in data) == RUNS - 1
    for line in data:
        assert (line["low"] is None) == (line["runs"] < 5)
        assert line["low"] is None or line["low"] <= line["iqm"] <= line["high"]


def tabular(text):
    """The cells of a LaTeX table, checked as LaTeX would: braces, columns, nothing special left bare."""
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    bare = re.sub(r"\\[\\%&$#_{}]", "", text)
    assert bare.count("{") == bare.count("}") and bare.isascii() and bare.count("$") % 2 == 0
    inner = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0].replace(r"\midrule", "")
    rows = [re.split(r"(?<!\\)&", row) for row in inner.split(r"\\" + "\n")]
    rows = [[cell.strip() for cell in row] for row in rows if "".join(row).strip()]
    sides = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text).group(1)
    assert {len(row) for row in rows} == {len(sides)}
    assert not [cell for row in rows for cell in row if re.search(r"(?<!\\)[%#_]", re.sub(r"\$[^$]*\$", "", cell))]
    return rows


LATEX = ["50% of $x$ & more_#", "a\\b{c}~^", "ünïcode <x>", "\x1b[31m\r\n\x07"]


@pytest.mark.parametrize("text", LATEX)
def test_latex_takes_any_text(text):
    assert escaped(text).isprintable() and escaped(text).isascii()
    assert not re.search(r"(?<!\\)[%#_&$]", re.sub(r"\\text\w+\{\}", "", escaped(text)))


CELLS = {
    "=1+1": "'=1+1", "x;=cmd|' /C calc'!A0": "x;=cmd|' /C calc'!A0", "\n=1+1": "\\n=1+1", "\u3000@x": "\\u3000@x",
    "\uff1d1+1": "'\uff1d1+1", '"=1"': '"=1"',
}  # fmt: skip


def test_a_spreadsheet_computes_nothing_of_what_is_exported(ids, root, output, facts):
    before = facts(ids[0])
    for text, cell in CELLS.items():
        odd = {**before, "config": {**before["config"], "odd": text}}
        (root / ids[0] / "config.json").write_text(json.dumps(odd))
        exported = output("export", "--columns", "odd,seed")
        assert exported.splitlines()[1] == f'"{cell.replace(chr(34), 2 * chr(34))}",{before["seed"]}'
        assert next(csv.DictReader(io.StringIO(exported)))["odd"] == cell


ODD = "\x1b]0;owned\x07 \u202egnp.exe\r\nsecond\u2028third \x9b2J"
COLUMNS_OF_TEXT = "--columns algo_id,description,list"
SCREENS = [
    f"list {COLUMNS_OF_TEXT}", f"export {COLUMNS_OF_TEXT}", f"export {COLUMNS_OF_TEXT} --format latex",
    "export --columns algo_id --format json", "show 1", "show 1 --json", "compare 1 2", "diff 1 2",
]  # fmt: skip


def test_no_text_of_a_run_reaches_the_terminal_as_it_is(ids, root, command, facts):
    changed = facts(ids[0])
    config = {**changed["config"], "algo_id": f"=1{ODD}", "description": ODD, "list": [ODD]}
    changed |= {"config": config, "versions": {"torch": ODD, ODD: "1"}, "host": {"name": ODD}}
    (root / ids[0] / "config.json").write_text(json.dumps(changed))
    first, *rest = (root / ids[0] / "metrics.csv").read_text().splitlines()
    names = f"{first},{ODD.split(chr(13))[0]}"
    (root / ids[0] / "metrics.csv").write_text("\n".join([names, *(f"{line},1" for line in rest)]) + "\n")
    for words in SCREENS:
        code, out, err = command(*({"1": ids[0], "2": ids[1]}.get(word, word) for word in words.split()))
        assert code == 0, err
        assert out.replace("\n", "").isprintable() and "owned" in out, words


def test_tags_and_notes_stay_with_the_run_and_the_last_is_shown_where_none_is_named(ids, root, output, command):
    output("tag", ids[2], "good", "tuned")
    output("note", ids[2], "50% less, _why_?")
    output("tag", ids[2], "tuned", "--remove")
    assert read_labels(root / ids[2]) == Labels(("good",), "50% less, _why_?")
    assert [line["id"] for line in output("list", "--json", "--filter", "tag=good")] == [ids[2]]
    (root / ids[2] / "labels.json").write_text('{"tags": ["../x"], "note": ""}')
    assert "labels.json is damaged" in command("tag", ids[2], "more")[2]
    assert {line["id"]: line for line in output("list", "--json")}[ids[2]]["status"] == "damaged"
    (root / "@last").symlink_to(ids[4])
    assert RunDir.find("@last").id == output("show", "--json")["id"] == ids[4]


def test_diff_finds_the_first_row(ids, root, output):
    lines = (root / ids[0] / "metrics.csv").read_text().splitlines()
    twin, cells = root / ids[1], lines[7].split(",")
    (twin / "config.json").write_bytes((root / ids[0] / "config.json").read_bytes())

    def differ(column, value):
        changed = ",".join([*cells[:column], value, *cells[column + 1 :]])
        (twin / "metrics.csv").write_text("\n".join([*lines[:7], changed, *lines[8:]]) + "\n")
        return output("diff", ids[0], ids[1], "--json")

    assert cells[1] == "7"  # wall time: is not looked at
    same = differ(1, "99")
    assert same["configs"] == {} and same["row"] == {"rows": [20, 20], "alike": 20}
    row = differ(3, "0.25")["row"]
    assert row["row"] == 7 and row["env_steps"] == 7000
    assert row["metrics"] == {"train/loss/policy": [float(cells[3]), 0.25]}
    assert "row 7, at 7,000 env steps" in output("diff", ids[0], ids[1])


def test_why_runs_failed_is_said_once_and_short_and_where_all_of_it_is():
    long_reason = "a module of one's own: " + "x" * 300
    briefs = [Brief("a", reason=long_reason), Brief("b"), Brief("c", fault="bad"), Brief("d", reason=long_reason)]
    first, second, last = runs.reasons(briefs, 80)
    assert first.startswith("a and 1 more: a module of one's own: x") and len(first) == 80
    assert (second, last) == ("c: bad", "stride runs show ID shows everything")
    assert runs.reasons([Brief("c", fault="bad"), Brief("b")], 80) == ["c: bad"]
