"""Fuzz targets of the protocol core: any bytes at all give values, or a PeerError.

    python tests/fuzz/fuzz_protocol.py [--seconds 60] [--seed 0] [target ...]

With atheris installed the (one) target that is named is fuzzed under its coverage guidance; without it, mutations of
the committed seeds are run in turn until the time is up. An input that breaks a target is written among its seeds,
where `tests/unit/test_fuzz_seeds.py` runs it from then on.

A target also checks what holds for any input: the split of the bytes makes no difference, and what comes out is
bounded by what went in.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import random
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headrace.errors import PeerError
from headrace.protocol import amf0, codecs, media
from headrace.protocol.chunks import ChunkReader
from headrace.protocol.client import ClientConnection, Role
from headrace.protocol.commands import decode_command
from headrace.protocol.events import ConnectRequested, PlayRequested, PublishRequested
from headrace.protocol.flv import FlvReader
from headrace.protocol.messages import Message
from headrace.protocol.metadata import decode_metadata, reader_form
from headrace.protocol.server import ServerConnection

SEEDS = Path(__file__).resolve().parent / "seeds"

_NONCE = bytes(1528)
_HANDSHAKE = b"\x03" + bytes(2 * 1536)  # both sides' simple form
# connect (no object), createStream, then publish or play "c" on stream 1, written by hand.
_CONNECT = bytes.fromhex("03 000000 000013 14 00000000 02 0007 636f6e6e656374 00 3ff0000000000000")
_CREATE = bytes.fromhex("03 000000 000018 14 00000000 02 000c 63726561746553747265616d 00 4000000000000000")
_PUBLISH = bytes.fromhex("04 000000 000018 14 01000000 02 0007 7075626c697368 00 4008000000000000 05 02 0001 63")
_PLAY = bytes.fromhex("04 000000 000015 14 01000000 02 0004 706c6179 00 4008000000000000 05 02 0001 63")
_SERVER_BEGINNINGS = (
    b"",
    _HANDSHAKE,
    _HANDSHAKE + _CONNECT + _CREATE + _PUBLISH,
    _HANDSHAKE + _CONNECT + _CREATE + _PLAY,
)
# The answers to connect and createStream, and to publish and play.
_CONNECTED = bytes.fromhex("03 000000 000013 14 00000000 02 0007 5f726573756c74 00 3ff0000000000000")
_CREATED = bytes.fromhex(
    "03 000000 00001d 14 00000000 02 0007 5f726573756c74 00 4010000000000000 05 00 3ff0000000000000"
)
_CLIENT_BEGINNINGS = (b"", _HANDSHAKE, _HANDSHAKE + _CONNECTED + _CREATED)

_VIDEO_CODECS = ("h264", "hevc", "vvc", "av1", "vp8", "vp9")
_AUDIO_CODECS = ("aac", "opus", "flac", "mp3", "mp3_8k", "ac3", "eac3", "speex")

# Replies are short, but a player's status is longer than the command that asked for it.
_MAX_ANSWER_RATIO = 32


def _split(data: bytes) -> Iterator[bytes]:
    """Cuts that depend on nothing but the data: small input byte by byte, large input in some pieces."""
    chance = random.Random(zlib.crc32(data))
    position = 0
    while position < len(data):
        size = 1 if len(data) < 200 else chance.choice((1, 2, 11, 128, 1537, 5000))
        yield data[position : position + size]
        position += size


def _text_of(event: object) -> str:
    # As text, for a NaN inside equals nothing.
    if isinstance(event, Message):
        return f"{event!r} {event.payload.hex()}"
    return repr(event)


def _serve(parts: Iterable[bytes]) -> tuple[list[str], str, int]:
    server = ServerConnection(nonce=_NONCE, epoch_ms=0)
    reported: list[str] = []
    fault = ""
    try:
        for part in parts:
            for event in server.receive_data(part):
                reported.append(_text_of(event))
                match event:
                    case ConnectRequested():
                        server.accept_connect()
                    case PublishRequested(stream, name) if name.startswith("!"):
                        server.reject_publish(stream, "NetStream.Publish.BadName", "taken")
                    case PublishRequested(stream):
                        server.accept_publish(stream)
                    case PlayRequested(stream, name) if name.startswith("!"):
                        server.reject_play(stream, "NetStream.Play.StreamNotFound", "nobody")
                    case PlayRequested(stream):
                        server.accept_play(stream)
    except PeerError as error:
        fault = str(error)
    return reported, fault, len(server.data_to_send())


def target_server_connection(data: bytes) -> None:
    for beginning in _SERVER_BEGINNINGS:
        whole = beginning + data
        reported, fault, answered_bytes = _serve([whole])
        assert (reported, fault) == _serve(_split(whole))[:2]
        assert answered_bytes <= 10_000 + _MAX_ANSWER_RATIO * len(whole)


def _play_or_publish(role: Role, parts: Iterable[bytes]) -> tuple[list[str], str, str, bytes]:
    client = ClientConnection(
        role=role, app="live", tc_url="rtmp://localhost/live", name="c", nonce=_NONCE, epoch_ms=0, digest=True
    )
    reported: list[str] = []
    fault = ""
    try:
        for part in parts:
            reported.extend(_text_of(event) for event in client.receive_data(part))
    except PeerError as error:
        fault = str(error)
    return reported, fault, client.state.value, client.data_to_send()


def target_client_connection(data: bytes) -> None:
    for role in Role:
        for beginning in _CLIENT_BEGINNINGS:
            whole = beginning + data
            expected, found = _play_or_publish(role, [whole]), _play_or_publish(role, _split(whole))
            assert found[:3] == expected[:3]
            assert len(expected[3]) <= 10_000 + _MAX_ANSWER_RATIO * len(whole)


def _read(parts: Iterable[bytes]) -> tuple[list[str], int, str]:
    reader = ChunkReader()
    found: list[Message] = []
    fault = ""
    try:
        for part in parts:
            found.extend(reader.receive(part))
    except PeerError as error:
        fault = str(error)
    return [_text_of(message) for message in found], sum(len(message.payload) for message in found), fault


def target_chunk_reader(data: bytes) -> None:
    messages, payload_bytes, fault = _read([data])
    assert (messages, payload_bytes, fault) == _read(_split(data))
    assert payload_bytes <= len(data)


def target_amf(data: bytes) -> None:
    decode_metadata(data)
    reader_form(data)
    _try(amf0.decode_values, data)
    _try(amf0.decode_value, data)
    for type_id in (17, 20):
        _try(decode_command, Message(type_id, 0, 1, data))


def target_media(data: bytes) -> None:
    # Run for every relayed message, these never raise.
    flags = {"video": media.classify_video(data), "audio": media.classify_audio(data)}
    media.config_slot("video", data)
    media.config_slot("audio", data)
    video, audio = _try(media.parse_video, data), _try(media.parse_audio, data)
    bodies = [data]
    if video is not None:
        assert video.flags == flags["video"]
        bodies += [bytes(track.body) for track in video.tracks]
    if audio is not None:
        assert audio.flags == flags["audio"]
        bodies += [bytes(track.body) for track in audio.tracks]
    for body in bodies:
        for codec in _VIDEO_CODECS:
            _try(codecs.describe_video_config, codec, body)
            _try(codecs.describe_video_frame, codec, body)
        for codec in _AUDIO_CODECS:
            _try(codecs.describe_audio, codec, body)
            _try(codecs.describe_audio, codec, None, body)


def _read_flv(parts: Iterable[bytes]) -> tuple[list[object], int | None]:
    reader = FlvReader()
    tags: list[object] = []
    try:
        for part in parts:
            tags += reader.receive(part)
        return tags, reader.finish()
    except PeerError:
        return tags, None  # not its text: a wrong signature is told by as many bytes as there are


def target_flv(data: bytes) -> None:
    assert _read_flv([data]) == _read_flv(_split(data))


def _try(function: Callable[..., Any], *arguments: object) -> Any:
    try:
        return function(*arguments)
    except PeerError:
        return None


TARGETS: dict[str, Callable[[bytes], None]] = {
    "server_connection": target_server_connection,
    "client_connection": target_client_connection,
    "chunk_reader": target_chunk_reader,
    "amf": target_amf,
    "media": target_media,
    "flv": target_flv,
}


def seeds_of(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((SEEDS / target).iterdir())]


# --- without atheris

_TELLING_BYTES = (0x00, 0x01, 0x02, 0x03, 0x05, 0x11, 0x3F, 0x40, 0x7F, 0x80, 0xC0, 0xC3, 0xFE, 0xFF)
_TELLING_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0xFFFFFE, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutate(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """A few small changes; `others` give parts to splice in. The same chance gives the same result."""
    mutant = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(mutant))
        size = chance.choice((1, 2, 4, 16, 130))
        match chance.randrange(8):
            case 0:
                mutant[at : at + 1] = bytes((chance.randrange(256),))
            case 1:
                mutant[at : at + 1] = bytes((chance.choice(_TELLING_BYTES),))
            case 2:
                width = chance.choice((2, 3, 4))
                number = chance.choice(_TELLING_NUMBERS) & (1 << 8 * width) - 1
                mutant[at : at + width] = number.to_bytes(width, "big")
            case 3:
                del mutant[at : at + size]
            case 4:
                mutant[at:at] = mutant[at : at + size]
            case 5:
                mutant[at:at] = chance.randbytes(size)
            case 6:
                del mutant[at:]
            case _:
                other = chance.choice(others)
                start = chance.randint(0, len(other))
                mutant[at:at] = other[start : start + 8 * size]
    return bytes(mutant)


def mutants(target: str, chance: random.Random) -> Iterator[bytes]:
    """Without end: mutations of a target's seeds."""
    seeds = seeds_of(target)
    while True:
        yield mutate(chance.choice(seeds), seeds, chance)


def run(target: str, data: bytes) -> None:
    try:
        TARGETS[target](data)
    except PeerError:
        pass


def _keep(target: str, data: bytes) -> Path:
    path = SEEDS / target / f"crash_{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return path


def _run_mutants(targets: Sequence[str], seconds: float, seed: int) -> int:
    streams = {target: mutants(target, random.Random(f"{seed} {target}")) for target in targets}
    deadline = time.monotonic() + seconds
    count = 0
    while time.monotonic() < deadline:
        for target, stream in streams.items():
            data = next(stream)
            try:
                run(target, data)
            except Exception:
                print(f"{target} broke after {count} inputs; the input is {_keep(target, data)}")
                raise
            count += 1
    print(f"{count} inputs, nothing broke")
    return 0


def _run_atheris(target: str, seconds: float, seed: int) -> int:
    atheris: Any = importlib.import_module("atheris")
    atheris.instrument_all()
    options = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=20000"]
    options.append(f"-artifact_prefix={SEEDS / target}/crash_")
    # It writes what it finds into the first folder, and its finds are too many to commit.
    with tempfile.TemporaryDirectory() as finds:
        atheris.Setup([sys.argv[0], *options, finds, str(SEEDS / target)], lambda data: run(target, data))
        atheris.Fuzz()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fuzz the protocol core.")
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    targets: list[str] = options.targets or list(TARGETS)
    if unknown := [target for target in targets if target not in TARGETS]:
        parser.error(f"target {unknown[0]!r}, expected one of {', '.join(TARGETS)}")
    if importlib.util.find_spec("atheris") is not None and len(targets) == 1:
        return _run_atheris(targets[0], options.seconds, options.seed)
    return _run_mutants(targets, options.seconds, options.seed)


if __name__ == "__main__":
    sys.exit(main())
