"""The benchmark of image networks: what it times and tells, not how fast anything is."""

import json
from concurrent.futures import Executor, Future

import pytest
import torch

from lab.bench import atari
from stride.utils.user_error import UserError


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Here(Executor):
    """Does it at once, in this process: others take seconds to begin."""

    def __init__(self, *_):
        pass

    def submit(self, work, *words):
        future = Future()
        future.set_result(work(*words))
        return future


@pytest.mark.parametrize("pool", [Here, pytest.param(None, marks=pytest.mark.slow)])
def test_trainings_of_pictures_are_told_by_both_clocks_and_in_parts(pool, tmp_path, monkeypatch, capsys):
    if pool:
        monkeypatch.setattr(atari, "ProcessPoolExecutor", pool)
    tiny = ("n_envs=2", "n_steps=4", "n_epochs=2", "batch_size=0.5", *atari.WORK[4:])
    monkeypatch.setattr(atari, "WORK", tiny)
    monkeypatch.setattr(atari, "find_spec", lambda _: None)  # Stable-Baselines3 takes seconds to import
    file = tmp_path / "figures.json"
    assert atari.main(["--env", "pictures", "--iterations", "1", "--repeats", "2", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    for clock in ("wall", "cpu"):
        assert [*figures["table"][clock]] == ["ours", "ours, bf16", "cleanrl style"]
        assert all(len(found["all"]) == 2 and found["median"] > 0 for found in figures["table"][clock].values())
    parts = figures["parts"]
    assert 0 < parts["act"] < parts["collect"] and 0 < parts["judge"] + parts["update"] < parts["learn"]
    assert "2 worlds x 4 steps, 2 epochs x 2 minibatches" in capsys.readouterr().out


def test_a_step_multiplies_what_its_layers_do():
    config = atari.work(atari.PICTURES, 1)
    agent = atari.build_agent(config, atari.make_envs(config, 1))
    net = agent.policy.encoder.leaf[0]
    places = [20 * 20, 9 * 9, 7 * 7, 1]  # where each layer is applied
    layers = [layer for layer in net.modules() if hasattr(layer, "weight")]
    forward = sum(layer.weight.numel() * many for layer, many in zip(layers, places, strict=True))
    assert forward == atari.FORWARD and layers[0].weight.numel() * 400 == atari.FIRST
    assert atari.flops(config) == 2 * (2 * forward + 4 * (3 * forward - atari.FIRST))


def test_what_is_no_game_is_refused():
    with pytest.raises(UserError, match="takes a game of ale-py, ALE/Pong-v5 say, or pictures, not CartPole-v1"):
        atari.main(["--env", "CartPole-v1"])
