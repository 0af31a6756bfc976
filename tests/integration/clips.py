"""Source material: small FLV clips, made by real FFmpeg when first asked for, once for the whole run."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import imageio_ffmpeg

from tests.integration import av_client
from tests.integration.flv_tags import FlvTag, read_tags

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
AV_CLIENT = Path(__file__).with_name("av_client.py")

_PICTURE = "-f lavfi -i testsrc2=size={size}:rate=25"
_TONE = "-f lavfi -i sine=frequency=440:sample_rate=44100"
_BOTH = f"{_PICTURE} {_TONE}"
_X264 = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -sc_threshold 0"
_AAC = "-c:a aac -b:a 64k"

# Name -> FFmpeg's options, in one line. One keyframe per second unless the name says otherwise.
RECIPES: Mapping[str, str] = {
    "h264_aac": f"{_BOTH} -t 4 {_X264} -tune zerolatency -g 25 {_AAC}",
    "h264_only": f"{_PICTURE} -t 4 {_X264} -tune zerolatency -g 25",
    "h264_small": f"{_BOTH} -t 4 -s 320x180 {_X264} -tune zerolatency -g 25 {_AAC}",
    "h264_b_frames": f"{_BOTH} -t 4 {_X264} -preset veryfast -g 50 -bf 3 {_AAC}",
    "h264_nine_seconds": f"{_BOTH} -t 9 -s 320x180 {_X264} -tune zerolatency -g 25 {_AAC}",
    "h264_long_gop": f"{_BOTH} -t 30 -s 320x180 {_X264} -tune zerolatency -g 750 {_AAC}",
    # 8 Mbit/s: fills the socket buffers of a player that does not read. Nine seconds and not ten: FFmpeg reads once
    # in ten packets and, if an acknowledgement (one per 2.5 MB) lies unread, closes with a reset and loses the rest.
    "h264_heavy": f"{_BOTH} -t 9 {_X264} -tune zerolatency -g 25 -b:v 8M -minrate 8M -maxrate 8M -bufsize 1M "
    f"-x264-params nal-hrd=cbr {_AAC}",
    "h264_mp3": f"{_BOTH} -t 4 {_X264} -tune zerolatency -g 25 -c:a libmp3lame",
    "aac_only": f"{_TONE} -t 4 {_AAC}",
    "aac_nine_seconds": f"{_TONE} -t 9 {_AAC}",
    "hevc_aac": f"{_BOTH} -t 4 -c:v libx265 -preset ultrafast -x265-params log-level=error:keyint=25:bframes=2 {_AAC}",
    "av1_aac": f"{_BOTH} -t 3 -s 320x180 -c:v libaom-av1 -usage realtime -cpu-used 8 -g 25 {_AAC}",
    "vp9_aac": f"{_BOTH} -t 3 -s 320x180 -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 25 {_AAC}",
}

# Clips that only the newer FFmpeg inside PyAV can put into FLV (Enhanced RTMP v2): made as Matroska first.
_SMALL_PICTURE = f"{_PICTURE} -f lavfi -i sine=frequency=440:sample_rate=48000 -t 3 -s 320x180"
_SMALL = f"{_SMALL_PICTURE} {_X264} -tune zerolatency -g 25"
V2_RECIPES: Mapping[str, str] = {
    "h264_opus": f"{_SMALL} -c:a libopus",
    "h264_flac": f"{_SMALL} -c:a flac",
    "h264_ac3": f"{_SMALL} -c:a ac3",
    "h264_eac3": f"{_SMALL} -c:a eac3",
    "h264_two_aac": f"{_PICTURE} {_TONE} -f lavfi -i sine=frequency=880:sample_rate=44100 -t 3 -s 320x180 "
    f"-map 0 -map 1 -map 2 {_X264} -tune zerolatency -g 25 {_AAC}",
}

# Ten that differ in every packet, so that no stream can pass for another.
MANY = [f"h264_number_{number}" for number in range(10)]


def _recipe(name: str) -> str:
    if name in MANY:
        number = MANY.index(name)
        picture = f"-f lavfi -i testsrc2=size=320x180:rate=25,hue=h={number * 36}"
        tone = f"-f lavfi -i sine=frequency={300 + 70 * number}:sample_rate=44100"
        return f"{picture} {tone} -t 4 {_X264} -tune zerolatency -g 25 {_AAC}"
    return RECIPES[name] if name in RECIPES else V2_RECIPES[name]


class Clip:
    """A file, and what is in it."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path

    @cached_property
    def tags(self) -> list[FlvTag]:
        return read_tags(self.path)

    def split(self, at_ms: int | None = None) -> tuple[list[FlvTag], list[FlvTag]]:
        """What can be probed, played and joined, and the rest: in two at a time, else at the second keyframe.

        Without video, in the middle.
        """
        if at_ms is not None:
            index = next(index for index, tag in enumerate(self.tags) if tag.timestamp_ms >= at_ms)
        else:
            keyframes = [index for index, tag in enumerate(self.tags) if tag.is_keyframe]
            index = keyframes[1] if len(keyframes) > 1 else len(self.tags) // 2
        return self.tags[:index], self.tags[index:]


class ClipLibrary:
    """Makes each clip once, in a folder that the processes of one test run share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clips: dict[str, Clip] = {}
        folder.mkdir(exist_ok=True)

    def __getitem__(self, name: str) -> Clip:
        if name not in self._clips:
            path = self._folder / f"{name}.flv"
            options = _recipe(name).format(size="640x360").split()
            with (self._folder / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be at it
                if not path.exists() and name in V2_RECIPES:
                    matroska = path.with_suffix(".mkv")
                    _make(options, "matroska", matroska)
                    av_client.copy(str(matroska), str(path))
                elif not path.exists():
                    _make(options, "flv", path)
            self._clips[name] = Clip(name, path)
        return self._clips[name]


def _make(options: list[str], muxer: str, path: Path) -> None:
    unfinished = path.with_suffix(".part")
    command = [FFMPEG, "-v", "error", "-y", *options, "-f", muxer, str(unfinished)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    unfinished.replace(path)
