"""What a demuxer sees: the packets of a file or a stream, as FFmpeg's framehash muxer lists them, and comparisons.

"Connected" is not "delivered": every comparison is of sizes, timestamps and hashes, packet by packet.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.integration.clips import AV_CLIENT, FFMPEG

# -copyts: what is compared are the stream's own timestamps, not FFmpeg's count from 0.
COPY_INPUT = ("-copyts",)
COPY_OUTPUT = ("-map", "0:v?", "-map", "0:a?", "-c", "copy", "-flush_packets", "1", "-f", "framehash", "-hash", "md5")

# Header lines of framehash that describe a track; the extradata is its sequence header. Others speak of the muxer.
_DESCRIPTION = re.compile(
    r"#(media_type|codec_id|dimensions|sample_rate|channel_layout_name|extradata) (\d+)[:,] *(.*)"
)

# What the two tracks may be apart at the start of a late joiner: the order in which a muxer sends them is by time,
# but a packet or two of sound may stand on either side of the keyframe.
_INTERLEAVING_MS = 120


class Packet(NamedTuple):
    track: str  # "video", "audio", "audio 2"
    dts_ms: int | None  # None where the demuxer could not tell
    pts_ms: int | None
    size: int
    digest: str

    def moved(self, offset_ms: int) -> Packet:
        dts_ms, pts_ms = (None if ms is None else (ms + offset_ms) % 2**32 for ms in (self.dts_ms, self.pts_ms))
        return self._replace(dts_ms=dts_ms, pts_ms=pts_ms)


@dataclass(frozen=True)
class PacketList:
    """Packets in the order in which they came, and what each track was said to be."""

    packets: list[Packet]
    tracks: dict[str, tuple[str, ...]]  # codec, dimensions or rate, hash of the sequence header

    def of(self, track: str) -> list[Packet]:
        return [packet for packet in self.packets if packet.track == track]

    @property
    def video(self) -> list[Packet]:
        return self.of("video")

    @property
    def audio(self) -> list[Packet]:
        return self.of("audio")

    def moved(self, offset_ms: int) -> PacketList:
        """The same, later, modulo 2^32."""
        return PacketList([packet.moved(offset_ms) for packet in self.packets], self.tracks)


def read_framehash(path: Path) -> PacketList:
    """A framehash file; its last line may be incomplete while it is being written."""
    text = path.read_text() if path.exists() else ""
    described: dict[str, list[str]] = {}
    packets: list[Packet] = []
    tracks: dict[str, str] = {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        if line.startswith("#"):
            if found := _DESCRIPTION.match(line):
                name, number, value = found.groups()
                if name == "media_type":
                    others = sum(track.startswith(value) for track in tracks.values())
                    tracks[number] = f"{value} {others + 1}" if others else value
                described.setdefault(number, []).append(f"{name} {value}")
            continue
        number, dts, pts, _duration, size, digest = (field.strip() for field in line.split(",")[:6])
        packets.append(Packet(tracks[number], _time(dts), _time(pts), int(size), digest))
    return PacketList(packets, {tracks[number]: tuple(lines) for number, lines in described.items()})


def _time(text: str) -> int | None:
    return None if text in ("None", "NOPTS") else int(text)


def packets_of(path: Path, *, by_pyav: bool = False) -> PacketList:
    """The packets of a file, demuxed by the same FFmpeg that plays."""
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "listing"
        command: list[str | Path] = [sys.executable, AV_CLIENT, "play", path, listing]
        if not by_pyav:
            command = [FFMPEG, "-v", "error", "-nostdin", *COPY_INPUT, "-i", path, *COPY_OUTPUT, listing]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{path} does not demux: {done.stderr}"
        return read_framehash(listing)


def decoding_errors(path: Path) -> str:
    """What FFmpeg complains about while it decodes all of a file; nothing, if the file is sound."""
    command = [FFMPEG, "-v", "error", "-nostdin", "-i", path, "-map", "0", "-f", "null", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr if done.returncode == 0 else f"exit {done.returncode}\n{done.stderr}"


def assert_same_packets(got: Sequence[Packet], sent: Sequence[Packet], what: str) -> None:
    """Equal, with the first difference told instead of two lists of hundreds."""
    for index, (ours, theirs) in enumerate(zip(got, sent, strict=False)):
        assert ours == theirs, f"{what}: packet {index} of {len(sent)} is {ours}, sent was {theirs}"
    assert len(got) == len(sent), f"{what}: {len(got)} packets, sent were {len(sent)}"


def assert_whole(got: PacketList, sent: PacketList) -> None:
    """Everything, from the first packet to the last."""
    assert got.tracks == sent.tracks
    for track in sent.tracks:
        assert_same_packets(got.of(track), sent.of(track), track)


def assert_from_first_keyframe(got: PacketList, sent: PacketList) -> None:
    """All the video, and the sound from there on: what a player gets that joins within the first group of pictures."""
    assert got.tracks == sent.tracks
    assert_same_packets(got.video, sent.video, "video")
    for track in sent.tracks:
        start = assert_suffix(got.of(track), sent.of(track), track)
        late_ms = _ms(sent.of(track)[start]) - _ms(sent.video[0])
        assert late_ms <= _INTERLEAVING_MS, f"{track} begins {late_ms} ms after the picture"


def assert_suffix(got: Sequence[Packet], sent: Sequence[Packet], what: str) -> int:
    """What was got is the end of what was sent, without a hole; where it begins."""
    if not sent:
        assert not got, f"{what}: {len(got)} packets of a track that was not sent"
        return 0
    assert got, f"{what}: nothing arrived of {len(sent)} packets"
    assert got[0] in sent, f"{what}: the first packet, {got[0]}, was never sent"
    start = sent.index(got[0])
    assert_same_packets(got, sent[start:], f"{what} from packet {start}")
    return start


def assert_monotonic(packets: Sequence[Packet], what: str) -> None:
    for before, after in pairwise(packets):
        assert _ms(before) < _ms(after), f"{what}: {after} came after {before}"


def _ms(packet: Packet) -> int:
    assert packet.dts_ms is not None, f"{packet} has no time"
    return packet.dts_ms
