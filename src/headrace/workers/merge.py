"""One view of what several workers show: numbers added up, every stream and destination once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# The counters that say what is there now: a worker that is gone takes them with it.
_GAUGES = ("streams", "publishers", "subscribers", "connections", "active", "by_state", "waiting_players")
# Of a destination: what only grows.
_DESTINATION_TOTALS = (
    "messages_sent",
    "messages_dropped",
    "bytes_sent",
    "connected_total_s",
    "reconnect_count",
    "failures",
    "dropped_by_reason",
)
_WORST_FIRST = ("error", "waiting", "connecting", "connected")


def add_counters(snapshots: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers added up by name, at any depth."""
    total: dict[str, Any] = {}
    for snapshot in snapshots:
        for name, value in snapshot.items():
            if isinstance(value, Mapping):
                total[name] = add_counters((total.get(name, {}), value))
            else:
                total[name] = total.get(name, 0) + value
    return total


def without_gauges(counters: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker that is gone leaves behind."""
    kept: dict[str, Any] = {}
    for name, value in counters.items():
        if name in _GAUGES:
            kept[name] = {} if isinstance(value, Mapping) else 0
        else:
            kept[name] = without_gauges(value) if isinstance(value, Mapping) else value
    return kept


def merge_streams(by_worker: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Every stream as the worker shows it that has it, with the viewers of all."""
    merged: dict[str, dict[str, Any]] = {}
    viewers: dict[str, int] = {}
    for worker, streams in by_worker.items():
        for stream in streams:
            key = stream["key"]
            viewers[key] = viewers.get(key, 0) + stream["viewers"]
            if key in merged and stream["is_copy"]:
                continue
            shown = {name: value for name, value in stream.items() if name != "is_copy"}
            # A copy whose worker is gone, in its grace period, is all there is to show.
            merged[key] = {**shown, "origin": None} if stream["is_copy"] else {**shown, "worker": worker}
    return [{**stream, "viewers": viewers[key]} for key, stream in merged.items()]


def destination_totals(destinations: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What a worker that is gone has done for each destination."""
    return {name: {key: one[key] for key in _DESTINATION_TOTALS} for name, one in destinations.items()}


def merge_destination(shown: Sequence[Mapping[str, Any]], past: Mapping[str, Any]) -> dict[str, Any]:
    """One destination of several workers, each of which may feed it with streams of its own."""
    busy = [one for one in shown if one["streams"]]
    status = next((word for word in _WORST_FIRST if any(one["status"] == word for one in busy)), "disconnected")
    told = next((one for one in busy if one["status"] == status), None)
    told = told or next((one for one in shown if one["last_error"]), shown[0])
    return {
        **told,
        "status": status,
        "flowing": bool(busy) and all(one["flowing"] for one in busy),
        "slow_side": next((one["slow_side"] for one in busy if one["slow_side"]), None),
        "retry_in_s": min((one["retry_in_s"] for one in busy if one["retry_in_s"] is not None), default=None),
        **add_counters({key: one[key] for key in _DESTINATION_TOTALS} for one in (*shown, *((past,) if past else ()))),
        "connected_duration": max(one["connected_duration"] for one in shown),
        "queue_age_s": max(one["queue_age_s"] for one in shown),
        "streams": {key: feed for one in shown for key, feed in one["streams"].items()},
        "waiting": [waiting for one in shown for waiting in one["waiting"]],
    }
