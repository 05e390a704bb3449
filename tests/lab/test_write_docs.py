"""The generated pages are up to date, and one that is not is noticed."""

from lab import write_docs
from lab.site import measured


def test_the_pages_are_checked(tmp_path, monkeypatch, capsys):
    assert write_docs.main(["--check"]) == 0
    monkeypatch.setattr(write_docs, "FOLDER", tmp_path)
    monkeypatch.setattr(write_docs, "README", tmp_path / "README.md")
    write_docs.README.write_text(
        "<!-- generated: resumed -->\nOld.\n<!-- end -->\n<!-- sample -->\nOld.\n<!-- /sample -->\n"
    )
    monkeypatch.setattr(measured, "sample", lambda: "New.")
    assert write_docs.main(["--check"]) == 1
    assert "README.md is stale: run python -m lab.write_docs\n" in capsys.readouterr().err
    assert write_docs.main(["--sample"]) == 0 and write_docs.main(["--check"]) == 0
    assert "New." in write_docs.README.read_text() and "Old." not in write_docs.README.read_text()
    (tmp_path / "wrappers.md").write_text("# Old\n")
    assert write_docs.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/wrappers.md is stale: run python -m lab.write_docs\n"
