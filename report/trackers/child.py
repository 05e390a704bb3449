"""The process of a tracker (process_tracker.py starts it): reads messages at once, delivers them as they are taken."""

import json
import os
import sys
import threading
import time

from stride.report.trackers.tensorboard_events import TensorBoardEvents
from stride.report.trackers.tracker import BEGIN, END, TrackerQueue
from stride.report.trackers.trackio_run import TrackioRun
from stride.report.trackers.wandb_run import WandbRun
from stride.utils.streams import Outlet

TRACKERS = {"tensorboard": TensorBoardEvents, "wandb": WandbRun, "trackio": TrackioRun}
LINGER = 600.0  # seconds after the end of the training in which a server may still be slow
LINGER_ORPHANED = 30.0  # seconds where the training is gone without a word


def main(name: str) -> int:
    """`name`: of the tracker. Its errors end this process with a traceback, which the training looks up."""
    answers = Outlet(os.dup(1), "answers")
    os.dup2(2, 1)  # what packages print is no answer
    messages = TrackerQueue()
    tracker = TRACKERS[name]()
    threading.Thread(target=read, args=(messages,), daemon=True).start()
    call = ""
    while call != END:
        message = messages.get()
        tracker.receive(message)
        call = message["call"]
        if call in (BEGIN, END):
            dropped = f"{messages.dropped_rows:,} rows were dropped" if messages.dropped_rows else ""
            remark = "; ".join(filter(None, (tracker.remark, dropped)))
            answers.write(json.dumps({"location": tracker.location, "remark": remark}).encode() + b"\n")
    return 0


def read(messages: TrackerQueue) -> None:
    """The thread: read everything at once, so that the training never waits; then end the process after a while."""
    is_ended = False
    # not sys.stdin: the interpreter, as it ends, wants its lock, and aborts where this thread has it
    with open(0, "rb", closefd=False) as lines:
        for line in lines:
            if not line.endswith(b"\n"):  # the training was killed while it wrote
                break
            message = json.loads(line)
            messages.send(message)
            is_ended = message["call"] == END
    if not is_ended:
        messages.send({"call": END, "details": None})
    time.sleep(LINGER if is_ended else LINGER_ORPHANED)
    print("gave up: the server is too slow", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
