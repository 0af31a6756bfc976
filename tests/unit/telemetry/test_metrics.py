"""The counters: all of them there, plain, and their snapshot a copy."""

from __future__ import annotations

import json

from headrace.telemetry.metrics import ServerMetrics

# Point 7 of what the origin must tell of itself.
EXPECTED = {
    "streams",
    "publishers",
    "subscribers",
    "connections",
    "connections_accepted",
    "connections_refused",
    "connections_closed",
    "handshakes_failed",
    "peer_errors",
    "publishes_started",
    "publishes_refused",
    "plays_started",
    "plays_refused",
    "messages_in",
    "bytes_in",
    "messages_relayed",
    "bytes_relayed",
    "messages_dropped",
}


def test_everything_is_counted_from_nothing() -> None:
    snapshot = ServerMetrics().snapshot()
    assert set(snapshot) >= EXPECTED
    assert all(value == 0 or value == {} for value in snapshot.values())


def test_a_snapshot_is_plain_and_does_not_change_afterwards() -> None:
    metrics = ServerMetrics()
    metrics.messages_in += 3
    metrics.messages_dropped["lag"] += 2
    snapshot = metrics.snapshot()
    metrics.messages_in += 1
    metrics.messages_dropped["lag"] += 1
    assert snapshot["messages_in"] == 3
    assert snapshot["messages_dropped"] == {"lag": 2}
    assert type(snapshot["messages_dropped"]) is dict
    assert json.loads(json.dumps(snapshot)) == snapshot


def test_a_misspelt_counter_is_a_mistake_and_not_a_new_counter() -> None:
    assert not hasattr(ServerMetrics(), "__dict__")


def test_two_servers_do_not_share_their_counters() -> None:
    one, other = ServerMetrics(), ServerMetrics()
    one.messages_dropped["lag"] += 1
    assert not other.messages_dropped
