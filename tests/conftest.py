"""Before any test: a shell's `&` and nohup have the processes they start ignore signals, which is tested here."""

import os
import signal

os.environ.setdefault("STRIDE_CORES", "1")  # a process for each core is at work already

for number, usual in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
