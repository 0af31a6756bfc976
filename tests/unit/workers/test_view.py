"""The HTTP side over several workers: what they tell put together, and changes that reach every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.relay.config import read_destination
from headrace.web.api import make_app
from headrace.web.backend import NotFoundError
from headrace.workers.view import Refreshing, WorkersView
from tests.unit.web.asgi import FakeBackend, ask_on_loop, shown_destination, shown_stream

KEY = "k3y-0c4f-77aa"
FAR = {"name": "far", "url": "rtmp://far.example/live", "stream_key": KEY}


def snapshot(**more: Any) -> dict[str, Any]:
    return {
        "counters": FakeBackend().counters(),
        "streams": [],
        "destinations": {},
        "cpu_s": 1.5,
        "memory_bytes": 1000,
        **more,
    }


class FakeCrew:
    """Workers that say what the test says."""

    def __init__(self, *told: dict[str, Any]) -> None:
        self.told = dict(enumerate(told))
        self.changes: list[list[dict[str, Any]]] = []
        self.dropped: list[str] = []
        self.rounds = 0
        self.connections_refused = 0

    async def snapshots(self) -> Mapping[int, Mapping[str, Any]]:
        self.rounds += 1
        await asyncio.sleep(0.01)
        return self.told

    def change_destinations(self, items: list[dict[str, Any]]) -> None:
        self.changes.append(items)

    def drop_publisher(self, stream_key: str) -> bool:
        self.dropped.append(stream_key)
        return True

    def describe(self) -> list[dict[str, Any]]:
        return [
            {"worker": number, "pid": 10 + number, "is_ready": True, "age_s": 1.0, "restarts": number}
            for number in self.told
        ]


def refreshed(crew: FakeCrew, *configs: dict[str, Any]) -> WorkersView:
    view = WorkersView(crew, [read_destination(one, None, "test") for one in configs])
    asyncio.run(view.refresh())
    return view


def test_counters_are_sums_and_those_of_a_worker_that_is_gone_stay() -> None:
    crew = FakeCrew(snapshot(), snapshot())
    view = refreshed(crew)
    one = FakeBackend().counters()
    assert view.counters()["bytes_in"] == 2 * one["bytes_in"]
    assert view.counters()["subscribers"] == 2 * one["subscribers"]
    view.worker_gone(1)
    del crew.told[1]
    assert view.counters()["bytes_in"] == 2 * one["bytes_in"]
    assert view.counters()["subscribers"] == one["subscribers"]
    view.told(1, snapshot())  # the one that took its place
    assert view.counters()["bytes_in"] == 3 * one["bytes_in"]
    crew.connections_refused = 4
    assert view.counters()["connections_refused"] == 3 * one["connections_refused"] + 4


def test_the_pages_can_be_shown_before_any_worker_has_told_anything() -> None:
    async def test() -> None:
        app = make_app(WorkersView(FakeCrew(), []), token=None)
        for page in ("/health", "/streams", "/metrics", "/debug/vars", "/destinations", "/api/destinations"):
            assert (await ask_on_loop(app, "GET", page)).status == 200, page

    asyncio.run(test())


def test_every_request_sees_what_the_workers_say_now_and_requests_at_once_share_the_question() -> None:
    async def test() -> None:
        crew = FakeCrew(snapshot(streams=[shown_stream("live", "a", is_copy=False)]))
        view = WorkersView(crew, [])
        app = Refreshing(make_app(view, token=None), view)
        answers = await asyncio.gather(*(ask_on_loop(app, "GET", "/streams") for _ in range(5)))  # type: ignore[arg-type]
        assert [[one["key"] for one in answer.json["streams"]] for answer in answers] == [["live/a"]] * 5
        assert crew.rounds == 1
        crew.told = {0: snapshot()}
        assert (await ask_on_loop(app, "GET", "/streams")).json == {"streams": []}  # type: ignore[arg-type]
        page = (await ask_on_loop(app, "GET", "/metrics")).body.decode()  # type: ignore[arg-type]
        assert 'headrace_worker_up{worker="0"} 1.0' in page
        assert 'headrace_worker_cpu_seconds_total{worker="0"} 1.5' in page

    asyncio.run(test())


def test_a_destination_is_added_changed_and_removed_on_every_worker() -> None:
    crew = FakeCrew(snapshot(), snapshot())
    view = refreshed(crew)
    shown = view.add_destination(FAR)
    assert (shown["name"], shown["url"], shown["status"]) == ("far", "rtmp://far.example/live/****", "disconnected")
    assert crew.changes == [[FAR]]
    with pytest.raises(ConfigError, match="is used by another destination"):
        view.add_destination(FAR)
    changed = view.change_destination("far", {"enabled": False})
    assert changed["enabled"] is False
    assert crew.changes[1:] == [[{**FAR, "enabled": False}]]
    assert KEY not in str(view.health())
    view.remove_destination("far")
    assert crew.changes[2:] == [[]]
    for act in (lambda: view.remove_destination("far"), lambda: view.change_destination("far", {})):
        with pytest.raises(NotFoundError, match='There is no destination "far"'):
            act()
    view.reload([read_destination(FAR, None, "test")])
    assert view.items == [FAR]


def test_a_destination_shows_the_sum_of_all_workers_with_its_newest_settings() -> None:
    feeds = {"live/a": {"status": "connected"}}
    crew = FakeCrew(
        snapshot(destinations={"far": shown_destination("far", streams=feeds, messages_sent=7)}),
        snapshot(destinations={"far": shown_destination("far", status="disconnected", messages_sent=5)}),
    )
    view = refreshed(crew, FAR)
    shown = view.destinations()["far"]
    assert (shown["status"], shown["messages_sent"], shown["url"]) == ("connected", 12, "rtmp://far.example/live/****")
    view.worker_gone(1)
    assert view.health()["total_messages_sent"] == 12
    assert view.health()["connected_destinations"] == 1


def test_only_a_published_stream_has_a_publisher_to_drop() -> None:
    streams = [
        shown_stream("live", "a", is_copy=False),
        shown_stream("live", "far", is_copy=False, publisher=None, origin={"url": "rtmp://o.example/live"}),
    ]
    crew = FakeCrew(snapshot(streams=streams))
    view = refreshed(crew)
    view.drop_publisher("live/a")
    for key in ("live/far", "live/none"):
        with pytest.raises(NotFoundError, match="is being published"):
            view.drop_publisher(key)
    assert crew.dropped == ["live/a"]
