"""A feed: what a destination gets, how it comes back after every kind of failure, and whether its figures are true."""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
import trustme
import uvloop

from headrace.relay import feed as feed_module
from headrace.relay.failure import ErrorClass, Retry, RetryPolicy
from headrace.relay.feed import MAX_LAG_S, REPORT_INTERVAL_S, STABLE_S, STALLED_S, Feed, FeedState
from headrace.server.server import Server
from headrace.stream.log import LogLimits
from headrace.stream.registry import Stream
from headrace.telemetry.events import Delivery, DestinationSample, DestinationState
from tests.helpers.far_end import (
    FarEnd,
    Script,
    Visit,
    grants,
    hangs_after_connect,
    refuses,
    refuses_connect,
    swallows,
    then_closes,
)
from tests.helpers.loops import run
from tests.helpers.media_bytes import (
    AAC_CONFIG,
    AUDIO,
    AVC_CONFIG,
    AVC_CONFIG_SMALL,
    CUE_POINT,
    DATA,
    METADATA,
    VIDEO,
    Sent,
    frames,
    preamble,
)
from tests.helpers.origin import KEY, LogCapture, Origin, append, destination
from tests.helpers.waiting import eventually_async, turns
from tests.unit.protocol.wire import control

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


def nowhere() -> str:
    return "rtmp://127.0.0.1:1/live"


def held(gate: asyncio.Event, script: Script = grants) -> Script:
    """The script, once the gate is open."""

    async def wait(visit: Visit) -> None:
        await gate.wait()
        await script(visit)

    return wait


def of_type(type_id: int, media: list[Sent]) -> list[Sent]:
    return [one for one in media if one.type_id == type_id]


def is_monotonic(media: list[Sent]) -> bool:
    """Timestamps of sound and picture; metadata may carry 0."""
    times = [one.timestamp_ms for one in media if one.type_id != DATA]
    return times == sorted(times)


def inter_frames(count: int, *, start_ms: int, first_number: int, step_ms: int = 40) -> list[Sent]:
    """The frames of a group of pictures after its keyframe, each with its sound."""
    start_ms, number = start_ms - step_ms, first_number - 1
    return list(frames(count + 1, start_ms=start_ms, first_number=number, gop=count + 1, step_ms=step_ms))[2:]


def contents(stream: Stream) -> list[Sent]:
    entries = stream.log.entries(stream.log.head, stream.log.tail)
    return [Sent(entry.type_id, entry.timestamp_ms, entry.payload) for entry in entries]


def preface(timestamp_ms: int, video: bytes = AVC_CONFIG) -> list[Sent]:
    """What a decoder needs first, with the time of what follows."""
    return [Sent(DATA, 0, METADATA), Sent(VIDEO, timestamp_ms, video), Sent(AUDIO, timestamp_ms, AAC_CONFIG)]


async def flowing(origin: Origin, far_end: FarEnd, stream: Stream, visit: int = 0) -> list[Sent]:
    """Two groups of pictures, all of which have arrived at that visit to the far end."""
    await far_end.until_visits(visit + 1)
    await origin.until(FeedState.CONNECTED)
    sent = append(stream, [*preamble(), *frames(20)])
    assert await far_end.until_media(len(sent), visit) == sent
    return sent


# --- what arrives


def test_everything_arrives_in_order_with_its_timestamps_and_a_goodbye() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            await origin.until(FeedState.CONNECTED)
            sent = append(stream, [*preamble(), *frames(25), Sent(DATA, 1000, CUE_POINT)])
            origin.unpublish(stream)
            await eventually_async(lambda: far_end.last.is_over, "the goodbye to arrive")
            assert far_end.last.media == sent
            assert far_end.last.media_ids == {1}
            assert [one.name for one in far_end.last.commands[-2:]] == ["FCUnpublish", "deleteStream"]
            await origin.until_over()
            assert origin.out().snapshot()["messages_sent"] == len(sent)

    play(test)


def test_a_destination_that_joins_late_begins_at_the_newest_keyframe() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        async with FarEnd(held(gate)) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            sent = append(stream, [*preamble(), *frames(25)])
            gate.set()
            newest = 20 * 40
            expected = [*preface(newest), *[one for one in sent[3:] if one.timestamp_ms >= newest]]
            assert await far_end.until_media(len(expected)) == expected

    play(test)


@pytest.mark.parametrize("stream_id", [1, 7])
@pytest.mark.parametrize("chunk_size", [128, 60_000])
def test_media_goes_out_on_the_stream_that_was_granted_in_chunks_of_our_size(stream_id: int, chunk_size: int) -> None:
    async def grants_that(visit: Visit) -> None:
        await visit.grant(stream_id)

    async def test() -> None:
        async with FarEnd(grants_that) as far_end, Origin(destination(far_end), chunk_size=chunk_size) as origin:
            sent = await flowing(origin, far_end, origin.publish())
            sent += append(origin.feed().stream, frames(5, start_ms=800, size=5000))
            assert await far_end.until_media(len(sent)) == sent
            assert far_end.last.media_ids == {stream_id}

    play(test)


@pytest.mark.parametrize(("has_audio", "has_video"), [(True, False), (False, True)])
def test_a_stream_of_sound_or_picture_alone_arrives(has_audio: bool, has_video: bool) -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            await origin.until(FeedState.CONNECTED)
            sent = append(stream, frames(30, has_audio=has_audio, has_video=has_video))
            assert await far_end.until_media(30) == sent

    play(test)


def test_a_destination_that_is_behind_at_the_end_still_gets_the_rest() -> None:
    async def reads_late(visit: Visit) -> None:
        await visit.grant()
        visit.stop_reading()
        await gate.wait()
        visit.writer.transport.resume_reading()  # type: ignore[attr-defined]

    gate = asyncio.Event()

    async def test() -> None:
        async with FarEnd(reads_late, receive_buffer_bytes=8 << 10) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            feed = await origin.until(FeedState.CONNECTED)
            sent = append(stream, [*preamble(), *frames(100, size=100_000)])
            await eventually_async(lambda: feed.snapshot()["queue_age_s"] > 0, "the destination to be behind")
            origin.unpublish(stream)
            gate.set()
            await eventually_async(lambda: far_end.last.is_over, "the goodbye to arrive")
            assert far_end.last.media == sent
            assert far_end.last.commands[-1].name == "deleteStream"
            await origin.until_over()
            assert origin.out().snapshot()["messages_dropped"] == 0

    play(test)


def test_a_destination_that_takes_nothing_at_the_end_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_FINISH_S", 0.05)

    async def stops_reading(visit: Visit) -> None:
        await visit.grant()
        visit.stop_reading()
        await asyncio.Event().wait()

    async def test() -> None:
        async with Origin() as origin:
            far_end = FarEnd(stops_reading, receive_buffer_bytes=8 << 10)
            async with far_end:
                origin.relay.add(destination(far_end))
                stream = origin.publish()
                feed = await origin.until(FeedState.CONNECTED)
                append(stream, [*preamble(), *frames(100, size=100_000)])
                await turns()
                origin.unpublish(stream)
                await origin.until_over()
                assert feed.state is FeedState.DISCONNECTED
                shown = origin.out().snapshot()
                assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail
                assert shown["dropped_by_reason"]["disconnected"] > 0
                assert shown["last_error"] is None

    play(test)


# --- coming back


def test_after_a_short_outage_sound_goes_on_where_it_stopped_and_video_at_the_next_keyframe() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        async with FarEnd(grants, held(gate)) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            before = await flowing(origin, far_end, stream)
            far_end.last.reset()
            await far_end.until_visits(2)
            outage = append(stream, inter_frames(15, start_ms=800, first_number=20))
            after = append(stream, frames(10, start_ms=1400, first_number=35))
            gate.set()
            expected = [*preface(800), *of_type(AUDIO, outage), *after]
            assert await far_end.until_media(len(expected)) == expected
            assert far_end.visits[0].media == before
            assert is_monotonic(before + expected)
            shown = origin.out().snapshot()
            assert shown["messages_sent"] == len(before) + len(outage) / 2 + len(after)
            assert shown["dropped_by_reason"] == {"no_keyframe": len(outage) / 2}
            assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail
            assert shown["reconnect_count"] == shown["failures"] == 1

    play(test)


def test_the_sequence_headers_are_those_in_force_where_it_goes_on() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        async with FarEnd(grants, held(gate)) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            await flowing(origin, far_end, stream)
            far_end.last.reset()
            await far_end.until_visits(2)
            # The encoder changes the size of the picture while the destination is away.
            outage = append(stream, inter_frames(5, start_ms=800, first_number=20))
            change = append(stream, [Sent(VIDEO, 1000, AVC_CONFIG_SMALL), *frames(5, start_ms=1000, first_number=25)])
            gate.set()
            expected = [*preface(800, AVC_CONFIG), *of_type(AUDIO, outage), *change]
            assert await far_end.until_media(len(expected)) == expected

    play(test)


def test_after_an_outage_longer_than_the_log_it_goes_on_at_the_newest_keyframe() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        limits = LogLimits(max_messages=60)
        async with FarEnd(grants, held(gate)) as far_end, Origin(destination(far_end), limits=limits) as origin:
            stream = origin.publish()
            before = await flowing(origin, far_end, stream)
            far_end.last.reset()
            await far_end.until_visits(2)
            outage = append(stream, frames(105, start_ms=800, first_number=20))
            assert stream.log.head > len(before)
            gate.set()
            newest = 800 + 100 * 40
            kept = [one for one in outage if one.timestamp_ms >= newest]
            expected = [*preface(newest), *kept]
            assert await far_end.until_media(len(expected)) == expected
            assert is_monotonic(before + expected)
            shown = origin.out().snapshot()
            assert shown["messages_sent"] == len(before) + len(kept)
            assert shown["dropped_by_reason"] == {"evicted": len(outage) - len(kept)}

    play(test)


def test_a_destination_too_far_behind_goes_on_at_the_newest_keyframe() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        async with FarEnd(grants, held(gate)) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            before = await flowing(origin, far_end, stream)
            far_end.last.reset()
            await far_end.until_visits(2)
            count = int(MAX_LAG_S * 1000 / 40) + 15
            append(stream, frames(count, start_ms=800, first_number=20, gop=count - 5, size=20))
            gate.set()
            await far_end.until_media(3 + 10)
            shown = origin.out().snapshot()
            # So far that the log, too, may have dropped the first of it.
            assert shown["dropped_by_reason"].keys() <= {"lag", "evicted"}
            assert shown["messages_sent"] == len(before) + 10
            assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail

    play(test)


def test_a_destination_that_stops_reading_is_left_and_goes_on_without_a_message_lost_or_sent_twice() -> None:
    gate = asyncio.Event()

    async def reads_late(visit: Visit) -> None:
        await visit.grant()
        visit.stop_reading()
        await gate.wait()
        visit.writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def test() -> None:
        second = asyncio.Event()
        far_end = FarEnd(reads_late, held(second), receive_buffer_bytes=8 << 10)
        async with far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            feed = await origin.until(FeedState.CONNECTED)
            sent = append(stream, [*preamble(), *frames(200, size=60_000)])
            loop = asyncio.get_running_loop()
            await eventually_async(lambda: feed._session and feed._session.link.is_blocked, "the socket to be full")
            feed.tick(loop.time())
            assert feed.state is FeedState.CONNECTED
            shown = feed.snapshot()
            feed.tick(loop.time() + STALLED_S + 1)
            await far_end.until_visits(2)
            assert feed.last_error is not None
            assert feed.last_error.error_class is ErrorClass.STALLED
            assert str(feed.last_error) == "took no bytes for 15 s"
            # What the socket had taken arrives, and that is what was counted: no more and no less.
            gate.set()
            await eventually_async(lambda: far_end.visits[0].is_over, "the first connection to end")
            taken = len(far_end.visits[0].media)
            assert 0 < taken < len(sent)
            assert far_end.visits[0].media == sent[:taken]
            assert origin.out().snapshot()["messages_sent"] == shown["messages_sent"] == taken
            second.set()
            rest = sent[taken:]
            keyframe = next(index for index, one in enumerate(rest) if one.payload[:2] == b"\x17\x01")
            expected = [*of_type(AUDIO, rest[:keyframe]), *rest[keyframe:]]
            arrived = await far_end.until_media(3 + len(expected), 1)
            assert arrived == [*preface(rest[0].timestamp_ms), *expected]
            shown = origin.out().snapshot()
            assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail

    play(test)


def test_what_was_skipped_in_a_batch_that_was_lost_is_counted_once() -> None:
    gate = asyncio.Event()

    async def reads_late(visit: Visit) -> None:
        await visit.grant()
        visit.stop_reading()
        await gate.wait()
        visit.writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def test() -> None:
        second, third = asyncio.Event(), asyncio.Event()
        far_end = FarEnd(grants, held(second, reads_late), held(third), receive_buffer_bytes=8 << 10)
        async with far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            before = await flowing(origin, far_end, stream)
            far_end.last.reset()
            await far_end.until_visits(2)
            # Megabytes of sound between pictures that cannot be shown: the socket takes a part of it and then no more.
            outage = append(
                stream,
                [
                    Sent(one.type_id, one.timestamp_ms, one.payload + bytes(6000) * (one.type_id == AUDIO))
                    for one in inter_frames(2000, start_ms=800, first_number=20, step_ms=10)
                ],
            )
            second.set()
            feed = await origin.until(FeedState.CONNECTED)
            await eventually_async(lambda: feed._session and feed._session.link.is_blocked, "the socket to be full")
            feed.tick(asyncio.get_running_loop().time() + STALLED_S + 1)
            await far_end.until_visits(3)
            gate.set()
            await eventually_async(lambda: far_end.visits[1].is_over, "the second connection to end")
            third.set()
            after = append(stream, frames(5, start_ms=20_800, first_number=2020))
            taken = of_type(AUDIO, far_end.visits[1].media)[1:]
            assert 0 < len(taken) < 2000
            await far_end.until_media(3 + 2000 - len(taken) + len(after), 2)
            assert taken + of_type(AUDIO, far_end.visits[2].media)[1:] == of_type(AUDIO, outage + after)
            shown = origin.out().snapshot()
            assert shown["dropped_by_reason"] == {"no_keyframe": 2000}
            assert shown["messages_sent"] == len(before) + 2000 + len(after)
            origin.unpublish(stream)
            await origin.until_over()
            assert_told(origin, origin.out().snapshot(), before + outage + after)

    play(test)


def test_a_batch_that_waited_until_the_log_had_dropped_it_counts_as_dropped() -> None:
    async def stops_reading(visit: Visit) -> None:
        await visit.grant()
        visit.stop_reading()
        await asyncio.Event().wait()

    async def test() -> None:
        limits = LogLimits(max_messages=100)
        far_end = FarEnd(stops_reading, grants, receive_buffer_bytes=8 << 10)
        async with far_end, Origin(destination(far_end), limits=limits) as origin:
            stream = origin.publish()
            feed = await origin.until(FeedState.CONNECTED)
            count = 0
            sent: list[Sent] = []
            while not (feed._session and feed._session.link.is_blocked):
                sent += append(stream, frames(5, start_ms=200 * count, first_number=5 * count, size=200_000))
                count += 1
                await turns()
            taken = feed.snapshot()["messages_sent"]
            more = append(stream, frames(200, start_ms=200 * count, first_number=5 * count))
            assert stream.log.head > taken
            assert feed.snapshot()["messages_sent"] <= taken
            feed.tick(asyncio.get_running_loop().time() + STALLED_S + 1)
            await far_end.until_media(20, 1)
            origin.unpublish(stream)
            await origin.until_over()
            shown = origin.out().snapshot()
            assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail
            assert shown["dropped_by_reason"]["evicted"] > 0
            assert far_end.visits[1].media[-1] == more[-1]
            assert_told(origin, shown, sent + more)

    play(test)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_nothing_comes_twice_and_the_figures_add_up(seed: int) -> None:
    chance = random.Random(seed)

    async def leaves_somehow(visit: Visit) -> None:
        how = chance.choice(["resets", "closes", "asks", "refuses", "starves"])
        if how == "refuses":
            await visit.create_stream()
            visit.close()
            raise EOFError
        await visit.grant(chance.choice([1, 1, 5]))
        if how == "starves":
            visit.stop_reading()
            await asyncio.sleep(0.02)  # a far end with a mood, not a wait
        else:
            await visit.until_media(chance.randrange(60))
        if how == "asks":
            visit.ask_to_reconnect()
            await visit.listen()
        visit.close() if how == "closes" else visit.reset()
        raise EOFError

    async def test() -> None:
        far_end = FarEnd(*[leaves_somehow] * 8, grants, receive_buffer_bytes=8 << 10)
        # A redirect loop and rejections are part of it: none of them may end it.
        async with far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            await origin.until(FeedState.CONNECTED)
            start_ms = 0
            sent = append(stream, preamble())
            while len(far_end.visits) < 9 or origin.feed().state is not FeedState.CONNECTED:
                sent += append(stream, frames(10, start_ms=start_ms, first_number=start_ms // 40, size=6000))
                start_ms += 400
                await asyncio.sleep(0.002)
            sent += append(stream, frames(10, start_ms=start_ms, first_number=start_ms // 40))
            origin.unpublish(stream)
            await eventually_async(lambda: far_end.last.is_over, "the goodbye to arrive")
            sounds = [
                one for visit in far_end.visits for one in of_type(AUDIO, visit.media) if one.payload != AAC_CONFIG
            ]
            assert len(set(sounds)) == len(sounds)
            assert sounds == sorted(sounds, key=lambda one: one.timestamp_ms)
            for visit in far_end.visits:
                assert is_monotonic(visit.media)
                pictures = [one.payload for one in of_type(VIDEO, visit.media) if one.payload != AVC_CONFIG]
                assert all(payload[0] == 0x17 for payload in pictures[:1])
            await origin.until_over()
            shown = origin.out().snapshot()
            assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail
            assert shown["reconnect_count"] >= 1
            assert_told(origin, shown, sent)

    play(test)


def ranges_of(origin: Origin, feed: str) -> list[tuple[int, int, str]]:
    """What one feed proves, which must have no hole and no overlap: (start, stop, why skipped or "delivered")."""
    told = [event for event in origin.events if isinstance(event, Delivery) and event.feed == feed]
    assert all(one.start < one.stop for one in told)
    assert all(before.stop == after.start for before, after in pairwise(told))
    merged: list[tuple[int, int, str]] = []  # a tick in between splits a range, and means nothing
    for one in told:
        outcome = one.reason or one.outcome
        start = merged.pop()[0] if merged and merged[-1][2] == outcome else one.start
        merged.append((start, one.stop, outcome))
    return merged


def test_a_destination_added_in_mid_stream_proves_what_it_got_from_its_keyframe_on() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin() as origin:
            stream = origin.publish()
            append(stream, [*preamble(), *frames(25)])
            origin.relay.add(destination(far_end))
            feed = await origin.until(FeedState.CONNECTED)
            append(stream, frames(5, start_ms=1000, first_number=25))
            served = [*frames(25)][40:]  # from the newest keyframe
            arrived = await far_end.until_media(3 + len(served) + 10)
            assert len(arrived) == 3 + len(served) + 10
            origin.unpublish(stream)
            await origin.until_over()
            assert ranges_of(origin, feed.id) == [(3 + 40, stream.log.tail, "delivered")]
            samples = [event for event in origin.events if isinstance(event, DestinationSample)]
            assert sum(one.messages for one in samples) == stream.log.tail - (3 + 40)

    play(test)


def test_what_a_destination_added_in_mid_stream_missed_before_its_first_connection_is_told_as_that() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        async with FarEnd(held(gate)) as far_end, Origin() as origin:
            stream = origin.publish()
            append(stream, [*preamble(), *frames(15)])
            origin.relay.add(destination(far_end))
            await far_end.until_visits(1)
            feed = origin.feed()
            append(stream, frames(15, start_ms=600, first_number=15))
            gate.set()
            await far_end.until_media(3 + 10)
            origin.unpublish(stream)
            await origin.until_over()
            assert ranges_of(origin, feed.id) == [(23, 53, "not_connected"), (53, 63, "delivered")]

    play(test)


def test_a_destination_added_in_mid_stream_and_never_reached_missed_all_it_could_have_had() -> None:
    async def test() -> None:
        async with Origin() as origin:
            stream = origin.publish()
            append(stream, [*preamble(), *frames(15)])
            origin.relay.add(destination(nowhere()))
            feed = await origin.until(FeedState.WAITING)
            append(stream, frames(5, start_ms=600, first_number=15))
            origin.unpublish(stream)
            await origin.until_over()
            assert ranges_of(origin, feed.id) == [(23, 43, "not_connected")]

    play(test)


def test_the_samples_of_a_destination_tell_where_it_is_and_how_long_it_got_nothing() -> None:
    async def test() -> None:
        gates = asyncio.Event(), asyncio.Event()
        far_end = FarEnd(held(gates[0]), held(gates[1]))
        async with far_end, Origin(destination(far_end)) as origin:
            loop = asyncio.get_running_loop()
            stream = origin.publish()
            await far_end.until_visits(1)
            feed = origin.feed()

            def sample(after_s: float) -> DestinationSample:
                feed.tick(loop.time() + after_s)
                last = origin.events[-1]
                assert isinstance(last, DestinationSample)
                return last

            waiting = sample(10)
            assert (waiting.media_ms, waiting.frames) == (None, 0)
            assert 10_000 <= waiting.max_gap_ms < 20_000
            gates[0].set()
            await flowing(origin, far_end, stream)
            begun = sample(0)
            assert (begun.media_ms, begun.frames, begun.keyframes) == (19 * 40, 20, 2)
            handed_s = feed._player.handed_s if feed._player else 0.0
            far_end.last.reset()
            await far_end.until_visits(2)
            append(stream, frames(10, start_ms=800, first_number=20))
            away = sample(20)
            assert (away.media_ms, away.frames) == (19 * 40, 0), "where it stopped"
            assert away.max_gap_ms >= 20_000
            gates[1].set()
            await far_end.until_media(3 + 20)
            back = sample(0)
            assert (back.media_ms, back.frames, back.keyframes) == (29 * 40, 10, 1)
            # The gap began with what the first connection was handed last.
            assert feed._player is not None
            assert back.max_gap_ms == pytest.approx((feed._player.handed_s - handed_s) * 1000, abs=1)

    play(test)


def test_a_destination_that_is_taken_away_and_added_again_has_a_proof_for_each_time() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            await flowing(origin, far_end, stream)
            feeds = [origin.feed()]
            origin.relay.remove("out")
            await eventually_async(lambda: far_end.last.is_over, "the goodbye")
            origin.relay.add(destination(far_end))
            feeds.append(origin.feed())
            await far_end.until_media(3 + 20, 1)
            origin.relay.replace(destination(far_end, max_retries=7))
            feeds.append(origin.feed())
            await far_end.until_media(3 + 20, 2)
            origin.unpublish(stream)
            await origin.until_over()
            tail, newest = stream.log.tail, 3 + 20
            assert [ranges_of(origin, feed.id) for feed in feeds] == [
                [(0, tail, "delivered")],
                [(newest, tail, "delivered")],
                [(newest, tail, "delivered")],
            ]
            told = [event for event in origin.events if isinstance(event, DestinationState | DestinationSample)]
            assert {event.feed for event in told} == {feed.id for feed in feeds}
            assert len({feed.id for feed in feeds}) == 3

    play(test)


def assert_told(origin: Origin, shown: dict[str, Any], sent: list[Sent]) -> None:
    """The event log says the same: ranges without hole or overlap, and samples that add up to the totals."""
    tail = len(sent)
    told = [event for event in origin.events if isinstance(event, Delivery)]
    assert [told[0].start, *[one.stop for one in told]] == [*[one.start for one in told], tail]
    assert told[0].start == 0
    counts = Counter({"delivered": 0, "skipped": 0})
    for one in told:
        counts[one.outcome] += one.stop - one.start
    assert (counts["delivered"], counts["skipped"]) == (shown["messages_sent"], shown["messages_dropped"])
    samples = [event for event in origin.events if isinstance(event, DestinationSample)]
    assert sum(one.messages for one in samples) == shown["messages_sent"]
    assert sum(one.bytes for one in samples) == shown["bytes_sent"]
    assert sum(sum(one.dropped.values()) for one in samples) == shown["messages_dropped"]
    delivered = [sent[at] for one in told if one.outcome == "delivered" for at in range(one.start, one.stop)]
    pictures = [one.payload for one in of_type(VIDEO, delivered) if one.payload != AVC_CONFIG]
    assert sum(one.frames for one in samples) == len(pictures)
    assert sum(one.keyframes for one in samples) == sum(payload[0] == 0x17 for payload in pictures)
    states = [event.state for event in origin.events if isinstance(event, DestinationState)]
    assert states[-1] == "disconnected"
    assert KEY not in f"{origin.events}"


def test_a_far_end_that_is_a_server_of_ours_gets_the_stream_and_gets_it_again_after_a_restart() -> None:
    async def test() -> None:
        limits = LogLimits(retain_s=600)
        streams: list[Stream] = []
        second = Server(limits=limits, on_stream=streams.append)
        port = int(second.listen("127.0.0.1", 0)[0].rpartition(":")[2])
        async with Origin(destination(f"rtmp://127.0.0.1:{port}/live", stream_key="copy")) as origin:
            stream = origin.publish()
            await origin.until(FeedState.CONNECTED)
            sent = append(stream, [*preamble(), *frames(50)])
            await eventually_async(lambda: streams and streams[0].log.tail == len(sent), "all of it")
            assert streams[0].key == "live/copy"
            assert contents(streams[0]) == sent
            await second.close()
            await eventually_async(lambda: origin.feed().state is not FeedState.CONNECTED, "the loss to be noticed")
            append(stream, inter_frames(4, start_ms=2000, first_number=50))
            third = Server(limits=limits, on_stream=streams.append)
            third.listen("127.0.0.1", port)
            await eventually_async(lambda: len(streams) == 2, "the destination to come back")
            more = append(stream, frames(5, start_ms=2160, first_number=54))
            await eventually_async(lambda: streams[1].log.tail == 3 + 4 + len(more), "the rest")
            assert contents(streams[1])[-len(more) :] == more
            assert is_monotonic(contents(streams[0]) + contents(streams[1]))
            origin.unpublish(stream)
            await eventually_async(lambda: not len(third.streams), "the end to arrive")
            await third.close()

    play(test)


# --- trying again


@pytest.mark.parametrize(
    ("url", "error_class"),
    [
        (nowhere(), "refused"),
        ("rtmp://nonexistent.invalid/live", "dns"),
        ("rtmp://a..b/live", "dns"),
    ],
)
def test_a_destination_that_cannot_be_reached_waits_and_says_why(url: str, error_class: str, log: LogCapture) -> None:
    async def test() -> None:
        retry = {"initial_s": 100, "max_s": 200, "jitter": 0.5}
        async with Origin(destination(url, retry=retry)) as origin:
            stream = origin.publish()
            append(stream, [*preamble(), *frames(10)])
            feed = await origin.until(FeedState.WAITING)
            shown = feed.snapshot()
            assert (shown["status"], shown["last_error_class"]) == ("waiting", error_class)
            assert 50 - 20 < shown["retry_in_s"] <= 100
            assert (shown["attempt"], shown["failures"], shown["reconnect_count"]) == (1, 1, 0)
            assert (shown["flowing"], shown["slow_side"]) == (False, None)
            assert shown["messages_sent"] == shown["messages_dropped"] == shown["bytes_sent"] == 0
            assert log.lines("Destination failed")[0]["error_class"] == error_class

    play(test)


def test_delays_grow_and_a_destination_is_given_up_after_its_last_retry(log: LogCapture) -> None:
    async def test() -> None:
        retry = {"initial_s": 0.01, "max_s": 0.04, "jitter": 0}
        async with (
            FarEnd(then_closes(nothing)) as far_end,
            Origin(destination(far_end, max_retries=4, retry=retry)) as origin,
        ):
            stream = origin.publish()
            feed = await origin.until(FeedState.ERROR)
            assert len(far_end.visits) == 5
            assert [line["retry_in_s"] for line in log.lines("Destination failed")] == [0.0] * 4
            assert [line["attempt"] for line in log.lines("Destination failed")] == [1, 2, 3, 4]
            assert len(log.lines("Destination given up")) == 1
            shown = feed.snapshot()
            assert (shown["status"], shown["failures"], shown["retry_in_s"]) == ("error", 5, None)
            # It stays to be seen until its stream ends.
            assert origin.out().snapshot()["status"] == "error"
            origin.unpublish(stream)
            assert origin.out().feeds == {}
            assert origin.out().snapshot()["failures"] == 5

    play(test)


def test_wrong_credentials_are_not_tried_again() -> None:
    async def test() -> None:
        script = refuses_connect("NetConnection.Connect.Rejected", "[ code=403 need auth; authmod=adobe ]")
        async with FarEnd(script) as far_end, Origin(destination(far_end)) as origin:
            origin.publish()
            feed = await origin.until(FeedState.ERROR)
            assert len(far_end.visits) == 1
            assert feed.snapshot()["last_error_class"] == "auth"

    play(test)


@pytest.mark.parametrize(
    "script",
    [
        refuses("NetStream.Publish.BadName", f"the stream key {KEY} is already in use"),
        then_closes(lambda visit: visit.create_stream()),
    ],
    ids=["refuses", "closes"],
)
def test_a_rejected_key_is_tried_again_slowly_and_never_shown(script: Script, log: LogCapture) -> None:
    async def test() -> None:
        retry = {"initial_s": 0.01, "max_s": 100, "jitter": 0}
        async with FarEnd(script) as far_end, Origin(destination(far_end, retry=retry)) as origin:
            origin.publish()
            feed = await origin.until(FeedState.WAITING)
            shown = feed.snapshot()
            assert shown["last_error_class"] == "rejected"
            assert shown["retry_in_s"] > 50
            everything = f"{shown} {origin.relay.snapshot()} {feed.last_error!r} {feed.config!r} {feed.target!r}"
            assert KEY not in everything + f"{feed._task!r}"
            assert len(far_end.visits) == 1

    play(test)


def test_a_key_that_was_good_before_is_tried_again_soon_when_it_is_busy() -> None:
    async def test() -> None:
        retry = {"initial_s": 0.01, "max_s": 100, "jitter": 0}
        busy = refuses("NetStream.Publish.BadName", "already publishing")  # our own last connection, not yet noticed
        far_end = FarEnd(grants, busy, busy, grants)
        async with far_end, Origin(destination(far_end, retry=retry)) as origin:
            stream = origin.publish()
            await flowing(origin, far_end, stream)
            far_end.last.reset()
            await far_end.until_visits(4)
            await origin.until(FeedState.CONNECTED)
            assert origin.feed().snapshot()["last_error_class"] == "rejected"

    play(test)


def test_attempts_are_counted_anew_after_a_stable_minute() -> None:
    async def test() -> None:
        async with (
            FarEnd(then_closes(nothing), then_closes(nothing), grants) as far_end,
            Origin(destination(far_end)) as origin,
        ):
            await flowing(origin, far_end, origin.publish(), 2)
            feed = origin.feed()
            now_s = asyncio.get_running_loop().time()
            assert feed.snapshot()["attempt"] == 2
            feed.tick(now_s + STABLE_S - 10)
            assert feed.snapshot()["attempt"] == 2
            feed.tick(now_s + STABLE_S + 1)
            assert feed.snapshot()["attempt"] == 0
            # The error and the counts stay.
            assert feed.snapshot()["last_error_class"] == "handshake"
            assert feed.snapshot()["failures"] == 2

    play(test)


async def nothing(visit: Visit) -> None:
    """Closes at once."""


# --- the backup


def with_backup(first: FarEnd, backup: FarEnd, **keys: Any) -> Any:
    return destination(first, backup_url=f"rtmp://127.0.0.1:{backup.port}/backup", **keys)


def test_the_backup_is_used_while_the_first_fails_and_the_first_again_when_it_recovers() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        first = FarEnd(grants, then_closes(nothing), held(gate))
        async with first, FarEnd(grants) as backup, Origin(with_backup(first, backup)) as origin:
            stream = origin.publish()
            sent = await flowing(origin, first, stream)
            assert not origin.feed().snapshot()["is_backup"]
            first.last.reset()
            await backup.until_visits(1)
            sent += append(stream, frames(10, start_ms=800, first_number=20))
            await backup.until_media(20)
            shown = origin.feed().snapshot()
            assert shown["is_backup"]
            assert shown["status"] == "connected"
            assert shown["url"] == f"rtmp://127.0.0.1:{backup.port}/backup/****"
            assert backup.last.commands[4].text(0) == KEY
            await first.until_visits(3)  # tried again all the while
            assert not backup.last.is_over
            gate.set()
            await eventually_async(lambda: backup.last.is_over, "the goodbye to the backup")
            assert backup.last.commands[-1].name == "deleteStream"
            sent += append(stream, frames(10, start_ms=1200, first_number=30))
            await first.until_media(20)
            shown = origin.feed().snapshot()
            assert (shown["is_backup"], shown["url"]) == (False, f"rtmp://127.0.0.1:{first.port}/live/****")
            at_first, at_backup = shown["url"], f"rtmp://127.0.0.1:{backup.port}/backup/****"
            states = [event for event in origin.events if isinstance(event, DestinationState)]
            assert [(one.state, one.url, one.is_backup) for one in states] == [
                ("connecting", at_first, False),
                ("connected", at_first, False),
                ("waiting", at_backup, True),
                ("connecting", at_backup, True),
                ("connected", at_backup, True),
                ("connected", at_first, False),
            ]
            arrived = [visit.media for visit in (first.visits[0], backup.visits[0], first.last)]
            assert is_monotonic([one for media in arrived for one in media])
            sounds = [one for media in arrived for one in of_type(AUDIO, media) if one.payload != AAC_CONFIG]
            assert sounds == [one for one in of_type(AUDIO, sent) if one.payload != AAC_CONFIG]
            shown = origin.out().snapshot()
            assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail

    play(test)


def test_where_both_fail_they_take_turns_until_the_last_retry() -> None:
    async def test() -> None:
        first, backup = FarEnd(then_closes(nothing)), FarEnd(then_closes(nothing))
        async with first, backup, Origin(with_backup(first, backup, max_retries=3)) as origin:
            origin.publish()
            await origin.until(FeedState.ERROR)
            assert (len(first.visits), len(backup.visits)) == (2, 2)

    play(test)


def test_wrong_credentials_at_the_first_leave_the_backup_and_are_asked_for_again_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, Retry]] = []

    def delay_s(policy: RetryPolicy, attempt: int, retry: Retry, chance: float) -> float:
        asked.append((attempt, retry))
        return 0.01

    monkeypatch.setattr(RetryPolicy, "delay_s", delay_s)

    async def test() -> None:
        no, busy = (refuses_connect("NetConnection.Connect.Rejected", why) for why in ("need auth", "busy"))
        first = FarEnd(no, no, busy, then_closes(nothing), swallows)
        async with first, FarEnd(grants) as backup, Origin(with_backup(first, backup)) as origin:
            await flowing(origin, backup, origin.publish())
            await first.until_visits(5)
            # After wrong credentials twice and a busy name slowly, after a broken handshake soon.
            assert asked == [(1, Retry.SLOWLY), (2, Retry.SLOWLY), (3, Retry.SLOWLY), (4, Retry.BACKOFF)]
            assert origin.feed().snapshot()["status"] == "connected"

    play(test)


def test_a_backup_that_fails_too_gives_the_first_its_turn() -> None:
    async def test() -> None:
        first = FarEnd(then_closes(nothing), grants)
        async with first, FarEnd(then_closes(nothing)) as backup, Origin(with_backup(first, backup)) as origin:
            await flowing(origin, first, origin.publish(), 1)
            assert not origin.feed().snapshot()["is_backup"]
            assert len(backup.visits) == 1

    play(test)


def test_a_feed_that_ends_on_its_backup_leaves_no_connection_behind() -> None:
    async def test() -> None:
        first = FarEnd(then_closes(nothing), hangs_after_connect)
        async with first, FarEnd(grants) as backup, Origin(with_backup(first, backup)) as origin:
            stream = origin.publish()
            await flowing(origin, backup, stream)
            await first.until_visits(2)
            origin.unpublish(stream)
            await eventually_async(lambda: first.last.is_over and backup.last.is_over, "both connections to end")
            await origin.until_over()

    play(test)


def test_the_backups_redirect_is_forgotten_when_the_first_is_back() -> None:
    other = FarEnd(grants)

    async def sends_away(visit: Visit) -> None:
        await visit.grant()
        visit.ask_to_reconnect(f"rtmp://127.0.0.1:{other.port}/other")

    async def test() -> None:
        gate = asyncio.Event()
        first = FarEnd(then_closes(nothing), held(gate))
        async with first, FarEnd(sends_away) as backup, other, Origin(with_backup(first, backup)) as origin:
            await flowing(origin, other, origin.publish())
            assert origin.feed().snapshot()["url"] == f"rtmp://127.0.0.1:{other.port}/other/****"
            gate.set()
            await eventually_async(
                lambda: origin.feed().snapshot()["url"] == f"rtmp://127.0.0.1:{first.port}/live/****", "the way back"
            )

    play(test)


# --- requests to reconnect


def test_a_request_to_reconnect_elsewhere_is_honoured_without_a_gap() -> None:
    there = FarEnd(grants)

    async def sends_away(visit: Visit) -> None:
        await visit.grant()
        await visit.until_media(43)
        visit.ask_to_reconnect(f"rtmp://127.0.0.1:{there.port}/other?token=t0ps-3cr3t")

    async def test() -> None:
        async with FarEnd(sends_away) as here, there, Origin(destination(here)) as origin:
            stream = origin.publish()
            await origin.until(FeedState.CONNECTED)
            sent = append(stream, [*preamble(), *frames(20)])
            await there.until_visits(1)
            await origin.until(FeedState.CONNECTED)
            sent += append(stream, frames(10, start_ms=800, first_number=20))
            expected = [*preface(800), *sent[43:]]
            await there.until_media(len(expected))
            assert of_type(AUDIO, there.last.media)[1:] == of_type(AUDIO, expected)[1:]
            assert there.last.commands[0].object["app"] == "other?token=t0ps-3cr3t"
            assert there.last.commands[4].text(0) == KEY
            shown = origin.feed().snapshot()
            assert shown["url"] == f"rtmp://127.0.0.1:{there.port}/other?****/****"
            assert "t0ps" not in f"{shown}"
            assert (shown["failures"], shown["reconnect_count"]) == (0, 1)
            assert shown["messages_sent"] + shown["messages_dropped"] == stream.log.tail
            # A failure there leads back to the address that was configured.
            there.last.reset()
            await here.until_visits(2)

    play(test)


def test_a_load_balancer_that_sends_us_on_before_publishing_is_followed() -> None:
    there = FarEnd(grants)

    async def sends_on(visit: Visit) -> None:
        await visit.accept_connect()
        visit.ask_to_reconnect(f"rtmp://127.0.0.1:{there.port}/live")

    async def test() -> None:
        async with FarEnd(sends_on) as here, there, Origin(destination(here)) as origin:
            await flowing(origin, there, origin.publish())
            assert origin.feed().snapshot()["failures"] == 0
            states = [event for event in origin.events if isinstance(event, DestinationState)]
            ports = [("connecting", here.port), ("connecting", there.port), ("connected", there.port)]
            assert [(one.state, one.url) for one in states] == [
                (state, f"rtmp://127.0.0.1:{port}/live/****") for state, port in ports
            ]

    play(test)


@pytest.mark.parametrize("is_before", [False, True], ids=["after the start", "before the start"])
def test_a_loop_of_requests_to_reconnect_ends_in_a_failure_and_a_delay(is_before: bool) -> None:
    async def always_asks(visit: Visit) -> None:
        await (visit.accept_connect() if is_before else visit.grant())
        visit.ask_to_reconnect()

    async def test() -> None:
        retry = {"initial_s": 100, "max_s": 100, "jitter": 0}
        async with FarEnd(always_asks) as far_end, Origin(destination(far_end, retry=retry)) as origin:
            origin.publish()
            feed = await origin.until(FeedState.WAITING)
            assert str(feed.last_error) == "asked to reconnect 6 times in a row"
            assert len(far_end.visits) == 6
            assert feed.snapshot()["retry_in_s"] > 50

    play(test)


def test_requests_to_reconnect_now_and_then_are_no_loop() -> None:
    async def asks_when_told(visit: Visit) -> None:
        await visit.grant()
        await visit.until_media(1)
        await asked.wait()
        asked.clear()
        visit.ask_to_reconnect()

    asked = asyncio.Event()

    async def test() -> None:
        async with FarEnd(asks_when_told) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            append(stream, [*preamble(), *frames(5)])
            for count in range(1, 9):
                await far_end.until_media(1)
                feed = await origin.until(FeedState.CONNECTED)
                feed.tick(asyncio.get_running_loop().time() + 10)
                asked.set()
                await far_end.until_visits(count + 1)
            assert origin.feed().snapshot()["failures"] == 0

    play(test)


@pytest.mark.parametrize(
    ("tc_url", "reason"),
    [
        ("http://elsewhere/live", "found http, expected an address that begins with rtmp:// or rtmps://"),
        ("/relative", "found no scheme, expected an address that begins with rtmp:// or rtmps://"),
        (f"rtmp://elsewhere/live/{KEY}/more", "it holds the stream key"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_ignored_and_the_same_place_tried(
    tc_url: str, reason: str, log: LogCapture
) -> None:
    async def sends_away(visit: Visit) -> None:
        await visit.grant()
        visit.ask_to_reconnect(tc_url)

    async def test() -> None:
        async with FarEnd(sends_away, grants) as far_end, Origin(destination(far_end)) as origin:
            await flowing(origin, far_end, origin.publish(), 1)
            assert log.lines("Destination redirect ignored")[0]["reason"] == reason

    play(test)


def test_a_redirect_that_ends_with_our_key_is_followed_and_the_key_not_shown() -> None:
    there = FarEnd(grants)

    async def sends_away(visit: Visit) -> None:
        await visit.grant()
        visit.ask_to_reconnect(f"rtmp://127.0.0.1:{there.port}/other/{KEY}")

    async def test() -> None:
        async with FarEnd(sends_away) as here, there, Origin(destination(here)) as origin:
            await flowing(origin, there, origin.publish())
            assert there.last.commands[0].object["app"] == "other"
            assert origin.feed().snapshot()["url"] == f"rtmp://127.0.0.1:{there.port}/other/****"

    play(test)


def test_a_redirect_from_rtmps_to_rtmp_is_ignored(log: LogCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    monkeypatch.setattr(feed_module, "_tls_context", lambda: client)

    async def sends_away(visit: Visit) -> None:
        await visit.grant()
        visit.ask_to_reconnect("rtmp://localhost:1/live")

    async def test() -> None:
        far_end = FarEnd(sends_away, grants, tls=server)
        async with far_end, Origin(destination(f"rtmps://localhost:{far_end.port}/live")) as origin:
            await flowing(origin, far_end, origin.publish(), 1)
            assert log.lines("Destination redirect ignored")[0]["reason"] == "it leads from rtmps to rtmp"
            assert origin.feed().snapshot()["url"] == f"rtmps://localhost:{far_end.port}/live/****"

    play(test)


def test_the_default_roots_are_those_of_the_system() -> None:
    context = feed_module._tls_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


# --- whether it flows, and who is slow


def test_a_destination_that_gets_media_flows() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            await flowing(origin, far_end, origin.publish())
            shown = origin.feed().snapshot()
            assert (shown["flowing"], shown["slow_side"]) == (True, None)
            assert shown["status"] == "connected"
            assert shown["queue_age_s"] == 0
            assert shown["bytes_sent"] > 0
            assert shown["last_send_age_s"] < 5
            for name in ("connect_time", "last_send_time"):
                age = datetime.now(UTC) - datetime.fromisoformat(shown[name])
                assert -1 < age.total_seconds() < 60, f"{name} is {shown[name]}"
            assert 0 <= shown["connected_duration"] <= shown["connected_total_s"] + 0.1

    play(test)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if five seconds had passed since the last media."""
    monkeypatch.setattr(feed_module, "NOT_FLOWING_S", 0.0)


@pytest.mark.usefixtures("no_patience")
def test_a_silent_publisher_is_named_as_the_slow_side() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            await flowing(origin, far_end, stream)
            shown = origin.out().snapshot()
            assert (shown["status"], shown["flowing"]) == ("connected", False)
            # On a busy machine it may be more than no second.
            assert re.fullmatch(r"publisher: silent for \d+ s", shown["slow_side"])
            assert stream.publisher is not None
            origin.server.streams.lose(stream, stream.publisher, 0.0)
            assert origin.feed().snapshot()["slow_side"] == "publisher: its connection is lost"

    play(test)


@pytest.mark.usefixtures("no_patience")
def test_a_picture_that_waits_for_its_keyframe_is_the_publishers_matter() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            append(stream, inter_frames(3, start_ms=40, first_number=1))
            await origin.until(FeedState.CONNECTED)
            assert far_end.last.media == []
            assert re.fullmatch(r"publisher: no keyframe for \d+ s", origin.feed().snapshot()["slow_side"])

    play(test)


@pytest.mark.usefixtures("no_patience")
def test_a_destination_that_takes_nothing_is_named_as_the_slow_side() -> None:
    async def stops_reading(visit: Visit) -> None:
        await visit.grant()
        visit.stop_reading()
        await gate.wait()
        visit.reset()

    gate = asyncio.Event()

    async def test() -> None:
        far_end = FarEnd(stops_reading, swallows, receive_buffer_bytes=8 << 10)
        async with far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            feed = await origin.until(FeedState.CONNECTED)
            append(stream, [*preamble(), *frames(100, size=100_000)])
            await eventually_async(lambda: feed._session and feed._session.link.is_blocked, "the socket to be full")
            shown = feed.snapshot()
            assert shown["queue_age_s"] > 1
            assert not shown["flowing"]
            assert re.fullmatch(r"destination: its connection has taken no bytes for \d+ s", shown["slow_side"])
            gate.set()

    play(test)


def test_answers_to_pings_are_no_media() -> None:
    async def pings(visit: Visit) -> None:
        await visit.grant()
        await gate.wait()
        visit.say(control(4, "000600000001"))

    gate = asyncio.Event()

    async def test() -> None:
        async with FarEnd(pings) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            feed = await origin.until(FeedState.CONNECTED)
            gate.set()
            await eventually_async(lambda: len(far_end.last.others) == 2, "the answer to the ping")
            loop = asyncio.get_running_loop()
            feed.tick(loop.time() + 1)
            shown = feed.snapshot()
            assert shown["bytes_sent"] > 0
            assert shown["last_send_age_s"] is None
            assert shown["time_to_first_media_s"] is None
            append(stream, [*preamble(), *frames(1)])
            await far_end.until_media(5)
            feed.tick(loop.time() + 100)
            assert feed.snapshot()["time_to_first_media_s"] >= 100
            first = feed.snapshot()["time_to_first_media_s"]
            append(stream, frames(1, start_ms=40))
            await far_end.until_media(7)
            feed.tick(loop.time() + 200)
            assert feed.snapshot()["time_to_first_media_s"] == first
            assert feed.last_send_s is not None

    play(test)


def test_media_that_is_there_leaves_with_the_connection() -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            append(stream, [*preamble(), *frames(3)])
            feed = await origin.until(FeedState.CONNECTED)
            shown = feed.snapshot()
            assert 0 <= shown["time_to_first_media_s"] < 10
            assert shown["last_send_age_s"] is not None

    play(test)


def test_every_thirty_seconds_there_is_one_line_of_report(log: LogCapture) -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            await flowing(origin, far_end, origin.publish())
            feed = origin.feed()
            now_s = asyncio.get_running_loop().time()
            for second in range(int(2 * REPORT_INTERVAL_S) + 2):
                feed.tick(now_s + second)
            reports = log.lines("Destination report")
            assert len(reports) == 2
            assert reports[0]["destination"] == "out"
            assert reports[0]["stream_key"] == "live/cam"
            assert reports[0]["status"] == "connected"
            assert reports[0]["messages_sent"] == 43
            assert reports[0].keys() >= {"flowing", "bytes_sent", "messages_dropped", "queue_age_s", "reconnect_count"}

    play(test)


# --- stopping


@pytest.mark.parametrize("script", [swallows, hangs_after_connect])
def test_a_feed_can_be_stopped_while_its_far_end_hangs(script: Script) -> None:
    async def test() -> None:
        async with FarEnd(script) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            await far_end.until_visits(1)
            feed = await origin.until(FeedState.CONNECTING)
            origin.unpublish(stream)
            await eventually_async(lambda: far_end.last.is_over, "the connection to be closed")
            await feed.wait_over()
            assert feed.state is FeedState.DISCONNECTED

    play(test)


def test_a_session_that_is_granted_at_the_very_moment_it_is_called_off_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Granted:
        is_finished = False

        def finish(self) -> None:
            self.is_finished = True

    session = Granted()
    gate = asyncio.Event()

    async def open_session(*arguments: Any, **options: Any) -> tuple[Granted, int]:
        await gate.wait()
        return session, 1

    monkeypatch.setattr(feed_module, "open_session", open_session)

    async def test() -> None:
        async with Origin(destination(nowhere())) as origin:
            stream = origin.publish()
            feed = await origin.until(FeedState.CONNECTING)
            await turns()
            gate.set()
            await turns(1)  # it is granted, and the feed not yet told
            feed._task.cancel()
            origin.unpublish(stream)
            await origin.until_over()
            assert session.is_finished

    play(test)


def test_a_feed_can_be_stopped_while_it_waits() -> None:
    async def test() -> None:
        async with Origin(destination(nowhere(), retry={"initial_s": 1000, "max_s": 1000})) as origin:
            stream = origin.publish()
            feed = await origin.until(FeedState.WAITING)
            origin.unpublish(stream)
            await feed.wait_over()
            assert feed.state is FeedState.DISCONNECTED
            assert feed.snapshot()["retry_in_s"] is None

    play(test)


def test_a_feed_waits_for_the_goodbye_of_the_one_before_it() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        gate = asyncio.Event()
        goodbye = loop.create_task(waits(gate))
        over: list[Feed] = []
        async with FarEnd(grants) as far_end, Origin() as origin:
            stream = origin.publish()
            feed = Feed(
                destination(far_end),
                stream,
                origin.server.fanout(stream),
                chunk_size=60_000,
                on_over=over.append,
                after=goodbye,
            )
            await turns(20)
            assert feed.state is FeedState.DISCONNECTED
            assert not far_end.visits
            gate.set()
            await far_end.until_visits(1)
            feed.stop()
            await feed.wait_over()
            assert over == [feed]

    play(test)


async def waits(gate: asyncio.Event) -> None:
    await gate.wait()


def test_what_a_destination_misses_for_good_is_counted_when_its_stream_ends() -> None:
    async def test() -> None:
        async with FarEnd(grants, swallows) as far_end, Origin(destination(far_end)) as origin:
            stream = origin.publish()
            sent = await flowing(origin, far_end, stream)
            far_end.last.reset()
            await far_end.until_visits(2)
            missed = append(stream, frames(10, start_ms=800, first_number=20))
            origin.unpublish(stream)
            await origin.until_over()
            shown = origin.out().snapshot()
            assert shown["messages_sent"] == len(sent)
            assert shown["dropped_by_reason"] == {"disconnected": len(missed)}

    play(test)
