"""How durations, addresses and foreign text are written for people and read back.

Owns the spelling only: what a value is for, and which flag it came from, is the caller's business.
A leaf module: it imports nothing of Headrace but `errors`.
"""

from __future__ import annotations

import re
import socket

from headrace.errors import ConfigError

# Longer than any deadline, grace or segment that makes sense, and small enough that a count of milliseconds
# stays exact in a float.
MAX_DURATION_S = 365 * 24 * 3600.0

# A message that quotes what it found stays one readable line whatever was found.
QUOTED_CHARACTERS = 80

_NUMBER = r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?", re.ASCII)
_PLAIN_SECONDS = re.compile(_NUMBER, re.ASCII)
_UNIT_S = (3600.0, 60.0, 1.0, 0.001)

_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?", re.ASCII)
_MAX_HOST_CHARACTERS = 253  # RFC 1035, section 2.3.4, as text
_ZONE = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)  # RFC 6874, section 2

_EXPECTED_DURATION = "a duration such as 500ms, 30s, 5m or 1h30m"
EXPECTED_ADDRESS = "host:port such as :1935, 127.0.0.1:1935, [::1]:1935 or localhost:1935"


def parse_duration(text: str) -> float:
    """Seconds from `500ms`, `30s`, `5m`, `1h30m`, `1.5h`, or a plain number of seconds."""
    text = text.strip()
    # A limit on the digits before they are read: float() takes time in proportion, and overflows to infinity.
    match = _DURATION.fullmatch(text) if text and len(text) <= 64 else None
    if match is not None:
        parts = zip(match.groups(), _UNIT_S, strict=True)
        duration_s = sum(float(number) * unit_s for number, unit_s in parts if number is not None)
    elif len(text) <= 64 and _PLAIN_SECONDS.fullmatch(text):
        duration_s = float(text)
    else:
        raise ConfigError(f"found {quoted(text)}, expected {_EXPECTED_DURATION}")
    if duration_s > MAX_DURATION_S:
        raise ConfigError(f"found {quoted(text)}, expected at most {format_duration(MAX_DURATION_S)}")
    # 0.1 + 0.2 style dust would make `1.1s` and `1s100ms` differ.
    return round(duration_s, 6)


def format_duration(duration_s: float) -> str:
    """The shortest spelling, to the millisecond, that `parse_duration` reads back: `1h30m`, `5s`, `500ms`."""
    sign = "-" if duration_s < 0 else ""
    whole_s, rest_ms = divmod(round(abs(duration_s) * 1000), 1000)
    minutes, seconds = divmod(whole_s, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"), (rest_ms, "ms"))
    spelled = "".join(f"{amount}{unit}" for amount, unit in parts if amount)
    return sign + spelled if spelled else "0s"


def parse_listen(text: str) -> tuple[str | None, int]:
    """(host, port) from `:1935`, `0.0.0.0:1935`, `[::1]:1935`, `localhost:1935`; no host means every address.

    Port 0 asks the system for a free port. The host is not resolved here: that may block.
    """
    host, colon, port_text = text.strip().rpartition(":")
    if not colon:
        raise ConfigError(f"found {quoted(text)}, expected {EXPECTED_ADDRESS}")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 65535):
        raise ConfigError(f"found port {quoted(port_text)}, expected a whole number from 0 to 65535")
    port = int(port_text)
    if host == "":
        return None, port
    if host.startswith("[") and host.endswith("]"):
        if not _is_ipv6(host[1:-1]):
            raise ConfigError(f"found {quoted(host)}, expected an IPv6 address in brackets, such as [::1]")
        return host[1:-1], port
    if ":" in host:
        raise ConfigError(f"found {quoted(text)}, expected brackets around an IPv6 address: [::1]:1935")
    if len(host) > _MAX_HOST_CHARACTERS or not _HOST_NAME.fullmatch(host):
        raise ConfigError(f"found host {quoted(host)}, expected an IPv4 address or a host name")
    return host, port


def _is_ipv6(text: str) -> bool:
    address, percent, zone = text.partition("%")
    if percent and not _ZONE.fullmatch(zone):
        return False
    try:
        socket.inet_pton(socket.AF_INET6, address)
    except (OSError, ValueError):  # ValueError: a NUL, or text that is not ASCII
        return False
    return True


def printable(text: str) -> str:
    r"""The text with everything that could move a cursor, break a line or hide itself spelled as an escape.

    Control characters, escape sequences, line separators, bidirectional marks and lone surrogates are all
    "not printable" to Python. A backslash is doubled, so a reader can tell an escape from its imitation.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        "\\\\" if c == "\\" else c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def quoted(text: str) -> str:
    """The text as it is shown inside a message: between double quotes, on one line, cut when long."""
    shown = text[:QUOTED_CHARACTERS]
    rest = len(text) - len(shown)
    inside = printable(shown).replace('"', '\\"')
    return f'"{inside}"' if not rest else f'"{inside}" and {rest} more characters'


_RTMP_ADDRESS = re.compile(r"(rtmps?://[^/\s,?]*/?[^/\s,?]*)[^\s,]*", re.IGNORECASE)


def without_key(text: str) -> str:
    """`text` with the stream keys of RTMP addresses in it hidden, for messages about misplaced arguments."""
    return _RTMP_ADDRESS.sub(r"\1/****", text)
