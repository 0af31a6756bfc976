"""Real FFmpeg publishes, real FFmpeg plays, and what came out is what went in: for every codec it can send."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.protocol.client import Role
from tests.integration.clips import ClipLibrary
from tests.integration.flv_tags import AUDIO, VIDEO, FlvTag, encode_file, media_tags
from tests.integration.harness import PATIENT, Stage
from tests.integration.packets import assert_from_first_keyframe, assert_suffix, assert_whole, packets_of
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration


# An FFmpeg that is told to announces its FourCCs in `connect`; by default it announces nothing and sends all the same.
ANNOUNCED = ("-rtmp_enhanced_codecs", "hvc1,av01,vp09")


@pytest.mark.parametrize(
    ("clip_name", "options", "video", "audio"),
    [
        ("h264_aac", (), "h264", "aac"),
        ("h264_only", (), "h264", None),
        ("h264_b_frames", (), "h264", "aac"),
        ("h264_mp3", (), "h264", "mp3"),
        ("hevc_aac", (), "hevc", "aac"),
        ("hevc_aac", ANNOUNCED, "hevc", "aac"),
        ("av1_aac", ANNOUNCED, "av1", "aac"),
        ("vp9_aac", ANNOUNCED, "vp9", "aac"),
    ],
)
def test_what_ffmpeg_publishes_is_what_ffmpeg_plays(
    stage: Stage, clips: ClipLibrary, clip_name: str, options: tuple[str, ...], video: str, audio: str | None
) -> None:
    clip = clips[clip_name]
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url(), *options)
    server.wait_for_log("publish command")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    detected = server.wait_for_log("Codec detected", stream_key="live/stream")
    publisher.finish()
    sent = packets_of(clip.path)
    assert_from_first_keyframe(player.wait_ended(), sent)
    assert (detected["video"], detected["audio"]) == (video, audio)
    assert f"dimensions {detected['width']}x{detected['height']}" in sent.tracks["video"]
    if audio is not None:
        assert f"sample_rate {detected['sample_rate']}" in sent.tracks["audio"]
        assert detected["channels"] == 1


@pytest.mark.parametrize(
    ("clip_name", "audio"),
    [
        ("h264_opus", "opus"),
        ("h264_flac", "flac"),
        ("h264_ac3", "ac3"),
        ("h264_eac3", "eac3"),
        ("h264_two_aac", "aac"),
    ],
)
def test_what_only_a_newer_ffmpeg_publishes_is_what_it_plays(
    stage: Stage, clips: ClipLibrary, clip_name: str, audio: str
) -> None:
    """Enhanced RTMP v2: new audio codecs, and two tracks of sound. The FFmpeg inside PyAV has them."""
    clip = clips[clip_name]
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url(), by_pyav=True)
    server.wait_for_log("publish command")
    player = stage.play(server.url(), by_pyav=True)
    server.wait_for_log("Subscriber added")
    detected = server.wait_for_log("Codec detected", stream_key="live/stream")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path, by_pyav=True))
    assert (detected["video"], detected["audio"]) == ("h264", audio)


def test_a_stream_of_sound_alone_is_played_from_where_the_player_joined(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["aac_only"]
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url())
    detected = server.wait_for_log("Codec detected")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    publisher.finish()
    got, sent = player.wait_ended(), packets_of(clip.path)
    assert got.tracks == sent.tracks
    start = assert_suffix(got.audio, sent.audio, "audio")
    # The opening is half of the clip, and everything after it was sent when the player was there.
    assert start <= len(sent.audio) // 2 + 1
    assert (detected["video"], detected["audio"]) == (None, "aac")


def test_composition_times_pass_unchanged_also_negative_ones(stage: Stage, clips: ClipLibrary, tmp_path: Path) -> None:
    # No muxer of FFmpeg writes negative ones; encoders with "negative CTS offsets" do.
    tags = [_earlier(tag) if tag.type_id == VIDEO and tag.is_frame else tag for tag in clips["h264_b_frames"].tags]
    times = [tag.composition_ms for tag in tags if tag.type_id == VIDEO and tag.is_frame]
    assert min(times) < 0 < max(times)
    sent = tmp_path / "sent.flv"
    sent.write_bytes(encode_file(tags))
    server = stage.server(*PATIENT)
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    raw_player = RawClient(stage, server, Role.PLAY).start()
    player = stage.play(server.url(), by_pyav=True)
    server.wait_for_log("Subscriber added", count=2)
    publisher.send_tags(tags)
    publisher.finish()
    assert media_tags(raw_player.receive_all()) == media_tags(tags)
    assert_whole(player.wait_ended(), packets_of(sent, by_pyav=True))


def test_an_empty_message_is_relayed(stage: Stage, clips: ClipLibrary) -> None:
    """Some encoders send an audio message of no bytes between two files."""
    tags = clips["h264_aac"].tags
    tags = [*tags[:20], FlvTag(AUDIO, tags[20].timestamp_ms, b""), *tags[20:]]
    server = stage.server(*PATIENT)
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    player = RawClient(stage, server, Role.PLAY).start()
    publisher.send_tags(tags)
    publisher.finish()
    assert media_tags(player.receive_all()) == media_tags(tags)


def _earlier(tag: FlvTag) -> FlvTag:
    """Presented 100 ms before, by its composition time."""
    time = (tag.composition_ms - 100) & 0xFFFFFF
    return tag._replace(payload=tag.payload[:2] + time.to_bytes(3, "big") + tag.payload[5:])
