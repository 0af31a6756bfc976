"""Requests to the HTTP application without a network, and a backend with facts of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from starlette.applications import Starlette

from headrace.errors import ConfigError
from headrace.web.backend import NotFoundError


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """Status and code of a refusal, which always comes with a sentence."""
        assert self.headers["content-type"] == "application/json"
        assert self.json.keys() == {"code", "message"}
        assert len(self.json["message"].split()) >= 3
        return self.status, self.json["code"]


def ask(app: Starlette, method: str, path: str, **request: Any) -> Answer:
    """One request on a loop of its own."""
    return asyncio.run(ask_on_loop(app, method, path, **request))


async def ask_on_loop(
    app: Starlette,
    method: str,
    path: str,
    *,
    body: Any = None,
    raw: bytes | None = None,
    client: tuple[str, int] | None = ("127.0.0.1", 50000),
    headers: Mapping[str, str] | None = None,
    parts: int = 1,
) -> Answer:
    """One request, by default as curl sends it on this machine. A `body` goes as JSON, `raw` as it is."""
    sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    given = {"host": "localhost:8080", **({"content-type": "application/json"} if body is not None else {})}
    given |= {name.lower(): value for name, value in (headers or {}).items()}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": client,
        "server": ("127.0.0.1", 8080),
    }
    size = max(1, -(-len(sent) // parts))
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)] or [b""]
    messages = [
        {"type": "http.request", "body": piece, "more_body": index < len(pieces) - 1}
        for index, piece in enumerate(pieces)
    ]
    answers: list[Mapping[str, Any]] = []

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        answers.append(message)

    try:
        await app(scope, receive, send)
    except ZeroDivisionError:
        pass  # what a broken backend raises here: it is passed on to the HTTP server after it was answered
    found = {name.decode(): value.decode("latin-1") for name, value in answers[0]["headers"]}
    return Answer(answers[0]["status"], found, b"".join(answer.get("body", b"") for answer in answers[1:]))


def path_of(name: str) -> str:
    return f"/api/destinations/{quote(name, safe='')}"


def shown_destination(name: str, **facts: Any) -> dict[str, Any]:
    """A destination as the backend shows one."""
    return {
        "name": name,
        "url": "rtmp://a.example/live/****",
        "enabled": True,
        "status": "connected",
        "flowing": True,
        "slow_side": None,
        "retry_in_s": None,
        "last_error": None,
        "last_error_class": None,
        "messages_sent": 100,
        "messages_dropped": 5,
        "dropped_by_reason": {"lag": 3, "evicted": 2},
        "bytes_sent": 5000,
        "connected_duration": 12.5,
        "connected_total_s": 60.5,
        "reconnect_count": 1,
        "failures": 2,
        "queue_age_s": 0.25,
        "match": "*",
        "metadata": {},
        "streams": {},
        "waiting": [],
        **facts,
    }


def shown_stream(app: str, name: str, **facts: Any) -> dict[str, Any]:
    return {
        "key": f"{app}/{name}",
        "app": app,
        "name": name,
        "state": "live",
        "publisher": {"conn_id": "c1", "remote": "10.0.0.9:5000"},
        "origin": None,
        "codecs": {"video": "h264", "audio": "aac"},
        "video_bps": 4_000_000,
        "audio_bps": 128_000,
        "frame_rate": 30.0,
        "bytes_in": 123_456,
        "messages_in": 99,
        "viewers": 3,
        "destinations": {"one": "connected"},
        "recorders": [],
        **facts,
    }


class FakeBackend:
    """Keeps destinations in a dictionary and notes what it is asked to do."""

    def __init__(self) -> None:
        self.shown = {"one": shown_destination("one")}
        self.listed = [shown_stream("live", "cam")]
        self.dropped: list[str] = []
        self.bodies: list[Any] = []
        self.is_broken = False

    def health(self) -> dict[str, Any]:
        if self.is_broken:
            raise ZeroDivisionError("a mistake of ours")
        return {"total_destinations": len(self.shown), "destinations": self.shown}

    def destinations(self) -> dict[str, dict[str, Any]]:
        return self.shown

    def streams(self) -> list[dict[str, Any]]:
        return self.listed

    def counters(self) -> dict[str, Any]:
        numbers = ("connections", "streams", "publishers", "subscribers", "connections_accepted", "connections_refused",
                   "handshakes_failed", "peer_errors", "publishes_started", "publishes_refused", "plays_started",
                   "plays_refused", "messages_in", "bytes_in", "messages_relayed", "bytes_relayed")  # fmt: skip
        return {
            **{name: 10 + index for index, name in enumerate(numbers)},
            "messages_dropped": {"lag": 7},
            "connections_closed": {"idle": 2, "handshake": 1},
            "events": {"written": 60, "lost": 6},
            "pulls": {
                "active": 5,
                "by_state": {"connecting": 1, "connected": 2, "waiting": 2},
                "waiting_players": 9,
                "started": 50,
                "connected": 40,
                "reconnects": 3,
                "refused": {"missing": 8},
                "failures": {"refused": 4, "rejected": 6},
                "messages_in": 70,
                "bytes_in": 7000,
            },
            "recordings": {"active": 1, "files": 2, "tags": 3, "size_bytes": 4, "errors": 5, "skipped": {}},
        }

    def add_destination(self, body: Any) -> dict[str, Any]:
        self.bodies.append(body)
        if not isinstance(body, dict) or "url" not in body:
            raise ConfigError("destination.url: found nothing, expected rtmp://host/app")
        self.shown[body["name"]] = shown_destination(body["name"])
        return self.shown[body["name"]]

    def change_destination(self, name: str, body: Any) -> dict[str, Any]:
        self._find(name)
        self.bodies.append(body)
        self.shown[name] = {**self.shown[name], **body}
        return self.shown[name]

    def remove_destination(self, name: str) -> None:
        self._find(name)
        del self.shown[name]

    def drop_publisher(self, stream_key: str) -> None:
        if stream_key not in [stream["key"] for stream in self.listed]:
            raise NotFoundError(f'No stream "{stream_key}" is being published.')
        self.dropped.append(stream_key)

    def _find(self, name: str) -> None:
        if name not in self.shown:
            raise NotFoundError(f'There is no destination "{name}".')
