"""Rows of real files against what PyAV's demuxer, whose code is not ours, finds in them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import av
import pytest
from pyspark.sql import SparkSession

from tests.unit.record.samples import RECIPES, run_ffmpeg

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

_AV1 = "-f lavfi -i testsrc=size=160x120:rate=25 -f lavfi -i sine=sample_rate=44100 -c:v libaom-av1 -usage realtime"
FILES = {
    "h264": RECIPES["h264 and aac"],
    "hevc": RECIPES["hevc and aac"],
    "av1": [*_AV1.split(), "-cpu-used", "8", "-g", "10", "-c:a", "aac"],
    "audio": RECIPES["aac alone"],
    "video": RECIPES["h264 alone"],
    "mp3": RECIPES["mp3 alone"],
}
# What stands in a payload before what a demuxer gives out (FLV 10.1 E.4.2, E.4.3; Enhanced RTMP v2).
HEADERS = {"h264": {5}, "hevc": {5, 8}, "av1": {5}, "aac": {2}, "mp3": {1}}


class Packet(NamedTuple):
    kind: str
    codec: str
    dts: int
    pts: int
    is_keyframe: bool
    body: bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("truth")
    for name, recipe in FILES.items():
        run_ffmpeg(*recipe, "-t", "1.5", "-f", "flv", str(folder / f"live_{name}_20260102_030405.flv"))
    return folder


def demuxed(path: Path) -> list[Packet]:
    with av.open(str(path)) as container:
        found = []
        for packet in container.demux():
            if packet.size and packet.dts is not None and packet.pts is not None:
                kind, codec = packet.stream.type, packet.stream.codec_context.name
                is_keyframe = kind == "video" and packet.is_keyframe
                found.append(
                    Packet(kind, _CODECS.get(codec, codec), packet.dts, packet.pts, is_keyframe, bytes(packet))
                )
        return found


_CODECS = {"libdav1d": "av1", "mp3float": "mp3"}


def test_rows_are_the_packets_that_another_demuxer_finds(spark: SparkSession, folder: Path) -> None:
    rows = spark.read.format("flv").option("payload", "true").load(str(folder)).orderBy("path", "byte_offset").collect()
    assert spark.read.format("flv").option("rows", "problems").load(str(folder)).collect() == []
    for name in FILES:
        path = folder / f"live_{name}_20260102_030405.flv"
        mine = [row for row in rows if row.path == str(path)]
        assert {row.stream for row in mine} == {f"live/{name}"}
        packets = demuxed(path)
        media = [row for row in mine if row.kind != "script" and not row.is_config and _is_frame(row.payload, row.kind)]
        assert len(media) == len(packets) > 20, name
        for row, packet in zip(media, packets, strict=True):
            assert row.size_bytes - len(packet.body) in HEADERS[row.codec]
            assert row.size_bytes == len(row.payload)
            body = bytes(row.payload[row.size_bytes - len(packet.body) :])
            found = Packet(
                row.kind,
                row.codec,
                row.timestamp_ms,
                row.timestamp_ms + (row.composition_ms or 0),
                row.is_keyframe,
                body,
            )
            assert found == packet
        assert sum(row.is_keyframe for row in media) == (0 if name in ("audio", "mp3") else 4)


def _is_frame(payload: bytearray, kind: str) -> bool:
    """Not the end of a sequence, nor the colours of a picture: a demuxer keeps those to itself."""
    if kind == "video" and payload[0] & 0x80:
        return payload[0] & 0x0F in (1, 3)  # Enhanced RTMP v2 VideoPacketType: CodedFrames and CodedFramesX
    return kind == "audio" or payload[1] == 1  # FLV 10.1 E.4.3.1 AVCPacketType: NALU
