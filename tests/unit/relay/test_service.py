"""All destinations of a server: each one's fate its own, and changes that touch nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
import uvloop

from headrace.errors import ConfigError
from headrace.relay.config import DestinationConfig, change_destination, from_urls
from headrace.relay.feed import MAX_LAG_S, FeedState
from headrace.relay.service import merge
from headrace.server.server import Server
from headrace.stream.registry import Stream
from tests.helpers.far_end import (
    FarEnd,
    Script,
    Visit,
    grants,
    hangs_after_connect,
    hangs_after_create_stream,
    hangs_after_handshake,
    hangs_in_handshake,
    refuses,
    refuses_connect,
    swallows,
    then_closes,
)
from tests.helpers.loops import run
from tests.helpers.media_bytes import AUDIO, Sent, frames, preamble
from tests.helpers.origin import KEY, LogCapture, Origin, Viewer, append, destination
from tests.helpers.waiting import eventually_async, turns

Test = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def log() -> Iterator[LogCapture]:
    """Every test's log is kept, and the key is never in it."""
    capture = LogCapture()
    yield capture
    capture.close()
    assert KEY not in capture.text
    assert not [line for line in capture.lines() if "traceback" in line]


def play(test: Test) -> None:
    run(uvloop.new_event_loop, test)


# --- isolation


async def stops_reading(visit: Visit) -> None:
    await visit.grant()
    visit.stop_reading()
    await asyncio.Event().wait()


async def resets_in_the_middle(visit: Visit) -> None:
    await visit.grant()
    await visit.until_media(2)
    visit.reset()
    raise EOFError


async def sends_away(visit: Visit) -> None:
    await visit.grant()
    visit.ask_to_reconnect()


async def talks_nonsense(visit: Visit) -> None:
    visit.say(b"HTTP/1.1 200 OK\r\n\r\n" * 100)
    await swallows(visit)


async def nothing(visit: Visit) -> None:
    """Closes at once."""


BROKEN: dict[str, Script] = {
    "closes at once": then_closes(nothing),
    "never speaks": swallows,
    "hangs in the handshake": hangs_in_handshake,
    "hangs after the handshake": hangs_after_handshake,
    "hangs after connect": hangs_after_connect,
    "hangs after createStream": hangs_after_create_stream,
    "refuses connect": refuses_connect("NetConnection.Connect.Rejected", f"need auth for {KEY}"),
    "refuses publish": refuses("NetStream.Publish.BadName", f"{KEY} is busy"),
    "stops reading": stops_reading,
    "resets": resets_in_the_middle,
    "sends away": sends_away,
    "talks nonsense": talks_nonsense,
}


def test_broken_destinations_cost_players_and_other_destinations_nothing() -> None:
    async def test() -> None:
        broken = {name: FarEnd(script, receive_buffer_bytes=8 << 10) for name, script in BROKEN.items()}
        async with FarEnd(grants) as one, FarEnd(grants) as two, Origin(destination(one, name="one")) as origin:
            for name, far_end in broken.items():
                await far_end.__aenter__()
                origin.relay.add(destination(far_end, name=name))
            origin.relay.add(destination("rtmp://127.0.0.1:1/live", name="nobody there"))
            origin.relay.add(destination("rtmp://nonexistent.invalid/live", name="unknown"))
            origin.relay.add(destination("rtmp://a..b/live", name="no name"))
            origin.relay.add(destination(two, name="two"))
            stream = origin.publish()
            for name in ("one", "two"):
                await origin.until(FeedState.CONNECTED, name=name)
            viewer = await Viewer.of(origin)
            await eventually_async(lambda: origin.server.fanout(stream).viewers == 1, "the viewer to be there")
            await eventually_async(lambda: all(end.visits for end in broken.values()), "every far end to be visited")
            sent = append(stream, preamble())
            for count in range(30):
                sent += append(stream, frames(10, start_ms=400 * count, first_number=10 * count, size=20_000))
                await turns()
            for media in (one.until_media(len(sent)), two.until_media(len(sent)), viewer.until_media(len(sent))):
                assert await media == sent
            health = origin.relay.snapshot()
            for name in ("one", "two"):
                shown = health["destinations"][name]
                assert (shown["status"], shown["failures"], shown["messages_dropped"]) == ("connected", 0, 0)
                assert shown["messages_sent"] == len(sent)
            assert KEY not in f"{health}"
            assert health["destinations"]["refuses connect"]["status"] == "error"
            assert origin.server.metrics.messages_dropped == {}
            await viewer.close()
            for far_end in broken.values():
                await far_end.__aexit__(None, None, None)

    play(test)


# --- which stream goes where


def test_a_destination_without_a_name_serves_every_stream_under_its_own_name() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end, stream_key=None)) as origin:
            streams = [origin.publish(name) for name in ("a", "b")]
            await far_end.until_visits(2)
            for stream in streams:
                await origin.until(FeedState.CONNECTED, stream.key)
                append(stream, frames(5))
            await eventually_async(lambda: all(len(visit.media) == 10 for visit in far_end.visits), "both streams")
            assert sorted(visit.commands[4].text(0) for visit in far_end.visits) == ["a", "b"]
            shown = origin.out().snapshot()
            assert sorted(shown["streams"]) == ["live/a", "live/b"]
            assert (shown["messages_sent"], shown["waiting"]) == (20, [])
            assert shown["reconnect_count"] == 0  # two connections, and no second one of either stream
            assert shown["url"] == f"rtmp://127.0.0.1:{far_end.port}/live"

    play(test)


def test_a_destination_with_a_name_serves_one_stream_and_the_next_waits_for_its_turn() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            first, second, third = (origin.publish(name) for name in ("a", "b", "c"))
            await origin.until(FeedState.CONNECTED, "live/a")
            assert origin.out().snapshot()["waiting"] == [
                {"stream": "live/b", "reason": "the destination serves live/a"},
                {"stream": "live/c", "reason": "the destination serves live/a"},
            ]
            origin.unpublish(second)
            assert [one["stream"] for one in origin.out().snapshot()["waiting"]] == ["live/c"]
            origin.unpublish(first)
            append(third, [*preamble(), *frames(3)])
            await far_end.until_visits(2)
            await origin.until(FeedState.CONNECTED, "live/c")
            assert far_end.visits[0].is_over
            assert [visit.commands[4].text(0) for visit in far_end.visits] == [KEY, KEY]
            assert origin.out().snapshot()["waiting"] == []
            assert list(origin.out().feeds) == ["live/c"]

    play(test)


class Turns:
    """Leases that the test grants."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[], None]]] = []

    def acquire(self, name: str, granted: Callable[[], None]) -> None:
        self.asked.append((name, granted))

    def release(self, name: str, granted: Callable[[], None]) -> None:
        self.asked.remove((name, granted))


def test_a_destination_with_a_name_is_fed_only_while_it_is_leased() -> None:
    async def test() -> None:
        leases = Turns()
        async with FarEnd(grants) as far_end, Origin(destination(far_end), leases=leases) as origin:
            assert not leases.asked  # nothing to send, nothing to wait for
            stream = origin.publish("a")
            ((name, granted),) = leases.asked
            assert name == "out"
            assert origin.out().snapshot()["waiting"] == [
                {"stream": "live/a", "reason": "the destination serves another stream"}
            ]
            assert not origin.out().feeds
            granted()
            await origin.until(FeedState.CONNECTED, "live/a")
            second = origin.publish("b")
            origin.unpublish(stream)
            await origin.until(FeedState.CONNECTED, "live/b")
            assert len(leases.asked) == 1  # kept for the next stream of ours
            origin.unpublish(second)
            await eventually_async(lambda: not leases.asked, "the lease to be given back")
            third = origin.publish("c")
            origin.unpublish(third)
            assert not leases.asked  # it waited, and waits no more

    play(test)


def test_a_destination_for_every_name_needs_no_lease() -> None:
    async def test() -> None:
        leases = Turns()
        async with FarEnd(grants) as far_end, Origin(destination(far_end, stream_key=None), leases=leases) as origin:
            origin.publish("a")
            await origin.until(FeedState.CONNECTED, "live/a")
            assert not leases.asked

    play(test)


def test_only_matching_streams_go_to_a_destination() -> None:
    async def test() -> None:
        async with (
            FarEnd(grants) as far_end,
            Origin(destination(far_end, stream_key=None, match="live/*"), destination(far_end, name="all")) as origin,
        ):
            origin.publish("x", app="studio")
            origin.publish("cam")
            await far_end.until_visits(2)
            assert list(origin.out().feeds) == ["live/cam"]
            assert list(origin.out("all").feeds) == ["studio/x"]

    play(test)


def is_count(received: list[Stream], count: int) -> bool:
    return len(received) == count


def test_a_stream_that_is_published_again_at_once_follows_the_goodbye_of_the_first() -> None:
    async def test() -> None:
        received: list[Stream] = []
        second = Server(grace_s=5.0, on_stream=received.append)
        port = int(second.listen("127.0.0.1", 0)[0].rpartition(":")[2])
        async with Origin(destination(f"rtmp://127.0.0.1:{port}/live", stream_key="copy")) as origin:
            for count in range(1, 6):
                stream = origin.publish()
                await eventually_async(partial(is_count, received, count), "the stream to arrive")
                await origin.until(FeedState.CONNECTED)
                append(stream, [*preamble(), *frames(3)])
                origin.unpublish(stream)
            await origin.until_over()
            shown = origin.out().snapshot()
            assert (shown["failures"], shown["messages_sent"], shown["reconnect_count"]) == (0, 5 * 9, 0)
            assert second.metrics.publishes_refused == 0
            assert [one.log.tail for one in received] == [9] * 5
        await second.close()

    play(test)


def test_a_stream_that_waits_for_its_own_last_connection_says_so() -> None:
    async def lingers(visit: Visit) -> None:
        await visit.grant()
        await visit.expect("deleteStream")
        await gate.wait()

    gate = asyncio.Event()

    async def test() -> None:
        async with FarEnd(lingers, grants) as far_end, Origin(destination(far_end)) as origin:
            first = origin.publish()
            await origin.until(FeedState.CONNECTED)
            origin.unpublish(first)
            second = origin.publish()
            assert origin.out().snapshot()["waiting"] == [
                {"stream": "live/cam", "reason": "the connection of its last publication is still closing"}
            ]
            gate.set()
            far_end.visits[0].close()
            await far_end.until_visits(2)
            assert origin.feed().stream is second

    play(test)


def test_a_stream_that_ends_while_it_waits_is_forgotten_and_an_unknown_end_is_no_matter() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            origin.publish("a")
            waiting, other = origin.publish("b"), origin.publish("c")
            origin.unpublish(waiting)
            origin.unpublish(other)
            assert origin.out().snapshot()["waiting"] == []

    play(test)


def test_logs_are_kept_as_long_as_a_destination_may_be_away() -> None:
    async def test() -> None:
        async with Origin() as origin:
            before = origin.publish("before")
            assert before.log.limits.retain_s < MAX_LAG_S
            origin.relay.add(destination("rtmp://127.0.0.1:1/live"))
            assert before.log.limits.retain_s == MAX_LAG_S
            assert origin.publish("after").log.limits.retain_s == MAX_LAG_S

    play(test)


# --- changes while it runs


class Neighbour:
    """A destination that must not notice what happens to another."""

    def __init__(self, origin: Origin, far_end: FarEnd) -> None:
        self._origin = origin
        self._far_end = far_end
        self._feed = origin.feed(name="neighbour")

    async def is_untouched(self, sent: list[Sent]) -> bool:
        await self._far_end.until_media(len(sent))
        return (
            self._origin.feed(name="neighbour") is self._feed
            and len(self._far_end.visits) == 1
            and self._far_end.last.media == sent
        )


async def with_neighbour(test: Callable[[Origin, Stream, Neighbour, FarEnd], Coroutine[Any, Any, None]]) -> None:
    async with (
        FarEnd(grants) as beside,
        FarEnd(grants) as far_end,
        Origin(destination(beside, name="neighbour")) as origin,
    ):
        stream = origin.publish()
        await origin.until(FeedState.CONNECTED, name="neighbour")
        await test(origin, stream, Neighbour(origin, beside), far_end)


def test_a_destination_is_added_and_removed_while_the_stream_runs() -> None:
    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        sent = append(stream, [*preamble(), *frames(15)])
        added = origin.relay.add(destination(far_end))
        assert added is origin.out()
        await origin.until(FeedState.CONNECTED)
        sent += append(stream, frames(5, start_ms=600, first_number=15))
        await far_end.until_media(3 + 10 + 10)
        assert far_end.last.media[0].timestamp_ms == 0
        assert far_end.last.media[3:] == [one for one in sent[3:] if one.timestamp_ms >= 400]
        origin.relay.remove("out")
        assert "out" not in origin.relay.destinations
        await eventually_async(lambda: far_end.last.is_over, "the goodbye")
        assert far_end.last.commands[-1].name == "deleteStream"
        assert await neighbour.is_untouched(sent)

    play(lambda: with_neighbour(check))


def test_a_destination_is_switched_off_and_on_again_and_its_totals_stay() -> None:
    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        config = destination(far_end)
        origin.relay.add(config)
        await origin.until(FeedState.CONNECTED)
        sent = append(stream, [*preamble(), *frames(10)])
        await far_end.until_media(len(sent))
        off = origin.relay.replace(change_destination(config, {"enabled": False}, "test"))
        assert off.snapshot()["messages_sent"] == len(sent)  # no figure steps back while the goodbye is said
        await eventually_async(lambda: far_end.last.is_over, "the goodbye")
        await eventually_async(lambda: not off._leaving[0], "the old feed to be over")
        shown = origin.out().snapshot()
        assert (shown["enabled"], shown["status"], shown["streams"]) == (False, "disconnected", {})
        assert shown["messages_sent"] == len(sent)
        sent += append(stream, frames(10, start_ms=400, first_number=10))
        assert len(far_end.visits) == 1
        origin.relay.replace(change_destination(off.config, {"enabled": True}, "test"))
        await far_end.until_visits(2)
        await far_end.until_media(3 + 20, 1)
        shown = origin.out().snapshot()
        assert (shown["enabled"], shown["messages_sent"]) == (True, len(sent))
        assert shown["bytes_sent"] > 0
        assert await neighbour.is_untouched(sent)

    play(lambda: with_neighbour(check))


def test_what_a_replaced_destination_still_drops_is_in_the_totals_of_its_successor() -> None:
    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        config = destination(far_end)
        origin.relay.add(config)
        await origin.until(FeedState.CONNECTED)
        append(stream, [*preamble(), *frames(10)])
        await far_end.until_media(23)
        append(stream, frames(5, start_ms=400, first_number=10))
        origin.relay.replace(change_destination(config, {"enabled": False}, "test"))
        origin.relay.replace(change_destination(config, {"enabled": False, "match": "x"}, "test"))
        await eventually_async(lambda: far_end.last.is_over, "the goodbye")
        shown = origin.out().snapshot()
        await eventually_async(lambda: not any(origin.out()._leaving), "the old feed to be over")
        shown = origin.out().snapshot()
        assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail
        assert shown["connected_total_s"] >= 0

    play(lambda: with_neighbour(check))


def test_switched_off_and_on_at_once_the_second_connection_waits_for_the_end_of_the_first() -> None:
    overlaps: list[bool] = []

    async def lingers(visit: Visit) -> None:
        await visit.grant()
        await visit.expect("deleteStream")
        await turns(50)  # a far end that takes its time to let the key go
        visit.close()

    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        async def looks_back(visit: Visit) -> None:
            overlaps.append(not slow.visits[0].is_over)
            await visit.grant()

        async with FarEnd(lingers, looks_back) as slow:
            config = destination(slow)
            origin.relay.add(config)
            await origin.until(FeedState.CONNECTED)
            origin.relay.replace(change_destination(config, {"enabled": False}, "test"))
            origin.relay.replace(config)
            await slow.until_visits(2)
            await origin.until(FeedState.CONNECTED)
            assert overlaps == [False]

    play(lambda: with_neighbour(check))


def test_a_removed_destination_that_comes_back_under_another_name_waits_for_the_first_goodbye() -> None:
    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        second = Server()
        port = int(second.listen("127.0.0.1", 0)[0].rpartition(":")[2])
        for name in ("a", "b", "c"):
            origin.relay.add(destination(f"rtmp://127.0.0.1:{port}/live", name=name, stream_key="copy"))
            await origin.until(FeedState.CONNECTED, name=name)
            origin.relay.remove(name)
        await eventually_async(lambda: not origin.relay._stopping, "the last goodbye")
        assert second.metrics.publishes_started == 3
        assert second.metrics.publishes_refused == 0
        await second.close()

    play(lambda: with_neighbour(check))


def test_a_destination_that_was_given_up_is_tried_again_when_it_is_changed() -> None:
    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        no = refuses_connect("NetConnection.Connect.Rejected", "need auth")
        async with FarEnd(no, grants) as guarded:
            config = destination(guarded)
            origin.relay.add(config)
            await origin.until(FeedState.ERROR)
            origin.relay.replace(change_destination(config, {"stream_key": "better-key"}, "test"))
            await origin.until(FeedState.CONNECTED)
            assert guarded.last.commands[4].text(0) == "better-key"
            assert origin.out().snapshot()["failures"] == 1
            assert origin.out()._leaving == [] or not any(origin.out()._leaving)

    play(lambda: with_neighbour(check))


def test_a_change_that_makes_a_duplicate_changes_nothing() -> None:
    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        config = destination(far_end)
        origin.relay.add(config)
        feed = await origin.until(FeedState.CONNECTED)
        taken = origin.out("neighbour").config
        stolen = change_destination(config, {"url": taken.source["url"], "stream_key": KEY}, "test")
        for change, wanted in (
            (origin.relay.add, config),
            (origin.relay.add, destination(far_end, name="other")),
            (origin.relay.replace, stolen),
        ):
            with pytest.raises(ConfigError) as caught:
                change(wanted)
            assert KEY not in str(caught.value)
        assert origin.feed() is feed
        assert list(origin.relay.destinations) == ["neighbour", "out"]
        assert await neighbour.is_untouched(append(stream, frames(3)))

    play(lambda: with_neighbour(check))


# --- reload


def test_a_reload_keeps_what_did_not_change_and_makes_the_rest_so() -> None:
    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        async with FarEnd(grants) as gone, FarEnd(grants) as new:
            same = origin.out("neighbour").config
            changed = destination(far_end, name="changed", metadata={"a": 1})
            origin.relay.add(changed)
            origin.relay.add(destination(gone, name="gone"))
            for name in ("changed", "gone"):
                await origin.until(FeedState.CONNECTED, name=name)
            sent = append(stream, [*preamble(), *frames(5)])
            origin.relay.reload(
                [
                    destination(new, name="new"),
                    destination(far_end, name="changed", metadata={"a": 2}),
                    DestinationConfig(**{**same_fields(same), "source": {"written": "otherwise"}}),
                ]
            )
            assert sorted(origin.relay.destinations) == ["changed", "neighbour", "new"]
            await eventually_async(lambda: gone.last.is_over and far_end.visits[0].is_over, "two goodbyes")
            await far_end.until_visits(2)
            await new.until_visits(1)
            await origin.until(FeedState.CONNECTED, name="changed")
            assert origin.out("changed").snapshot()["metadata"] == {"a": "2"}
            assert await neighbour.is_untouched(sent)

    play(lambda: with_neighbour(check))


def same_fields(config: DestinationConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in DestinationConfig.__slots__}


def test_destinations_may_exchange_their_keys_in_a_reload() -> None:
    async def test() -> None:
        second = Server()
        port = int(second.listen("127.0.0.1", 0)[0].rpartition(":")[2])
        url = f"rtmp://127.0.0.1:{port}/live"

        def pair(one: str, two: str) -> list[DestinationConfig]:
            return [destination(url, name="one", stream_key=one), destination(url, name="two", stream_key=two)]

        async with Origin(*pair("key-a", "key-b")) as origin:
            stream = origin.publish()
            append(stream, preamble())
            for name in ("one", "two"):
                await origin.until(FeedState.CONNECTED, name=name)
            origin.relay.reload(pair("key-b", "key-a"))
            for name in ("one", "two"):
                await origin.until(FeedState.CONNECTED, name=name)
            assert origin.out("one").config.target.name == "key-b"
            assert origin.relay.snapshot()["connected_destinations"] == 2
            assert second.metrics.publishes_started == 4
            assert second.metrics.publishes_refused == 0
        await second.close()

    play(test)


def test_a_reload_of_the_same_changes_nothing(log: LogCapture) -> None:
    async def check(origin: Origin, stream: Stream, neighbour: Neighbour, far_end: FarEnd) -> None:
        before = len(log.lines())
        origin.relay.reload([origin.out("neighbour").config])
        assert len(log.lines()) == before
        assert await neighbour.is_untouched(append(stream, frames(3)))

    play(lambda: with_neighbour(check))


# --- figures


def test_the_status_of_a_destination_is_that_of_its_feed_that_most_needs_an_eye() -> None:
    async def test() -> None:
        no = refuses_connect("NetConnection.Connect.Rejected", "need auth")
        async with FarEnd(grants, no) as far_end, Origin(destination(far_end, stream_key=None)) as origin:
            assert origin.out().snapshot()["status"] == "disconnected"
            assert not origin.out().snapshot()["flowing"]
            origin.publish("a")
            await origin.until(FeedState.CONNECTED, "live/a")
            assert origin.out().snapshot()["status"] == "connected"
            refused = origin.publish("b")
            await origin.until(FeedState.ERROR, "live/b")
            shown = origin.out().snapshot()
            assert (shown["status"], shown["flowing"]) == ("error", False)
            assert shown["last_error_class"] == "auth"
            assert shown["streams"]["live/a"]["status"] == "connected"
            origin.unpublish(refused)
            assert origin.out().snapshot()["status"] == "connected"

    play(test)


def test_the_last_words_of_a_feed_are_kept_when_it_is_over() -> None:
    async def test() -> None:
        async with Origin(destination("rtmp://127.0.0.1:1/live", retry={"initial_s": 100, "max_s": 100})) as origin:
            stream = origin.publish()
            await origin.until(FeedState.WAITING)
            assert origin.relay.snapshot()["failed_destinations"] == 1
            assert origin.out().snapshot()["retry_in_s"] > 50
            origin.unpublish(stream)
            await origin.until_over()
            shown = origin.out().snapshot()
            assert (shown["status"], shown["last_error_class"], shown["retry_in_s"]) == (
                "disconnected",
                "refused",
                None,
            )
            assert origin.relay.snapshot()["failed_destinations"] == 0

    play(test)


def test_the_health_of_all_is_the_sum_of_each() -> None:
    async def test() -> None:
        async with (
            FarEnd(grants) as far_end,
            Origin(
                destination(far_end, name="one"),
                destination(far_end, name="two", stream_key=None),
                destination("rtmp://127.0.0.1:1/live", name="three"),
            ) as origin,
        ):
            stream = origin.publish()
            for name in ("one", "two"):
                await origin.until(FeedState.CONNECTED, name=name)
            sent = append(stream, [*preamble(), *frames(10)])
            for visit in range(2):
                await far_end.until_media(len(sent), visit)
            health = origin.relay.snapshot()
            assert health["total_destinations"] == 3
            assert health["connected_destinations"] == 2
            assert health["total_messages_sent"] == 2 * len(sent)
            assert health["total_messages_dropped"] == 0
            assert health["total_bytes_sent"] == sum(one["bytes_sent"] for one in health["destinations"].values()) > 0
            assert list(health["destinations"]) == ["one", "two", "three"]

    play(test)


def test_one_watch_that_fails_does_not_end_the_watch_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            origin.publish()
            feed = await origin.until(FeedState.CONNECTED)
            before = origin.relay._timer

            def breaks(now_s: float) -> None:
                raise ZeroDivisionError

            with monkeypatch.context() as patch:
                patch.setattr(feed, "tick", breaks)
                with pytest.raises(ZeroDivisionError):
                    origin.relay._tick()
            before.cancel()
            assert origin.relay._timer is not before
            assert not origin.relay._timer.cancelled()

    play(test)


# --- the end


def test_on_the_way_out_every_destination_is_told() -> None:
    async def test() -> None:
        async with FarEnd(grants) as one, FarEnd(grants) as two, Origin(destination(one)) as origin:
            origin.relay.add(destination(two, name="two"))
            origin.relay.add(destination("rtmp://127.0.0.1:1/live", name="three"))
            stream = origin.publish()
            for name in ("out", "two"):
                await origin.until(FeedState.CONNECTED, name=name)
            sent = append(stream, [*preamble(), *frames(3)])
            origin.relay.remove("two")
            await asyncio.gather(origin.server.close(), origin.relay.close())
            await eventually_async(lambda: one.last.is_over and two.last.is_over, "both goodbyes")
            assert [far_end.last.commands[-1].name for far_end in (one, two)] == ["deleteStream"] * 2
            assert one.last.media == sent
            assert all(not destination.feeds for destination in origin.relay.destinations.values())

    play(test)


# --- flags and file together


def test_the_destinations_of_flags_and_file_are_one_list() -> None:
    flags, file = from_urls(["rtmp://a/live"]), from_urls(["rtmp://b/live"])
    assert merge(flags, file) == [*flags, *file]
    assert merge([], []) == []


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            destination("rtmp://a/live", name="again"),
            '-relay-to and -relay-config: destination.url: the same address and key as destination "rtmp://a/live/****"',
        ),
        (
            destination("rtmp://b/live", name="rtmp://a/live/****"),
            '-relay-to and -relay-config: destination.name: "rtmp://a/live/****" is used by another destination',
        ),
    ],
)
def test_a_destination_in_flags_and_file_is_one_too_many(file: DestinationConfig, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        merge(from_urls([f"rtmp://a/live/{KEY}"]), [file])
    assert str(caught.value) == message


def test_sound_alone_arrives_at_a_destination_that_serves_every_stream() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end, stream_key=None)) as origin:
            stream = origin.publish("radio")
            await origin.until(FeedState.CONNECTED, "live/radio")
            sent = append(stream, frames(10, has_video=False))
            assert await far_end.until_media(10) == sent
            assert {one.type_id for one in sent} == {AUDIO}

    play(test)
