"""The commands `headrace` and `rtmp-server`: words in, options or one clear line out.

Owns arguments, help and exit statuses: 0 done, 1 the job failed, 2 the command line was wrong.
It knows nothing of what a flag means: that is `options`, whose tables it reads.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from headrace import __version__
from headrace.errors import ConfigError
from headrace.options import SERVE_FLAGS, Flag, ServeOptions
from headrace.units import quoted, without_key

_HELP_WORDS = ("h", "help")
_EXIT_USAGE = 2
_KEPT_SPACE = "\N{NO-BREAK SPACE}"  # keeps "(default 5s)" in one piece when the help is wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand of `headrace`; further ones are further entries of `COMMANDS`."""

    summary: str
    run: Callable[[Sequence[str], str], int]
    """Called with the arguments after the command's name and with the program's name for messages."""


def main(argv: Sequence[str] | None = None) -> int:
    """The `headrace` command: picks the subcommand."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0].lstrip("-") in _HELP_WORDS:
        print(_main_help())
        return 0
    if words[0] in ("-version", "--version"):
        print(_version_line())
        return 0
    command = COMMANDS.get(words[0])
    if command is None:
        kind = "flag" if words[0].startswith("-") else "command"
        near = _did_you_mean(words[0], COMMANDS)
        return _usage_error("headrace", f"found {kind} {quoted(words[0])}, expected {_choices()}{near}")
    return command.run(words[1:], f"headrace {words[0]}")


def rtmp_server(argv: Sequence[str] | None = None) -> int:
    """The `rtmp-server` command: `headrace serve` under its own name."""
    return _serve(list(sys.argv[1:] if argv is None else argv), "rtmp-server")


def parse_serve_options(
    argv: Sequence[str], *, environ: Mapping[str, str] | None = None, is_terminal: bool = False
) -> ServeOptions:
    """The options that these arguments stand for; ConfigError holds the one line for the user.

    `is_terminal` says where the log goes, and so what `-log-format auto` means.
    """
    values = read_flags(SERVE_FLAGS, argv, environ=environ)
    if values["log_format"] == "auto":
        values["log_format"] = "text" if is_terminal else "json"
    return ServeOptions(**values)


def read_flags(
    flags: Sequence[Flag], argv: Sequence[str], *, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Field name to value for every flag of a table: from the arguments, the environment, or the default."""
    parser = _FlagParser(flags)
    given, strays = parser.parse_known_args(_with_negative_values(argv, flags))
    if strays:
        raise ConfigError(_describe_stray(strays[0], flags))
    values: dict[str, Any] = {}
    for flag in flags:
        texts: list[str | None] | None = getattr(given, flag.name)
        source = f"-{flag.name}"
        if texts is None and flag.env is not None and environ is not None and flag.env in environ:
            texts, source = [environ[flag.env]], flag.env
        values.update(_flag_values(flag, texts, source))
    return values


def _flag_values(flag: Flag, texts: list[str | None] | None, source: str) -> dict[str, Any]:
    """What one flag contributes; of several values for a flag that takes one, the last counts."""
    try:
        if flag.is_repeatable:
            return {flag.fields[0]: tuple(_parse_value(flag, text) for text in texts or ())}
        value = _parse_value(flag, texts[-1] if texts else flag.default)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    if len(flag.fields) == 1:
        return {flag.fields[0]: value}
    return dict(zip(flag.fields, value, strict=True))


def _parse_value(flag: Flag, text: str | None) -> Any:
    if text is None:  # the flag stood alone
        text = flag.kind.bare
    if text is None:
        raise ConfigError(f"found no value, expected {flag.kind.expected}")
    return flag.kind.parse(text)


def _with_negative_values(argv: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """`-max-lag -5s` as `-max-lag=-5s`: the message is then about the value, not about a flag -5s."""
    takes_value = {
        dashes + name for flag in flags if flag.kind.bare is None for name in flag.names for dashes in ("-", "--")
    }
    words: list[str] = []
    for word in argv:
        if words and words[-1] in takes_value and word[:1] == "-" and word[1:2].isdigit():
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


class _FlagParser(argparse.ArgumentParser):
    """argparse cuts the arguments into flags and their texts; the rest of its behaviour is switched off.

    Values are parsed later, by the table, so that flags and environment variables give the same messages.
    """

    def __init__(self, flags: Sequence[Flag]) -> None:
        super().__init__(add_help=False, allow_abbrev=False, argument_default=None)
        for flag in flags:
            # "?" for every flag, so that a missing value is reported in our words and not in argparse's.
            spellings = [dashes + name for name in flag.names for dashes in ("-", "--")]
            self.add_argument(*spellings, dest=flag.name, nargs="?", action="append")

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        # allow_abbrev=False covers only flags with two dashes: without this, `-lis` would mean `-listen`.
        return []

    def error(self, message: str) -> NoReturn:
        # Nothing in these tables leads here; if a later Python finds a reason, it is still one line.
        raise ConfigError(message)


def _describe_stray(word: str, flags: Sequence[Flag]) -> str:
    if not word.startswith("-") or word.strip("-") == "":
        return f"found {quoted(without_key(word))}, expected only flags and their values"
    name = "-" + word.lstrip("-").partition("=")[0]
    near = _did_you_mean(name, [f"-{name}" for flag in flags for name in flag.names] + ["-help", "-version"])
    return f"{_shown_flag(word)}: unknown flag{near or ', expected one of those that -help lists'}"


def _shown_flag(word: str) -> str:
    name = word.partition("=")[0]
    return name if name.isprintable() and len(name) <= 40 else quoted(name)


def _did_you_mean(word: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = difflib.get_close_matches(word[:80], list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _serve(argv: Sequence[str], program: str) -> int:
    if _has_flag(argv, *_HELP_WORDS):
        print(_serve_help(program))
        return 0
    if _has_flag(argv, "version"):
        print(_version_line())
        return 0
    try:
        options = parse_serve_options(argv, environ=os.environ, is_terminal=_is_terminal())
        # Imported here: help and a wrong flag need neither the event loop nor the server.
        from headrace.app import run

        return run(options)
    except ConfigError as error:
        return _usage_error(program, str(error))


def _pipeline(argv: Sequence[str], program: str) -> int:
    # Imported here: nothing that serves may load Spark.
    from headrace.pipeline.cli import main as pipeline

    return pipeline(argv, program)


def _query(argv: Sequence[str], program: str) -> int:
    from headrace.pipeline.query.cli import main as query

    return query(argv, program)


def _report(argv: Sequence[str], program: str) -> int:
    # Imported here: nothing that serves may load what reads tables and draws.
    from headrace.pipeline.report.cli import main as report

    return report(argv, program)


def _has_flag(argv: Sequence[str], *names: str) -> bool:
    return any(word in (f"-{name}", f"--{name}") for word in argv for name in names)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # None under pythonw and some service managers


def _usage_error(program: str, message: str) -> int:
    print(f"{program}: {message}", file=sys.stderr)
    return _EXIT_USAGE


def _version_line() -> str:
    return f"headrace {__version__}"


def _choices() -> str:
    *first, last = COMMANDS
    return f"{', '.join(first)} or {last}"


def _main_help() -> str:
    commands = "\n".join(f"  {name:<10} {command.summary}" for name, command in COMMANDS.items())
    return (
        "Headrace: a live-streaming RTMP relay.\n"
        "\n"
        "Usage: headrace COMMAND [flags]\n"
        "\n"
        f"Commands\n{commands}\n"
        "\n"
        "headrace COMMAND -help lists the command's flags; headrace -version prints the version."
    )


def _serve_help(program: str) -> str:
    lines = [
        f"{program}: takes in live streams over RTMP, serves them to players and records them.",
        "",
        f"Usage: {program} [flags]",
        "Every flag may be written with one dash or two.",
    ]
    rows = [(flag.group, f"-{flag.name} {flag.kind.metavar}", _flag_help(flag)) for flag in SERVE_FLAGS]
    rows += [("Other", "-version", "Print the version."), ("Other", "-h, -help", "Print this help.")]
    left_width = max(len(left) for _, left, _ in rows) + 4
    text_width = max(30, min(shutil.get_terminal_size().columns, 110) - left_width)
    group = ""
    for row_group, left, text in rows:
        if row_group != group:
            group = row_group
            lines += ["", group]
        first, *rest = (
            line.replace(_KEPT_SPACE, " ") for line in textwrap.wrap(text, text_width, break_on_hyphens=False)
        )
        lines.append(f"  {left}".ljust(left_width) + first)
        lines += [" " * left_width + line for line in rest]
    lines += [
        "",
        "Example: record everything in files of five minutes",
        f"  {program} -listen :1935 -record-all -segment-duration 5m",
    ]
    return "\n".join(lines)


def _flag_help(flag: Flag) -> str:
    variable = f", or ${flag.env}" if flag.env else ""
    return f"{flag.help} " + f"(default {flag.default}{variable})".replace(" ", _KEPT_SPACE)


COMMANDS: dict[str, Command] = {
    "serve": Command(summary="take in, play and record live streams (the same as rtmp-server)", run=_serve),
    "pipeline": Command(summary="turn recordings and events into tables, on Apache Spark", run=_pipeline),
    "query": Command(summary="ask the tables, in SQL", run=_query),
    "report": Command(summary="say how a broadcast went: a page, text or JSON from the tables", run=_report),
}
