"""The command line: every spelling of a flag, every way to get one wrong, and the exact words for it."""

from __future__ import annotations

import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import __version__, cli
from headrace.cli import main, parse_serve_options, read_flags, rtmp_server
from headrace.errors import ConfigError
from headrace.options import SERVE_FLAGS, Flag, ServeOptions, ValueKind

WORD = ValueKind(parse=str.upper, expected="a word", metavar="WORD")
TABLE = (
    Flag(name="name", group="", fields=("name",), kind=WORD, default="nobody", help="", env="HEADRACE_NAME"),
    Flag(name="push", group="", fields=("pushes",), kind=WORD, default="none", help="", is_repeatable=True),
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServeOptions]:
    """Stands in for the server: what `run` was called with."""
    calls: list[ServeOptions] = []
    app = types.ModuleType("headrace.app")

    def run(options: ServeOptions) -> int:
        calls.append(options)
        return 7

    app.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "headrace.app", app)
    return calls


# --- reading flags


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_every_flag_works_with_one_dash_or_two(dashes: str) -> None:
    words = ["listen", "[::1]:1940", "log-level", "debug", "log-format", "text", "record-all", "true"]
    words += ["record-dir", "tapes", "segment-duration", "30s", "chunk-size", "4096"]
    words += ["publisher-grace", "0", "max-lag", "2500ms", "merge-ms", "25"]
    words += ["relay-to", "rtmp://far/live", "relay-config", "far.json"]
    words += ["http-status", "0.0.0.0:8080", "api-token", "correct-horse-battery", "data-dir", "lake"]
    words += ["telemetry", "off", "store-addresses", "true", "pipeline", "on"]
    words += ["workers", "3", "origin", "rtmp://near", "origin-linger", "3s", "pulled-streams", "all"]
    argv = [dashes + word if position % 2 == 0 else word for position, word in enumerate(words)]
    assert {word.lstrip("-") for word in argv[::2]} == {flag.name for flag in SERVE_FLAGS}
    assert parse_serve_options(argv) == ServeOptions(
        listen_host="::1",
        listen_port=1940,
        log_level="debug",
        log_format="text",
        record_all=True,
        record_dir=Path("tapes"),
        segment_duration_s=30.0,
        chunk_size=4096,
        publisher_grace_s=0.0,
        max_lag_s=2.5,
        merge_ms=25,
        relay_to=("rtmp://far/live",),
        workers=3,
        origin=("rtmp://near",),
        origin_linger_s=3.0,
        pulled_streams="all",
        relay_config=Path("far.json"),
        http_host="0.0.0.0",
        http_port=8080,
        api_token="correct-horse-battery",
        data_dir=Path("lake"),
        telemetry=False,
        store_addresses=True,
        pipeline=True,
    )


@pytest.mark.parametrize("argv", [["-chunk-size=4096"], ["--chunk-size=4096"], ["-chunk-size", "4096"]])
def test_a_value_follows_a_space_or_an_equals_sign(argv: list[str]) -> None:
    assert parse_serve_options(argv).chunk_size == 4096


@pytest.mark.parametrize(
    ("argv", "record_all"),
    [
        ([], False),
        (["-record-all"], True),
        (["--record-all"], True),
        (["-record-all", "true"], True),
        (["-record-all", "false"], False),
        (["-record-all=false"], False),
        (["-record-all", "-listen", ":1"], True),
        (["-listen", ":1", "-record-all"], True),
        (["-record-all", "-record-all", "false"], False),
    ],
)
def test_record_all_may_stand_alone(argv: list[str], record_all: bool) -> None:
    assert parse_serve_options(argv).record_all is record_all


def test_of_a_flag_given_twice_the_last_counts() -> None:
    assert parse_serve_options(["-listen", ":1", "--listen", ":2"]).listen_port == 2


@pytest.mark.parametrize(
    ("argv", "is_terminal", "log_format"),
    [
        ([], False, "json"),
        ([], True, "text"),
        (["-log-format", "auto"], True, "text"),
        (["-log-format", "json"], True, "json"),
        (["-log-format", "text"], False, "text"),
    ],
)
def test_the_log_is_text_on_a_terminal_unless_told(argv: list[str], is_terminal: bool, log_format: str) -> None:
    assert parse_serve_options(argv, is_terminal=is_terminal).log_format == log_format


WRONG = [
    (["-chunk-size", "12x"], '-chunk-size: found "12x", expected a whole number from 128 to 16777215'),
    (["--chunk-size=12x"], '-chunk-size: found "12x", expected a whole number from 128 to 16777215'),
    (["-chunk-size"], "-chunk-size: found no value, expected a whole number from 128 to 16777215"),
    (["-chunk-size="], '-chunk-size: found "", expected a whole number from 128 to 16777215'),
    (["-log-level", "-record-all"], "-log-level: found no value, expected debug, info, warn or error"),
    (
        ["-max-lag", "-5s"],
        '-max-lag: found "-5s", expected a duration from 100ms to 10m, such as 500ms, 30s or 5m',
    ),
    (["-listen", "localhost:99999"], '-listen: found port "99999", expected a whole number from 0 to 65535'),
    (["-record-all", "maybe"], '-record-all: found "maybe", expected true or false'),
    (["-record-dir", "a\nb\0"], '-record-dir: found "a\\nb\\x00", expected the path of a folder'),
    (["-lisen", ":1935"], "-lisen: unknown flag; did you mean -listen?"),
    (["--chunksize=4096"], "--chunksize: unknown flag; did you mean -chunk-size?"),
    (["-zzz"], "-zzz: unknown flag, expected one of those that -help lists"),
    (["-z\x1b[31m=1"], '"-z\\x1b[31m": unknown flag, expected one of those that -help lists'),
    (["recordings"], 'found "recordings", expected only flags and their values'),
    (["-listen", ":1935", "extra", "words"], 'found "extra", expected only flags and their values'),
    (["-"], 'found "-", expected only flags and their values'),
    (["-record-all", "true", "true"], 'found "true", expected only flags and their values'),
]


@pytest.mark.parametrize(("argv", "message"), WRONG)
def test_a_wrong_command_line_is_one_line_on_stderr_and_status_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], served: list[ServeOptions]
) -> None:
    assert rtmp_server(argv) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"rtmp-server: {message}\n")
    assert not served


@pytest.mark.parametrize("word", ["-lis", "--lis", "-l", "-chunk", "--record", "-hel", "-v"])
def test_a_flag_cannot_be_abbreviated(word: str) -> None:
    with pytest.raises(ConfigError, match=f"^{word}: unknown flag"):
        parse_serve_options([word, "1"])


def test_an_unknown_flag_does_not_repeat_its_value() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_serve_options(["-token=secret"])
    assert "secret" not in str(caught.value)


@given(st.lists(st.text() | st.sampled_from([f"-{flag.name}" for flag in SERVE_FLAGS])))
def test_any_words_give_options_or_one_printable_line(argv: list[str]) -> None:
    message = ""
    try:
        parse_serve_options(argv)
    except ConfigError as error:
        message = str(error)
    assert message.isprintable()


# --- what the next flags will need


def test_a_repeatable_flag_collects_its_values_in_order() -> None:
    assert read_flags(TABLE, ["-push", "a", "--push=b"])["pushes"] == ("A", "B")
    assert read_flags(TABLE, [])["pushes"] == ()


def test_an_environment_variable_counts_unless_the_flag_is_given() -> None:
    environ = {"HEADRACE_NAME": "eve"}
    assert read_flags(TABLE, [], environ=environ)["name"] == "EVE"
    assert read_flags(TABLE, ["-name", "ann"], environ=environ)["name"] == "ANN"
    assert read_flags(TABLE, [], environ={})["name"] == "NOBODY"


def test_a_wrong_environment_variable_is_named_in_the_message() -> None:
    chunk_size = next(flag for flag in SERVE_FLAGS if flag.name == "chunk-size").kind
    flag = Flag(name="n", group="", fields=("n",), kind=chunk_size, default="128", help="", env="HEADRACE_N")
    with pytest.raises(ConfigError, match=r'^HEADRACE_N: found "x", expected a whole number'):
        read_flags([flag], [], environ={"HEADRACE_N": "x"})


# --- commands


def test_rtmp_server_runs_the_app_and_returns_its_status(served: list[ServeOptions]) -> None:
    assert rtmp_server(["-listen", ":0"]) == 7
    assert [options.listen_port for options in served] == [0]


def test_headrace_serve_is_rtmp_server(served: list[ServeOptions]) -> None:
    assert main(["serve", "-listen", ":0", "-record-all"]) == 7
    assert served[0].record_all


def test_arguments_come_from_the_process_by_default(
    served: list[ServeOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["rtmp-server", "-listen", ":1"])
    assert rtmp_server() == 7
    monkeypatch.setattr(sys, "argv", ["headrace", "serve", "-listen", ":2"])
    assert main() == 7
    assert [options.listen_port for options in served] == [1, 2]


def test_a_config_error_of_the_app_is_one_line_too(
    served: list[ServeOptions], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(options: ServeOptions) -> int:
        raise ConfigError("-record-dir: found a file, expected a folder")

    monkeypatch.setattr(sys.modules["headrace.app"], "run", refuse)
    assert rtmp_server([]) == 2
    assert capsys.readouterr().err == "rtmp-server: -record-dir: found a file, expected a folder\n"


def test_errors_of_headrace_serve_carry_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "-x"]) == 2
    expected = "headrace serve: -x: unknown flag, expected one of those that -help lists\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sreve", 'headrace: found command "sreve", expected serve, pipeline, query or report; did you mean serve?'),
        ("publish", 'headrace: found command "publish", expected serve, pipeline, query or report'),
        ("-listen", 'headrace: found flag "-listen", expected serve, pipeline, query or report'),
    ],
)
def test_an_unknown_command_is_one_line_and_status_2(
    word: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", message + "\n")


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["-help"], ["help"]])
def test_headrace_alone_prints_its_help(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "Usage: headrace COMMAND [flags]" in out
    assert "  serve " in out
    assert err == ""


@pytest.mark.parametrize("word", ["-version", "--version"])
def test_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rtmp_server([word]) == 0
    assert main([word]) == 0
    assert main(["serve", word]) == 0
    assert capsys.readouterr().out == f"headrace {__version__}\n" * 3


@pytest.mark.parametrize("argv", [["-h"], ["-help"], ["--help"], ["-listen", ":1", "-h"]])
def test_help_lists_every_flag_with_its_default(
    argv: list[str], capsys: pytest.CaptureFixture[str], served: list[ServeOptions]
) -> None:
    assert rtmp_server(argv) == 0
    out, err = capsys.readouterr()
    for flag in SERVE_FLAGS:
        assert f"\n  -{flag.name} {flag.kind.metavar} " in out
        assert f"(default {flag.default})" in out
    assert "Example" in out
    assert err == ""
    assert not served


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_help_is_aligned_and_fits_the_terminal(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    rtmp_server(["-help"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("  -")]
    column = rows[0].index("Where to accept")
    assert all(row[column - 1] == " " and row[column] != " " for row in rows)
    assert max(map(len, lines)) <= max(int(columns), column + 30, 95)


def test_help_names_the_environment_variable_of_a_flag() -> None:
    assert "nobody, or $HEADRACE_NAME)" in cli._flag_help(TABLE[0]).replace("\N{NO-BREAK SPACE}", " ")


def test_without_a_standard_error_the_log_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert cli._is_terminal() is False


def test_python_m_headrace_is_the_headrace_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", "-version"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("headrace", run_name="__main__")
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"headrace {__version__}\n"


def test_a_wrong_flag_starts_neither_the_event_loop_nor_the_log() -> None:
    program = (
        "import sys; from headrace.cli import rtmp_server; status = rtmp_server(['-x']);"
        "print(status, [m for m in ('asyncio', 'structlog', 'headrace.app') if m in sys.modules])"
    )
    source = Path(cli.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {program}"],
        capture_output=True,
        text=True,
        timeout=30,
        env={},
        check=False,
    )
    assert done.stdout == "2 []\n"
    assert done.stderr == "rtmp-server: -x: unknown flag, expected one of those that -help lists\n"
