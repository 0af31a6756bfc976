"""What several workers show, put together: sums, every stream once, and destinations that are fed by some of them."""

from __future__ import annotations

from typing import Any

from headrace.workers.merge import (
    add_counters,
    destination_totals,
    merge_destination,
    merge_streams,
    without_gauges,
)
from tests.unit.web.asgi import FakeBackend, shown_destination, shown_stream


def stream(name: str, *, viewers: int, is_copy: bool = False, **facts: Any) -> dict[str, Any]:
    return shown_stream("live", name, viewers=viewers, is_copy=is_copy, **facts)


def test_counters_are_added_up_at_any_depth() -> None:
    one = {"bytes_in": 1, "dropped": {"lag": 2}, "pulls": {"failures": {"dns": 1}, "started": 1}}
    two = {"bytes_in": 10, "dropped": {"lag": 5, "paused": 1}, "pulls": {"failures": {}, "started": 2}}
    assert add_counters((one, two)) == {
        "bytes_in": 11,
        "dropped": {"lag": 7, "paused": 1},
        "pulls": {"failures": {"dns": 1}, "started": 3},
    }
    assert add_counters(()) == {}
    assert one["dropped"] == {"lag": 2}, "what was given is changed"


def test_what_a_worker_leaves_behind_has_totals_and_nothing_that_is_there_now() -> None:
    counters = FakeBackend().counters()
    past = without_gauges(counters)
    assert past.keys() == counters.keys()
    assert [past[name] for name in ("streams", "publishers", "subscribers", "connections")] == [0, 0, 0, 0]
    assert past["recordings"]["active"] == past["pulls"]["waiting_players"] == past["pulls"]["active"] == 0
    assert past["pulls"]["by_state"] == {}
    for name in ("bytes_in", "plays_started", "messages_dropped", "events"):
        assert past[name] == counters[name]


def test_a_stream_is_shown_once_by_the_worker_that_has_it_with_the_viewers_of_all() -> None:
    shown = merge_streams(
        {
            0: [stream("a", viewers=2, is_copy=True, publisher=None, bytes_in=5)],
            1: [stream("a", viewers=3, bytes_in=7), stream("b", viewers=0)],
            2: [stream("a", viewers=4, is_copy=True, publisher=None)],
        }
    )
    assert [(one["key"], one["viewers"], one["worker"]) for one in shown] == [("live/a", 9, 1), ("live/b", 0, 1)]
    assert shown[0]["publisher"] is not None
    assert shown[0]["bytes_in"] == 7
    assert all("is_copy" not in one for one in shown)


def test_copies_whose_worker_is_gone_are_shown_as_the_stream() -> None:
    origin = {"url": "rtmp://worker-1/live"}
    copies = {number: [stream("a", viewers=number, is_copy=True, state="grace", origin=origin)] for number in (1, 2)}
    (shown,) = merge_streams(copies)
    assert (shown["viewers"], shown["state"], shown["origin"]) == (3, "grace", None)


def test_a_destination_is_as_well_as_the_worst_of_those_who_feed_it() -> None:
    feed = {"live/a": {"status": "connected"}}
    idle = shown_destination("far", status="disconnected", flowing=False, messages_sent=1, streams={})
    fed = shown_destination("far", status="connected", messages_sent=10, streams=feed, queue_age_s=0.5)
    failing = shown_destination(
        "far",
        status="waiting",
        flowing=False,
        retry_in_s=3.0,
        last_error="refused",
        streams={"live/b": {"status": "waiting"}},
    )
    one = merge_destination([idle, fed], {})
    assert (one["status"], one["flowing"], one["messages_sent"], list(one["streams"])) == (
        "connected",
        True,
        11,
        ["live/a"],
    )
    both = merge_destination([idle, fed, failing], {})
    assert (both["status"], both["flowing"], both["last_error"], both["retry_in_s"]) == (
        "waiting",
        False,
        "refused",
        3.0,
    )
    assert both["dropped_by_reason"] == {"lag": 9, "evicted": 6}
    assert (both["queue_age_s"], sorted(both["streams"])) == (0.5, ["live/a", "live/b"])
    assert merge_destination([idle, idle], {})["status"] == "disconnected"


def test_what_a_worker_that_is_gone_has_sent_stays_in_the_sum() -> None:
    one = shown_destination("far", messages_sent=10, streams={})
    past = destination_totals({"far": one})["far"]
    assert merge_destination([one], past)["messages_sent"] == 20
    assert merge_destination([one], past)["dropped_by_reason"] == {"lag": 6, "evicted": 4}
