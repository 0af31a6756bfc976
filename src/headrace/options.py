"""What a server can be told: the options, and the table of flags that fills them.

One entry of `SERVE_FLAGS` is all that a new flag needs: the parser, the help, the environment fallback and
the test that the README lists it all read the table. Nothing here reads the command line or prints.
A leaf module: it imports nothing of Headrace but `errors` and `units`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.errors import ConfigError
from headrace.units import EXPECTED_ADDRESS, format_duration, parse_duration, parse_listen, quoted

LogFormat = Literal["json", "text"]

# The specification (5.4.1) recommends at least 128; a message is at most 16777215 bytes long, so that no
# larger chunk could ever be filled.
CHUNK_SIZE_BYTES = (128, 0xFFFFFF)

# More than any machine that would run one relay has cores for.
MAX_WORKERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Everything `rtmp-server` was told, checked. The defaults are those of the flags."""

    listen_host: str | None = None
    """Address or name to listen on; None is every address of the machine, IPv4 and IPv6."""

    listen_port: int = 1935
    """TCP port; 0 lets the system pick a free one."""

    log_level: str = "info"
    """The least severe level that is written: debug, info, warn or error."""

    log_format: LogFormat = "json"
    """One JSON object per line, or aligned lines for a person. Already resolved: never `auto`."""

    record_all: bool = False
    """Record every stream that is published."""

    record_dir: Path = Path("recordings")
    """Where recordings go; relative to the working directory, made when the first one starts."""

    segment_duration_s: float | None = None
    """Start a new file at the first keyframe after this long; None keeps one file per publication."""

    workers: int = 1
    """Processes that share the port; 1 is this one alone, without a parent."""

    chunk_size: int = 60000
    """Bytes of payload in one outbound chunk."""

    publisher_grace_s: float = 5.0
    """How long readers are kept after a publisher's connection is lost without an unpublish."""

    max_lag_s: float = 5.0
    """A player further behind than this much media skips to the newest keyframe."""

    merge_ms: int = 50
    """How long messages may wait for each other where there are many players; 0 is never."""

    relay_to: tuple[str, ...] = field(default=(), repr=False)
    """Addresses to push every stream to, as they were given; they hold stream keys."""

    relay_config: Path | None = None
    """A file of destinations; read again on SIGHUP."""

    origin: tuple[str, ...] = field(default=(), repr=False)
    """Servers to pull streams from that nobody publishes here, as they were given; they may hold tokens."""

    origin_linger_s: float = 10.0
    """How long a pulled stream is kept after its last reader has left."""

    pulled_streams: Literal["play", "all"] = "play"
    """Whether pulled streams are only played, or recorded and pushed to destinations too."""

    http_host: str | None = None
    """Where the HTTP side listens; None is loopback."""

    http_port: int | None = None
    """None turns the HTTP side off."""

    data_dir: Path = Path("data")
    """Where the event log and the pipeline's tables are kept."""

    telemetry: bool = True
    """Write the event log."""

    pipeline: bool = False
    """Run the data pipeline beside the server."""

    store_addresses: bool = False
    """Keep viewers' addresses in the event log instead of a keyed hash of each."""

    api_token: str | None = field(default=None, repr=False)
    """What a call that changes something must show; without one, such calls are for this machine only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueKind:
    """What may follow a flag, and how it is read."""

    parse: Callable[[str], object]
    """Text to value; raises ConfigError in the words "found …, expected …"."""

    expected: str
    """What a value looks like, for the message about a missing one: "a whole number from 1 to 9"."""

    metavar: str
    """Its name in the help."""

    bare: str | None = None
    """The value that the flag alone stands for; None means that a value must follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag: how it is spelled, read and explained."""

    name: str
    """Without dashes: `listen` is given as `-listen` or `--listen`."""

    group: str
    """Its heading in the help."""

    fields: tuple[str, ...]
    """The options it fills; when there are several, `kind.parse` returns one value for each."""

    kind: ValueKind

    default: str
    """As it would be typed."""

    help: str

    env: str | None = None
    """The environment variable that is read when the flag is not given."""

    aliases: tuple[str, ...] = ()
    """Other names for the same flag."""

    is_secret: bool = False
    """Its value is never repeated, not in an error either."""

    is_repeatable: bool = False
    """May be given several times: its one field is a tuple of values, and `default` is text for the help."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    def __post_init__(self) -> None:
        assert len(self.fields) == 1 or not self.is_repeatable, self.name


def _one_of(*choices: str, metavar: str) -> ValueKind:
    expected = f"{', '.join(choices[:-1])} or {choices[-1]}"

    def parse(text: str) -> str:
        if text not in choices:
            raise ConfigError(f"found {quoted(text)}, expected {expected}")
        return text

    return ValueKind(parse=parse, expected=expected, metavar=metavar)


def _whole_number(least: int, most: int, *, metavar: str) -> ValueKind:
    expected = f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        # The length is checked first: int() refuses more than 4300 digits with an error of its own.
        is_number = text.isascii() and text.isdigit() and len(text) <= 20
        if not is_number or not least <= int(text) <= most:
            raise ConfigError(f"found {quoted(text)}, expected {expected}")
        return int(text)

    return ValueKind(parse=parse, expected=expected, metavar=metavar)


def _workers() -> ValueKind:
    number = _whole_number(1, MAX_WORKERS, metavar="N|auto")
    expected = f"{number.expected}, or auto"

    def parse(text: str) -> int:
        if text == "auto":
            return min(cores(), MAX_WORKERS)
        try:
            return int(str(number.parse(text)))
        except ConfigError:
            raise ConfigError(f"found {quoted(text)}, expected {expected}") from None

    return ValueKind(parse=parse, expected=expected, metavar=number.metavar)


def cores() -> int:
    """Those that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def _duration(least_s: float, most_s: float) -> ValueKind:
    bounds = f"from {format_duration(least_s)} to {format_duration(most_s)}"
    expected = f"a duration {bounds}, such as 500ms, 30s or 5m"

    def parse(text: str) -> float:
        try:
            duration_s = parse_duration(text)
        except ConfigError:
            duration_s = -1.0
        if not least_s <= duration_s <= most_s:
            raise ConfigError(f"found {quoted(text)}, expected {expected}")
        return duration_s

    return ValueKind(parse=parse, expected=expected, metavar="DURATION")


def _duration_or_off() -> ValueKind:
    expected = "a duration such as 30s or 5m, or off"

    def parse(text: str) -> float | None:
        if text == "off":
            return None
        try:
            return parse_duration(text) or None  # 0 is how many tools spell off
        except ConfigError:
            raise ConfigError(f"found {quoted(text)}, expected {expected}") from None

    return ValueKind(parse=parse, expected=expected, metavar="DURATION")


def _truth() -> ValueKind:
    def parse(text: str) -> bool:
        if text not in ("true", "false"):
            raise ConfigError(f"found {quoted(text)}, expected true or false")
        return text == "true"

    return ValueKind(parse=parse, expected="true or false", metavar="[true|false]", bare="true")


def _on_or_off() -> ValueKind:
    def parse(text: str) -> bool:
        if text not in ("on", "off"):
            raise ConfigError(f"found {quoted(text)}, expected on or off")
        return text == "on"

    return ValueKind(parse=parse, expected="on or off", metavar="on|off")


def _folder() -> ValueKind:
    expected = "the path of a folder"

    def parse(text: str) -> Path:
        if not text or "\0" in text:
            raise ConfigError(f"found {quoted(text)}, expected {expected}")
        return Path(text)

    return ValueKind(parse=parse, expected=expected, metavar="FOLDER")


def _text(expected: str, metavar: str) -> ValueKind:
    def parse(text: str) -> str:
        if not text.strip():
            raise ConfigError(f"found an empty value, expected {expected}")
        return text

    return ValueKind(parse=parse, expected=expected, metavar=metavar)


def _file_or_none() -> ValueKind:
    expected = "the path of a file"

    def parse(text: str) -> Path | None:
        if "\0" in text:
            raise ConfigError(f"found {quoted(text)}, expected {expected}")
        return Path(text) if text != "none" else None

    return ValueKind(parse=parse, expected=expected, metavar="FILE")


def _address_or_off() -> ValueKind:
    def parse(text: str) -> tuple[str | None, int | None]:
        return (None, None) if text == "off" else parse_listen(text)

    return ValueKind(parse=parse, expected=EXPECTED_ADDRESS, metavar="HOST:PORT")


def _secret_or_none() -> ValueKind:
    def parse(text: str) -> str | None:
        if text == "none":
            return None
        if len(text) < _MIN_TOKEN_CHARACTERS or not text.isascii() or not text.isprintable() or " " in text:
            raise ConfigError(
                f"found a token that is too short or has odd characters, "
                f"expected at least {_MIN_TOKEN_CHARACTERS} printable ASCII characters without spaces"
            )
        return text

    return ValueKind(parse=parse, expected="a token", metavar="TOKEN")


# Shorter ones can be guessed over a network in a day.
_MIN_TOKEN_CHARACTERS = 12

SERVE_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="listen",
        group="Network",
        fields=("listen_host", "listen_port"),
        kind=ValueKind(parse=parse_listen, expected=EXPECTED_ADDRESS, metavar="HOST:PORT"),
        default=":1935",
        help="Where to accept RTMP connections. No host means every address, IPv4 and IPv6; "
        "port 0 picks a free port and logs which.",
    ),
    Flag(
        name="workers",
        group="Network",
        fields=("workers",),
        kind=_workers(),
        default="1",
        help="Processes that share the work: a number, or auto for one per core.",
    ),
    Flag(
        name="chunk-size",
        group="Network",
        fields=("chunk_size",),
        kind=_whole_number(*CHUNK_SIZE_BYTES, metavar="BYTES"),
        default="60000",
        help="Outbound chunk size.",
    ),
    Flag(
        name="publisher-grace",
        group="Streams",
        fields=("publisher_grace_s",),
        kind=_duration(0, 3600),  # an hour without a publisher is an outage, not a reconnect
        default="5s",
        help="How long players are kept after a publisher's connection is lost without an unpublish.",
    ),
    Flag(
        name="max-lag",
        group="Streams",
        fields=("max_lag_s",),
        # Below a tenth of a second every burst would skip; ten minutes of media is beyond the log's byte cap.
        kind=_duration(0.1, 600),
        default="5s",
        help="A player further behind than this much media skips to the newest keyframe.",
    ),
    Flag(
        name="merge-ms",
        group="Streams",
        fields=("merge_ms",),
        # Beyond a quarter of a second players would notice, and no more processor time is saved.
        kind=_whole_number(0, 250, metavar="MS"),
        default="50",
        help="How long messages may wait for each other where there are a hundred players or more or sending "
        "takes its time, or ten publishers and more; 0 sends each at once.",
    ),
    Flag(
        name="relay-to",
        group="Destinations",
        fields=("relay_to",),
        kind=_text("rtmp://host/app or rtmp://host/app/key", "URL"),
        default="none",
        is_repeatable=True,
        is_secret=True,
        help="Push every stream there; rtmp:// or rtmps://, several times or separated by commas. "
        "An address without a stream name gets the source's name.",
    ),
    Flag(
        name="relay-config",
        group="Destinations",
        fields=("relay_config",),
        kind=_file_or_none(),
        default="none",
        help="Destinations from a JSON file, with names, keys, retry rules; SIGHUP reads it again.",
    ),
    Flag(
        name="origin",
        group="Origins",
        fields=("origin",),
        kind=_text("rtmp://host:1935", "URL"),
        default="none",
        is_repeatable=True,
        is_secret=True,
        help="Be an edge: a stream that is asked for and not published here is pulled from there, once for all; "
        "rtmp:// or rtmps://, several times or separated by commas, asked in their order. "
        "An address without an application gets the player's.",
    ),
    Flag(
        name="origin-linger",
        group="Origins",
        fields=("origin_linger_s",),
        kind=_duration(0, 3600),
        default="10s",
        help="How long a stream is pulled on after its last reader has left.",
    ),
    Flag(
        name="pulled-streams",
        group="Origins",
        fields=("pulled_streams",),
        kind=_one_of("play", "all", metavar="USE"),
        default="play",
        help="play: pulled streams are for players. all: they are recorded and sent to destinations too, as far as "
        "other flags say so and as long as somebody watches.",
    ),
    Flag(
        name="http-status",
        aliases=("metrics-addr",),
        group="HTTP",
        fields=("http_host", "http_port"),
        kind=_address_or_off(),
        default="off",
        help="Serve /health, /streams, /metrics and the API there. :8080 is this machine only; "
        "0.0.0.0:8080 or [::]:8080 opens it to others. Also called -metrics-addr.",
    ),
    Flag(
        name="api-token",
        group="HTTP",
        fields=("api_token",),
        kind=_secret_or_none(),
        default="none",
        env="HEADRACE_API_TOKEN",
        is_secret=True,
        help="What calls that change something must show as a bearer token; without one they are accepted from this "
        "machine only.",
    ),
    Flag(
        name="record-all",
        group="Recording",
        fields=("record_all",),
        kind=_truth(),
        default="false",
        help="Record every stream. The flag alone means true.",
    ),
    Flag(
        name="record-dir",
        group="Recording",
        fields=("record_dir",),
        kind=_folder(),
        default="recordings",
        help="Where recordings are written.",
    ),
    Flag(
        name="segment-duration",
        group="Recording",
        fields=("segment_duration_s",),
        kind=_duration_or_off(),
        default="off",
        help="Split recordings at the first keyframe after this long, such as 30s or 5m.",
    ),
    Flag(
        name="data-dir",
        group="Telemetry",
        fields=("data_dir",),
        kind=_folder(),
        default="data",
        help="Where the event log and the tables made from it are kept.",
    ),
    Flag(
        name="telemetry",
        group="Telemetry",
        fields=("telemetry",),
        kind=_on_or_off(),
        default="on",
        help="The event log: what happened, a sample a second, and what each destination got. on or off.",
    ),
    Flag(
        name="pipeline",
        group="Telemetry",
        fields=("pipeline",),
        kind=_on_or_off(),
        default="off",
        help="The data pipeline beside the server, which makes tables of events and recordings. on or off.",
    ),
    Flag(
        name="store-addresses",
        group="Telemetry",
        fields=("store_addresses",),
        kind=_truth(),
        default="false",
        help="Keep viewers' addresses in the event log; otherwise only a keyed hash of each.",
    ),
    Flag(
        name="log-level",
        group="Logs",
        fields=("log_level",),
        kind=_one_of("debug", "info", "warn", "error", metavar="LEVEL"),
        default="info",
        help="The least severe level to write: debug, info, warn or error.",
    ),
    Flag(
        name="log-format",
        group="Logs",
        fields=("log_format",),
        kind=_one_of("auto", "json", "text", metavar="FORMAT"),
        default="auto",
        help="json: one object per line. text: coloured lines for a person. auto: text on a terminal, json elsewhere.",
    ),
)
