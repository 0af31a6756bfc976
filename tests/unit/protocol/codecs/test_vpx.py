"""VP8 and VP9: records and keyframes of libvpx, and headers by hand from RFC 6386 9.1 and VP9 6.2."""

from __future__ import annotations

import pytest

from headrace.errors import PeerError
from headrace.protocol.codecs import VideoParameters, describe_video_config, describe_video_frame
from headrace.protocol.media import parse_video
from tests.unit.protocol.codecs.clips import VideoSource, bits, make_clip, run_ffmpeg

VP9 = "-f lavfi -i testsrc=s={size}:r=30:d=0.1 -pix_fmt {pixels} -c:v libvpx-vp9 -deadline realtime -cpu-used 8"


@pytest.mark.parametrize(
    ("size", "pixels"),
    [
        ("638x358", "yuv420p"),
        ("321x181", "yuv444p"),
        ("322x182", "yuv420p10le"),
        ("322x182", "yuv422p12le"),
        ("322x182", "gbrp"),
    ],
)
def test_vp9_facts_of_record_and_keyframe_are_those_that_ffmpeg_reads(size: str, pixels: str) -> None:
    clip = run_ffmpeg(VP9.format(size=size, pixels=pixels))
    truth = clip.streams[0]
    packets = [parse_video(payload) for payload in clip.video_payloads]
    keyframe = next(packet for packet in packets if packet.is_keyframe)
    from_frame = describe_video_frame("vp9", keyframe.tracks[0].body)
    assert from_frame == VideoParameters(
        "vp9",
        profile=truth.profile,
        width=truth.width,
        height=truth.height,
        bit_depth=truth.bit_depth,
        chroma=truth.chroma,
    )
    from_record = describe_video_config("vp9", packets[0].tracks[0].body)
    assert (from_record.profile, from_record.bit_depth, from_record.chroma, from_record.width) == (
        truth.profile,
        truth.bit_depth,
        truth.chroma,
        None,
    )
    assert from_record.completed_by(from_frame).width == truth.width


def test_vp9_keyframe_of_4_4_0_is_read_where_ffmpeg_7_leaves_the_record_empty() -> None:
    clip = run_ffmpeg(VP9.format(size="322x182", pixels="yuv440p"))
    packets = [parse_video(payload) for payload in clip.video_payloads]
    keyframe = next(packet for packet in packets if packet.is_keyframe)
    assert packets[0].is_config
    assert describe_video_config("vp9", packets[0].tracks[0].body) == VideoParameters("vp9")
    assert describe_video_frame("vp9", keyframe.tracks[0].body).chroma == clip.streams[0].chroma == "4:4:0"


def test_vp8_facts_of_a_keyframe_are_those_that_ffmpeg_reads() -> None:
    truth = make_clip(VideoSource("libvpx", 638, 358), container="webm").streams[0]
    body, is_keyframe, _ = truth.packets[0]
    assert is_keyframe
    facts = describe_video_frame("vp8", body)
    assert (facts.width, facts.height) == (truth.width, truth.height) == (638, 358)


@pytest.mark.parametrize("prefix", [b"", b"\x01\x00\x00\x00"], ids=["bare record", "with the box's version"])
def test_a_record_is_read_with_and_without_the_version_of_its_box(prefix: bytes) -> None:
    # Profile 2, level 4.1, 10 bits, 4:2:0 colocated, limited range, BT.2020 thrice, no more data.
    facts = describe_video_config("vp9", prefix + bytes([2, 41, 10 << 4 | 1 << 1, 9, 9, 9, 0, 0]))
    assert facts == VideoParameters("vp9", "Profile 2", "4.1", bit_depth=10, chroma="4:2:0")
    assert facts.describe() == "vp9 Profile 2@4.1 10 bit"


def test_unknown_level_and_chroma_of_a_record_stay_unknown() -> None:
    facts = describe_video_config("vp8", bytes([0, 0, 8 << 4 | 7 << 1, 1, 1, 1, 0, 0]))
    assert facts == VideoParameters("vp8", "Profile 0", bit_depth=8)


# RFC 6386 9.1: key, version 2, shown; start code; 640 with scale 1, 480 with scale 2, little-endian.
VP8_KEY = b"\x14\x00\x00\x9d\x01\x2a" + b"\x80\x42" + b"\xe0\x81"
# VP9 6.2: marker, profile 0, shown keyframe, sync code, BT.709, limited range, 1280x720 minus one.
VP9_KEY = bits("10 0 0 0 0 1 0" + f"{0x498342:024b}" + "010 0" + f"{1279:016b}{719:016b}")


def test_keyframes_written_by_hand() -> None:
    assert describe_video_frame("vp8", VP8_KEY) == VideoParameters(
        "vp8", "Profile 2", width=640, height=480, bit_depth=8, chroma="4:2:0"
    )
    assert describe_video_frame("vp9", VP9_KEY).describe() == "vp9 Profile 0 1280x720"


@pytest.mark.parametrize(
    ("codec", "frame"),
    [
        ("vp8", b""),
        ("vp8", VP8_KEY[:9]),
        ("vp8", b"\x15" + VP8_KEY[1:]),
        ("vp8", VP8_KEY[:3] + b"\x9d\x01\x2b" + VP8_KEY[6:]),
        ("vp8", VP8_KEY[:6] + bytes(4)),
        ("vp9", b""),
        ("vp9", VP9_KEY[:7]),
        ("vp9", bits("01 000010")),
        ("vp9", bits("10 0 0 1 000")),
        ("vp9", bits("10 0 0 0 1 1 0") + bytes(8)),
        ("vp9", VP9_KEY[:1] + b"\x49\x83\x43" + VP9_KEY[4:]),
    ],
)
def test_what_is_no_keyframe_is_the_peers_error(codec: str, frame: bytes) -> None:
    with pytest.raises(PeerError):
        describe_video_frame(codec, frame)


@pytest.mark.parametrize("bad", [b"\x00\x0b", b"\x01\x00\x00\x00\x00\x0b", bytes([0, 11, 9 << 4])])
def test_what_is_no_vpcc_is_the_peers_error(bad: bytes) -> None:
    with pytest.raises(PeerError, match="vpcC"):
        describe_video_config("vp9", bad)
