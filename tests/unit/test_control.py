"""What the HTTP side shows and does, with a real server, real destinations and a real publisher behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace.control import Control
from headrace.errors import ConfigError
from headrace.protocol.chunks import encode_message
from headrace.record.service import RecordingService
from headrace.relay.feed import FeedState
from headrace.relay.session import DestinationSession, open_session
from headrace.relay.target import parse_target
from headrace.telemetry.event_log import EventLog
from headrace.telemetry.events import ServerStarted
from headrace.telemetry.identity import load_identity
from headrace.web.backend import NotFoundError
from tests.helpers.far_end import FarEnd, grants
from tests.helpers.loops import run
from tests.helpers.media_bytes import Sent, frames, preamble
from tests.helpers.origin import KEY, Origin, Viewer, append, destination
from tests.helpers.waiting import eventually_async


class Rig:
    """Everything behind the HTTP side."""

    def __init__(self, folder: Path, origin: Origin) -> None:
        self.origin = origin
        self.recordings = RecordingService(folder)
        self.control = Control(origin.server, self.recordings, origin.relay)

    async def publish(self, name: str = "cam") -> DestinationSession:
        """A real publisher; what it sends goes through `send`."""
        target = parse_target(f"rtmp://127.0.0.1:{self.origin.listen()}/live")
        session, _ = await open_session(target, name, chunk_size=60_000, tls=None)
        return session

    def stream(self, key: str = "live/cam") -> dict[str, Any]:
        (found,) = [stream for stream in self.control.streams() if stream["key"] == key]
        return found


def send(session: DestinationSession, media: list[Sent]) -> None:
    for type_id, timestamp_ms, payload in media:
        session.link.write(
            encode_message(type_id, timestamp_ms, 1, payload, chunk_stream_id=type_id, chunk_size=60_000)
        )


def play(folder: Path, test: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def with_rig() -> None:
        async with Origin() as origin:
            rig = Rig(folder, origin)
            await test(rig)
            await rig.recordings.close(5.0)

    run(uvloop.new_event_loop, with_rig)


# --- what is shown


def test_a_stream_is_shown_with_its_publisher_codecs_viewers_recorders_and_destinations(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        async with FarEnd(grants) as far_end:
            rig.origin.relay.add(destination(far_end))
            publisher = await rig.publish()
            (stream,) = rig.origin.server.streams
            rig.recordings.start(stream)
            viewer = await Viewer.of(rig.origin)
            send(publisher, [*preamble(), *frames(10)])
            await viewer.until_media(23)
            await rig.origin.until(FeedState.CONNECTED)
            await eventually_async(lambda: rig.stream()["recorders"], "the recording to begin")
            shown = rig.stream()
            assert (shown["app"], shown["name"], shown["state"]) == ("live", "cam", "live")
            assert shown["publisher"]["remote"].startswith("127.0.0.1:")
            assert shown["codecs"]["video"] == "h264"
            assert shown["codecs"]["audio"] == "aac"
            assert (shown["codecs"]["width"], shown["codecs"]["height"]) == (1280, 720)
            assert (shown["viewers"], shown["messages_in"]) == (1, 23)  # a destination is no viewer
            assert shown["destinations"] == {"out": "connected"}
            (recorder,) = shown["recorders"]
            assert Path(recorder).parent == tmp_path
            assert shown.keys() >= {"video_bps", "audio_bps", "frame_rate", "age_s", "bytes_in"}
            assert json.loads(json.dumps(rig.control.streams())) == rig.control.streams()
            await viewer.close()
            publisher.finish()

    play(tmp_path, test)


def test_a_stream_whose_publisher_is_lost_is_shown_without_one(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        publisher = await rig.publish()
        await eventually_async(lambda: rig.control.streams(), "the stream")
        publisher.link.close("lost")
        await eventually_async(lambda: rig.stream()["state"] == "grace", "the loss to be noticed")
        shown = rig.stream()
        assert (shown["publisher"], shown["codecs"], shown["video_bps"], shown["recorders"]) == (None, None, None, [])

    play(tmp_path, test)


def test_health_and_destinations_are_those_of_the_relay(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        async with FarEnd(grants) as far_end:
            rig.origin.relay.add(destination(far_end))
            append(rig.origin.publish(), [*preamble(), *frames(3)])
            await rig.origin.until(FeedState.CONNECTED)
            health, shown = rig.control.health(), rig.control.destinations()
            assert health["total_destinations"] == health["connected_destinations"] == 1
            assert health["destinations"].keys() == shown.keys() == {"out"}
            assert health.keys() >= {
                "failed_destinations",
                "total_messages_sent",
                "total_messages_dropped",
                "total_bytes_sent",
            }
            assert shown["out"].keys() >= {
                "url", "status", "last_error", "messages_sent", "messages_dropped", "bytes_sent", "connected_duration",
                "reconnect_count",
            }  # fmt: skip
            assert KEY not in json.dumps([health, shown])

    play(tmp_path, test)


def test_the_counters_tell_what_became_of_the_events(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        assert rig.control.counters()["events"] == {"written": 0, "lost": 0}, "there is no event log"
        log = EventLog(tmp_path / "data", load_identity(tmp_path / "data"), max_pending=0)
        log.emit(ServerStarted(version="1"))
        log._max_pending = 10
        log.emit(ServerStarted(version="1"))
        log.emit(ServerStarted(version="1"))
        assert log.close(10)
        control = Control(rig.origin.server, rig.recordings, rig.origin.relay, log)
        assert control.counters()["events"] == {"written": 2, "lost": 1}

    play(tmp_path, test)


def test_the_counters_are_those_of_the_server_and_its_recordings(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        publisher = await rig.publish()
        (stream,) = rig.origin.server.streams
        recorder = rig.recordings.start(stream)
        send(publisher, [*preamble(), *frames(10)])
        await eventually_async(lambda: stream.log.tail == 23, "the media")
        assert rig.control.counters()["recordings"]["active"] == 1
        publisher.finish()
        await recorder.wait_closed(20.0)
        counters = rig.control.counters()
        assert counters["messages_in"] == 23
        assert counters["publishes_started"] == 1
        assert counters["recordings"]["active"] == 0
        assert (counters["recordings"]["files"], counters["recordings"]["errors"]) == (1, 0)
        assert counters["recordings"]["tags"] >= 23
        assert json.loads(json.dumps(counters)) == counters

    play(tmp_path, test)


# --- what can be changed


def test_a_destination_is_added_changed_and_removed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        async with FarEnd(grants) as far_end:
            rig.origin.publish()
            body = {"name": "out", "url": f"rtmp://127.0.0.1:{far_end.port}/live", "stream_key": KEY}
            shown = rig.control.add_destination(body)
            assert shown["url"] == f"rtmp://127.0.0.1:{far_end.port}/live/****"
            await rig.origin.until(FeedState.CONNECTED)
            shown = rig.control.change_destination("out", {"enabled": False, "metadata": {"why": "lunch"}})
            assert (shown["enabled"], shown["metadata"]) == (False, {"why": "lunch"})
            await eventually_async(lambda: far_end.last.is_over, "the goodbye")
            rig.control.change_destination("out", {"enabled": True})
            await far_end.until_visits(2)
            assert far_end.last.commands == [] or far_end.last.commands[0].name == "connect"
            await rig.origin.until(FeedState.CONNECTED)
            assert far_end.last.commands[4].text(0) == KEY  # the key that was given at first
            rig.control.remove_destination("out")
            assert rig.control.destinations() == {}
            assert KEY not in json.dumps(shown)

    play(tmp_path, test)


def test_an_added_destination_reads_nothing_from_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "in-the-environment")

    async def test(rig: Rig) -> None:
        rig.control.add_destination({"name": "${SECRET_OF_OURS}", "url": "rtmp://127.0.0.1:1/${SECRET_OF_OURS}"})
        assert "in-the-environment" not in json.dumps(rig.control.destinations())

    play(tmp_path, test)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "destination.url: found nothing"),
        ([], "destination: found a list"),
        ({"url": f"http://h/{KEY}"}, "destination.url: found http"),
        ({"name": "taken", "url": "rtmp://h/live"}, 'destination.name: "taken" is used'),
        ({"name": "other", "url": f"rtmp://127.0.0.1:1/live/{KEY}"}, "destination.url: the same address and key"),
        ({"url": "rtmp://h/live", "key": KEY}, 'destination: unknown key "key"'),
    ],
)
def test_a_wrong_destination_is_refused_without_its_key(tmp_path: Path, body: Any, message: str) -> None:
    async def test(rig: Rig) -> None:
        rig.control.add_destination({"name": "taken", "url": "rtmp://127.0.0.1:1/live", "stream_key": KEY})
        with pytest.raises(ConfigError) as caught:
            rig.control.add_destination(body)
        assert str(caught.value).startswith(message)
        assert KEY not in str(caught.value)
        assert list(rig.control.destinations()) == ["taken"]

    play(tmp_path, test)


def test_a_wrong_change_changes_nothing(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        before = rig.control.add_destination({"name": "out", "url": "rtmp://127.0.0.1:1/live", "stream_key": KEY})
        for changes in ({"enabled": "no"}, {"name": "new"}, {"url": "rtmp://"}, {"retry": {"max_s": -1}}, "off", None):
            with pytest.raises(ConfigError):
                rig.control.change_destination("out", changes)
        assert rig.control.destinations() == {"out": before}

    play(tmp_path, test)


def test_an_unknown_destination_is_not_found(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        with pytest.raises(NotFoundError, match='There is no destination "none"'):
            rig.control.change_destination("none", {})
        with pytest.raises(NotFoundError, match='There is no destination "none"'):
            rig.control.remove_destination("none")

    play(tmp_path, test)


def test_a_publisher_is_dropped_and_its_stream_ends(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        publisher = await rig.publish()
        await rig.publish("other")
        await eventually_async(lambda: len(rig.control.streams()) == 2, "both streams")
        rig.control.drop_publisher("live/cam")
        assert [stream["key"] for stream in rig.control.streams()] == ["live/other"]
        await eventually_async(publisher.ended.done, "the publisher to be closed")
        for key in ("live/cam", "live/none", ""):
            with pytest.raises(NotFoundError, match=f'No stream "{key}" is being published'):
                rig.control.drop_publisher(key)

    play(tmp_path, test)
