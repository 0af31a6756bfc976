"""Every page and every call, and every way to be refused: JSON with a code and a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import uvloop

from headrace import __version__
from headrace.net.listener import ListenError
from headrace.web import api as api_module
from headrace.web import server as server_module
from headrace.web.api import make_app
from headrace.web.server import HttpServer
from tests.helpers.loops import run
from tests.helpers.origin import LogCapture
from tests.helpers.waiting import eventually
from tests.unit.web.asgi import Answer, FakeBackend, ask, path_of, shown_stream

TOKEN = "t0ken-4711-abcdef"
NOON = datetime(2026, 1, 2, 12, 0, 0, 5000, tzinfo=UTC)
NEW = {"name": "two", "url": "rtmp://b.example/live", "stream_key": "s3cret-key"}


@pytest.fixture(autouse=True)
def log() -> Iterator[LogCapture]:
    capture = LogCapture()
    yield capture
    capture.close()
    assert TOKEN not in capture.text
    assert "s3cret-key" not in capture.text


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


class Site:
    """The application in front of a backend."""

    def __init__(self, backend: FakeBackend, token: str | None = None) -> None:
        self._app = make_app(backend, token=token, now=lambda: NOON)

    def get(self, path: str, **request: Any) -> Answer:
        return ask(self._app, "GET", path, **request)

    def ask(self, method: str, path: str, **request: Any) -> Answer:
        return ask(self._app, method, path, **request)


@pytest.fixture
def site(backend: FakeBackend) -> Site:
    return Site(backend)


# --- pages


def test_health_is_what_the_backend_says_with_the_time(site: Site, backend: FakeBackend) -> None:
    answer = site.get("/health")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {**backend.health(), "last_updated": "2026-01-02T12:00:00.005+00:00"}


def test_destinations_is_name_to_status(site: Site) -> None:
    assert site.get("/destinations").json == {"one": "connected"}


def test_streams_is_a_list(site: Site, backend: FakeBackend) -> None:
    assert site.get("/streams").json == {"streams": backend.listed}


def test_the_counters_are_json(site: Site, backend: FakeBackend) -> None:
    assert site.get("/debug/vars").json == backend.counters()


def test_metrics_is_the_text_that_prometheus_reads(site: Site) -> None:
    answer = site.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'\nheadrace_destination_up{destination="one"} 1.0\n' in answer.body


def test_the_first_page_names_the_others(site: Site) -> None:
    front = site.get("/").json
    assert front["version"] == __version__
    assert {"/health", "/destinations", "/streams", "/metrics", "/debug/vars", "/openapi.json"} <= set(front["pages"])
    for page in front["pages"]:
        if "{" not in page:
            assert site.get(page).status == 200, page


def test_a_page_can_be_asked_for_without_its_body(site: Site) -> None:
    # The HTTP server leaves the body off; the status and the type are those of the page.
    assert site.ask("HEAD", "/health").status == 200


@pytest.mark.parametrize("client", [("203.0.113.9", 1), None])
def test_pages_are_for_everybody_who_can_reach_them(site: Site, client: tuple[str, int] | None) -> None:
    headers = {"host": "relay.example", "origin": "https://grafana.example"}
    for page in ("/", "/health", "/destinations", "/streams", "/metrics", "/debug/vars", "/api/destinations"):
        assert site.get(page, client=client, headers=headers).status == 200


def test_names_that_are_no_utf_8_do_not_break_a_page(site: Site, backend: FakeBackend) -> None:
    backend.listed.append(shown_stream("live", "caf\udce9"))  # Latin-1, as some encoders send it
    backend.shown["one"]["last_error"] = "refused: d\udce9sol\udce9"
    assert site.get("/streams").json["streams"][1]["name"] == "caf\udce9"
    assert site.get("/health").json["destinations"]["one"]["last_error"] == "refused: d\udce9sol\udce9"
    assert site.get("/metrics").status == 200


# --- the API


def test_all_destinations_are_listed_and_one_is_found_by_its_name(site: Site, backend: FakeBackend) -> None:
    assert site.get("/api/destinations").json == {"destinations": [backend.shown["one"]]}
    assert site.get("/api/destinations/one").json == backend.shown["one"]


def test_a_destination_is_added(site: Site, backend: FakeBackend, log: LogCapture) -> None:
    answer = site.ask("POST", "/api/destinations", body=NEW)
    assert answer.status == 201
    assert answer.json == backend.shown["two"]
    assert backend.bodies == [NEW]
    (line,) = log.lines("API call")
    assert (line["method"], line["path"], line["status"]) == ("POST", "/api/destinations", 201)


def test_a_destination_is_changed(site: Site, backend: FakeBackend) -> None:
    answer = site.ask("PATCH", "/api/destinations/one", body={"enabled": False})
    assert (answer.status, answer.json["enabled"]) == (200, False)
    assert backend.bodies == [{"enabled": False}]


def test_a_destination_is_removed(site: Site, backend: FakeBackend) -> None:
    answer = site.ask("DELETE", "/api/destinations/one")
    assert (answer.status, answer.body) == (204, b"")
    assert backend.shown == {}


@pytest.mark.parametrize("name", ["rtmp://a.example:1940/live/****", "a/b", "YouTube Live #2", "Käse?=&", "100%"])
def test_a_name_of_any_kind_goes_into_the_path_url_encoded(name: str, site: Site, backend: FakeBackend) -> None:
    backend.shown[name] = {**backend.shown["one"], "name": name}
    assert site.get(path_of(name)).json["name"] == name
    assert site.ask("PATCH", path_of(name), body={"match": "live/*"}).json["match"] == "live/*"
    assert site.ask("DELETE", path_of(name)).status == 204
    assert list(backend.shown) == ["one"]


def test_a_publisher_is_dropped(site: Site, backend: FakeBackend) -> None:
    backend.listed.append(shown_stream("live/eu", "cam"))
    assert site.ask("DELETE", "/api/streams/live/cam/publisher").status == 204
    assert site.ask("DELETE", "/api/streams/live%2Feu%2Fcam/publisher").status == 204
    assert backend.dropped == ["live/cam", "live/eu/cam"]


# --- refusals


@pytest.mark.parametrize(
    ("method", "path", "body", "error"),
    [
        ("GET", "/nothing", None, (404, "no_such_page")),
        ("GET", "/health/more", None, (404, "no_such_page")),
        ("GET", "/api", None, (404, "no_such_page")),
        ("POST", "/health", None, (405, "method_not_allowed")),
        ("PUT", "/api/destinations", None, (405, "method_not_allowed")),
        ("POST", "/api/destinations/one", None, (405, "method_not_allowed")),
        ("GET", "/api/streams/live/cam/publisher", None, (405, "method_not_allowed")),
        ("GET", "/api/destinations/none", None, (404, "not_found")),
        ("GET", "/api/destinations/", None, (404, "not_found")),
        ("PATCH", "/api/destinations/none", {}, (404, "not_found")),
        ("DELETE", "/api/destinations/none", None, (404, "not_found")),
        ("DELETE", "/api/streams/live/none/publisher", None, (404, "not_found")),
        ("POST", "/api/destinations", {}, (400, "bad_input")),
        ("POST", "/api/destinations", [], (400, "bad_input")),
    ],
)
def test_what_cannot_be_done_is_told_in_json(
    method: str, path: str, body: Any, error: tuple[int, str], site: Site
) -> None:
    assert site.ask(method, path, body=body).error == error


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/health", "GET, HEAD"),
        ("PUT", "/api/destinations", "GET, HEAD, POST"),
        ("POST", "/api/destinations/one", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/api/streams/live/cam/publisher", "DELETE"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str, site: Site) -> None:
    assert site.ask(method, path).headers["allow"] == allowed


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"a":}', b"\xff\xfe", b"[" * 10_000, b"1" * 5000, b"{'a': 1}"],
)
def test_a_body_that_is_no_json_is_bad_input(raw: bytes, site: Site, backend: FakeBackend) -> None:
    answer = site.ask("POST", "/api/destinations", raw=raw, headers={"content-type": "application/json"})
    assert answer.error == (400, "bad_input")
    assert backend.bodies == []


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"]
)
def test_a_body_of_another_type_is_refused_since_a_form_could_send_it(kind: str | None, site: Site) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = site.ask("POST", "/api/destinations", raw=json.dumps(NEW).encode(), headers=headers)
    assert answer.error == (415, "not_json")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/json;x"])
def test_the_type_may_be_written_in_any_way(kind: str, site: Site) -> None:
    answer = site.ask("POST", "/api/destinations", raw=json.dumps(NEW).encode(), headers={"content-type": kind})
    assert answer.status == 201


@pytest.mark.parametrize("parts", [1, 7, 1000])
def test_a_body_has_a_limit_however_it_comes(parts: int, site: Site, backend: FakeBackend) -> None:
    at_most = json.dumps({**NEW, "metadata": {"a": ""}}).encode()
    at_most = at_most.replace(b'""', b'"' + b"x" * ((64 << 10) - len(at_most)) + b'"')
    assert len(at_most) == 64 << 10
    headers = {"content-type": "application/json"}
    assert site.ask("POST", "/api/destinations", raw=at_most, parts=parts, headers=headers).status == 201
    too_much = site.ask("POST", "/api/destinations", raw=at_most + b" ", parts=parts, headers=headers)
    assert too_much.error == (413, "too_large")
    assert len(backend.bodies) == 1


def test_a_mistake_of_ours_is_told_without_its_details_and_logged_with_them(
    site: Site, backend: FakeBackend, log: LogCapture
) -> None:
    backend.is_broken = True
    answer = site.get("/health")
    assert answer.error == (500, "internal")
    assert b"mistake of ours" not in answer.body
    (line,) = log.lines("HTTP handler failed")
    assert "a mistake of ours" in line["traceback"]
    backend.is_broken = False
    assert site.get("/health").status == 200


CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/api/destinations", NEW),
    ("PATCH", "/api/destinations/one", {"enabled": False}),
    ("DELETE", "/api/destinations/one", None),
    ("DELETE", "/api/streams/live/cam/publisher", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"client": ("203.0.113.9", 1)}, (403, "not_local")),
        ({"client": None}, (403, "not_local")),
        ({"headers": {"host": "evil.example"}}, (403, "foreign_host")),
        ({"headers": {"origin": "http://evil.example"}}, (403, "foreign_origin")),
        ({"headers": {"origin": "null"}}, (403, "foreign_origin")),
    ],
)
def test_without_a_token_changes_are_for_programs_on_this_machine(
    method: str,
    path: str,
    body: Any,
    request_: dict[str, Any],
    error: tuple[int, str],
    site: Site,
    backend: FakeBackend,
) -> None:
    assert site.ask(method, path, body=body, **request_).error == error
    assert (list(backend.shown), backend.bodies, backend.dropped) == (["one"], [], [])


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_with_a_token_every_change_must_show_it(method: str, path: str, body: Any, backend: FakeBackend) -> None:
    site = Site(backend, TOKEN)
    for headers in ({}, {"authorization": "Bearer wrong-token-1"}, {"authorization": f"Basic {TOKEN}"}):
        answer = site.ask(method, path, body=body, headers=headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.error[1] in ("token_missing", "token_wrong")
    assert (list(backend.shown), backend.bodies, backend.dropped) == (["one"], [], [])
    answer = site.ask(
        method,
        path,
        body=body,
        client=("203.0.113.9", 1),
        headers={"authorization": f"Bearer {TOKEN}", "host": "r.example"},
    )
    assert answer.status in (200, 201, 204)


def test_a_refused_change_is_not_in_the_log_as_one_that_was_made(site: Site, log: LogCapture) -> None:
    site.ask("DELETE", "/api/destinations/one", client=("203.0.113.9", 1))
    site.ask("DELETE", "/api/destinations/none")
    assert log.lines("API call") == []


# --- over a real connection


def served(
    test: Callable[[int], None], backend: FakeBackend, *, token: str | None = None, host: str | None = None
) -> None:
    """Run a blocking test in a thread beside the real HTTP server."""

    async def serve() -> None:
        server = HttpServer(make_app(backend, token=token))
        addresses = server.start(host, 0)
        try:
            await asyncio.to_thread(test, int(addresses[0].rpartition(":")[2]))
        finally:
            await server.close()

    run(uvloop.new_event_loop, serve)


def fetch(
    port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


JSON = {"Content-Type": "application/json"}


def test_pages_and_calls_work_over_http(backend: FakeBackend) -> None:
    def test(port: int) -> None:
        status, headers, body = fetch(port, "GET", "/health")
        assert (status, json.loads(body)["total_destinations"]) == (200, 1)
        assert "server" not in headers  # nobody needs to know what we are made of
        assert fetch(port, "HEAD", "/health")[2] == b""
        assert fetch(port, "POST", "/api/destinations", json.dumps(NEW).encode(), JSON)[0] == 201
        assert fetch(port, "DELETE", path_of("two"))[0] == 204
        assert fetch(port, "GET", "/nothing")[0] == 404
        assert b"headrace_build_info" in fetch(port, "GET", "/metrics")[2]

    served(test, backend)


def test_several_requests_share_a_connection(backend: FakeBackend) -> None:
    def test(port: int) -> None:
        connection = http.client.HTTPConnection("localhost", port, timeout=20)
        for path, status in (("/health", 200), ("/nothing", 404), ("/streams", 200)):
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == status
            answer.read()
        connection.close()

    served(test, backend)


def test_a_body_that_is_too_long_is_refused_over_http(backend: FakeBackend) -> None:
    def test(port: int) -> None:
        status, _, body = fetch(port, "POST", "/api/destinations", b" " * (70 << 10), JSON)
        assert (status, json.loads(body)["code"]) == (413, "too_large")
        assert fetch(port, "GET", "/health")[0] == 200

    served(test, backend)


def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody(backend: FakeBackend, log: LogCapture) -> None:
    def test(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.putrequest("POST", "/api/destinations")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"{")
        connection.close()
        assert fetch(port, "GET", "/health")[0] == 200

    served(test, backend)
    assert backend.bodies == []
    assert log.lines("HTTP handler failed") == []


def test_a_body_that_does_not_come_is_not_waited_for_for_ever(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "_BODY_S", 0.1)

    def test(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.putrequest("POST", "/api/destinations")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"{")
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["code"]) == (408, "too_slow")
        connection.close()

    served(test, backend)
    assert backend.bodies == []


@pytest.mark.parametrize("opening", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
@pytest.mark.parametrize("is_after_a_request", [False, True])
def test_a_request_that_never_ends_does_not_hold_its_place(
    opening: bytes, is_after_a_request: bool, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_HEAD_S", 0.2)

    def test(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            if is_after_a_request:
                connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 404")
            connection.sendall(opening)
            give_up_s = time.monotonic() + 20
            try:
                while opening and time.monotonic() < give_up_s:
                    connection.sendall(b"x")  # a byte now and then is no request either
                    connection.settimeout(0.01)
                    with contextlib.suppress(TimeoutError):
                        assert connection.recv(1) == b""
                        break
                connection.settimeout(20)
                assert connection.recv(1) == b""
            except ConnectionError:
                pass  # thrown out
            assert time.monotonic() < give_up_s

    served(test, backend)


def test_silent_connections_do_not_keep_others_out_for_long(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_HEAD_S", 0.5)

    def test(port: int) -> None:
        silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(120)]
        eventually(lambda: fetch(port, "GET", "/health")[0] == 200, "a place for somebody who asks")
        for connection in silent:
            connection.close()

    served(test, backend)


@pytest.mark.parametrize("trusted", [None, "*"])
def test_a_proxy_here_cannot_pass_strangers_off_as_this_machine(
    trusted: str | None, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trusted is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)

    def test(port: int) -> None:
        for forwarded in ("203.0.113.9", "127.0.0.1, 203.0.113.9", "::1,203.0.113.9"):
            status, _, body = fetch(port, "DELETE", "/api/destinations/one", headers={"X-Forwarded-For": forwarded})
            assert (status, json.loads(body)["code"]) == (403, "not_local")

    served(test, backend)
    assert list(backend.shown) == ["one"]


def test_whom_to_believe_is_not_taken_from_the_environment(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    server = HttpServer(make_app(backend, token=None))
    assert "*" not in server._server.config.forwarded_allow_ips


def test_the_token_works_over_http(backend: FakeBackend) -> None:
    def test(port: int) -> None:
        assert fetch(port, "DELETE", "/api/destinations/one")[0] == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert fetch(port, "DELETE", "/api/destinations/one", headers=headers)[0] == 204

    served(test, backend, token=TOKEN)


def test_without_a_host_only_this_machine_is_listened_to(backend: FakeBackend) -> None:
    async def test() -> None:
        server = HttpServer(make_app(backend, token=None))
        addresses = server.start(None, 0)
        assert all(address.startswith(("127.", "[::1]")) for address in addresses)
        await server.close()
        await server.close()  # again is no matter

    run(uvloop.new_event_loop, test)


def test_a_port_in_use_is_an_error_before_anything_is_served(backend: FakeBackend) -> None:
    async def test() -> None:
        first = HttpServer(make_app(backend, token=None))
        port = int(first.start("127.0.0.1", 0)[0].rpartition(":")[2])
        second = HttpServer(make_app(backend, token=None))
        with pytest.raises(ListenError, match="cannot listen on"):
            second.start("127.0.0.1", port)
        await second.close()
        await first.close()

    run(uvloop.new_event_loop, test)
