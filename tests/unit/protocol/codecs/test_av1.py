"""AV1 configuration records: clips of SVT-AV1 and libaom, and sequence headers by hand from AV1 5.5."""

from __future__ import annotations

import pytest

from headrace.errors import PeerError
from headrace.protocol.codecs import VideoParameters, describe_video_config, describe_video_frame
from headrace.protocol.media import VideoPacket, parse_video
from tests.unit.protocol.codecs.clips import Clip, VideoSource, bits, make_clip, run_ffmpeg

AOM = "-f lavfi -i testsrc=s={size}:r=30:d=0.1 -pix_fmt {pixels} -c:v libaom-av1 -usage realtime -cpu-used 8 "
SVT = (("preset", "12"),)


def last_config(packets: list[VideoPacket]) -> bytes:
    """FFmpeg's first sequence start is empty when the encoder has no header yet."""
    return [packet.tracks[0].body for packet in packets if packet.is_config][-1]


def clips() -> dict[str, Clip]:
    return {
        "svt, odd size": make_clip(VideoSource("libsvtav1", 638, 358, options=SVT)),
        "svt, 10 bits": make_clip(VideoSource("libsvtav1", pixels="yuv420p10le", options=SVT)),
        "aom, 4:4:4": run_ffmpeg(AOM.format(size="322x182", pixels="yuv444p")),
        "aom, monochrome": run_ffmpeg(AOM.format(size="322x182", pixels="gray")),
        "aom, 4:2:2 12 bits": run_ffmpeg(AOM.format(size="1280x720", pixels="yuv422p12le")),
    }


@pytest.mark.parametrize(
    "name", ["svt, odd size", "svt, 10 bits", "aom, 4:4:4", "aom, monochrome", "aom, 4:2:2 12 bits"]
)
def test_facts_are_those_that_ffmpeg_reads_from_the_same_record(name: str) -> None:
    clip = clips()[name]
    truth = clip.streams[0]
    packets = [parse_video(payload) for payload in clip.video_payloads]
    config = last_config(packets)
    facts = describe_video_config("av1", config)
    assert config == truth.extradata
    assert truth.level is not None
    assert facts == VideoParameters(
        "av1",
        profile=truth.profile,
        level=f"{2 + truth.level // 4}.{truth.level % 4}",
        width=truth.width,
        height=truth.height,
        frame_rate=None,
        bit_depth=truth.bit_depth,
        chroma=truth.chroma,
    )
    keyframe = next(packet for packet in packets if packet.is_keyframe)
    from_frame = describe_video_frame("av1", keyframe.tracks[0].body)
    assert (from_frame.width, from_frame.height) == (truth.width, truth.height)


def test_frame_rate_is_read_from_the_timing_of_the_sequence() -> None:
    clip = run_ffmpeg(
        AOM.format(size="322x182", pixels="yuv420p")
        + "-bsf:v av1_metadata=tick_rate=60000/1001:num_ticks_per_picture=2"
    )
    facts = describe_video_config("av1", last_config([parse_video(payload) for payload in clip.video_payloads]))
    assert facts.frame_rate == pytest.approx(30000 / 1001)
    assert facts.describe() == "av1 Main@2.0 322x182 29.97 fps"


RECORD = b"\x81\x09\x8c\x00"  # Main, level index 9 (4.1), tier 1, 8 bits 4:2:0

# Main; not still, not reduced; timing of 1 tick in 30 a second, equal intervals of one tick; a decoder model with
# 10 bits of delay; a display delay; two operating points: level 9 with tier, model and delay, level 4 without.
FULL_HEADER = bits(
    "000 0 0  1" + f"{1:032b}{30:032b}" + "1 1  1 01001" + f"{30:032b}" + "00000 00000  1 00001"
    "  000000000000 01001 1  1 0000000000 0000000000 0  1 0011"
    "  000000000000 00100  0  0"
    "  1010 1010  11101111111 10000110111"  # sides of 11 bits: 1920 and 1080 minus one
)
# A still picture with the reduced header: level, then sides of 9 and 8 bits, 400 x 224.
STILL_HEADER = bits("000 1 1 00000  1000 0111  110001111 11011111")


def obu(kind: int, body: bytes, extension: bytes = b"") -> bytes:
    """AV1 5.3.1: type, extension flag, size flag; bodies here stay below 128 bytes."""
    return bytes([kind << 3 | (4 if extension else 0) | 2]) + extension + bytes([len(body)]) + body


@pytest.mark.parametrize(
    ("obus", "width", "height", "frame_rate"),
    [
        (obu(1, FULL_HEADER), 1920, 1080, 30.0),
        (obu(2, b"") + obu(1, FULL_HEADER, extension=b"\x00"), 1920, 1080, 30.0),
        (obu(5, b"\x04" * 100) + obu(1, STILL_HEADER), 400, 224, None),
        (b"\x2a\xac\x02" + bytes(300) + obu(1, STILL_HEADER), 400, 224, None),
        (b"\x08" + STILL_HEADER, 400, 224, None),
        (b"\x0a\x89\x00" + STILL_HEADER + bytes(3), 400, 224, None),
    ],
    ids=[
        "every field",
        "behind a delimiter, with extension",
        "behind metadata",
        "behind 300 bytes",
        "without size",
        "padded size",
    ],
)
def test_a_sequence_header_written_by_hand(obus: bytes, width: int, height: int, frame_rate: float | None) -> None:
    facts = describe_video_config("av1", RECORD + obus)
    assert facts == VideoParameters("av1", "Main", "4.1 High tier", width, height, frame_rate, 8, "4:2:0")


def test_a_record_without_a_readable_sequence_header_keeps_what_it_says_itself() -> None:
    for obus in (b"", obu(2, b""), obu(1, b""), b"\x0a\x80", b"\x0a" + b"\x80" * 9, obu(2, b"") * 20, FULL_HEADER):
        facts = describe_video_config("av1", RECORD + obus)
        assert facts == VideoParameters("av1", "Main", "4.1 High tier", bit_depth=8, chroma="4:2:0")


def test_the_descriptor_of_mpeg2_ts_holds_the_same_four_bytes() -> None:
    facts = describe_video_config("av1", b"\x80\x04\x81\x3f\x6c\x00")
    assert facts == VideoParameters("av1", "High", "maximum", bit_depth=12, chroma="4:2:0")


@pytest.mark.parametrize("bad", [b"\x81\x09\x8c", b"\x01\x09\x8c\x00", b"\x80\x04\x81\x09"])
def test_what_is_no_av1c_is_the_peers_error(bad: bytes) -> None:
    with pytest.raises(PeerError, match="av1C"):
        describe_video_config("av1", bad)
