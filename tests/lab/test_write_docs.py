"""The generated page is up to date, and one that is not is noticed."""

from lab import write_docs


def test_the_page_is_checked(tmp_path, monkeypatch, capsys):
    assert write_docs.main(["--check"]) == 0
    stale = tmp_path / "config.md"
    stale.write_text("# Old\n")
    monkeypatch.setattr(write_docs, "PAGE", stale)
    monkeypatch.setattr(write_docs, "PROJECT", tmp_path)
    assert write_docs.main(["--check"]) == 1 and "stale" in capsys.readouterr().err
    assert write_docs.main([]) == 0 and write_docs.main(["--check"]) == 0
