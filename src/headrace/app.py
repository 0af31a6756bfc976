"""The one place that wires the parts together and runs them."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable
from weakref import WeakSet

from headrace import __version__, logs
from headrace.companion import Companion
from headrace.control import Control
from headrace.edge.origin import Origin, parse_origins
from headrace.edge.service import EdgeService
from headrace.errors import ConfigError
from headrace.logs import get_logger
from headrace.net.listener import ListenError
from headrace.options import ServeOptions
from headrace.record.service import RecordingService
from headrace.relay.config import DestinationConfig, from_urls, load_file
from headrace.relay.service import RelayService, merge
from headrace.server.server import Server
from headrace.stream.registry import Stream
from headrace.telemetry.event_log import EventLog
from headrace.telemetry.events import ServerStarted, ServerStopped
from headrace.telemetry.identity import load_identity
from headrace.telemetry.proof import emit_nothing
from headrace.units import without_key

# Everything must be over within 5 s of a SIGTERM; recordings get what the sessions leave.
_RECORDINGS_CLOSE_S = 2.0
_SESSIONS_CLOSE_S = 2.0
_EVENTS_CLOSE_S = 0.5
_PIPELINE_CLOSE_S = 1.0


def run(options: ServeOptions) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit status. ConfigError before anything is started."""
    destinations = _destinations(options)
    origins = _origins(options)
    if options.pipeline and not options.telemetry:
        raise ConfigError("-pipeline: found on with -telemetry off, expected -telemetry on: tables are made of events")
    logs.configure(options.log_level, options.log_format)
    _hide_arguments()
    _raise_descriptor_limit()
    try:
        import uvloop

        return uvloop.run(_serve(options, destinations, origins))
    except ImportError:  # no wheel for this platform: the standard loop does the same, slower
        return asyncio.run(_serve(options, destinations, origins))


async def _serve(options: ServeOptions, destinations: list[DestinationConfig], origins: tuple[Origin, ...]) -> int:
    log = get_logger(__name__)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    event_log = _open_event_log(options)
    emit = event_log.emit if event_log is not None else emit_nothing
    emit(ServerStarted(version=__version__))
    recordings = RecordingService(options.record_dir, segment_duration_s=options.segment_duration_s, emit=emit)

    offered: WeakSet[Stream] = WeakSet()

    def stream_started(stream: Stream) -> None:
        # A pulled stream is offered again when a publisher here takes it.
        if stream in offered or (stream.is_pulled and options.pulled_streams == "play"):
            return
        offered.add(stream)
        relay.stream_started(stream)
        if options.record_all:
            recordings.start(stream)

    server = Server(
        chunk_size=options.chunk_size,
        grace_s=options.publisher_grace_s,
        max_lag_s=options.max_lag_s,
        on_stream=stream_started,
        emit=emit,
        viewer_name=_viewer_naming(options, event_log),
        stream_id_prefix=f"{event_log.identity.node}.{event_log.boot}." if event_log is not None else "",
    )
    relay = RelayService(
        destinations,
        fanout_of=server.fanout,
        retain=server.streams.retain,
        chunk_size=options.chunk_size,
        emit=emit,
    )
    edge = EdgeService(server, origins, linger_s=options.origin_linger_s) if origins else None
    server.source = edge
    loop.add_signal_handler(signal.SIGHUP, _reload, options, relay)

    http = None
    try:
        addresses = server.listen(options.listen_host, options.listen_port)
        if options.http_port is not None:
            # Imported here: a server without its HTTP side does without the memory of one.
            from headrace.web.api import make_app
            from headrace.web.server import HttpServer

            http = HttpServer(make_app(Control(server, recordings, relay, event_log, edge), token=options.api_token))
            log.info("HTTP listening", addresses=http.start(options.http_host, options.http_port))
    except ListenError as error:
        print(f"rtmp-server: {error}", file=sys.stderr)
        await server.close()
        if event_log is not None:
            event_log.close(_EVENTS_CLOSE_S)
        return 1
    log.info("Listening", addresses=addresses, version=__version__)
    companion = await Companion.start(options.data_dir, options.record_dir) if options.pipeline else None

    await stop.wait()
    log.info("Shutting down")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)  # a second Ctrl-C does not wait
    closing = [loop.create_task(server.close()), loop.create_task(relay.close())]
    if edge is not None:
        closing.append(loop.create_task(edge.close()))
    if companion is not None:
        closing.append(loop.create_task(companion.close(_PIPELINE_CLOSE_S)))
    if http is not None:
        closing.append(loop.create_task(http.close()))
    await asyncio.wait(closing, timeout=_SESSIONS_CLOSE_S)
    is_clean = await recordings.close(_RECORDINGS_CLOSE_S)
    if event_log is not None:
        emit(ServerStopped(events_lost_total=event_log.events_lost))
        is_clean &= event_log.close(_EVENTS_CLOSE_S)
    log.info("Stopped", **server.snapshot())
    if not is_clean:
        # A thread hangs in a dead disk, and Python would wait for it for ever; what can be saved has been.
        sys.stderr.flush()
        os._exit(0)
    return 0


def _open_event_log(options: ServeOptions) -> EventLog | None:
    """The event log, unless it is off or cannot be: a relay without telemetry is better than no relay."""
    if not options.telemetry:
        return None
    try:
        return EventLog(options.data_dir, load_identity(options.data_dir))
    except OSError as error:
        get_logger(__name__).error("Event log failed", path=str(options.data_dir), error=error.strerror)
        return None


def _viewer_naming(options: ServeOptions, event_log: EventLog | None) -> Callable[[str], str]:
    if event_log is None:
        return lambda remote: ""
    if options.store_addresses:
        return lambda remote: remote.rpartition(":")[0]
    return event_log.identity.viewer


def _destinations(options: ServeOptions) -> list[DestinationConfig]:
    try:
        from_flags = from_urls(options.relay_to)
    except ConfigError as error:
        raise ConfigError(f"-relay-to: {error}") from None
    from_file = load_file(options.relay_config, os.environ) if options.relay_config is not None else []
    return merge(from_flags, from_file)


def _origins(options: ServeOptions) -> tuple[Origin, ...]:
    try:
        return parse_origins(options.origin)
    except ConfigError as error:
        raise ConfigError(f"-origin: {error}") from None


def _reload(options: ServeOptions, relay: RelayService) -> None:
    """SIGHUP: read the file of destinations again. One that cannot be read changes nothing."""
    log = get_logger(__name__)
    try:
        relay.reload(_destinations(options))
    except ConfigError as error:
        log.error("Reload failed", error=str(error))
    else:
        log.info("Reloaded", destinations=len(relay.destinations))


def _hide_arguments() -> None:
    """Whoever may list processes must not see the stream keys and tokens of the command line."""
    # A key with a space in it would end at the space.
    shown = [without_key("".join(word.split()) if "://" in word else word) for word in sys.argv]
    for index, word in enumerate(sys.argv):
        name, _, value = word.partition("=")
        if name.lstrip("-") == "api-token":
            if value:
                shown[index] = f"{name}=****"
            elif index + 1 < len(shown):
                shown[index + 1] = "****"
    if shown != sys.argv:
        import setproctitle

        setproctitle.setproctitle(" ".join(shown))


def _raise_descriptor_limit() -> None:
    """A connection is a descriptor; the soft limit is often 1024, the hard one is ours to use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
