from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.tables import (
    audience,
    destination_health,
    destination_states,
    incidents,
    recordings,
    relay_audit,
    sessions,
    stream_health,
    stream_windows,
)
from tests.pipeline.tables.rows import (
    DESTINATION,
    PATH,
    STREAM_ID,
    at,
    dicts,
    event,
    frame_of,
    opened,
    sample,
    stream_tags_of,
    tag,
)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FAR_PATH = "/far/live_key_20270115_080000.flv"


def state(name: str, offset_ms: int, seq: int, **fields: Any) -> dict[str, Any]:
    return event("destination_state", offset_ms, seq, **{**DESTINATION, "state": name, "attempt": 0, **fields})


def publish(start: int = 0, stop: int = 60_000, reason: str = "unpublished") -> list[dict[str, Any]]:
    return [
        event("publish_started", start, 1, conn="c1", resumed=False, position=0),
        event("publish_stopped", stop, 900, conn="c1", reason=reason, position=1000),
        event("stream_ended", stop + 10, 901, reason=reason, position=1000),
    ]


def health(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    frame = frame_of(spark, events)
    return stream_health.build(frame, stream_windows.build(frame, stream_tags_of(spark, [])))


def test_health_names_what_is_wrong_with_value_and_threshold(spark: SparkSession) -> None:
    silent = {"video_bytes": 0, "audio_bytes": 0, "messages": 0, "frames": 0, "keyframes": 0, "max_gap_ms": 0}
    mute = {"audio_bytes": 0, "audio_ms": None}
    events = [
        event("publish_started", 0, 1, conn="c1", resumed=False, position=0),
        event("metadata", 1, 2, declared_video_kbps=2000.0, declared_audio_kbps=80.0, declared_frame_rate=25.0),
        event("codec_detected", 1, 3, video="h264", audio="aac", sample_rate=32_000, width=640, height=360),
        *[sample(1000 * n, 3 + n) for n in range(1, 5)],
        *[sample(10_000 + 1000 * n, 10 + n, **mute, media_ms=4000 + 1000 * n) for n in range(1, 7)],
        sample(17_000, 18, **mute, media_ms=13_500, max_gap_ms=2500),
        sample(21_000, 20, **silent, media_ms=13_500),
        event("stream_ended", 40_000, 21, reason="lost", position=9),
    ]
    rows = health(spark, events)
    assert rows.schema.simpleString() == stream_health.SCHEMA.simpleString()
    first, second, third, fourth = sorted(dicts(rows), key=lambda row: row["started_at"])
    assert [row["status"] for row in (first, second, third, fourth)] == ["ok", "bad", "noData", "noData"]
    assert fourth["started_at"] == at(30_000)
    assert [tuple(issue.values()) for issue in first["issues"]] == [
        ("bitrateLow", "warning", 800.0, 1000.0, "kbps"),
        ("audioSampleRate", "warning", 32_000.0, 44_100.0, "Hz"),
    ]
    assert ("videoIngestionStarved", "error", 2500.0, 2000.0, "ms") in [tuple(i.values()) for i in second["issues"]]
    assert "noAudioStream" in [issue["name"] for issue in second["issues"]]
    assert (first["video_codec"], first["width"], third["issues"]) == ("h264", 640, [])


def test_a_stall_is_told_as_a_stall_and_not_as_a_bitrate_too_low_and_then_too_high(spark: SparkSession) -> None:
    def told(*samples: dict[str, Any]) -> list[list[str]]:
        said = event("metadata", 1, 1, declared_video_kbps=800.0, declared_frame_rate=50.0)
        rows = sorted(dicts(health(spark, [said, *samples])), key=lambda row: row["started_at"])
        return [[issue["name"] for issue in row["issues"]] for row in rows]

    silent = {"video_bytes": 0, "audio_bytes": 0, "messages": 0, "frames": 0, "keyframes": 0}
    before = [sample(1000 * n, n + 1) for n in range(1, 4)]
    stall = [sample(1000 * n, n + 1, **silent, media_ms=3000, max_gap_ms=0) for n in range(4, 11)]
    # Seven seconds and its own in the first second of the next window.
    burst = sample(11_000, 12, video_bytes=800_000, frames=400, keyframes=8, messages=560, max_gap_ms=7000)
    after = [sample(1000 * n, n + 1) for n in range(12, 20)]
    assert told(*before, *stall, burst, *after) == [["videoIngestionStarved"], ["videoIngestionStarved"]]
    # Without the stall the same bytes and frames are what they look like.
    high = sample(11_000, 12, video_bytes=8_000_000, frames=4000, messages=560)
    steady = [sample(1000 * n, n + 1) for n in range(1, 11)]
    assert told(*steady, high, *after) == [[], ["bitrateHigh", "frameRateHigh"]]
    low = [sample(1000 * n, n + 1, video_bytes=40_000) for n in range(1, 10)]
    assert told(*low) == [["bitrateLow"]]


def test_a_healthy_stream_is_good_and_long_groups_are_not(spark: SparkSession) -> None:
    good = [sample(1000 * n, n, keyframes=n % 2) for n in range(1, 10)]
    rows = dicts(health(spark, good), "status", "issues")
    assert rows == [{"status": "good", "issues": []}]
    long = [sample(1000 * n, n, keyframes=int(n in (1, 7))) for n in range(1, 10)]
    (row,) = dicts(health(spark, long), "status", "issues")
    assert row["status"] == "ok"
    assert row["issues"][0]["name"] == "gopSizeLong"
    assert row["issues"][0]["measured"] == 6000.0


def test_destination_health_counts_attempts_losses_and_recovery(spark: SparkSession) -> None:
    sent = {"interval_ms": 1000, "state": "connected", "flowing": True, "messages": 5, "queue_age_ms": 30}
    events = [
        *publish(0, 20_000),
        sample(1000, 2),
        state("connecting", 0, 3),
        state("connected", 1000, 4),
        state("waiting", 6000, 5, error="gone", error_class="reset"),
        state("connecting", 7000, 6),
        state("waiting", 7100, 7, error="no", error_class="refused"),
        state("connecting", 8000, 8),
        state("connected", 8500, 9),
        event("destination_sample", 2000, 10, **DESTINATION, **sent, bytes=55_000, dropped={"lag": 3}),
        event("destination_sample", 3000, 11, **DESTINATION, **sent, bytes=55_000, dropped={"lag": 1, "evicted": 2}),
        state("disconnected", 21_000, 902),
    ]
    frame = frame_of(spark, events)
    rows = destination_health.build(frame, sessions.build(frame), destination_states.build(frame))
    assert rows.schema.simpleString() == destination_health.SCHEMA.simpleString()
    (row,) = dicts(rows)
    assert (row["live_ms"], row["connected_ms"], row["availability"]) == (20_000, 16_500, 0.825)
    assert (row["attempts"], row["reconnects"], row["failures"], row["failed_attempts"]) == (3, 1, 1, 1)
    assert (row["mttr_ms"], row["mtbf_ms"], row["time_to_connect_ms"]) == (2500, 16_500, 1000)
    assert (row["last_error_class"], row["state"]) == ("refused", "disconnected")
    assert row["dropped"] == {"evicted": 2, "lag": 4}
    assert (row["bytes"], row["ingest_bytes"], row["egress_ingest_ratio"]) == (110_000, 110_000, 1.0)


def test_audience_counts_viewers_startup_and_those_who_saw_nothing(spark: SparkSession) -> None:
    def play(conn: str, start: int, stop: int, first_ms: int | None, seq: int) -> list[dict[str, Any]]:
        who = {"conn": conn, "viewer": f"v{conn}"}
        end = {"reason": "left", "duration_ms": stop - start, "first_keyframe_ms": first_ms, "bytes_total": 100}
        return [event("play_started", start, seq, **who), event("play_stopped", stop, seq + 1, **who, **end)]

    events = [
        *play("a", 0, 10_000, 0, 1),
        *play("b", 5_000, 10_000, 2000, 3),
        *play("c", 10_000, 11_000, None, 5),
        event("play_started", 20_000, 7, conn="d", viewer="va"),
        event("play_refused", 0, 8, conn="e", viewer="vx", stream="live/none", stream_id=None, reason="NotFound"),
    ]
    rows = audience.build(sessions.build(frame_of(spark, events)))
    assert rows.schema.simpleString() == audience.SCHEMA.simpleString()
    none, show = sorted(dicts(rows), key=lambda row: row["stream"])
    assert (show["attempts"], show["plays"], show["open_plays"], show["exits_before_video"]) == (4, 2, 1, 1)
    assert (show["unique_viewers"], show["peak_viewers"], show["watch_ms"]) == (3, 2, 16_000)
    assert (show["startup_ms"], show["startup_score"], show["mean_viewers"]) == (1000, 90.0, 0.8)
    assert (none["stream_id"], none["refused"], none["refused_reason"], none["peak_viewers"]) == (
        None,
        1,
        "NotFound",
        0,
    )


def delivery(start: int, stop: int, seq: int, reason: str | None = None, **fields: Any) -> dict[str, Any]:
    outcome = "delivered" if reason is None else "skipped"
    own = {"reader": "destination", "name": "far", "start": start, "stop": stop, "outcome": outcome, "reason": reason}
    return event("delivery", seq, seq, **{**own, **fields})


def test_the_audit_adds_up_and_finds_holes_and_overlaps(spark: SparkSession) -> None:
    events = [
        *publish(),
        delivery(0, 10, 10, "not_connected"),
        delivery(10, 500, 11),
        delivery(500, 600, 12, "lag"),
        delivery(600, 1000, 13),
        *[delivery(start, stop, 20 + start, name="bad") for start, stop in ((5, 100), (90, 200), (300, 400))],
        state("connecting", 0, 30, destination="never"),
    ]
    rows = relay_audit.build(frame_of(spark, events), None)
    assert rows.schema.simpleString() == relay_audit.SCHEMA.simpleString()
    bad, far, never = sorted(dicts(rows), key=lambda row: row["name"])
    assert (far["ingested"], far["delivered"], far["skipped"], far["is_accounted"]) == (1000, 890, 110, True)
    assert far["skipped_by_reason"] == {"lag": 100, "not_connected": 10}
    assert (bad["before_start"], bad["holes"], bad["hole_messages"]) == (5, 1, 100)
    assert (bad["overlaps"], bad["overlap_messages"], bad["pending"], bad["is_accounted"]) == (1, 10, 600, False)
    assert (never["delivered"], never["pending"], never["far_candidates"]) == (0, 1000, None)
    for row in (bad, far, never):
        told = row["before_start"] + row["delivered"] + row["skipped"] + row["hole_messages"] + row["pending"]
        assert told - row["overlap_messages"] == row["ingested"]


def test_the_audit_tells_the_feeds_of_a_destination_apart(spark: SparkSession) -> None:
    """Taken away at 400 and added again, served from the keyframe at 380."""

    def told(start: int, stop: int, feed: str, seq: int) -> dict[str, Any]:
        own = {"reader": "destination", "name": "far", "outcome": "delivered", "feed": feed}
        return event("delivery", seq, seq, start=start, stop=stop, **own)

    events = [
        state("connected", 0, 1, feed="1"),
        told(0, 400, "1", 2),
        state("disconnected", 3, 3, feed="1"),
        state("connected", 4, 4, feed="2"),
        told(380, 1000, "2", 5),
        event("stream_ended", 6, 6, reason="unpublished", position=1000),
    ]
    first, second = dicts(relay_audit.build(frame_of(spark, events), stream_tags_of(spark, [])).orderBy("feed"))
    assert (first["feed"], first["delivered"], first["after_end"], first["overlaps"]) == ("1", 400, 600, 0)
    assert (first["pending"], first["is_accounted"]) == (0, True)
    assert (second["before_start"], second["delivered"], second["is_accounted"]) == (380, 620, True)


def test_the_audit_compares_frames_with_the_far_ends_recording(spark: SparkSession) -> None:
    near = [tag(n, 40 * n, payload_digest=n) for n in range(10)] + [tag(99, 0, is_config=True)]
    order = (0, 1, 3, 2, 4, 4, 5, 6)  # 2 and 3 changed places, 4 came twice, 7 to 9 never
    far = [
        tag(100 + place, 40 * n, payload_digest=n if n != 6 else 666, path=FAR_PATH) for place, n in enumerate(order)
    ]
    there = opened(2, node="n2", stream="live/key", stream_id="n2.b.1", path=FAR_PATH)
    # What somebody else sends there under the same name right afterwards is none of ours.
    later = "/far/live_key_20270115_080007.flv"
    far += [tag(n, 40 * n, payload_digest=5000 + n, path=later) for n in range(20)]
    again = opened(3, node="n2", stream="live/key", stream_id="n2.b.2", path=later)
    events = [
        opened(),
        there,
        again,
        *publish(),
        state("connected", 0, 5),
        delivery(0, 998, 6),
        delivery(998, 1000, 7, "lag"),
    ]
    stream_tags = stream_tags_of(spark, near + far, events)
    (row,) = dicts(relay_audit.build(frame_of(spark, events), stream_tags).where("node = 'n1'"))
    assert (row["far_candidates"], row["far_node"], row["far_stream"]) == (1, "n2", "live/key")
    assert (row["near_frames"], row["far_frames"]) == (10, 8)
    assert (row["far_missing"], row["far_corrupted"], row["far_duplicated"]) == (3, 1, 1)
    assert (row["far_reordered"], row["far_unknown"], row["far_unexplained"]) == (1, 0, 1)

    two = [*events, state("connected", 0, 8, destination="other")]
    rows = dicts(
        relay_audit.build(frame_of(spark, two), stream_tags).where("node = 'n1'"), "far_candidates", "far_node"
    )
    assert rows == [{"far_candidates": 2, "far_node": None}] * 2


def test_a_destination_that_was_attached_twice_is_compared_over_both_times(spark: SparkSession) -> None:
    """Twelve frames; the first time 2 to 4 are sent, the second 4 again and 7 to 10; 9 is lost and nobody knows how."""
    near = [tag(n, 40 * n, payload_digest=n) for n in range(12)]
    sent = (2, 3, 4, 4, 7, 8, 10)
    far = [tag(100 + place, 40 * n, payload_digest=n, path=FAR_PATH) for place, n in enumerate(sent)]

    def told(start: int, stop: int, feed: str, seq: int, reason: str | None = None) -> dict[str, Any]:
        return delivery(start, stop, seq, reason, feed=f"{STREAM_ID}/{feed}")

    events = [
        opened(),
        opened(2, node="n2", stream="live/key", stream_id="n2.b.1", path=FAR_PATH),
        state("connected", 0, 5, feed=f"{STREAM_ID}/9"),
        told(2, 5, "9", 6),
        state("disconnected", 7, 7, feed=f"{STREAM_ID}/9"),
        state("connected", 8, 8, feed=f"{STREAM_ID}/10"),
        told(4, 5, "10", 9),
        told(5, 7, "10", 10, "lag"),
        told(7, 11, "10", 11),
        state("disconnected", 12, 12, feed=f"{STREAM_ID}/10"),
        event("stream_ended", 13, 13, reason="unpublished", position=12),
    ]
    rows = relay_audit.build(frame_of(spark, events), stream_tags_of(spark, near + far, events))
    newest, first = sorted(dicts(rows.where("node = 'n1'")), key=lambda row: row["feed"])
    assert (first["delivered"], first["far_candidates"], first["far_unexplained"]) == (3, None, None)
    assert (newest["delivered"], newest["far_candidates"], newest["near_frames"], newest["far_frames"]) == (5, 1, 12, 7)
    # Missing are 0, 1 (before), 5, 6 (lag), 9 (why?) and 11 (after).
    assert (newest["far_missing"], newest["far_duplicated"], newest["far_unexplained"]) == (6, 1, 1)


def test_frames_that_arrived_behind_another_sequence_header_are_told(spark: SparkSession) -> None:
    """The encoder changes its header before frame 6. The far end's second file, after a reconnect, has the old one."""

    def header(offset: int, digest: int, path: str) -> dict[str, Any]:
        return tag(offset, 0, is_config=True, is_frame=False, payload_digest=digest, path=path)

    def frames(numbers: range, path: str, **fields: Any) -> list[dict[str, Any]]:
        return [tag(100 + 10 * n, 40 * n, payload_digest=n, path=path, **fields) for n in numbers]

    second = "/far/live_key_20270115_080001.flv"
    sound = {"kind": "audio", "codec": "mp3", "size_bytes": 400}  # has no header anywhere, and needs none
    tags = [
        *[header(1, 777, PATH), *frames(range(6), PATH), header(155, 888, PATH), *frames(range(6, 10), PATH)],
        *[header(1, 777, FAR_PATH), *frames(range(4), FAR_PATH)],
        *[header(1, 777, second), *frames(range(4, 10), second)],
        *frames(range(20, 23), PATH, **sound),
        *frames(range(20, 23), second, **sound),
    ]
    there = {"node": "n2", "stream": "live/key", "stream_id": "n2.b.1"}
    events = [
        opened(),
        opened(2, **there, path=FAR_PATH),
        opened(3, **there, path=second),
        *publish(),
        state("connected", 0, 5),
        delivery(0, 1000, 6),
    ]
    (row,) = dicts(relay_audit.build(frame_of(spark, events), stream_tags_of(spark, tags, events)).where("node = 'n1'"))
    assert (row["near_frames"], row["far_frames"], row["far_missing"], row["far_misheaded"]) == (13, 13, 0, 4)


def test_incidents_follow_from_a_stall_to_the_destination_and_the_audience(spark: SparkSession) -> None:
    silent = {"video_bytes": 0, "audio_bytes": 0, "messages": 0, "frames": 0, "keyframes": 0, "max_gap_ms": 0}
    who = {"conn": "p", "viewer": "v"}
    events = [
        *publish(0, 60_000),
        sample(10_000, 2),
        *[sample(10_000 + 1000 * n, 2 + n, **silent) for n in (1, 2, 3, 4)],
        sample(15_000, 7, max_gap_ms=4600),
        state("connecting", 0, 8),
        state("connected", 500, 9),
        state("waiting", 18_000, 10, error_class="timeout"),
        state("connected", 20_000, 11),
        state("waiting", 50_000, 12, error_class="reset"),
        event("play_started", 1000, 13, **who),
        event("play_stopped", 16_000, 14, **who, reason="left", duration_ms=15_000),
        event("play_started", 30_000, 15, **who),
        event("play_stopped", 40_000, 16, **who, reason="left", duration_ms=10_000),
    ]
    frame = frame_of(spark, events)
    rows = incidents.build(frame, sessions.build(frame), destination_states.build(frame))
    assert rows.schema.simpleString() == incidents.SCHEMA.simpleString()
    stall, exits, drop, later = sorted(dicts(rows), key=lambda row: row["started_at"])
    assert (stall["kind"], stall["started_at"], stall["duration_ms"]) == ("publisher_stall", at(10_000), 4600)
    assert (stall["cause"], stall["destinations_dropped"], stall["viewers_exited"]) == ("publisher", ["far"], 1)
    assert (drop["kind"], drop["cause"], drop["cause_id"]) == (
        "destination_drop",
        "publisher_stall",
        stall["incident_id"],
    )
    assert (drop["duration_ms"], drop["destination"]) == (2000, "far")
    assert (exits["kind"], exits["viewers"], exits["cause_id"]) == ("audience_exit", 1, stall["incident_id"])
    assert (later["kind"], later["cause"], later["cause_id"], later["ended_at"]) == (
        "destination_drop",
        "reset",
        None,
        None,
    )


def test_a_lost_publisher_is_an_incident_until_it_is_back(spark: SparkSession) -> None:
    events = [
        event("publish_started", 0, 1, conn="c1", resumed=False, position=0),
        event("publish_stopped", 5000, 2, conn="c1", reason="lost", position=9),
        event("publish_started", 7000, 3, conn="c2", resumed=True, position=9),
        event("publish_stopped", 9000, 4, conn="c2", reason="unpublished", position=20),
    ]
    frame = frame_of(spark, events)
    rows = incidents.build(frame, sessions.build(frame), destination_states.build(frame))
    assert dicts(rows, "kind", "duration_ms", "cause") == [
        {"kind": "publisher_lost", "duration_ms": 2000, "cause": "lost"}
    ]


def test_the_catalogue_has_what_was_told_and_what_was_found(spark: SparkSession) -> None:
    done = {"bytes_total": 5000, "tags_total": 4, "duration_ms": 80, "error": None}
    events = [
        opened(),
        event("recording_closed", 9000, 2, path=PATH, **done),
        opened(3, path="/rec/other.flv"),
    ]
    tags = [tag(13, 0, kind="script", codec=None), tag(20, 1000, is_keyframe=True), tag(30, 1040, kind="audio")]
    tags += [tag(40, 1080, is_keyframe=True)]
    rows = recordings.build(frame_of(spark, events), stream_tags_of(spark, tags, events))
    assert rows.schema.simpleString() == recordings.SCHEMA.simpleString()
    closed, still_open = sorted(dicts(rows), key=lambda row: row["path"])
    assert (closed["bytes"], closed["tags"], closed["found_tags"], closed["is_open"]) == (5000, 4, 4, False)
    assert (closed["video_codec"], closed["audio_codec"], closed["found_duration_ms"]) == ("h264", "aac", 80)
    assert closed["keyframes"] == [{"media_ms": 0, "byte_offset": 20}, {"media_ms": 80, "byte_offset": 40}]
    assert (still_open["is_open"], still_open["found_path"], still_open["digest"]) == (True, None, None)
