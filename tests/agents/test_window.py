"""The window of finished episodes as a checkpoint holds it."""

import torch

from stride.agents.experience.collector import WINDOW, Window
from stride.commands.plain_tree import fingerprint


def test_numbers_of_episodes_that_still_run_are_not_saved():
    """A process that went on has them in the bin behind the window, one that was resumed has none."""
    went_on, resumed, loaded = (Window(torch.device("cpu")) for _ in range(3))
    ended = torch.tensor([[True, False]])
    returns, lengths = torch.tensor([[3.0, -1073.5], [7.0, 200.0]])[:, None]
    went_on.add(ended, returns, lengths)
    resumed.add(ended, returns * ended, lengths * ended)
    assert fingerprint(went_on.state_dict()) == fingerprint(resumed.state_dict())
    assert went_on.ring[0, WINDOW] == -1073.5  # the state itself is a copy
    loaded.load_state_dict(went_on.state_dict())
    expected = {"ep_rew/mean": 3.0, "ep_rew/best": 3.0, "ep_len/mean": 7.0, "episodes": 1.0}
    assert loaded.summary() == went_on.summary() == expected
