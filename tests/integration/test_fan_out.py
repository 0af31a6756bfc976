"""Many players, many streams, late ones and stalled ones: nobody waits for anybody, and everybody gets the same."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from headrace.protocol.client import Role
from tests.integration.clips import FFMPEG, MANY, ClipLibrary
from tests.integration.flv_tags import VIDEO, media_tags
from tests.integration.harness import PATIENT, Stage
from tests.integration.packets import assert_from_first_keyframe, assert_suffix, packets_of
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration


def test_three_players_get_the_same_as_was_published(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    players = [stage.play(server.url()) for _ in range(3)]
    added = server.wait_for_log("Subscriber added", count=3)
    publisher.finish()
    sent = packets_of(clip.path)
    for player in players:
        # Whoever joins before the first keyframe is here may have a packet of sound more than the others.
        assert_from_first_keyframe(player.wait_ended(), sent)
    assert added["subscribers"] == 3


def test_ten_streams_at_once_do_not_mix(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT)
    keys = [f"live/stream{number}" for number in range(10)]
    publishers = [stage.feed(clips[name], server.url(key)) for name, key in zip(MANY, keys, strict=True)]
    for key in keys:
        server.wait_for_log("publish command", stream_key=key)
    players = [stage.play(server.url(key)) for key in keys]
    for key in keys:
        server.wait_for_log("Subscriber added", stream_key=key)
    for publisher in publishers:
        publisher.feed_rest()
    for name, player in zip(MANY, players, strict=True):
        assert_from_first_keyframe(player.wait_ended(), packets_of(clips[name].path))
    assert {publisher.wait() for publisher in publishers} == {0}


def test_a_late_joiner_decodes_its_first_frame_without_waiting_for_a_keyframe(stage: Stage, clips: ClipLibrary) -> None:
    """The only keyframe is five seconds old and another one never comes: the picture must be there all the same."""
    clip = clips["h264_long_gop"]
    assert sum(tag.is_keyframe for tag in clip.tags) == 1
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url(), opening_ms=5000)
    server.wait_for_log("Codec detected")
    decode = ["-map", "0:v", "-frames:v", "1", "-f", "framehash", "-"]
    joiner = stage.run("late joiner", FFMPEG, "-v", "warning", "-nostdin", "-copyts", "-i", server.url(), *decode)
    assert joiner.wait() == 0, joiner.output
    frames = [line for line in joiner.stdout if not line.startswith("#")]
    assert len(frames) == 1
    assert publisher.is_running, "the stream was over: the joiner proves nothing"
    publisher.finish()


def test_the_newest_keyframe_is_on_the_wire_at_once(stage: Stage, clips: ClipLibrary) -> None:
    """Nothing is published any more: what comes, comes from the log, beginning with what a decoder needs."""
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT)
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    publisher.send_tags(clip.tags[:-2])
    first_player = RawClient(stage, server, Role.PLAY).start()
    # Everything is in the log once one player has its end.
    first_player.receive_until(lambda: clip.tags[-3] in first_player.tags, "the newest message")
    started_s = time.monotonic()
    player = RawClient(stage, server, Role.PLAY).start()
    player.receive_until(lambda: any(tag.is_keyframe for tag in player.tags), "keyframe")
    elapsed_s = time.monotonic() - started_s
    newest = [tag for tag in clip.tags if tag.is_keyframe][-1]
    media = media_tags(player.tags)
    assert [tag.payload for tag in media[:2]] == [tag.payload for tag in clip.tags if tag.is_sequence_header]
    assert media[2] == newest
    assert elapsed_s < 5, f"{elapsed_s:.1f} s for the first keyframe"


def test_a_late_joiner_gets_everything_from_the_newest_keyframe_on(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url(), opening_ms=2500)
    server.wait_for_log("publish command")
    early = RawClient(stage, server, Role.PLAY).start()
    early.receive_until(lambda: any(tag.timestamp_ms > 2300 for tag in early.tags), "the end of the opening")
    late = stage.play(server.url(), decode=True)
    server.wait_for_log("Subscriber added", count=2)
    publisher.finish()
    got, sent = late.wait_ended(), packets_of(clip.path)
    start = assert_suffix(got.video, sent.video, "video")
    assert start == 50  # a keyframe each 25 frames: the newest before 2.5 s is the third
    audio_start = assert_suffix(got.audio, sent.audio, "audio")
    assert abs((sent.audio[audio_start].dts_ms or 0) - (got.video[0].dts_ms or 0)) <= 120


def test_a_stalled_player_delays_nobody_and_skips_to_a_keyframe(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_heavy"]
    server = stage.server("-max-lag", "3s")
    publisher = stage.feed(clip, server.url(), is_paced=True)
    server.wait_for_log("publish command")
    healthy = [stage.play(server.url()) for _ in range(2)]
    server.wait_for_log("Subscriber added", count=2)
    stalled = RawClient(stage, server, Role.PLAY, receive_buffer_bytes=4096).start()
    publisher.finish()
    finished_s = time.monotonic()
    for player in healthy:
        assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    assert time.monotonic() - finished_s < 10, "the healthy players were late"
    removed = [server.wait_for_log("Subscriber removed", count=count) for count in (1, 2)]
    assert [record["skipped"] for record in removed] == [{}, {}]
    # Now it reads again: a hole, and after the hole a keyframe with its headers before it.
    frames = [tag for tag in stalled.receive_all() if tag.type_id == VIDEO and tag.is_frame]
    sent = [tag for tag in clip.tags if tag.type_id == VIDEO and tag.is_frame]
    places = [sent.index(frame) for frame in frames]
    holes = [after for before, after in pairwise(places) if after != before + 1]
    assert holes, "nine seconds of 8 Mbit/s fitted into the buffers of a socket that was not read"
    assert all(sent[place].is_keyframe for place in holes)
    skipped = server.wait_for_log("Subscriber removed", count=3)["skipped"]
    assert sum(skipped.values()) > 0


def test_players_come_and_go_without_disturbing_the_others(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    for count in range(2, 6):
        passing = RawClient(stage, server, Role.PLAY).start()
        server.wait_for_log("Subscriber added", count=count)
        if count % 2:
            passing.finish()
        else:
            passing.close()
    server.wait_for_log("Subscriber removed", count=4)
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
