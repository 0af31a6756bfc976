"""The server and its clients as real processes, and the stage that owns them for the length of one test."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.child import DEADLINE_S, Child
from tests.integration.clips import AV_CLIENT, FFMPEG, Clip
from tests.integration.flv_tags import encode_file
from tests.integration.packets import COPY_INPUT, COPY_OUTPUT, PacketList, read_framehash

SOURCES = Path(__file__).resolve().parents[2] / "src"

# Every address that a test publishes to or plays carries it, and it must be in no line of any server.
SECRET = "s3cret-0c4f"

# A player may lag by all of a clip that is pushed through as fast as it goes; tests of lag say otherwise.
PATIENT = ("-max-lag", "60s")

SERVE = (sys.executable, "-m", "headrace", "serve")

_AnyChild = TypeVar("_AnyChild", bound=Child)


def server_environment() -> dict[str, str]:
    """With our sources, installed or not."""
    path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


class ServerProcess(Child):
    """`headrace serve` on a port that the system picks."""

    def __init__(
        self, name: str, *flags: str | Path, listen: str = "127.0.0.1:0", env: Mapping[str, str] | None = None
    ) -> None:
        flags = ("-listen", listen, "-log-format", "json", *flags)
        super().__init__(name, [*SERVE, *flags], env={**server_environment(), **(env or {})})
        self.expected_errors: set[str] = set()  # messages that a test provokes at level error
        self._parsed: list[dict[str, Any]] = []
        self._parsed_lines = 0
        self.stray_lines: list[str] = []  # lines of standard error that are no line of the log

    @cached_property
    def port(self) -> int:
        return int(self.wait_for_log("Listening")["addresses"][0].rpartition(":")[2])

    def url(self, key: str = "live/stream") -> str:
        return f"rtmp://127.0.0.1:{self.port}/{key}?token={SECRET}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """The log so far, one object per line."""
        lines = self.stderr[self._parsed_lines :]
        self._parsed_lines += len(lines)
        for line in lines:
            try:
                self._parsed.append(json.loads(line))
            except ValueError:
                self.stray_lines.append(line)
        return self._parsed

    def logged(self, message: str, **fields: object) -> list[dict[str, Any]]:
        return [
            record
            for record in self.records
            if record["msg"] == message and all(record.get(name) == value for name, value in fields.items())
        ]

    def wait_for_log(
        self, message: str, *, count: int = 1, deadline_s: float = DEADLINE_S, **fields: object
    ) -> dict[str, Any]:
        """The `count`th line with this message and these fields."""

        def find() -> dict[str, Any] | None:
            found = self.logged(message, **fields)
            return found[count - 1] if len(found) >= count else None

        return self.wait_until(f"{message!r} {fields or ''} (number {count})", find, deadline_s)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """End it, as an operator would; how long it took. It must have gone well."""
        started_s = time.monotonic()
        self.send_signal(number)
        status = self.wait()
        elapsed_s = time.monotonic() - started_s
        assert status == 0, f"exit status {status} after {number.name}\n{self.output[-4000:]}"
        return elapsed_s

    def assert_clean(self) -> None:
        """What holds for every run: all lines are JSON, no traceback, no unexpected error, no secret."""
        records = self.records
        assert SECRET not in self.output, "a token is in the log"
        assert not self.stdout, f"standard output is for nothing: {self.stdout[:3]}"
        assert not self.stray_lines, f"lines that are no JSON: {self.stray_lines[:5]}"
        assert not [record for record in records if "traceback" in record], "the server logged a traceback"
        errors = [r for r in records if r["level"] == "error" and r["msg"] not in self.expected_errors]
        assert not errors, f"errors that no test provoked: {errors}"


class Publisher(Child):
    """A real ffmpeg that publishes."""

    def quit_by_signal(self) -> int:
        """SIGINT, as Ctrl-C: FFmpeg unpublishes and ends."""
        self.send_signal(signal.SIGINT)
        return self.wait()


class FedPublisher(Publisher):
    """An ffmpeg that publishes what the test gives it, when the test gives it: no test has to race a clock."""

    def __init__(self, name: str, command: list[str | Path], clip: Clip, opening_ms: int | None) -> None:
        super().__init__(name, command, has_input=True)
        opening, self._rest = clip.split(opening_ms)
        self.feed(encode_file(opening))

    def feed_rest(self) -> None:
        """Everything after the opening; after it, it unpublishes."""
        self.feed(b"".join(tag.encode() for tag in self._rest))
        self.end_input()

    def finish(self) -> None:
        """Everything after the opening; then it must end well."""
        self.feed_rest()
        status = self.wait()
        assert status == 0, f"{self.name} ended with {status}\n{self.output}"


class Player(Child):
    """A real ffmpeg that plays: copies every packet to a list of hashes and, if asked, decodes everything too."""

    def __init__(self, name: str, command: list[str | Path], listing: Path) -> None:
        super().__init__(name, command)
        self._listing = listing

    @property
    def packets(self) -> PacketList:
        return read_framehash(self._listing)

    def wait_for_packets(self, count: int) -> PacketList:
        """Once it has written at least so many."""

        def find() -> PacketList | None:
            found = self.packets
            return found if len(found.packets) >= count else None

        return self.wait_until(f"{count} packets", find)

    def wait_ended(self, deadline_s: float = DEADLINE_S) -> PacketList:
        """What it got, once the server has told it that the stream is over. It must have nothing to complain of."""
        status = self.wait(deadline_s)
        assert status == 0, f"{self.name} ended with {status}\n{self.output}"
        assert not self.output, f"{self.name} complains:\n{self.output}"
        return self.packets


class Stage:
    """Starts processes for one test and ends every one of them, whatever happens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[Child] = []
        self._closers: list[Callable[[], None]] = []

    # Casting --------------------------------------------------------------------------------------------------

    def server(
        self, *flags: str | Path, listen: str = "127.0.0.1:0", env: Mapping[str, str] | None = None
    ) -> ServerProcess:
        name = self._name("server")
        data = ("-data-dir", self.folder / f"{name.replace(' ', '-')}-data")
        server = self._add(ServerProcess(name, *data, *flags, listen=listen, env=env))
        server.wait_for_log("Listening")
        return server

    def feed(
        self,
        clip: Clip,
        url: str,
        *options: str,
        opening_ms: int | None = None,
        is_paced: bool = False,
        by_pyav: bool = False,
    ) -> FedPublisher:
        """Publish the clip's opening now, and the rest when the test says so; as fast as it goes, unless paced."""
        pace = ["-re"] if is_paced else []
        # Little probing: the opening has to be enough, the rest is not there yet.
        source = [*COPY_INPUT, *pace, "-analyzeduration", "200k", "-fpsprobesize", "0", "-f", "flv", "-i", "pipe:0"]
        command: list[str | Path] = [FFMPEG, "-v", "warning", *source, *_publish(url, options)]
        if by_pyav:
            command = [sys.executable, AV_CLIENT, "publish", url]
        return self._add(FedPublisher(self._name("publisher"), command, clip, opening_ms))

    def publish(self, clip: Clip, url: str, *options: str, loops: bool = False, has_input: bool = False) -> Publisher:
        """Publish the file in real time, over and over if it loops."""
        pace = ["-re", "-stream_loop", "-1"] if loops else ["-re"]
        command = [FFMPEG, "-v", "warning", *pace, *COPY_INPUT, "-i", clip.path, *_publish(url, options)]
        return self._add(Publisher(self._name("publisher"), command, has_input=has_input))

    def play(self, url: str, *, decode: bool = False, by_pyav: bool = False) -> Player:
        name = self._name("player")
        listing = self.folder / f"{name.replace(' ', '-')}.framehash"
        decoded = ["-map", "0:v?", "-map", "0:a?", "-f", "null", "-"] if decode else []
        command = [FFMPEG, "-v", "warning", "-nostdin", *COPY_INPUT, "-i", url, *COPY_OUTPUT, listing, *decoded]
        if by_pyav:
            command = [sys.executable, AV_CLIENT, "play", url, listing]
        return self._add(Player(name, command, listing))

    def run(self, name: str, *command: str | Path) -> Child:
        """Any other process; the environment is that of a server."""
        return self._add(Child(self._name(name), command, env=server_environment()))

    def on_close(self, close: Callable[[], None]) -> None:
        """Something else to be closed before the processes are ended: a socket, a mount."""
        self._closers.append(close)

    def servers(self) -> list[ServerProcess]:
        return [child for child in self._children if isinstance(child, ServerProcess)]

    # The curtain ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        for close in reversed(self._closers):
            close()
        servers = self.servers()
        for child in self._children:
            if child not in servers:
                child.close()
        try:
            for server in servers:
                if server.is_running:
                    server.stop()
                server.assert_clean()
        finally:
            for server in servers:
                server.close()

    def report(self) -> str:
        return "\n".join(child.report() for child in self._children)

    def _add(self, child: _AnyChild) -> _AnyChild:
        self._children.append(child)
        return child

    def _name(self, role: str) -> str:
        return f"{role} {len(self._children)}"


def _publish(url: str, options: tuple[str, ...]) -> list[str]:
    return ["-map", "0", "-c", "copy", *options, "-f", "flv", url]
