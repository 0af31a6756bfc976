"""The one place that wires the parts together and runs them."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import __version__, garbage, logs
from headrace.companion import Companion
from headrace.edge.origin import Origin, parse_origins
from headrace.errors import ConfigError
from headrace.logs import get_logger
from headrace.net.listener import ListenError, bind
from headrace.node import Node
from headrace.options import ServeOptions
from headrace.relay.config import DestinationConfig, from_urls, load_file
from headrace.relay.service import RelayService, merge
from headrace.units import without_key

if TYPE_CHECKING:
    from headrace.web.backend import Backend
    from headrace.web.server import HttpServer
    from headrace.workers.view import WorkersView

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
    serve = _serve if options.workers == 1 else _supervise
    try:
        import uvloop

        return uvloop.run(serve(options, destinations, origins))
    except ImportError:  # no wheel for this platform: the standard loop does the same, slower
        return asyncio.run(serve(options, destinations, origins))


async def _serve(options: ServeOptions, destinations: list[DestinationConfig], origins: tuple[Origin, ...]) -> int:
    """Serve in this process, alone."""
    log = get_logger(__name__)
    loop = asyncio.get_running_loop()
    stop = _stop_on_signals(loop)
    node = Node(options, destinations, origins)
    loop.add_signal_handler(signal.SIGHUP, _reload, options, node.relay)

    http = None
    try:
        addresses = node.server.listen(options.listen_host, options.listen_port)
        if options.http_port is not None:
            http = _start_http(options, node.control)
    except ListenError as error:
        print(f"rtmp-server: {error}", file=sys.stderr)
        await node.abandon()
        return 1
    garbage.spare()
    log.info("Listening", addresses=addresses, version=__version__)
    companion = await Companion.start(options.data_dir, options.record_dir) if options.pipeline else None

    await stop.wait()
    log.info("Shutting down")
    _stop_no_more(loop)
    is_clean = await node.close(*_closing(loop, http, companion))
    if not is_clean:
        sys.stderr.flush()
        os._exit(0)
    return 0


async def _supervise(options: ServeOptions, destinations: list[DestinationConfig], origins: tuple[Origin, ...]) -> int:
    """Serve by several workers, whose parent this process is."""
    # Imported here: a server in one process does without the memory of a parent.
    from headrace.workers.supervisor import Supervisor
    from headrace.workers.view import Refreshing

    log = get_logger(__name__)
    loop = asyncio.get_running_loop()
    stop = _stop_on_signals(loop)
    supervisor = Supervisor(options, destinations, origins)
    loop.add_signal_handler(signal.SIGHUP, _reload, options, supervisor.view)

    http = None
    try:
        sockets = bind(options.listen_host, options.listen_port)
        if options.http_port is not None:
            http = _start_http(options, supervisor.view, around=lambda app: Refreshing(app, supervisor.view))
    except ListenError as error:
        print(f"rtmp-server: {error}", file=sys.stderr)
        return 1
    if not await supervisor.start(sockets):
        print("rtmp-server: a worker did not start, and says above why", file=sys.stderr)
        await supervisor.close()
        return 1
    log.info("Listening", addresses=supervisor.addresses, version=__version__, workers=options.workers)
    companion = await Companion.start(options.data_dir, options.record_dir) if options.pipeline else None

    await stop.wait()
    log.info("Shutting down")
    _stop_no_more(loop)
    await asyncio.wait([loop.create_task(supervisor.close()), *_closing(loop, http, companion)])
    log.info("Stopped", **supervisor.view.counters())
    return 0


def _stop_on_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _stop_no_more(loop: asyncio.AbstractEventLoop) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)  # a second Ctrl-C does not wait


def _start_http(options: ServeOptions, backend: Backend, around: Callable[[Any], Any] = lambda app: app) -> HttpServer:
    # Imported here: a server without its HTTP side does without the memory of one.
    from headrace.web.api import make_app
    from headrace.web.server import HttpServer

    assert options.http_port is not None
    http = HttpServer(around(make_app(backend, token=options.api_token)))
    get_logger(__name__).info("HTTP listening", addresses=http.start(options.http_host, options.http_port))
    return http


def _closing(
    loop: asyncio.AbstractEventLoop, http: HttpServer | None, companion: Companion | None
) -> list[asyncio.Task[None]]:
    closing = []
    if companion is not None:
        closing.append(loop.create_task(companion.close(_PIPELINE_CLOSE_S)))
    if http is not None:
        closing.append(loop.create_task(http.close()))
    return closing


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


def _reload(options: ServeOptions, relay: RelayService | WorkersView) -> None:
    """SIGHUP: read the file of destinations again. One that cannot be read changes nothing."""
    log = get_logger(__name__)
    try:
        destinations = _destinations(options)
        relay.reload(destinations)
    except ConfigError as error:
        log.error("Reload failed", error=str(error))
    else:
        log.info("Reloaded", destinations=len(destinations))


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
