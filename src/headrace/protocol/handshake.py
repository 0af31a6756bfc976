"""The RTMP handshake (RTMP 1.0, section 5.2), simple and digest, for both sides.

Random bytes and the clock come in as arguments, so a handshake is a pure function of its input. The digest form is
not in the specification; it is what Flash Player 9 and FFmpeg send: an HMAC-SHA256 hidden in C1 and S1 at one of two
offsets, keyed by a constant both sides know.
"""

from __future__ import annotations

import hashlib
import hmac

from headrace.errors import PeerError, UsageError

PACKET_BYTES = 1536
NONCE_BYTES = PACKET_BYTES - 8
VERSION = 3  # section 5.2.2
# 0x20 and above is printable text: an HTTP request on the wrong port, refused (section 5.2.2).
_MAX_VERSION = 31
# The first byte of any TLS record (RFC 8446, section 5.1) lies in the range RTMP keeps for later versions. Taken for
# one of those, a client that speaks rtmps to a plain port would hang until its deadline.
_TLS_RECORDS = range(20, 24)
_DIGEST_BYTES = 32

_CRUD = bytes.fromhex("f0eec24a8068bee82e00d0d1029e7e576eec5d2d29806fab93b8e636cfeb31ae")
_SERVER_KEY = b"Genuine Adobe Flash Media Server 001"
_CLIENT_KEY = b"Genuine Adobe Flash Player 001"
# A version above zero in bytes 4..7 tells the peer to look for a digest; these are the values FFmpeg knows.
_SERVER_DIGEST_VERSION = bytes((13, 14, 10, 13))
_CLIENT_DIGEST_VERSION = bytes((9, 0, 124, 2))


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def _digest_offset(packet: bytes, scheme: int) -> int:
    """Where the digest lies: four bytes before each of the two halves add up to an offset in it."""
    base = 8 if scheme == 0 else 772
    return sum(packet[base : base + 4]) % 728 + base + 4


def _digest_at(packet: bytes, offset: int, key: bytes) -> bytes:
    return _hmac(key, packet[:offset] + packet[offset + _DIGEST_BYTES :])


def find_digest(packet: bytes, key: bytes) -> tuple[int, bytes] | None:
    """The scheme and digest of a C1 or S1, or None when it carries none."""
    for scheme in (0, 1):
        offset = _digest_offset(packet, scheme)
        digest = packet[offset : offset + _DIGEST_BYTES]
        if hmac.compare_digest(digest, _digest_at(packet, offset, key)):
            return scheme, digest
    return None


def _sign(packet: bytes, scheme: int, key: bytes) -> tuple[bytes, bytes]:
    """The packet with its digest in place, and the digest."""
    offset = _digest_offset(packet, scheme)
    digest = _digest_at(packet, offset, key)
    return packet[:offset] + digest + packet[offset + _DIGEST_BYTES :], digest


def _reply(nonce: bytes, peer_digest: bytes, key: bytes) -> bytes:
    """S2 or C2 of the digest form: random bytes signed with a key made from the peer's digest."""
    body = nonce[: PACKET_BYTES - _DIGEST_BYTES]
    return body + _hmac(_hmac(key + _CRUD, peer_digest), body)


def _check_version(version: int, what: str) -> None:
    if version in _TLS_RECORDS:
        raise PeerError(f"{what} begins with byte 0x{version:02x}, a TLS record, expected RTMP version 3")
    if not VERSION <= version <= _MAX_VERSION:
        raise PeerError(f"{what} begins with byte 0x{version:02x}, expected RTMP version 3")


def _check_nonce(nonce: bytes) -> None:
    if len(nonce) != NONCE_BYTES:
        raise UsageError(f"nonce of {len(nonce)} bytes, expected {NONCE_BYTES}")


class ServerHandshake:
    """C0 C1 C2 in, S0 S1 S2 out. Feed bytes until `is_done`; what follows the handshake is in `rest`."""

    def __init__(self, *, nonce: bytes, epoch_ms: int) -> None:
        _check_nonce(nonce)
        self._nonce = nonce
        self._epoch = (epoch_ms & 0xFFFFFFFF).to_bytes(4, "big")
        self._buffer = b""
        self._answered = False
        self.is_done = False
        self.is_digest = False
        self.rest = b""

    def receive(self, data: bytes) -> bytes:
        """The bytes to send now, maybe none."""
        self._buffer += data
        out = b""
        if self._buffer and not self._answered:
            _check_version(self._buffer[0], "handshake")
        if not self._answered and len(self._buffer) >= 1 + PACKET_BYTES:
            out = self._answer(self._buffer[1 : 1 + PACKET_BYTES])
            self._buffer = self._buffer[1 + PACKET_BYTES :]
            self._answered = True
        # C2 is not checked: nginx-rtmp, SRS and librtmp do not either, and some encoders send zeros.
        if self._answered and len(self._buffer) >= PACKET_BYTES:
            self.rest = self._buffer[PACKET_BYTES:]
            self._buffer = b""
            self.is_done = True
        return out

    def _answer(self, c1: bytes) -> bytes:
        found = find_digest(c1, _CLIENT_KEY) if any(c1[4:8]) else None
        if found is None:
            s1 = self._epoch + bytes(4) + self._nonce
            # S2 echoes C1 with the time we read it in the second field (section 5.2.4).
            s2 = c1[:4] + self._epoch + c1[8:]
        else:
            self.is_digest = True
            scheme, client_digest = found
            s1, _ = _sign(self._epoch + _SERVER_DIGEST_VERSION + self._nonce, scheme, _SERVER_KEY)
            s2 = _reply(self._nonce[::-1], client_digest, _SERVER_KEY)
        return bytes((VERSION,)) + s1 + s2


class ClientHandshake:
    """S0 S1 S2 in, C0 C1 C2 out. `start()` gives C0 and C1."""

    def __init__(self, *, nonce: bytes, epoch_ms: int, digest: bool = False) -> None:
        _check_nonce(nonce)
        epoch = (epoch_ms & 0xFFFFFFFF).to_bytes(4, "big")
        self._nonce = nonce
        self._c1 = epoch + bytes(4) + nonce
        self._digest: bytes | None = None
        if digest:
            self._c1, self._digest = _sign(epoch + _CLIENT_DIGEST_VERSION + nonce, 0, _CLIENT_KEY)
        self._buffer = b""
        self.is_done = False
        self.rest = b""

    def start(self) -> bytes:
        return bytes((VERSION,)) + self._c1

    def receive(self, data: bytes) -> bytes:
        """The bytes to send now: C2 once S1 and S2 are here."""
        self._buffer += data
        if self._buffer:
            _check_version(self._buffer[0], "handshake answer")
        if len(self._buffer) < 1 + 2 * PACKET_BYTES:
            return b""
        s1 = self._buffer[1 : 1 + PACKET_BYTES]
        s2 = self._buffer[1 + PACKET_BYTES : 1 + 2 * PACKET_BYTES]
        self.rest = self._buffer[1 + 2 * PACKET_BYTES :]
        self._buffer = b""
        self.is_done = True
        if self._digest is None:
            return s1
        found = find_digest(s1, _SERVER_KEY)
        if found is None:
            return s1  # the server chose the simple form
        body = s2[:-_DIGEST_BYTES]
        if s2[-_DIGEST_BYTES:] != _hmac(_hmac(_SERVER_KEY + _CRUD, self._digest), body):
            raise PeerError("handshake answer S2 carries a wrong signature")
        return _reply(self._nonce[::-1], found[1], _CLIENT_KEY)
