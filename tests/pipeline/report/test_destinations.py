from __future__ import annotations

from typing import Any

import pytest

from headrace.pipeline.report.destinations import build_audits, build_destinations
from headrace.pipeline.report.facts import MAX_OUTAGES, MAX_STATES, Destination
from headrace.pipeline.report.tables import Row
from headrace.pipeline.tables.relay_audit import SCHEMA as AUDIT
from tests.pipeline.report.lakes import at, audit, destination, state


def full(row: Row) -> Row:
    return {**dict.fromkeys(AUDIT.names), **row}


def built(states: list[Row], audits: list[Row] | None = None, **fields: Any) -> Destination:
    health = {**dict.fromkeys(("mttr_ms", "last_error", "last_error_class", "max_queue_age_ms")), **destination("far")}
    states = [{"error": None, "error_class": None, **row} for row in states]
    (one,) = build_destinations([{**health, **fields}], states, [full(row) for row in audits or ()], at(60))
    return one


def test_a_destination_that_connects_at_once_and_leaves_at_the_end_has_no_outage() -> None:
    one = built(
        [state("far", "connecting", 0, 1), state("far", "connected", 1, 59), state("far", "disconnected", 59, 60)]
    )
    assert (one.outages, one.down_ms) == ((), 0)
    assert [span.state for span in one.states] == ["connecting", "connected", "disconnected"]


def test_retries_inside_a_wait_are_one_outage_and_one_span() -> None:
    one = built(
        [
            state("far", "connected", 0, 10),
            state("far", "waiting", 10, 12, error_class="reset"),
            state("far", "connecting", 12, 12.5),
            state("far", "waiting", 12.5, 20, error_class="refused"),
            state("far", "connecting", 20, 20.5),
            state("far", "connected", 20.5, 60),
        ]
    )
    (outage,) = one.outages
    assert (outage.started_at, outage.ended_at, outage.duration_ms) == (at(10), at(20.5), 10_500)
    assert (outage.attempts, outage.error_class, outage.has_ended, outage.is_at_start) == (2, "reset", True, False)
    assert [(span.state, span.ended_at) for span in one.states] == [
        ("connected", at(10)),
        ("waiting", at(20.5)),
        ("connected", at(60)),
    ]


def test_one_that_is_not_back_by_the_end_was_down_until_then_and_no_longer() -> None:
    one = built([state("far", "connected", 0, 40), state("far", "error", 40, 75, error_class="auth")])
    (outage,) = one.outages
    assert (outage.duration_ms, outage.has_ended) == (20_000, False)


def test_one_that_failed_before_it_was_first_connected_was_down_at_the_start() -> None:
    one = built([state("far", "connecting", 0, 1), state("far", "waiting", 1, 5), state("far", "connected", 5, 60)])
    (outage,) = one.outages
    assert (outage.is_at_start, outage.duration_ms) == (True, 5000)


def test_switched_off_is_no_outage() -> None:
    one = built(
        [
            state("far", "connected", 0, 20),
            state("far", "disconnected", 20, 40),
            state("far", "connecting", 40, 41, feed="f2"),
            state("far", "connected", 41, 60, feed="f2"),
        ]
    )
    assert one.outages_total == 0


def test_what_was_missed_is_the_sum_over_its_feeds() -> None:
    compared = {"far_candidates": 1, "far_missing": 0, "near_frames": 20, "far_node": "n2", "far_stream": "yt/x"}
    proofs = [
        audit("far", 10, {"lag": 3}, feed="f1"),
        audit("far", 10, {"lag": 1, "evicted": 5}, feed="f2", **compared),
    ]
    one = built([], proofs)
    assert (one.missed, one.missed_by_reason) == (9, {"evicted": 5, "lag": 4})
    assert [proof.far_end for proof in one.audits] == [
        "compared below, together with the last time that it was attached",
        "compared with the recording of yt/x on n2: all 20 frames arrived, none changed",
    ]


def test_without_a_proof_its_samples_tell_what_was_dropped() -> None:
    one = built([], [], dropped={"lag": 7})
    assert (one.missed, one.missed_by_reason, one.audits) == (7, {"lag": 7}, ())
    assert built([]).missed is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "not compared: no recording in this lake matches it"),
        ({"far_candidates": 3}, "not compared: 3 streams in this lake could be it"),
        (
            {"far_candidates": 1, "far_missing": 0, "near_frames": 4000},
            "compared with the recording of yt/x on n2: all 4,000 frames arrived, none changed",
        ),
        (
            {"far_candidates": 1, "far_missing": 12, "far_unexplained": 0, "near_frames": 4000},
            "compared with the recording of yt/x on n2: of 4,000 frames 12 missing (all of them explained)",
        ),
        (
            {"far_candidates": 1, "far_missing": 12, "far_unexplained": 2, "far_corrupted": 1, "near_frames": 9},
            "compared with the recording of yt/x on n2: of 9 frames 12 missing (2 of them unexplained) and 1 corrupted",
        ),
        (
            {"far_candidates": 1, "far_missing": 0, "far_misheaded": 3, "near_frames": 9},
            "compared with the recording of yt/x on n2: of 9 frames 3 behind another sequence header",
        ),
    ],
)
def test_the_far_end_is_told_in_words(fields: Row, words: str) -> None:
    (proof,) = build_audits([full(audit("far", 10, far_node="n2", far_stream="yt/x", **fields))])
    assert proof.far_end == words


def test_a_proof_that_does_not_add_up_says_so() -> None:
    good, bad = build_audits(
        [
            full(audit("a", 10, {"lag": 2}, before_start=3, pending=4, ingested=19, overlap_messages=0)),
            full(audit("b", 10, {"lag": 2}, ingested=13)),
        ]
    )
    assert good.adds_up
    assert not bad.adds_up


def test_a_destination_that_flaps_all_day_stays_within_the_caps() -> None:
    flaps: list[Row] = []
    for n in range(3000):
        flaps += [
            state("far", "connected", n * 0.02, n * 0.02 + 0.01),
            state("far", "waiting", n * 0.02 + 0.01, n * 0.02 + 0.02, error_class="reset"),
        ]
    one = built(flaps)
    assert (one.outages_total, len(one.outages)) == (3000, MAX_OUTAGES)
    assert (one.states_total, len(one.states)) == (6000, MAX_STATES)
