"""The registry: one publisher per stream, and what readers see when it leaves, comes back, or does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StreamError, UsageError
from headrace.stream.cadence import Due, Prepare
from headrace.stream.cursor import Cursor
from headrace.stream.log import LogLimits
from headrace.stream.registry import Stream, StreamRegistry, StreamState
from tests.helpers.media_bytes import (
    AAC_CONFIG,
    AUDIO,
    AVC_CONFIG,
    CUE_POINT,
    DATA,
    METADATA,
    VIDEO,
    aac_frame,
    inter_frame,
    keyframe,
)

GRACE_S = 5.0
WRAP = 1 << 32


@dataclass(eq=False)
class FakePublisher:
    last_received_s: float = 0.0
    displaced: int = 0

    def displace(self) -> None:
        self.displaced += 1

    def rest(self, until_s: float) -> float:
        return 0.0

    def expect(self, due: Due, prepare: Prepare) -> bool:
        return False


@dataclass(eq=False)
class FakeListener:
    appended: int = 0
    ended: list[str] = field(default_factory=list)

    def stream_appended(self) -> None:
        self.appended += 1

    def stream_ended(self, reason: str) -> None:
        self.ended.append(reason)


def make_registry(grace_s: float = GRACE_S) -> StreamRegistry:
    return StreamRegistry(limits=LogLimits(), grace_s=grace_s)


def publish(registry: StreamRegistry, now_s: float = 0.0, name: str = "a") -> tuple[Stream, FakePublisher]:
    publisher = FakePublisher(last_received_s=now_s)
    return registry.publish("live", name, publisher, now_s).stream, publisher


# --- who may publish


def test_a_published_stream_is_found_by_app_and_name() -> None:
    registry = make_registry()
    stream, publisher = publish(registry)
    assert registry.find("live", "a") is stream
    assert (stream.key, stream.app, stream.name, stream.publisher) == ("live/a", "live", "a", publisher)
    assert stream.state is StreamState.LIVE
    assert registry.find("live", "b") is None
    assert registry.find("other", "a") is None
    assert list(registry) == [stream]
    assert len(registry) == 1


def test_a_second_publisher_of_a_live_stream_is_refused_and_changes_nothing() -> None:
    registry = make_registry()
    stream, publisher = publish(registry)
    with pytest.raises(StreamError, match="a is already being published") as refused:
        publish(registry, 1.0)
    assert refused.value.code == "NetStream.Publish.BadName"
    assert stream.publisher is publisher
    assert publisher.displaced == 0


def test_a_stream_without_a_name_is_refused() -> None:
    with pytest.raises(StreamError, match="empty") as refused:
        make_registry().publish("live", "", FakePublisher(), 0.0)
    assert refused.value.code == "NetStream.Publish.BadName"


def test_streams_of_other_names_do_not_meet() -> None:
    registry = make_registry()
    first, _ = publish(registry, name="a")
    second, publisher = publish(registry, name="b")
    registry.unpublish(second, publisher, "done")
    assert list(registry) == [first]


def test_a_publisher_silent_for_longer_than_the_grace_is_replaced() -> None:
    registry = make_registry()
    stream, silent = publish(registry)
    silent.last_received_s = 10.0
    with pytest.raises(StreamError):
        publish(registry, 10.0 + GRACE_S)
    newcomer = FakePublisher(last_received_s=15.1)
    published = registry.publish("live", "a", newcomer, 15.1)
    assert published.is_resumed
    assert published.stream is stream
    assert stream.publisher is newcomer
    assert silent.displaced == 1


def test_what_happens_to_a_displaced_publisher_later_does_not_touch_the_stream() -> None:
    registry = make_registry()
    stream, silent = publish(registry)
    newcomer = FakePublisher(last_received_s=100.0)
    registry.publish("live", "a", newcomer, 100.0)
    registry.lose(stream, silent, 100.1)
    registry.unpublish(stream, silent, "late goodbye")
    assert registry.expire(1000.0) == []
    assert registry.find("live", "a") is stream
    assert (stream.state, stream.publisher) == (StreamState.LIVE, newcomer)


@pytest.mark.parametrize("grace_s", [0.0, 0.05])
def test_a_publisher_between_two_frames_is_not_silent_however_short_the_grace_is(grace_s: float) -> None:
    registry = make_registry(grace_s)
    stream, publisher = publish(registry)
    publisher.last_received_s = 10.0
    with pytest.raises(StreamError):
        publish(registry, 10.4)  # 2 frames a second are a slide show, not silence
    assert stream.publisher is publisher


def test_a_publisher_that_went_silent_can_be_replaced_without_a_grace() -> None:
    registry = make_registry(0.0)
    stream, silent = publish(registry)
    newcomer = FakePublisher(last_received_s=2.0)
    assert registry.publish("live", "a", newcomer, 2.0).stream is stream
    assert silent.displaced == 1


# --- how a stream ends


def test_an_unpublished_stream_ends_at_once() -> None:
    registry = make_registry()
    stream, publisher = publish(registry)
    listener = FakeListener()
    stream.add_listener(listener)
    registry.unpublish(stream, publisher, "unpublished")
    assert listener.ended == ["unpublished"]
    assert stream.state is StreamState.ENDED
    assert stream.publisher is None
    assert registry.find("live", "a") is None
    assert len(registry) == 0


def test_a_stream_that_ended_can_be_published_anew_as_another() -> None:
    registry = make_registry()
    old, publisher = publish(registry)
    registry.unpublish(old, publisher, "done")
    published = registry.publish("live", "a", FakePublisher(), 1.0)
    assert published.stream is not old
    assert not published.is_resumed
    assert published.stream.log.tail == 0
    registry.lose(old, publisher, 2.0)  # the old connection closes after its goodbye
    assert published.stream.state is StreamState.LIVE


def test_a_lost_publisher_leaves_its_stream_for_the_grace_period() -> None:
    registry = make_registry()
    stream, publisher = publish(registry)
    listener = FakeListener()
    stream.add_listener(listener)
    registry.lose(stream, publisher, 10.0)
    assert (stream.state, stream.publisher) == (StreamState.GRACE, None)
    assert registry.find("live", "a") is stream
    assert registry.expire(14.9) == []
    assert listener.ended == []
    assert registry.expire(15.0) == [stream]
    assert listener.ended == ["publisher did not come back within the grace period"]
    assert registry.find("live", "a") is None
    assert registry.expire(16.0) == []


def test_without_a_grace_a_lost_publisher_ends_the_stream_at_once() -> None:
    registry = make_registry(0.0)
    stream, publisher = publish(registry)
    listener = FakeListener()
    stream.add_listener(listener)
    registry.lose(stream, publisher, 1.0)
    assert listener.ended == ["publisher lost"]
    assert len(registry) == 0


def test_a_publisher_lost_twice_is_lost_once() -> None:
    registry = make_registry()
    stream, publisher = publish(registry)
    registry.lose(stream, publisher, 1.0)
    registry.lose(stream, publisher, 3.0)
    assert registry.expire(6.0) == [stream]


def test_a_publisher_that_comes_back_in_time_goes_on_with_the_same_readers() -> None:
    registry = make_registry()
    stream, publisher = publish(registry)
    listener = FakeListener()
    stream.add_listener(listener)
    registry.lose(stream, publisher, 10.0)
    published = registry.publish("live", "a", FakePublisher(last_received_s=12.0), 12.0)
    assert published.is_resumed
    assert published.stream is stream
    assert (stream.state, stream.publish_count) == (StreamState.LIVE, 2)
    assert registry.expire(1000.0) == []
    stream.append(AUDIO, 0, aac_frame())
    assert listener.appended == 1
    assert listener.ended == []


def test_the_end_of_everything_tells_every_reader_of_every_stream() -> None:
    registry = make_registry()
    listeners = []
    for name in "abc":
        stream, publisher = publish(registry, name=name)
        listeners.append(FakeListener())
        stream.add_listener(listeners[-1])
        if name == "b":
            registry.lose(stream, publisher, 0.0)
    registry.end_all("server shutdown")
    assert [listener.ended for listener in listeners] == [["server shutdown"]] * 3
    assert len(registry) == 0


def test_ending_a_stream_that_is_not_registered_is_our_own_mistake() -> None:
    registry = make_registry()
    stream, publisher = publish(registry)
    registry.unpublish(stream, publisher, "done")
    stream.publisher = publisher
    with pytest.raises(UsageError, match="live/a"):
        registry.unpublish(stream, publisher, "again")


# --- listeners


def test_listeners_are_told_of_each_message_until_they_leave() -> None:
    stream, _ = publish(make_registry())
    stays, leaves = FakeListener(), FakeListener()
    stream.add_listener(stays)
    stream.add_listener(leaves)
    stream.append(AUDIO, 0, aac_frame())
    stream.remove_listener(leaves)
    stream.remove_listener(leaves)
    stream.append(AUDIO, 20, aac_frame())
    assert (stays.appended, leaves.appended) == (2, 1)


def test_a_listener_that_leaves_while_it_is_told_does_not_cost_the_next_one_its_turn() -> None:
    stream, _ = publish(make_registry())

    class Leaver(FakeListener):
        def stream_appended(self) -> None:
            super().stream_appended()
            stream.remove_listener(self)

        def stream_ended(self, reason: str) -> None:
            super().stream_ended(reason)
            stream.remove_listener(self)

    leavers = [Leaver(), Leaver(), Leaver()]
    for leaver in leavers:
        stream.add_listener(leaver)
    stream.append(AUDIO, 0, aac_frame())
    assert [leaver.appended for leaver in leavers] == [1, 1, 1]
    for leaver in leavers:
        stream.add_listener(leaver)
    stream._end("done")
    assert [leaver.ended for leaver in leavers] == [["done"]] * 3


def test_a_longer_retention_holds_for_streams_that_are_there_and_those_to_come() -> None:
    registry = make_registry()
    before, _ = publish(registry, name="a")
    registry.retain(30.0)
    registry.retain(10.0)  # somebody else needs less
    after, _ = publish(registry, name="b")
    assert before.log.limits.retain_s == after.log.limits.retain_s == 30.0


# --- timestamps across a publisher's return


class Broadcast:
    """A stream whose publisher goes and comes; gives the timestamps that readers see."""

    def __init__(self) -> None:
        self.registry = make_registry()
        self.now_s = 0.0
        self.stream, self.publisher = publish(self.registry)

    def send(self, *timestamps: int) -> list[int]:
        return [self.stream.append(VIDEO, at, inter_frame()).timestamp_ms for at in timestamps]

    def come_back_after(self, away_s: float) -> None:
        self.registry.lose(self.stream, self.publisher, self.now_s)
        self.now_s += away_s
        self.stream, self.publisher = publish(self.registry, self.now_s)


def test_a_publisher_that_counts_from_zero_again_goes_on_where_readers_are() -> None:
    broadcast = Broadcast()
    assert broadcast.send(0, 40, 60_000) == [0, 40, 60_000]
    broadcast.come_back_after(2.0)
    assert broadcast.send(0, 40, 80) == [62_000, 62_040, 62_080]


def test_a_publisher_back_within_the_same_millisecond_still_moves_on() -> None:
    broadcast = Broadcast()
    broadcast.send(1000)
    broadcast.come_back_after(0.0)
    assert broadcast.send(0, 40) == [1001, 1041]


def test_a_publisher_whose_clock_ran_on_keeps_its_timestamps() -> None:
    broadcast = Broadcast()
    broadcast.send(0, 60_000)
    broadcast.come_back_after(2.0)
    assert broadcast.send(62_010, 62_050) == [62_010, 62_050]


def test_a_publisher_with_another_clock_altogether_follows_on() -> None:
    broadcast = Broadcast()
    broadcast.send(0, 60_000)
    broadcast.come_back_after(2.0)
    assert broadcast.send(5_000_000, 5_000_040) == [62_000, 62_040]


def test_metadata_and_headers_stamped_zero_do_not_decide_where_the_new_clock_stands() -> None:
    broadcast = Broadcast()
    broadcast.send(0, 3_600_000)
    broadcast.come_back_after(1.0)
    stream = broadcast.stream
    headers = [(DATA, METADATA), (VIDEO, AVC_CONFIG), (AUDIO, AAC_CONFIG), (DATA, CUE_POINT)]
    stamps = [stream.append(type_id, 0, payload).timestamp_ms for type_id, payload in headers]
    assert stamps == [0, 3_600_000, 3_600_000, 3_600_000]  # FFmpeg takes metadata at any other time for subtitles
    assert stream.append(VIDEO, 9_000_000, keyframe()).timestamp_ms == 3_601_000
    assert stream.append(AUDIO, 9_000_020, aac_frame()).timestamp_ms == 3_601_020


def test_a_publisher_that_comes_back_again_and_again_never_goes_back() -> None:
    broadcast = Broadcast()
    seen = broadcast.send(0, 1000)
    for _ in range(5):
        broadcast.come_back_after(0.5)
        seen += broadcast.send(0, 40, 1000)
    assert seen == sorted(seen)
    assert seen[-1] == 1000 + 5 * 1500
    broadcast.come_back_after(0.5)
    seen += broadcast.send(1500)  # this one's own clock ran on since its last start
    assert seen[-1] == 1000 + 5 * 1500 + 500


def test_a_return_across_the_end_of_the_32_bits_goes_on_from_there() -> None:
    broadcast = Broadcast()
    broadcast.send(WRAP - 1000)
    broadcast.come_back_after(2.0)
    assert broadcast.send(7_000_000, 7_000_040) == [1000, 1040]
    broadcast.come_back_after(1.0)
    assert broadcast.send(0) == [2040]


def test_a_clock_that_ran_on_across_the_end_of_the_32_bits_is_kept() -> None:
    broadcast = Broadcast()
    broadcast.send(WRAP - 1000)
    broadcast.come_back_after(2.0)
    assert broadcast.send(1010) == [1010]


def test_a_data_message_stamped_zero_before_the_loss_does_not_send_readers_back() -> None:
    broadcast = Broadcast()
    broadcast.send(0, 3_600_000)
    broadcast.stream.append(DATA, 0, CUE_POINT)
    broadcast.come_back_after(1.0)
    assert broadcast.send(0) == [3_601_000]


def test_the_offset_of_a_resumed_publisher_holds_for_its_sound_and_data_too() -> None:
    broadcast = Broadcast()
    broadcast.send(0, 10_000)
    broadcast.come_back_after(1.0)
    broadcast.send(0)
    assert broadcast.stream.append(AUDIO, 20, aac_frame()).timestamp_ms == 11_020
    assert broadcast.stream.append(DATA, 40, CUE_POINT).timestamp_ms == 11_040


def test_a_silent_publishers_absence_counts_from_what_was_last_heard_of_it() -> None:
    broadcast = Broadcast()
    broadcast.send(0, 10_000)
    broadcast.publisher.last_received_s = 10.0
    broadcast.registry.publish("live", "a", FakePublisher(last_received_s=17.0), 17.0)
    assert broadcast.send(0) == [17_000]


def test_a_reader_that_stayed_goes_on_without_a_gap_in_positions() -> None:
    broadcast = Broadcast()
    stream = broadcast.stream
    stream.append(VIDEO, 0, AVC_CONFIG)
    stream.append(VIDEO, 0, keyframe(0))
    cursor = Cursor(stream.log)
    first = cursor.take(1 << 20)
    broadcast.come_back_after(1.0)
    stream.append(VIDEO, 0, AVC_CONFIG)
    stream.append(VIDEO, 0, keyframe(1))
    second = cursor.take(1 << 20)
    assert [entry.position for entry in first[1:] + second] == [1, 2, 3]
    assert not cursor.skipped


@given(
    starts=st.lists(st.tuples(st.integers(0, WRAP - 1), st.integers(0, 5000)), min_size=1, max_size=8),
    steps=st.lists(st.integers(0, 500), min_size=1, max_size=8),
)
def test_readers_never_see_time_run_backwards_whatever_clock_comes_back(
    starts: list[tuple[int, int]], steps: list[int]
) -> None:
    broadcast = Broadcast()
    seen = broadcast.send(WRAP - 3000)
    for start_ms, away_ms in starts:
        broadcast.come_back_after(away_ms / 1000)
        for index in range(len(steps)):
            seen += broadcast.send((start_ms + sum(steps[:index])) & 0xFFFFFFFF)
    for earlier, later in pairwise(seen):
        assert (later - earlier) & 0xFFFFFFFF <= 5000 + 10_000 + 500


def test_readers_of_a_stream_are_told_apart_and_from_those_of_any_other() -> None:
    registry = StreamRegistry(limits=LogLimits(), grace_s=GRACE_S, id_prefix="node.boot.")
    streams = [registry.publish("live", name, FakePublisher(), 0.0).stream for name in ("a", "b")]
    assert [stream.new_reader_id() for stream in (*streams, *streams)] == [
        "node.boot.1/1",
        "node.boot.2/1",
        "node.boot.1/2",
        "node.boot.2/2",
    ]
