from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.tables import destination_states, gops, sessions, stream_windows, timeline
from tests.pipeline.tables.rows import (
    DESTINATION,
    PATH,
    T0,
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


def test_a_group_of_pictures_lasts_to_the_next_keyframe_whatever_timestamps_do(spark: SparkSession) -> None:
    wrap = 1 << 32
    tags = [
        tag(1, wrap - 80, is_config=True),
        tag(2, wrap - 80),  # before the first keyframe
        tag(3, wrap - 40, is_keyframe=True),
        tag(4, 0),  # wrapped
        tag(5, 10, kind="audio"),
        tag(6, 40, is_keyframe=True),
        tag(7, 80),
        tag(8, 5_000_000, is_keyframe=True),  # the encoder started anew
        tag(9, 5_000_040),
    ]
    rows = gops.build(frame_of(spark, [opened()]), stream_tags_of(spark, tags))
    assert rows.schema.simpleString() == gops.SCHEMA.simpleString()
    wanted = ("byte_offset", "start_ms", "duration_ms", "frames", "video_bytes", "is_last")
    assert [tuple(row.values()) for row in dicts(rows, *wanted)] == [
        (3, 40, 80, 2, 2000, False),
        (6, 120, 40, 2, 2000, False),
        (8, 160, 40, 2, 2000, True),
    ]


def test_positions_in_the_log_are_known_from_the_first_frame_up_to_what_the_recorder_skipped(
    spark: SparkSession,
) -> None:
    second = "/data/recordings/second.flv"
    # Metadata and a header that stand in the file again; then every tag is a message, a script too.
    tags = [
        tag(1, 0, kind="script"),
        tag(2, 0, is_config=True),
        tag(3, 0, is_keyframe=True),
        tag(4, 10, kind="script"),
        tag(5, 40),
        tag(6, 80, is_keyframe=True),
        tag(7, 120),
        tag(8, 160),
        tag(9, 900, path=second, is_keyframe=True),
        tag(10, 940, path=second),
    ]
    files = [opened(1, frame_position=100), opened(2, path=second, frame_position=300)]
    skipped = event("delivery", 0, 3, reader="recorder", name="r", start=105, stop=300, outcome="skipped", reason="lag")
    other = event(
        "delivery", 0, 4, reader="destination", name="d", start=101, stop=300, outcome="skipped", reason="lag"
    )
    wanted = ("byte_offset", "first_position", "last_position")

    def positions(*events: dict[str, Any]) -> list[tuple[int, int | None, int | None]]:
        rows = gops.build(frame_of(spark, list(events)), stream_tags_of(spark, tags, list(events)))
        return sorted(tuple(row.values()) for row in dicts(rows, *wanted))

    assert positions(*files, other) == [(3, 100, 102), (6, 103, 105), (9, 300, 301)]
    # The last frame of the second group may be any later message, so no position is claimed for it.
    assert positions(*files, skipped) == [(3, 100, 102), (6, 103, None), (9, 300, 301)]
    # Logs from before positions were told.
    assert positions(opened(1), opened(2, path=second)) == [(3, None, None), (6, None, None), (9, None, None)]


def test_a_file_that_two_streams_claim_belongs_to_neither(spark: SparkSession) -> None:
    relative = PATH.removeprefix("/")
    mine, theirs = opened(path=relative), opened(path=relative, node="n2", stream_id="n2.b.1")
    assert len(dicts(stream_tags_of(spark, [tag(1, 0)], [mine]))) == 1
    assert dicts(stream_tags_of(spark, [tag(1, 0)], [mine, theirs])) == []
    assert dicts(stream_tags_of(spark, [tag(1, 0)], [opened(path="c/" + relative)])) == []
    assert timeline.JUMP_MS == 10_000


def test_the_time_that_a_publisher_was_away_is_no_media_time(spark: SparkSession) -> None:
    events = [
        *[sample(1000 * n, n, conn="c1") for n in (1, 2, 3)],
        # Away for five seconds, by which the server moves on what comes then.
        *[sample(1000 * n, n, conn="c2") for n in (9, 10)],
        sample(13_000, 11, conn="c2"),  # two samples are lost
    ]
    rows = stream_windows.build(frame_of(spark, events), stream_tags_of(spark, []))
    seconds = dicts(rows.where("window_s = 1"), "start_ms", "media_ms", "drift_ms")
    assert [(row["start_ms"] - T0, row["media_ms"], row["drift_ms"]) for row in seconds] == [
        (0, 1000, 0),
        (1000, 1000, 0),
        (2000, 1000, 0),
        (8000, 1000, 0),
        (9000, 1000, 0),
        (12_000, 3000, -2000),
    ]


def test_windows_of_samples_tell_rates_gaps_and_drift(spark: SparkSession) -> None:
    events = [
        sample(1000, 1),
        sample(2000, 2, video_bytes=200_000, keyframes=0, backward_steps=2, video_ms=2, audio_ms=(1 << 32) - 8),
        sample(3000, 3, video_bytes=0, audio_bytes=0, messages=0, frames=0, keyframes=0, media_ms=2000, max_gap_ms=0),
        sample(4000, 4, media_ms=3000, max_gap_ms=1500),
        sample(4000, 5, node="n2"),
        sample(4000, 6, interval_ms=0),
    ]
    rows = stream_windows.build(frame_of(spark, events), stream_tags_of(spark, []))
    assert rows.schema.simpleString() == stream_windows.SCHEMA.simpleString()
    own = rows.where("node = 'n1' and clock = 'wall'")
    (ten,) = dicts(own.where("window_s = 10"))
    assert (ten["covered_ms"], ten["media_ms"], ten["drift_ms"], ten["messages"]) == (4000, 3000, 1000, 210)
    assert (ten["video_bps"], ten["audio_bps"], ten["total_bps"]) == (800_000, 60_000, 860_000)
    assert (ten["frame_rate"], ten["keyframes"], ten["keyframe_interval_ms"]) == (18.75, 2, 2000)
    assert (ten["keyframe_interval_max_ms"], ten["av_skew_ms"]) == (2000, 20)
    assert (ten["max_gap_ms"], ten["starved_ms"], ten["backward_steps"]) == (1500, 1000, 2)
    assert ten["started_at"] == at(0)
    assert ten["bitrate_cv"] == pytest.approx(0.6907, abs=1e-3)
    assert [
        row["video_bps"] for row in dicts(own.where("window_s = 1").orderBy("start_ms"), "start_ms", "video_bps")
    ] == [
        800_000,
        1_600_000,
        0,
        800_000,
    ]
    assert rows.where("node = 'n2'").count() == 5, "a row of each length"


def test_windows_of_tags_go_by_media_time(spark: SparkSession) -> None:
    tags = [
        tag(1, 0, is_keyframe=True),
        tag(2, 30, kind="audio"),
        tag(3, 400),
        tag(4, 1000, is_keyframe=True),
        tag(5, 950, kind="audio"),
        tag(6, 1500),
        tag(7, 1500 + 20_000),
    ]
    rows = stream_windows.build(frame_of(spark, []), stream_tags_of(spark, tags)).where("window_s = 1")
    wanted = ("start_ms", "covered_ms", "video_bps", "audio_bps", "frames", "keyframe_interval_max_ms", "jumps")
    assert [tuple(row.values()) for row in dicts(rows, *wanted)] == [
        (0, 1000, 16_000, 16_000, 2, 400, 0),
        (1000, 500, 48_000, 0, 3, 1000, 1),
    ]


def test_sessions_pair_starts_and_ends_and_keep_open_and_refused_ones(spark: SparkSession) -> None:
    play = {"conn": "c2", "viewer": "v"}
    events = [
        event("publish_started", 0, 1, conn="c1", resumed=False, position=0),
        sample(1000, 2),
        event("play_started", 1000, 3, **play),
        event(
            "subscriber_sample",
            1500,
            4,
            **play,
            interval_ms=500,
            bytes=10,
            messages=5,
            blocked=True,
            dropped={"lag": 2},
        ),
        event(
            "play_stopped",
            2000,
            5,
            **play,
            reason="left",
            duration_ms=999,
            first_keyframe_ms=12,
            messages_total=9,
            bytes_total=90,
        ),
        event("play_started", 3000, 6, **play),  # the same connection again
        event("subscriber_sample", 4000, 7, **play, interval_ms=1000, bytes=20, messages=6, blocked=False, dropped={}),
        event("play_refused", 5000, 8, conn="c3", viewer="w", stream="live/none", stream_id=None, reason="NotFound"),
        event("publish_stopped", 6000, 9, conn="c1", reason="lost", position=70),
    ]
    rows = sessions.build(frame_of(spark, events))
    assert rows.schema.simpleString() == sessions.SCHEMA.simpleString()
    publish, first, second, refused = sorted(dicts(rows), key=lambda row: row["first_seq"])
    assert (publish["kind"], publish["reason"], publish["duration_ms"], publish["bytes"]) == (
        "publish",
        "lost",
        6000,
        110_000,
    )
    assert (first["duration_ms"], first["bytes"], first["messages"], first["first_keyframe_ms"]) == (999, 90, 9, 12)
    assert (first["dropped"], first["blocked_ms"], first["is_open"]) == ({"lag": 2}, 500, False)
    assert (second["is_open"], second["stopped_at"], second["duration_ms"], second["bytes"]) == (True, None, 1000, 20)
    assert (refused["kind"], refused["stream_id"], refused["reason"]) == ("refused", None, "NotFound")


def test_sessions_of_many_events_are_the_same_without_sorting_them(spark: SparkSession) -> None:
    def watched(conn: str, offset_ms: int, seq: int, **fields: Any) -> dict[str, Any]:
        usual = {"interval_ms": 1000, "bytes": 7, "messages": 3, "blocked": seq % 3 == 0, "dropped": {}}
        return event("subscriber_sample", offset_ms, seq, conn=conn, viewer=f"of {conn}", **{**usual, **fields})

    def began(conn: str, offset_ms: int, seq: int) -> dict[str, Any]:
        return event("play_started", offset_ms, seq, conn=conn, viewer=f"of {conn}")

    def ended(conn: str, offset_ms: int, seq: int) -> dict[str, Any]:
        totals = {"messages_total": 100, "bytes_total": 1000, "first_keyframe_ms": 3}
        return event("play_stopped", offset_ms, seq, conn=conn, viewer=f"of {conn}", reason="left", **totals)

    def refused(seq: int) -> dict[str, Any]:
        return event("play_refused", seq, seq, conn="r", viewer="of r", stream_id=None, reason=f"NotFound {seq}")

    events = [
        *[
            event("publish_started", 0, 1, conn="p", resumed=False),
            *[sample(1000 * n, n + 1, conn="p") for n in (1, 2)],
        ],
        event("publish_stopped", 3000, 4, conn="p", reason="lost", position=5),
        event("publish_started", 4000, 5, conn="p", resumed=True),
        sample(5000, 6, conn="p"),
        # A play from start to end, one that goes on, one whose start is lost, one that is played three times.
        *[began("a", 0, 10), *[watched("a", 1000 * n, 10 + n) for n in range(1, 6)], ended("a", 6000, 16)],
        *[began("b", 0, 20), *[watched("b", 1000 * n, 20 + n, dropped={"lag": n}) for n in range(3)]],
        *[watched("c", 0, 30), watched("c", 10, 31, dropped=None), watched("c", 20, 32, bytes=None)],
        *[began("d", 0, 40), watched("d", 1000, 41), ended("d", 1500, 42), began("d", 2000, 43)],
        *[
            watched("d", 3000, 44, dropped={"lag": 1}),
            began("d", 4000, 45),
            watched("d", 5000, 46),
            ended("d", 6000, 47),
        ],
        *[refused(50), refused(51)],
    ]
    frame = frame_of(spark, [*events, *({**one, "boot": "later"} for one in events[:12])])
    expected, found = (sorted(dicts(build(frame)), key=str) for build in (sessions.build, sessions.build_many))
    assert found == expected
    assert len(expected) == 13
    assert sum(row["blocked_ms"] for row in expected) > 0


def test_a_destination_state_lasts_to_the_next_or_to_the_newest_event(spark: SparkSession) -> None:
    def state(name: str, offset_ms: int, seq: int, **fields: object) -> dict[str, object]:
        return event("destination_state", offset_ms, seq, **DESTINATION, state=name, attempt=0, **fields)

    events = [
        state("connecting", 0, 1),
        state("waiting", 10, 2, error="no", error_class="refused"),
        state("connected", 1000, 3),
        state("connected", 1500, 5, feed="n1.b.1/2", is_backup=True),  # added again while the other says goodbye
        event("stream_ended", 5000, 6, reason="unpublished", position=9),
    ]
    rows = destination_states.build(frame_of(spark, events))
    assert rows.schema.simpleString() == destination_states.SCHEMA.simpleString()
    wanted = ("seq", "state", "duration_ms", "is_last", "previous_state", "error_class", "is_backup")
    assert [tuple(row.values()) for row in dicts(rows.orderBy("seq"), *wanted)] == [
        (1, "connecting", 10, False, None, None, False),
        (2, "waiting", 990, False, "connecting", "refused", False),
        (3, "connected", 4000, True, "waiting", None, False),
        (5, "connected", 3500, True, None, None, True),
    ]
