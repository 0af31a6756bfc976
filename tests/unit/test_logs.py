"""The log: what a line holds, what a peer cannot do to it, and that it never takes the server down."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from headrace import logs

NOON_S = 1_767_268_800.25  # 2026-01-01T12:00:00.250Z


@pytest.fixture(autouse=True)
def configuration_put_back() -> Iterator[None]:
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def written_as_json(*, level: str = "debug") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, "json", stream, clock=lambda: NOON_S)
    return stream


def written_as_text(stream: io.StringIO | None = None) -> io.StringIO:
    stream = io.StringIO() if stream is None else stream
    logs.configure("debug", "text", stream, clock=lambda: NOON_S)
    return stream


def fields_of(value: Any) -> Any:
    """How one value comes out of the JSON log."""
    stream = written_as_json()
    logs.get_logger("test").info("x", value=value)
    (line,) = stream.getvalue().splitlines()
    return json.loads(line)["value"]


def test_every_line_of_a_worker_says_whose_it_is() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream, fields={"worker": 3})
    logs.get_logger("test").bind(conn_id="w3-c1").info("x", value=1)
    (line,) = stream.getvalue().splitlines()
    assert list(json.loads(line).items())[2:] == [
        ("msg", "x"),
        ("module", "test"),
        ("conn_id", "w3-c1"),
        ("value", 1),
        ("worker", 3),
    ]


# --- json


def test_a_line_is_time_level_message_and_then_the_fields() -> None:
    stream = written_as_json()
    log = logs.get_logger("headrace.server.session").bind(conn_id=7)
    log.info("Connection accepted", peer="127.0.0.1:50412")
    assert stream.getvalue() == (
        '{"time":"2026-01-01T12:00:00.250Z","level":"info","msg":"Connection accepted",'
        '"module":"server.session","conn_id":7,"peer":"127.0.0.1:50412"}\n'
    )


@pytest.mark.parametrize(
    ("method", "level"),
    [
        ("debug", "debug"),
        ("info", "info"),
        ("warn", "warn"),
        ("warning", "warn"),
        ("error", "error"),
        ("exception", "error"),
        ("critical", "error"),
    ],
)
def test_the_four_levels_have_one_name_each(method: str, level: str) -> None:
    stream = written_as_json()
    getattr(logs.get_logger("test"), method)("x")
    assert json.loads(stream.getvalue())["level"] == level


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error"])
def test_what_is_less_severe_than_the_level_is_not_written(level: str) -> None:
    stream = written_as_json(level=level)
    log = logs.get_logger("test").bind(conn_id=1)
    for method in logs.LEVELS:
        getattr(log, method)("x")
    levels = [json.loads(line)["level"] for line in stream.getvalue().splitlines()]
    assert levels == list(logs.LEVELS)[list(logs.LEVELS).index(level) :]


def test_a_field_cannot_replace_time_level_or_message() -> None:
    stream = written_as_json()
    logs.get_logger("test").info("real", time=1, level="fake", msg="fake")
    line = json.loads(stream.getvalue())
    assert (line["level"], line["msg"]) == ("info", "real")
    assert (line["time_"], line["level_"], line["msg_"]) == (1, "fake", "fake")


@pytest.mark.parametrize("evil", ["a\nb", "a\r\nb", '"}\n{"msg":"forged"}', "\x1b[31m", "\x9b2J", "\u2028"])
def test_a_value_can_neither_end_a_line_nor_reach_the_terminal(evil: str) -> None:
    stream = written_as_json()
    logs.get_logger("test").info(evil, stream_key=evil, nested={evil: [evil]})
    line = stream.getvalue().removesuffix("\n")
    assert line.isascii()
    assert line.isprintable()
    parsed = json.loads(line)
    assert (parsed["msg"], parsed["stream_key"], parsed["nested"]) == (evil, evil, {evil: [evil]})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (-(2**63), -(2**63)),
        (2**64, "an integer of 65 bits"),
        (0.5, 0.5),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (b"live\xff", "live\\xff"),
        (("a", 1), ["a", 1]),
        ({"a": {"b": {"c": [1]}}}, {"a": {"b": {"c": [1]}}}),
        ({"a": {"b": {"c": [[1]]}}}, {"a": {"b": {"c": ["..."]}}}),
        (ValueError("chunk size 0, expected 1..16777215"), "chunk size 0, expected 1..16777215"),
        (TimeoutError(), "TimeoutError"),
        ("\udc80", "\udc80"),
    ],
)
def test_values_of_every_kind_are_shown(value: Any, shown: Any) -> None:
    assert fields_of(value) == shown


def test_long_values_are_cut_and_say_so() -> None:
    assert fields_of("k" * 4096) == "k" * 512 + "... (3584 more)"
    assert fields_of(b"k" * 4096) == "k" * 512 + "... (3584 more)"
    assert fields_of(list(range(40))) == [*range(32), "... 8 more"]
    cut = fields_of({str(number): number for number in range(40)})
    assert len(cut) == 33
    assert cut["..."] == "8 more"


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    assert fields_of(Broken()) == "<Broken that cannot be shown>"


def test_an_exception_carries_its_traceback() -> None:
    stream = written_as_json()
    try:
        raise ValueError("bad\nvalue")
    except ValueError as error:
        logs.get_logger("test").exception("boom")
        logs.get_logger("test").error("boom", exc_info=error)
        logs.get_logger("test").error("boom", exc_info=sys.exc_info())
    lines = [json.loads(line)["traceback"] for line in stream.getvalue().splitlines()]
    assert len(lines) == 3
    assert all(line.startswith("Traceback") and line.endswith("ValueError: bad\nvalue") for line in lines)


def test_a_long_traceback_keeps_its_end() -> None:
    stream = written_as_json()
    logs.get_logger("test").error("boom", exc_info=ValueError("x" * 20_000 + "end"))
    trace = json.loads(stream.getvalue())["traceback"]
    assert trace.startswith("(")
    assert trace.endswith("xend")
    assert len(trace) < 8300


def test_exception_outside_a_handler_is_only_a_line() -> None:
    stream = written_as_json()
    logs.get_logger("test").exception("boom")
    assert json.loads(stream.getvalue())["traceback"] == ""


@given(st.text(alphabet=st.characters()), st.recursive(st.none() | st.text() | st.binary(), st.lists))
def test_any_message_and_value_is_one_line(message: str, value: object) -> None:
    stream = written_as_json()
    logs.get_logger("test").info(message, value=value)
    assert json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    stream = written_as_text()
    logs.get_logger("test").info(message, value=value)
    assert stream.getvalue().removesuffix("\n").isprintable()


# --- text


def local(text: str) -> str:
    """A line without its time, which depends on the machine's zone but always ends alike."""
    assert text[2::3][:2] == "::"
    assert text[6:12] == "00.250"
    return text[13:]


def test_text_is_aligned_and_compact() -> None:
    stream = written_as_text()
    log = logs.get_logger("headrace.server.session").bind(conn_id=7)
    log.info("Connection accepted", peer="127.0.0.1:50412", rates=[1, 2], empty="", spaced="a b")
    log.warn("Subscriber added")
    logs.get_logger("test").error("no fields")
    lines = [local(line) for line in stream.getvalue().splitlines()]
    assert lines == [
        'INFO  Connection accepted      conn_id=7 peer=127.0.0.1:50412 rates=[1, 2] empty="" spaced="a b"',
        "WARN  Subscriber added         conn_id=7",
        "ERROR no fields",
    ]


def test_text_escapes_what_a_peer_could_forge_with() -> None:
    stream = written_as_text()
    logs.get_logger("test").info("a\nb", stream_key='live/x\x1b[31m\n"y"=', **{"k\n": ["\x1b", "\u202e"]})
    assert local(stream.getvalue()) == (
        'INFO  a\\nb                     stream_key="live/x\\x1b[31m\\n\\"y\\"=" k\\n=["\\\\u001b", "\\u202e"]\n'
    )


def test_a_traceback_in_text_is_indented_and_escaped() -> None:
    stream = written_as_text()
    logs.get_logger("test").error("boom", exc_info=ValueError("a\n12:00:00.000 INFO forged\x1b[0m"))
    first, *rest = stream.getvalue().splitlines()
    assert local(first) == "ERROR boom"
    assert rest == ["    ValueError: a", "    12:00:00.000 INFO forged\\x1b[0m"]


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = written_as_text(Screen())
    logs.get_logger("test").warn("Careful", conn_id=7)
    assert "\x1b[33mWARN \x1b[0m" in stream.getvalue()
    assert "\x1b[36mconn_id\x1b[0m=7" in stream.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    stream = written_as_text(Screen())
    logs.get_logger("test").warn("Careful", conn_id=7)
    assert "\x1b" not in stream.getvalue()


# --- what can go wrong


@pytest.mark.parametrize(("level", "fmt"), [("loud", "json"), ("info", "xml")])
def test_an_unknown_level_or_format_is_a_bug(level: str, fmt: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        logs.configure(level, fmt)


def lost_lines(log: Any) -> int:
    writer: logs._Writer = log.bind()._logger
    return writer.lost_lines


def test_a_closed_stream_loses_lines_and_counts_them() -> None:
    stream = written_as_json()
    log = logs.get_logger("test").bind()
    stream.close()
    log.info("x")
    log.error("y")
    assert lost_lines(log) == 2


def test_a_closed_terminal_is_no_terminal() -> None:
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    logs.configure("info", "text", closed)
    assert logs._has_colour(closed) is False
    assert logs._has_colour(None) is False


def test_a_reader_that_went_away_is_survived() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = open(writing, "w", buffering=1)  # noqa: SIM115 - closed below, where closing fails as it should
    logs.configure("info", "json", stream)
    log = logs.get_logger("test").bind()
    for _ in range(1000):
        log.info("x", value="y" * 100)
    assert lost_lines(log) == 1000
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_without_a_standard_error_lines_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure("info", "text")
    monkeypatch.setattr(sys, "stderr", None)
    log = logs.get_logger("test").bind()
    log.info("x")
    assert lost_lines(log) == 1


def test_a_redirected_standard_error_is_followed(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.get_logger("test").info("here")
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["msg"] == "here"


def test_a_wrong_call_loses_the_line_and_raises_nothing() -> None:
    stream = written_as_json()
    log: Any = logs.get_logger("test").bind()
    log.info("%d connections", "many")
    log.warning("x", event="given twice")
    assert stream.getvalue() == ""
    assert lost_lines(log) == 2


def test_lines_of_many_threads_stay_whole() -> None:
    stream = written_as_json()
    log = logs.get_logger("test").bind()
    threads = [threading.Thread(target=lambda: [log.info("x", v="y" * 300) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 400
    assert all(json.loads(line)["v"] == "y" * 300 for line in lines)


def test_a_module_logger_made_before_follows_the_configuration() -> None:
    log = logs.get_logger("headrace.early")
    first, second = written_as_json(), written_as_json()
    log.info("x")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["module"] == "early"


# --- the standard library's own loggers


def test_errors_of_asyncio_come_out_as_lines_of_the_log() -> None:
    written_as_json()
    stream = written_as_json()  # configured twice: still one line each
    logging.getLogger("asyncio").error("Task exception was never %s", "retrieved", exc_info=ValueError("why"))
    logging.getLogger("asyncio").warning("Executing took 2 seconds")
    logging.getLogger("asyncio").info("not interesting")
    error, warning = map(json.loads, stream.getvalue().splitlines())
    assert (error["level"], error["msg"]) == ("error", "Task exception was never retrieved")
    assert (error["module"], error["traceback"]) == ("asyncio", "ValueError: why")
    assert (warning["level"], warning["msg"]) == ("warn", "Executing took 2 seconds")


def test_the_level_holds_for_them_too() -> None:
    stream = written_as_json(level="error")
    logging.getLogger("asyncio").warning("Executing took 2 seconds")
    assert stream.getvalue() == ""


def test_a_wrong_call_of_theirs_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    stream = written_as_json()
    record = logging.LogRecord("asyncio", logging.ERROR, "x.py", 1, "%d tasks", ("many",), None)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logs._StandardLibraryBridge):
            handler.handle(record)
    assert stream.getvalue() == ""
    assert capsys.readouterr().err == ""
