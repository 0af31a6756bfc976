"""The one place that wires the parts together and runs them."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys

from headrace import __version__, logs
from headrace.logs import get_logger
from headrace.net.listener import ListenError
from headrace.options import ServeOptions
from headrace.record.service import RecordingService
from headrace.server.server import Server
from headrace.stream.log import LogLimits
from headrace.telemetry.metrics import ServerMetrics

# Everything must be over within 5 s of a SIGTERM; recordings get what the sessions leave.
_RECORDINGS_CLOSE_S = 3.0


def run(options: ServeOptions) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit status."""
    logs.configure(options.log_level, options.log_format)
    _raise_descriptor_limit()
    try:
        import uvloop

        return uvloop.run(_serve(options))
    except ImportError:  # no wheel for this platform: the standard loop does the same, slower
        return asyncio.run(_serve(options))


async def _serve(options: ServeOptions) -> int:
    log = get_logger(__name__)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = ServerMetrics()
    recordings = RecordingService(options.record_dir, options.segment_duration_s, metrics=metrics)
    server = Server(
        chunk_size=options.chunk_size,
        grace_s=options.publisher_grace_s,
        max_lag_s=options.max_lag_s,
        limits=LogLimits(retain_s=options.max_lag_s),
        metrics=metrics,
        on_stream=recordings.start if options.record_all else None,
    )
    try:
        addresses = server.listen(options.listen_host, options.listen_port)
    except ListenError as error:
        print(f"rtmp-server: {error}", file=sys.stderr)
        return 1
    log.info("Listening", addresses=addresses, version=__version__)
    await stop.wait()
    log.info("Shutting down")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)  # a second Ctrl-C does not wait
    await server.close()
    await recordings.close(_RECORDINGS_CLOSE_S)
    log.info("Stopped", **metrics.snapshot())
    return 0


def _raise_descriptor_limit() -> None:
    """A connection is a descriptor; the soft limit is often 1024, the hard one is ours to use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
