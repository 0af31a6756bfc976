"""The structured log as a test sees it: lines as dictionaries, and the configuration put back afterwards."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from headrace import logs
from tests.helpers.waiting import eventually


class LogLines:
    """Everything that is logged, from any thread."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    def of(self, message: str, **fields: Any) -> list[dict[str, Any]]:
        """The lines with this message and these fields."""
        return [
            line
            for line in self.all
            if line["msg"] == message and all(line.get(name) == value for name, value in fields.items())
        ]

    def wait(self, message: str, **fields: Any) -> dict[str, Any]:
        """The first such line, waited for."""
        eventually(lambda: self.of(message, **fields), f"the line {message!r} with {fields}")
        return self.of(message, **fields)[0]

    def messages(self, conn_id: str) -> list[str]:
        """What was said about one connection, in order."""
        return [line["msg"] for line in self.all if line.get("conn_id") == conn_id]


@contextmanager
def captured_log(level: str = "debug") -> Iterator[LogLines]:
    """Configure the log to be captured; loggers that were bound before keep what was configured then."""
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    stream = io.StringIO()
    logs.configure(level, "json", stream)
    try:
        yield LogLines(stream)
    finally:
        structlog.configure(**before)
        logging.getLogger().handlers[:] = handlers
