"""The program of a tracker's process, which process_tracker.py starts: `python -m ...child wandb`.

One thread reads messages from stdin at once; the main thread passes them to the tracker, which may be slow.
"""

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
LINGER = 600.0  # seconds after the training's end until this process gives up a slow server
LINGER_ORPHANED = 30.0  # seconds if the training was killed and sent no end


def main(name: str) -> int:
    """Run the tracker `name`. Its errors end this process with a traceback, which process_tracker.py reads."""
    answers = Outlet(os.dup(1), "answers")
    os.dup2(2, 1)  # stdout is for answers only: what packages print goes to stderr
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
    """Read everything at once, so that the training never waits; then end the process after LINGER; a thread."""
    is_ended = False
    # not sys.stdin: at its end the interpreter takes sys.stdin's lock, and aborts if this thread holds it
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
