"""Chunks against bytes written out from RTMP 1.0, section 5.3, and recorded from FFmpeg 7.0.2.

`READS` is what peers may send; `WRITES` is what our writer must send, and is read back as well. Both are seeds of the
fuzz target too. Chunk sizes are small, so that a message of several chunks fits on a line.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerError, UsageError
from headrace.protocol import chunks
from headrace.protocol.chunks import ChunkReader, ChunkWriter, RawMessage, encode_message
from headrace.protocol.messages import Message
from tests.unit.protocol.wire import cuts_of, one_by_one, patient, pieces, seed

Parts = tuple[int, int, int, str]  # type, timestamp, message stream, payload

CHUNKS_OF_4 = "02 000000 000004 01 00000000 00000004"  # Set Chunk Size 4
ABORT_4 = "02 000000 000004 02 00000000 00000004"  # Abort, chunk stream 4
A, B = "a1" * 32, "b2" * 32

READS: list[tuple[str, str, list[Parts]]] = [
    (
        "the specification's first example: formats 0, 2, 3, 3",
        f"03 0003e8 000020 08 39300000 {A} 83 000014 {B} c3 {A} c3 {B}",
        [(8, 1000, 12345, A), (8, 1020, 12345, B), (8, 1040, 12345, A), (8, 1060, 12345, B)],
    ),
    (
        "the specification's second example: 307 bytes in chunks of 128",
        f"04 0003e8 000133 09 3a300000 {'11' * 128} c4 {'22' * 128} c4 {'33' * 51}",
        [(9, 1000, 12346, "11" * 128 + "22" * 128 + "33" * 51)],
    ),
    ("the lowest id of a one-byte header", "02 000000 000001 08 00000000 aa", [(8, 0, 0, "aa")]),
    ("the highest id of a one-byte header", "3f 000000 000001 08 00000000 aa", [(8, 0, 0, "aa")]),
    ("ids of a two-byte header", "0000 000001 000001 08 01000000 aa c000 bb", [(8, 1, 1, "aa"), (8, 2, 1, "bb")]),
    ("the highest id of a two-byte header", "00ff 000001 000001 08 01000000 aa", [(8, 1, 1, "aa")]),
    (
        "the last byte of a three-byte header counts 256",
        "010001 000001 000001 08 01000000 aa 00ff 000005 000001 08 02000000 bb c10001 cc c0ff dd",
        [(8, 1, 1, "aa"), (8, 5, 2, "bb"), (8, 2, 1, "cc"), (8, 10, 2, "dd")],
    ),
    ("the highest id of a three-byte header", "01ffff 000001 000000 08 00000000", [(8, 1, 0, "")]),
    (
        "one chunk stream under two spellings of its id",
        f"{CHUNKS_OF_4} 010000 000001 000006 08 01000000 a1a2a3a4 c000 a5a6",
        [(8, 1, 1, "a1a2a3a4a5a6")],
    ),
    ("the message stream id is little-endian", "04 000000 000000 08 01020304", [(8, 0, 0x04030201, "")]),
    (
        "format 1 keeps the stream and changes length and type",
        "04 0003e8 000001 08 01000000 aa 44 000014 000002 09 b1b2",
        [(8, 1000, 1, "aa"), (9, 1020, 1, "b1b2")],
    ),
    (
        "format 2 keeps length and type",
        "04 0003e8 000001 08 01000000 aa 84 000014 bb",
        [(8, 1000, 1, "aa"), (8, 1020, 1, "bb")],
    ),
    (
        "format 3 after format 0 adds that message's timestamp",
        "04 0003e8 000001 08 01000000 aa c4 bb c4 cc",
        [(8, 1000, 1, "aa"), (8, 2000, 1, "bb"), (8, 3000, 1, "cc")],
    ),
    (
        "format 3 after format 1 repeats the delta",
        "04 0003e8 000001 08 01000000 aa 44 000014 000002 09 b1b2 c4 c1c2",
        [(8, 1000, 1, "aa"), (9, 1020, 1, "b1b2"), (9, 1040, 1, "c1c2")],
    ),
    (
        "format 3 after format 2 repeats the delta",
        "04 0003e8 000001 08 01000000 aa 84 000014 bb c4 cc 84 000000 dd c4 ee",
        [(8, 1000, 1, "aa"), (8, 1020, 1, "bb"), (8, 1040, 1, "cc"), (8, 1040, 1, "dd"), (8, 1040, 1, "ee")],
    ),
    (
        "a second format 0 starts anew",
        "04 0003e8 000001 08 01000000 aa 04 000001 000001 09 02000000 bb",
        [(8, 1000, 1, "aa"), (9, 1, 2, "bb")],
    ),
    (
        "format 1 on a fresh chunk stream, as librtmp may send it",
        "44 000014 000001 08 aa c4 bb",
        [(8, 20, 0, "aa"), (8, 40, 0, "bb")],
    ),
    ("the last timestamp without extension", "04 fffffe 000001 08 01000000 aa", [(8, 0xFFFFFE, 1, "aa")]),
    ("the first timestamp with extension", "04 ffffff 000001 08 01000000 00ffffff aa", [(8, 0xFFFFFF, 1, "aa")]),
    (
        "an extended timestamp, repeated on continuations",
        f"{CHUNKS_OF_4} 04 ffffff 00000a 08 01000000 01020304 a1a2a3a4 c4 01020304 a5a6a7a8 c4 01020304 a9aa",
        [(8, 0x01020304, 1, "a1a2a3a4a5a6a7a8a9aa")],
    ),
    (
        "an extended timestamp, omitted on continuations",
        f"{CHUNKS_OF_4} 04 ffffff 00000a 08 01000000 01020304 a1a2a3a4 c4 a5a6a7a8 c4 a9aa",
        [(8, 0x01020304, 1, "a1a2a3a4a5a6a7a8a9aa")],
    ),
    (
        "repeated and omitted in one message",
        f"{CHUNKS_OF_4} 04 ffffff 00000e 08 01000000 01020304 a1a2a3a4 c4 a5a6a7a8 c4 01020304 a9aaabac c4 adae",
        [(8, 0x01020304, 1, "a1a2a3a4a5a6a7a8a9aaabacadae")],
    ),
    (
        "an omitted extension and a payload that begins like it",
        f"{CHUNKS_OF_4} 04 ffffff 000008 08 01000000 01020304 a1a2a3a4 c4 010203ff",
        [(8, 0x01020304, 1, "a1a2a3a4010203ff")],
    ),
    (
        "omitted before a last chunk of two bytes, which look like its beginning",
        f"{CHUNKS_OF_4} 04 ffffff 000006 08 01000000 01020304 a1a2a3a4 c4 0102 05 000000 000001 08 01000000 bb",
        [(8, 0x01020304, 1, "a1a2a3a40102"), (8, 0, 1, "bb")],
    ),
    (
        "repeated before a last chunk of one byte",
        f"{CHUNKS_OF_4} 04 ffffff 000005 08 01000000 01020304 a1a2a3a4 c4 01020304 01",
        [(8, 0x01020304, 1, "a1a2a3a401")],
    ),
    (
        "an extended delta in format 1, repeated as a delta",
        f"{CHUNKS_OF_4} 04 0003e8 000000 08 01000000 44 ffffff 000006 09 01000000 b1b2b3b4 c4 01000000 b5b6",
        [(8, 1000, 1, ""), (9, 0x010003E8, 1, "b1b2b3b4b5b6")],
    ),
    (
        "an extended delta in format 1, repeated as a timestamp",
        f"{CHUNKS_OF_4} 04 0003e8 000000 08 01000000 44 ffffff 000006 09 01000000 b1b2b3b4 c4 010003e8 b5b6",
        [(8, 1000, 1, ""), (9, 0x010003E8, 1, "b1b2b3b4b5b6")],
    ),
    (
        "an extended delta in format 1, omitted on the continuation",
        f"{CHUNKS_OF_4} 04 0003e8 000000 08 01000000 44 ffffff 000006 09 01000000 b1b2b3b4 c4 b5b6",
        [(8, 1000, 1, ""), (9, 0x010003E8, 1, "b1b2b3b4b5b6")],
    ),
    (
        "an extended delta in format 2, repeated",
        f"{CHUNKS_OF_4} 04 0003e8 000006 08 01000000 a1a2a3a4 c4 a5a6 84 ffffff 01000000 b1b2b3b4 c4 01000000 b5b6",
        [(8, 1000, 1, "a1a2a3a4a5a6"), (8, 0x010003E8, 1, "b1b2b3b4b5b6")],
    ),
    (
        "an extended delta in format 2, omitted",
        f"{CHUNKS_OF_4} 04 0003e8 000006 08 01000000 a1a2a3a4 c4 a5a6 84 ffffff 01000000 b1b2b3b4 c4 b5b6",
        [(8, 1000, 1, "a1a2a3a4a5a6"), (8, 0x010003E8, 1, "b1b2b3b4b5b6")],
    ),
    (
        "format 3 starts a message with the extension repeated",
        "04 ffffff 000001 08 01000000 01000000 aa c4 01000000 bb",
        [(8, 0x01000000, 1, "aa"), (8, 0x02000000, 1, "bb")],
    ),
    (
        "format 3 starts a message with the extension omitted",
        "04 ffffff 000004 08 01000000 01000000 a1a2a3a4 c4 b1b2b3b4",
        [(8, 0x01000000, 1, "a1a2a3a4"), (8, 0x02000000, 1, "b1b2b3b4")],
    ),
    (
        "after the extension a plain delta has none",
        f"{CHUNKS_OF_4} 04 ffffff 000006 08 01000000 01000000 a1a2a3a4 c4 01000000 a5a6 84 000014 b1b2b3b4 c4 b5b6",
        [(8, 0x01000000, 1, "a1a2a3a4a5a6"), (8, 0x01000014, 1, "b1b2b3b4b5b6")],
    ),
    (
        "after the extension a payload may look like a plain delta",
        f"{CHUNKS_OF_4} 04 ffffff 000001 08 01000000 01000000 aa 44 000014 000008 08 b1b2b3b4 c4 00000014",
        [(8, 0x01000000, 1, "aa"), (8, 0x01000014, 1, "b1b2b3b400000014")],
    ),
    (
        "a timestamp wraps at 2^32 by format 2, and by format 3",
        "04 ffffff 000001 08 01000000 fffffff0 aa 84 000014 bb c4 cc",
        [(8, 0xFFFFFFF0, 1, "aa"), (8, 4, 1, "bb"), (8, 24, 1, "cc")],
    ),
    (
        "a timestamp wraps by an extended delta",
        "04 ffffff 000001 08 01000000 ff000000 aa 44 ffffff 000001 09 01000001 bb",
        [(8, 0xFF000000, 1, "aa"), (9, 1, 1, "bb")],
    ),
    (
        "two chunk streams interleaved",
        f"{CHUNKS_OF_4} 04 000001 000006 08 01000000 a1a2a3a4 06 000002 000007 09 01000000 b1b2b3b4 c4 a5a6 c6 b5b6b7",
        [(8, 1, 1, "a1a2a3a4a5a6"), (9, 2, 1, "b1b2b3b4b5b6b7")],
    ),
    (
        "three chunk streams interleaved, whole messages between the chunks",
        f"{CHUNKS_OF_4} 04 000001 00000a 08 01000000 a1a2a3a4 06 000002 000006 09 01000000 b1b2b3b4"
        "   05 000003 000002 12 01000000 c1c2 c4 a5a6a7a8 85 000001 c3c4 c6 b5b6 c4 a9aa",
        [(18, 3, 1, "c1c2"), (18, 4, 1, "c3c4"), (9, 2, 1, "b1b2b3b4b5b6"), (8, 1, 1, "a1a2a3a4a5a6a7a8a9aa")],
    ),
    (
        "Set Chunk Size in the middle of two messages holds from the next chunk of each",
        f"{CHUNKS_OF_4} 04 000001 00000b 08 01000000 a1a2a3a4 06 000002 00000a 09 01000000 b1b2b3b4"
        "   c2 00000006 c6 b5b6b7b8b9ba c4 a5a6a7a8a9aa c4 ab",
        [(9, 2, 1, "b1b2b3b4b5b6b7b8b9ba"), (8, 1, 1, "a1a2a3a4a5a6a7a8a9aaab")],
    ),
    (
        "a smaller chunk size in the middle of a message",
        f"{CHUNKS_OF_4} 04 000001 000008 08 01000000 a1a2a3a4 c2 00000001 c4 a5 c4 a6 c4 a7 c4 a8",
        [(8, 1, 1, "a1a2a3a4a5a6a7a8")],
    ),
    (
        "the top bit of a chunk size is ignored",
        "02 000000 000004 01 00000000 80000004 04 000001 000005 08 01000000 a1a2a3a4 c4 a5",
        [(8, 1, 1, "a1a2a3a4a5")],
    ),
    (
        "the largest chunk size",
        f"02 000000 000004 01 00000000 7fffffff 04 000001 000100 08 01000000 {'aa' * 256}",
        [(8, 1, 1, "aa" * 256)],
    ),
    (
        "bytes after the chunk size are ignored",
        "02 000000 000006 01 00000000 00000004 ffff 04 000001 000005 08 01000000 a1a2a3a4 c4 a5",
        [(8, 1, 1, "a1a2a3a4a5")],
    ),
    (
        "Abort discards what there is of a message",
        f"{CHUNKS_OF_4} 04 000001 000006 08 01000000 a1a2a3a4 {ABORT_4} 04 000002 000002 08 01000000 b1b2",
        [(8, 2, 1, "b1b2")],
    ),
    (
        "after Abort, format 3 starts a message",
        f"{CHUNKS_OF_4} 04 000001 000006 08 01000000 a1a2a3a4 {ABORT_4} c4 b1b2b3b4 c4 b5b6",
        [(8, 2, 1, "b1b2b3b4b5b6")],
    ),
    (
        "Abort leaves the other chunk streams alone",
        f"{CHUNKS_OF_4} 05 000001 000006 08 01000000 a1a2a3a4 {ABORT_4} c5 a5a6",
        [(8, 1, 1, "a1a2a3a4a5a6")],
    ),
    (
        "Abort of a chunk stream without a message in progress",
        f"04 000001 000001 08 01000000 aa {ABORT_4} c4 bb",
        [(8, 1, 1, "aa"), (8, 2, 1, "bb")],
    ),
    ("Abort of a chunk stream nobody used", f"{ABORT_4} 05 000001 000000 08 01000000", [(8, 1, 1, "")]),
    (
        "messages without payload, in formats 0 and 3",
        "04 000005 000000 08 01000000 c4 c4",
        [(8, 5, 1, ""), (8, 10, 1, ""), (8, 15, 1, "")],
    ),
    (
        "a message without payload whose extension is omitted",
        "04 ffffff 000000 08 01000000 01000000 c4 04 000001 000000 08 01000000",
        [(8, 0x01000000, 1, ""), (8, 0x02000000, 1, ""), (8, 1, 1, "")],
    ),
    ("the reserved type 0 reaches nobody", "02 000000 000002 00 00000000 aabb", []),
    ("a message as long as the chunk", f"{CHUNKS_OF_4} 04 000001 000004 08 01000000 a1a2a3a4", [(8, 1, 1, "a1a2a3a4")]),
    (
        "a payload that looks like headers",
        f"{CHUNKS_OF_4} 04 000001 000008 08 01000000 c4c4c4c4 c4 04000001",
        [(8, 1, 1, "c4c4c4c404000001")],
    ),
    (
        "a payload that looks like the first byte of two-byte headers",
        "02 000000 000004 01 00000000 00000003 0000 000001 00000f 08 01000000"
        "   c0c0c0 c000 c0c0c0 c000 c0c0c0 c000 c0c0c0 c000 c0c0c0",
        [(8, 1, 1, "c0" * 15)],
    ),
]

Written = tuple[int, Message]  # chunk stream, message


def said(type_id: int, timestamp_ms: int, message_stream_id: int, payload: str) -> Message:
    return Message(type_id, timestamp_ms, message_stream_id, bytes.fromhex(payload))


SIZE_4 = said(1, 0, 0, "00000004")
WRITES: list[tuple[str, list[Written], str]] = [
    ("the first message has all of its header", [(4, said(8, 1000, 1, "aa"))], "04 0003e8 000001 08 01000000 aa"),
    (
        "another length: format 1",
        [(4, said(8, 1000, 1, "aa")), (4, said(8, 1020, 1, "b1b2"))],
        "04 0003e8 000001 08 01000000 aa 44 000014 000002 08 b1b2",
    ),
    (
        "another type: format 1",
        [(4, said(8, 1000, 1, "aa")), (4, said(9, 1020, 1, "bb"))],
        "04 0003e8 000001 08 01000000 aa 44 000014 000001 09 bb",
    ),
    (
        "another delta: format 2",
        [(4, said(8, 1000, 1, "aa")), (4, said(8, 1020, 1, "bb"))],
        "04 0003e8 000001 08 01000000 aa 84 000014 bb",
    ),
    (
        "the same delta: format 3",
        [(4, said(8, 1000, 1, "aa")), (4, said(8, 1020, 1, "bb")), (4, said(8, 1040, 1, "cc"))],
        "04 0003e8 000001 08 01000000 aa 84 000014 bb c4 cc",
    ),
    (
        "a delta equal to the timestamp of a format 0: format 3",
        [(4, said(8, 1000, 1, "aa")), (4, said(8, 2000, 1, "bb"))],
        "04 0003e8 000001 08 01000000 aa c4 bb",
    ),
    (
        "a step back in time: format 0",
        [(4, said(8, 1000, 1, "aa")), (4, said(8, 999, 1, "bb"))],
        "04 0003e8 000001 08 01000000 aa 04 0003e7 000001 08 01000000 bb",
    ),
    (
        "the wrap at 2^32 is a step back",
        [(4, said(8, 0xFFFFFFFF, 1, "aa")), (4, said(8, 0x100000001, 1, "bb"))],
        "04 ffffff 000001 08 01000000 ffffffff aa 04 000001 000001 08 01000000 bb",
    ),
    (
        "another message stream: format 0",
        [(4, said(8, 1000, 1, "aa")), (4, said(8, 1020, 2, "bb"))],
        "04 0003e8 000001 08 01000000 aa 04 0003fc 000001 08 02000000 bb",
    ),
    (
        "each chunk stream has a memory of its own",
        [(4, said(8, 1000, 1, "aa")), (6, said(8, 1000, 1, "bb")), (4, said(8, 1000, 1, "cc"))],
        "04 0003e8 000001 08 01000000 aa 06 0003e8 000001 08 01000000 bb 84 000000 cc",
    ),
    (
        "a message longer than the chunk size is split with headers of format 3",
        [(2, SIZE_4), (4, said(8, 1, 1, "a1a2a3a4a5a6a7a8a9"))],
        f"{CHUNKS_OF_4} 04 000001 000009 08 01000000 a1a2a3a4 c4 a5a6a7a8 c4 a9",
    ),
    (
        "a message of exactly two chunks has no empty third",
        [(2, SIZE_4), (4, said(8, 1, 1, "a1a2a3a4a5a6a7a8"))],
        f"{CHUNKS_OF_4} 04 000001 000008 08 01000000 a1a2a3a4 c4 a5a6a7a8",
    ),
    ("no payload", [(4, said(8, 1, 1, ""))], "04 000001 000000 08 01000000"),
    ("no extension below 0xFFFFFF", [(4, said(8, 0xFFFFFE, 1, "aa"))], "04 fffffe 000001 08 01000000 aa"),
    ("an extension from 0xFFFFFF on", [(4, said(8, 0xFFFFFF, 1, "aa"))], "04 ffffff 000001 08 01000000 00ffffff aa"),
    (
        "the extension stands on every continuation",
        [(2, SIZE_4), (4, said(8, 0x01020304, 1, "a1a2a3a4a5a6a7a8a9"))],
        f"{CHUNKS_OF_4} 04 ffffff 000009 08 01000000 01020304 a1a2a3a4 c4 01020304 a5a6a7a8 c4 01020304 a9",
    ),
    (
        "a small delta past 0xFFFFFF needs no extension",
        [(4, said(8, 0x01000000, 1, "aa")), (4, said(8, 0x01000014, 1, "bb"))],
        "04 ffffff 000001 08 01000000 01000000 aa 84 000014 bb",
    ),
    (
        "an extended delta in formats 1, 2 and 3",
        [
            (4, said(8, 0, 1, "")),
            (4, said(8, 0x01000000, 1, "aa")),
            (4, said(8, 0x02000001, 1, "bb")),
            (4, said(8, 0x03000002, 1, "cc")),
        ],
        "04 000000 000000 08 01000000 44 ffffff 000001 08 01000000 aa 84 ffffff 01000001 bb c4 01000001 cc",
    ),
    (
        "a two-byte id",
        [(64, said(8, 1, 1, "aa")), (64, said(8, 2, 1, "bb"))],
        "0000 000001 000001 08 01000000 aa c000 bb",
    ),
    ("the highest two-byte id", [(319, said(8, 1, 1, "aa"))], "00ff 000001 000001 08 01000000 aa"),
    ("the lowest three-byte id", [(320, said(8, 1, 1, "aa"))], "010001 000001 000001 08 01000000 aa"),
    ("the highest id", [(65599, said(8, 1, 1, "aa"))], "01ffff 000001 000001 08 01000000 aa"),
    ("the message stream id is little-endian", [(4, said(8, 1, 0x04030201, ""))], "04 000001 000000 08 01020304"),
]

# What stands before the fault is given out first; a limit of 1000 bytes per message holds in all of them.
GOOD = "04 000001 000001 08 01000000 aa"
FAULTS: list[tuple[str, str, str]] = [
    ("format 3 on a fresh chunk stream", "c5", "format 3 on chunk stream 5, which has no earlier header"),
    ("format 2 on a fresh chunk stream", "85 000014", "format 2 on chunk stream 5, which has no earlier header"),
    ("a chunk size of 0", "02 000000 000004 01 00000000 00000000", "chunk size 0, expected 1..2147483647"),
    ("a chunk size of the top bit alone", "02 000000 000004 01 00000000 80000000", "chunk size 0, expected 1"),
    ("a cut Set Chunk Size", "02 000000 000003 01 00000000 000001", "Set Chunk Size has 3 bytes, expected 4"),
    ("a cut Abort", "02 000000 000000 02 00000000", "Abort has 0 bytes, expected 4"),
    ("too long by format 0", "05 000000 0003e9 08 01000000", "message of 1001 bytes, expected at most 1000"),
    ("too long by format 1", "44 000000 ffffff 08", "message of 16777215 bytes, expected at most 1000"),
    (
        "a new header in the middle of a message",
        f"{CHUNKS_OF_4} 05 000000 000006 08 01000000 a1a2a3a4 05 000000 000006 08 01000000",
        "chunk stream 5: new message header while 2 bytes of the last message are missing",
    ),
    (
        "a 65th chunk stream",
        " ".join(f"00{id_:02x} 000000 000000 00 00000000" for id_ in range(64)),
        "chunk stream 127 is one too many, expected at most 64",
    ),
]


def read(parts: Iterable[bytes], reader: ChunkReader | None = None) -> tuple[list[Message], str]:
    """All messages, and the fault that ended them, or ""."""
    reader = reader or ChunkReader()
    found: list[Message] = []
    try:
        for part in parts:
            found.extend(reader.receive(part))
    except PeerError as fault:
        return found, str(fault)
    return found, ""


def parsed(parts: list[Parts]) -> list[Message]:
    return [Message(type_id, time, stream, bytes.fromhex(payload)) for type_id, time, stream, payload in parts]


@pytest.mark.parametrize(("wire", "expected"), [pytest.param(*row[1:], id=row[0]) for row in READS])
def test_bytes_give_their_messages_in_one_piece_and_byte_by_byte(wire: str, expected: list[Parts]) -> None:
    data = bytes.fromhex(wire)
    assert read([data]) == (parsed(expected), "")
    assert read(one_by_one(data)) == (parsed(expected), "")


@pytest.mark.parametrize(("written", "wire"), [pytest.param(*row[1:], id=row[0]) for row in WRITES])
def test_messages_give_their_bytes_and_the_bytes_the_messages(written: list[Written], wire: str) -> None:
    writer = ChunkWriter()
    assert b"".join(writer.encode(message, on) for on, message in written) == bytes.fromhex(wire)
    expected = [
        Message(message.type_id, message.timestamp_ms & 0xFFFFFFFF, message.message_stream_id, message.payload)
        for _, message in written
        if message.type_id != 1
    ]
    assert read([bytes.fromhex(wire)]) == (expected, "")


@pytest.mark.parametrize(("wire", "complaint"), [pytest.param(*row[1:], id=row[0]) for row in FAULTS])
def test_a_fault_is_told_after_the_messages_before_it(wire: str, complaint: str) -> None:
    data = bytes.fromhex(GOOD + wire)
    for split in ([data], one_by_one(data)):
        found, fault = read(split, ChunkReader(max_message_bytes=1000))
        assert found == [Message(8, 1, 1, b"\xaa")]
        assert complaint in fault


@pytest.mark.parametrize("wire", ["84 000000 bb", "c4 bb"])
def test_a_limit_that_was_lowered_holds_for_headers_without_a_length(wire: str) -> None:
    reader = ChunkReader()
    assert read([bytes.fromhex("04 000001 000002 08 01000000 a1a2")], reader) == ([said(8, 1, 1, "a1a2")], "")
    reader.max_message_bytes = 1
    assert read([bytes.fromhex(wire)], reader) == ([], "message of 2 bytes, expected at most 1")


def test_a_limit_that_is_raised_on_account_of_a_command_holds_for_the_next_message_in_the_same_bytes() -> None:
    reader = ChunkReader(max_message_bytes=1)
    messages = reader.receive(bytes.fromhex("04 000001 000001 14 01000000 aa 44 000001 000002 08 b1b2"))
    assert next(messages) == said(20, 1, 1, "aa")
    reader.max_message_bytes = 2
    assert list(messages) == [said(8, 2, 1, "b1b2")]


def test_what_is_read_out_of_a_buffer_stays_when_the_buffer_is_used_again() -> None:
    # One chunk, two chunks and 200 of them, an incomplete header, and a command in between.
    sent = [
        said(8, 1, 1, "aa"),
        said(9, 2, 1, "bb" * 5),
        said(9, 3, 1, "cc" * 800),
        said(20, 4, 1, "dd"),
        said(8, 5, 1, ""),
    ]
    writer = ChunkWriter()
    writer.chunk_size = 4
    wire = b"".join(writer.encode(message, 4) for message in sent)
    reader, batch = ChunkReader(), list[RawMessage]()
    reader.chunk_size = 4
    buffer = bytearray(600)
    for at in range(0, len(wire), len(buffer)):
        piece = wire[at : at + len(buffer)]
        buffer[: len(piece)] = piece
        is_all = reader.read(memoryview(buffer)[: len(piece)], batch)
        buffer[:] = bytes(len(buffer))
        while not is_all:
            assert batch[-1][0] == 20, "it stops behind what is not media"
            is_all = reader.read(b"", batch)
    assert [Message(*raw) for raw in batch] == sent


# --- captures of FFmpeg 7.0.2


def test_ffmpeg_repeats_an_extended_delta_on_continuations() -> None:
    # The keyframe at 17 000 000 ms: `46 ffffff 00036a 09 01036640`, then `c6 01036640` before each further chunk.
    capture = seed("server_connection", "ffmpeg_publish_extended_timestamps.bin")[3073:]
    assert capture.count(bytes.fromhex("c6 01036640")) == 6
    found, fault = read([capture])
    assert fault == ""
    keyframe = next(message for message in found if message.timestamp_ms == 17_000_000)
    assert (keyframe.type_id, len(keyframe.payload), keyframe.payload[:5].hex()) == (9, 874, "1701000000")
    times = [message.timestamp_ms for message in found if message.type_id == 9]
    assert times == [0, 17_000_000, 17_000_100, 17_000_200, 17_000_300, 17_000_400, 17_000_400]


@patient
@given(st.data())
def test_any_split_of_a_capture_gives_the_same_messages(data: st.DataObject) -> None:
    capture = seed("server_connection", "ffmpeg_publish_extended_timestamps.bin")[3073:]
    assert read(pieces(capture, data.draw(cuts_of(len(capture))))) == read([capture])


# --- runs of small chunks, which the reader cuts in one go


def in_chunks(payload: bytes, size: int, header: bytes, separator: bytes = b"\xc6") -> list[bytes]:
    first, *rest = (payload[at : at + size] for at in range(0, len(payload), size))
    return [header + first, *(separator + part for part in rest)]


def video_header(length: int) -> bytes:
    return b"\x06\x00\x00\x28" + length.to_bytes(3, "big") + b"\x09\x01\x00\x00\x00"


def chunk_size(size: int) -> bytes:
    return bytes.fromhex("02 000000 000004 01 00000000") + size.to_bytes(4, "big")


@pytest.mark.parametrize("size", [1, 2, 3, 127, 128, 129, 1000])
@pytest.mark.parametrize("length", [1, 128, 129, 1280, 1281, 5000])
@pytest.mark.parametrize("fill", [b"\xc6", b"\x06", b"\xc4\xc6\x06", bytes(range(256))], ids=["c6", "06", "mix", "all"])
def test_small_chunks_give_the_payload_whatever_it_looks_like(size: int, length: int, fill: bytes) -> None:
    payload = (fill * length)[:length]
    data = chunk_size(size) + b"".join(in_chunks(payload, size, video_header(length)))
    expected = ([Message(9, 40, 1, payload)], "")
    assert read([data]) == expected
    assert read([data[:20], data[20:]]) == expected  # the run begins in the middle of a chunk
    assert read(data[at : at + 700] for at in range(0, len(data), 700)) == expected


def test_a_run_of_small_chunks_is_interrupted_anywhere_by_another_chunk_stream() -> None:
    payload = bytes(range(200))
    parts = in_chunks(payload, 2, video_header(200))
    for at in range(1, len(parts)):
        data = chunk_size(2) + b"".join(parts[:at]) + bytes.fromhex("04 000001 000001 08 01000000 aa")
        data += b"".join(parts[at:])
        assert read([data]) == ([said(8, 1, 1, "aa"), Message(9, 40, 1, payload)], "")


def test_a_run_of_small_chunks_ends_where_the_chunk_size_changes() -> None:
    payload = bytes(range(250))
    head, tail = payload[:20], payload[20:]
    data = chunk_size(2) + b"".join(in_chunks(head, 2, video_header(250))) + bytes.fromhex("c2 0000 c2 0005")
    data += b"".join(in_chunks(tail, 5, b"\xc6"))
    assert read([data]) == ([Message(9, 40, 1, payload)], "")


@pytest.mark.parametrize(
    ("header", "separator"),
    [
        ("06 ffffff 000032 09 01000000 01020304", "c6 01020304"),
        ("06 ffffff 000032 09 01000000 01020304", "c6"),
        ("0000 000028 000032 09 01000000", "c000"),
        ("010001 000028 000032 09 01000000", "c10001"),
    ],
)
def test_small_chunks_with_longer_headers_are_read_one_by_one(header: str, separator: str) -> None:
    payload = bytes(range(50))
    data = b"".join(in_chunks(payload, 2, bytes.fromhex(header), bytes.fromhex(separator)))
    found, fault = read([chunk_size(2) + data])
    assert ([message.payload for message in found], fault) == ([payload], "")


# --- bounds


def test_half_received_messages_are_capped_together() -> None:
    # 64 chunk streams of 256 KB are the most a peer can leave unfinished before it may publish: they fit.
    reader = ChunkReader(max_message_bytes=256 << 10)
    unfinished = (256 << 10) - 1
    assert read([chunk_size(unfinished)], reader) == ([], "")
    for id_ in range(63):
        wire = bytes((0, id_)) + bytes.fromhex("000000 040000 09 01000000") + bytes(unfinished)
        assert read([wire], reader) == ([], "")
    # With the limit of a publisher they do not: 16 MB and 1 MB are the end.
    reader.max_message_bytes = chunks.MAX_MESSAGE_BYTES
    wire = bytes.fromhex("c2 00f00000 42 000000 ffffff 09") + bytes(2 << 20)
    found, fault = read([wire], reader)
    assert (found, fault) == (
        [],
        f"{63 * unfinished + (2 << 20)} bytes of unfinished messages, expected at most 17825791",
    )


def test_aborted_messages_do_not_count_as_half_received() -> None:
    reader = ChunkReader()
    part = bytes.fromhex("04 000000 ffffff 09 01000000") + bytes(0xFFFFFE)
    assert read([chunk_size(0xFFFFFE)], reader) == ([], "")
    for _ in range(3):
        assert read([part, bytes.fromhex(ABORT_4)], reader) == ([], "")


def peak_bytes(parts: Iterable[bytes]) -> int:
    reader = ChunkReader()
    tracemalloc.start()
    try:
        assert read(parts, reader) == ([], "")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_announced_length_takes_no_memory() -> None:
    announced = b"".join(bytes((0, id_)) + bytes.fromhex("000000 ffffff 09 01000000 aa") for id_ in range(60))
    assert peak_bytes([chunk_size(1), announced]) < 60_000


def test_an_unfinished_message_takes_its_size_in_memory_whatever_its_chunks() -> None:
    # Two-byte chunks, a foreign empty message after every second one, so that nothing is read in runs.
    foreign = bytes.fromhex("04 000000 000000 00 00000000")
    parts = [b"\xc6xx\xc6xx" + foreign] * 5000
    held = 5000 * 4
    assert peak_bytes([chunk_size(2) + video_header(0xFFFFFF) + b"xx", *parts]) < 3 * held


def test_single_bytes_take_no_more_memory_than_one_piece() -> None:
    assert peak_bytes([chunk_size(0xFFFF) + video_header(0xFFFF), *[b"x"] * 20_000]) < 60_000


# --- properties

times = st.one_of(
    st.integers(0, 50),
    st.integers(0xFFFFFF - 3, 0xFFFFFF + 3),
    st.integers(0xFFFFFFFF - 3, 0xFFFFFFFF),
    st.integers(0, 0xFFFFFFFF),
)
payloads = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda fill, size: (fill * size)[:size], st.binary(min_size=1, max_size=3), st.integers(0, 600)),
)
chunk_stream_ids = st.sampled_from([2, 3, 6, 63, 64, 319, 320, 65599])


@patient
@given(
    st.integers(1, 200), times, st.integers(3, 255), st.integers(0, 0xFFFFFFFF), payloads, chunk_stream_ids, st.data()
)
def test_an_encoded_message_is_read_back_in_any_split(
    size: int, time: int, type_id: int, stream: int, payload: bytes, on: int, data: st.DataObject
) -> None:
    wire = encode_message(type_id, time, stream, payload, chunk_stream_id=on, chunk_size=size)
    parts = pieces(wire, data.draw(cuts_of(len(wire))))
    reader = ChunkReader()
    reader.chunk_size = size
    assert read(parts, reader) == ([Message(type_id, time, stream, payload)], "")


def split_into_chunks(wire: bytes, payload: bytes, size: int) -> list[bytes]:
    """The chunks of one encoded message, so that others can come between them."""
    count = max(1, -(-len(payload) // size))
    basic = {0: 2, 1: 3}.get(wire[0] & 0x3F, 1)
    header = (11, 7, 3, 0)[wire[0] >> 6]
    extension = (len(wire) - len(payload) - header) // count - basic  # on each chunk or on none
    found = [wire[: basic + header + extension + size]] if count > 1 else [wire]
    rest = wire[len(found[0]) :]
    step = basic + extension + size
    return found + [rest[at : at + step] for at in range(0, len(rest), step)]


@patient
@given(
    st.integers(1, 150),
    st.dictionaries(
        chunk_stream_ids,
        st.lists(st.tuples(times, payloads, st.sampled_from([8, 9, 18])), max_size=5),
        max_size=3,
    ),
    st.data(),
)
def test_written_messages_are_read_back_in_any_interleaving_and_any_split(
    size: int, script: dict[int, list[tuple[int, bytes, int]]], data: st.DataObject
) -> None:
    writer = ChunkWriter()
    writer.chunk_size = size
    waiting: dict[int, list[bytes]] = {}
    expected: dict[int, list[Message]] = {}
    for on, sent in script.items():
        # The message stream tells the reader's messages apart by chunk stream.
        expected[on] = [Message(type_id, time, on, payload) for time, payload, type_id in sent]
        waiting[on] = [
            chunk
            for message in expected[on]
            for chunk in split_into_chunks(writer.encode(message, on), message.payload, size)
        ]
    wire = b""
    while ready := [on for on, left in waiting.items() if left]:
        wire += waiting[data.draw(st.sampled_from(ready))].pop(0)
    reader = ChunkReader()
    reader.chunk_size = size
    found, fault = read(pieces(wire, data.draw(cuts_of(len(wire)))), reader)
    assert fault == ""
    assert {on: [message for message in found if message.message_stream_id == on] for on in script} == expected
    assert len(found) == sum(map(len, expected.values()))


# Mostly plausible headers, so that more than the first byte is tried.
garbage = st.lists(
    st.one_of(
        st.binary(max_size=8),
        st.sampled_from([bytes.fromhex(wire) for _, wire, _ in READS]),
        st.sampled_from([bytes.fromhex(wire) for _, wire, _ in FAULTS]),
    ),
    max_size=6,
).map(b"".join)


@patient
@given(garbage, st.data())
def test_garbage_gives_messages_or_a_peer_error_and_the_same_in_any_split(wire: bytes, data: st.DataObject) -> None:
    whole = read([wire], ChunkReader(max_message_bytes=1000))
    parts = pieces(wire, data.draw(cuts_of(len(wire))))
    assert read(parts, ChunkReader(max_message_bytes=1000)) == whole
    assert sum(len(message.payload) for message in whole[0]) <= len(wire)


# --- our own mistakes


@pytest.mark.parametrize("chunk_stream_id", [-1, 0, 1, 65600])
def test_a_chunk_stream_id_out_of_range_is_our_own_mistake(chunk_stream_id: int) -> None:
    with pytest.raises(UsageError, match=f"chunk stream id {chunk_stream_id}, expected 2..65599"):
        encode_message(8, 0, 1, b"", chunk_stream_id=chunk_stream_id, chunk_size=128)


def test_a_payload_beyond_24_bits_of_length_is_our_own_mistake() -> None:
    too_long = bytes(0x1000000)
    with pytest.raises(UsageError, match="message of 16777216 bytes, expected at most 16777215"):
        ChunkWriter().encode(Message(9, 0, 1, too_long), 6)
    with pytest.raises(UsageError, match="message of 16777216 bytes, expected at most 16777215"):
        encode_message(9, 0, 1, too_long, chunk_stream_id=6, chunk_size=128)
