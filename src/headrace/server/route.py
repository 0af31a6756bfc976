"""The way of a stream from server to server: who asked, through whom, and whether that is a circle.

A server that pulls a stream says in its connect command through which servers the request came (`VIA`). One that
serves a puller says at Play.Start through which servers the stream came (`PATH`). Servers are known by random ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

VIA = "headraceVia"
PATH = "headracePath"
# Between the workers of one server, and believed from nobody else: the id of a stream in the event log, and whom a
# publisher's connection belongs to.
STREAM = "headraceStream"
CONN = "headraceConn"
REMOTE = "headraceRemote"

# A chain of origin, region, edge is three. What is longer is a circle of servers that do not know each other.
MAX_HOPS = 8
_ID = re.compile(r"[0-9a-z]{1,32}", re.ASCII)


def decode_ids(value: Any) -> tuple[str, ...]:
    """The ids in a property of a command; nothing if it is no list of ours."""
    if not isinstance(value, str) or len(value) > 33 * (MAX_HOPS + 1):
        return ()
    found = tuple(value.split(","))
    return found if all(_ID.fullmatch(one) for one in found) else ()


def encode_ids(ids: Iterable[str]) -> str:
    return ",".join(ids)


def is_circle(server_id: str, via: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """True if who asks has been here before, or is somebody whom the stream comes from."""
    return server_id in via or len(via) >= MAX_HOPS or not set(via).isdisjoint(path)
