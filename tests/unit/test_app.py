"""The wiring: what is checked before anything starts, reloads, hidden arguments, and a real process from end to end."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import resource
import signal
import socket
import sys
import time
import types
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from headrace import app
from headrace.errors import ConfigError
from headrace.options import ServeOptions
from headrace.protocol.chunks import encode_message
from headrace.relay.config import from_urls
from headrace.relay.feed import FeedState
from headrace.relay.session import DestinationSession, open_session
from headrace.relay.target import parse_target
from tests.helpers.far_end import FarEnd, grants
from tests.helpers.loops import run
from tests.helpers.media_bytes import Sent, frames, preamble
from tests.helpers.origin import LogCapture, Origin, destination
from tests.helpers.waiting import eventually_async
from tests.integration.child import Child

KEY = "k3y-0c4f-77aa"
SECOND_KEY = "s3cond-1b2d-99"
FILE_KEY = "f1le-key-5e6a"
TOKEN = "t0ken-4711-abcdef"
SOURCES = Path(app.__file__).parents[1]

FoundT = TypeVar("FoundT")


def write(path: Path, *destinations: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"destinations": destinations}), "utf-8")
    return path


# --- destinations of flags and file


def test_the_destinations_are_those_of_the_flags_and_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_KEY", FILE_KEY)
    path = write(tmp_path / "relay.json", {"name": "file", "url": "rtmp://b/live", "stream_key": "${RELAY_KEY}"})
    options = ServeOptions(relay_to=(f"rtmp://a/live/{KEY},rtmp://c/live",), relay_config=path)
    found = app._destinations(options)
    assert [config.name for config in found] == ["rtmp://a/live/****", "rtmp://c/live", "file"]
    assert found[2].target.name == FILE_KEY
    assert app._destinations(ServeOptions()) == []


@pytest.mark.parametrize(
    ("urls", "file", "message"),
    [
        (("srt://a/live",), None, "-relay-to: found srt, expected"),
        ((f"rtmp://a/live/{KEY}",), {"url": f"rtmp://a/live/{KEY}", "name": "x"}, "-relay-to and -relay-config: dest"),
        ((), {"url": "rtmp://a"}, "relay.json: destinations[0].url: found an address without an application"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_started(
    urls: tuple[str, ...],
    file: dict[str, Any] | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    monkeypatch.setattr("headrace.logs.configure", lambda *arguments: started.append("log"))
    monkeypatch.setattr(app, "_hide_arguments", lambda: started.append("title"))
    monkeypatch.setattr(app, "_serve", lambda *arguments: started.append("server"))
    path = write(tmp_path / "relay.json", file) if file is not None else None
    with pytest.raises(ConfigError) as caught:
        app.run(ServeOptions(relay_to=urls, relay_config=path))
    assert message in str(caught.value)
    assert KEY not in str(caught.value)
    assert started == []


def test_a_wrong_origin_is_told_before_anything_is_started_and_without_its_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    monkeypatch.setattr(app, "_serve", lambda *arguments: started.append("server"))
    with pytest.raises(ConfigError) as caught:
        app.run(ServeOptions(origin=("rtmp://a", f"http://b?token={KEY}")))
    assert str(caught.value) == "-origin: found http, expected an address that begins with rtmp:// or rtmps://"
    assert started == []


# --- reload


@pytest.fixture
def log() -> Iterator[LogCapture]:
    capture = LogCapture()
    yield capture
    capture.close()
    for secret in (KEY, SECOND_KEY, FILE_KEY):
        assert secret not in capture.text


def test_a_reload_reads_flags_and_file_again_and_keeps_what_is_unchanged(tmp_path: Path, log: LogCapture) -> None:
    async def test() -> None:
        async with FarEnd(grants) as kept, FarEnd(grants) as other:
            flag = f"rtmp://127.0.0.1:{kept.port}/live/{KEY}"
            one, two = (
                {"name": name, "url": f"rtmp://127.0.0.1:{other.port}/live", "stream_key": key}
                for name, key in (("one", FILE_KEY), ("two", SECOND_KEY))
            )
            options = ServeOptions(relay_to=(flag,), relay_config=write(tmp_path / "relay.json", one))
            async with Origin(*app._destinations(options)) as origin:
                origin.publish()
                names = list(origin.relay.destinations)
                feeds = [await origin.until(FeedState.CONNECTED, name=name) for name in names]
                write(tmp_path / "relay.json", one, two)
                app._reload(options, origin.relay)
                assert [origin.feed(name=name) for name in names] == feeds
                await origin.until(FeedState.CONNECTED, name="two")
                write(tmp_path / "relay.json", two)
                app._reload(options, origin.relay)
                assert sorted(origin.relay.destinations) == sorted([names[0], "two"])
                assert origin.feed(name=names[0]) is feeds[0]
                assert [line["destinations"] for line in log.lines("Reloaded")] == [3, 2]
                assert len(kept.visits) == 1

    run(uvloop.new_event_loop, test)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "line 1, column 2: "),
        (json.dumps({"destinations": [{"url": f"http://a/{FILE_KEY}"}]}), "destinations[0].url: found http"),
        (json.dumps({"destinations": [{"url": "rtmp://a/b", "stream_key": "${NOT_SET}"}]}), "NOT_SET is not set"),
    ],
)
def test_a_reload_of_a_wrong_file_changes_nothing(
    text: str | None, message: str, tmp_path: Path, log: LogCapture
) -> None:
    async def test() -> None:
        path = tmp_path / "relay.json"
        if text is not None:
            path.write_text(text, "utf-8")
        async with FarEnd(grants) as far_end, Origin(destination(far_end)) as origin:
            origin.publish()
            feed = await origin.until(FeedState.CONNECTED)
            app._reload(ServeOptions(relay_config=path), origin.relay)
            assert origin.feed() is feed
            (line,) = log.lines("Reload failed")
            assert message in line["error"]
            assert str(path) in line["error"]

    run(uvloop.new_event_loop, test)


# --- hidden arguments


@pytest.mark.parametrize(
    ("argv", "title"),
    [
        (["-relay-to", f"rtmp://a/live/{KEY}"], "-relay-to rtmp://a/live/****"),
        ([f"--relay-to=rtmps://a:1/live/{KEY}?x=y"], "--relay-to=rtmps://a:1/live/****"),
        (["-relay-to", f"rtmp://a/b/{KEY}, rtmp://c/d/{SECOND_KEY}"], "-relay-to rtmp://a/b/****,rtmp://c/d/****"),
        (["-relay-to", f"rtmp://a/live/two words {KEY}"], "-relay-to rtmp://a/live/****"),
        (["-relay-to", f"rtmp://a/live?token={KEY}"], "-relay-to rtmp://a/live/****"),
        (["-relay-to", f" RTMP://a/live/{KEY}"], "-relay-to RTMP://a/live/****"),
        (["-api-token", TOKEN], "-api-token ****"),
        ([f"-api-token={TOKEN}"], "-api-token=****"),
        (["--api-token", TOKEN, "-listen", ":1"], "--api-token **** -listen :1"),
        (["-api-token", "old-token-12", f"--api-token={TOKEN}"], "-api-token **** --api-token=****"),
        (["-listen", ":1", "-api-token"], None),
        (["-listen", ":1", "-relay-config", "relay.json"], None),
    ],
)
def test_keys_and_tokens_are_taken_out_of_the_process_title(
    argv: list[str], title: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    module = types.ModuleType("setproctitle")
    module.setproctitle = titles.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "setproctitle", module)
    monkeypatch.setattr(sys, "argv", ["rtmp-server", *argv])
    app._hide_arguments()
    assert titles == ([] if title is None else [f"rtmp-server {title}"])


def test_every_address_that_the_relay_takes_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (f"rtmp://h/a/{KEY}", f"\trtmp://h/a/b/c/{KEY}", f"rtmps://[::1]:1/a/{KEY}#{KEY}", f"rtmp://h/a//{KEY}"):
        assert from_urls([url])
        titles: list[str] = []
        module = types.ModuleType("setproctitle")
        module.setproctitle = titles.append  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "setproctitle", module)
        monkeypatch.setattr(sys, "argv", ["rtmp-server", f"-relay-to={url}"])
        app._hide_arguments()
        assert KEY not in titles[0]


def test_the_limit_of_descriptors_is_raised_to_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: raised.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    app._raise_descriptor_limit()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4096, 4096))
    app._raise_descriptor_limit()
    assert raised == [(4096, 4096)]


# --- a real process


class Process(Child):
    """`rtmp-server` on ports that the system picks, with its event log in the test's own folder."""

    def __init__(self, folder: Path, *flags: str, program: Sequence[str] = ("-m", "headrace", "serve")) -> None:
        command = [sys.executable, *program, "-listen", "127.0.0.1:0", "-data-dir", str(folder / "data"), *flags]
        path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {**os.environ, "PYTHONPATH": path, "RELAY_KEY": FILE_KEY}
        super().__init__("server", command, env=environ, cwd=folder)

    def logged(self, message: str, **fields: object) -> dict[str, Any]:
        """The first line with this message and these fields, once it is there."""

        def find() -> dict[str, Any] | None:
            for line in self.stderr:
                if line.startswith("{"):
                    record: dict[str, Any] = json.loads(line)
                    if record["msg"] == message and fields.items() <= record.items():
                        return record
            return None

        return self.wait_until(f"{message} {fields}", find)

    @property
    def title(self) -> bytes:
        """What whoever lists processes sees."""
        return Path(f"/proc/{self.pid}/cmdline").read_bytes()

    def port(self, message: str = "Listening") -> int:
        return int(self.logged(message)["addresses"][0].rpartition(":")[2])

    def fetch(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port("HTTP listening"), timeout=20)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def with_process(process: Process, test: Callable[[], Coroutine[Any, Any, FoundT]]) -> FoundT:
    try:
        return run(uvloop.new_event_loop, test)
    finally:
        process.close()


async def publish(port: int, name: str = "cam") -> DestinationSession:
    target = parse_target(f"rtmp://127.0.0.1:{port}/live")
    session, _ = await open_session(target, name, chunk_size=60_000, tls=None)
    return session


def send(session: DestinationSession, media: list[Sent]) -> None:
    for type_id, timestamp_ms, payload in media:
        session.link.write(
            encode_message(type_id, timestamp_ms, 1, payload, chunk_stream_id=type_id, chunk_size=60_000)
        )


class Stage:
    """A process with three destinations, two of which are there, and one publisher."""

    def __init__(self, folder: Path) -> None:
        self.one, self.two = FarEnd(grants), FarEnd(grants)
        self.folder = folder
        self.path = folder / "relay.json"
        self.in_file = {"name": "file", "url": f"rtmp://127.0.0.1:{self.two.port}/live", "stream_key": "${RELAY_KEY}"}
        write(self.path, self.in_file)
        self.process = Process(
            folder,
            "-log-format", "json", "-log-level", "debug", "-metrics-addr", "127.0.0.1:0", "-record-all",
            "-relay-to", f"rtmp://127.0.0.1:{self.one.port}/live/{KEY}, rtmp://127.0.0.1:1/live/{SECOND_KEY}",
            "-relay-config", str(self.path), f"-api-token={TOKEN}",
        )  # fmt: skip
        self.pages: list[bytes] = []

    async def fetch(
        self, method: str, page: str, body: Any = None, *, status: int = 200, has_token: bool = False
    ) -> bytes:
        headers = {"Authorization": f"Bearer {TOKEN}"} if has_token else {}
        found, answer = await asyncio.to_thread(self.process.fetch, method, page, body, **headers)
        assert found == status, answer
        self.pages.append(answer)
        return answer

    async def logged(self, message: str, **fields: object) -> dict[str, Any]:
        return await asyncio.to_thread(self.process.logged, message, **fields)

    async def until_flowing(self) -> list[Sent]:
        """Media at both destinations."""
        publisher = await publish(await asyncio.to_thread(self.process.port))
        for name in (f"rtmp://127.0.0.1:{self.one.port}/live/****", "file"):
            await self.logged("Destination connected", destination=name)
        assert [end.last.commands[4].text(0) for end in (self.one, self.two)] == [KEY, FILE_KEY]
        sent = [*preamble(), *frames(30)]
        send(publisher, sent)
        for far_end in (self.one, self.two):
            media = await far_end.until_media(len(sent))
            assert [one.payload for one in media] == [one.payload for one in sent]
        return sent

    def assert_no_secret(self) -> None:
        written = [file.read_bytes() for file in (self.folder / "data").rglob("*") if file.is_file()]
        everything = b"".join([self.process.output.encode(), *self.pages, *written])
        for secret in (KEY, SECOND_KEY, FILE_KEY, TOKEN):
            assert secret.encode() not in everything
        assert "traceback" not in self.process.output.lower()


def test_a_process_relays_is_asked_is_changed_and_shows_no_secret_anywhere(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    one, two, process = stage.one, stage.two, stage.process

    async def test() -> None:
        async with one, two:
            sent = await stage.until_flowing()
            title = process.title
            assert b"/live/****" in title
            for secret in (KEY, SECOND_KEY, TOKEN):
                assert secret.encode() not in title
            await check_pages(stage, len(sent))
            await check_changes(stage)
            await check_reload(stage)
            await stage.fetch("DELETE", "/api/streams/live/cam/publisher", status=204, has_token=True)
            await eventually_async(lambda: one.visits[0].is_over and two.visits[0].is_over, "the goodbyes")
            assert one.visits[0].commands[-1].name == "deleteStream"
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait) == 0

    with_process(process, test)
    stage.assert_no_secret()


async def check_pages(stage: Stage, count: int) -> None:
    health = json.loads(await stage.fetch("GET", "/health"))
    assert (health["total_destinations"], health["connected_destinations"]) == (3, 2)
    assert health["total_messages_sent"] == 2 * count
    for page in ("/", "/destinations", "/debug/vars", "/openapi.json", "/api/destinations"):
        await stage.fetch("GET", page)
    await stage.fetch("GET", "/nothing", status=404)
    (stream,) = json.loads(await stage.fetch("GET", "/streams"))["streams"]
    assert (stream["key"], stream["codecs"]["video"]) == ("live/cam", "h264")
    metrics = list(text_string_to_metric_families((await stage.fetch("GET", "/metrics")).decode()))
    up = next(family for family in metrics if family.name == "headrace_destination_up")
    assert sum(sample.value for sample in up.samples) == 2


async def check_changes(stage: Stage) -> None:
    await stage.fetch("DELETE", "/api/destinations/file", status=401)
    again = {"name": "again", "url": f"rtmp://127.0.0.1:{stage.one.port}/other", "stream_key": SECOND_KEY}
    await stage.fetch("POST", "/api/destinations", again, status=201, has_token=True)
    await stage.fetch("POST", "/api/destinations", again, status=400, has_token=True)
    await stage.one.until_visits(2)
    await stage.fetch("PATCH", "/api/destinations/again", {"enabled": False}, has_token=True)
    await eventually_async(lambda: stage.one.visits[1].is_over, "the goodbye")


async def check_reload(stage: Stage) -> None:
    """It keeps the connection of what did not change, and takes away what is not in the file."""
    new = {"name": "new", "url": f"rtmp://127.0.0.1:{stage.two.port}/new", "stream_key": FILE_KEY}
    write(stage.path, stage.in_file, new)
    stage.process.send_signal(signal.SIGHUP)
    await stage.two.until_visits(2)
    await stage.logged("Reloaded")
    assert sorted(json.loads(await stage.fetch("GET", "/destinations"))) == sorted(
        [f"rtmp://127.0.0.1:{stage.one.port}/live/****", "rtmp://127.0.0.1:1/live/****", "file", "new"]
    )
    stage.path.write_text("{")
    stage.process.send_signal(signal.SIGHUP)
    await stage.logged("Reload failed")
    assert not stage.one.visits[0].is_over
    assert not stage.two.visits[0].is_over


HANGING_RESOLVER = """
import socket, sys, time
look_up = socket.getaddrinfo
socket.getaddrinfo = lambda host, *a, **o: time.sleep(600) if host == "lost.example" else look_up(host, *a, **o)
from headrace.cli import rtmp_server
sys.exit(rtmp_server(sys.argv[1:]))
"""


def test_a_resolver_that_does_not_answer_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    process = Process(
        tmp_path, "-relay-to", f"rtmp://lost.example/live/{KEY}", "-telemetry", "off", program=("-c", HANGING_RESOLVER)
    )

    async def test() -> float:
        publisher = await publish(await asyncio.to_thread(process.port))
        await asyncio.to_thread(process.logged, "Destination connecting")
        started_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0
        publisher.link.close("over")
        return time.monotonic() - started_s

    assert (
        with_process(process, test) < 30
    )  # 600 without; generous, as a loaded machine may stop everything for seconds


@pytest.mark.parametrize("flag", ["-listen", "-http-status"])
def test_an_address_in_use_is_one_line_and_status_1(flag: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = Process(tmp_path, flag, address, "-log-level", "error")
        assert process.wait() == 1
        assert process.output == f"rtmp-server: cannot listen on {address}: Address already in use"


def test_a_wrong_file_is_one_line_status_2_and_nothing_started(tmp_path: Path) -> None:
    write(tmp_path / "relay.json", {"url": "rtmp://a/live", "stream_key": "${NOT_SET}"})
    process = Process(tmp_path, "-relay-config", "relay.json")
    assert process.wait() == 2
    assert process.output == (
        "headrace serve: relay.json: destinations[0].stream_key: the environment variable NOT_SET is not set"
    )
    assert not (tmp_path / "data").exists()
