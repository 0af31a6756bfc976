"""The fan-out: the same bytes for everybody, nobody waits for anybody, and what is counted adds up."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from headrace.net.fanout import BATCH_BYTES, Expect, Fanout, Player
from headrace.net.link import Link
from headrace.protocol.chunks import ChunkReader
from headrace.protocol.messages import Message
from headrace.stream.cadence import Due, Prepare
from headrace.stream.cursor import Cursor, SkipReason
from headrace.stream.log import LogLimits
from headrace.stream.registry import Stream, StreamRegistry
from headrace.telemetry.metrics import ServerMetrics
from tests.helpers.loops import LOOP_FACTORIES, LoopFactory, on_both_loops, run
from tests.helpers.media_bytes import (
    AAC_CONFIG,
    AUDIO,
    AVC_CONFIG,
    DATA,
    METADATA,
    VIDEO,
    Sent,
    aac_frame,
    frames,
    inter_frame,
    keyframe,
    preamble,
    repeated,
    track_inter_frame,
    track_keyframe,
)
from tests.helpers.sockets import read_available, reset, tcp_pair, unix_pair
from tests.helpers.waiting import eventually_async, turns

CHUNK_SIZE = 4096
ASYNCIO = LOOP_FACTORIES["asyncio"]


class FakePublisher:
    last_received_s = 0.0

    def displace(self) -> None:
        raise AssertionError("displaced")

    def rest(self, until_s: float) -> float:
        return 0.0

    def expect(self, due: Due, prepare: Prepare) -> bool:
        return False


class Viewer:
    """One player, its link, and the far end of it, which reads only when told to."""

    def __init__(
        self,
        rig: Rig,
        pair: tuple[socket.socket, socket.socket],
        max_lag_s: float | None,
        message_stream_id: int,
        is_viewer: bool,
    ) -> None:
        ours, self.peer = pair
        self.raw = bytearray()
        self.received: list[Message] = []
        self.ended: list[str] = []
        self.lost: list[str] = []
        self._rig = rig
        self._reader = ChunkReader()
        self._reader.chunk_size = CHUNK_SIZE
        self.link = Link(rig.loop, ours, self)
        cursor = Cursor(rig.stream.log, max_lag_s=max_lag_s, on_skip=rig.skipped)
        self.player = Player(
            cursor, self.link, message_stream_id, self.ended.append, since_s=rig.loop.time(), is_viewer=is_viewer
        )

    def data_received(self, data: bytes) -> None:
        raise AssertionError("a viewer says nothing")

    def link_drained(self) -> None:
        self._rig.fanout.serve(self.player)

    def link_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self._rig.fanout.detach(self.player)

    def read(self) -> None:
        """Take what has arrived, and make messages of it."""
        data = read_available(self.peer)
        self.raw += data
        self.received += self._reader.receive(data)

    @property
    def sent(self) -> list[Sent]:
        return [Sent(one.type_id, one.timestamp_ms, one.payload) for one in self.received]


class Rig:
    """A stream, its fan-out and its viewers on one loop."""

    def __init__(self, limits: LogLimits | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.registry = StreamRegistry(limits=limits or LogLimits(retain_s=30.0), grace_s=5.0)
        self.publisher = FakePublisher()
        self.stream: Stream = self.registry.publish("live", "a", self.publisher, 0.0).stream
        self.metrics = ServerMetrics()
        self.fanout = Fanout(self.loop, self.stream, self.metrics, CHUNK_SIZE)
        self.viewers: list[Viewer] = []

    def skipped(self, reason: SkipReason, start: int, stop: int) -> None:
        self.metrics.messages_dropped[reason.value] += stop - start

    def publish(self, sent: Iterable[Sent]) -> list[Sent]:
        published = list(sent)
        for message in published:
            self.stream.add(*message)
        self.stream.tell()
        return published

    def make_viewer(
        self,
        *,
        pair: tuple[socket.socket, socket.socket] | None = None,
        max_lag_s: float | None = None,
        message_stream_id: int = 1,
        is_viewer: bool = True,
    ) -> Viewer:
        viewer = Viewer(self, pair or unix_pair(), max_lag_s, message_stream_id, is_viewer)
        self.viewers.append(viewer)
        return viewer

    def join(self, **options: Any) -> Viewer:
        viewer = self.make_viewer(**options)
        self.fanout.attach(viewer.player)
        return viewer

    def end(self, reason: str = "unpublished") -> None:
        self.registry.unpublish(self.stream, self.publisher, reason)

    async def deliver(self, *viewers: Viewer) -> None:
        """Let these viewers (all, if none is named) read until they have everything that the log has for them."""
        readers = viewers or tuple(self.viewers)

        def is_delivered() -> bool:
            for viewer in readers:
                viewer.read()
            return all(
                viewer.lost
                or (
                    viewer.player.cursor.position == self.stream.log.tail
                    and not viewer.link.queued_bytes
                    and len(viewer.received) == viewer.player.messages
                )
                for viewer in readers
            )

        await eventually_async(is_delivered, "everything to be delivered")

    def close(self) -> None:
        for viewer in self.viewers:
            viewer.link.close("test over")
            viewer.peer.close()


def with_rig(
    test: Callable[[Rig], Coroutine[Any, Any, None]],
    loop_factory: LoopFactory = ASYNCIO,
    limits: LogLimits | None = None,
) -> None:
    async def body() -> None:
        rig = Rig(limits)
        try:
            await test(rig)
        finally:
            rig.close()

    run(loop_factory, body)


# --- the same for everybody


@on_both_loops
def test_every_viewer_gets_the_same_bytes_with_types_and_timestamps_as_published(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        viewers = [rig.join() for _ in range(4)]
        published = []
        for message in [*preamble(5), *frames(120, start_ms=16_777_000, size=500)]:  # across 2^24
            published += rig.publish([message])
            if message.type_id == VIDEO:
                await turns(1)
        await rig.deliver()
        assert viewers[0].sent == published
        assert all(viewer.raw == viewers[0].raw for viewer in viewers)
        assert not rig.metrics.messages_dropped

    with_rig(test, loop_factory)


def test_a_message_leaves_at_once() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish(preamble())
        viewer.read()
        assert viewer.sent == preamble()

    with_rig(test)


def test_what_is_appended_together_is_one_send_for_each_viewer() -> None:
    async def test(rig: Rig) -> None:
        sends: list[bytes] = []

        def noting(send_now: Callable[[Any], int]) -> Callable[[Any], int]:
            def send(data: Any) -> int:
                sends.append(data)
                return send_now(data)

            return send

        for _ in range(3):
            link = rig.join().link
            link.send_now = noting(link.send_now)
        rig.publish([*preamble(), *frames(5)])
        await rig.deliver()
        assert len(sends) == 3
        assert sends[0] is sends[1] is sends[2]  # joined once for all

    with_rig(test)


def test_between_two_slices_of_a_long_flush_the_loop_turns() -> None:
    async def test(rig: Rig) -> None:
        viewers = [rig.join() for _ in range(100)]
        sends = [noted_sends(viewer, 0.0001) for viewer in viewers]
        published = rig.publish(preamble())
        reached = sum(map(len, sends))
        assert 0 < reached < 100, "some of them at once, and not all"
        gone = next(viewer for viewer, had in zip(viewers, sends, strict=True) if not had)
        rig.fanout.detach(gone.player)
        late = rig.join()
        published += rig.publish(frames(2))
        await rig.deliver(*(viewer for viewer in rig.viewers if viewer is not gone))
        gone.read()
        assert gone.sent == [], "one that left between two slices gets nothing more"
        assert all(viewer.sent == published for viewer in viewers if viewer is not gone)
        assert late.sent == published
        assert rig.fanout.viewers == 100

    with_rig(test)


def test_the_end_of_a_stream_does_not_overtake_a_flush_that_is_under_way() -> None:
    async def test(rig: Rig) -> None:
        viewers = [rig.join() for _ in range(100)]
        sends = [noted_sends(viewer, 0.0001) for viewer in viewers]
        published = rig.publish(preamble())
        assert sum(map(len, sends)) < 100
        published += rig.publish(frames(2))
        rig.end()
        for viewer in viewers:
            viewer.read()
        assert all(viewer.sent == published and viewer.ended == ["unpublished"] for viewer in viewers)

    with_rig(test)


def test_what_comes_during_a_flush_reaches_those_whose_turn_is_yet_to_come() -> None:
    async def test(rig: Rig) -> None:
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=60.0)
        viewers = [rig.join() for _ in range(100)]
        sends = [noted_sends(viewer, 0.0001) for viewer in viewers]
        rig.fanout._usual_s = 0.1
        published = rig.publish(preamble())
        has_had_its_turn = [bool(had) for had in sends]
        assert any(has_had_its_turn)
        assert not all(has_had_its_turn)
        published += rig.publish(frames(2))
        await eventually_async(lambda: all(sends), "the end of the flush")
        for viewer, is_behind in zip(viewers, has_had_its_turn, strict=True):
            viewer.read()
            assert viewer.sent == (list(preamble()) if is_behind else published)
        rig.fanout.flush()
        await rig.deliver()
        assert all(viewer.sent == published for viewer in viewers)

    with_rig(test)


def test_those_who_stay_are_few_groups_again_and_miss_nothing() -> None:
    async def test(rig: Rig) -> None:
        viewers = [rig.join() for _ in range(100)]
        sends = [noted_sends(viewer, 0.0001) for viewer in viewers]
        published = rig.publish(preamble())
        assert 0 < sum(map(len, sends)) < 100
        # In the middle of a flush, out of all groups: who moves may come from one that has had its turn, or to one.
        for viewer in viewers[::3]:
            rig.fanout.detach(viewer.player)
        staying = [viewer for number, viewer in enumerate(viewers) if number % 3]
        published += rig.publish(frames(2))
        await rig.deliver(*staying)
        assert all(viewer.sent == published for viewer in staying)
        assert len(rig.fanout) == rig.fanout.viewers == len(staying)
        for viewer in staying:
            rig.fanout.detach(viewer.player)
        assert len(rig.fanout) == 0

    with_rig(test)


def noted_rests(waited_s: float) -> tuple[list[float], Callable[[float], float]]:
    """Until when a source was told to rest, and the source: what comes of it has waited for so long."""
    rests: list[float] = []

    def rest(until_s: float) -> float:
        rests.append(until_s)
        return waited_s

    return rests, rest


def test_a_source_rests_while_messages_wait_for_each_other_and_not_else() -> None:
    async def test(rig: Rig) -> None:
        rests, rest = noted_rests(waited_s=0.0)
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=0.5, rest=rest)
        rig.join()
        rig.publish(preamble())
        assert rests == [], "a short flush"
        rig.fanout._usual_s = 0.1
        rig.publish(frames(1))
        assert rests == [pytest.approx(time.monotonic() + 0.5, abs=0.2)]

    with_rig(test)


def test_messages_wait_once_flushes_are_long_as_a_rule() -> None:
    async def test(rig: Rig) -> None:
        rests, rest = noted_rests(waited_s=60.0)
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=60.0, rest=rest)
        sends = noted_sends(rig.join(), took_s=0.005)
        for message in preamble():
            rig.publish([message])
        assert not rests
        for message in frames(30):
            rig.publish([message])
            await rig.deliver()
        assert 5 < len(rests) < len(sends)

    with_rig(test)


def noted_expectations(*, prepares: bool = False) -> tuple[list[tuple[Due, Prepare]], Expect]:
    """What a source was told of its next message, and the source."""
    expected: list[tuple[Due, Prepare]] = []

    def expect(due: Due, prepare: Prepare) -> bool:
        expected.append((due, prepare))
        return prepares

    return expected, expect


def test_the_source_is_told_when_its_next_message_is_due_where_that_will_leave_at_once() -> None:
    async def test(rig: Rig) -> None:
        expected, expect = noted_expectations()
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=0.5, expect=expect)
        rig.publish([*preamble(), Sent(VIDEO, 40, inter_frame())])
        assert not expected, "nobody reads"
        rig.join()
        rig.publish([Sent(VIDEO, 80, inter_frame())])
        rig.publish([Sent(VIDEO, 120, inter_frame())])
        assert [due.at_s for due, _ in expected] == [pytest.approx(time.monotonic() + 0.04, abs=0.03)]
        rig.fanout._usual_s = 0.1
        rig.publish([Sent(VIDEO, 160, inter_frame())])
        assert len(expected) == 1, "messages wait for each other: nobody waits for them"

    with_rig(test)


def test_preparing_sends_and_changes_nothing() -> None:
    async def test(rig: Rig) -> None:
        expected, expect = noted_expectations()
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, expect=expect)
        keeps_up, elsewhere = rig.join(), rig.join(message_stream_id=5)
        published = rig.publish(preamble())
        published += rig.publish([Sent(VIDEO, 40, inter_frame())])
        published += rig.publish([Sent(VIDEO, 80, inter_frame())])
        await rig.deliver()
        before = keeps_up.player.cursor.position, keeps_up.link.sent_bytes, rig.metrics.bytes_relayed
        due, prepare = expected[-1]
        assert prepare(due._replace(at_s=math.inf))
        await rig.deliver()
        assert (keeps_up.player.cursor.position, keeps_up.link.sent_bytes, rig.metrics.bytes_relayed) == before
        assert not prepare(due._replace(at_s=0.0)), "it is late"
        published += rig.publish(frames(3))
        assert not prepare(due._replace(at_s=math.inf)), "it has come"
        await rig.deliver()
        assert keeps_up.sent == elsewhere.sent == published

    with_rig(test)


def test_a_message_is_prepared_for_once_however_many_were_expected() -> None:
    async def test(rig: Rig) -> None:
        expected, expect = noted_expectations(prepares=True)
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, expect=expect)
        rig.join()
        for message in [*preamble(), *frames(6)]:
            rig.publish([message])
        assert len(expected) == 1
        due, prepare = expected[0]
        prepare(due)
        for message in frames(6):
            rig.publish([message])
        assert len(expected) == 2

    with_rig(test)


def test_a_large_message_is_not_prepared_for() -> None:
    async def test(rig: Rig) -> None:
        expected, expect = noted_expectations()
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, expect=expect)
        rig.join()
        for number, size in enumerate([50, 65 << 10, 65 << 10, 50]):
            rig.publish([Sent(VIDEO, number * 40, inter_frame(size=size))])
        assert [len(due.like.payload) for due, _ in expected] == [len(inter_frame(size=50))]

    with_rig(test)


def test_a_flush_to_players_who_do_not_take_part_in_the_joined_send_takes_as_long_as_it_takes() -> None:
    async def test(rig: Rig) -> None:
        rests, rest = noted_rests(waited_s=0.0)
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=60.0, rest=rest)
        noted_sends(rig.join(message_stream_id=5), took_s=0.005)
        for message in [*preamble(), *frames(60)]:
            rig.publish([message])
        assert rests, "long flushes make messages wait"

    with_rig(test)


@pytest.mark.parametrize(("players", "waits"), [(96, False), (97, True)])
def test_from_a_hundred_players_on_messages_wait_however_fast_the_machine_is(players: int, waits: bool) -> None:
    async def test(rig: Rig) -> None:
        rests, rest = noted_rests(waited_s=0.0)
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=0.05, rest=rest)
        for _ in range(players):
            rig.join()
        rig.fanout._usual_s = -1.0  # faster than any
        published = rig.publish(preamble())
        await rig.deliver()
        assert bool(rests) == waits
        published += rig.publish(frames(3))
        await rig.deliver()
        assert all(viewer.sent == published for viewer in rig.viewers)

    with_rig(test)


def test_nothing_waits_after_a_single_flush_that_took_longer_than_the_others() -> None:
    async def test(rig: Rig) -> None:
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=60.0)
        viewer = rig.join()
        sends = noted_sends(viewer, took_s=0.0)
        for message in [*preamble(), *frames(10)]:
            rig.publish([message])
            await rig.deliver()
        before = len(sends)
        long = noted_sends(viewer, took_s=0.2)
        rig.publish([Sent(VIDEO, 400, keyframe())])
        assert len(long) == 1
        rig.publish([Sent(VIDEO, 440, inter_frame())])
        assert len(sends) == before + 2

    with_rig(test)


def test_what_has_waited_at_its_source_does_not_wait_again() -> None:
    async def test(rig: Rig) -> None:
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=60.0, rest=lambda until_s: 60.0)
        sends = noted_sends(rig.join(), took_s=0.01)
        rig.fanout._usual_s = 0.1
        for message in preamble():
            rig.publish([message])
        assert len(sends) == len(list(preamble()))

    with_rig(test)


def noted_sends(viewer: Viewer, took_s: float) -> list[bytes]:
    """What is sent to this viewer from now on, by a socket that takes its time."""
    sends: list[bytes] = []
    send_now = viewer.link.send_now

    def send(data: Any) -> int:
        time.sleep(took_s)
        sends.append(bytes(data))
        return send_now(data)

    viewer.link.send_now = send
    return sends


@on_both_loops
def test_after_a_long_flush_messages_wait_for_each_other_and_none_is_lost(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=2.0)
        viewers = [rig.join(), rig.join()]
        sends = noted_sends(viewers[0], took_s=0.1)
        rig.fanout._usual_s = 0.1
        published = rig.publish(preamble())
        await turns(2)
        assert len(sends) == 1, "the first leaves at once"
        for message in frames(20):
            published += rig.publish([message])
            await turns(1)
        assert len(sends) == 1, "so much was published within the pause"
        late = rig.join()
        await rig.deliver()
        assert len(sends) == 2, "and left as one"
        assert viewers[0].sent == viewers[1].sent == published
        assert late.sent[-1] == published[-1]
        assert rig.metrics.messages_relayed == sum(viewer.player.messages for viewer in rig.viewers)

    with_rig(test, loop_factory)


@pytest.mark.parametrize(("is_long", "waits"), [((1, 0, 1, 0, 0), False), ((1, 0, 1, 0, 1), True)])
def test_messages_wait_for_each_other_where_more_than_half_of_the_flushes_are_long(
    is_long: tuple[int, ...], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("headrace.net.fanout.monotonic", lambda: now_s)

    async def test(rig: Rig) -> None:
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=60.0)
        viewer = rig.join()
        send_now, sends = viewer.link.send_now, 0

        def send(data: Any) -> int:
            nonlocal sends, now_s
            now_s += 0.01 if is_long[sends % len(is_long)] else 0.0005
            sends += 1
            return send_now(data)

        viewer.link.send_now = send
        published = rig.publish(preamble())
        for number in range(99):
            published += rig.publish(frames(1, start_ms=20 + 20 * number, first_number=number + 1, gop=1000))
            viewer.read()
        assert not viewer.link.is_blocked
        assert (sends < 100) is waits
        rig.fanout.flush()
        await rig.deliver()
        assert viewer.sent == published

    with_rig(test)


def test_a_player_whose_connection_breaks_in_the_middle_of_a_group_changes_nothing_for_the_others() -> None:
    async def test(rig: Rig) -> None:
        viewers = [rig.join() for _ in range(5)]

        def broken(data: object) -> int:
            raise ConnectionResetError

        viewers[2].link.send_now = broken
        published = rig.publish([*preamble(), *frames(2)])
        others = [viewer for viewer in viewers if viewer is not viewers[2]]
        await rig.deliver(*others)
        assert all(viewer.sent == published for viewer in others)
        assert viewers[2].player.messages == 0
        assert rig.metrics.messages_relayed == 4 * len(published)

    with_rig(test)


def test_where_nothing_may_wait_every_message_leaves_at_once() -> None:
    async def test(rig: Rig) -> None:
        sends = noted_sends(rig.join(), took_s=0.02)
        for message in preamble():
            rig.publish([message])
            await turns(1)
        assert len(sends) == len(list(preamble()))

    with_rig(test)


def test_the_end_of_a_stream_does_not_wait() -> None:
    async def test(rig: Rig) -> None:
        rig.fanout = Fanout(rig.loop, rig.stream, rig.metrics, CHUNK_SIZE, merge_s=60.0)
        viewer = rig.join()
        noted_sends(viewer, took_s=0.1)
        rig.fanout._usual_s = 0.1
        published = rig.publish(preamble())
        await turns(2)
        published += rig.publish(frames(2))
        rig.end()
        viewer.read()
        assert (viewer.sent, viewer.ended) == (published, ["unpublished"])

    with_rig(test)


def test_a_joiner_gets_headers_and_the_newest_keyframe_at_once_without_a_new_message() -> None:
    async def test(rig: Rig) -> None:
        rig.publish([*preamble(), *frames(25, gop=10)])
        await turns()
        viewer = rig.join()
        viewer.read()
        assert viewer.sent == [*repeated(800), *list(frames(25, gop=10))[40:]]

    with_rig(test)


def test_a_joiner_between_a_message_and_its_flush_gets_the_message_once() -> None:
    async def test(rig: Rig) -> None:
        early = rig.join()
        rig.publish([*preamble(), *frames(3)])
        late = rig.join()  # the flush is due, and has not been
        more = rig.publish(frames(2, start_ms=400, first_number=100, gop=100))
        await rig.deliver()
        assert early.sent == [*preamble(), *frames(3), *more]
        assert late.sent == [*repeated(0), *frames(3), *more]

    with_rig(test)


@pytest.mark.parametrize("size", [BATCH_BYTES // 3, 2 * BATCH_BYTES])
def test_a_burst_larger_than_a_batch_arrives_whole(size: int) -> None:
    async def test(rig: Rig) -> None:
        viewers = [rig.join(pair=unix_pair(None)), rig.join()]
        published = rig.publish([*preamble(), *frames(8, size=size)])
        assert sum(len(sent.payload) for sent in published) > 2 * BATCH_BYTES
        await rig.deliver()
        assert [viewer.sent == published for viewer in viewers] == [True, True]
        late = rig.join()
        await rig.deliver()
        assert late.sent[3:] == published[3:]

    with_rig(test)


def test_a_burst_larger_than_the_log_costs_the_part_that_is_gone_and_no_more() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish(preamble())
        await turns()
        rig.publish(frames(40, gop=10))  # within one turn: 80 messages into a log of 50
        await rig.deliver()
        assert rig.metrics.messages_dropped == {"evicted": 60}
        assert viewer.sent == [*preamble(), *repeated(1200), *list(frames(40, gop=10))[60:]]

    with_rig(test, limits=LogLimits(max_messages=50))


def test_a_stream_without_viewers_costs_nothing_and_misses_nothing() -> None:
    async def test(rig: Rig) -> None:
        rig.publish([*preamble(), *frames(30)])
        await turns()
        assert rig.metrics.messages_relayed == 0
        viewer = rig.join()
        viewer.read()
        assert viewer.sent[3].payload == keyframe(20, 120)

    with_rig(test)


# --- what is counted of the picture


def test_frames_and_keyframes_are_those_that_were_handed_over_however_that_was() -> None:
    async def test(rig: Rig) -> None:
        joined = rig.join()
        rig.publish([*preamble(), *frames(25)])  # three keyframes
        await turns()
        late = rig.join()  # from the newest keyframe on: five frames
        other_id = rig.join(message_stream_id=7)  # never part of the joined send
        rig.publish(
            [Sent(VIDEO, 1000, keyframe(25)), Sent(VIDEO, 1040, inter_frame(26)), Sent(AUDIO, 1040, b"\xaf\x01")]
        )
        await rig.deliver()
        found = [(viewer.player.frames, viewer.player.keyframes) for viewer in (joined, late, other_id)]
        assert found == [(27, 4), (7, 2), (7, 2)]
        for viewer in rig.viewers:
            payloads = [one.payload for one in viewer.received if one.type_id == VIDEO and one.payload != AVC_CONFIG]
            assert len(payloads) == viewer.player.frames
            assert sum(payload[0] == 0x17 for payload in payloads) == viewer.player.keyframes

    with_rig(test)


def test_frames_of_side_tracks_are_not_counted() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish([*preamble(), *frames(2, has_audio=False)])
        rig.publish([Sent(VIDEO, 80, track_keyframe(1)), Sent(VIDEO, 80, track_inter_frame(1))])
        await rig.deliver()
        assert (viewer.player.messages, viewer.player.frames, viewer.player.keyframes) == (7, 2, 1)

    with_rig(test)


def test_what_a_viewer_skips_is_not_counted_as_frames() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish(preamble())
        await turns()
        rig.publish(frames(40, gop=10))  # within one turn: 80 messages into a log of 50
        await rig.deliver()
        assert (viewer.player.frames, viewer.player.keyframes) == (10, 1)

    with_rig(test, limits=LogLimits(max_messages=50))


@pytest.mark.parametrize("message_stream_id", [1, 7], ids=["joined", "served alone"])
def test_the_longest_gap_is_between_two_batches_or_since_the_last(
    message_stream_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        now_s = 100.0
        rig.loop.time = lambda: now_s  # type: ignore[method-assign]
        monkeypatch.setattr("headrace.net.fanout.monotonic", lambda: now_s)
        viewer = rig.join(message_stream_id=message_stream_id)
        player = viewer.player
        for step_s in (0.25, 0.0, 0.75, 0.5):
            now_s += step_s
            rig.publish(frames(1))
            rig.fanout._flush()
        assert player.take_max_gap_s(now_s + 0.5) == 0.75
        assert player.take_max_gap_s(now_s + 0.5) == 0.5, "the one that goes on"
        assert player.take_max_gap_s(now_s + 3) == 3
        now_s += 4
        rig.publish(frames(1))
        rig.fanout._flush()
        assert player.take_max_gap_s(now_s + 1) == 4, "it ended in this interval"
        assert player.take_max_gap_s(now_s + 1) == 1

    with_rig(test)


# --- slow viewers


@on_both_loops
def test_a_stalled_viewer_delays_nobody_and_goes_on_at_a_keyframe(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        stalled = rig.join(max_lag_s=2.0)
        healthy = [rig.join(max_lag_s=2.0), rig.join(max_lag_s=2.0)]
        published = rig.publish(preamble())
        for number in range(150):  # 6 s, of which the stalled viewer reads nothing
            published += rig.publish(
                frames(1, start_ms=40 * number, first_number=number, size=400)
                if number % 10 == 0
                else [Sent(VIDEO, 40 * number, inter_frame(number, 400))]
            )
            await turns(1)
            for viewer in healthy:
                viewer.read()
        await rig.deliver(*healthy)
        assert [viewer.sent == published for viewer in healthy] == [True, True]
        assert stalled.link.is_blocked

        await rig.deliver(stalled)
        dropped = rig.metrics.messages_dropped["lag"]
        assert dropped > 50
        assert len(stalled.received) == len(published) - dropped + 3  # it got the headers again
        videos = [sent for sent in stalled.sent if sent.type_id == VIDEO]
        resumed = [sent for sent in videos if sent.timestamp_ms >= 40 * 140]
        assert [sent.payload for sent in resumed][:2] == [AVC_CONFIG, keyframe(140, 800)]
        assert stalled.sent[-1] == published[-1]

    with_rig(test, loop_factory)


@on_both_loops
def test_a_viewer_that_blocks_and_drains_in_time_loses_nothing(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join(max_lag_s=5.0)
        published = rig.publish([*preamble(), *frames(10, size=2000)])
        for round_number in range(1, 8):
            published += rig.publish(frames(10, start_ms=400 * round_number, size=2000))
            await turns(3)
            assert viewer.link.is_blocked
            if round_number % 2:
                await rig.deliver()
                assert not viewer.link.is_blocked
        await rig.deliver()
        assert viewer.sent == published
        assert not rig.metrics.messages_dropped

    with_rig(test, loop_factory)


def test_a_blocked_viewer_holds_one_batch_and_no_more() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish(preamble())
        for number in range(40):
            rig.publish(frames(5, start_ms=200 * number, size=20_000))
            await turns(1)
        assert viewer.link.queued_bytes <= BATCH_BYTES + 45_000

    with_rig(test)


# --- wishes and message streams


def test_a_viewer_on_another_message_stream_gets_the_same_messages_with_its_own_id() -> None:
    async def test(rig: Rig) -> None:
        usual, other = rig.join(), rig.join(message_stream_id=2)
        published = rig.publish([*preamble(), *frames(20, size=6000)])
        await rig.deliver()
        assert usual.sent == other.sent == published
        assert {message.message_stream_id for message in usual.received} == {1}
        assert {message.message_stream_id for message in other.received} == {2}

    with_rig(test)


def test_a_viewer_without_sound_is_served_beside_others_and_can_have_it_back() -> None:
    async def test(rig: Rig) -> None:
        usual, deaf = rig.join(), rig.join()
        rig.publish([*preamble(), *frames(3)])
        await rig.deliver()
        deaf.player.cursor.wants_audio = False
        deaf.player.settle()
        rig.publish(frames(3, start_ms=120, gop=100))
        await rig.deliver()
        deaf.player.cursor.wants_audio = True
        deaf.player.settle()
        published = rig.publish(frames(3, start_ms=240, gop=100))
        await rig.deliver()
        assert [sent.type_id for sent in deaf.sent[9:12]] == [VIDEO] * 3
        assert deaf.sent[12:] == published
        assert len(usual.sent) == 3 + 18
        assert rig.metrics.messages_dropped == {"paused": 3}

    with_rig(test)


def test_a_paused_viewer_gets_nothing_and_goes_on_at_the_newest_keyframe() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish([*preamble(), *frames(3)])
        await rig.deliver()
        rig.fanout.pause(viewer.player, True)
        rig.publish(frames(25, start_ms=120, first_number=100, gop=10))
        await turns()
        viewer.read()
        assert len(viewer.sent) == 9
        rig.fanout.pause(viewer.player, False)
        viewer.read()  # at once, without waiting for a message
        assert [sent.payload for sent in viewer.sent[9:13]] == [METADATA, AVC_CONFIG, AAC_CONFIG, keyframe(120, 120)]
        assert rig.metrics.messages_dropped == {"paused": 40}
        rig.publish(frames(1, start_ms=2000))
        await rig.deliver()
        assert viewer.sent[-1].timestamp_ms == 2000

    with_rig(test)


def test_a_viewer_paused_for_longer_than_the_log_goes_on_at_the_newest_keyframe() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish([*preamble(), *frames(3)])
        await rig.deliver()
        rig.fanout.pause(viewer.player, True)
        for number in range(50):
            rig.publish(frames(10, start_ms=120 + 400 * number, first_number=10 * number))
            await turns(1)
        rig.fanout.pause(viewer.player, False)
        viewer.read()
        assert viewer.sent[12].payload == keyframe(490, 120)
        assert rig.metrics.messages_dropped == {"paused": 980}

    with_rig(test, limits=LogLimits(retain_s=2.0))


# --- the end


def test_the_end_comes_after_the_last_message() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        published = rig.publish([*preamble(), *frames(5)])
        rig.end()  # the flush was due: what was appended is not lost
        assert viewer.ended == ["unpublished"]
        viewer.read()
        assert viewer.sent == published
        assert len(rig.fanout) == 0
        await turns()
        assert viewer.ended == ["unpublished"]

    with_rig(test)


@on_both_loops
def test_a_viewer_that_lags_gets_the_rest_before_the_end(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        slow, fast = rig.join(), rig.join(pair=unix_pair(None))
        published = rig.publish(preamble())
        for number in range(20):
            published += rig.publish(frames(5, start_ms=200 * number, size=3000))
            await turns(1)
            fast.read()
        assert slow.link.is_blocked
        rig.end()
        assert fast.ended == ["unpublished"]
        assert slow.ended == []
        await rig.deliver()
        assert slow.sent == published
        assert slow.ended == ["unpublished"]

    with_rig(test, loop_factory)


def test_a_viewer_that_never_reads_is_not_told_of_the_end_but_can_leave() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish([*preamble(), *frames(20, size=3000)])
        await turns()
        rig.end()
        viewer.link.close("stalled")
        assert viewer.ended == []
        assert len(rig.fanout) == 0

    with_rig(test)


def test_a_paused_viewer_is_told_of_the_end_at_once() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        rig.publish([*preamble(), *frames(3)])
        await rig.deliver()
        rig.fanout.pause(viewer.player, True)
        rig.publish(frames(3, start_ms=120))
        rig.end()
        assert viewer.ended == ["unpublished"]
        assert len(rig.fanout) == 0

    with_rig(test)


def test_every_viewer_is_told_of_the_end_though_each_leaves_the_list_as_it_is_told() -> None:
    async def test(rig: Rig) -> None:
        viewers = [rig.join() for _ in range(7)]
        rig.publish(preamble())
        rig.end("expired")
        assert [viewer.ended for viewer in viewers] == [["expired"]] * 7

    with_rig(test)


# --- leaving


def test_viewers_that_vanish_during_a_flush_do_not_cost_the_others_a_byte() -> None:
    async def test(rig: Rig) -> None:
        viewers = [rig.join(pair=tcp_pair()) for _ in range(6)]
        rig.publish(preamble())
        await rig.deliver()
        for viewer in viewers[::2]:
            reset(viewer.peer)
        rig.publish(frames(10, size=300))
        rig.fanout._flush()  # in the middle of the round each of the three fails
        assert [viewer.lost for viewer in viewers] == [[]] * 6
        await eventually_async(lambda: len(rig.fanout) == 3, "the others to be gone")
        published = [*preamble(), *frames(10, size=300), *rig.publish(frames(10, start_ms=400))]
        await rig.deliver(*viewers[1::2])
        assert all(viewer.sent == published for viewer in viewers[1::2])
        assert all(len(viewer.lost) == 1 for viewer in viewers[::2])

    with_rig(test)


def test_a_viewer_may_leave_twice_or_without_having_come() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.make_viewer()
        rig.fanout.detach(viewer.player)
        rig.fanout.attach(viewer.player)
        rig.fanout.detach(viewer.player)
        rig.fanout.detach(viewer.player)
        rig.publish(preamble())
        await turns()
        viewer.read()
        assert viewer.sent == []

    with_rig(test)


def test_a_destination_counts_as_a_reader_but_not_as_a_viewer() -> None:
    async def test(rig: Rig) -> None:
        rig.join()
        rig.join(is_viewer=False)
        assert (len(rig.fanout), rig.fanout.viewers) == (2, 1)

    with_rig(test)


# --- numbers


@on_both_loops
def test_what_is_counted_is_what_was_received(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        viewers = [
            rig.join(),
            rig.join(max_lag_s=1.0),
            rig.join(message_stream_id=3),
            rig.join(pair=tcp_pair()),
        ]
        rig.publish(preamble())
        for number in range(60):
            rig.publish(frames(1, start_ms=40 * number, size=2000))
            await turns(1)
            for viewer in viewers[::2]:
                viewer.read()
        await rig.deliver()
        assert rig.metrics.messages_relayed == sum(len(viewer.received) for viewer in viewers)
        assert rig.metrics.bytes_relayed == sum(len(viewer.raw) for viewer in viewers)
        assert rig.metrics.bytes_relayed == sum(viewer.link.sent_bytes for viewer in viewers)
        assert [len(viewer.received) for viewer in viewers] == [viewer.player.messages for viewer in viewers]
        total = sum(viewer.player.messages for viewer in viewers)
        headers_again = sum(sent.payload == METADATA for viewer in viewers for sent in viewer.sent) - len(viewers)
        assert total + rig.metrics.messages_dropped.total() == 4 * rig.stream.log.tail + 3 * headers_again

    with_rig(test, loop_factory)


def test_data_and_empty_messages_pass_like_any_other() -> None:
    async def test(rig: Rig) -> None:
        viewer = rig.join()
        published = rig.publish(
            [
                Sent(DATA, 0, b"\x02\x00\x03foo"),
                Sent(AUDIO, 10, b""),
                Sent(VIDEO, 20, b""),
                Sent(AUDIO, 30, aac_frame()),
            ]
        )
        await rig.deliver()
        assert viewer.sent == published

    with_rig(test)
