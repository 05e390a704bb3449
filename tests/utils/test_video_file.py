"""Videos, decoded again: every frame is there, in the format that plays everywhere, whole or not at all."""

import numpy as np
import pytest

from stride.utils.video_file import VideoError, VideoFile

av = pytest.importorskip("av", reason="needs PyAV: pip install 'stride-rl[video]'")


def frames(count, height=40, width=60):
    """Grey levels that rise from frame to frame."""
    return [np.full((height, width, 3), 20 + 10 * i, np.uint8) for i in range(count)]


def write(path, pictures, fps=25.0, **options):
    with VideoFile(path, fps, **options) as video:
        for picture in pictures:
            video.add(picture)
    return path


@pytest.mark.parametrize(("height", "width", "fps"), [(40, 60, 25.0), (41, 61, 12.5)])
def test_what_was_written_is_read_again(tmp_path, height, width, fps):
    """Odd sides lose a pixel, and speeds may be fractions."""
    path = write(tmp_path / "a.mp4", frames(12, height, width), fps)
    assert 0 < path.read_bytes().index(b"moov") < path.read_bytes().index(b"mdat"), "the index stands in front"
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height, float(stream.average_rate)) == (60, 40, fps)
        levels = [frame.to_ndarray(format="rgb24").mean() for frame in container.decode(stream)]
    np.testing.assert_allclose(levels, [20 + 10 * i for i in range(12)], atol=3)


def test_every_frame_can_be_a_key_frame(tmp_path):
    for name, intra, keys in (("some.mp4", False, 1), ("all.mp4", True, 6)):
        with av.open(str(write(tmp_path / name, frames(6), all_intra=intra))) as container:
            assert sum(frame.key_frame for frame in container.decode(video=0)) == keys


def test_an_exception_leaves_nothing_and_the_old_file_stays(tmp_path):
    before = write(tmp_path / "a.mp4", frames(2)).read_bytes()
    with pytest.raises(KeyError), VideoFile(tmp_path / "a.mp4", 25) as video:
        video.add(frames(1)[0])
        raise KeyError
    assert (tmp_path / "a.mp4").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("pictures", [[], [np.zeros((40, 60, 3), np.float32)], [*frames(1), *frames(1, 42)]])
def test_what_is_no_video_is_refused(tmp_path, pictures):
    with pytest.raises(VideoError):
        write(tmp_path / "a.mp4", pictures)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(VideoError, match="cannot be written") as caught:
        write(tmp_path / "nowhere" / "a.mp4", frames(2))
    assert "\n" not in str(caught.value)
