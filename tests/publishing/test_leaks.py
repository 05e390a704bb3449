"""What a person wrote is read before it goes out: no secret, place or address passes, no harmless text is stopped."""

import json
import os
import random
import socket
from pathlib import Path

import pytest
from gallery import gallery_copy

from lab.faults import leaks
from stride.agents.trained.loading import load_run
from stride.commands import run_publish
from stride.publishing.facts import findings, public_facts, refuse, shown, written_texts
from stride.publishing.metrics_table import read_metrics, write_metrics
from stride.publishing.own_secrets import MACHINE_OR_USER, find_own, is_secret_name
from stride.publishing.scanner import scan
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

HARMLESS = Path(__file__).with_name("harmless.txt")
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
FORMS = [form for forms in {**leaks.TOLD, **leaks.OURS}.values() for form in forms]


def test_no_secret_passes_no_harmless_text_is_stopped_and_no_finding_shows_what_it_found(monkeypatch):
    draw = random.Random(0)
    assert len(FORMS) >= 56 + 100
    assert [text for form in FORMS for text in leaks.passed(form, draw, 1)[1]] == []
    assert leaks.passed_variables(leaks.VARIABLES) == [] and list(leaks.passed_doors()) == []
    texts, refused = leaks.refused_harmless(HARMLESS)
    variants, refused_variants = leaks.refused_variants()
    names = ["PWD", "TOKENIZERS_PARALLELISM", "KEYBOARD", "AUTHOR", "PATH", "PINS_PER_ROW", "LANG"]
    assert texts >= 100 and variants >= 32
    assert refused == refused_variants == [*filter(is_secret_name, names)] == []
    for form in FORMS:
        text = leaks.filled(form, random.Random(1))
        for found in scan("description", text, ()):
            shown = str(found).partition(": ")[2].removesuffix(f"... ({len(found.text)} characters)")
            assert len(shown) <= 3 and len(shown) * 4 <= max(4, len(found.text)), (form, found)
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setattr(socket, "gethostname", lambda: "deepthought")
    own = find_own(environment={})
    assert not scan("description", "root mean square", own)
    assert [found.kind for found in scan("description", "Deepthought did it", own)] == [MACHINE_OR_USER]


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    """A copy of the tiny run, to be spoilt."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return load_run(gallery_copy("ppo", tmp_path / "runs").id)


def change(loaded, **config):
    """Other values in its config.json."""
    facts = json.loads(loaded.run.config_json.read_text())
    facts["config"].update(config)
    loaded.run.config_json.write_text(json.dumps(facts))


def dry_run(capsys, loaded, folder, *words):
    code = run_publish.command(["--run-id", loaded.run.id, "--dry-run", str(folder), *words])
    return code, capsys.readouterr()


HOME = "/home/alice/x"
LEAKS = {  # where a text may stand, {} for config -> the config that has it there
    "{}.description": {"description": "see /home/alice/notes"},
    "{}.env_kwargs": {"env_kwargs": {"sutton_barto_reward": False, "note": HOME}},
    "{}.env_wrappers": {"env_wrappers": [{"id": "TimeLimit", "max_episode_steps": 9, "note": "password=hunter2"}]},
    "{}.spec.rewards": {"spec": {"rewards": {"alive": "mail alice@example.org"}}},
    "a name in {}.spec.rewards": {"spec": {"rewards": {HOME: "+1"}}},
    "{}.spec.actions[1]": {"spec": {"actions": ["left", "C:\\Users\\alice"]}},
    "{}.spec.source": {"spec": {"source": "https://bob:hunter2@example.org"}},
}


@pytest.mark.parametrize("place", LEAKS)
def test_every_text_of_a_config_is_read(loaded, place):
    facts, changes = public_facts(loaded), LEAKS[place]
    facts["config"] |= {**changes, "spec": {**facts["config"]["spec"], **changes.get("spec", {})}}
    place = place.format("config")
    found = findings(written_texts(facts), ())
    assert found and found[0].place.startswith(place), found
    with pytest.raises(UserError, match="nothing was published") as caught:
        refuse(found)
    line = str(caught.value)
    assert place in line and "alice" not in line and "hunter2" not in line and "\n" not in line


def test_a_secret_of_this_machine_is_never_allowed_and_what_else_is_refused_may_be(
    hub, loaded, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("DB_PASS", "swordfish-7")
    change(loaded, description="with swordfish-7")
    code, captured = dry_run(capsys, loaded, tmp_path / "out", "--allow-text")
    assert code == 2 and "contains the value of $DB_PASS; nothing was published" in captured.err
    assert not (tmp_path / "out").exists()
    change(loaded, description="see /home/alice/notes")
    code, captured = dry_run(capsys, loaded, tmp_path / "out")
    assert code == 2 and len(captured.err.splitlines()) == 1 and not (tmp_path / "out").exists()
    assert "config.description contains what looks like a path" in captured.err and "alice" not in captured.err
    code, captured = dry_run(capsys, loaded, tmp_path / "out", "--allow-text")
    assert code == 0 and "to send    config.description: see /home/alice/notes" in captured.out
    assert "allowed    config.description contains what looks like a path" in captured.out
    assert "see /home/alice/notes" in (tmp_path / "out" / "README.md").read_text()


def test_the_shipped_texts_are_few_lines_and_facts_without_a_form_of_their_own_stay_here(loaded):
    lines = shown(written_texts(public_facts(loaded)))
    assert any(line == "config.spec.actions: push left | push right" for line in lines) and len(lines) <= 8
    loaded.facts.update(command="python train.py /home/alice", host={"name": "deepthought"}, notes="alice", tags=["a"])
    loaded.facts["versions"] = {"torch": "2 from /home/alice", "alice": "1"}
    facts = public_facts(loaded)
    assert not {"command", "host", "notes", "tags"} & facts.keys() and facts["versions"].keys() == {"torch"}
    assert [each.place for each in findings(written_texts(facts), ())] == ["versions.torch"]


def link(path):
    (path.parent / "id_rsa").write_text(KEY)
    path.unlink()
    path.symlink_to(path.parent / "id_rsa")


def fifo(path):
    path.unlink()
    os.mkfifo(path)


SPOIL = {
    "junk": lambda path: path.write_text(KEY),
    "link": link,
    "column": lambda path: path.write_text(path.read_text().replace("\n", ",hf_secret\n", 1)),
    "fifo": fifo,
}


@pytest.mark.parametrize("kind", SPOIL)
def test_metrics_that_are_no_metrics_are_refused(hub, loaded, capsys, tmp_path, kind):
    SPOIL[kind](loaded.run.metrics_csv)
    code, captured = dry_run(capsys, loaded, tmp_path / "out")
    assert code == 2 and "metrics.csv" in captured.err and len(captured.err.splitlines()) == 1, captured
    assert "PRIVATE" not in captured.err + captured.out and "hf_secret" not in captured.err
    assert not (tmp_path / "out").exists()


def test_metrics_are_written_anew_from_numbers_if_there_are_rows(loaded):
    head, first, *rest = loaded.run.metrics_csv.read_text().split("\n")
    spoilt = [head, first, first.replace("1", "hunter2", 1), "half,a,line", *rest]
    loaded.run.metrics_csv.write_text("\n".join(spoilt))
    assert write_metrics(read_metrics(loaded.run)).decode() == "\n".join([head, first, *rest])
    loaded.run.metrics_csv.unlink()
    assert read_metrics(RunDir(loaded.run.path)) == []
