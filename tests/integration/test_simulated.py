"""The simulated event log beside a real one: the same types, fields, kinds of values and words."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clips import ClipLibrary
from tests.integration.harness import Stage
from tests.integration.test_events import EventLines, told_by, wait_for_messages
from tests.pipeline.simulate.simulated import lines_of, simulate

pytestmark = pytest.mark.integration

# Fields whose values are words of ours, not somebody's name.
WORDS = ("state", "outcome", "reader", "reason", "error_class", "video", "audio", "audio_profile")


@pytest.fixture
def real(stage: Stage, clips: ClipLibrary) -> EventLines:
    """A publisher that is lost and comes back, a recorder, a destination, a player that leaves and one that stays."""
    second = stage.server()
    relay = ("-relay-to", f"rtmp://127.0.0.1:{second.port}/live/somewhere", "-http-status", ":0")
    first = stage.server("-record-all", "-record-dir", stage.folder / "recordings", *relay)
    publisher = stage.publish(clips["h264_aac"], first.url(), loops=True)
    first.wait_for_log("Destination connected")
    leaving, staying = stage.play(first.url()), stage.play(first.url())
    wait_for_messages(first, 150)
    leaving.kill()
    first.wait_for_log("Subscriber removed")
    publisher.kill()
    publisher = stage.publish(clips["h264_aac"], first.url(), loops=True)
    first.wait_for_log("Publisher is back")
    wait_for_messages(first, 400)
    publisher.quit_by_signal()
    staying.wait()
    first.wait_for_log("Recording finished")
    return told_by(first)


def kinds(lines: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Of the values of every field of every type."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        for name, value in line.items():
            found[f"{line['type']}.{name}"].add(type(value).__name__)
    return found


def words(lines: list[dict[str, Any]]) -> set[str]:
    # A player that is killed resets its connection if it has not read everything, and closes it otherwise.
    same = {"connection reset by peer": "closed by peer"}
    return {
        f"{line['type']}.{name}={same.get(line[name], line[name])}" for line in lines for name in WORDS if name in line
    }


def test_a_simulated_log_is_like_a_real_one(real: EventLines, tmp_path: Path) -> None:
    simulated = lines_of(simulate(tmp_path / "simulated", hours=0.1, faults=40.0))
    assert {line["type"] for line in real.lines} <= {line["type"] for line in simulated}
    by_type = {line["type"]: list(line) for line in simulated}
    for line in real.lines:
        assert by_type[line["type"]] == list(line)
    ours = kinds(simulated)
    assert {name: found - ours[name] for name, found in kinds(real.lines).items() if found - ours[name]} == {}
    assert words(real.lines) - words(simulated) == set()
    for lines in (real.lines, lines_of(simulate(tmp_path / "untroubled", hours=0.05, faults=0.0))):
        assert_hangs_together(lines)


def assert_hangs_together(lines: list[dict[str, Any]]) -> None:
    """What is true of a second of a stream that flows."""
    # Not the first and the last of each, which are shorter.
    publishing = [line for line in lines if line["type"] == "publisher_sample" and 950 < line["interval_ms"] < 1100]
    # An encoder on a busy machine sends less than a second's media in a second, and then more to catch up.
    told_ms: dict[str, int] = {}
    flowing = []
    for line in publishing:
        media_ms = line["media_ms"] - told_ms.get(line["stream_id"], 0)
        if 500 < media_ms < 1500:
            flowing.append((line, media_ms))
        told_ms[line["stream_id"]] = line["media_ms"]
    assert flowing
    for line, media_ms in flowing:
        # Sound is 43 or 47 frames a second; the first sample has metadata and headers too.
        assert 33 < (line["messages"] - line["frames"]) * 1000 / media_ms < 57
        assert line["timestamp_ms"] == max(line["video_ms"], line["audio_ms"])
        assert abs(line["video_ms"] - line["audio_ms"]) < 100
        assert line["keyframes"] <= 2
    playing = [line for line in lines if line["type"] == "subscriber_sample" and line["messages"] > 40]
    relayed = [line for line in lines if line["type"] == "destination_sample" and line["messages"] > 40]
    assert playing
    assert relayed
    for line in (*playing, *relayed):
        assert line["position"] > line["messages"] - 10
        assert 0 <= line["queue_age_ms"] < 500
        # Chunk headers are twelve bytes of each message.
        assert line["bytes"] > 12 * line["messages"]
