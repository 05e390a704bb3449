"""A run goes on in the worlds that it began in, whatever `env_backend: auto` would choose today."""

import shutil

import pytest
from test_resume import PENDULUM, SHORT, ended, resumed, run, runs_folder  # noqa: F401  (a fixture)

from stride.config.loader import from_plain
from stride.envs_fast.bodies import registry as bodies
from stride.envs_gym.backends import choose_backend
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import read_json
from stride.trainer_callbacks.resume import find_resumption
from stride.utils.durable_file import write_json

NEW_KEYS = ("env_backend", "engine", "settings_sha256")
CHEETAH = (PENDULUM, *SHORT, "env_id=HalfCheetah-v5", "spec={}")


def of_an_older_version(run: RunDir, folder) -> RunDir:
    """A copy whose config.json and sidecars do not say which worlds were played."""
    old = RunDir(shutil.copytree(run.path, folder / "20250101-000000-HalfCheetah-v5-ppo-s1-aaaa", symlinks=True))
    for path in (old.config_json, *old.checkpoints.glob("*.json")):
        if not path.is_symlink():
            facts = read_json(path)
            write_json(path, {key: value for key, value in facts.items() if key not in NEW_KEYS})
    return old


@pytest.mark.slow
def test_a_run_that_played_gymnasiums_cheetah_goes_on_there(tmp_path, monkeypatch):
    """Where its config names gym; where auto took gym, before there were compiled bodies; where nothing was noted."""
    pytest.importorskip("mujoco")
    straight, named = run(*CHEETAH, "env_backend=gym"), run(*CHEETAH, "env_backend=gym", stop_at=9)
    with monkeypatch.context() as then:
        then.setattr(bodies, "why_not", lambda env_id, env_kwargs: "there are no compiled bodies")
        chosen = run(*CHEETAH, stop_at=9)
    config = from_plain(read_json(chosen.config_json)["config"])
    assert config.env_backend == "auto" and choose_backend(config).name == "fast"
    old = of_an_older_version(chosen, tmp_path)
    assert find_resumption(old.id, "", ()).config.env_backend == "gym"
    for stopped in (named, chosen):
        assert resumed(stopped) == ended(straight)
        facts = read_json(stopped.config_json)
        assert facts["env_backend"] == "gym" and facts["resumed"][0]["env_steps"] == 576
