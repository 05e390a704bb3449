"""`stride runs`: what each of its words does to runs on the disk, and what it refuses."""

import csv
import io
import json
import re
import time
from xml.etree import ElementTree

import pytest

from lab.bench.runs import make
from stride.commands import runs
from stride.commands.runs import COMMANDS
from stride.config.metrics import load_metrics
from stride.report.ledger import explain
from stride.report.ledger.export import escaped
from stride.report.ledger.table import COLUMNS
from stride.runstore.run_brief import Labels, read_labels, write_labels
from stride.runstore.run_dir import RunDir
from stride.runstore.run_lock import locked
from stride.utils import entry

RUNS = 24


@pytest.fixture
def ids(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    return make(tmp_path, RUNS)


def command(capsys, *words):
    """(exit code, what was said, the line about what was wrong)."""
    code = entry.ended(runs.main, [*words])
    return code, *capsys.readouterr()


def listed(capsys, *words):
    code, told, wrong = command(capsys, "list", "--json", *words)
    assert code == 0, wrong
    return json.loads(told)


def facts(tmp_path, run_id):
    return json.loads((tmp_path / run_id / "config.json").read_text())


def test_a_filter_finds_what_the_files_say(ids, tmp_path, capsys):
    found = listed(capsys, "--filter", "env=CartPole and test>=100", "--sort", "-test")
    sound = [each for each in ids if each != ids[-1]]  # whose config.json can be read
    wanted = [each for each in sound if facts(tmp_path, each)["env_id"] == "CartPole-v1"]
    wanted = [each for each in wanted if facts(tmp_path, each)["outcome"]["test_mean"] >= 100]
    assert {each["id"] for each in found} == {*wanted} and wanted
    tests = [each["test"] for each in found]
    assert tests == sorted(tests, reverse=True)


def test_keys_of_configs_and_metrics_are_fields(ids, tmp_path, capsys):
    found = listed(capsys, "--filter", "policy_lr < 5e-4 train/policy/entropy<=0.5", "--columns", "policy_lr,gamma")
    rates = {each["id"]: each["policy_lr"] for each in found}
    assert found and all(
        rate == facts(tmp_path, run_id)["config"]["policy_lr"] < 5e-4 for run_id, rate in rates.items()
    )
    assert len(found) < len(listed(capsys, "--filter", "policy_lr<5e-4"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lst"], "did you mean list?"),
        (["list", "--fliter", "x"], "did you mean --filter"),
        (["list", "--filter", "polcy_lr>1"], "did you mean policy_lr"),
        (["list", "--filter", "test>=many"], "'many' is not a number"),
        (["list", "--filter", "seed=1 or seed=2"], "a list is any of them"),
        (["list", "--sort", "tset"], "did you mean test"),
        (["list", "--limit", "-1"], "--limit"),
        (["show", "@lost"], "did you mean @last"),
        (["compare", "@best:CartPole-v1"], "2 runs are wanted"),
        (["explain", "aprox_kl"], "did you mean approx_kl"),
        (["tag", "@best:CartPole-v1", "a b"], "is no tag"),
        (["cleanup"], "--keep-best 3"),
        (["cleanup", "--keep-recent", "30"], "12h, 30d, 8w"),
        (["cleanup", "--keep-best", "0"], "--yes deletes"),
        (["export", "--out", "/nowhere/at/all.csv"], "there is no folder"),
        (["export", "--by", "variant", "--columns", "id"], "--columns goes with --by run"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_wrong_words_are_one_line_and_change_nothing(words, told, ids, tmp_path, capsys):
    before = sorted(path.name for path in tmp_path.iterdir())
    code, said, wrong = command(capsys, *words)
    assert (code, said) == (2, "") and told in wrong and wrong.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_damaged_runs_are_listed_as_such_and_harm_no_other(ids, capsys):
    found = {each["id"]: each for each in listed(capsys)}
    assert [found[each]["status"] for each in ids[-3:]] == ["damaged"] * 3 and len(found) == RUNS
    code, told, _ = command(capsys, "list")
    assert code == 0 and f"{ids[-1]}: config.json is not valid JSON" in told
    assert told.splitlines()[0].split() == [*COLUMNS]


def test_show_tells_every_declared_metric_with_its_title(ids, tmp_path, capsys):
    """With `explain` this is the screen of every metric that any agent can emit."""
    numbers = {name: 0.5 + place for place, name in enumerate(load_metrics())}
    (tmp_path / ids[0] / "metrics.csv").write_text(f"{','.join(numbers)}\n{','.join(map(str, numbers.values()))}\n")
    code, told, wrong = command(capsys, "show", ids[0])
    assert code == 0, wrong
    lines = {line.split()[0]: line for line in told.splitlines() if line.startswith("  ")}
    for name, metric in load_metrics().items():
        assert lines[name].rstrip().endswith(metric.title), name
    assert json.loads(command(capsys, "show", ids[0], "--json")[1])["metrics"] == numbers


def test_every_declared_metric_is_explained():
    for name, metric in load_metrics().items():
        told = "\n".join(explain.explained(name))
        assert metric.meaning in told and all(rule.means in told for rule in metric.alerts)


def test_compare_tells_numbers_differences_and_curves(ids, tmp_path, capsys):
    rates = {each: facts(tmp_path, each)["config"]["policy_lr"] for each in ids[:-3]}
    first = ids[0]
    second = next(each for each in rates if rates[each] != rates[first])
    picture = tmp_path / "curves.svg"
    words = ("compare", first, second, "--metrics", "entropy", "--svg", str(picture))
    code, told, wrong = command(capsys, *words)
    assert code == 0, wrong
    assert f"A  {first}" in told and f"B  {second}" in told and "train/policy/entropy" in told
    assert re.search(rf"policy_lr +{rates[first]} +{rates[second]}", told)
    assert {"A", "B"} <= {*re.sub(r"[^AB]", "", told.partition("episode return")[2] or told)}
    drawn = ElementTree.fromstring(picture.read_text())
    assert len(drawn.findall(".//{*}polyline")) == 2
    data = json.loads(command(capsys, "compare", first, second, "--json")[1])
    assert data["differences"]["policy_lr"] == [str(rates[first]), str(rates[second])]


def test_exports_hold_the_same_table(ids, tmp_path, capsys):
    columns = "id,run,seed,test,policy_lr"
    words = ("export", "--filter", "env=CartPole test>0", "--columns", columns, "--format")
    as_csv = [*csv.DictReader(io.StringIO(command(capsys, *words, "csv")[1]))]
    as_json = json.loads(command(capsys, *words, "json")[1])
    assert as_csv and [{key: str(value) for key, value in row.items()} for row in as_json] == as_csv
    code, told, _ = command(capsys, *words, "latex", "--out", str(tmp_path / "table.tex"))
    assert code == 0 and told.endswith("table.tex\n")
    body = tabular((tmp_path / "table.tex").read_text())
    assert [row[0] for row in body[1:]] == [escaped(row["id"]) for row in as_csv]


def tabular(text):
    """The cells of a LaTeX table, checked as LaTeX would: braces, columns, nothing special left bare."""
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    bare = re.sub(r"\\[\\%&$#_{}]", "", text)
    assert bare.count("{") == bare.count("}") and bare.isascii() and bare.count("$") % 2 == 0
    inner = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0].replace(r"\midrule", "")
    rows = [re.split(r"(?<!\\)&", row) for row in inner.split(r"\\" + "\n")]
    rows = [[each.strip() for each in row] for row in rows if "".join(row).strip()]
    sides = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text).group(1)
    assert {len(row) for row in rows} == {len(sides)}
    for row in rows:
        for each in row:
            assert not re.search(r"(?<!\\)[%#_]", re.sub(r"\$[^$]*\$", "", each)), each
    return rows


def test_seeds_of_a_variant_are_one_line_with_its_interval(ids, tmp_path, capsys):
    body = tabular(command(capsys, "export", "--by", "variant", "--format", "latex")[1])
    data = json.loads(command(capsys, "export", "--by", "variant", "--format", "json")[1])
    assert len(body) == len(data) + 1 and sum(each["runs"] for each in data) == RUNS - 1
    for each in data:
        assert (each["low"] is None) == (each["runs"] < 5)
        assert each["low"] is None or each["low"] <= each["iqm"] <= each["high"]


@pytest.mark.parametrize("text", ["50% of $x$ & more_#", "a\\b{c}~^", "ünïcode <x>", "\x1b[31m\r\n\x07"])
def test_latex_takes_any_text(text):
    assert escaped(text).isprintable()
    assert not re.search(r"(?<!\\)[%#_&$]", re.sub(r"\\text\w+\{\}", "", escaped(text))) and escaped(text).isascii()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("x;=cmd|' /C calc'!A0", "x;=cmd|' /C calc'!A0"),
        ("\n=1+1", "\\n=1+1"),
        ("\u3000@x", "\\u3000@x"),
        ("  -1", "'  -1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("\t+1", "\\t+1"),
        ('"=1"', '"=1"'),
        ("\u200b=1", "\\u200b=1"),
        ("a\x1bb", "a\\x1bb"),
    ],
)
def test_a_spreadsheet_computes_nothing_of_what_is_exported(text, cell, ids, tmp_path, capsys):
    told = facts(tmp_path, ids[0])
    (tmp_path / ids[0] / "config.json").write_text(json.dumps({**told, "config": {**told["config"], "odd": text}}))
    exported = command(capsys, "export", "--columns", "odd,seed")[1]
    assert exported.splitlines()[1] == f'"{cell.replace(chr(34), 2 * chr(34))}",{told["seed"]}'
    assert next(csv.DictReader(io.StringIO(exported)))["odd"] == cell


ODD = "\x1b]0;owned\x07 \u202egnp.exe\r\nsecond\u2028third \x9b2J"


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--columns", "id,algo_id,description,list"),
        ("export", "--columns", "algo_id,description,list"),
        ("export", "--columns", "algo_id,description,list", "--format", "latex"),
        ("export", "--columns", "algo_id", "--format", "json"),
        ("show",),
        ("show", "--json"),
        ("compare",),
        ("diff",),
    ],
    ids=" ".join,
)
def test_no_text_of_a_run_reaches_the_terminal_as_it_is(words, ids, tmp_path, capsys):
    told = facts(tmp_path, ids[0])
    config = {**told["config"], "algo_id": f"=1{ODD}", "description": ODD, "list": [ODD]}
    told |= {"config": config, "versions": {"torch": ODD, ODD: "1"}, "host": {"name": ODD}}
    (tmp_path / ids[0] / "config.json").write_text(json.dumps(told))
    first, *rest = (tmp_path / ids[0] / "metrics.csv").read_text().splitlines()
    names = f"{first},{ODD.split(chr(13))[0]}"
    (tmp_path / ids[0] / "metrics.csv").write_text("\n".join([names, *(f"{line},1" for line in rest)]) + "\n")
    chosen = {"show": ids[:1], "compare": ids[:2], "diff": ids[:2]}.get(words[0], [])
    code, said, wrong = command(capsys, *words, *chosen)
    assert code == 0, wrong
    assert said.replace("\n", "").isprintable() and "owned" in said


def test_tags_and_notes_stay_with_the_run(ids, tmp_path, capsys):
    assert command(capsys, "tag", ids[2], "good", "tuned")[0] == 0
    assert command(capsys, "note", ids[2], "50% less, _why_?")[0] == 0
    assert command(capsys, "tag", ids[2], "tuned", "--remove")[0] == 0
    assert read_labels(tmp_path / ids[2]) == Labels(("good",), "50% less, _why_?")
    assert [each["id"] for each in listed(capsys, "--filter", "tag=good")] == [ids[2]]
    (tmp_path / ids[2] / "labels.json").write_text('{"tags": ["../x"], "note": ""}')
    code, _, wrong = command(capsys, "tag", ids[2], "more")
    assert code == 2 and "labels.json is damaged" in wrong
    assert {each["id"]: each for each in listed(capsys)}[ids[2]]["status"] == "damaged"


def test_cleanup_keeps_the_best_the_recent_the_tagged_and_the_busy(ids, tmp_path, capsys):
    lines = {each["id"]: each for each in listed(capsys)}
    cartpoles = [each for each in lines.values() if each["env"] == "CartPole-v1" and each["status"] != "damaged"]
    best = max(cartpoles, key=lambda each: each["score"])["id"]
    tagged, busy, *others = [each["id"] for each in cartpoles if each["id"] != best]
    write_labels(tmp_path / tagged, Labels(("keep",), ""))
    words = ("cleanup", "--keep-best", "1", "--keep-recent", "1h", "--filter", "env=CartPole")
    code, told, _ = command(capsys, *words, "--dry-run")
    assert code == 0 and all(each in told for each in (busy, *others)) and best not in told and tagged not in told
    assert all((tmp_path / each).is_dir() for each in lines)
    before = {each: facts(tmp_path, each) for each in others}
    with locked(tmp_path / busy):
        code, told, wrong = command(capsys, *words, "--yes")
    assert code == 0 and f"stays: {busy} is being trained" in wrong
    assert {*lines} - {path.name for path in tmp_path.iterdir()} == {*others} and others
    for each in others:
        record = json.loads((tmp_path / "removed" / f"{each}.json").read_text())
        assert record["facts"] == before[each] and record["metrics"]["test/roll/ep_rew/mean"] > 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".") and path.is_dir()]


def test_what_is_recent_stays(ids, tmp_path, capsys):
    fresh = tmp_path / f"{time.strftime('%Y%m%d-%H%M%S')}-CartPole-v1-ppo-s1-now"
    (tmp_path / ids[0]).rename(fresh)
    assert command(capsys, "cleanup", "--keep-recent", "12h", "--yes")[0] == 0
    left = {path.name for path in tmp_path.iterdir()} & {fresh.name, *ids}
    assert left == {fresh.name, *ids[-3:]}  # nobody can say what the damaged are worth


def test_diff_finds_the_first_row(ids, tmp_path, capsys):
    text = (tmp_path / ids[0] / "metrics.csv").read_text().splitlines()
    twin = tmp_path / ids[1]
    (twin / "config.json").write_bytes((tmp_path / ids[0] / "config.json").read_bytes())
    cells = text[7].split(",")
    assert cells[1] == "7"  # wall time: is not looked at
    (twin / "metrics.csv").write_text("\n".join([*text[:7], ",".join([cells[0], "99", *cells[2:]]), *text[8:]]) + "\n")
    told = json.loads(command(capsys, "diff", ids[0], ids[1], "--json")[1])
    assert told["configs"] == {} and told["row"] == {"rows": [20, 20], "alike": 20}
    (twin / "metrics.csv").write_text(
        "\n".join([*text[:7], ",".join([*cells[:3], "0.25", *cells[4:]]), *text[8:]]) + "\n"
    )
    told = json.loads(command(capsys, "diff", ids[0], ids[1], "--json")[1])
    assert told["row"]["row"] == 7 and told["row"]["env_steps"] == 7000
    assert told["row"]["metrics"] == {"train/loss/policy": [float(cells[3]), 0.25]}
    assert "row 7, at 7,000 env steps" in command(capsys, "diff", ids[0], ids[1])[1]


def test_every_word_is_a_function_and_says_what_it_is_for(capsys):
    assert {*runs.SUBCOMMANDS} == {*COMMANDS}
    for word in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            runs.main([word, "--help"])
        assert ended.value.code == 0 and COMMANDS[word] in " ".join(capsys.readouterr().out.split())


def test_last_and_best_are_runs(ids, tmp_path, capsys):
    (tmp_path / "@last").symlink_to(ids[4])
    assert RunDir.find("@last").id == ids[4]
    assert json.loads(command(capsys, "show", "--json")[1])["id"] == ids[4]
