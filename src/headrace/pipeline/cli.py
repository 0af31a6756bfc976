"""`headrace pipeline run`, `batch`, `simulate`, `status` and `compact`: words in, a job run, one clear line if not.

Owns arguments. PySpark is imported only when a job that needs it begins.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from headrace.errors import HeadraceError
from headrace.pipeline.commands import Parser, exit_status, lake_place, require_packages, spark_setting
from headrace.pipeline.jobs.retention import DEFAULT_BRONZE, DEFAULT_TIERS, Retention, parse_span_ms, parse_tiers

_Value = TypeVar("_Value")
_NICE = 10
_NEEDED = ("pyspark", "pyarrow", "numpy", "xxhash", "pandas")
_NEEDED_TO_SIMULATE = ("pyarrow", "numpy")


def main(argv: Sequence[str], program: str) -> int:
    """Called by `headrace.cli` with the arguments behind `pipeline`."""
    return exit_status(program, lambda: _run(_parser(program).parse_args(argv)))


def _run(options: argparse.Namespace) -> None:
    require_packages("the pipeline", _NEEDED_TO_SIMULATE if options.job == "simulate" else _NEEDED)
    _JOBS[options.job](options)


def _simulate(options: argparse.Namespace) -> None:
    from headrace.pipeline.jobs.progress import open_progress
    from headrace.pipeline.jobs.report import say_to_stdout
    from headrace.pipeline.simulate import job
    from headrace.pipeline.simulate.plan import Options

    asked = Options(
        streams=options.streams,
        hours=options.hours,
        viewers=options.viewers,
        destinations=options.destinations,
        seed=options.seed,
        start_ms=round(options.start.timestamp() * 1000),
        faults=options.faults,
        data_dir=options.data_dir,
        record_dir=options.record_dir.absolute(),
        frames=options.recordings,
    )
    with open_progress(say_to_stdout) as progress:
        job.run(asked, options.jobs, say_to_stdout, progress)


def _run_on_spark(options: argparse.Namespace) -> None:
    from headrace.pipeline.executors import require_executors
    from headrace.pipeline.jobs import batch, repeating, streaming
    from headrace.pipeline.jobs.board import Board
    from headrace.pipeline.jobs.lake import open_lake
    from headrace.pipeline.jobs.progress import open_progress
    from headrace.pipeline.jobs.report import say_to_stdout
    from headrace.pipeline.jobs.times import Range
    from headrace.pipeline.masters import is_local
    from headrace.pipeline.session import end_session, is_in_process, make_session

    data_dirs = options.data_dir or [Path("data")]
    record_dirs = options.record_dir or [Path("recordings")]
    places = [path.absolute() for path in data_dirs], [path.absolute() for path in record_dirs]
    if options.job == "run" and options.until_eof:
        # From the beginning: a JVM may take half a minute to start on a busy machine, and ends with us.
        threading.Thread(target=_end_at_eof, daemon=True).start()
    # The lock first: a second job is told so at once, without waiting for a JVM.
    with open_lake(_lake(options), f"headrace pipeline {options.job}") as lake:
        board = Board(lake.store, options.job)
        if options.job == "run" and options.remote is None and is_local(options.master):
            os.nice(_NICE)  # the JVM inherits it: the server beside us has the machine first
        try:
            spark = make_session(
                f"headrace {options.job}",
                master=options.master,
                remote=options.remote,
                conf=dict(options.conf),
                leaves_classes=options.job == "batch",  # whoever stops a run wants it to end at once
                is_short=options.job == "batch" and batch.is_short(*places),
            )
        except HeadraceError as error:
            board.end(str(error))
            raise
        try:
            lake.connect_spark(spark)
            if not is_in_process(spark):
                directories = [*places[0], *places[1]]
                # Of a lake elsewhere they need no directory: it is Spark that reads and writes there.
                shared = lake.working_directory("executors") if lake.store.is_on_this_machine else None
                require_executors(spark, shared, directories, say_to_stdout)
            if options.job == "batch":
                wanted = Range(options.from_time, options.to_time)
                with open_progress(say_to_stdout) as progress:
                    batch.run(spark, lake, *places, wanted, say_to_stdout, progress, board)
            else:
                stop = threading.Event()
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, lambda *_: stop.set())
                follow = streaming.run if options.remote is None else repeating.run
                follow(
                    spark,
                    lake,
                    *places,
                    say_to_stdout,
                    is_once=options.once,
                    stop=stop,
                    board=board,
                    retention=Retention(options.keep, options.keep_bronze),
                    compact_every_s=options.compact_every,
                )
            board.end()
        except Exception as error:
            board.end(str(error).strip().partition("\n")[0])
            raise
        finally:
            end_session(spark, say_to_stdout)


def _show_status(options: argparse.Namespace) -> None:
    from headrace.pipeline.jobs import status

    report = status.look(_lake(options))
    text = json.dumps(status.to_json(report)) if options.format == "json" else status.to_text(report)
    sys.stdout.write(f"{text}\n")


def _compact(options: argparse.Namespace) -> None:
    from headrace.pipeline.jobs import housekeeping
    from headrace.pipeline.jobs.report import say_to_stdout

    housekeeping.run(housekeeping.Request(_lake(options), Retention(options.keep, options.keep_bronze)), say_to_stdout)


_JOBS = {
    "run": _run_on_spark,
    "batch": _run_on_spark,
    "simulate": _simulate,
    "status": _show_status,
    "compact": _compact,
}


def _lake(options: argparse.Namespace) -> Path | str:
    given: Path | str | None = options.lake
    return given or (options.data_dir or [Path("data")])[0] / "lake"


def _end_at_eof() -> None:
    while os.read(sys.stdin.fileno(), 1 << 16):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(prog=program, description="Recordings and events to tables, on Apache Spark.")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="run|batch|simulate|status|compact")
    run = jobs.add_parser("run", help="follow the server until it is stopped", allow_abbrev=False)
    run.add_argument("--once", action="store_true", help="take in what is there now, then end")
    run.add_argument("--until-eof", action="store_true", help="end when standard input does, as with a server's life")
    batch = jobs.add_parser("batch", help="take in what is there, or a part of it, and end", allow_abbrev=False)
    form = "as 2026-01-31 or 2026-01-31T18:00, UTC unless it says otherwise"
    batch.add_argument("--from", dest="from_time", type=_time, metavar="TIME", help=f"only from here on, {form}")
    batch.add_argument("--to", dest="to_time", type=_time, metavar="TIME", help="only before this, in the same form")
    status = jobs.add_parser("status", help="what the job on a lake does, and what the tables hold", allow_abbrev=False)
    status.add_argument("--format", choices=("text", "json"), default="text", help="for people or for programs")
    compact = jobs.add_parser(
        "compact", help="merge small files, and let go of what is older than its time", allow_abbrev=False
    )
    run.add_argument(
        "--compact-every",
        type=_every_s,
        default="1h",
        metavar="TIME",
        help="as compact does; off for never (default 1h)",
    )
    for job in (run, compact):
        job.add_argument(
            "--keep",
            type=_told(parse_tiers),
            default=DEFAULT_TIERS,
            metavar="TIERS",
            help=f"how long windows of which length are kept (default {DEFAULT_TIERS})",
        )
        job.add_argument(
            "--keep-bronze",
            type=_told(partial(parse_span_ms, "keep-bronze")),
            default=DEFAULT_BRONZE,
            metavar="TIME",
            help=f"how long what tables are made of is kept (default {DEFAULT_BRONZE})",
        )
    for job in (run, batch, status, compact):
        job.add_argument(
            "--data-dir", type=Path, action="append", metavar="DIR", help="the server's, repeatable (default data)"
        )
        job.add_argument(
            "--lake",
            type=lake_place,
            metavar="PLACE",
            help="where the tables are: a directory, hdfs://… or s3a://… (default lake in the data directory)",
        )
    for job in (run, batch):
        job.add_argument(
            "--record-dir",
            type=Path,
            action="append",
            metavar="DIR",
            help="the server's, repeatable (default recordings)",
        )
        where = job.add_mutually_exclusive_group()
        where.add_argument("--master", default="local[*]", help="where Spark runs (default local[*])")
        where.add_argument("--remote", metavar="sc://HOST:PORT", help="a Spark Connect server instead")
        job.add_argument(
            "--conf", type=spark_setting, action="append", default=[], metavar="KEY=VALUE", help="of Spark, repeatable"
        )
    _add_simulate(jobs)
    return parser


def _add_simulate(jobs: argparse._SubParsersAction[Parser]) -> None:
    simulate = jobs.add_parser("simulate", help="write the event log of a server that never ran", allow_abbrev=False)
    add = simulate.add_argument
    add("--streams", type=_count(1, 10_000), required=True, metavar="N", help="channels, most of them live at a time")
    add("--hours", type=_hours, required=True, metavar="H", help="how long, as 24 or 0.5")
    add("--viewers", type=_count(0, 100_000), default=10, metavar="V", help="of each stream, about (default 10)")
    add("--destinations", type=_count(0, 100), default=3, metavar="D", help="of each stream (default 3)")
    add("--seed", type=_count(0, 1 << 40), default=0, metavar="S", help="another one, another simulation (default 0)")
    add("--start", type=_start, default=_DEFAULT_START, metavar="TIME", help=f"(default {_DEFAULT_START:%Y-%m-%d})")
    add("--faults", type=_faults, default=1.0, metavar="X", help="how often things go wrong: 0 never (default 1)")
    add("--data-dir", type=Path, required=True, metavar="DIR", help="where the event log goes; one without events")
    add("--record-dir", type=Path, required=True, metavar="DIR", help="where the log says that recordings are")
    add(
        "--recordings",
        choices=("thin", "full"),
        nargs="?",
        const="thin",
        help="write them too: with frames of a few bytes (thin), or as large as the log says (full)",
    )
    add("--jobs", type=_count(1, 1000), default=os.cpu_count() or 1, metavar="J", help="processes (default: the cores)")


_DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)
# In less than half a minute there is no time for anything to begin and end.
_LEAST_HOURS, _MOST_HOURS = 0.01, 8784.0


def _count(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number from {least} to {most}")
        return int(text)

    return parse


def _number(text: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from {least:g} to {most:g}")
    return number


def _hours(text: str) -> float:
    return _number(text, _LEAST_HOURS, _MOST_HOURS)


def _faults(text: str) -> float:
    return _number(text, 0, 100)


def _start(text: str) -> datetime:
    when = _time(text)
    if not 2000 <= when.year < 2100:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a time from 2000 to 2099")
    return when


def _time(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected 2026-01-31 or 2026-01-31T18:00") from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def _every_s(text: str) -> float | None:
    return None if text == "off" else _told(partial(parse_span_ms, "compact-every"))(text) / 1000


def _told(parse: Callable[[str], _Value]) -> Callable[[str], _Value]:
    """A parser of ours for argparse, which shows the words of no other error than its own."""

    def parsed(text: str) -> _Value:
        try:
            return parse(text)
        except HeadraceError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed
