"""Windows of media time against what PyAV's demuxer finds in the same real files, added up here in plain Python.

That the tags themselves are PyAV's packets, codec by codec, is shown in sources/flv/test_ground_truth.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import av
import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs.plans import quick_plans
from headrace.pipeline.tables import stream_windows, tags, timeline
from tests.pipeline.flv_files import encode_tag, write_flv
from tests.pipeline.tables.rows import event, frame_of
from tests.unit.record.samples import make_flv, read_tags, run_ffmpeg

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

_AV1 = "-f lavfi -i testsrc=size=160x120:rate=25 -c:v libaom-av1 -usage realtime -cpu-used 8 -g 10".split()
WINDOWS_S = (1, 10, 60, 300, 3600)
WRAP = 1 << 32
# Long enough for a whole window of a minute, and an unfinished one.
CLIPS = {"h264": ("h264 and aac", 65.0), "audio": ("aac alone", 12.0), "video": ("h264 alone", 12.0)}
CASES = [*CLIPS, "hevc", "av1", "restarted"]


class Packet(NamedTuple):
    kind: str
    codec: str
    dts: int
    pts: int
    size: int
    is_keyframe: bool

    @property
    def payload_bytes(self) -> int:
        """FLV's payload: what a demuxer gives out, behind a header of the codec.

        5 bytes for AVC and 2 for AAC (FLV 10.1 E.4.3, E.4.2); Enhanced RTMP v2 has 5, and for HEVC 3 more with a
        composition time, which FFmpeg leaves out where it is 0.
        """
        header = {"h264": 5, "aac": 2, "libdav1d": 5, "hevc": 5 if self.pts == self.dts else 8}
        return self.size + header[self.codec]


class Window(NamedTuple):
    covered_ms: int
    messages: int
    video_bps: int | None
    audio_bps: int | None
    frames: int
    keyframes: int


Windows = dict[tuple[int, int], Window]  # by length in seconds, and start


def demuxed(path: Path) -> list[Packet]:
    with av.open(str(path)) as container:
        found = []
        for packet in container.demux():
            if packet.size:
                assert packet.dts is not None
                assert packet.pts is not None
                assert packet.time_base.denominator == 1000
                kind, codec = packet.stream.type, packet.stream.codec_context.name
                is_keyframe = kind == "video" and packet.is_keyframe
                found.append(Packet(kind, codec, packet.dts, packet.pts, packet.size, is_keyframe))
        return found


def windows_of(packets: Sequence[Packet]) -> Windows:
    """From packets whose dts is media time. A window that media goes beyond is whole; the last ends with it."""
    found: Windows = {}
    first_ms, end_ms = packets[0].dts, max(packet.dts for packet in packets) - packets[0].dts
    for window_s in WINDOWS_S:
        size_ms = 1000 * window_s
        for start_ms in range(0, end_ms + 1, size_ms):
            own = [packet for packet in packets if start_ms <= packet.dts - first_ms < start_ms + size_ms]
            covered_ms = min(end_ms - start_ms, size_ms)
            rates = [
                _rounded(8000 * sum(packet.payload_bytes for packet in own if packet.kind == kind), covered_ms)
                for kind in ("video", "audio")
            ]
            video = [packet for packet in own if packet.kind == "video"]
            keyframes = sum(packet.is_keyframe for packet in video)
            found[window_s, start_ms] = Window(covered_ms, len(own), rates[0], rates[1], len(video), keyframes)
    return found


def _rounded(value: int, divisor: int) -> int | None:
    return (2 * value + divisor) // (2 * divisor) if divisor else None


def join(path: Path, first: Path, second: Path) -> list[Packet]:
    """Both clips in one file: the first crosses 2^32, then the encoder starts anew, far from where it was.

    Media time goes on at the new start: its first frame is where the last one before it was.
    """
    clips = ((first, WRAP - 6000), (second, 500_000))
    moved = [
        encode_tag(one.type_id, one.payload, (one.timestamp_ms + offset_ms) % WRAP)
        for clip, offset_ms in clips
        for one in read_tags(clip)
    ]
    write_flv(path, moved)
    before, behind = demuxed(first), demuxed(second)
    joint_ms = before[-1].dts - behind[0].dts
    return before + [packet._replace(dts=packet.dts + joint_ms) for packet in behind]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("truth")


@pytest.fixture(scope="module")
def packets(folder: Path) -> dict[str, list[Packet]]:
    """Makes the files, and says what PyAV finds in each."""
    for name, (recipe, duration_s) in CLIPS.items():
        make_flv(file_of(folder, name), recipe, duration_s)
    make_flv(file_of(folder, "hevc"), "hevc and aac", 3.0)
    run_ffmpeg(*_AV1, "-t", "3", "-f", "flv", str(file_of(folder, "av1")))
    found = {name: demuxed(file_of(folder, name)) for name in CASES if name != "restarted"}
    with TemporaryDirectory() as elsewhere:
        clip = make_flv(Path(elsewhere) / "clip.flv", "h264 and aac", 13.0)
        found["restarted"] = join(file_of(folder, "restarted"), clip, clip)
    return found


@pytest.fixture(scope="module")
def built(spark: SparkSession, folder: Path, packets: dict[str, list[Packet]]) -> dict[str, Windows]:
    """The table's windows of every file, by one run for all."""
    opened = [
        event("recording_opened", 0, seq, path=str(file_of(folder, name)), stream=f"live/{name}", stream_id=name)
        for seq, name in enumerate(packets)
    ]
    with quick_plans(spark):
        events = frame_of(spark, opened)
        stream_tags = timeline.of_streams(events, tags.build(spark.read.format("flv").load(str(folder))))
        rows = stream_windows.build(events, stream_tags).collect()
    found: dict[str, Windows] = {name: {} for name in packets}
    for row in rows:
        assert (row.clock, row.stream) == ("media", f"live/{row.stream_id}")
        window = Window(*[row[name] for name in Window._fields])
        found[row.stream_id][row.window_s, row.start_ms] = window
    return found


def file_of(folder: Path, name: str) -> Path:
    return folder / f"live_{name}_20270115_080000.flv"


@pytest.mark.parametrize("name", CASES)
def test_windows_of_media_time_are_what_another_demuxer_adds_up_to(
    packets: dict[str, list[Packet]], built: dict[str, Windows], name: str
) -> None:
    assert built[name] == windows_of(packets[name])


def test_the_files_have_what_they_are_for(packets: dict[str, list[Packet]], built: dict[str, Windows]) -> None:
    kinds = {name: {packet.codec for packet in own} for name, own in packets.items()}
    assert kinds == {
        "h264": {"h264", "aac"},
        "audio": {"aac"},
        "video": {"h264"},
        "hevc": {"hevc", "aac"},
        "av1": {"libdav1d"},
        "restarted": {"h264", "aac"},
    }
    minutes = [built["h264"][60, start_ms] for start_ms in (0, 60_000)]
    assert [minute.frames for minute in minutes] == [1500, 125]
    assert minutes[0].keyframes == 150
    assert {window.frames for window in built["audio"].values()} == {0}
    assert {window.audio_bps for window in built["video"].values()} == {0}
    # 13 s twice, less what separates two frames.
    assert max(start_ms for size, start_ms in built["restarted"] if size == 1) == 26_000
