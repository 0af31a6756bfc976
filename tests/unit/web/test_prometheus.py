"""The metrics page, read by Prometheus's own parser."""

from __future__ import annotations

import re

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from headrace import __version__
from headrace.web.prometheus import make_registry, render
from tests.unit.web.asgi import FakeBackend, shown_destination, shown_stream

Labels = dict[str, str]


class Page:
    """All samples of a page, by name."""

    def __init__(self, backend: FakeBackend) -> None:
        self.text = render(make_registry(backend)).decode()
        self.families: dict[str, Metric] = {one.name: one for one in text_string_to_metric_families(self.text)}

    def samples(self, name: str) -> list[tuple[Labels, float]]:
        return [
            (sample.labels, sample.value)
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name
        ]

    def value(self, name: str, **labels: str) -> float:
        (found,) = [value for sample_labels, value in self.samples(name) if sample_labels == labels]
        return found


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


def test_the_counters_of_the_server_are_there_under_names_a_prometheus_user_expects(backend: FakeBackend) -> None:
    page, counters = Page(backend), backend.counters()
    for name, key in (
        ("headrace_connections", "connections"),
        ("headrace_streams", "streams"),
        ("headrace_publishers", "publishers"),
        ("headrace_subscribers", "subscribers"),
        ("headrace_connections_accepted_total", "connections_accepted"),
        ("headrace_connections_refused_total", "connections_refused"),
        ("headrace_handshakes_failed_total", "handshakes_failed"),
        ("headrace_peer_errors_total", "peer_errors"),
        ("headrace_publishes_started_total", "publishes_started"),
        ("headrace_publishes_refused_total", "publishes_refused"),
        ("headrace_plays_started_total", "plays_started"),
        ("headrace_plays_refused_total", "plays_refused"),
        ("headrace_received_messages_total", "messages_in"),
        ("headrace_received_bytes_total", "bytes_in"),
        ("headrace_relayed_messages_total", "messages_relayed"),
        ("headrace_relayed_bytes_total", "bytes_relayed"),
    ):
        assert page.value(name) == counters[key], name
    assert page.samples("headrace_dropped_messages_total") == [({"reason": "lag"}, 7)]
    assert page.value("headrace_deadlines_passed_total", deadline="idle") == 2
    assert page.value("headrace_deadlines_passed_total", deadline="handshake") == 1
    assert page.value("headrace_recordings") == 1
    assert page.value("headrace_recording_files_total") == 2
    assert page.value("headrace_recording_bytes_total") == 4
    assert page.value("headrace_recording_errors_total") == 5
    assert page.value("headrace_events_written_total") == 60
    assert page.value("headrace_events_lost_total") == 6
    assert page.value("headrace_build_info", version=__version__) == 1


def test_what_is_pulled_from_origins_is_counted_apart_from_what_is_published(backend: FakeBackend) -> None:
    backend.listed.append(shown_stream("live", "far", publisher=None, origin={"url": "rtmp://o.example/live"}))
    page = Page(backend)
    assert [page.value("headrace_pulls", state=state) for state in ("connecting", "connected", "waiting")] == [1, 2, 2]
    assert page.value("headrace_pull_waiting_players") == 9
    assert page.value("headrace_pulls_started_total") == 50
    assert page.value("headrace_pulls_connected_total") == 40
    assert page.value("headrace_pull_reconnects_total") == 3
    assert page.value("headrace_pulled_messages_total") == 70
    assert page.value("headrace_pulled_bytes_total") == 7000
    assert page.value("headrace_pull_failures_total", reason="rejected") == 6
    assert page.value("headrace_pulls_refused_total", reason="missing") == 8
    assert page.value("headrace_stream_pulled", app="live", stream="far") == 1
    assert page.value("headrace_stream_pulled", app="live", stream="cam") == 0


def test_a_stream_has_its_rates_and_viewers(backend: FakeBackend) -> None:
    page = Page(backend)
    labels = {"app": "live", "stream": "cam"}
    assert page.value("headrace_stream_viewers", **labels) == 3
    assert page.value("headrace_stream_video_bits_per_second", **labels) == 4_000_000
    assert page.value("headrace_stream_audio_bits_per_second", **labels) == 128_000
    assert page.value("headrace_stream_frame_rate", **labels) == 30
    assert page.value("headrace_stream_received_bytes_total", **labels) == 123_456


def test_a_rate_that_is_not_known_is_left_out(backend: FakeBackend) -> None:
    backend.listed = [shown_stream("live", "cam", publisher=None, video_bps=None, audio_bps=None, frame_rate=None)]
    page = Page(backend)
    assert page.samples("headrace_stream_video_bits_per_second") == []
    assert page.value("headrace_stream_viewers", app="live", stream="cam") == 3


def test_a_destination_has_its_state_and_totals(backend: FakeBackend) -> None:
    backend.shown["two"] = shown_destination("two", status="waiting", flowing=False, dropped_by_reason={})
    page = Page(backend)
    assert page.value("headrace_destination_up", destination="one") == 1
    assert page.value("headrace_destination_up", destination="two") == 0
    assert page.value("headrace_destination_flowing", destination="one") == 1
    assert page.value("headrace_destination_flowing", destination="two") == 0
    assert page.value("headrace_destination_queue_age_seconds", destination="one") == 0.25
    assert page.value("headrace_destination_sent_messages_total", destination="one") == 100
    assert page.value("headrace_destination_sent_bytes_total", destination="one") == 5000
    assert page.value("headrace_destination_reconnects_total", destination="one") == 1
    assert page.value("headrace_destination_failures_total", destination="one") == 2
    assert page.value("headrace_destination_connected_seconds_total", destination="one") == 60.5
    assert page.value("headrace_destination_dropped_messages_total", destination="one", reason="lag") == 3
    assert page.value("headrace_destination_dropped_messages_total", destination="one", reason="evicted") == 2
    # One of the states is 1, so that sum by (state) counts destinations.
    for name, status in (("one", "connected"), ("two", "waiting")):
        states = {
            labels["state"]: value
            for labels, value in page.samples("headrace_destination_state")
            if labels["destination"] == name
        }
        assert states.keys() == {"disconnected", "connecting", "connected", "waiting", "error"}
        assert [state for state, value in states.items() if value] == [status]


def test_the_process_is_measured_too(backend: FakeBackend) -> None:
    page = Page(backend)
    assert page.value("process_open_fds") > 0
    assert page.value("process_resident_memory_bytes") > 0
    assert page.value("process_cpu_seconds_total") > 0


@pytest.mark.parametrize("name", ['a "quoted" one', "back\\slash", "two\nlines", "Käse 🧀", "{brace}", ""])
def test_names_of_any_kind_survive_the_parser(name: str, backend: FakeBackend) -> None:
    backend.shown = {name: shown_destination(name)}
    backend.listed = [shown_stream("live", name)]
    page = Page(backend)
    assert page.value("headrace_destination_up", destination=name) == 1
    assert page.value("headrace_stream_viewers", app="live", stream=name) == 3


def test_names_that_are_no_utf_8_are_spelled_out_and_stay_apart(backend: FakeBackend) -> None:
    backend.listed = [shown_stream("live", "caf\udce9", viewers=1), shown_stream("live", "caf\udce8", viewers=2)]
    page = Page(backend)
    assert page.value("headrace_stream_viewers", app="live", stream="caf\\udce9") == 1
    assert page.value("headrace_stream_viewers", app="live", stream="caf\\udce8") == 2


def test_without_streams_and_destinations_the_page_is_still_whole(backend: FakeBackend) -> None:
    backend.shown, backend.listed = {}, []
    page = Page(backend)
    assert page.samples("headrace_destination_up") == []
    assert page.samples("headrace_stream_viewers") == []
    assert page.value("headrace_connections") == 10


def test_every_family_has_its_help_its_type_and_a_legal_name_once(backend: FakeBackend) -> None:
    page = Page(backend)
    names = re.findall(r"^# TYPE (\S+) (\S+)$", page.text, re.MULTILINE)
    assert len({name for name, _ in names}) == len(names)
    for name, kind in names:
        assert re.fullmatch(r"(headrace|process)(_[a-z]+)+", name), name
        assert kind in ("counter", "gauge")
        assert (kind == "counter") == name.endswith("_total") or name.startswith("process_")
        assert page.families[name.removesuffix("_total")].documentation


def test_each_page_is_read_anew(backend: FakeBackend) -> None:
    registry = make_registry(backend)
    assert b'destination="one"} 100.0' in render(registry)
    backend.shown["one"]["messages_sent"] = 250
    assert b'headrace_destination_sent_messages_total{destination="one"} 250.0' in render(registry)
