"""The event log of a real server with real FFmpeg around it: it tells what happened, exactly that, and no secret."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import av
import pytest

from headrace.pipeline.sources.flv.options import FlvOptions
from headrace.pipeline.sources.flv.schema import TAG_SCHEMA
from headrace.pipeline.sources.flv.source import FlvReader
from tests.helpers.event_contract import assert_keeps_the_contract
from tests.helpers.sockets import free_port
from tests.integration.clips import Clip, ClipLibrary
from tests.integration.flv_tags import VIDEO, FlvTag, read_tags
from tests.integration.harness import PATIENT, SECRET, ServerProcess, Stage
from tests.integration.packets import assert_from_first_keyframe, packets_of

pytestmark = pytest.mark.integration

# The stream key of the destination: nowhere in the data directory.
KEY = "k3y-5ad0c1"

Line = dict[str, Any]


class EventLines:
    """What a server has written, once it has stopped: checked line by line against the contract."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = sorted(folder.glob("events/date=*/hour=*/*.jsonl"), key=lambda path: path.name)
        self.lines: list[Line] = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        for line in self.lines:
            assert_keeps_the_contract(line)

    def of(self, kind: str, **fields: object) -> list[Line]:
        return [
            line
            for line in self.lines
            if line["type"] == kind and all(line[name] == value for name, value in fields.items())
        ]

    def one(self, kind: str, **fields: object) -> Line:
        [line] = self.of(kind, **fields)
        return line

    def sum(self, kind: str, *names: str) -> int:
        return sum(line[name] for line in self.of(kind) for name in names)

    def assert_complete(self) -> None:
        """From the start to the stop of one run, without a hole."""
        assert [line["seq"] for line in self.lines] == list(range(1, len(self.lines) + 1))
        assert len({(line["node"], line["boot"]) for line in self.lines}) == 1
        assert self.lines[0]["type"] == "server_started"
        assert self.lines[-1]["type"] == "server_stopped"
        assert self.lines[-1]["events_lost_total"] == 0
        assert [path.name for path in (self.folder / "events-open").iterdir()] == []

    def assert_holds_nothing_of(self, *secrets: str) -> None:
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        assert paths
        for path in paths:
            text = path.read_text() + str(path)
            assert not [secret for secret in secrets if secret in text], f"a secret is in {path}"


def data_of(server: ServerProcess) -> Path:
    """The last of its -data-dir flags."""
    flags = server.command
    return Path(flags[len(flags) - flags[::-1].index("-data-dir")])


def told_by(server: ServerProcess) -> EventLines:
    """Stop the server and read what it has told."""
    server.stop()
    told = EventLines(data_of(server))
    told.assert_complete()
    told.assert_holds_nothing_of(SECRET, KEY)
    return told


def log_positions(recordings: Path, data_dir: Path) -> list[int | None]:
    """Of every tag, as the `flv` source tells it."""
    reader = FlvReader(FlvOptions.parse({"path": str(recordings), "events": str(data_dir)}), TAG_SCHEMA)
    return [
        place
        for part in reader.partitions()
        for batch in reader.read(part)
        for place in batch["log_position"].to_pylist()
    ]


def ranges(deliveries: Iterable[Line], position: int, start: int = 0) -> Counter[str]:
    """Messages by outcome; the ranges must be of one feed and tile everything from `start` to `position`."""
    listed = list(deliveries)
    assert len({line["feed"] for line in listed}) == 1
    assert [line["start"] for line in listed] == [start, *(line["stop"] for line in listed[:-1])], "a hole or overlap"
    assert listed[-1]["stop"] == position
    counts: Counter[str] = Counter()
    for line in listed:
        assert line["start"] < line["stop"]
        assert (line["reason"] is None) is (line["outcome"] == "delivered")
        counts[line["reason"] or "delivered"] += line["stop"] - line["start"]
    return counts


def dropped(samples: Iterable[Line]) -> Counter[str]:
    total: Counter[str] = Counter()
    for sample in samples:
        total.update(sample["dropped"])
    return +total


def ask(server: ServerProcess, page: str, *, method: str = "GET", body: object = None) -> Any:
    port = server.wait_for_log("HTTP listening")["addresses"][0].rpartition(":")[2]
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{page}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.loads(response.read() or b"null")


def messages_sent(server: ServerProcess) -> int:
    return int(ask(server, "/health")["total_messages_sent"])


def pictures(tags: Iterable[FlvTag]) -> tuple[int, int]:
    """Video frames and keyframes."""
    video = [tag for tag in tags if tag.type_id == VIDEO and tag.is_frame]
    return len(video), sum(tag.is_keyframe for tag in video)


def wait_for_messages(server: ServerProcess, count: int) -> None:
    """Until its destinations have taken so many."""
    server.wait_until(f"{count} messages sent on", lambda: messages_sent(server) >= count or None)


# --- the whole story


def test_a_destination_that_dies_and_comes_back_is_told_message_by_message(stage: Stage, clips: ClipLibrary) -> None:
    here, there = stage.folder / "here", stage.folder / "there"
    second = stage.server(*PATIENT, "-record-all", "-record-dir", there)
    port = second.port
    destination = {
        "name": "far",
        "url": f"rtmp://127.0.0.1:{port}/live",
        "stream_key": f"{KEY}?token={SECRET}",
        "retry": {"initial_s": 0.1, "max_s": 0.2},
    }
    config = stage.folder / "destinations.json"
    config.write_text(json.dumps({"destinations": [destination]}))
    first = stage.server("-relay-config", config, "-record-all", "-record-dir", here, "-http-status", ":0")
    publisher = stage.publish(clips["h264_aac"], first.url(), loops=True)
    first.wait_for_log("Destination connected")
    player = stage.play(first.url())
    wait_for_messages(first, 150)
    second.kill()
    first.wait_for_log("Destination failed", error_class="refused", count=2)
    again = stage.server(*PATIENT, "-record-all", "-record-dir", there, listen=f"127.0.0.1:{port}")
    again.wait_for_log("publish command")
    wait_for_messages(first, messages_sent(first) + 150)
    publisher.quit_by_signal()
    got = player.wait_ended()
    again.wait_for_log("Recording finished")
    first.wait_for_log("Recording finished")
    told = told_by(first)

    ended = told.one("stream_ended", stream="live/stream", reason="unpublished")
    assert told.sum("publisher_sample", "messages") == ended["position"]
    assert {line["stream_id"] for line in told.lines if "stream_id" in line} == {ended["stream_id"]}

    # The recorder has everything, and its file as many tags as the log had messages.
    recorder = ranges(told.of("delivery", reader="recorder"), ended["position"])
    assert recorder == Counter(delivered=ended["position"])
    opened, closed = told.one("recording_opened"), told.one("recording_closed")
    assert opened["path"] == closed["path"]
    assert opened["position"] == 0
    tags = read_tags(Path(closed["path"]))
    assert closed["tags_total"] == len(tags) == ended["position"]
    # Every tag is a message, so the place of the first frame in the file is its place in the log.
    first_frame = next(place for place, tag in enumerate(tags) if tag.is_frame)
    assert opened["frame_position"] == first_frame
    assert log_positions(here, data_of(first)) == [None] * first_frame + [*range(first_frame, len(tags))]
    assert closed["bytes_total"] == Path(closed["path"]).stat().st_size
    assert closed["error"] is None

    # The destination has all but what is said with its reason, and the samples say the same as the ranges.
    far = told.of("delivery", reader="destination", name="far")
    outcomes = ranges(far, ended["position"])
    assert set(outcomes) <= {"delivered", "not_connected", "no_keyframe"}
    assert told.sum("destination_sample", "messages") == outcomes["delivered"]
    # What came before its first connection was never for it, and is no drop.
    assert dropped(told.of("destination_sample")) == Counter({"no_keyframe": outcomes["no_keyframe"]}) + Counter()
    # What the second far end has recorded is what was delivered to it, with metadata and headers repeated before.
    after = sorted(there.glob("*.flv"), key=lambda path: path.stat().st_mtime)[-1]
    kept = read_tags(after)
    new_media = [tag for tag in kept if tag.is_frame]
    back_seq = told.of("destination_state", state="connected")[1]["seq"]
    delivered_after = [
        tags[position]
        for line in far
        if line["seq"] > back_seq and line["outcome"] == "delivered"
        for position in range(line["start"], line["stop"])
    ]
    assert [tag for tag in delivered_after if tag.is_frame] == new_media

    states = told.of("destination_state", destination="far")
    story = [state for state, _ in groupby((line["state"], line["error_class"]) for line in states)]
    assert story[:4] == [("connecting", None), ("connected", None), ("waiting", "reset"), ("connecting", None)]
    assert story[-3:] == [("connecting", None), ("connected", None), ("disconnected", None)]
    assert set(story[4:-3]) == {("connecting", None), ("waiting", "refused")}
    assert all(before != after for before, after in pairwise(line["state"] for line in states))
    attempts = [line["attempt"] for line in states if line["state"] == "waiting"]
    assert attempts == list(range(1, len(attempts) + 1))
    assert {line["url"] for line in states} == {f"rtmp://127.0.0.1:{port}/live/****"}
    # Nothing is delivered while it is not connected.
    waiting = [sample for sample in told.of("destination_sample") if sample["state"] in ("waiting", "connecting")]
    assert all(not sample["flowing"] for sample in waiting)

    # Frames are those of the messages that were delivered, although it was served by two connections.
    delivered = [tags[at] for line in far if line["reason"] is None for at in range(line["start"], line["stop"])]
    frames = told.sum("destination_sample", "frames"), told.sum("destination_sample", "keyframes")
    assert frames == pictures(delivered)
    feeds = {line["feed"] for line in told.lines if line.get("destination", line.get("name")) == "far"}
    assert len(feeds) == 1
    assert feeds.isdisjoint(line["feed"] for line in told.of("delivery", reader="recorder"))

    play = told.one("play_stopped")
    assert told.sum("subscriber_sample", "frames") == len(got.video)
    assert told.of("subscriber_sample")[-1]["first_keyframe_ms"] == play["first_keyframe_ms"]
    assert told.of("subscriber_sample")[-1]["media_ms"] == told.of("publisher_sample")[-1]["media_ms"]
    assert play["first_keyframe_ms"] is not None
    assert play["first_keyframe_ms"] < play["duration_ms"]
    assert told.sum("subscriber_sample", "messages") == play["messages_total"]
    assert told.sum("subscriber_sample", "bytes") == play["bytes_total"]
    assert play["viewer"] == told.one("play_started")["viewer"]


def test_a_destination_that_is_added_removed_and_added_again_has_a_proof_for_each_time(
    stage: Stage, clips: ClipLibrary
) -> None:
    there = stage.folder / "there"
    second = stage.server(*PATIENT, "-record-all", "-record-dir", there)
    first = stage.server("-record-all", "-record-dir", stage.folder / "here", "-http-status", ":0")
    destination = {"name": "far", "url": f"rtmp://127.0.0.1:{second.port}/live", "stream_key": KEY}
    publisher = stage.publish(clips["h264_aac"], first.url(), loops=True)
    first.wait_for_log("Recording started")
    for count in (1, 2):
        ask(first, "/api/destinations", method="POST", body=destination)
        wait_for_messages(first, 80)
        if count == 1:
            ask(first, "/api/destinations/far", method="DELETE")
            second.wait_for_log("Recording finished")
    publisher.quit_by_signal()
    second.wait_for_log("Recording finished", count=2)
    first.wait_for_log("Recording finished")
    written = ask(first, "/debug/vars")["events"]
    told = told_by(first)

    assert written["lost"] == 0
    assert 0 < written["written"] <= len(told.lines)
    ended = told.one("stream_ended")
    tags = read_tags(Path(told.one("recording_closed")["path"]))
    assert len(tags) == ended["position"]
    far = told.of("delivery", reader="destination")
    feeds = list(dict.fromkeys(line["feed"] for line in far))
    assert len(feeds) == 2
    assert feeds == list(dict.fromkeys(line["feed"] for line in told.of("destination_state")))
    files = sorted(there.glob("*.flv"), key=lambda path: path.stat().st_mtime)
    for feed, file in zip(feeds, files, strict=True):
        proof = [line for line in far if line["feed"] == feed]
        start = proof[0]["start"]
        assert tags[start].is_keyframe, "it is served from the newest keyframe on"
        outcomes = ranges(proof, proof[-1]["stop"], start)
        assert set(outcomes) <= {"delivered", "not_connected", "disconnected"}
        sent = [tags[at] for line in proof if line["reason"] is None for at in range(line["start"], line["stop"])]
        kept = read_tags(file)
        assert [tag for tag in sent if tag.is_frame] == [tag for tag in kept if tag.is_frame]
        samples = told.of("destination_sample", feed=feed)
        assert sum(sample["messages"] for sample in samples) == outcomes["delivered"] == len(sent)
        found = sum(sample["frames"] for sample in samples), sum(sample["keyframes"] for sample in samples)
        assert found == pictures(kept)
    assert far[-1]["stop"] == ended["position"]


# --- sums


def sent_by_ffmpeg(clip: Clip) -> dict[str, int]:
    """What PyAV finds in the clip, and what FFmpeg's muxer adds to each packet (FLV 10.1, E.4.2 and E.4.3)."""
    # Two bytes before AAC, five before AVC; the sequence header is the extradata behind the same bytes.
    overhead = {"audio": 2, "video": 5}
    sizes: Counter[str] = Counter()
    frames: list[bool] = []  # of video: is it a keyframe
    count = 0
    with av.open(str(clip.path)) as container:
        tracks = len(container.streams)
        for stream in container.streams:
            sizes[stream.type] += overhead[stream.type] + len(stream.codec_context.extradata or b"")
        for packet in container.demux():
            if packet.size:
                count += 1
                sizes[packet.stream.type] += packet.size + overhead[packet.stream.type]
                frames += [packet.is_keyframe] if packet.stream.type == "video" else []
    has_end = bool(frames)  # AVC's end of sequence, five bytes
    return {
        "video_bytes": sizes["video"] + 5 * has_end,
        "audio_bytes": sizes["audio"],
        "messages": count + tracks + 1 + has_end,  # headers, onMetaData
        "frames": len(frames),
        "keyframes": sum(frames),
    }


@pytest.mark.parametrize("name", ["h264_aac", "h264_b_frames", "h264_only", "aac_only"])
def test_the_samples_of_a_publisher_add_up_to_the_clip(stage: Stage, clips: ClipLibrary, name: str) -> None:
    clip = clips[name]
    server = stage.server(*PATIENT)
    stage.feed(clip, server.url("live/camera")).finish()
    server.wait_for_log("publisher disconnected")
    told = told_by(server)
    expected = sent_by_ffmpeg(clip)
    assert {field: told.sum("publisher_sample", field) for field in expected} == expected
    ended = told.one("stream_ended", stream="live/camera")
    assert ended["position"] == expected["messages"]
    sample = told.of("publisher_sample")[-1]
    assert sample["position"] == ended["position"]
    newest_ms = {
        kind: max((tag.timestamp_ms for tag in clip.tags if tag.type_id == kind and tag.is_frame), default=None)
        for kind in (8, 9)
    }
    assert (sample["audio_ms"], sample["video_ms"]) == (newest_ms[8], newest_ms[9])
    codecs = told.one("codec_detected")
    assert codecs["video"] == ("h264" if expected["frames"] else None)
    assert codecs["audio"] == (None if name == "h264_only" else "aac")
    if expected["frames"]:
        assert (codecs["width"], codecs["height"], codecs["frame_rate"]) == (640, 360, 25.0)
    encoder = told.one("metadata")
    assert encoder["encoder"].startswith("Lavf")
    connection = told.one("connection_closed")
    media_bytes = expected["video_bytes"] + expected["audio_bytes"]
    assert media_bytes < connection["bytes_in_total"] < media_bytes * 1.2 + 10_000


# --- publishers


def test_a_publisher_that_is_back_within_the_grace_goes_on_with_its_stream(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server("-publisher-grace", "30s", "-record-all", "-record-dir", stage.folder / "recordings")
    first = stage.publish(clips["h264_small"], server.url(), loops=True)
    server.wait_for_log("Recording started")
    first.kill()
    server.wait_for_log("publisher disconnected")
    second = stage.feed(clips["h264_small"], server.url())
    server.wait_for_log("Publisher is back")
    second.finish()
    server.wait_for_log("Recording finished")
    third = stage.feed(clips["h264_small"], server.url())
    third.finish()
    server.wait_for_log("Recording finished", count=2)
    told = told_by(server)
    started, stopped = told.of("publish_started"), told.of("publish_stopped")
    assert [line["resumed"] for line in started] == [False, True, False]
    assert [line["reason"] for line in stopped] == ["lost", "unpublished", "unpublished"]
    assert started[0]["stream_id"] == started[1]["stream_id"] != started[2]["stream_id"]
    assert [line["conn"] for line in started] == [line["conn"] for line in stopped]
    assert started[1]["position"] == stopped[0]["position"] > 0
    for ended in told.of("stream_ended"):
        of_stream = [line for line in told.of("delivery") if line["stream_id"] == ended["stream_id"]]
        assert ranges(of_stream, ended["position"]) == Counter(delivered=ended["position"])
        samples = told.of("publisher_sample", stream_id=ended["stream_id"])
        assert sum(sample["messages"] for sample in samples) == ended["position"]
    assert len(told.of("stream_ended")) == 2


def test_a_publisher_of_a_stream_that_is_taken_is_told_as_refused(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT)
    publisher = stage.feed(clips["h264_small"], server.url(), opening_ms=1000)
    server.wait_for_log("publish command")
    other = stage.publish(clips["h264_small"], server.url())
    assert other.wait() != 0
    server.wait_for_log("Publish refused")
    publisher.finish()
    told = told_by(server)
    refused, started = told.one("publish_refused"), told.one("publish_started")
    assert (refused["stream"], refused["reason"]) == ("live/stream", "NetStream.Publish.BadName")
    assert refused["conn"] != started["conn"]
    assert refused["viewer"] == told.one("connection_opened", conn=refused["conn"])["viewer"]


def test_a_destination_that_is_never_there_skips_everything(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT, "-relay-to", f"rtmp://127.0.0.1:{free_port()}/live/{KEY}")
    publisher = stage.feed(clips["h264_aac"], server.url())
    server.wait_for_log("Destination failed", error_class="refused")
    publisher.finish()
    server.wait_for_log("publisher disconnected")
    told = told_by(server)
    ended = told.one("stream_ended")
    assert ranges(told.of("delivery"), ended["position"]) == Counter(not_connected=ended["position"])
    assert told.sum("destination_sample", "messages", "bytes") == 0
    assert {line["error_class"] for line in told.of("destination_state", state="waiting")} == {"refused"}


def test_a_recording_that_fails_is_told_to_the_end_of_the_stream(stage: Stage, clips: ClipLibrary) -> None:
    (stage.folder / "taken").write_text("a file where the folder should be")
    server = stage.server(*PATIENT, "-record-all", "-record-dir", stage.folder / "taken" / "recordings")
    server.expected_errors.add("Recording failed")
    publisher = stage.feed(clips["h264_aac"], server.url())
    server.wait_for_log("Recording failed")
    publisher.finish()
    server.wait_for_log("publisher disconnected")
    told = told_by(server)
    ended = told.one("stream_ended")
    assert ranges(told.of("delivery", reader="recorder"), ended["position"]) == Counter(error=ended["position"])


# --- what is kept, and where


@pytest.mark.parametrize("stores", [False, True], ids=["hashed", "-store-addresses"])
def test_addresses_are_kept_only_if_the_operator_asks_for_it(stage: Stage, clips: ClipLibrary, stores: bool) -> None:
    server = stage.server(*PATIENT, *(["-store-addresses"] if stores else []))
    publisher = stage.feed(clips["h264_small"], server.url())
    server.wait_for_log("publish command")
    players = [stage.play(server.url()) for _ in range(2)]
    server.wait_for_log("Subscriber added", count=2)
    publisher.finish()
    for player in players:
        player.wait_ended()
    refused = stage.play(server.url("live/nobody"))
    assert refused.wait() != 0
    told = told_by(server)
    viewers = {line["viewer"] for line in told.lines if "viewer" in line}
    assert len(viewers) == 1, "one host is one viewer, whatever its port"
    [viewer] = viewers
    if stores:
        assert viewer == "127.0.0.1"
    else:
        assert len(viewer) == 16
        told.assert_holds_nothing_of("127.0.0.1")
    assert told.one("play_refused")["reason"] == "NetStream.Play.StreamNotFound"
    assert len(told.of("play_started")) == len(told.of("play_stopped")) == 2
    assert len(told.of("connection_opened")) == len(told.of("connection_closed")) == 4


def test_without_telemetry_nothing_is_written(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT, "-telemetry", "off")
    publish_and_play(stage, server, clips["h264_small"])
    server.stop()
    assert not data_of(server).exists()


def test_a_data_folder_that_cannot_be_written_stops_nothing_else(stage: Stage, clips: ClipLibrary) -> None:
    (stage.folder / "taken").write_text("a file where the folder should be")
    server = stage.server(*PATIENT, "-data-dir", stage.folder / "taken" / "data")
    server.expected_errors.add("Event log failed")
    publish_and_play(stage, server, clips["h264_small"])
    assert len(server.logged("Event log failed")) == 1
    server.stop()


def test_a_data_folder_that_fails_later_stops_nothing_else(stage: Stage, clips: ClipLibrary) -> None:
    """The node has its identity, but events cannot be finished: `events` is no folder."""
    folder = stage.folder / "data"
    folder.mkdir()
    (folder / "events").write_text("in the way")
    server = stage.server(*PATIENT, "-data-dir", folder)
    server.expected_errors.add("Event log failed")
    publish_and_play(stage, server, clips["h264_small"])
    server.stop()
    assert server.logged("Event log failed")
    (folder / "events").unlink()
    # Nothing is lost: the next start finds it.
    again = stage.server(*PATIENT, "-data-dir", folder)
    again.wait_for_log("Event log recovered")
    again.stop()
    assert len(EventLines(folder).of("publish_started")) == 1


def publish_and_play(stage: Stage, server: ServerProcess, clip: Clip) -> None:
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))


def test_what_a_killed_server_had_told_is_found_at_the_next_start(stage: Stage, clips: ClipLibrary) -> None:
    folder = stage.folder / "data"
    server = stage.server(*PATIENT, "-data-dir", folder)
    stage.publish(clips["h264_small"], server.url(), loops=True)

    def lines_left() -> list[str] | None:
        text = "".join(path.read_text() for path in (folder / "events-open").glob("*.jsonl"))
        return text.splitlines() if '"type":"publisher_sample"' in text else None

    left = server.wait_until("a sample on its way", lines_left)
    server.kill()
    again = stage.server(*PATIENT, "-data-dir", folder)
    again.wait_for_log("Event log recovered")
    again.stop()
    told = EventLines(folder)
    first_boot = told.lines[0]["boot"]
    before = [line for line in told.lines if line["boot"] == first_boot]
    after = [line for line in told.lines if line["boot"] != first_boot]
    for run in (before, after):
        assert [line["seq"] for line in run] == list(range(1, len(run) + 1))
    assert len({line["node"] for line in told.lines}) == 1
    assert json.loads(left[-1]) in before
    assert not told.of("server_stopped", boot=first_boot), "a run that did not say goodbye is known by that"
    assert [line["type"] for line in after] == ["server_started", "server_stopped"]


def test_a_port_that_is_taken_leaves_a_finished_log(stage: Stage) -> None:
    server = stage.server()
    folder = stage.folder / "data"
    other = ServerProcess("taken", "-data-dir", folder, listen=f"127.0.0.1:{server.port}")
    assert other.wait() == 1
    assert [line["type"] for line in EventLines(folder).lines] == ["server_started"]
    assert list((folder / "events-open").iterdir()) == []
