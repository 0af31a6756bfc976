"""Draw the bitrate of recordings over time, a line for each file, by Spark's `flv` source.

    python examples/plot_bitrate.py recordings bitrate.svg
    python examples/plot_bitrate.py recordings bitrate.png --window-s 10

Any FLV file will do, also one that Headrace did not record, and one that is still being written. The last window of a
file is drawn only if it is full: half a window would look like a drop.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.pipeline.session import make_session
from headrace.pipeline.sources.flv.source import register

Points = list[tuple[float, float]]  # seconds since the file's first frame, Mbit/s


def bitrates(tags: DataFrame, window_s: int) -> DataFrame:
    """Megabits a second, for each file and each full window of media time."""
    frames = tags.where("is_frame")
    spans = frames.groupBy("path").agg(F.min("timestamp_ms").alias("first_ms"), F.max("timestamp_ms").alias("last_ms"))
    start_s = F.floor((F.col("timestamp_ms") - F.col("first_ms")) / 1000 / window_s) * window_s
    windows = frames.join(spans, on="path").withColumn("start_s", start_s)
    is_full = (F.col("start_s") + window_s) * 1000 <= F.col("last_ms") - F.col("first_ms")
    mbps = F.sum("size_bytes") * 8 / 1e6 / window_s
    return windows.where(is_full).groupBy("path", "start_s").agg(mbps.alias("mbps"))


def draw(lines: dict[str, Points], picture: Path) -> None:
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    for path, points in sorted(lines.items()):
        axes.plot(*zip(*points, strict=True), label=Path(path).name)
    axes.set(xlabel="seconds since the first frame", ylabel="Mbit/s", title="Bitrate")
    axes.set_ylim(bottom=0)
    axes.legend()
    with rc_context({"svg.fonttype": "none"}):  # words stay words
        figure.savefig(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the bitrate of recordings over time.")
    parser.add_argument("folder", help="with FLV files, also in folders within")
    parser.add_argument("picture", type=Path, help="ending in .svg or .png")
    parser.add_argument("--window-s", type=int, default=1, help="what the bitrate is measured over (default 1)")
    options = parser.parse_args()
    if options.window_s < 1:
        parser.error(f"found --window-s {options.window_s}, expected 1 or more")
    spark = make_session("plot bitrate")
    register(spark)
    lines: dict[str, Points] = defaultdict(list)
    tags = spark.read.format("flv").load(options.folder)
    for row in bitrates(tags, options.window_s).orderBy("path", "start_s").collect():
        lines[row["path"]].append((row["start_s"], row["mbps"]))
    spark.stop()
    if not lines:
        raise SystemExit(f"no FLV file in {options.folder} is as long as {options.window_s} s")
    draw(lines, options.picture)
    for path, points in sorted(lines.items()):
        rates = [mbps for _, mbps in points]
        mean, most = sum(rates) / len(rates), max(rates)
        print(f"{Path(path).name}: {len(rates)} windows, mean {mean:.3f}, most {most:.3f} Mbit/s")


if __name__ == "__main__":
    main()
