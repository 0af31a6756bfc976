"""H.264 configuration records: SPS bits by hand from H.264 7.3.2.1.1, and clips of x264 read by FFmpeg."""

from __future__ import annotations

import io
from fractions import Fraction

import av
import pytest

from headrace.errors import PeerError
from headrace.protocol.codecs import VideoParameters, describe_video_config
from headrace.protocol.media import parse_video
from tests.unit.protocol.codecs.clips import VideoSource, bits, make_clip

FAST = ("preset", "ultrafast")
CLIPS = {
    "constrained baseline, odd size": VideoSource("libx264", 638, 358, options=(FAST,)),
    "main, ntsc rate, set level": VideoSource(
        "libx264", rate=Fraction(30000, 1001), options=(("profile", "main"), ("level", "4.1"))
    ),
    "high, colours, hrd": VideoSource(
        "libx264",
        638,
        358,
        Fraction(25),
        options=(
            (
                "x264-params",
                "colorprim=bt709:transfer=bt709:colormatrix=bt709:nal-hrd=cbr:bitrate=500:"
                "vbv-maxrate=500:vbv-bufsize=500",
            ),
        ),
    ),
    "interlaced, odd aspect ratio, every description": VideoSource(
        "libx264",
        638,
        364,
        Fraction(25),
        options=(("flags", "+ildct+ilme"), ("x264-params", "sar=7/5:overscan=crop:videoformat=ntsc:chromaloc=2")),
    ),
    "high 10": VideoSource("libx264", rate=Fraction(60), pixels="yuv420p10le", options=(FAST,)),
    "high 4:2:2, film rate": VideoSource("libx264", 322, 182, Fraction(24000, 1001), "yuv422p10le", options=(FAST,)),
    "high 4:4:4, odd sides": VideoSource("libx264", 321, 181, Fraction(50), "yuv444p", options=(FAST,)),
    "high 4:2:2 intra": VideoSource("libx264", pixels="yuv422p10le", options=(FAST, ("g", "1"))),
}


@pytest.mark.parametrize("source", CLIPS.values(), ids=CLIPS.keys())
def test_facts_are_those_that_ffmpeg_reads_from_the_same_record(source: VideoSource) -> None:
    clip = make_clip(source)
    truth = clip.streams[0]
    config = parse_video(clip.video_payloads[0]).tracks[0].body
    facts = describe_video_config("h264", config)
    assert config == truth.extradata
    assert truth.level is not None
    assert facts == VideoParameters(
        "h264",
        profile=truth.profile,
        level=f"{truth.level // 10}.{truth.level % 10}",
        width=truth.width,
        height=truth.height,
        frame_rate=facts.frame_rate,
        bit_depth=truth.bit_depth,
        chroma=truth.chroma,
    )
    assert facts.frame_rate == pytest.approx(float(source.rate))
    assert truth.frame_rate == source.rate


def record(profile_idc: int, constraints: int, level_idc: int, *parameter_sets: bytes) -> bytes:
    """ISO/IEC 14496-15 5.3.3.1.2: version 1, profile, level, 4-byte lengths, then the SPS list."""
    head = bytes([1, profile_idc, constraints, level_idc, 0xFF, 0xE0 | len(parameter_sets)])
    return head + b"".join(len(nal).to_bytes(2, "big") + nal for nal in parameter_sets) + b"\x00"


# Baseline, level 3.0, id 0, 4 bits of frame number, order type 2, 1 reference, 40 x 30 macroblocks, frames, no
# cropping; what follows is the VUI flag.
BASELINE_HEAD = "01000010 11100000 00011110 1 1 011 010 0 00000101000 000011110 1 1 0 "
BASELINE_640X480 = b"\x67" + bits(BASELINE_HEAD + "0 1")

# Main, order type 1 with a cycle of two, field coding: 68 rows of macroblocks are 1088 lines, and a crop of
# two units, each two lines of chroma in both fields, leaves 1080.
FIELDS_1080 = b"\x67" + bits(
    "01001101 00000000 00101000 1 1"
    " 010 1 00101 1 011 010 00100"  # order type 1: a flag, -2, 0, two offsets of 1 and 2
    " 011 0 0000001111000 00000100010 0 1 1"  # 2 references, 120 columns, 34 rows of a field, flags
    " 1 1 1 1 011"  # crop: nothing left, right and top, 2 at the bottom
    " 0 1"
)

# High, 4:2:0, 8 bits, and scaling lists in the SPS: the first absent, the second ended by a scale of 0 (a delta
# of -8) after its first code, four of sixteen zero deltas; of the large two one in full and one absent.
HIGH_LISTS_1280X720 = (
    b"\x67"
    + bits(
        "01100100 00000000 00011111 1 010 1 1 0"
        " 1  0  1 000010001 " + ("1" + "1" * 16) * 4 + " 1" + "1" * 64 + " 0  1 1 1"  # then order type 0
        " 00101 0 0000001010000 00000101101 1 1 0  0 1"  # 4 references, 80 x 45 macroblocks
    )
)


def as_ffmpeg_reads(sps: bytes) -> tuple[int, int]:
    """The size that FFmpeg finds for this SPS in front of a PPS and a keyframe of x264."""
    clip = make_clip(CLIPS["constrained baseline, odd size"])
    config, keyframe = clip.streams[0].extradata, clip.streams[0].packets[0][0]
    pps = config[8 + int.from_bytes(config[6:8], "big") + 3 :]
    while keyframe[4] & 0x1F != 5:  # past the SEI, to the first slice
        keyframe = keyframe[4 + int.from_bytes(keyframe[:4], "big") :]
    units = (sps, pps, keyframe[4 : 4 + int.from_bytes(keyframe[:4], "big")])
    stream = b"".join(b"\x00\x00\x00\x01" + unit for unit in units)
    with av.open(io.BytesIO(stream), "r", format="h264") as file:
        context = file.streams.video[0].codec_context
        return context.width, context.height


@pytest.mark.parametrize(
    ("sps", "size"),
    [(BASELINE_640X480, (640, 480)), (FIELDS_1080, (1920, 1080)), (HIGH_LISTS_1280X720, (1280, 720))],
    ids=["baseline", "fields", "scaling lists"],
)
def test_an_sps_written_by_hand_is_read_as_ffmpeg_reads_it(sps: bytes, size: tuple[int, int]) -> None:
    facts = describe_video_config("h264", record(sps[1], sps[2], sps[3], sps))
    assert as_ffmpeg_reads(sps) == size
    assert (facts.width, facts.height) == size


@pytest.mark.parametrize(
    ("profile_idc", "constraints", "level_idc", "profile", "level"),
    [
        (66, 0x00, 31, "Baseline", "3.1"),
        (66, 0x40, 31, "Constrained Baseline", "3.1"),
        (66, 0x10, 11, "Baseline", "1b"),
        (100, 0x10, 11, "High", "1.1"),
        (100, 0x00, 9, "High", "1b"),
        (88, 0x00, 13, "Extended", "1.3"),
        (110, 0x10, 51, "High 10 Intra", "5.1"),
        (244, 0x10, 62, "High 4:4:4 Intra", "6.2"),
        (44, 0x10, 52, "CAVLC 4:4:4 Intra", "5.2"),
        (99, 0x00, 40, "profile 99", "4.0"),
    ],
)
def test_profile_and_level_are_named_as_people_name_them(
    profile_idc: int, constraints: int, level_idc: int, profile: str, level: str
) -> None:
    facts = describe_video_config("h264", record(profile_idc, constraints, level_idc))
    assert (facts.profile, facts.level, facts.width) == (profile, level, None)


@pytest.mark.parametrize("bad", [b"\x01", b"\x01\x64\x00\x28\xff", b"\x00\x64\x00\x28\xff\xe1"])
def test_what_is_no_avcc_is_the_peers_error(bad: bytes) -> None:
    with pytest.raises(PeerError, match="avcC"):
        describe_video_config("h264", bad)


def test_an_unreadable_sps_leaves_profile_and_level() -> None:
    for sps in (b"\x67", b"\x67\x64\x00\x28", b"\x67" + bytes(5000), b"\x68\xee"):
        facts = describe_video_config("h264", record(100, 0, 40, sps))
        assert facts == VideoParameters("h264", "High", "4.0")


def test_the_second_sps_serves_when_the_first_is_unreadable() -> None:
    assert describe_video_config("h264", record(66, 0, 30, b"\x67\x42", BASELINE_640X480)).width == 640


def test_a_clock_in_the_place_of_a_frame_rate_is_no_frame_rate() -> None:
    # The same SPS with VUI timing of 1 unit in a tick of 180000 a second, as x264 writes for variable rate.
    timing = "1 0 0 0 0 1" + f"{1:032b}" + f"{180000:032b}" + "0"
    facts = describe_video_config("h264", record(66, 0, 30, b"\x67" + bits(BASELINE_HEAD + timing)))
    assert (facts.width, facts.frame_rate) == (640, None)


def test_an_sps_that_breaks_off_behind_the_size_costs_the_frame_rate_alone() -> None:
    timing_cut_off = "1 1 11111111" + "0" * 32 + "1 1  1 101 0 0  1 1 1  1" + "0" * 40
    facts = describe_video_config("h264", record(66, 0, 30, b"\x67" + bits(BASELINE_HEAD + timing_cut_off)))
    assert (facts.width, facts.height, facts.frame_rate) == (640, 480, None)


def test_a_window_larger_than_the_picture_is_no_size() -> None:
    head = BASELINE_HEAD.removesuffix("0 ") + "1 1 1 1 00000000100000000 "  # crop 255 units of two lines
    facts = describe_video_config("h264", record(66, 0, 30, b"\x67" + bits(head + "0 1")))
    assert (facts.width, facts.height) == (None, None)
