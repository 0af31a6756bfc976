"""What a session tells the event log: typed facts whose sums are what was sent, and nothing a peer could break."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar, cast, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.net.fanout import Player
from headrace.net.link import Link
from headrace.server.media_watch import MediaWatch
from headrace.server.reporter import PlayRecord, SessionReporter
from headrace.stream.cursor import Cursor, SkipReason
from headrace.stream.log import LogLimits
from headrace.stream.registry import Stream
from headrace.telemetry import events
from headrace.telemetry.events import Event, field_types
from tests.helpers.media_bytes import (
    AUDIO,
    DATA,
    METADATA,
    VIDEO,
    Sent,
    aac_frame,
    frames,
    inter_frame,
    keyframe,
    preamble,
)
from tests.helpers.rtmp_client import RefusedError, RtmpClient
from tests.helpers.server_thread import ServerThread
from tests.helpers.waiting import eventually

EventT = TypeVar("EventT", bound=Event)


class Told:
    """Everything that was emitted; each value must be of the type that the contract gives it."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        for name, hint in field_types(type(event)).items():
            allowed = [getattr(one, "__origin__", one) for one in get_args(hint) or (hint,)]
            if getattr(hint, "__origin__", None) is dict:
                allowed = [dict]
            assert type(getattr(event, name)) in allowed, f"{event.type}.{name} is {getattr(event, name)!r}"
        self.events.append(event)

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[EventT]) -> EventT:
        [event] = self.of(kind)
        return event

    @property
    def types(self) -> list[str]:
        """In order, but for the samples: when those come depends on the clock."""
        return [event.type for event in self.events if not event.type.endswith("_sample")]


class FakeLink:
    def __init__(self) -> None:
        self.sent_bytes = 0
        self.is_blocked = False


class Reported:
    """A reporter with a stream to speak of."""

    def __init__(self) -> None:
        self.told = Told()
        self.reporter = SessionReporter(self.told, "c7", "viewer", 100.0)
        self.stream = Stream("live", "cam", LogLimits(), 100.0, "node.1")
        self.watch = MediaWatch(100.0)
        self.link = FakeLink()

    def publish(self, sent: Iterable[Sent], now_s: float = 100.0) -> None:
        for one in sent:
            self.watch.observe(self.stream.append(*one), now_s)

    def play(self, **options: Any) -> Player:
        return Player(Cursor(self.stream.log, **options), cast(Link, self.link), 1, lambda reason: None, since_s=100.0)

    def metadata(self, payload: bytes) -> events.MetadataReceived:
        self.reporter.metadata_received(self.stream, payload)
        return self.told.of(events.MetadataReceived)[-1]


# --- connections


def test_a_connection_is_told_when_it_opens_and_when_it_closes() -> None:
    one = Reported()
    one.reporter.connection_closed("closed by the peer", 102.5, 1000, 2000)
    assert one.told.events == [
        events.ConnectionOpened(conn="c7", viewer="viewer"),
        events.ConnectionClosed(
            conn="c7", reason="closed by the peer", duration_ms=2500, bytes_in_total=1000, bytes_out_total=2000
        ),
    ]


def test_a_clock_that_stands_still_gives_no_negative_duration() -> None:
    one = Reported()
    one.reporter.connection_closed("closed", 99.0, 0, 0)
    assert one.told.one(events.ConnectionClosed).duration_ms == 0


def test_what_a_peer_says_is_cut_to_what_a_person_reads() -> None:
    """Asking for a stream costs a peer nothing; with long names it could push everything else off the disk."""
    one = Reported()
    one.reporter.play_refused("live/" + "x" * 65_000, "NetStream.Play.StreamNotFound")
    one.reporter.publish_refused("live/" + "x" * 65_000, "NetStream.Publish.BadName")
    one.reporter.connection_closed("protocol error: " + "y" * 65_000, 100.0, 0, 0)
    one.metadata(_said(encoder=_text("z" * 65_000)))
    texts = [
        one.told.one(events.PlayRefused).stream,
        one.told.one(events.PublishRefused).stream,
        one.told.one(events.ConnectionClosed).reason,
        one.told.one(events.MetadataReceived).encoder,
    ]
    assert [len(text or "") for text in texts] == [200, 200, 200, 200]


# --- metadata


def _said(**properties: bytes) -> bytes:
    """onMetaData, an ECMA array (AMF0 2.10) of properties that are encoded already."""
    body = b"".join(len(name).to_bytes(2, "big") + name.encode() + value for name, value in properties.items())
    return b"\x02\x00\x0aonMetaData\x08" + len(properties).to_bytes(4, "big") + body + b"\x00\x00\x09"


def _number(value: float) -> bytes:
    return b"\x00" + struct.pack(">d", value)


def _text(value: str) -> bytes:
    return b"\x02" + len(value.encode()).to_bytes(2, "big") + value.encode()


def test_metadata_is_told_as_the_encoder_says_it() -> None:
    one = Reported()
    said = _said(
        width=_number(1280),
        height=_number(720),
        framerate=_number(29.97),
        videodatarate=_number(2500),
        audiodatarate=_number(128),
        encoder=_text("Lavf61.1.100"),
    )
    assert one.metadata(said) == events.MetadataReceived(
        stream="live/cam",
        stream_id="node.1",
        encoder="Lavf61.1.100",
        declared_width=1280.0,
        declared_height=720.0,
        declared_frame_rate=29.97,
        declared_video_kbps=2500.0,
        declared_audio_kbps=128.0,
    )


@pytest.mark.parametrize(
    "value",
    [*map(_number, (float("nan"), float("inf"), float("-inf"), 1e300)), _text("1280"), b"\x01\x01", b"\x05"],
    ids=["not a number", "infinite", "minus infinite", "absurd", "a text", "a boolean", "null"],
)
def test_what_is_no_number_is_none(value: bytes) -> None:
    found = Reported().metadata(_said(width=value, framerate=value, videodatarate=value, height=_number(720)))
    assert (found.declared_width, found.declared_frame_rate, found.declared_video_kbps) == (None, None, None)
    assert found.declared_height == 720.0


@pytest.mark.parametrize(
    "payload",
    [METADATA[:-10], b"\x02\x00\x0aonMetaData", b"\x02\x00\x0aonMetaData\x02\x00\x01x", _said(encoder=_number(1))],
    ids=["cut", "nothing", "a text", "an encoder that is a number"],
)
def test_metadata_that_cannot_be_read_says_nothing(payload: bytes) -> None:
    assert Reported().metadata(payload) == events.MetadataReceived(stream="live/cam", stream_id="node.1")


# --- publishers


def test_a_publication_is_told_with_its_stream_and_positions() -> None:
    one = Reported()
    one.reporter.publish_started(one.stream, resumed=False, now_s=100.0)
    one.publish([*preamble(), *frames(5)])
    one.reporter.publish_stopped(one.stream, "unpublished")
    started, stopped = one.told.one(events.PublishStarted), one.told.one(events.PublishStopped)
    assert (started.stream, started.stream_id, started.resumed, started.position) == ("live/cam", "node.1", False, 0)
    assert (stopped.conn, stopped.stream_id, stopped.reason, stopped.position) == ("c7", "node.1", "unpublished", 13)


def test_codecs_are_told_with_what_is_known_of_them() -> None:
    one = Reported()
    one.publish([*preamble(), *frames(2)])
    facts = one.watch.detected(200.0)
    assert facts is not None
    one.reporter.codec_detected(one.stream, facts)
    assert one.told.one(events.CodecDetected) == events.CodecDetected(
        stream="live/cam",
        stream_id="node.1",
        video="h264",
        video_profile="High",
        video_level="3.1",
        width=1280,
        height=720,
        frame_rate=30.0,
        audio="aac",
        audio_profile="LC",
        sample_rate=48000,
        channels=2,
    )


def test_a_sample_counts_what_came_since_the_last() -> None:
    one = Reported()
    one.reporter.publish_started(one.stream, resumed=False, now_s=100.0)
    one.publish(preamble(), 100.1)
    one.publish([Sent(VIDEO, 0, keyframe(0, 100)), Sent(AUDIO, 5, aac_frame(0, 20))], 100.2)
    one.reporter.sample_publication(one.stream, one.watch, 101.0)
    one.publish([Sent(VIDEO, 40, inter_frame(1, 50)), Sent(VIDEO, 30, inter_frame(2, 60))], 101.7)
    one.reporter.sample_publication(one.stream, one.watch, 102.25)
    one.reporter.sample_publication(one.stream, one.watch, 103.25)
    first, second, third = one.told.of(events.PublisherSample)
    headers = {message.type_id: len(message.payload) for message in preamble()}
    assert first == events.PublisherSample(
        conn="c7",
        stream="live/cam",
        stream_id="node.1",
        interval_ms=1000,
        video_bytes=100 + headers[VIDEO],
        audio_bytes=20 + headers[AUDIO],
        messages=5,
        frames=1,
        keyframes=1,
        media_ms=5,
        timestamp_ms=5,
        video_ms=0,
        audio_ms=5,
        max_gap_ms=100,
        backward_steps=0,
        position=5,
    )
    assert first.keyframe_interval_max_ms is None, "one keyframe is no interval"
    assert (second.interval_ms, second.messages, second.frames, second.keyframes) == (1250, 2, 2, 0)
    assert (second.video_bytes, second.audio_bytes) == (110, 0)
    assert (second.max_gap_ms, second.backward_steps, second.position) == (1500, 1, 7)
    assert (third.interval_ms, third.messages, third.video_bytes, third.max_gap_ms) == (1000, 0, 0, 0)
    assert (third.video_ms, third.audio_ms, third.position) == (30, 5, 7), "what is newest stays so"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["key", "inter", "audio", "data", "sample"]), max_size=60))
def test_the_sums_of_the_samples_are_what_was_sent(steps: list[str]) -> None:
    one = Reported()
    one.reporter.publish_started(one.stream, resumed=False, now_s=100.0)
    sent: list[Sent] = []
    for number, step in enumerate([*steps, "sample"]):
        if step == "sample":
            one.reporter.sample_publication(one.stream, one.watch, 100.0 + number)
            continue
        payloads = {"key": keyframe(number), "inter": inter_frame(number), "audio": aac_frame(number), "data": METADATA}
        kind = {"audio": AUDIO, "data": DATA}.get(step, VIDEO)
        sent.append(Sent(kind, number * 10, payloads[step]))
        one.publish(sent[-1:], 100.0 + number)
    samples = one.told.of(events.PublisherSample)
    assert sum(sample.messages for sample in samples) == len(sent) == samples[-1].position
    assert sum(sample.video_bytes for sample in samples) == sum(len(m.payload) for m in sent if m.type_id == VIDEO)
    assert sum(sample.audio_bytes for sample in samples) == sum(len(m.payload) for m in sent if m.type_id == AUDIO)
    assert sum(sample.frames for sample in samples) == sum(m.type_id == VIDEO for m in sent)
    assert sum(sample.keyframes for sample in samples) == steps.count("key")
    assert sum(sample.interval_ms for sample in samples) == 1000 * len(steps)


# --- players


def test_a_play_is_told_with_its_samples_and_their_sum() -> None:
    one = Reported()
    one.publish([*preamble(), *frames(10)])
    one.link.sent_bytes = 3000  # the handshake and what was said before
    player = one.play()
    record = PlayRecord(one.stream, one.link.sent_bytes, 100.0)
    one.reporter.play_started(one.stream)
    one.reporter.sample_play(record, player, 100.2)
    player.messages, one.link.sent_bytes, player.first_picture_s = 12, 5000, 100.25
    player.frames, player.keyframes, player.handed_s, player.max_gap_s = 6, 2, 100.9, 0.65
    one.reporter.sample_play(record, player, 101.0)
    one.link.is_blocked = True
    player.messages, one.link.sent_bytes = 20, 5500
    player.frames, player.keyframes = 10, 3
    player.cursor.position = one.stream.log.tail
    one.reporter.play_stopped(record, player, "stopped by player", 101.5)
    assert one.told.types == ["connection_opened", "play_started", "play_stopped"]
    none, first, last = one.told.of(events.SubscriberSample)
    assert (none.frames, none.keyframes, none.max_gap_ms, none.first_keyframe_ms) == (0, 0, 200, None)
    assert (first.frames, first.keyframes, first.max_gap_ms, first.first_keyframe_ms) == (6, 2, 650, 250)
    assert (last.frames, last.keyframes, last.max_gap_ms, last.first_keyframe_ms) == (4, 1, 600, 250)
    assert (first.media_ms, first.queue_age_ms) == (0, 360)
    assert (last.media_ms, last.queue_age_ms) == (360, 0)
    assert (first.interval_ms, first.bytes, first.messages, first.blocked) == (800, 2000, 12, False)
    assert (last.interval_ms, last.bytes, last.messages, last.blocked) == (500, 500, 8, True)
    assert first.position == 3, "the newest keyframe"
    assert one.told.one(events.PlayStopped) == events.PlayStopped(
        conn="c7",
        viewer="viewer",
        stream="live/cam",
        stream_id="node.1",
        reason="stopped by player",
        duration_ms=1500,
        first_keyframe_ms=250,
        messages_total=20,
        bytes_total=2500,
    )


def test_a_viewer_who_left_before_the_picture_has_no_time_to_it() -> None:
    one = Reported()
    one.reporter.play_stopped(PlayRecord(one.stream, 0, 100.0), one.play(), "closed by the peer", 103.0)
    stopped = one.told.one(events.PlayStopped)
    assert (stopped.first_keyframe_ms, stopped.duration_ms, stopped.messages_total) == (None, 3000, 0)


def test_drops_are_told_by_reason_and_once() -> None:
    one = Reported()
    player = one.play()
    record = PlayRecord(one.stream, 0, 100.0)
    player.cursor.skipped.update({SkipReason.LAG: 5})
    one.reporter.sample_play(record, player, 101.0)
    one.reporter.sample_play(record, player, 102.0)
    player.cursor.skipped.update({SkipReason.LAG: 2, SkipReason.NO_KEYFRAME: 3})
    one.reporter.sample_play(record, player, 103.0)
    samples = one.told.of(events.SubscriberSample)
    assert [sample.dropped for sample in samples] == [{"lag": 5}, {}, {"lag": 2, "no_keyframe": 3}]


def test_the_age_of_a_viewers_queue_is_media_it_has_not_got() -> None:
    one = Reported()
    one.publish([*preamble(), *frames(26, gop=100)])  # a second in 25 steps
    one.reporter.sample_play(PlayRecord(one.stream, 0, 100.0), one.play(), 101.0)
    assert one.told.one(events.SubscriberSample).queue_age_ms == 1000


# --- sessions over real connections


def _serve(**options: Any) -> tuple[Told, ServerThread]:
    told = Told()
    return told, ServerThread(emit=told, viewer_name=lambda remote: "somebody", stream_id_prefix="node.", **options)


def test_a_publisher_and_a_viewer_are_told_from_beginning_to_end() -> None:
    told, thread = _serve()
    with thread:
        publisher = RtmpClient.publish(thread.port, "cam")
        sent = publisher.send([*preamble(), *frames(20)])
        eventually(lambda: thread.server.metrics.messages_in == len(sent), "the stream")
        viewer = RtmpClient.play(thread.port, "cam")
        viewer.collect(5)
        publisher.finish()
        eventually(lambda: told.of(events.PlayStopped), "the end of the play")
        publisher.close()
        viewer.close()
        eventually(lambda: len(told.of(events.ConnectionClosed)) == 2, "both to be closed")
    assert told.types[:3] == ["connection_opened", "publish_started", "metadata"]
    assert Counter(told.types) == Counter(
        connection_opened=2,
        publish_started=1,
        metadata=1,
        codec_detected=1,
        play_started=1,
        publish_stopped=1,
        stream_ended=1,
        play_stopped=1,
        connection_closed=2,
    )
    order = [name for name in told.types if name in ("publish_stopped", "stream_ended", "play_stopped")]
    assert order == ["publish_stopped", "stream_ended", "play_stopped"]
    ended, stopped = told.one(events.StreamEnded), told.one(events.PublishStopped)
    assert (ended.position, stopped.position) == (len(sent), len(sent))
    assert (ended.reason, stopped.reason) == ("unpublished", "unpublished")
    assert {sample.stream_id for sample in told.of(events.PublisherSample)} == {"node.1"}
    assert told.one(events.PlayStopped).stream_id == "node.1"
    assert sum(sample.messages for sample in told.of(events.PublisherSample)) == len(sent)
    assert sum(sample.keyframes for sample in told.of(events.PublisherSample)) == 2
    play = told.one(events.PlayStopped)
    assert play.first_keyframe_ms is not None
    assert sum(sample.messages for sample in told.of(events.SubscriberSample)) == play.messages_total
    assert sum(sample.bytes for sample in told.of(events.SubscriberSample)) == play.bytes_total > 0
    last = told.of(events.SubscriberSample)[-1]
    assert last.first_keyframe_ms == play.first_keyframe_ms
    assert (last.media_ms, last.queue_age_ms) == (19 * 40, 0)
    # From the newest keyframe on.
    assert sum(sample.frames for sample in told.of(events.SubscriberSample)) == 10
    assert sum(sample.keyframes for sample in told.of(events.SubscriberSample)) == 1


def test_a_play_of_nothing_is_told_as_refused() -> None:
    told, thread = _serve()
    with thread:
        with pytest.raises(RefusedError):
            RtmpClient.play(thread.port, "nobody")
        eventually(lambda: told.of(events.ConnectionClosed), "the close")
    refused = told.one(events.PlayRefused)
    assert (refused.stream, refused.reason) == ("live/nobody", "NetStream.Play.StreamNotFound")
    assert not told.of(events.PlayStarted)
    assert not told.of(events.PlayStopped)


@pytest.mark.parametrize("name", ["cam", ""], ids=["taken", "no name"])
def test_a_publisher_that_gets_no_stream_is_told_as_refused(name: str) -> None:
    told, thread = _serve()
    with thread, RtmpClient.publish(thread.port, "cam"):
        with pytest.raises(RefusedError):
            RtmpClient.publish(thread.port, name)
        eventually(lambda: told.of(events.ConnectionClosed), "the close")
    refused = told.one(events.PublishRefused)
    assert refused == events.PublishRefused(
        conn="c2", viewer="somebody", stream=f"live/{name}", reason="NetStream.Publish.BadName"
    )
    assert [one.conn for one in told.of(events.PublishStarted)] == ["c1"]


@pytest.mark.parametrize("way", ["unpublished", "lost", "dropped", "replaced"])
def test_how_a_publisher_left_is_told(way: str) -> None:
    told, thread = _serve(grace_s=30.0)
    with thread:
        publisher = RtmpClient.publish(thread.port, "cam")
        sent = publisher.send([*preamble(), *frames(3)])
        eventually(lambda: thread.server.metrics.messages_in == len(sent), "the stream")
        match way:
            case "unpublished":
                publisher.finish()
            case "lost":
                publisher.reset()
            case "dropped":
                assert thread.call(lambda: thread.server.drop_publisher("live/cam"))
                publisher.wait_closed()
            case "replaced":
                thread.session("c1").last_received_s -= 100  # longer silent than the grace
                with RtmpClient.publish(thread.port, "cam") as successor:
                    successor.finish()
        eventually(lambda: told.of(events.PublishStopped), "the publisher to be gone")
        publisher.close()
    stopped = next(event for event in told.of(events.PublishStopped) if event.conn == "c1")
    assert (stopped.reason, stopped.position) == (way, len(sent))


def _until_gone(told: Told, count: int) -> None:
    eventually(lambda: len(told.of(events.PublishStopped)) == count, f"{count} publishers to be gone")


def test_a_publisher_that_comes_back_goes_on_with_its_stream_and_a_new_one_does_not() -> None:
    told, thread = _serve(grace_s=30.0)
    with thread:
        for number, ends in enumerate((False, True, True), 1):
            publisher = RtmpClient.publish(thread.port, "cam")
            publisher.send([*preamble(), *frames(3)])
            if ends:
                publisher.finish()
            else:
                eventually(lambda: thread.server.metrics.messages_in == 9, "the stream")
                publisher.reset()
            _until_gone(told, number)
            publisher.close()
    started = [(one.stream_id, one.resumed, one.position) for one in told.of(events.PublishStarted)]
    assert started == [("node.1", False, 0), ("node.1", True, 9), ("node.2", False, 0)]
    assert [one.stream_id for one in told.of(events.StreamEnded)] == ["node.1", "node.2"]
