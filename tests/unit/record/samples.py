"""Media for the tests of FLV and of recordings: made by real FFmpeg, or written out by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import av
import imageio_ffmpeg

from headrace.protocol.flv import FlvReader, Tag
from headrace.protocol.messages import AUDIO, DATA, VIDEO
from headrace.stream.log import Entry, LogLimits, StreamLog

DEADLINE_S = 30
MEDIA_HASHES = "-map 0:v? -map 0:a? -c copy -copyts -f framehash -".split()

_PICTURE = ["-f", "lavfi", "-i", "testsrc=size=160x120:rate=25"]
_SOUND = ["-f", "lavfi", "-i", "sine=sample_rate=44100"]
_X264 = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "10", "-pix_fmt", "yuv420p"]
_X265 = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:keyint=10"]
_AAC = ["-c:a", "aac"]

# What FFmpeg 7.0.2 can put into an FLV file.
RECIPES = {
    "h264 and aac": [*_PICTURE, *_SOUND, *_X264, *_AAC],
    "h264 alone": [*_PICTURE, *_X264],
    "aac alone": [*_SOUND, *_AAC],
    "mp3 alone": [*_SOUND, "-c:a", "libmp3lame"],
    "hevc and aac": [*_PICTURE, *_SOUND, *_X265, *_AAC],
    "h264 and aac of another size": [
        "-f", "lavfi", "-i", "testsrc=size=192x144:rate=25",
        "-f", "lavfi", "-i", "sine=sample_rate=22050", *_X264, *_AAC,
    ],
}  # fmt: skip

# Written out from FLV 10.1, E.4: an AVC header, a keyframe, a frame between; an AAC header and a frame.
AVC_HEADER = bytes.fromhex("17 00 000000 01 64000b ff e1 0000 01 0000")
AVC_KEYFRAME = bytes.fromhex("17 01 000000 00000002 6588")
AVC_FRAME = bytes.fromhex("27 01 000000 00000002 419a")
AAC_HEADER = bytes.fromhex("af 00 1210")
AAC_FRAME = bytes.fromhex("af 01 2110")
METADATA = bytes.fromhex("02 000a 6f6e4d65746144617461 08 00000000 000009")
CUE_POINT = bytes.fromhex("02 000a 6f6e437565506f696e74 05")

NO_LIMITS = LogLimits(retain_s=1e9, max_bytes=1 << 40, max_messages=1 << 40)


class Sent(NamedTuple):
    """A message as a publisher sends it, and as it must be found in a file."""

    type_id: int
    timestamp_ms: int
    payload: bytes


class Packet(NamedTuple):
    """What a demuxer makes of a tag."""

    kind: str
    dts: int | None
    pts: int | None
    body: bytes


def make_flv(path: Path, recipe: str, duration_s: float = 2.0) -> Path:
    run_ffmpeg(*RECIPES[recipe], "-t", str(duration_s), "-f", "flv", str(path))
    return path


def run_ffmpeg(*arguments: str) -> tuple[str, str]:
    """Standard output and error of a run at `-v error`: an empty second part is a file without a flaw."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-nostdin", "-n", "-v", "error", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(), done.stderr.decode()


def assert_plays(path: Path) -> None:
    """FFmpeg decodes all of it and has nothing to complain about."""
    _, complaints = run_ffmpeg("-i", str(path), "-f", "null", "-")
    assert complaints == ""


def frame_hashes(path: Path) -> list[str]:
    """One line per packet, as FFmpeg demuxes it: stream, dts, pts, duration, size, hash."""
    output, complaints = run_ffmpeg("-i", str(path), *MEDIA_HASHES)
    assert complaints == ""
    return [line for line in output.splitlines() if not line.startswith("#")]


def demux(path: Path) -> list[Packet]:
    """The packets of a file according to PyAV. onMetaData is none, if it is where FFmpeg expects it."""
    with av.open(str(path)) as container:
        streams = list(container.streams)
        assert {stream.type for stream in streams} <= {"audio", "video"}
        return [
            Packet(packet.stream.type, packet.dts, packet.pts, bytes(packet))
            for packet in container.demux(streams)
            if packet.size
        ]


def read_tags(path: Path) -> list[Tag]:
    """All tags of a file that must be whole to its last byte."""
    reader = FlvReader()
    tags = reader.receive(path.read_bytes())
    assert reader.finish() == 0
    return tags


def sent(tags: Iterable[Tag]) -> list[Sent]:
    return [Sent(tag.type_id, tag.timestamp_ms, tag.payload) for tag in tags]


def contents(path: Path) -> list[Sent]:
    return sent(read_tags(path))


def logged(messages: Iterable[Sent]) -> list[Entry]:
    """The messages as entries of a log."""
    log = StreamLog(NO_LIMITS)
    return [log.append(*message) for message in messages]


def video(timestamp_ms: int, payload: bytes = AVC_FRAME) -> Sent:
    return Sent(VIDEO, timestamp_ms, payload)


def audio(timestamp_ms: int, payload: bytes = AAC_FRAME) -> Sent:
    return Sent(AUDIO, timestamp_ms, payload)


def data(timestamp_ms: int, payload: bytes = METADATA) -> Sent:
    return Sent(DATA, timestamp_ms, payload)
