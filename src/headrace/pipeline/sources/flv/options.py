"""The options of `format("flv")`, read once and checked.

path            `load(path)`; also a list of paths, a glob (`*`, `?`, `[…]`, `**`), or an address such as s3://…
glob            which names in a directory are taken: `*.flv`
recursive       whether directories in directories are looked into: true
rows            `tags`, or `problems`: what in the same files is no tag
payload         whether tags have a column with their bytes: false
events          the server's data directory, or several with commas: tags get their log_position where it tells;
                batch only, and a file is then read by one task however large it is
maxSplitBytes   files above this are read by several tasks: 2g; from 512m on also where processors would have no task
minPartitions   small files are packed into tasks, but into no fewer than this: the driver's processors
Streams only:
closeAfter      a file that has not grown for so long is finished: 5m (see `offsets` for what that means)
maxBytesPerBatch  how much a batch takes in, or one file if that is larger: 1g
maxFilesPerBatch  how many files it takes in: 1000
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import ConfigError
from headrace.pipeline.errors import PipelineError
from headrace.pipeline.sources.flv.listing import DEFAULT_GLOB, Files
from headrace.pipeline.sources.flv.schema import PROBLEMS, TAGS
from headrace.units import format_duration, parse_duration

_SIZE = re.compile(r"([0-9]{1,15})\s*([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True, slots=True)
class FlvOptions:
    paths: tuple[str, ...] = field(repr=False)  # an address may hold credentials
    glob: str = DEFAULT_GLOB
    is_recursive: bool = True
    rows: str = TAGS
    has_payload: bool = False
    events: str | None = field(default=None, repr=False)
    max_split_bytes: int = 2 << 30
    min_partitions: int = 1
    close_after_ms: int = 300_000
    max_batch_bytes: int = 1 << 30
    max_batch_files: int = 1000

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> FlvOptions:
        """From Spark's options, whose names are told apart without regard to case. Raises PipelineError."""
        rows = given.get("rows", TAGS)
        if rows not in (TAGS, PROBLEMS):
            raise PipelineError("OPTION_INVALID", option="rows", value=rows, expected=f"{TAGS} or {PROBLEMS}")
        return cls(
            paths=_paths(given),
            glob=given.get("glob", DEFAULT_GLOB),
            is_recursive=_flag(given, "recursive", default=True),
            rows=rows,
            has_payload=_flag(given, "payload", default=False),
            events=given.get("events"),
            max_split_bytes=_size(given, "maxSplitBytes", "2g"),
            min_partitions=_size(given, "minPartitions", str(os.cpu_count() or 1)),
            close_after_ms=_duration_ms(given, "closeAfter", "5m"),
            max_batch_bytes=_size(given, "maxBytesPerBatch", "1g"),
            max_batch_files=_size(given, "maxFilesPerBatch", "1000"),
        )

    def files(self) -> Files:
        return Files(self.paths, self.glob, is_recursive=self.is_recursive)


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    # Spark writes a list of paths as JSON into an option of its own.
    listed = given.get("paths")
    paths = tuple(json.loads(listed)) if listed else ()
    single = given.get("path")
    paths += (single,) if single else ()
    if not paths:
        raise PipelineError("OPTION_INVALID", option="path", value="", expected="a file, a directory or a glob")
    return paths


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise PipelineError("OPTION_INVALID", option=name, value=text, expected="true or false")
    return text == "true"


def _size(given: Mapping[str, str], name: str, default: str) -> int:
    text = given.get(name, default).strip()
    match = _SIZE.fullmatch(text)
    size = int(match[1]) << _UNITS[match[2].lower()] if match else 0
    if not size:
        raise PipelineError("OPTION_INVALID", option=name, value=text, expected="a number above 0, such as 64m")
    return size


def _duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    text = given.get(name, default)
    try:
        return round(parse_duration(text) * 1000)
    except ConfigError as error:
        expected = f"a duration such as {format_duration(300)}"
        raise PipelineError("OPTION_INVALID", option=name, value=text, expected=expected) from error
