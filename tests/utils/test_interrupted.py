"""A person's Ctrl-C, told apart from a KeyboardInterrupt that code raises by itself."""

import os
import signal
import threading

import pytest

from stride.utils.interrupted import CtrlC, Noted, by_signal, ctrl_c


def test_a_ctrl_c_is_a_keyboard_interrupt_of_its_own_kind():
    with pytest.raises(CtrlC) as caught, ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whose_it_is():
    assert by_signal(KeyboardInterrupt()) and by_signal(CtrlC()) and not by_signal(SystemExit())
    with ctrl_c():
        assert not by_signal(KeyboardInterrupt()) and by_signal(CtrlC())


def test_a_thread_and_other_listeners_are_left_alone():
    found = []

    def inside():
        with ctrl_c():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    with Noted() as noted:
        with ctrl_c():
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert found == [signal.default_int_handler] and noted.number == signal.SIGINT
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
