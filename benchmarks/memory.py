"""Does memory stay flat? One server, several streams from real FFmpeg, a player each, recorded, sampled for minutes.

    .venv/bin/python -m benchmarks.memory --streams 10 --minutes 10 [--json out.json]

Prints one line per sample and a verdict: the growth per hour by a straight line through the second half, after the
logs have filled. Loopback only; everything it starts ends with it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import imageio_ffmpeg

from benchmarks.processes import ServerProcess, provenance

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()


def make_clip(folder: Path) -> Path:
    clip = folder / "clip.flv"
    video = ["-f", "lavfi", "-i", "testsrc2=size=640x360:rate=30"]
    audio = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
    coding = ["-c:v", "libx264", "-preset", "veryfast", "-b:v", "1M", "-g", "60", "-pix_fmt", "yuv420p", "-c:a", "aac"]
    subprocess.run([FFMPEG, "-v", "error", *video, *audio, "-t", "20", *coding, "-f", "flv", str(clip)], check=True)
    return clip


def slope_mb_per_hour(samples: list[tuple[float, float]]) -> float:
    later = samples[len(samples) // 2 :]
    if len(later) < 2:
        return 0.0
    slope, _ = statistics.linear_regression([at for at, _ in later], [mb for _, mb in later])
    return slope * 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every-s", type=float, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    samples: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = make_clip(folder)
        server = ServerProcess("-record-all", "-record-dir", str(folder / "recordings"), "-segment-duration", "30s")
        port = server.port
        clients: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(options.streams):
                url = f"rtmp://127.0.0.1:{port}/live/s{number}"
                publish = ["-re", "-stream_loop", "-1", "-i", str(clip), "-c", "copy", "-f", "flv", url]
                clients.append(subprocess.Popen([FFMPEG, "-v", "error", "-nostdin", *publish]))
            time.sleep(2)
            for number in range(options.streams):
                url = f"rtmp://127.0.0.1:{port}/live/s{number}"
                play = ["-i", url, "-c", "copy", "-f", "null", "-"]
                clients.append(subprocess.Popen([FFMPEG, "-v", "error", "-nostdin", *play]))
            began = time.monotonic()
            while (at := time.monotonic() - began) < options.minutes * 60:
                samples.append((at, server.rss_mb()))
                print(f"{at:7.0f} s  {samples[-1][1]:7.1f} MB", flush=True)
                for recording in sorted((folder / "recordings").glob("*.flv"))[: -2 * options.streams]:
                    recording.unlink()  # a long run must not fill the disk
                time.sleep(options.every_s)
            died = sum(client.poll() is not None for client in clients)
        finally:
            for client in clients:
                client.kill()
            server.stop()
    result = {
        **provenance(),
        "streams": options.streams,
        "minutes": options.minutes,
        "first_mb": samples[0][1],
        "last_mb": samples[-1][1],
        "max_mb": max(mb for _, mb in samples),
        "growth_mb_per_hour": round(slope_mb_per_hour(samples), 2),
        "clients_that_died": died,
        "samples": samples,
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    print(json.dumps({key: value for key, value in result.items() if key != "samples"}))


if __name__ == "__main__":
    main()
