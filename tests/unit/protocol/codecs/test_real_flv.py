"""Payloads that real muxers wrote, legacy and Enhanced, compared packet by packet with FFmpeg's demuxer."""

from __future__ import annotations

import pytest

from headrace.protocol.media import (
    CONFIG,
    END,
    FRAME,
    KEYFRAME,
    METADATA,
    MULTITRACK,
    SIDE_TRACK,
    AudioPacketType,
    ConfigSlot,
    classify_audio,
    classify_video,
    config_slot,
    parse_audio,
    parse_video,
)
from tests.unit.protocol.codecs.clips import AudioSource, Clip, ReadBack, VideoSource, make_clip, run_ffmpeg

H264 = VideoSource("libx264", 638, 358, options=(("x264-params", "bframes=2:b-adapt=0"),))
SMALL_H264 = VideoSource("libx264", options=(("preset", "ultrafast"),))
HEVC = VideoSource("libx265", options=(("preset", "ultrafast"), ("x265-params", "log-level=none")))
AV1 = VideoSource("libsvtav1", options=(("preset", "12"),))
VP9 = VideoSource("libvpx-vp9", options=(("deadline", "realtime"),))
AAC = AudioSource("aac")
OPUS = AudioSource("libopus")

CLIPS = {
    "h264 and aac": (H264, AAC),
    "hevc": (HEVC,),
    "av1": (AV1,),
    "vp9": (VP9,),
    "opus": (OPUS,),
    "flac": (AudioSource("flac", 44100),),
    "ac3": (AudioSource("ac3"),),
    "eac3": (AudioSource("eac3", layout="5.1"),),
    "mp3": (AudioSource("libmp3lame", 44100),),
    "two video and two audio tracks": (H264, SMALL_H264, AAC, AudioSource("aac", 44100, "mono")),
    "tracks of different codecs": (H264, HEVC, AAC, OPUS),
}


def frames_by_track(clip: Clip) -> dict[tuple[str, int], list[tuple[bytes, bool, int]]]:
    found: dict[tuple[str, int], list[tuple[bytes, bool, int]]] = {}
    for payload in clip.video_payloads:
        video = parse_video(payload)
        assert classify_video(payload) == video.flags
        for track in video.tracks if video.flags & FRAME else ():
            frame = track.body, video.is_keyframe, track.composition_ms
            found.setdefault(("video", track.track_id), []).append(frame)
    for payload in clip.audio_payloads:
        audio = parse_audio(payload)
        assert classify_audio(payload) == audio.flags
        for track in audio.tracks if audio.flags & FRAME else ():
            if track.body:
                found.setdefault(("audio", track.track_id), []).append((track.body, True, 0))
    return found


def truth_by_track(streams: tuple[ReadBack, ...]) -> dict[tuple[str, int], list[tuple[bytes, bool, int]]]:
    tracks: dict[tuple[str, int], list[tuple[bytes, bool, int]]] = {}
    for stream in streams:
        kind = "audio" if stream.sample_rate_hz else "video"
        tracks[kind, sum(1 for other, _ in tracks if other == kind)] = list(stream.packets)
    return tracks


@pytest.mark.parametrize("sources", CLIPS.values(), ids=CLIPS.keys())
def test_frames_keyframes_and_composition_times_are_those_of_ffmpegs_demuxer(
    sources: tuple[VideoSource | AudioSource, ...],
) -> None:
    clip = make_clip(*sources)
    frames = frames_by_track(clip)
    assert len(frames) == len(sources)
    assert frames == truth_by_track(clip.streams)


def test_a_clip_with_b_frames_has_composition_times() -> None:
    assert {packet[2] for packet in make_clip(H264, AAC).streams[0].packets} != {0}


def test_h264_and_aac_are_written_the_legacy_way_and_end_with_an_end_of_sequence() -> None:
    clip = make_clip(H264, AAC)
    video = [parse_video(payload) for payload in clip.video_payloads]
    assert [packet.flags for packet in video] == [CONFIG, FRAME | KEYFRAME, FRAME, FRAME, FRAME, END]
    assert not any(packet.is_enhanced for packet in video)
    assert parse_audio(clip.audio_payloads[0]).is_config


def test_hevc_brings_colour_metadata_between_configuration_and_keyframe() -> None:
    flags = [classify_video(payload) for payload in make_clip(HEVC).video_payloads]
    assert flags[:3] == [CONFIG, METADATA, FRAME | KEYFRAME]


def test_opus_brings_its_header_and_its_channel_map_in_slots_of_their_own() -> None:
    payloads = make_clip(OPUS).audio_payloads
    assert [config_slot("audio", payload) for payload in payloads[:3]] == [
        ConfigSlot("audio", "codec", (0,)),
        ConfigSlot("audio", "channels", (0,)),
        None,
    ]
    assert parse_audio(payloads[1]).packet_type is AudioPacketType.MULTICHANNEL_CONFIG


def test_only_the_main_tracks_keyframe_is_a_place_to_start_at() -> None:
    flags = [classify_video(payload) for payload in make_clip(H264, SMALL_H264, AAC).video_payloads]
    starts = [flag for flag in flags if flag & KEYFRAME]
    assert starts == [FRAME | KEYFRAME, FRAME | KEYFRAME | MULTITRACK | SIDE_TRACK]
    slots = [config_slot("video", payload) for payload in make_clip(H264, SMALL_H264, AAC).video_payloads]
    assert [slot.track_ids for slot in slots if slot] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("arguments", "codec"),
    [
        ("-f lavfi -i testsrc=s=322x182:r=30:d=0.1 -c:v flv", "sorenson_h263"),
        ("-f lavfi -i testsrc=s=322x182:r=30:d=0.1 -c:v flashsv", "screen"),
        ("-f lavfi -i testsrc=s=322x182:r=30:d=0.1 -c:v flashsv2", "screen2"),
    ],
)
def test_old_video_codecs_of_flv_are_named_and_start_with_a_keyframe(arguments: str, codec: str) -> None:
    clip = run_ffmpeg(arguments)
    packets = [parse_video(payload) for payload in clip.video_payloads]
    assert {packet.codec for packet in packets} == {codec}
    assert packets[0].flags == FRAME | KEYFRAME
    # The demuxer may take a byte of the body for itself, but never fewer frames than came.
    assert len(packets) == len(clip.streams[0].packets)


@pytest.mark.parametrize(
    ("encoder", "rate_hz", "codec"),
    [
        ("libspeex", 16000, "speex"),
        ("nellymoser", 16000, "nellymoser_16k"),
        ("nellymoser", 8000, "nellymoser_8k"),
        ("nellymoser", 22050, "nellymoser"),
        ("adpcm_swf", 22050, "adpcm"),
        ("pcm_s16le", 44100, "pcm_le"),
        ("pcm_alaw", 8000, "g711a"),
        ("pcm_mulaw", 8000, "g711u"),
    ],
)
def test_old_audio_codecs_of_flv_are_named(encoder: str, rate_hz: int, codec: str) -> None:
    clip = run_ffmpeg(f"-f lavfi -i anullsrc=r={rate_hz}:cl=mono -t 0.1 -c:a {encoder}")
    packets = [parse_audio(payload) for payload in clip.audio_payloads]
    assert {packet.codec for packet in packets} == {codec}
    assert {packet.flags for packet in packets} == {FRAME}
    assert packets[0].sound_channels == 1
