"""The runs that tests look at: made once however many ask, made again where they are damaged, never changed unseen."""

from threading import Thread

import gallery
import pytest
from gallery import MARKER, gallery_copies, gallery_copy, make


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of this test alone."""
    monkeypatch.setattr(gallery, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(gallery, "_copies", {})
    return tmp_path / "cache"


@pytest.fixture
def quick(cache, monkeypatch):
    """A recipe that writes down each time that it is followed, in this process."""
    times = []

    def recipe():
        times.append(1)
        gallery.RunDir.create("CartPole-v1", "ppo", 1, {"env_id": "CartPole-v1"})

    monkeypatch.setattr(gallery, "RECIPES", {"quick": recipe})
    monkeypatch.setattr(gallery, "_make_in_a_process", make)
    monkeypatch.setenv("STRIDE_RUNS", "")
    return times


def item(cache):
    return next(cache.glob("*/quick"))


@pytest.mark.parametrize("damage", [
    lambda folder: (folder / MARKER).unlink(),
    lambda folder: (folder / MARKER).write_text("{"),
    lambda folder: next((folder / "runs").glob("*/config.json")).write_text("{}"),
    lambda folder: next((folder / "runs").glob("*/config.json")).unlink(),
    lambda folder: (folder / "runs" / "more").touch(),
], ids=["no marker", "half a marker", "another file", "no file", "one more file"])  # fmt: skip
def test_what_is_damaged_is_made_again(cache, quick, tmp_path, damage):
    (first,) = gallery_copies("quick", tmp_path / "one")
    assert gallery_copies("quick", tmp_path / "two")[0].id == first.id and len(quick) == 1
    damage(item(cache))
    assert gallery_copy("quick", tmp_path / "three").facts() == first.facts() and len(quick) == 2


def test_a_copy_may_be_changed_and_a_run_to_read_may_not(cache, quick, tmp_path):
    run = gallery_copy("quick", tmp_path / "one")
    run.config_json.write_text("{}")
    reading = gallery.gallery("quick")
    assert reading.facts() == {"env_id": "CartPole-v1"} and gallery.gallery("quick") == reading
    assert not reading.config_json.stat().st_mode & 0o222
    (reading.path / "labels.json").touch()
    with pytest.raises(AssertionError, match="is to take gallery_copy"):
        gallery.gallery("quick")


def test_a_cache_that_others_may_write_to_is_refused(cache, quick, tmp_path):
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(AssertionError, match="others may write"):
        gallery_copy("quick", tmp_path)


def test_galleries_that_nobody_uses_are_removed_and_the_newest_stay(cache, quick, tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "QUIET", -1)
    for number in range(9):
        (cache / f"{number}").mkdir(parents=True, mode=0o700)
        gallery.os.utime(cache / f"{number}", (number, number))
    cache.chmod(0o700)
    gallery_copy("quick", tmp_path)
    left = {path.name for path in cache.iterdir() if path.is_dir()} - {gallery._key()}
    assert left == {str(number) for number in range(3, 9)}


def test_who_asks_while_it_is_made_waits_and_finds_it(quick, tmp_path, monkeypatch):
    other, recipe = Thread(target=make, args=("quick", tmp_path)), gallery.RECIPES["quick"]

    def slow():
        recipe()
        if len(quick) == 1:
            other.start()
            other.join(0.5)  # it would be done by then if it did not wait

    monkeypatch.setitem(gallery.RECIPES, "quick", slow)
    make("quick", tmp_path)
    other.join(60)
    assert not other.is_alive() and len(quick) == 1


def test_a_real_one_is_made_in_a_process_of_its_own():
    """Nothing that this process has changed is in it."""
    run = gallery.gallery("ppo")
    assert run.facts()["status"] == "finished" and run.id == "20260101-000101-CartPole-v1-ppo-s1-aaaa"
