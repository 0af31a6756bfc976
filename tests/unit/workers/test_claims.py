"""Workers that know of each other: one has a stream, the others get it from there and send its publishers there."""

from __future__ import annotations

import pytest

from headrace.protocol.client import Refused, Started
from headrace.stream.registry import StreamState
from headrace.telemetry.events import (
    ConnectionOpened,
    PlayStarted,
    PlayStopped,
    PublisherSample,
    PublishRefused,
    PublishStarted,
    PublishStopped,
    StreamEnded,
)
from tests.helpers.far_end import FarEnd
from tests.helpers.loops import LOOP_FACTORIES, LoopFactory, on_both_loops, run
from tests.helpers.media_bytes import frames, preamble
from tests.helpers.waiting import eventually_async
from tests.unit.edge.origins import OPENING, lacks, serves
from tests.unit.workers.crew import Crew

FIRST = [*preamble(), *frames(10)]
NEXT = list(frames(10, start_ms=400, first_number=10))


@on_both_loops
def test_a_player_gets_a_stream_that_another_worker_has(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with Crew() as crew:
            publisher = await crew.publish(0)
            publisher.send(FIRST)
            players = [await crew.play(1) for _ in range(3)]
            publisher.send(NEXT)
            for player in players:
                await player.until_payloads([*FIRST, *NEXT])
            here, there = crew.workers
            assert there.stream() is not here.stream()
            assert here.server.snapshot()["subscribers"] == here.server.snapshot()["messages_relayed"] == 0
            assert there.server.snapshot()["subscribers"] == 3
            assert [one.server.snapshot()["streams"] for one in crew.workers] == [1, 0]
            assert [one.server.snapshot()["publishers"] for one in crew.workers] == [1, 0]
            assert [one.server.snapshot()["connections"] for one in crew.workers] == [1, 3]
            assert there.server.metrics.messages_in == there.pulls.snapshot()["messages_in"] == 0
            publisher.finish()
            for player in players:
                await eventually_async(lambda player=player: player.has_ended, "the end")  # type: ignore[misc]
            await crew.until_owner(None)

    run(loop_factory, test)


@on_both_loops
def test_the_event_log_knows_one_stream_and_every_play_of_it(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with Crew() as crew:
            publisher = await crew.publish(0)
            publisher.send(FIRST)
            for worker in (0, 1):
                await (await crew.play(worker)).until_payloads(FIRST)
            publisher.finish()
            here, there = crew.workers
            await eventually_async(lambda: there.of(PlayStopped) and here.of(PlayStopped), "the end of both plays")
            (started,) = here.of(PublishStarted)
            assert [play.stream_id for one in crew.workers for play in one.of(PlayStarted)] == [started.stream_id] * 2
            for kind in (PublishStarted, PublishStopped, PublisherSample, StreamEnded):
                assert not there.of(kind), kind
            assert [len(one.of(ConnectionOpened)) for one in crew.workers] == [2, 1]

    run(loop_factory, test)


@on_both_loops
def test_a_stream_that_no_worker_has_is_not_found_and_may_be_there_the_next_moment(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with Crew() as crew:
            assert isinstance((await crew.play(1)).answer, Refused)
            (await crew.publish(0)).send(FIRST)
            assert isinstance((await crew.play(1)).answer, Started)

    run(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize("second", [0, 1])
def test_a_second_publisher_is_refused_by_the_worker_that_has_the_stream(
    loop_factory: LoopFactory, second: int
) -> None:
    async def test() -> None:
        async with Crew() as crew:
            await crew.publish(0)
            refused = (await crew.publish(second)).answer
            assert isinstance(refused, Refused)
            assert (refused.code, refused.description) == (
                "NetStream.Publish.BadName",
                "cam is already being published.",
            )
            assert sum(len(one.of(PublishRefused)) for one in crew.workers) == 1
            assert sum(one.server.metrics.publishes_refused for one in crew.workers) == 1
            await crew.until_owner(0)

    run(loop_factory, test)


@on_both_loops
def test_a_publisher_that_comes_back_to_another_worker_finds_its_stream_and_its_players(
    loop_factory: LoopFactory,
) -> None:
    async def test() -> None:
        async with Crew() as crew:
            publisher = await crew.publish(0)
            publisher.send(FIRST)
            players = [await crew.play(worker) for worker in (0, 1)]
            for player in players:
                await player.until_payloads(FIRST)
            stream = crew.workers[0].stream()
            assert stream is not None
            await publisher.close()
            await eventually_async(lambda: stream.state is StreamState.GRACE, "the grace period")
            again = await crew.publish(1)
            assert isinstance(again.answer, Started)
            again.send(FIRST)
            for player in players:
                await player.until_payloads([*FIRST, *FIRST])
                times = [one.timestamp_ms for one in player.media if one.type_id == 8]
                assert times == sorted(times)
            here, there = crew.workers
            started = here.of(PublishStarted)
            assert [(one.resumed, one.conn) for one in started] == [(False, "w0-c1"), (True, "w1-c2")]
            assert here.offered == [stream]  # recorded and pushed as one
            assert not there.of(PublishStarted)
            facts = next(facts for one, facts in here.server.describe_streams() if one is stream)
            assert facts["publisher"]["conn_id"] == "w1-c2"
            assert here.server.metrics.messages_in == 2 * len(FIRST)
            again.finish()
            for player in players:
                await eventually_async(lambda player=player: player.has_ended, "the end")  # type: ignore[misc]
            await crew.until_owner(None)

    run(loop_factory, test)


@on_both_loops
def test_a_publisher_that_is_passed_on_and_lost_may_come_back_again(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with Crew() as crew:
            await (await crew.publish(0)).close()
            for worker in (1, 0, 1):
                stream = crew.workers[0].stream()
                assert stream is not None
                await eventually_async(lambda: stream.state is StreamState.GRACE, "the grace period")  # noqa: B023
                publisher = await crew.publish(worker)
                assert isinstance(publisher.answer, Started)
                await publisher.close()

    run(loop_factory, test)


@on_both_loops
def test_a_dropped_publisher_is_closed_also_where_it_is_passed_on(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with Crew() as crew:
            await (await crew.publish(0)).close()
            stream = crew.workers[0].stream()
            assert stream is not None
            await eventually_async(lambda: stream.state is StreamState.GRACE, "the grace period")
            publisher = await crew.publish(1)
            assert crew.workers[0].server.drop_publisher("live/cam")
            await eventually_async(lambda: publisher.is_over, "the publisher to be closed")
            assert stream.state is StreamState.ENDED

    run(loop_factory, test)


@on_both_loops
def test_players_stay_when_the_worker_that_has_the_stream_dies_and_the_publisher_comes_to_theirs(
    loop_factory: LoopFactory,
) -> None:
    async def test() -> None:
        async with Crew() as crew:
            publisher = await crew.publish(0)
            publisher.send(FIRST)
            player = await crew.play(1)
            await player.until_payloads(FIRST)
            there = crew.workers[1]
            copy = there.stream()
            assert copy is not None
            old_id = copy.id
            await crew.lose(0)
            await eventually_async(lambda: copy.state is StreamState.GRACE, "the grace period")
            again = await crew.publish(1)
            assert isinstance(again.answer, Started)
            again.send(FIRST)
            await player.until_payloads([*FIRST, *FIRST])
            assert there.stream() is copy
            assert there.offered == [copy, copy]  # as a copy, which nobody records, and as its own
            # To the event log it is another stream, begun here, and the play of the old one is over.
            assert copy.id != old_id
            (started,) = there.of(PublishStarted)
            assert (started.stream_id, started.resumed, started.origin) == (copy.id, False, None)
            assert [play.stream_id for play in there.of(PlayStarted)] == [old_id, copy.id]
            assert [play.stream_id for play in there.of(PlayStopped)] == [old_id]
            await crew.until_owner(1)
            again.finish()
            await eventually_async(lambda: player.has_ended, "the end")
            assert [play.stream_id for play in there.of(PlayStopped)] == [old_id, copy.id]
            assert [one.stream_id for one in there.of(StreamEnded)] == [copy.id]

    run(loop_factory, test)


@on_both_loops
def test_players_stay_when_the_worker_that_has_the_stream_dies_and_the_publisher_comes_to_its_successor(
    loop_factory: LoopFactory,
) -> None:
    async def test() -> None:
        async with Crew() as crew:
            (await crew.publish(0)).send(FIRST)
            player = await crew.play(1)
            await player.until_payloads(FIRST)
            here, there = crew.workers
            copy = there.stream()
            assert copy is not None
            old_id = copy.id
            await crew.lose(0)
            await eventually_async(lambda: copy.state is StreamState.GRACE, "the grace period")
            (await crew.publish(0)).send(FIRST)
            await player.until_payloads([*FIRST, *FIRST])
            new = here.stream()
            assert new is not None
            assert copy.id == new.id != old_id
            assert [play.stream_id for play in there.of(PlayStarted)] == [old_id, new.id]
            assert [play.stream_id for play in there.of(PlayStopped)] == [old_id]
            assert not there.of(PublishStarted)

    run(loop_factory, test)


@on_both_loops
def test_a_name_that_may_not_be_published_is_given_back(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with Crew() as crew:
            assert isinstance((await crew.publish(1, "")).answer, Refused)
            await crew.until_owner(None, "live/")
            assert crew.told == ["claim", "release"]

    run(loop_factory, test)


@on_both_loops
def test_without_a_parent_nobody_is_kept_waiting(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with Crew() as crew:
            crew.cut(1)
            await eventually_async(lambda: crew.workers[1].channel.is_lost, "the end of the parent")
            refused = (await crew.publish(1)).answer
            assert isinstance(refused, Refused)
            assert refused.code == "NetStream.Publish.Denied"
            assert isinstance((await crew.play(1)).answer, Refused)

    run(loop_factory, test)


@on_both_loops
def test_one_worker_asks_the_origin_and_the_others_get_it_from_there(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING)) as origin, Crew(f"rtmp://127.0.0.1:{origin.port}") as crew:
            for worker in (0, 1, 1, 0):
                await (await crew.play(worker)).until_payloads(OPENING)
            assert len(origin.visits) == 1
            assert [one.pulls.snapshot()["started"] for one in crew.workers] == [1, 0]
            assert [len(one.of(PublishStarted)) for one in crew.workers] == [1, 0]
            assert crew.book.find("live/cam") == 0
            # It is pulled on as long as anybody watches, on whichever worker.
            assert crew.workers[0].pulls._pulls["live/cam"].is_wanted

    run(loop_factory, test)


@on_both_loops
def test_a_stream_that_the_origin_lacks_belongs_to_nobody(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(lacks()) as origin, Crew(f"rtmp://127.0.0.1:{origin.port}") as crew:
            assert isinstance((await crew.play(0)).answer, Refused)
            await crew.until_owner(None)
            (await crew.publish(1)).send(FIRST)
            await (await crew.play(0)).until_payloads(FIRST)

    run(loop_factory, test)


def test_a_destination_is_leased_once_and_shared_by_those_who_want_it_here() -> None:
    async def test() -> None:
        async with Crew() as crew:
            granted: list[str] = []
            one, other = (worker.claims for worker in crew.workers)
            calls = {name: (lambda name=name: granted.append(name)) for name in ("first", "second", "there")}
            one.acquire("far", calls["first"])
            await eventually_async(lambda: granted == ["first"], "the lease")
            other.acquire("far", calls["there"])
            one.acquire("far", calls["second"])  # the same destination with other settings
            await eventually_async(lambda: "second" in granted, "the lease for both")
            one.release("far", calls["first"])
            assert "there" not in granted
            one.release("far", calls["second"])
            await eventually_async(lambda: "there" in granted, "the turn of the other")

    run(LOOP_FACTORIES["asyncio"], test)
