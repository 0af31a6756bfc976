"""Small clips from real encoders and muxers: the truth that our readers are compared with.

Most FLV is written by the FFmpeg inside PyAV (Enhanced RTMP for all but H.264, AAC and MP3) and read back by
its demuxer, which parses the same configuration records with code that is not ours. What PyAV cannot encode
comes from the ffmpeg binary. Clips are made when first asked for, and once: all of them in about a second.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

import av
import imageio_ffmpeg
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.video.stream import VideoStream


@dataclass(frozen=True)
class VideoSource:
    encoder: str
    width: int = 320
    height: int = 180
    rate: Fraction = Fraction(30)
    pixels: str = "yuv420p"
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class AudioSource:
    encoder: str
    rate_hz: int = 48000
    layout: str = "stereo"


@dataclass(frozen=True)
class ReadBack:
    """What FFmpeg's own demuxer and parsers say of one stream of a clip."""

    codec: str
    profile: str | None
    level: int | None = None
    width: int | None = None
    height: int | None = None
    bit_depth: int | None = None
    chroma: str | None = None
    frame_rate: Fraction | None = None
    sample_rate_hz: int | None = None
    channels: int | None = None
    extradata: bytes = b""
    # Body, is a keyframe, presentation after decoding in ms
    packets: tuple[tuple[bytes, bool, int], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Clip:
    data: bytes
    streams: tuple[ReadBack, ...]

    @property
    def video_payloads(self) -> list[bytes]:
        return [payload for tag_type, payload in _flv_tags(self.data) if tag_type == 9]

    @property
    def audio_payloads(self) -> list[bytes]:
        return [payload for tag_type, payload in _flv_tags(self.data) if tag_type == 8]


@cache
def make_clip(*sources: VideoSource | AudioSource, container: str = "flv") -> Clip:
    """Four frames of each source, encoded and muxed by PyAV's FFmpeg, and read back by it."""
    data = _encode(sources, container)
    return Clip(data, _read_back(data))


@cache
def run_ffmpeg(arguments: str) -> Clip:
    """The FLV that the ffmpeg binary writes for these arguments."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *arguments.split(), "-f", "flv", "-"]
    data = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    return Clip(data, _read_back(data))


def bits(literal: str) -> bytes:
    """Bytes from a bit string written field by field; blanks are ignored, the last byte is padded with 0."""
    digits = "".join(literal.split())
    digits += "0" * (-len(digits) % 8)
    return int("1" + digits, 2).to_bytes(len(digits) // 8 + 1, "big")[1:]


def _encode(sources: tuple[VideoSource | AudioSource, ...], container: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        streams = [_add_stream(output, source) for source in sources]
        for stream, source in zip(streams, sources, strict=True):
            if isinstance(stream, VideoStream) and isinstance(source, VideoSource):
                for picture in _pictures(source):
                    output.mux(stream.encode(picture))
            elif isinstance(stream, AudioStream) and isinstance(source, AudioSource):
                for silence in _silence(stream, source):
                    output.mux(stream.encode(silence))
            output.mux(stream.encode(None))
    return file.getvalue()


def _add_stream(output: OutputContainer, source: VideoSource | AudioSource) -> VideoStream | AudioStream:
    if isinstance(source, AudioSource):
        audio = output.add_stream(source.encoder, rate=source.rate_hz)
        assert isinstance(audio, AudioStream)
        audio.layout = source.layout
        return audio
    video = output.add_stream(source.encoder, rate=source.rate, options=dict(source.options))
    assert isinstance(video, VideoStream)
    video.width, video.height, video.pix_fmt = source.width, source.height, source.pixels
    return video


def _pictures(source: VideoSource) -> Iterator[av.VideoFrame]:
    for index in range(4):
        picture = av.VideoFrame(source.width, source.height, source.pixels)
        for plane in picture.planes:
            plane.update(bytes([index]) * plane.buffer_size)  # two such bytes are a legal sample of 10 bits
        picture.pts, picture.time_base = index, 1 / source.rate
        yield picture


def _silence(stream: AudioStream, source: AudioSource) -> Iterator[av.AudioFrame]:
    context = stream.codec_context
    context.open(strict=False)
    samples = context.frame_size or 1024
    for index in range(4):
        frame = av.AudioFrame(format=context.format.name, layout=source.layout, samples=samples)
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        frame.sample_rate, frame.time_base = source.rate_hz, Fraction(1, source.rate_hz)
        frame.pts = index * samples
        yield frame


def _read_back(data: bytes) -> tuple[ReadBack, ...]:
    with av.open(io.BytesIO(data), "r") as file:
        packets: dict[int, list[tuple[bytes, bool, int]]] = {}
        for packet in file.demux():
            if packet.size and packet.pts is not None and packet.dts is not None:
                fact = bytes(packet), packet.is_keyframe, packet.pts - packet.dts
                packets.setdefault(packet.stream_index, []).append(fact)
        return tuple(_facts(stream, tuple(packets.get(stream.index, ()))) for stream in file.streams)


def _facts(stream: av.stream.Stream, packets: tuple[tuple[bytes, bool, int], ...]) -> ReadBack:
    context = stream.codec_context
    codec = context.codec.canonical_name
    if isinstance(stream, AudioStream):
        audio = stream.codec_context
        return ReadBack(
            codec,
            context.profile,
            sample_rate_hz=audio.sample_rate,
            channels=audio.layout.nb_channels,
            extradata=context.extradata or b"",
            packets=packets,
        )
    assert isinstance(stream, VideoStream)
    video = stream.codec_context
    assert video.format is not None
    return ReadBack(
        codec,
        context.profile,
        level=context.level,
        width=video.width,
        height=video.height,
        bit_depth=video.format.components[0].bits,
        chroma=_chroma(video.format),
        frame_rate=video.framerate,
        extradata=context.extradata or b"",
        packets=packets,
    )


def _chroma(pixels: av.VideoFormat) -> str:
    if len(pixels.components) < 3:
        return "4:0:0"
    half_width, half_height = pixels.chroma_width(16) == 8, pixels.chroma_height(16) == 8
    return {(True, True): "4:2:0", (True, False): "4:2:2", (False, True): "4:4:0"}.get(
        (half_width, half_height), "4:4:4"
    )


def _flv_tags(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 13  # FLV 10.1 E.2 and E.3: header, then the first PreviousTagSize
    while position + 11 <= len(data):
        size = int.from_bytes(data[position + 1 : position + 4], "big")
        yield data[position] & 0x1F, data[position + 11 : position + 11 + size]
        position += 11 + size + 4
