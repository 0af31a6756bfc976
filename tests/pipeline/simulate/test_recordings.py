"""Simulated recordings: files that the server's own FLV reader understands, and that are what the log says."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.simulate import pictures
from headrace.pipeline.simulate.encoders import PRESETS, Preset
from headrace.protocol import codecs, media, messages
from headrace.protocol.flv import FlvReader, Tag
from headrace.protocol.metadata import decode_metadata
from tests.pipeline.simulate.simulated import Line, lines_of, simulate


def tags_of(path: Path) -> list[Tag]:
    reader = FlvReader()
    tags = reader.receive(path.read_bytes())
    assert reader.finish() == 0, "it ends with a whole tag"
    return tags


def opened_and_closed(lines: list[Line]) -> list[tuple[Line, Line]]:
    opened = [line for line in lines if line["type"] == "recording_opened"]
    closed = {line["path"]: line for line in lines if line["type"] == "recording_closed"}
    return [(line, closed[line["path"]]) for line in opened]


@pytest.mark.parametrize("frames", ["thin", "full"])
def test_a_recording_has_a_tag_for_every_message_and_the_size_that_was_told(tmp_path: Path, frames: str) -> None:
    said: list[str] = []
    wanted: dict[str, Any] = {"viewers": 0, "destinations": 0, "faults": 100.0, "seed": 3}
    lines = lines_of(simulate(tmp_path, frames=frames, say=said.append, **wanted))
    resumed = {line["stream_id"] for line in lines if line["type"] == "publish_started" and line["resumed"]}
    assert resumed
    ended = {line["stream_id"]: line["position"] for line in lines if line["type"] == "stream_ended"}
    files = opened_and_closed(lines)
    assert {Path(opened["path"]) for opened, _ in files} == set((tmp_path / "recordings").iterdir())
    for opened, closed in files:
        path = Path(opened["path"])
        tags = tags_of(path)
        assert len(tags) == closed["tags_total"] == ended[opened["stream_id"]]
        assert path.stat().st_size == closed["bytes_total"]
        video = [tag for tag in tags if tag.type_id == messages.VIDEO]
        flags = [media.classify_video(tag.payload) for tag in video]
        is_frame = [bool(flag & media.FRAME) for flag in flags]
        assert tags[opened["frame_position"]].payload == video[is_frame.index(True)].payload
        assert tags[opened["position"]].type_id == messages.DATA
        samples = [
            line for line in lines if line["type"] == "publisher_sample" and line["stream_id"] in opened.values()
        ]
        totals: Counter[str] = Counter()
        for sample in samples:
            totals.update({name: sample[name] for name in ("frames", "keyframes", "video_bytes", "audio_bytes")})
        assert sum(is_frame) == totals["frames"]
        assert sum(bool(flag & media.KEYFRAME) for flag in flags) == totals["keyframes"]
        if frames == "full":
            assert sum(len(tag.payload) for tag in video) == totals["video_bytes"]
            audio = [tag for tag in tags if tag.type_id == messages.AUDIO]
            assert sum(len(tag.payload) for tag in audio) == totals["audio_bytes"]
        media_ms = [tag.timestamp_ms for tag in tags if tag.type_id != messages.DATA]
        assert all(one <= other for one, other in pairwise(media_ms))
        assert media_ms[-1] == closed["duration_ms"] == samples[-1]["media_ms"]
    assert said[-1].startswith(f"recordings files={len(files)} bytes={sum(c['bytes_total'] for _, c in files)} ")


def test_no_frame_is_like_one_of_another_stream(tmp_path: Path) -> None:
    simulate(tmp_path, hours=0.02, viewers=0, destinations=0, frames="thin")
    frames = [tag.payload for path in (tmp_path / "recordings").iterdir() for tag in tags_of(path)[3:]]
    assert len(frames) > 1000
    assert len(set(frames)) == len(frames)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: f"{preset.encoder} {preset.height}")
def test_headers_say_what_the_log_says_of_the_codecs(preset: Preset) -> None:
    video = media.parse_video(pictures.video_header(preset))
    found = codecs.describe_video_config(video.codec, bytes(video.tracks[0].body))
    assert (found.profile, found.level) == (preset.profile, preset.level)
    assert (found.width, found.height) == (preset.width, preset.height)
    audio = media.parse_audio(pictures.audio_header(preset))
    heard = codecs.describe_audio(audio.codec, config=bytes(audio.tracks[0].body))
    assert (heard.profile, heard.sample_rate_hz, heard.channels) == ("LC", preset.sample_rate, 2)
    assert decode_metadata(pictures.metadata(preset))["encoder"] == preset.encoder


def test_a_recording_that_is_there_is_not_touched(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"hours": 0.02, "viewers": 0, "destinations": 0, "frames": "thin"}
    simulate(tmp_path, **asked)
    before = {path: path.read_bytes() for path in (tmp_path / "recordings").iterdir()}
    with pytest.raises(PipelineError, match=r"live_channel-\d+_20260101_\d+\.flv is there already"):
        simulate(tmp_path, **asked, data_dir=tmp_path / "another")
    assert {path: path.read_bytes() for path in (tmp_path / "recordings").iterdir()} == before
    assert not (tmp_path / "another").exists()
