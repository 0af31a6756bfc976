"""Facts of many payloads at once are those that `protocol.media` gives for each."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PeerError
from headrace.pipeline.sources.flv.facts import PayloadFacts, read_facts
from headrace.pipeline.sources.flv.pieces import Range
from headrace.pipeline.sources.flv.walk import Tags, walk
from headrace.protocol import media
from tests.pipeline.flv_files import AUDIO, HEADER, SCRIPT, VIDEO, MemoryFile, encode_tag


class Fact(NamedTuple):
    codec: str | None
    is_keyframe: bool = False
    is_config: bool = False
    composition_ms: int | None = None
    is_frame: bool = False


PAYLOADS: list[tuple[str, int, str, Fact]] = [
    ("script data", SCRIPT, "02 0000", Fact(None)),
    ("empty video", VIDEO, "", Fact(None)),
    ("empty audio", AUDIO, "", Fact(None)),
    ("AVC config", VIDEO, "17 00 000000 0164", Fact("h264", is_config=True, composition_ms=0)),
    ("AVC keyframe", VIDEO, "17 01 000050 65", Fact("h264", is_keyframe=True, composition_ms=80, is_frame=True)),
    ("AVC frame shown before it is decoded", VIDEO, "27 01 fffff6 41", Fact("h264", composition_ms=-10, is_frame=True)),
    ("AVC end of sequence is no keyframe", VIDEO, "17 02 000000", Fact("h264", composition_ms=0)),
    ("cut AVC header", VIDEO, "17 01 00", Fact(None)),
    ("AVC packet type 3", VIDEO, "17 03 000000", Fact(None)),
    ("HEVC of Chinese CDNs", VIDEO, "1c 01 000005 26", Fact("hevc", is_keyframe=True, composition_ms=5, is_frame=True)),
    ("Sorenson keyframe", VIDEO, "12 00", Fact("sorenson_h263", is_keyframe=True, composition_ms=0, is_frame=True)),
    ("a command", VIDEO, "57 00", Fact("h264", composition_ms=0)),
    ("an unknown codec id", VIDEO, "19 00", Fact("unknown(9)", is_keyframe=True, composition_ms=0, is_frame=True)),
    ("Enhanced HEVC config", VIDEO, "90 68766331 01", Fact("hevc", is_config=True, composition_ms=0)),
    ("Enhanced HEVC with time", VIDEO, "a1 68766331 000028 02", Fact("hevc", composition_ms=40, is_frame=True)),
    ("Enhanced HEVC, time cut off", VIDEO, "a1 68766331 0000", Fact(None)),
    (
        "Enhanced HEVC without time",
        VIDEO,
        "93 68766331 26",
        Fact("hevc", is_keyframe=True, composition_ms=0, is_frame=True),
    ),
    ("Enhanced AV1 keyframe", VIDEO, "91 61763031 0a", Fact("av1", is_keyframe=True, composition_ms=0, is_frame=True)),
    ("Enhanced metadata", VIDEO, "d4 68766331 02", Fact("hevc", composition_ms=0)),
    ("a FourCC of tomorrow", VIDEO, "91 7a7a3939 00", Fact("zz99", is_keyframe=True, composition_ms=0, is_frame=True)),
    (
        "a track of several",
        VIDEO,
        "96 01 61766331 00 00000a 65",
        Fact("h264", is_keyframe=True, composition_ms=10, is_frame=True),
    ),
    ("a keyframe of a side track", VIDEO, "96 01 61766331 01 000000 65", Fact("h264", composition_ms=0, is_frame=True)),
    (
        "ModEx before a frame",
        VIDEO,
        "97 02 000001 01 61763031 0a",
        Fact("av1", is_keyframe=True, composition_ms=0, is_frame=True),
    ),
    ("AAC config", AUDIO, "af 00 1210", Fact("aac", is_config=True)),
    ("AAC frame", AUDIO, "af 01 21", Fact("aac", is_frame=True)),
    ("AAC packet type 2", AUDIO, "af 02", Fact(None)),
    ("AAC cut", AUDIO, "af", Fact(None)),
    ("MP3", AUDIO, "2f ff", Fact("mp3", is_frame=True)),
    ("Enhanced Opus config", AUDIO, "90 4f707573 4f", Fact("opus", is_config=True)),
    ("Enhanced channel map", AUDIO, "94 4f707573 00", Fact("opus", is_config=True)),
    ("Enhanced Opus frame", AUDIO, "91 4f707573 00", Fact("opus", is_frame=True)),
    ("Enhanced audio cut", AUDIO, "91 4f70", Fact(None)),
]


def facts_of(tags: list[tuple[int, bytes]]) -> list[Fact]:
    data = HEADER + b"".join(encode_tag(type_id, payload) for type_id, payload in tags)
    out: list[Fact] = []
    for found in walk(MemoryFile(data), Range.whole(len(data))):
        assert isinstance(found, Tags)
        out += map(_one, [read_facts(found).payloads] * len(found.starts), range(len(found.starts)))
    return out


def _one(facts: PayloadFacts, row: int) -> Fact:
    index = int(facts.codec[row])
    return Fact(
        facts.names[index] if index >= 0 else None,
        bool(facts.is_keyframe[row]),
        bool(facts.is_config[row]),
        int(facts.composition_ms[row]) if facts.has_composition[row] else None,
        bool(facts.is_frame[row]),
    )


def by_media(type_id: int, payload: bytes) -> Fact:
    if type_id == SCRIPT or not payload:
        return Fact(None)
    try:
        packet = media.parse_video(payload) if type_id == VIDEO else media.parse_audio(payload)
    except PeerError:
        return Fact(None)
    is_keyframe = packet.flags & (media.KEYFRAME | media.SIDE_TRACK) == media.KEYFRAME
    composition_ms = packet.composition_ms if isinstance(packet, media.VideoPacket) else None
    return Fact(packet.codec, is_keyframe, packet.is_config, composition_ms, bool(packet.flags & media.FRAME))


@pytest.mark.parametrize(("type_id", "payload", "fact"), [case[1:] for case in PAYLOADS], ids=[c[0] for c in PAYLOADS])
def test_the_facts_of_a_payload(type_id: int, payload: str, fact: Fact) -> None:
    data = bytes.fromhex(payload)
    assert by_media(type_id, data) == fact
    assert facts_of([(type_id, data)]) == [fact]


def test_facts_of_many_tags_do_not_mix() -> None:
    tags = [(type_id, bytes.fromhex(payload)) for _, type_id, payload, _ in PAYLOADS] * 3
    assert facts_of(tags) == [fact for *_, fact in PAYLOADS] * 3


_FOURCCS = (b"avc1", b"hvc1", b"vvc1", b"av01", b"vp09", b"Opus", b"mp4a", b"fLaC", b"what", b"\0\0\0\0", b"")
any_head = st.builds(
    lambda first, fourcc, rest: bytes((first,)) + fourcc + rest,
    st.integers(0, 255),
    st.sampled_from(_FOURCCS),
    st.binary(max_size=12),
)
any_payload = st.one_of(any_head, st.binary(max_size=8))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from((AUDIO, VIDEO, SCRIPT)), any_payload), max_size=40))
def test_facts_of_any_payloads_are_those_of_protocol_media(tags: list[tuple[int, bytes]]) -> None:
    assert facts_of(tags) == [by_media(*tag) for tag in tags]


def test_timestamps_are_unsigned_with_32_bits() -> None:
    times = [0, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    data = HEADER + b"".join(encode_tag(AUDIO, b"\xaf\x01", time_ms) for time_ms in times)
    (found,) = walk(MemoryFile(data), Range.whole(len(data)))
    assert isinstance(found, Tags)
    assert read_facts(found).timestamp_ms.tolist() == times
