"""What TensorBoard's own reader finds in the files of a run."""

import math
import os

import numpy as np
import pytest
from told_run import RETURN, STEPS, begun, tell

from stride.report.trackers import async_tracker
from stride.report.trackers.registry import async_trackers
from stride.report.trackers.tensorboard_events import TensorBoardEvents
from stride.utils.video_file import VideoFile

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
LOSS = "train/loss/policy"


def read(run):
    reader = accumulators.EventAccumulator(str(run.logs))
    reader.Reload()
    return reader


def test_a_run_that_goes_on_voids_what_comes_after(monkeypatch):
    for name in ("PATIENCE", "HURRY"):
        monkeypatch.setattr(async_tracker, name, 120)
    run, header, config = begun("logger=[tensorboard]", "notes=hello")
    (first,) = async_trackers(run, config.logger)
    tell([first], run, header, config, end=False)
    first.end(None)  # as after a signal: all it was told is written
    (before,) = run.logs.glob("events.out.tfevents.*")
    os.rename(before, before.with_name("events.out.tfevents.1"))  # read first, however short a time lies between
    tell(async_trackers(run, config.logger, env_steps=20), run, header, config, rows=1)  # a run that goes on from 20
    reader = read(run)
    assert {*reader.Tags()["scalars"]} == {STEPS, RETURN, LOSS}
    assert [(scalar.step, scalar.value) for scalar in reader.Scalars(LOSS)] == [(10, -0.25), (20, -0.25), (10, -0.25)]
    words = {tag: reader.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in reader.Tags()["tensors"]}
    assert words["notes"] == "hello" and words["verdict"].startswith("Solved (10 episodes; goal reached), test 490.5")
    assert "policy_lr" in words["config"] and "lower it" in words["alerts/Policy loss"]


def test_every_row_a_video_and_numbers_beyond_four_bytes(tmp_path):
    run, header, config = begun()
    with VideoFile(tmp_path / "film.mp4", 30) as video:
        for shade in range(10):
            video.add(np.full((64, 96, 3), shade, np.uint8))
    tracker = TensorBoardEvents()
    tracker.begin(async_tracker.run_details(run, header, config, 0))
    tracker.row(3, {LOSS: 1e300, RETURN: math.nan})
    tracker.video(3, str(tmp_path / "film.mp4"))
    tracker.end(None)
    reader = read(run)
    (image,) = reader.Images("video")
    assert (image.width, image.height) == (160, 107) and image.encoded_image_string.startswith(b"GIF89a")
    assert [(scalar.step, scalar.value) for scalar in reader.Scalars(LOSS)] == [(3, math.inf)]
    assert math.isnan(reader.Scalars(RETURN)[0].value) and tracker.location.startswith("tensorboard --logdir ")
