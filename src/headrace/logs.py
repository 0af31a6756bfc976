"""The structured log of the process: who may write, what a line looks like, and what can go wrong.

A line is written for a machine (`json`: time, level, msg, then the fields) or for a person (`text`). Field
values may come straight from a peer, so a value can neither end a line, nor colour a terminal, nor fill a
disk. Logging never raises: a line that cannot be written is counted and lost, and the relay goes on.
Loggers are structlog's, filtered by level when they are bound: a disabled call costs about 0.1 µs.
A leaf module: it imports nothing of Headrace but `units`. It does not know what is secret: whoever owns a
secret redacts it before it gets here.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from headrace.units import printable

# structlog loads rich where that is installed, for tracebacks that are rendered here: 4 MB and 35 ms of every start.
_rich = sys.modules.pop("rich", None)
sys.modules["rich"] = None  # type: ignore[assignment]  # "not installed"
try:
    import structlog
    from structlog.typing import EventDict, FilteringBoundLogger
finally:
    del sys.modules["rich"]
    if _rich is not None:
        sys.modules["rich"] = _rich

Logger = FilteringBoundLogger
Renderer = Callable[[float, str, str, EventDict], str]

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_METHODS = LEVELS | {"warning": logging.WARNING, "exception": logging.ERROR, "critical": logging.CRITICAL}
# structlog's name of the method that was called -> ours.
_LEVEL_OF_METHOD = {"warning": "warn", "critical": "error"}

# A stream name may be 64 KB on the wire; no reader of a log needs more of one than this.
MAX_VALUE_CHARACTERS = 512
# A traceback is ours and worth more; its end, where the error is, is what is kept.
MAX_TRACEBACK_CHARACTERS = 8192
MAX_ITEMS = 32  # of a list or a mapping inside one field
MAX_DEPTH = 4

_RESERVED = ("time", "level", "msg")
_MESSAGE_WIDTH = 24  # most of our messages fit, so that fields line up
_COLOURS = {"debug": "\x1b[34m", "info": "\x1b[32m", "warn": "\x1b[33m", "error": "\x1b[31m"}
_BOLD, _DIM, _CYAN, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"


def configure(
    level: str,
    fmt: str,
    stream: TextIO | None = None,
    *,
    clock: Callable[[], float] = time.time,
    fields: Mapping[str, Any] | None = None,
) -> None:
    """Send every line at `level` or above to `stream` (standard error when None) as `json` or `text`, each with
    `fields` at its end.

    Loggers that were bound before keep what was configured then. Warnings and errors of the standard
    library's own loggers, such as asyncio's, come out as lines of this log.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}, expected one of {', '.join(LEVELS)}")
    if fmt not in ("json", "text"):
        raise ValueError(f"log format {fmt!r}, expected json or text")
    render = _render_json if fmt == "json" else _TextRenderer(has_colour=_has_colour(stream or sys.stderr))
    structlog.configure(
        processors=[_LineMaker(clock, render, fields or {})],
        wrapper_class=_guarded(structlog.make_filtering_bound_logger(LEVELS[level])),
        logger_factory=_WriterFactory(stream),
        # Caching would tie a module's logger to the first configuration for good. Without it an unbound
        # logger costs 2 µs a call, and whatever logs often (a connection, a stream) has bound its own.
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _StandardLibraryBridge)]:
        root.removeHandler(handler)
    root.addHandler(_StandardLibraryBridge(max(LEVELS[level], logging.WARNING)))


def get_logger(name: str) -> Logger:
    """The logger of a module, which its lines name. Bind what is known: `log.bind(conn_id=7)`."""
    return cast(Logger, structlog.get_logger(module=name.removeprefix("headrace.")))


class _Writer:
    """Writes lines to one stream, whole lines only, from any thread. A broken stream loses lines, no more."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.lost_lines = 0

    def _write(self, line: str) -> None:
        # Looked up each time: whoever redirects sys.stderr (a test, a service wrapper) means the log too.
        stream = self._stream if self._stream is not None else sys.stderr
        try:
            with self._lock:
                stream.write(line + "\n")
                stream.flush()
        except (OSError, ValueError, AttributeError):
            # A reader that went away, a full disk, a closed file, no standard error at all.
            self.lost_lines += 1

    debug = info = warning = error = critical = _write


class _WriterFactory:
    """structlog asks for a writer per logger; they all share one, and with it the lock and the count."""

    def __init__(self, stream: TextIO | None) -> None:
        self._writer = _Writer(stream)

    def __call__(self, *_args: object) -> _Writer:
        return self._writer


def _guarded(base: type[Any]) -> type[Any]:
    """The bound logger class with methods that swallow what a wrong call raises ("%d" with a word, say).

    mypy finds such calls; in a running server none of them is worth a connection.
    """

    def guard(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **fields: Any) -> None:
            try:
                method(self, *args, **fields)
            except Exception:
                self._logger.lost_lines += 1

        return call

    threshold = base.get_effective_level(None)
    guards = {name: guard(getattr(base, name)) for name, level in _METHODS.items() if level >= threshold}
    return type("HeadraceLogger", (base,), guards)


class _LineMaker:
    """The only processor: event dictionary in, finished line out."""

    def __init__(self, clock: Callable[[], float], render: Renderer, more: Mapping[str, Any]) -> None:
        self._clock = clock
        self._render = render
        self._more = more

    def __call__(self, _logger: object, method: str, fields: EventDict) -> str:
        level = _LEVEL_OF_METHOD.get(method, method)
        message = _as_text(fields.pop("event", ""))
        exc_info = fields.pop("exc_info", None)
        plain = {_key(name): _plain(value, MAX_DEPTH) for name, value in fields.items()} | dict(self._more)
        if exc_info:
            plain["traceback"] = _traceback(exc_info)
        return self._render(self._clock(), level, message, plain)


def _key(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name


def _render_json(now_s: float, level: str, message: str, fields: EventDict) -> str:
    stamp = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    # ASCII only: escapes control characters, C1 and lone surrogates, so the line is safe to print as it is.
    return json.dumps({"time": stamp, "level": level, "msg": message, **fields}, separators=(",", ":"))


class _TextRenderer:
    """`19:07:12.345 INFO  Connection accepted      conn_id=7 peer=127.0.0.1:50412`"""

    def __init__(self, *, has_colour: bool) -> None:
        self._has_colour = has_colour

    def __call__(self, now_s: float, level: str, message: str, fields: EventDict) -> str:
        stamp = datetime.fromtimestamp(now_s).astimezone().strftime("%H:%M:%S.%f")[:-3]
        trace = fields.pop("traceback", "")
        fields.pop("module", None)  # the message says enough to a person
        pairs = " ".join(f"{self._paint(_CYAN, printable(k))}={_text_value(v)}" for k, v in fields.items())
        padded = printable(message).ljust(_MESSAGE_WIDTH) if pairs else printable(message)
        line = " ".join(
            part
            for part in (
                self._paint(_DIM, stamp),
                self._paint(_COLOURS[level], level.upper().ljust(5)),
                self._paint(_BOLD, padded),
                pairs,
            )
            if part
        )
        # Indented, so that no line of a traceback can pass for a line of the log.
        return line + "".join(f"\n    {printable(row)}" for row in trace.splitlines())

    def _paint(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._has_colour else text


def _text_value(value: object) -> str:
    if not isinstance(value, str):
        return printable(json.dumps(value, ensure_ascii=False))
    shown = printable(value)
    is_bare = shown and not any(c in ' "=' for c in shown)
    return shown if is_bare else '"' + shown.replace('"', '\\"') + '"'


def _plain(value: object, depth: int) -> Any:
    """The value as JSON can hold it, within the caps."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)  # JSON has no NaN
    if isinstance(value, (Mapping, list, tuple)):
        if depth == 0:
            return "..."
        left_out = len(value) - MAX_ITEMS
        if isinstance(value, Mapping):
            items = list(value.items())[:MAX_ITEMS]
            plain = {_as_text(name): _plain(item, depth - 1) for name, item in items}
            return plain if left_out <= 0 else {**plain, "...": f"{left_out} more"}
        listed = [_plain(item, depth - 1) for item in value[:MAX_ITEMS]]
        return listed if left_out <= 0 else [*listed, f"... {left_out} more"]
    return _as_text(value)


def _as_text(value: object) -> str:
    try:
        if isinstance(value, (bytes, bytearray, memoryview)):
            text = bytes(value[:MAX_VALUE_CHARACTERS]).decode("utf-8", "backslashreplace")
            length = len(value)
        else:
            text = str(value)
            length = len(text)
            if not text and isinstance(value, BaseException):
                text = type(value).__name__
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
    if length <= MAX_VALUE_CHARACTERS:
        return text
    return f"{text[:MAX_VALUE_CHARACTERS]}... ({length - MAX_VALUE_CHARACTERS} more)"


def _traceback(exc_info: object) -> str:
    """Of an exception, of sys.exc_info()'s triple, or, for True, of the exception being handled."""
    error = exc_info if isinstance(exc_info, BaseException) else None
    if isinstance(exc_info, tuple) and len(exc_info) == 3:
        error = exc_info[1]
    elif error is None:
        error = sys.exc_info()[1]
    if error is None:
        return ""
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    cut = len(text) - MAX_TRACEBACK_CHARACTERS
    return text if cut <= 0 else f"({cut} more) ...{text[cut:]}"


def _has_colour(stream: TextIO | None) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):
        return False


class _StandardLibraryBridge(logging.Handler):
    """Turns a record of the standard library's logging into a line of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            log = get_logger(record.name)
            write = log.error if record.levelno >= logging.ERROR else log.warning
            write(_as_text(record.getMessage()), exc_info=record.exc_info)
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Loses the record: the standard library would print a traceback among the lines of the log."""


# Until configured (a test, a script that imports a module): what a person must see, on standard error.
if not structlog.is_configured():
    configure("warn", "text")
