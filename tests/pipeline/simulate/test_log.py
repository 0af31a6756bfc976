"""The simulated event log against what a real one promises, line by line and sum by sum."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.simulate import stretches
from headrace.telemetry.events import EVENT_TYPES
from tests.helpers.event_contract import assert_keeps_the_contract
from tests.pipeline.simulate.simulated import Line, by_feed, lines_of, simulate


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("simulated"), streams=4, hours=0.2, faults=40.0)


@pytest.fixture(scope="module")
def lines(data_dir: Path) -> list[Line]:
    return lines_of(data_dir)


def of(lines: list[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["type"] == kind]


def digest(folder: Path) -> dict[str, str]:
    """Of every file, by its path within the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


# --- the contract


def test_every_line_keeps_the_contract_and_every_type_of_event_is_there(lines: list[Line]) -> None:
    for line in lines:
        assert_keeps_the_contract(line)
    assert {line["type"] for line in lines} == set(EVENT_TYPES)


def test_lines_are_numbered_without_a_gap_in_the_order_of_time(lines: list[Line]) -> None:
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(one["time_ms"] <= other["time_ms"] for one, other in pairwise(lines))
    assert len({(line["node"], line["boot"]) for line in lines}) == 1
    assert (lines[0]["type"], lines[-1]["type"]) == ("server_started", "server_stopped")


def test_files_are_named_rotated_and_put_away_as_the_server_does(data_dir: Path, lines: list[Line]) -> None:
    paths = sorted(data_dir.glob("events/date=2026-01-01/hour=*/*.jsonl"), key=lambda path: path.name)
    prefix = f"{lines[0]['node']}-{lines[0]['boot']}-"
    assert [path.name for path in paths] == [f"{prefix}{number:06d}.jsonl" for number in range(1, len(paths) + 1)]
    assert {path.parent.name for path in paths} == {"hour=00", "hour=01"}
    assert [path.name for path in data_dir.iterdir()] == ["events"], "nothing else is left"
    for path in paths:
        times_ms = [json.loads(line)["time_ms"] for line in path.read_text().splitlines()]
        assert max(times_ms) - min(times_ms) < 3000
        assert {time_ms // 3_600_000 % 24 for time_ms in times_ms} == {int(path.parent.name[-2:])}


def test_a_file_holds_no_more_lines_than_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "MAX_LINES", 25)
    data = simulate(tmp_path, hours=0.02)
    counts = [path.read_text().count("\n") for path in data.rglob("*.jsonl")]
    assert max(counts) == 25
    assert [line["seq"] for line in lines_of(data)] == list(range(1, sum(counts) + 1))


# --- sums


def test_the_samples_of_publishers_add_up_to_what_their_streams_had(lines: list[Line]) -> None:
    ended = {line["stream_id"]: line["position"] for line in of(lines, "stream_ended")}
    sampled: Counter[str] = Counter()
    for line in of(lines, "publisher_sample"):
        sampled[line["stream_id"]] += line["messages"]
    assert sampled == ended
    assert len(ended) > 4, "some were lost and came back as another stream"


def test_no_number_is_below_zero(lines: list[Line]) -> None:
    assert not [line for line in lines if any(type(value) is int and value < 0 for value in line.values())]


def test_deliveries_tile_every_stream_for_every_reader(lines: list[Line]) -> None:
    ended = {line["stream_id"]: line["position"] for line in of(lines, "stream_ended")}
    feeds = by_feed(lines)
    assert len(feeds) == 3 * len(ended), "two destinations and the recorder"
    reasons: Counter[str] = Counter()
    for ranges in feeds.values():
        assert ranges[0]["start"] == 0
        assert all(one["stop"] == other["start"] for one, other in pairwise(ranges))
        assert ranges[-1]["stop"] == ended[ranges[0]["stream_id"]]
        for line in ranges:
            assert line["start"] < line["stop"]
            assert (line["reason"] is None) is (line["outcome"] == "delivered")
            reasons[line["reason"] or "delivered"] += line["stop"] - line["start"]
            assert line["reader"] == "destination" or line["reason"] is None
    assert set(reasons) == {"delivered", "not_connected", "no_keyframe", "evicted"}
    assert reasons["delivered"] > 0.8 * reasons.total()


def test_the_samples_of_destinations_say_what_their_proofs_say(lines: list[Line]) -> None:
    sent: Counter[str] = Counter()
    dropped: Counter[tuple[str, str]] = Counter()
    for line in of(lines, "destination_sample"):
        sent[line["feed"]] += line["messages"]
        dropped.update({(line["feed"], reason): count for reason, count in line["dropped"].items()})
    for feed, ranges in by_feed(lines).items():
        proven: Counter[str] = Counter()
        for line in ranges:
            proven[line["reason"] or "delivered"] += line["stop"] - line["start"]
        if ranges[0]["reader"] == "destination":
            assert sent[feed] == proven["delivered"]
            # What came before the first connection was never for it.
            for reason in ("evicted", "no_keyframe"):
                assert dropped[feed, reason] == proven[reason]


def test_the_samples_of_players_add_up_to_what_is_told_at_their_end(lines: list[Line]) -> None:
    names = {"messages": "messages_total", "bytes": "bytes_total", "interval_ms": "duration_ms"}
    sums: dict[str, Counter[str]] = {}
    for line in of(lines, "subscriber_sample"):
        sums.setdefault(line["conn"], Counter()).update({name: line[name] for name in names})
    stopped = of(lines, "play_stopped")
    assert len(stopped) == len(of(lines, "play_started")) == len(sums)
    for play in stopped:
        assert [sums[play["conn"]][name] for name in names] == [play[total] for total in names.values()]
    assert [play for play in stopped if play["first_keyframe_ms"] is None], "some leave before a picture"
    assert [line for line in of(lines, "subscriber_sample") if line["dropped"].get("lag")], "some are too slow"


def test_every_connection_is_opened_and_closed_once_and_numbered_as_they_came(lines: list[Line]) -> None:
    opened = of(lines, "connection_opened")
    assert [line["conn"] for line in opened] == [f"c{number}" for number in range(1, len(opened) + 1)]
    assert sorted(line["conn"] for line in of(lines, "connection_closed")) == sorted(line["conn"] for line in opened)


def test_a_destination_goes_from_state_to_state_as_a_real_one_does(lines: list[Line]) -> None:
    may_follow = {
        None: {"connecting"},
        "connecting": {"connected", "waiting", "error"},
        "connected": {"waiting", "disconnected"},
        "waiting": {"connecting"},
    }
    told: dict[str, Line] = {}
    for line in of(lines, "destination_state"):
        before = told.get(line["feed"])
        assert line["state"] in may_follow[before["state"] if before else None]
        if line["state"] == "waiting":
            assert before is not None
            assert line["error"]
            assert line["attempt"] == (1 if before["state"] == "connected" else before["attempt"] + 1)
        told[line["feed"]] = line
    assert {line["state"] for line in told.values()} <= {"disconnected", "error"}
    classes = {line["error_class"] for line in of(lines, "destination_state")}
    assert {"reset", "stalled", "refused"} <= classes
    # Nobody gets anything from a destination that is not connected.
    assert not [s for s in of(lines, "destination_sample") if s["flowing"] and s["state"] != "connected"]


# --- chance


def test_the_same_seed_gives_the_same_bytes_however_the_work_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: dict[str, Any] = {"hours": 0.03, "record_dir": tmp_path / "recordings"}
    first = digest(simulate(tmp_path / "a", **wanted))
    assert digest(simulate(tmp_path / "b", jobs=2, **wanted)) == first
    monkeypatch.setattr(stretches, "_ROWS", 1)  # every stretch is one file
    assert digest(simulate(tmp_path / "c", **wanted)) == first
    monkeypatch.undo()
    assert digest(simulate(tmp_path / "d", **wanted, seed=8)).keys() != first.keys()


def test_without_faults_viewers_and_destinations_there_is_a_plain_log(tmp_path: Path) -> None:
    lines = lines_of(simulate(tmp_path, faults=0.0, viewers=0, destinations=0, streams=1))
    assert {line["reason"] for line in of(lines, "publish_stopped")} == {"unpublished"}
    assert not of(lines, "play_started")
    assert not of(lines, "destination_state")
    assert {line["reader"] for line in of(lines, "delivery")} == {"recorder"}
    assert max(line["max_gap_ms"] for line in of(lines, "publisher_sample")) < 100
