from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.report.choosing import as_day
from tests.pipeline.report.lakes import (
    Rows,
    catalogue,
    destination,
    healthy,
    play,
    publish,
    recording,
    refused,
    write_lake,
)

DAY_S = 86_400


def of(stream: str, stream_id: str, node: str = "n1") -> dict[str, Any]:
    return {"node": node, "stream": stream, "stream_id": stream_id}


THREE: Rows = {
    "sessions": [
        publish(0, 60, **of("live/a", "n1.b.1")),
        publish(100, 200, **of("live/a", "n1.b.2")),
        publish(50, 90, **of("live/b", "n1.b.3")),
        refused(300, "live/none"),
    ],
    "recordings": [
        recording("/rec/live_a_1.flv", **of("live/a", "n1.b.1")),
        recording("/rec/live_a_2.flv", **of("live/a", "n1.b.2")),
        recording("/rec/live_b.flv", **of("live/b", "n1.b.3")),
    ],
}


def test_without_an_argument_it_is_the_newest_and_never_a_refusal(tmp_path: Path) -> None:
    assert catalogue(write_lake(tmp_path, THREE)).newest().stream_id == "n1.b.2"


def test_of_a_broadcast_and_its_copies_at_far_ends_it_is_where_it_came_in(tmp_path: Path) -> None:
    near, far = of("live/a", "n1.b.1"), of("yt/a", "n2.b.1", "n2")
    rows: Rows = {
        "sessions": [publish(0, 60, **near), publish(0.2, 60, **far)],
        "destination_health": [destination("youtube", **near)],
    }
    assert catalogue(write_lake(tmp_path, rows)).newest().node == "n1"


@pytest.mark.parametrize(
    ("text", "stream_id"),
    [
        ("live/a", "n1.b.2"),
        ("live/b", "n1.b.3"),
        ("n1.b.1", "n1.b.1"),
        ("live_a_1.flv", "n1.b.1"),
        ("/rec/live_a_2.flv", "n1.b.2"),
        ("/elsewhere/now/live_b.flv", "n1.b.3"),
        ("live/none", None),
    ],
)
def test_an_argument_is_a_stream_an_id_or_a_recording(tmp_path: Path, text: str, stream_id: str | None) -> None:
    assert catalogue(write_lake(tmp_path, THREE)).named(text).stream_id == stream_id


def test_a_stream_may_be_called_like_a_recording(tmp_path: Path) -> None:
    rows: Rows = {"sessions": [publish(**of("live/x.flv", "n1.b.9"))]}
    assert catalogue(write_lake(tmp_path, rows)).named("live/x.flv").stream_id == "n1.b.9"


@pytest.mark.parametrize("text", ["live/zzz", "zzz", "/rec/zzz.flv"])
def test_what_is_not_there_is_one_line_that_says_what_is(tmp_path: Path, text: str) -> None:
    with pytest.raises(PipelineError) as caught:
        catalogue(write_lake(tmp_path, THREE)).named(text)
    assert text in str(caught.value)
    assert "there is live/a (2) and live/b (1), on 2026-11-16" in str(caught.value)


def test_an_empty_lake_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="it holds none yet; headrace pipeline batch"):
        catalogue(write_lake(tmp_path, {})).newest()


def test_a_file_name_of_two_nodes_needs_its_path(tmp_path: Path) -> None:
    rows: Rows = {
        "sessions": [publish(**of("live/a", "n1.b.1")), publish(**of("live/a", "n2.b.1", "n2"))],
        "recordings": [
            recording("/one/a.flv", **of("live/a", "n1.b.1")),
            recording("/two/a.flv", **of("live/a", "n2.b.1", "n2")),
        ],
    }
    known = catalogue(write_lake(tmp_path, rows))
    with pytest.raises(
        PipelineError, match=r"several recordings, expected the path of one: /one/a\.flv and /two/a\.flv"
    ):
        known.named("a.flv")
    assert known.named("/two/a.flv").node == "n2"


def test_a_day_has_all_that_were_live_in_it_oldest_first(tmp_path: Path) -> None:
    rows: Rows = {
        "sessions": [
            publish(0, 60, **of("live/a", "1")),
            publish(15 * 3600, 17 * 3600, **of("live/over_midnight", "2")),
            publish(2 * DAY_S, 2 * DAY_S + 60, **of("live/later", "3")),
        ]
    }
    known = catalogue(write_lake(tmp_path, rows))
    assert [one.stream_id for one in known.on(date(2026, 11, 16))] == ["1", "2"]
    assert [one.stream_id for one in known.on(date(2026, 11, 17))] == ["2"]
    with pytest.raises(PipelineError, match=r"no broadcast on 2026-11-20 .* from 2026-11-16 to 2026-11-18"):
        known.on(date(2026, 11, 20))


def test_a_day_is_written_as_a_date() -> None:
    assert as_day("2026-11-16") == date(2026, 11, 16)
    assert as_day("live/2026-11-16") is None
    with pytest.raises(PipelineError, match="expected a day such as"):
        as_day("2026-13-40")


def test_an_open_broadcast_is_live_until_its_server_has_started_again(tmp_path: Path) -> None:
    opened = publish(0, None)
    assert catalogue(write_lake(tmp_path / "a", {"sessions": [opened]})).newest().state == "live"
    again = publish(100, 160, **of("live/other", "n1.c.1"), boot="c")
    known = catalogue(write_lake(tmp_path / "b", {"sessions": [opened, again]}))
    assert known.named("live/show").state == "cut_off"
    assert known.named("live/other").state == "ended"


def test_a_broadcast_of_which_only_plays_are_known_is_one(tmp_path: Path) -> None:
    known = catalogue(write_lake(tmp_path, {"sessions": [play(5, 30)]}))
    assert known.newest().state == "ended"


def test_a_publisher_that_came_back_is_the_same_broadcast(tmp_path: Path) -> None:
    rows: Rows = {"sessions": [publish(0, 20, reason="lost"), publish(24, None, is_resumed=True)]}
    (one,) = catalogue(write_lake(tmp_path, rows)).broadcasts
    assert (one.state, one.last_seen_at.second) == ("live", 24)


def test_refusals_of_the_same_name_are_found_beside_a_broadcast(tmp_path: Path) -> None:
    rows = healthy()
    rows["sessions"] += [refused(-3), refused(-3, "live/other")]
    known = catalogue(write_lake(tmp_path, rows))
    beside = known.refusals_beside(known.newest())
    assert beside is not None
    assert beside.stream == "live/show"
