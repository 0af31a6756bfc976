"""What reports say of each kind of broadcast, and that their figures are those of the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.report.kinds import KINDS
from tests.pipeline.report.lakes import START, at, healthy, publish, recording, refused, report_of, troubled

VERDICTS = {
    "healthy": "Healthy for 1 min; its destination got every message.",
    "troubled": "Live for 1 min, with trouble: nothing came from the encoder for 6 s; one destination (youtube) was "
    "down for 20 s and missed 1,204 messages; 1 viewer left because of it.",
    "live": "Healthy so far, live for 1 min; its destination has got every message so far.",
    "cut off": "Healthy for 1 min; its destination got every message; the server ended without a word.",
    "bad encoder": "Live for 1 min, with something to mend: fromTheFuture was reported, keyframes came up to 6.0 s "
    "apart and there was no sound; it ended because the encoder's connection was lost.",
    "never connected": "Healthy for 1 min; its destination (youtube) never connected.",
    "no recording": "Healthy for 1 min; its destination got every message.",
    "no viewers": "Healthy for 1 min; its destination got every message.",
    "no destinations": "Healthy for 1 min.",
    "no samples": "Live for 1 min, but nothing was measured; its destination got every message.",
    "nothing but its start": "Live for 0 s, but nothing was measured.",
    "only refusals": "Never published: 2 plays and 1 attempt to publish were refused (NetStream.Play.StreamNotFound).",
}
STATUSES = {
    "healthy": "good",
    "troubled": "bad",
    "live": "good",
    "cut off": "bad",
    "bad encoder": "warning",
    "never connected": "bad",
    "no recording": "good",
    "no viewers": "good",
    "no destinations": "good",
    "no samples": "unknown",
    "nothing but its start": "unknown",
    "only refusals": "unknown",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_of_each_kind_is_one_sentence(tmp_path: Path, kind: str) -> None:
    what = "live/show" if kind == "cut off" else None
    report = report_of(tmp_path, KINDS[kind], what)
    assert report.verdict == VERDICTS[kind]
    assert report.status == STATUSES[kind]


def test_figures_are_those_of_the_tables(tmp_path: Path) -> None:
    report = report_of(tmp_path, troubled())
    assert (report.started_at, report.last_seen_at, report.duration_ms) == (START, at(60), 60_000)
    ingest = report.ingest
    assert ingest is not None
    assert (ingest.window_s, len(ingest.points), ingest.keyframe_window_s, len(ingest.keyframe_points)) == (
        1,
        60,
        10,
        6,
    )
    assert ingest.total_bps_mean == ingest.total_bps_max == 2_528_000
    assert (ingest.keyframe_interval_mean_ms, ingest.keyframe_interval_from) == (2000, "recording")
    assert (ingest.good_ms, ingest.ok_ms, ingest.bad_ms, ingest.no_data_ms) == (50_000, 0, 10_000, 0)
    studio, youtube = report.destinations
    assert (studio.missed, studio.outages_total, studio.advice) == (0, 0, None)
    assert (youtube.missed, youtube.missed_by_reason) == (1204, {"evicted": 1200, "no_keyframe": 4})
    assert (youtube.availability, youtube.reconnects, youtube.mttr_ms) == (40 / 60, 1, 20_000)
    (outage,) = youtube.outages
    assert (outage.started_at, outage.ended_at, outage.attempts, outage.error_class) == (at(30), at(50.02), 2, "reset")
    (proof,) = youtube.audits
    assert proof.adds_up
    assert (proof.ingested, proof.delivered, proof.skipped) == (4000, 2796, 1204)
    assert proof.far_end == "not compared: 2 streams in this lake could be it"
    audience = report.audience
    assert audience is not None
    assert (audience.peak_viewers, audience.watch_ms, audience.startup_ms) == (3, 63_000, 12)
    assert max(point.viewers for point in audience.curve) == 3
    stall, exit_, drop = report.incidents
    assert (stall.number, stall.what) == (1, "Nothing came from the encoder for 6 s; because of it 1 viewer left")
    assert (exit_.cause_number, exit_.why) == (1, "incident 1 (encoder stalled)")
    assert (drop.what, drop.why) == ("youtube was disconnected for 20 s", "the far end closed the connection")
    (file,) = report.recordings
    assert (file.file_name, file.duration_ms, file.keyframes) == ("live_show_20261116_080000.flv", 60_000, 30)


def test_issues_carry_the_measured_value_the_threshold_and_what_to_do(tmp_path: Path) -> None:
    report = report_of(tmp_path, KINDS["bad encoder"])
    by_name = {one.name: one for one in report.issues}
    long = by_name["gopSizeLong"]
    assert (long.measured, long.threshold, long.unit, long.windows) == (6000, 4000, "ms", 6)
    assert long.finding == "Keyframes came up to 6.0 s apart; YouTube wants 4 s or less, Twitch 2 s."
    assert long.advice is not None
    assert "In OBS set Keyframe Interval to 2 s" in long.advice
    assert "-g 60 " in long.advice
    assert by_name["fromTheFuture"].finding == "fromTheFuture: measured 7 parsecs, threshold 6 parsecs."
    assert by_name["fromTheFuture"].advice is None
    assert [one.severity for one in report.issues] == ["warning", "warning", "warning", "info"]


def test_refusals_while_it_was_live_are_told_and_others_are_not(tmp_path: Path) -> None:
    rows = healthy()
    rows["sessions"] += [refused(-3), refused(-3000), refused(20, kind="publish_refused", reason="BadName")]
    refusals = report_of(tmp_path, rows).refusals
    assert refusals is not None
    assert (refusals.plays, refusals.publishes) == (1, 1)
    assert refusals.by_reason == {"NetStream.Play.StreamNotFound": 1, "BadName": 1}


def test_a_recording_that_is_written_has_the_length_that_is_in_it(tmp_path: Path) -> None:
    (file,) = report_of(tmp_path, KINDS["live"]).recordings
    assert (file.is_open, file.duration_ms, file.bytes) == (True, 59_960, None)


def test_a_live_broadcast_without_samples_may_have_some_soon(tmp_path: Path) -> None:
    verdict = report_of(tmp_path, {"sessions": [publish(0, None)]}).verdict
    assert verdict == "Live for 1 min so far, but nothing was measured yet."


def test_a_recording_that_failed_is_in_the_verdict(tmp_path: Path) -> None:
    rows = healthy() | {"recordings": [recording(error="No space left on device")]}
    report = report_of(tmp_path, rows)
    assert report.status == "warning"
    assert "; a recording ended early" in report.verdict
