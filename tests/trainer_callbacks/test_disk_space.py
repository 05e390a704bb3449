"""What ran out is one line that says how to go on."""

import errno
import os

import pytest

from stride.config.schema import Config
from stride.trainer_callbacks.shortage import ShortageError, shortage_errors


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ESTALE])
def test_descriptors_and_disk_that_ran_out_are_told_in_a_line(number):
    whole = pytest.raises(ShortageError, match=rf"{os.strerror(number)} \(a.ckpt\): .* whole; go on so")
    with whole, shortage_errors(Config("CartPole-v1", "ppo"), "go on so"):
        raise OSError(number, os.strerror(number), "a.ckpt")
