"""The nearest names at the end of an error line."""

from stride.utils.user_error import UserError, nearest


def test_nearest():
    options = ["n_steps", "n_epochs", "policy_lr", "CartPole-v1"]
    assert nearest("n_step", options) == "; did you mean n_steps?"
    assert nearest("n_epos", options) == "; did you mean n_epochs, n_steps?"  # best first
    assert nearest("n_epos", options, n=1) == "; did you mean n_epochs?"
    assert nearest("cartpole-V1", options) == "; did you mean CartPole-v1?"  # case does not matter
    assert nearest("lr", options) == "; did you mean policy_lr?"  # a part of the word
    assert nearest("zzz", options) == nearest("", options) == nearest("x", []) == ""
    assert isinstance(UserError("x"), ValueError)
