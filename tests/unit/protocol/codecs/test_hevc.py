"""HEVC configuration records: clips of x265, and SPS bits by hand from H.265 7.3.2.2, both read by FFmpeg too."""

from __future__ import annotations

from fractions import Fraction

import av
import pytest
from av.video.codeccontext import VideoCodecContext

from headrace.errors import PeerError
from headrace.protocol.codecs import VideoParameters, describe_video_config
from headrace.protocol.media import parse_video
from tests.unit.protocol.codecs.clips import VideoSource, bits, make_clip, run_ffmpeg


def x265(parameters: str = "") -> tuple[tuple[str, str], ...]:
    return (("preset", "ultrafast"), ("x265-params", f"log-level=none:{parameters}".strip(":")))


# (source, profile): FFmpeg says "Rext" for all range extensions, so the names are from H.265 Table A.2.
CLIPS = {
    "main, odd size, ntsc rate": (VideoSource("libx265", 638, 358, Fraction(30000, 1001), options=x265()), "Main"),
    "main 10": (VideoSource("libx265", rate=Fraction(60), pixels="yuv420p10le", options=x265()), "Main 10"),
    "4:2:2 10 bit, high tier": (
        VideoSource("libx265", 322, 182, Fraction(50), "yuv422p10le", x265("level-idc=5.1:high-tier=1")),
        "Main 4:2:2 10",
    ),
    "4:4:4": (VideoSource("libx265", 322, 182, Fraction(25), "yuv444p", x265()), "Main 4:4:4"),
    "main 12": (VideoSource("libx265", pixels="yuv420p12le", options=x265()), "Main 12"),
    "monochrome": (VideoSource("libx265", pixels="gray", options=x265()), "Monochrome"),
}


@pytest.mark.parametrize(("source", "profile"), CLIPS.values(), ids=CLIPS.keys())
def test_facts_are_those_that_ffmpeg_reads_from_the_same_record(source: VideoSource, profile: str) -> None:
    clip = make_clip(source)
    truth = clip.streams[0]
    config = parse_video(clip.video_payloads[0]).tracks[0].body
    facts = describe_video_config("hevc", config)
    assert config == truth.extradata
    assert truth.level is not None
    tier = " High tier" if "high-tier=1" in source.options[1][1] else ""
    assert facts == VideoParameters(
        "hevc",
        profile=profile,
        level=f"{truth.level // 30}.{truth.level % 30 // 3}{tier}",
        width=truth.width,
        height=truth.height,
        frame_rate=facts.frame_rate,
        bit_depth=truth.bit_depth,
        chroma=truth.chroma,
    )
    assert facts.frame_rate == pytest.approx(float(source.rate))
    assert truth.frame_rate == source.rate


@pytest.mark.parametrize(
    "parameters",
    [
        "temporal-layers=3",
        "hrd=1:vbv-maxrate=500:vbv-bufsize=500:bitrate=400",
        "overscan=crop:videoformat=ntsc:range=full:colorprim=bt2020:chromaloc=2",
        "display-window=2,2,2,2",
        "scaling-list=default:ref=5:bframes=8",
    ],
)
def test_frame_rate_is_found_behind_every_option_of_the_encoder(parameters: str) -> None:
    clip = run_ffmpeg(
        "-f lavfi -i testsrc=s=322x182:r=24000/1001:d=0.2,setsar=40/33 -pix_fmt yuv420p -c:v libx265 "
        f"-preset veryfast -x265-params log-level=none:{parameters}"
    )
    facts = describe_video_config("hevc", parse_video(clip.video_payloads[0]).tracks[0].body)
    assert (facts.width, facts.height) == (322, 182) == (clip.streams[0].width, clip.streams[0].height)
    assert facts.frame_rate == pytest.approx(24000 / 1001)


# NAL header of an SPS; parameter set ids 0, one sub-layer, nested; Main profile, level 4.1.
SPS_HEAD = "0 100001 000000 001  0000 000 1  00 0 00001" + f"{0x60000000:032b}" + "1001" + "0" * 44 + "01111011"
# id 0, 4:2:0, 1920 x 1088, window of 4 chroma lines at the bottom, 8 bits twice, 8 bits of picture order,
# no sub-layer ordering: 4 pictures, 2 reordered, no latency limit.
SPS_SIZE = "1 010 0000000000 11110000001 0000000000 10001000001  1 1 1 1 00101  1 1 00101 0 00101 011 1"
SPS_BLOCKS = " 1 00100 1 00100 010 010 "  # block sizes 8 to 64, transforms 4 to 32, depths 1
# Scaling lists: every size and matrix, the first predicted from the default, the others coded as all zero
# deltas, with a DC coefficient from 16x16 on.
SPS_LISTS = (
    "1 1 "
    + ("0 1 " + ("1" + "1" * 16) * 5)
    + ("0 1 " + ("1" + "1" * 64) * 5)
    + ("0 1 " + ("1" + "1" + "1" * 64) * 5)
    + ("0 1 " + ("1" + "1" + "1" * 64) * 1)
)
# Three sets, as hardware encoders write them: two pictures before; predicted from it by a delta of -1 with
# flags kept, kept unused, dropped; predicted again, all four flags kept.
SPS_SETS = "00100  011 1 1 1 1 1  1 1 1 1 01 00  1 1 1 1 1 1"
# Extended aspect ratio, overscan, signal type with colours, chroma location, three flags, display window,
# timing: 1001 units in a tick of 60000 a second, and nothing more.
VUI = (
    "1 11111111" + f"{40:016b}{33:016b}" + " 1 1  1 101 0 1" + f"{0x010101:024b}" + " 1 1 1  000  1 1 1 1 1"
    " 1" + f"{1001:032b}{60000:032b}" + "0 0  0 0"
)


def hand_made_sps(*, lists: str = "0", vui: str = "1" + VUI) -> bytes:
    literal = SPS_HEAD + SPS_SIZE + SPS_BLOCKS + lists + " 1 1  1 0111 0111 1 011 1 " + SPS_SETS
    # Long-term pictures: one, 8 bits of order count and a flag. Temporal prediction, smoothing, VUI, stop bit.
    return escape(bits(literal + " 1 010 00000001 1  1 1 " + vui + "0 1"))


def escape(raw: bytes) -> bytes:
    """H.265 7.3.1.1, in the plain words of the specification."""
    escaped, zeros = bytearray(), 0
    for byte in raw:
        if zeros == 2 and byte <= 3:
            escaped.append(3)
            zeros = 0
        escaped.append(byte)
        zeros = zeros + 1 if byte == 0 else 0
    return bytes(escaped)


def record(*arrays: tuple[int, bytes], average_rate: int = 0) -> bytes:
    """ISO/IEC 14496-15 8.3.3.1.2: Main, level 4.1, 4:2:0, 8 bits; arrays of one NAL unit each."""
    head = bytes.fromhex("0101600000009000000000007bf000fcfdf8f8") + average_rate.to_bytes(2, "big") + b"\x0f"
    body = b"".join(bytes([0x80 | kind, 0, 1]) + len(nal).to_bytes(2, "big") + nal for kind, nal in arrays)
    return head + bytes([len(arrays)]) + body


def as_ffmpeg_reads(sps: bytes) -> VideoCodecContext:
    """FFmpeg's HEVC decoder exports the first SPS of its extradata when it opens; the VPS is x265's."""
    config = parse_video(make_clip(CLIPS["main 10"][0]).video_payloads[0]).tracks[0].body
    size = int.from_bytes(config[26:28], "big")
    assert config[23] & 0x3F == 32
    context = av.CodecContext.create("hevc", "r")
    assert isinstance(context, VideoCodecContext)
    context.extradata = record((32, config[28 : 28 + size]), (33, sps))
    context.open()
    return context


@pytest.mark.parametrize("lists", ["0", "1 0", SPS_LISTS], ids=["no lists", "default lists", "coded lists"])
def test_an_sps_written_by_hand_is_read_as_ffmpeg_reads_it(lists: str) -> None:
    sps = hand_made_sps(lists=lists)
    truth = as_ffmpeg_reads(sps)
    facts = describe_video_config("hevc", record((33, sps)))
    assert (truth.width, truth.height, truth.framerate) == (1920, 1080, Fraction(60000, 1001))
    assert (facts.width, facts.height) == (1920, 1080)
    assert facts.frame_rate == pytest.approx(60000 / 1001)
    assert facts.describe() == "hevc Main@4.1 1920x1080 59.94 fps"


def test_an_sps_of_three_sub_layers_is_read_past_their_profiles_and_levels() -> None:
    head = SPS_HEAD.replace("0000 000 1", "0000 010 1")
    # Profile and level of the lowest sub-layer, level alone of the next, reserved bits for the other six.
    sub_layers = " 1 1 0 1" + "00" * 6 + "0" * 88 + "0" * 8 + "0" * 8
    size = SPS_SIZE.replace("00101 0 00101 011 1", "00101 1 " + "00101 011 1 " * 3)
    rest = SPS_BLOCKS + "0  1 1  0  1  0  1 1  1" + VUI + "0 1"  # no PCM, no reference sets, no long-term ones
    facts = describe_video_config("hevc", record((33, escape(bits(head + sub_layers + size + rest)))))
    assert facts.describe() == "hevc Main@4.1 1920x1080 59.94 fps"


def test_the_records_average_serves_where_the_sps_tells_no_rate() -> None:
    config = record((33, hand_made_sps(vui="0")), average_rate=25 * 256)
    assert describe_video_config("hevc", config).frame_rate == 25.0
    assert describe_video_config("hevc", record((33, hand_made_sps(vui="0")))).frame_rate is None


def test_a_record_without_a_readable_sps_keeps_what_it_says_itself() -> None:
    expected = VideoParameters("hevc", "Main", "4.1", bit_depth=8, chroma="4:2:0")
    enhancement_layer = bytes([0x42, 0x09]) + hand_made_sps()[2:]
    for arrays in ([], [(32, b"\x40\x01")], [(33, b"")], [(33, b"\x42\x01\x01")], [(33, enhancement_layer)]):
        assert describe_video_config("hevc", record(*arrays)) == expected


def test_a_broken_reference_set_costs_the_frame_rate_and_not_the_size() -> None:
    literal = SPS_HEAD + SPS_SIZE + SPS_BLOCKS + "0 1 1 0" + "0000001000010"  # 65 reference sets
    facts = describe_video_config("hevc", record((33, escape(bits(literal)))))
    assert (facts.width, facts.height, facts.frame_rate) == (1920, 1080, None)


def test_names_of_profiles_that_no_encoder_here_writes() -> None:
    head = bytearray(record())
    for profile_idc, name in ((3, "Main Still Picture"), (9, "Screen-Extended"), (31, "profile 31")):
        head[1] = profile_idc
        assert describe_video_config("hevc", bytes(head)).profile == name
    # Table A.2, Main 4:2:2 12 Intra: constraint bits 1001 100100 1
    head[1], head[6], head[7] = 4, 0b1001_1001, 0b0010_0000
    assert describe_video_config("hevc", bytes(head)).profile == "Main 4:2:2 12 Intra"


@pytest.mark.parametrize("bad", [b"\x01", record()[:22], b"\x02" + record()[1:]])
def test_what_is_no_hvcc_is_the_peers_error(bad: bytes) -> None:
    with pytest.raises(PeerError, match="hvcC"):
        describe_video_config("hevc", bad)
