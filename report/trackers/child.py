"""The process of a tracker (in_child.py starts it): reads news at once, and brings them as fast as they are taken."""

import json
import os
import sys
import threading
import time

from stride.report.trackers.mailbox import Mailbox
from stride.report.trackers.tensorboard_events import TensorBoardEvents
from stride.report.trackers.tracker import BEGIN, END
from stride.report.trackers.trackio_run import TrackioRun
from stride.report.trackers.wandb_run import WandbRun
from stride.utils.streams import Outlet

TRACKERS = {"tensorboard": TensorBoardEvents, "wandb": WandbRun, "trackio": TrackioRun}
LINGER = 600.0  # seconds after the end of the training in which a server may still be slow
SOON = 30.0  # the same where whoever trained is gone without a word


def main(name: str) -> int:
    """`name`: of the tracker. Its errors end this process with a traceback, which whoever started it looks up."""
    answers = Outlet(os.dup(1), "answers")
    os.dup2(2, 1)  # what packages print is no answer of ours
    box, tracker = Mailbox(), TRACKERS[name]()
    threading.Thread(target=read, args=(box,), daemon=True).start()
    call = ""
    while call != END:
        news = box.take()
        tracker.tell(news)
        call = news["call"]
        if call in (BEGIN, END):
            lost = f"{box.lost:,} rows were dropped" if box.lost else ""
            said = {"where": tracker.where, "remark": "; ".join(filter(None, (tracker.remark, lost)))}
            answers.write(json.dumps(said).encode() + b"\n")
    return 0


def read(box: Mailbox) -> None:
    """The thread: whatever is told, so that nobody waits for us; then only so long a rest."""
    ended = False
    # not sys.stdin: the interpreter, as it ends, wants the lock of that, and aborts where this thread has it
    with open(0, "rb", closefd=False) as told:
        for line in told:
            if not line.endswith(b"\n"):  # whoever trained was killed while it wrote
                break
            news = json.loads(line)
            box.put(news)
            ended = news["call"] == END
    if not ended:
        box.put({"call": END, "facts": None})
    time.sleep(LINGER if ended else SOON)
    print("gave up: the server is too slow", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
