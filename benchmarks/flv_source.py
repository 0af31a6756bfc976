"""How fast are FLV files read? Files of looped real tags: inside Spark, by PyAV's demuxer and by ffprobe, in one run.

    .venv/bin/python -m benchmarks.flv_source [--sizes-mb 1024 2048 4096] [--counts 10 1000] [--json out.json]

The files are written, not sparse, and read once before anything is measured: this compares processors, not disks. What
is compared takes turns, and is told as medians, with the best beside them. The parts of the source by themselves are
told at their best, also as processor time, which other work on the machine disturbs less. ffprobe is taken from PATH,
and left out where there is none.
Spark is warm: the JVM has compiled what it runs, which takes a thousand queries (`--warm-ups`), of one clip.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import av
import imageio_ffmpeg
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from benchmarks.processes import provenance
from headrace.pipeline.session import make_session
from headrace.pipeline.sources.flv.chain import Chain
from headrace.pipeline.sources.flv.columns import Run, tag_batch
from headrace.pipeline.sources.flv.files import CopiedFile, FileBytes, MappedFile
from headrace.pipeline.sources.flv.filters import RowFilter
from headrace.pipeline.sources.flv.pieces import Range
from headrace.pipeline.sources.flv.schema import TAG_SCHEMA
from headrace.pipeline.sources.flv.source import register
from headrace.pipeline.sources.flv.walk import Tags, walk

FILE_HEADER_BYTES = 13
_MOST_FILES_BY_FFPROBE = 100  # a thousand take minutes: it looks for a second of media in each, and decodes it
_WARM_UPS = 4  # runs of each query before it is measured
_QUERIES_A_ROUND = 5  # of Spark, for one of each of the others
_HEAD_TAGS = 3  # that FFmpeg's muxer begins with: metadata, video header, audio header
WITHOUT_DIGEST = StructType([column for column in TAG_SCHEMA.fields if column.name != "payload_digest"])


@dataclass
class Figure:
    what: str
    rows: int
    wall_s: float  # of what is compared the median, of a part by itself the best
    cpu_s: float | None
    mb_per_s: float  # by processor time where that is known
    best_s: float


def make_file(folder: Path, size_bytes: int) -> Path:
    clip, path = folder / "clip.flv", folder / "live_bench_20260101_000000.flv"
    video = ["-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=30"]
    audio = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
    rate = ["-b:v", "6M", "-minrate", "6M", "-maxrate", "6M", "-bufsize", "3M", "-x264-params", "nal-hrd=cbr"]
    coding = ["-c:v", "libx264", "-preset", "ultrafast", *rate, "-g", "60", "-pix_fmt", "yuv420p", "-c:a", "aac"]
    ffmpeg = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-y",
        "-v",
        "error",
        *video,
        *audio,
        "-t",
        "10",
        *coding,
        "-f",
        "flv",
        str(clip),
    ]
    subprocess.run(ffmpeg, check=True)
    data = clip.read_bytes()
    with path.open("wb") as file:
        file.write(data[:FILE_HEADER_BYTES])
        while file.tell() < size_bytes:
            file.write(data[FILE_HEADER_BYTES:])
    os.utime(path, (0, 0))  # as a recording that is over
    os.sync()  # or the kernel writes while others read
    return path


def tags_of(file: FileBytes) -> Iterator[Tags]:
    for found in walk(file, Range.whole(file.size)):
        assert isinstance(found, Tags), found
        yield found


def count_tags(path: Path, kind: type[MappedFile | CopiedFile], schema: StructType | None) -> int:
    file = kind(os.open(path, os.O_RDONLY))
    try:
        if schema is None:
            return sum(len(tags.starts) for tags in tags_of(file))
        return sum(tag_batch([Run(str(path), tags)], schema, RowFilter()).num_rows for tags in tags_of(file))
    finally:
        file.close()


def count_packets(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(1 for packet in container.demux() if packet.size)


# What ffprobe tells of a packet too: its stream, time, size, place and flags.
PACKET_COLUMNS = "kind string, timestamp_ms long, size_bytes int, byte_offset long, is_keyframe boolean"


def count_in_spark(spark: SparkSession, path: Path, columns: str | None) -> int:
    """All columns, digests of the payloads among them, or some. All that are asked for are made and sent to the JVM."""
    reader = spark.read if columns is None else spark.read.schema(columns)
    tags = reader.format("flv").load(str(path))
    return int(tags.selectExpr("count(*) AS rows", "sum(size_bytes)").collect()[0].rows)


def warm_up(spark: SparkSession, path: Path, queries: int) -> None:
    """What the first, the tenth and the last of so many queries took is said, because most sessions have fewer."""
    walls_s = []
    for number in range(queries):
        wall = time.perf_counter()
        count_in_spark(spark, path, PACKET_COLUMNS if number % 2 else None)
        walls_s.append(time.perf_counter() - wall)
    shown = ", ".join(f"{number}. {walls_s[number - 1]:.2f} s" for number in (1, 10, queries) if number <= queries)
    print(f"{queries} queries of a clip of {path.stat().st_size >> 20} MB: {shown}", flush=True)


def anchors(path: Path) -> int:
    file = MappedFile(os.open(path, os.O_RDONLY))
    chain = Chain(file, FILE_HEADER_BYTES, file.size)
    places = [file.size * part // 11 for part in range(1, 11)]
    assert all(chain.anchor(place) is not None for place in places)
    return len(places)


def measure(what: str, size_bytes: int, work: Callable[[], int], *, runs: int) -> Figure:
    wall_s, cpu_s, rows = float("inf"), float("inf"), 0
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        rows = work()
        wall_s, cpu_s = min(wall_s, time.perf_counter() - wall), min(cpu_s, time.process_time() - cpu)
    figure = Figure(what, rows, round(wall_s, 4), round(cpu_s, 4), round(size_bytes / 1e6 / cpu_s), round(wall_s, 4))
    print(f"{what:52} {rows:8} rows {wall_s:8.3f} s {cpu_s:8.3f} s cpu {figure.mb_per_s:7} MB/s", flush=True)
    return figure


def count_by_ffprobe(paths: list[Path]) -> int:
    """What `ffprobe -show_packets` prints, a line a packet."""
    rows = 0
    for path in paths:
        command = ["ffprobe", "-v", "error", "-show_packets", "-of", "compact", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while block := process.stdout.read(1 << 20):
                rows += block.count(b"\n")
    return rows


def parts_by_themselves(path: Path, runs: int) -> list[Figure]:
    size = path.stat().st_size
    figures = [
        measure("walk, mapped", size, lambda: count_tags(path, MappedFile, None), runs=runs),
        measure("rows without digest, mapped", size, lambda: count_tags(path, MappedFile, WITHOUT_DIGEST), runs=runs),
        measure("rows, mapped", size, lambda: count_tags(path, MappedFile, TAG_SCHEMA), runs=runs),
        measure(
            "rows, copied (a file still written to)", size, lambda: count_tags(path, CopiedFile, TAG_SCHEMA), runs=runs
        ),
    ]
    wall = time.perf_counter()
    anchors(path)
    print(f"{'a place to begin at, each':52} {(time.perf_counter() - wall) * 100:31.1f} ms")
    return figures


def against_others(spark: SparkSession, paths: list[Path], rounds: int) -> list[Figure]:
    """The same files by Spark, PyAV and ffprobe, in turn, by wall time: the first has all processors, as it would.

    Spark is asked several times in a round: it is to have about as long as the others to be disturbed.
    """
    size, name = sum(path.stat().st_size for path in paths), f"{len(paths)} of {paths[0].stat().st_size >> 20} MB"
    place = paths[0].parent if len(paths) > 1 else paths[0]
    packets, everything = (partial(count_in_spark, spark, place, columns) for columns in (PACKET_COLUMNS, None))
    works: dict[str, Callable[[], int]] = {
        "Spark, packets' columns": packets,
        "Spark, all columns, digests": everything,
    }
    for work in works.values():
        for _ in range(_WARM_UPS):
            work()
    works["PyAV"] = lambda: sum(map(count_packets, paths))
    if shutil.which("ffprobe") and len(paths) <= _MOST_FILES_BY_FFPROBE:
        works["ffprobe"] = lambda: count_by_ffprobe(paths)
    walls_s: dict[str, list[float]] = {what: [] for what in works}
    rows: dict[str, int] = {}
    for _ in range(1 if len(paths) > _MOST_FILES_BY_FFPROBE else rounds):
        for what, work in works.items():
            for _ in range(_QUERIES_A_ROUND if what.startswith("Spark") else 1):
                wall = time.perf_counter()
                rows[what] = work()
                walls_s[what].append(time.perf_counter() - wall)
    figures = []
    for what, found_s in walls_s.items():
        median_s, best_s = statistics.median(found_s), min(found_s)
        figures.append(
            Figure(
                f"{what}, {name}", rows[what], round(median_s, 4), None, round(size / 1e6 / median_s), round(best_s, 4)
            )
        )
        print(f"{figures[-1].what:52} {rows[what]:8} rows {median_s:8.3f} s, at best {best_s:.3f} s", flush=True)
        if not what.startswith("Spark"):
            ratios = [f"{median_s / own.wall_s:.1f} (at best {best_s / own.best_s:.1f})" for own in figures[:2]]
            print(f"{'':52} Spark is {' and '.join(ratios)} x {what}")
    return figures


def split_into(path: Path, folder: Path, count: int) -> list[Path]:
    """As many files of the same bytes in all: each a whole clip or several."""
    folder.mkdir()
    data = path.read_bytes()
    clip = len((path.parent / "clip.flv").read_bytes()) - FILE_HEADER_BYTES
    clips = (len(data) - FILE_HEADER_BYTES) // clip
    head, body = data[:FILE_HEADER_BYTES], data[FILE_HEADER_BYTES:]
    paths = []
    if count <= clips:
        pieces = [body[clip * (clips * n // count) : clip * (clips * (n + 1) // count)] for n in range(count)]
    else:
        # Fewer bytes than a clip each: cut where a tag ends, with metadata and headers before it, as a segment has.
        starts = _tag_starts(path)
        head = data[: starts[_HEAD_TAGS]]
        edges = [starts[len(starts) * n // count] - FILE_HEADER_BYTES for n in range(count)] + [len(body)]
        pieces = [body[first:last] for first, last in pairwise(edges)]
    for number, piece in enumerate(pieces):
        paths.append(folder / f"live_bench{number:04d}_20260101_000000.flv")
        paths[-1].write_bytes(head + piece)
        os.utime(paths[-1], (0, 0))
    os.sync()
    return paths


def _tag_starts(path: Path) -> list[int]:
    file = MappedFile(os.open(path, os.O_RDONLY))
    return [int(start) + tags.base for tags in tags_of(file) for start in tags.starts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes-mb", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--counts", type=int, nargs="+", default=[10, 1000], help="files, of the first size in all")
    parser.add_argument("--runs", type=int, default=7, help="in turn, of each that is compared")
    parser.add_argument("--warm-ups", type=int, default=1000, help="queries before the first that is measured")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    runs, figures = options.runs, []
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    spark = make_session("benchmark")
    register(spark)
    try:
        with tempfile.TemporaryDirectory() as name:
            for size_mb in options.sizes_mb:
                path = make_file(Path(name), size_mb << 20)
                if size_mb == options.sizes_mb[0]:
                    warm_up(spark, path.with_name("clip.flv"), options.warm_ups)
                    figures += parts_by_themselves(path, runs)
                figures += against_others(spark, [path], runs)
                if size_mb == options.sizes_mb[0]:
                    for count in options.counts:
                        folder = Path(name) / f"files-{count}"
                        figures += against_others(spark, split_into(path, folder, count), runs)
                        shutil.rmtree(folder)
    finally:
        spark.stop()
    if options.json:
        facts = {"provenance": provenance(), "figures": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
