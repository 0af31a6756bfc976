"""The metrics page: the server's numbers under the names a Prometheus user expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace import __version__
from headrace.web.backend import Backend

_STATES = ("disconnected", "connecting", "connected", "waiting", "error")

# (name, help, key of the counters)
_GAUGES = (
    ("headrace_connections", "RTMP connections open.", "connections"),
    ("headrace_streams", "Streams live or in their grace period.", "streams"),
    ("headrace_publishers", "Publishers connected.", "publishers"),
    ("headrace_subscribers", "Players connected.", "subscribers"),
)
_COUNTERS = (
    ("headrace_connections_accepted", "RTMP connections accepted.", "connections_accepted"),
    ("headrace_connections_refused", "RTMP connections refused for lack of room.", "connections_refused"),
    ("headrace_handshakes_failed", "Connections that ended before the handshake was done.", "handshakes_failed"),
    ("headrace_peer_errors", "Connections closed because the peer broke the protocol.", "peer_errors"),
    ("headrace_publishes_started", "Publishers granted.", "publishes_started"),
    ("headrace_publishes_refused", "Publishers refused.", "publishes_refused"),
    ("headrace_plays_started", "Players granted.", "plays_started"),
    ("headrace_plays_refused", "Players refused.", "plays_refused"),
    ("headrace_received_messages", "Media messages received from publishers.", "messages_in"),
    ("headrace_received_bytes", "Media bytes received from publishers.", "bytes_in"),
    ("headrace_relayed_messages", "Media messages sent to players and destinations.", "messages_relayed"),
    ("headrace_relayed_bytes", "Bytes sent to players and destinations.", "bytes_relayed"),
)
_RECORDING_COUNTERS = (
    ("headrace_recording_files", "Recording files begun.", "files"),
    ("headrace_recording_bytes", "Bytes written to recordings.", "size_bytes"),
    ("headrace_recording_errors", "Recordings that ended with an error.", "errors"),
)
_PULL_COUNTERS = (
    ("headrace_pulls_started", "Streams looked for at an origin.", "started"),
    ("headrace_pulls_connected", "Streams that an origin had.", "connected"),
    ("headrace_pull_reconnects", "Connections to an origin after the first of each stream.", "reconnects"),
    ("headrace_pulled_messages", "Media messages received from origins.", "messages_in"),
    ("headrace_pulled_bytes", "Media bytes received from origins.", "bytes_in"),
)
_EVENT_COUNTERS = (
    ("headrace_events_written", "Events written to the event log.", "written"),
    ("headrace_events_lost", "Events lost for want of room in memory or on the disk.", "lost"),
)
_DESTINATION_COUNTERS = (
    ("headrace_destination_sent_messages", "Messages sent to the destination.", "messages_sent"),
    ("headrace_destination_sent_bytes", "Bytes sent to the destination.", "bytes_sent"),
    ("headrace_destination_reconnects", "Connections after the first.", "reconnect_count"),
    ("headrace_destination_failures", "Connections that failed or were lost.", "failures"),
    ("headrace_destination_connected_seconds", "Time connected.", "connected_total_s"),
)
_STREAM_GAUGES = (
    ("headrace_stream_viewers", "Players of the stream.", "viewers"),
    ("headrace_stream_video_bits_per_second", "Video bitrate of the last seconds.", "video_bps"),
    ("headrace_stream_audio_bits_per_second", "Audio bitrate of the last seconds.", "audio_bps"),
    ("headrace_stream_frame_rate", "Video frames per second of the last seconds.", "frame_rate"),
)


class _BackendCollector(Collector):
    """Reads the backend anew for every scrape: no second set of counters to keep in step."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("headrace_build", "The version that runs.", {"version": __version__})
        yield from self._server()
        yield from self._streams()
        yield from self._destinations()

    def _server(self) -> Iterator[Metric]:
        counters = self._backend.counters()
        for name, text, key in _GAUGES:
            yield GaugeMetricFamily(name, text, counters[key])
        for name, text, key in _COUNTERS:
            yield CounterMetricFamily(name, text, counters[key])
        yield _by_label(
            CounterMetricFamily("headrace_dropped_messages", "Messages players did not get.", labels=["reason"]),
            counters["messages_dropped"].items(),
        )
        yield _by_label(
            CounterMetricFamily("headrace_deadlines_passed", "Connections closed by a deadline.", labels=["deadline"]),
            counters["connections_closed"].items(),
        )
        recordings = counters["recordings"]
        yield GaugeMetricFamily("headrace_recordings", "Recordings in progress.", recordings["active"])
        for name, text, key in _RECORDING_COUNTERS:
            yield CounterMetricFamily(name, text, recordings[key])
        yield from self._pulls(counters["pulls"])
        yield from self._workers(counters.get("workers", ()))
        for name, text, key in _EVENT_COUNTERS:
            yield CounterMetricFamily(name, text, counters["events"][key])

    def _workers(self, workers: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
        for family, key in (
            (GaugeMetricFamily("headrace_worker_up", "1 while it serves.", labels=["worker"]), "is_ready"),
            (CounterMetricFamily("headrace_worker_restarts", "Starts after the first.", labels=["worker"]), "restarts"),
            (CounterMetricFamily("headrace_worker_cpu_seconds", "CPU time used.", labels=["worker"]), "cpu_s"),
            (
                GaugeMetricFamily("headrace_worker_memory_bytes", "Memory resident.", labels=["worker"]),
                "memory_bytes",
            ),
        ):
            for one in workers:
                family.add_metric([str(one["worker"])], one[key])
            yield family

    def _pulls(self, pulls: Mapping[str, Any]) -> Iterator[Metric]:
        state = GaugeMetricFamily("headrace_pulls", "Streams pulled from origins, by state.", labels=["state"])
        for word, count in pulls["by_state"].items():
            state.add_metric([word], count)
        yield state
        yield GaugeMetricFamily(
            "headrace_pull_waiting_players", "Players that wait for an origin.", pulls["waiting_players"]
        )
        for name, text, key in _PULL_COUNTERS:
            yield CounterMetricFamily(name, text, pulls[key])
        yield _by_label(
            CounterMetricFamily("headrace_pull_failures", "Connections to origins that failed.", labels=["reason"]),
            pulls["failures"].items(),
        )
        yield _by_label(
            CounterMetricFamily("headrace_pulls_refused", "Plays no origin was asked for.", labels=["reason"]),
            pulls["refused"].items(),
        )

    def _streams(self) -> Iterator[Metric]:
        streams = self._backend.streams()
        for name, text, key in _STREAM_GAUGES:
            family = GaugeMetricFamily(name, text, labels=["app", "stream"])
            for stream in streams:
                if stream[key] is not None:
                    family.add_metric(_stream_labels(stream), stream[key])
            yield family
        received = CounterMetricFamily(
            "headrace_stream_received_bytes", "Media bytes of the stream.", labels=["app", "stream"]
        )
        for stream in streams:
            received.add_metric(_stream_labels(stream), stream["bytes_in"])
        yield received
        pulled = GaugeMetricFamily(
            "headrace_stream_pulled", "1 if the stream comes from an origin.", labels=["app", "stream"]
        )
        for stream in streams:
            pulled.add_metric(_stream_labels(stream), stream["origin"] is not None)
        yield pulled

    def _destinations(self) -> Iterator[Metric]:
        shown = self._backend.destinations()
        up = GaugeMetricFamily("headrace_destination_up", "1 while connected.", labels=["destination"])
        flowing = GaugeMetricFamily("headrace_destination_flowing", "1 while media arrives.", labels=["destination"])
        age = GaugeMetricFamily(
            "headrace_destination_queue_age_seconds", "Age of the oldest message not sent.", labels=["destination"]
        )
        state = GaugeMetricFamily("headrace_destination_state", "1 for its state.", labels=["destination", "state"])
        dropped = CounterMetricFamily(
            "headrace_destination_dropped_messages", "Messages it did not get.", labels=["destination", "reason"]
        )
        counters = [
            (CounterMetricFamily(name, text, labels=["destination"]), key) for name, text, key in _DESTINATION_COUNTERS
        ]
        for name, one in shown.items():
            up.add_metric([name], one["status"] == "connected")
            flowing.add_metric([name], one["flowing"])
            age.add_metric([name], one["queue_age_s"])
            for word in _STATES:
                state.add_metric([name, word], one["status"] == word)
            for reason, count in one["dropped_by_reason"].items():
                dropped.add_metric([name, reason], count)
            for family, key in counters:
                family.add_metric([name], one[key])
        yield from (up, flowing, age, state, dropped)
        yield from (family for family, _ in counters)


def _stream_labels(stream: Mapping[str, Any]) -> list[str]:
    # A publisher's name may hold bytes that are no UTF-8, and the page is UTF-8.
    return [stream[key].encode("utf-8", "backslashreplace").decode() for key in ("app", "name")]


def _by_label(family: CounterMetricFamily, values: Iterable[tuple[str, float]]) -> CounterMetricFamily:
    for label, value in values:
        family.add_metric([label], value)
    return family


def make_registry(backend: Backend) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_BackendCollector(backend))
    ProcessCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)
