"""A client by PyAV, whose FFmpeg is newer than the binary and sends codecs that one cannot. Run as a process:

av_client.py publish URL        what comes on standard input, as FLV
av_client.py play URL LISTING   every packet to a list of hashes, in the form of FFmpeg's framehash muxer
"""

from __future__ import annotations

import hashlib
import sys

import av


def copy(source: str, target: str, *, source_format: str | None = None, options: dict[str, str] | None = None) -> None:
    """Remux to FLV, packet by packet, with the timestamps it has."""
    with av.open(source, format=source_format, options=options) as demuxer, av.open(target, "w", format="flv") as muxer:
        streams = {stream.index: muxer.add_stream_from_template(stream) for stream in demuxer.streams}
        for packet in demuxer.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                muxer.mux(packet)


def list_packets(source: str, listing: str) -> None:
    """Not by the muxer: that refuses a presentation before its decoding, which a negative composition time is."""
    with av.open(source) as demuxer, open(listing, "w") as lines:
        for stream in sorted(demuxer.streams, key=lambda stream: stream.type, reverse=True):
            print(f"#media_type {stream.index}: {stream.type}", file=lines)
            if isinstance(stream, av.VideoStream | av.AudioStream):
                print(f"#codec_id {stream.index}: {stream.codec_context.name}", file=lines)
                print(f"#extradata {stream.index}: {_digest(stream.codec_context.extradata or b'')}", file=lines)
        for packet in demuxer.demux():
            if packet.size:  # an empty one says that the demuxer is at the end
                times = f"{packet.dts},{packet.pts},{packet.duration}"
                print(f"{packet.stream.index},{times},{packet.size},{_digest(bytes(packet))}", file=lines, flush=True)


def _digest(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def main(words: list[str]) -> None:
    if words[0] == "publish":
        # Little probing: what is there at first has to be enough.
        copy("pipe:0", words[1], source_format="flv", options={"analyzeduration": "200000", "fpsprobesize": "0"})
    else:
        list_packets(words[1], words[2])


if __name__ == "__main__":
    main(sys.argv[1:])
