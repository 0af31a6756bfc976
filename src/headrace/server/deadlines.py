"""How long anybody may keep us waiting. One sweep per second looks at every session: no timer per connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    handshake_s: float = 10.0  # from accept to the end of the handshake
    idle_s: float = 30.0  # connected, but neither publishing nor playing
    stalled_s: float = 30.0  # bytes are waiting and the peer's socket takes none
    ping_after_s: float = 15.0  # nothing heard: ask
    silent_s: float = 60.0  # nothing heard, though asked: a zombie
