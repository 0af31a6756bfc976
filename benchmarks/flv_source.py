"""How fast are FLV files read? One file of looped real tags: the walk by itself, inside Spark, and PyAV's demuxer.

    .venv/bin/python -m benchmarks.flv_source --size-mb 1024 [--json out.json]

The file is written, not sparse, and read once before anything is measured: this compares processors, not disks. Every
figure is the best of some runs, as wall time and as processor time of this process, which other work on the machine
disturbs less. Spark's is wall time alone, its processors being those of other processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import av
import imageio_ffmpeg
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from benchmarks.processes import provenance
from headrace.pipeline.session import make_session
from headrace.pipeline.sources.flv.chain import Chain
from headrace.pipeline.sources.flv.columns import RowFilter, tag_batch
from headrace.pipeline.sources.flv.files import CopiedFile, FileBytes, MappedFile
from headrace.pipeline.sources.flv.schema import TAG_SCHEMA
from headrace.pipeline.sources.flv.walk import Range, Tags, walk

FILE_HEADER_BYTES = 13
WITHOUT_DIGEST = StructType([column for column in TAG_SCHEMA.fields if column.name != "payload_digest"])


@dataclass
class Figure:
    what: str
    rows: int
    wall_s: float
    cpu_s: float | None
    mb_per_s: float  # by processor time where that is known


def make_file(folder: Path, size_bytes: int) -> Path:
    clip, path = folder / "clip.flv", folder / "live_bench_20260101_000000.flv"
    video = ["-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=30"]
    audio = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
    rate = ["-b:v", "6M", "-minrate", "6M", "-maxrate", "6M", "-bufsize", "3M", "-x264-params", "nal-hrd=cbr"]
    coding = ["-c:v", "libx264", "-preset", "ultrafast", *rate, "-g", "60", "-pix_fmt", "yuv420p", "-c:a", "aac"]
    ffmpeg = [
        imageio_ffmpeg.get_ffmpeg_exe(),
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
        return sum(tag_batch(str(path), tags, schema, RowFilter()).num_rows for tags in tags_of(file))
    finally:
        file.close()


def count_packets(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(1 for packet in container.demux() if packet.size)


def count_in_spark(spark: SparkSession, path: Path, max_split: str) -> int:
    # A sum over the digests needs every column's every value to be made and sent.
    tags = spark.read.format("flv").option("maxSplitBytes", max_split).load(str(path))
    return int(tags.selectExpr("count(*) AS rows", "sum(payload_digest % 1000)").collect()[0].rows)


def anchors(path: Path) -> int:
    file = MappedFile(os.open(path, os.O_RDONLY))
    chain = Chain(file, FILE_HEADER_BYTES, file.size)
    places = [file.size * part // 11 for part in range(1, 11)]
    assert all(chain.anchor(place) is not None for place in places)
    return len(places)


def measure(what: str, size_bytes: int, work: Callable[[], int], *, runs: int, has_cpu: bool = True) -> Figure:
    wall_s, cpu_s, rows = float("inf"), float("inf"), 0
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        rows = work()
        wall_s, cpu_s = min(wall_s, time.perf_counter() - wall), min(cpu_s, time.process_time() - cpu)
    figure = Figure(
        what,
        rows,
        round(wall_s, 3),
        round(cpu_s, 3) if has_cpu else None,
        round(size_bytes / 1e6 / (cpu_s if has_cpu else wall_s)),
    )
    shown = f"{figure.cpu_s:8.3f} s cpu" if has_cpu else " " * 14
    print(f"{what:44} {rows:8} rows {figure.wall_s:8.3f} s {shown} {figure.mb_per_s:7} MB/s", flush=True)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = make_file(Path(name), options.size_mb << 20)
        size, runs = path.stat().st_size, options.runs
        print(f"{size / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        figures = [
            measure("walk, mapped", size, lambda: count_tags(path, MappedFile, None), runs=runs),
            measure(
                "rows without digest, mapped", size, lambda: count_tags(path, MappedFile, WITHOUT_DIGEST), runs=runs
            ),
            measure("rows, mapped", size, lambda: count_tags(path, MappedFile, TAG_SCHEMA), runs=runs),
            measure(
                "rows, copied (a file still written to)",
                size,
                lambda: count_tags(path, CopiedFile, TAG_SCHEMA),
                runs=runs,
            ),
            measure("PyAV demux", size, lambda: count_packets(path), runs=runs),
        ]
        wall = time.perf_counter()
        anchors(path)
        print(f"{'a place to begin at, each':44} {(time.perf_counter() - wall) * 100:31.1f} ms")
        spark = make_session("benchmark")
        try:
            for split in ("512m", "128m"):
                work = partial(count_in_spark, spark, path, split)
                work()
                figures.append(measure(f"Spark local[*], splits of {split}", size, work, runs=runs, has_cpu=False))
        finally:
            spark.stop()
    if options.json:
        facts = {"provenance": provenance(), "size_bytes": size, "figures": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
