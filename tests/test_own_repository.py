"""A repository that has environments: `stride new --here`, and errors that name the file that is almost right."""

import tomllib

import pytest

from stride.commands import new
from stride.commands.train_arguments import parse_arguments
from stride.config.general import load_general
from stride.envs_gym.task import task_of
from stride.utils.places import current_project, project_around
from stride.utils.user_error import UserError

PLANT = (
    'import gymnasium\n\ngymnasium.register(\n    "Plant-v0", "plant:Plant")\nraise RuntimeError("it was imported")\n'
)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder with a module that registers an environment, in which one stands; it is no project."""
    (tmp_path / "plant.py").write_text(PLANT)
    monkeypatch.chdir(tmp_path)
    project_around.cache_clear()
    yield tmp_path
    project_around.cache_clear()


def test_it_becomes_a_project_and_loses_nothing(repository, capsys):
    before = '[project]\nname = "plant"  # mine'
    (repository / "pyproject.toml").write_text(before)
    assert new.main(["--here"]) == 0
    text = (repository / "pyproject.toml").read_text()
    assert text.startswith(before) and tomllib.loads(text)["tool"]["stride"]["imports"] == ["plant"]
    assert capsys.readouterr().out.endswith("Plant-v0:ppo\n")
    project_around.cache_clear()
    assert current_project().imports == ("plant",) and (repository / "configs" / "schema.json").is_file()
    with pytest.raises(UserError, match="already"):
        new.main(["--here"])
    assert (repository / "pyproject.toml").read_text() == text


@pytest.mark.parametrize("text", ["[project", b"\xff", "[tool.stride]\nruns = 3\n"])
def test_a_damaged_pyproject_stays_as_it_is(repository, text):
    data = text if isinstance(text, bytes) else text.encode()
    (repository / "pyproject.toml").write_bytes(data)
    with pytest.raises(UserError, match=r"pyproject\.toml: "):
        new.main(["--here"])
    assert (repository / "pyproject.toml").read_bytes() == data and not (repository / "configs").exists()


def test_a_link_is_not_written_through(repository, tmp_path_factory):
    target = tmp_path_factory.mktemp("other") / "pyproject.toml"
    target.write_text("")
    (repository / "pyproject.toml").symlink_to(target)
    with pytest.raises(UserError, match="is a link"):
        new.main(["--here"])
    assert target.read_text() == ""


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ("Plant-v0.yaml", r"--config Plant-v0\.yaml"),
        ("configs/Plant-v0.yaml", "stride new --here"),
        ("unrelated.yaml", "write plant:Plant-v0"),
    ],
)
def test_an_unknown_environment_names_the_file_that_is_almost_right(repository, file, advice):
    path = repository / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("env_id: Plant-v0\n")
    with pytest.raises(UserError, match=advice):
        parse_arguments(["Plant-v0"]).load()
    with pytest.raises(UserError, match=advice):
        load_general("Plant-v0:ppo", [], task_of)
