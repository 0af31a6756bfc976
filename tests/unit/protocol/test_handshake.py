"""Both handshakes against the specification (RTMP 1.0, section 5.2) and a digest computed here, from its description:

The digest of C1 and S1 is HMAC-SHA256 over the 1504 other bytes, keyed with the first 30 bytes of the player's or the
first 36 of the server's constant. It stands behind a four-byte field whose sum modulo 728 is its offset: the field at
8 in the first scheme, at 772 in the second. The last 32 bytes of S2 and C2 are an HMAC over the 1504 before them; its
key is the HMAC of the other side's digest under the whole constant (62 or 68 bytes).
"""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerError, UsageError
from headrace.protocol.handshake import ClientHandshake, ServerHandshake
from tests.unit.protocol.wire import cuts_of, one_by_one, patient, pieces, seed

PLAYER_30 = b"Genuine Adobe Flash Player 001"
SERVER_36 = b"Genuine Adobe Flash Media Server 001"
CONSTANT_32 = bytes.fromhex("f0eec24a 8068bee8 2e00d0d1 029e7e57 6eec5d2d 29806fab 93b8e636 cfeb31ae")
NONCE = bytes(at * 7 % 251 for at in range(1528))
C2 = b"\x5a" * 1536
TLS_HELLO = bytes.fromhex("16 0301 0200 01 0001fc 0303") + bytes(500)
HTTP_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def sha(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def offset_of(packet: bytes, scheme: int) -> int:
    field = (8, 772)[scheme]
    return field + 4 + sum(packet[field : field + 4]) % 728


def digest_of(packet: bytes, scheme: int, key: bytes) -> bytes | None:
    """The digest a packet holds where this scheme puts it, if it is the right one."""
    at = offset_of(packet, scheme)
    right = sha(key, packet[:at] + packet[at + 32 :])
    return right if packet[at : at + 32] == right else None


def signed(packet: bytes, scheme: int, key: bytes) -> bytes:
    at = offset_of(packet, scheme)
    return packet[:at] + sha(key, packet[:at] + packet[at + 32 :]) + packet[at + 32 :]


def is_signed_reply(packet: bytes, key: bytes, peer_digest: bytes) -> bool:
    return packet[1504:] == sha(sha(key + CONSTANT_32, peer_digest), packet[:1504])


def player_c1(scheme: int, field: bytes = b"\x12\x34\x56\x78") -> bytes:
    """A C1 of a player, with these four bytes before the digest's half."""
    packet = bytearray(b"\x00\x00\x10\x00" + bytes((9, 0, 124, 2)) + NONCE[::-1])
    packet[(8, 772)[scheme] : (8, 772)[scheme] + 4] = field
    return signed(bytes(packet), scheme, PLAYER_30)


def server(epoch_ms: int = 0x01020304) -> ServerHandshake:
    return ServerHandshake(nonce=NONCE, epoch_ms=epoch_ms)


def client(*, digest: bool = False) -> ClientHandshake:
    return ClientHandshake(nonce=NONCE, epoch_ms=0x01020304, digest=digest)


def s1_s2_for(c1: bytes, scheme: int) -> tuple[bytes, bytes]:
    """What a server with digests answers."""
    client_digest = digest_of(c1, 0, PLAYER_30)
    assert client_digest is not None
    s1 = signed(bytes(4) + bytes((13, 14, 10, 13)) + NONCE, scheme, SERVER_36)
    body = b"\x77" * 1504
    return s1, body + sha(sha(SERVER_36 + CONSTANT_32, client_digest), body)


# --- the server's side


def test_the_simple_form_answers_with_our_time_and_an_echo() -> None:
    c1 = bytes.fromhex("0a0b0c0d 00000000") + bytes(range(256)) * 5 + bytes(248)
    handshake = server()
    answer = handshake.receive(b"\x03" + c1)
    assert answer[:1] == b"\x03"
    assert answer[1:1537] == bytes.fromhex("01020304 00000000") + NONCE
    assert answer[1537:] == bytes.fromhex("0a0b0c0d 01020304") + c1[8:]
    assert not handshake.is_digest
    assert handshake.receive(C2[:-1]) == b""
    is_done_early = handshake.is_done
    assert handshake.receive(C2[-1:]) == b""
    assert (is_done_early, handshake.is_done) == (False, True)
    assert handshake.rest == b""


def test_nothing_is_answered_before_c1_is_whole() -> None:
    handshake = server()
    assert handshake.receive(b"\x03" + bytes(1535)) == b""
    assert len(handshake.receive(b"\0")) == 3073


def test_an_epoch_past_32_bits_wraps() -> None:
    assert server((1 << 32) + 5).receive(b"\x03" + bytes(1536))[1:5] == bytes.fromhex("00000005")


@pytest.mark.parametrize("scheme", [0, 1])
@pytest.mark.parametrize("field", ["00000000", "ffffffff", "ffffd900", "12345678", "ffffda00"])
def test_the_digest_form_is_answered_in_the_scheme_of_the_client(scheme: int, field: str) -> None:
    # ffffd900 adds up to 727, the last offset; ffffda00 to 728, the first one again.
    c1 = player_c1(scheme, bytes.fromhex(field))
    client_digest = digest_of(c1, scheme, PLAYER_30)
    assert client_digest is not None
    handshake = server()
    answer = handshake.receive(b"\x03" + c1)
    s1, s2 = answer[1:1537], answer[1537:]
    assert handshake.is_digest
    assert s1[:4] == bytes.fromhex("01020304")
    assert s1[4:8] == bytes.fromhex("0d0e0a0d")  # above zero, so that the client looks for our digest
    assert digest_of(s1, scheme, SERVER_36) is not None
    assert is_signed_reply(s2, SERVER_36, client_digest)


def test_ffmpegs_own_c1_carries_a_digest() -> None:
    c1 = seed("server_connection", "ffmpeg_publish.bin")[1:1537]
    client_digest = digest_of(c1, 0, PLAYER_30)
    assert client_digest is not None
    handshake = server()
    answer = handshake.receive(b"\x03" + c1)
    assert handshake.is_digest
    assert is_signed_reply(answer[1537:], SERVER_36, client_digest)


def test_a_version_without_a_digest_gets_the_simple_form() -> None:
    c1 = bytearray(player_c1(0))
    c1[-1] ^= 1
    handshake = server()
    answer = handshake.receive(b"\x03" + c1)
    assert not handshake.is_digest
    assert answer[1537 + 8 :] == c1[8:]


def test_a_digest_under_version_zero_is_not_looked_for() -> None:
    # Bytes 4 to 7 are zero in the specification's own form, and random bytes may follow.
    packet = bytes(8) + b"\xff" * 1528
    handshake = server()
    handshake.receive(b"\x03" + signed(packet, 0, PLAYER_30))
    assert not handshake.is_digest


@pytest.mark.parametrize("c2", [bytes(1536), b"\xff" * 1536, C2])
def test_c2_is_not_judged(c2: bytes) -> None:
    handshake = server()
    handshake.receive(b"\x03" + bytes(1536) + c2)
    assert handshake.is_done


def test_bytes_after_c2_are_kept() -> None:
    handshake = server()
    handshake.receive(b"\x03" + bytes(1536) + C2 + b"chunks")
    assert handshake.rest == b"chunks"


@pytest.mark.parametrize(
    ("opening", "complaint"),
    [
        (HTTP_GET, "handshake begins with byte 0x47, expected RTMP version 3"),
        (TLS_HELLO, "handshake begins with byte 0x16, a TLS record, expected RTMP version 3"),
        (b"\x00", "handshake begins with byte 0x00, expected RTMP version 3"),
        (b"\x02", "handshake begins with byte 0x02, expected RTMP version 3"),
        (b"\x20", "handshake begins with byte 0x20, expected RTMP version 3"),
        (b"\xff", "handshake begins with byte 0xff, expected RTMP version 3"),
    ],
)
def test_what_is_not_rtmp_is_refused_at_its_first_byte(opening: bytes, complaint: str) -> None:
    for data in (opening, opening[:1]):
        with pytest.raises(PeerError, match=complaint):
            server().receive(data)


@pytest.mark.parametrize("version", [3, 4, 6, 31])
def test_a_later_version_is_answered_with_ours(version: int) -> None:
    # Section 5.2.2: a server that does not know the version answers 3. 6 is RTMPE.
    assert server().receive(bytes((version,)) + bytes(1536))[0] == 3


def test_the_version_is_judged_once() -> None:
    handshake = server()
    handshake.receive(b"\x03" + bytes(1536))
    assert handshake.receive(b"\xff") == b""


def run_server(parts: list[bytes]) -> tuple[bytes, bool, bool, bytes]:
    """Everything one can see of a handshake; what comes after it is the connection's."""
    handshake = server()
    out, rest = b"", b""
    for part in parts:
        if handshake.is_done:
            rest += part
        else:
            out += handshake.receive(part)
            rest = handshake.rest
    return out, handshake.is_done, handshake.is_digest, rest


@patient
@given(st.booleans(), st.binary(max_size=20), st.data())
def test_any_split_gives_the_same_server_handshake(is_digest: bool, after: bytes, data: st.DataObject) -> None:
    wire = b"\x03" + (player_c1(1) if is_digest else bytes(1536)) + C2 + after
    expected = run_server([wire])
    assert expected[1:] == (True, is_digest, after)
    assert run_server(list(pieces(wire, data.draw(cuts_of(len(wire)))))) == expected


def test_bytes_one_by_one_give_the_same_server_handshake() -> None:
    wire = b"\x03" + player_c1(0) + C2 + b"after"
    assert run_server(list(one_by_one(wire))) == run_server([wire])


@patient
@given(st.integers(3, 19), st.binary(min_size=1536, max_size=1536))
def test_any_c1_at_all_is_answered(version: int, c1: bytes) -> None:
    assert len(server().receive(bytes((version,)) + c1)) == 3073


# --- the client's side


def test_the_client_opens_with_version_and_time_and_zeros() -> None:
    assert client().start() == b"\x03" + bytes.fromhex("01020304 00000000") + NONCE
    late = ClientHandshake(nonce=NONCE, epoch_ms=(1 << 32) + 5)
    assert late.start()[:5] == bytes.fromhex("03 00000005")


def test_the_client_echoes_s1() -> None:
    handshake = client()
    s1 = bytes.fromhex("0000000a 00000000") + NONCE[::-1]
    assert handshake.receive(b"\x03" + s1) == b""
    is_done_early = handshake.is_done
    assert handshake.receive(bytes(1536) + b"chunks") == s1
    assert (is_done_early, handshake.is_done) == (False, True)
    assert handshake.rest == b"chunks"


def test_the_client_can_open_with_a_digest() -> None:
    opening = client(digest=True).start()
    assert opening[:9] == bytes.fromhex("03 01020304 09007c02")
    assert digest_of(opening[1:], 0, PLAYER_30) is not None


@pytest.mark.parametrize("scheme", [0, 1])
def test_the_client_checks_s2_and_signs_c2(scheme: int) -> None:
    handshake = client(digest=True)
    s1, s2 = s1_s2_for(handshake.start()[1:], scheme)
    server_digest = digest_of(s1, scheme, SERVER_36)
    assert server_digest is not None
    c2 = handshake.receive(b"\x03" + s1 + s2)
    assert handshake.is_done
    assert is_signed_reply(c2, PLAYER_30, server_digest)


def test_the_client_refuses_a_wrong_signature() -> None:
    handshake = client(digest=True)
    s1, s2 = s1_s2_for(handshake.start()[1:], 0)
    with pytest.raises(PeerError, match="handshake answer S2 carries a wrong signature"):
        handshake.receive(b"\x03" + s1 + s2[:-1] + bytes((s2[-1] ^ 1,)))


def test_a_server_may_answer_a_digest_in_the_simple_form() -> None:
    handshake = client(digest=True)
    s1 = bytes(8) + NONCE
    assert handshake.receive(b"\x03" + s1 + handshake.start()[1:]) == s1
    assert handshake.is_done


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "handshake answer begins with byte 0x48, expected RTMP version 3"),
        (bytes.fromhex("15 0301 0002 0246"), "handshake answer begins with byte 0x15, a TLS record, expected RTMP"),
        (b"\x00", "handshake answer begins with byte 0x00, expected RTMP version 3"),
    ],
)
def test_the_client_refuses_what_is_not_rtmp(answer: bytes, complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint):
        client().receive(answer)


@patient
@given(st.booleans(), st.booleans(), st.binary(max_size=20), st.data())
def test_any_split_gives_the_same_client_handshake(
    digest: bool, answers_digest: bool, after: bytes, data: st.DataObject
) -> None:
    def run(parts: list[bytes]) -> tuple[bytes, bytes]:
        handshake = client(digest=digest)
        out, rest = b"", b""
        for part in parts:
            if handshake.is_done:
                rest += part
            else:
                out += handshake.receive(part)
                rest = handshake.rest
        return out, rest

    s1, s2 = s1_s2_for(client(digest=True).start()[1:], 0) if answers_digest else (bytes(8) + NONCE, bytes(1536))
    wire = b"\x03" + s1 + s2 + after
    expected = run([wire])
    assert (len(expected[0]), expected[1]) == (1536, after)
    assert run(list(pieces(wire, data.draw(cuts_of(len(wire)))))) == expected


@pytest.mark.parametrize("digest", [False, True])
def test_our_two_sides_understand_each_other(digest: bool) -> None:
    one, other = client(digest=digest), server()
    other.receive(one.receive(other.receive(one.start())))
    assert one.is_done
    assert other.is_done
    assert other.is_digest == digest


@pytest.mark.parametrize("size", [0, 1527, 1529])
def test_a_nonce_of_another_size_is_our_own_mistake(size: int) -> None:
    with pytest.raises(UsageError, match=f"nonce of {size} bytes, expected 1528"):
        ServerHandshake(nonce=bytes(size), epoch_ms=0)
    with pytest.raises(UsageError, match=f"nonce of {size} bytes, expected 1528"):
        ClientHandshake(nonce=bytes(size), epoch_ms=0)
