"""The generated pages are up to date, and one that is not is noticed."""

from lab import write_docs


def test_the_pages_are_checked(tmp_path, monkeypatch, capsys):
    assert write_docs.main(["--check"]) == 0
    monkeypatch.setattr(write_docs, "FOLDER", tmp_path)
    assert write_docs.main([]) == 0 and write_docs.main(["--check"]) == 0
    (tmp_path / "wrappers.md").write_text("# Old\n")
    assert write_docs.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/wrappers.md is stale: run python -m lab.write_docs\n"
