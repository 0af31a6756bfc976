"""Every kind of broadcast there is a page for, as rows of the tables."""

from __future__ import annotations

from tests.pipeline.report.lakes import (
    Rows,
    destination,
    health_window,
    healthy,
    incident,
    issue,
    publish,
    recording,
    refused,
    state,
    troubled,
    windows,
)


def live() -> Rows:
    rows = healthy()
    rows["sessions"][0] = publish(0, None)
    rows["recordings"] = [recording(is_open=True, closed_at=None, bytes=None, tags=None, duration_ms=None)]
    for row in rows["relay_audit"]:
        row["is_final"] = False
    return rows


def without(*tables: str) -> Rows:
    return {name: rows for name, rows in healthy().items() if name not in tables}


def only_refusals() -> Rows:
    kinds = ("refused", "refused", "publish_refused")
    return {"sessions": [refused(n, "live/none", kind) for n, kind in enumerate(kinds)]}


def cut_off() -> Rows:
    rows = healthy()
    rows["sessions"][0] = publish(0, None)
    rows["sessions"].append(publish(-900, -800, stream="live/old", stream_id="n1.a.1", boot="a"))
    rows["sessions"].append(publish(900, 960, stream="live/new", stream_id="n1.c.1", boot="c"))
    return rows


def never_connected() -> Rows:
    rows = without("destination_states", "relay_audit")
    failed = {"connected_ms": 0, "availability": 0.0, "attempts": 7, "last_error_class": "auth", "last_error": "no"}
    rows["destination_health"] = [destination("youtube", bytes=None, messages=None, **failed)]
    rows["destination_states"] = [
        state("youtube", "connecting", 0, 1),
        state("youtube", "error", 1, 60, error="no", error_class="auth"),
    ]
    return rows


def bad_encoder() -> Rows:
    """Long groups of pictures and no sound, and the connection broke at the end."""
    rows = without("audience", "destination_health", "destination_states", "relay_audit", "gops")
    found = [
        issue("gopSizeLong", "warning", 6000.0, 4000.0, "ms"),
        issue("noAudioStream", "warning", 0.0, 0.0, "bps"),
        issue("gopSizeShort", "info", 400.0, 500.0, "ms"),
        issue("fromTheFuture", "warning", 7.0, 6.0, "parsecs"),
    ]
    rows["sessions"] = [publish(0, 60, reason="lost")]
    rows["stream_windows"] = windows(60, keyframe_interval_max_ms=6000, audio_bps=0, av_skew_ms=None)
    rows["stream_health"] = [health_window(n, "ok", found, audio_codec=None) for n in range(0, 60, 10)]
    rows["incidents"] = [incident("publisher_lost", 60, 65, cause="lost")]
    return rows


KINDS: dict[str, Rows] = {
    "healthy": healthy(),
    "troubled": troubled(),
    "live": live(),
    "cut off": cut_off(),
    "bad encoder": bad_encoder(),
    "never connected": never_connected(),
    "no recording": without("recordings", "gops"),
    "no viewers": without("audience") | {"sessions": [publish()]},
    "no destinations": without("destination_health", "destination_states", "relay_audit"),
    "no samples": without("stream_windows", "stream_health"),
    "nothing but its start": {"sessions": [publish(0, 0)]},
    "only refusals": only_refusals(),
}
