"""The window of finished episodes as a checkpoint holds it."""

import torch

from stride.agents.experience.collector import WINDOW, Window
from stride.commands.plain_tree import fingerprint


def test_what_was_thrown_away_is_not_saved():
    """A process that went on has the numbers of running episodes there, one that was resumed has none."""
    went_on, resumed = Window(torch.device("cpu")), Window(torch.device("cpu"))
    ended = torch.tensor([[True, False]])
    returns, lengths = torch.tensor([[3.0, -1073.5], [7.0, 200.0]])[:, None]
    went_on.add(ended, returns, lengths)
    resumed.add(ended, returns * ended, lengths * ended)
    assert fingerprint(went_on.state_dict()) == fingerprint(resumed.state_dict())
    assert went_on.ring[0, WINDOW] == -1073.5  # the state itself is a copy
    loaded = Window(torch.device("cpu"))
    loaded.load_state_dict(went_on.state_dict())
    assert loaded.summary() == went_on.summary() == {
        "ep_rew/mean": 3.0, "ep_rew/best": 3.0, "ep_len/mean": 7.0, "episodes": 1.0,
    }  # fmt: skip
