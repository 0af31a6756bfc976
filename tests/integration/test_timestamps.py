"""Timestamps beyond 24 bits, across FFmpeg's own wrap at 2^31 and across 2^32, at a small and a large chunk size.

The 24-bit field of a chunk is full after 4 h 39 m; from then on an extended timestamp stands in every header, and in
the header of each continuation too, where a reader that does not expect it loses the framing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.protocol.client import Role
from tests.integration.clips import ClipLibrary
from tests.integration.flv_tags import VIDEO, media_tags, read_tags
from tests.integration.harness import PATIENT, Stage
from tests.integration.packets import assert_from_first_keyframe, assert_whole, packets_of
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration

CHUNK_SIZES = ["128", "60000"]


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_ffmpeg_plays_across_the_end_of_the_24_bit_field(stage: Stage, clips: ClipLibrary, chunk_size: str) -> None:
    clip, offset_ms = clips["h264_b_frames"], 0xFFFFFF - 2000
    server = stage.server(*PATIENT, "-chunk-size", chunk_size)
    publisher = stage.feed(clip, server.url(), "-output_ts_offset", f"{offset_ms}ms")
    server.wait_for_log("publish command")
    player = stage.play(server.url(), decode=True)
    server.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path).moved(offset_ms))


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_ffmpeg_plays_across_2_to_the_32(stage: Stage, clips: ClipLibrary, chunk_size: str) -> None:
    """After 49 days. No muxer of FFmpeg goes there, so our own client publishes; the players are real."""
    clip, offset_ms = clips["h264_b_frames"], 2**32 - 2000
    tags = [tag.at(tag.timestamp_ms + offset_ms) for tag in clip.tags]
    server = stage.server(*PATIENT, "-chunk-size", chunk_size)
    publisher = RawClient(stage, server, Role.PUBLISH, chunk_size=int(chunk_size)).start()
    raw_player = RawClient(stage, server, Role.PLAY).start()
    player = stage.play(server.url(), decode=True)
    server.wait_for_log("Subscriber added", count=2)
    publisher.send_tags(tags)
    publisher.finish()
    assert media_tags(raw_player.receive_all()) == media_tags(tags)
    # FFmpeg counts what comes before the wrap as negative: the same times modulo 2^32.
    assert_whole(player.wait_ended().moved(0), packets_of(clip.path).moved(offset_ms))


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_ffmpegs_own_wrap_reaches_players_and_recording_as_it_is(
    stage: Stage, clips: ClipLibrary, tmp_path: Path, chunk_size: str
) -> None:
    """FFmpeg writes 31 bits: after 24 days its timestamps start again from 0."""
    clip, offset_ms = clips["h264_aac"], 2**31 - 2000
    server = stage.server(*PATIENT, "-chunk-size", chunk_size, "-record-all", "-record-dir", tmp_path / "recordings")
    publisher = stage.feed(clip, server.url(), "-output_ts_offset", f"{offset_ms}ms")
    server.wait_for_log("publish command")
    player = RawClient(stage, server, Role.PLAY).start()
    publisher.finish()
    got = media_tags(player.receive_all())
    path = Path(server.wait_for_log("Recording finished")["path"])
    sent = [tag.at((tag.timestamp_ms + offset_ms) % 2**31) for tag in clip.tags if tag.is_frame]
    recorded = [tag for tag in read_tags(path) if tag.is_frame]
    assert sorted(recorded) == sorted(sent)
    frames = [tag for tag in got if tag.is_frame]
    assert frames == recorded[recorded.index(frames[0]) :]
    assert next(tag for tag in frames if tag.type_id == VIDEO).is_keyframe


def test_a_late_joiner_after_the_wrap_starts_at_the_keyframe(stage: Stage, clips: ClipLibrary) -> None:
    """What is repeated for it must not carry a time from before the wrap."""
    clip, offset_ms = clips["h264_aac"], 2**32 - 1500
    tags = [tag.at(tag.timestamp_ms + offset_ms) for tag in clip.tags]
    keyframes = [index for index, tag in enumerate(tags) if tag.is_keyframe]
    assert tags[keyframes[-1]].timestamp_ms < 2**31 < tags[0].timestamp_ms
    server = stage.server(*PATIENT)
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    publisher.send_tags(tags)
    watcher = RawClient(stage, server, Role.PLAY).start()
    watcher.receive_until(lambda: any(tag.is_keyframe for tag in watcher.tags), "keyframe")
    first = next(tag for tag in watcher.tags if tag.is_keyframe)
    headers = [tag for tag in watcher.tags if tag.is_sequence_header]
    assert [tag.payload for tag in headers] == [tag.payload for tag in tags if tag.is_sequence_header]
    assert {tag.timestamp_ms for tag in headers} == {first.timestamp_ms}
