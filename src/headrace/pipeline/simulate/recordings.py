"""The recordings themselves: FLV files with a tag for every message of a stream's log, where the log says they are.

Thin ones have frames of a few bytes, so that a day of streams fits on a disk; full ones have frames as large as the
samples say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import numpy as np

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.simulate import pictures
from headrace.pipeline.simulate.chance import Ints
from headrace.pipeline.simulate.encoders import AUDIO_HEADER_BYTES, PREFACE_MESSAGES, VIDEO_HEADER_BYTES
from headrace.pipeline.simulate.plan import Plan
from headrace.protocol import messages
from headrace.protocol.flv import encode_file_header, encode_tag

THIN, FULL = "thin", "full"
_FILE_HEADER = encode_file_header()
_TAG_HEADER_BYTES, _TAG_END_BYTES = 11, 4
_CHUNK_MS = 20_000  # of media, put together at once
_HEAD_BYTES = _TAG_HEADER_BYTES + pictures.FRAME_BYTES


def file_bytes(plan: Plan, stream: int) -> int:
    """The size of a stream's recording, written or not."""
    streams = plan.channels.streams
    reached = streams.at(np.array([stream]), plan.ended_ms[[stream]])
    publishes = np.flatnonzero(streams.publishes.stream == stream)
    preset = streams.encoders.presets[int(streams.publishes.channel[publishes[0]])]
    payload = len(publishes) * len(pictures.metadata(preset))
    if plan.options.frames == THIN:
        headers = VIDEO_HEADER_BYTES + AUDIO_HEADER_BYTES
        frames = int(reached.position[0]) - len(publishes) * PREFACE_MESSAGES
        payload += len(publishes) * headers + frames * pictures.FRAME_BYTES
    else:
        payload += int(reached.video_bytes[0] + reached.audio_bytes[0])
    return len(_FILE_HEADER) + int(reached.position[0]) * (_TAG_HEADER_BYTES + _TAG_END_BYTES) + payload


def write_recording(plan: Plan, stream: int) -> int:
    """Writes it; how many bytes. PipelineError if there is a file of that name."""
    path = plan.recording(stream)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise PipelineError("RECORDING_EXISTS", path=path) from None
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        return _write(file, _pieces(plan, stream))


def _write(file: IO[bytes], pieces: Iterator[bytes | memoryview]) -> int:
    total = 0
    for piece in pieces:
        left = memoryview(piece)
        while left:  # a disk that fills up takes a part of it, and says so the next time only
            taken = file.write(left)
            left = left[taken:]
            total += taken
    return total


def _pieces(plan: Plan, stream: int) -> Iterator[bytes | memoryview]:
    streams = plan.channels.streams
    table = streams.publishes
    yield _FILE_HEADER
    for publish in np.flatnonzero(table.stream == stream).tolist():
        own = np.array([publish])
        preset = streams.encoders.presets[int(table.channel[publish])]
        # The clock of a publisher that came back is known with its first frame.
        newest_ms = int(table.base.media_ms[publish])
        yield encode_tag(messages.DATA, 0, pictures.metadata(preset))
        yield encode_tag(messages.VIDEO, newest_ms, pictures.video_header(preset))
        yield encode_tag(messages.AUDIO, newest_ms, pictures.audio_header(preset))
        last_ms = int(streams.arrived(own, table.stopped_ms[own])[0])
        for start_ms in range(-1, last_ms, _CHUNK_MS):
            yield _frames(plan, publish, start_ms, min(start_ms + _CHUNK_MS, last_ms))


def _frames(plan: Plan, publish: int, after_ms: int, until_ms: int) -> memoryview:
    """The tags of a publish's frames in a stretch of its media time."""
    streams = plan.channels.streams
    encoders, channel = streams.encoders, streams.publishes.channel[[publish]]
    video_until, audio_until = encoders.frames_until(np.repeat(channel, 2), np.array([after_ms, until_ms]))
    video, audio = np.arange(*video_until), np.arange(*audio_until)
    video_ms, audio_ms = encoders.video_ms(channel, video), encoders.audio_ms(channel, audio)
    # A video frame comes before the sound of the same time.
    place = np.concatenate(
        [
            video + encoders.frames_until(np.repeat(channel, len(video)), video_ms - 1)[1],
            audio + encoders.frames_until(np.repeat(channel, len(audio)), audio_ms)[0],
        ]
    )
    order = np.argsort(place)
    is_video = (np.arange(len(place)) < len(video))[order]
    time_ms = np.concatenate([video_ms, audio_ms])[order] + streams.publishes.base_media_ms[publish]
    number = np.concatenate([video, audio])[order]
    is_keyframe = np.concatenate([_is_keyframe(plan, channel, video), np.zeros(len(audio), np.bool_)])[order]
    size = np.full(len(place), pictures.FRAME_BYTES, np.int64)
    if plan.options.frames == FULL:
        edges = np.arange(video_until[0], video_until[1] + 1), np.arange(audio_until[0], audio_until[1] + 1)
        sums = encoders.video_sum(channel, edges[0]), encoders.audio_sum(channel, edges[1])
        size = np.concatenate([np.diff(one) for one in sums])[order]
    heads = np.empty((len(place), _HEAD_BYTES), np.uint8)
    heads[:, 0] = np.where(is_video, messages.VIDEO, messages.AUDIO)
    heads[:, 1:4] = pictures.as_bytes(size, 3)
    heads[:, 4:7] = pictures.as_bytes(time_ms, 3)
    heads[:, 7] = time_ms >> 24 & 0xFF
    heads[:, 8:_TAG_HEADER_BYTES] = 0
    # No two publishes are alike, nor are two simulations.
    mark = (plan.options.seed * 1_000_003 + publish) & (1 << 62) - 1
    heads[:, _TAG_HEADER_BYTES:] = pictures.frame_heads(is_video, is_keyframe, size, mark, number)
    stop = np.cumsum(size + _TAG_HEADER_BYTES + _TAG_END_BYTES)
    tags = np.zeros(int(stop[-1]) if len(stop) else 0, np.uint8)
    start = stop - size - _TAG_HEADER_BYTES - _TAG_END_BYTES
    tags[start[:, None] + np.arange(_HEAD_BYTES)] = heads
    ends = stop[:, None] - np.arange(_TAG_END_BYTES, 0, -1)
    tags[ends] = pictures.as_bytes(size + _TAG_HEADER_BYTES, _TAG_END_BYTES)
    return tags.data


def _is_keyframe(plan: Plan, channel: Ints, video: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    encoders = plan.channels.streams.encoders
    known = encoders.keyframes_among(channel, np.stack([video, video + 1]))
    return np.asarray(known[1] > known[0])
