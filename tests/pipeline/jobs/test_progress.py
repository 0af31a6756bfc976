"""How far a job has come: as plain lines, and as a bar on a real terminal, which is a pseudo one here."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path

import pytest

from headrace.pipeline.jobs.progress import PlainProgress, human_bytes, human_count, human_time

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
DEADLINE_S = 60


class Told:
    """What a plain progress says and shows, by a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said: list[str] = []
        self.shown: list[str] = []
        self.progress = PlainProgress(self.said.append, self.shown.append, every_s=5.0, clock=lambda: self.now_s)


def test_a_line_comes_every_few_seconds_and_one_at_the_end() -> None:
    told = Told()
    told.progress.begin("events", files=40, size_bytes=4_000_000_000)
    for _ in range(10):
        told.now_s += 2.0
        told.progress.advance(files=2, size_bytes=200_000_000, rows=500_000)
    assert told.shown == [
        "events: 15%, files 6 of 40, 600 MB of 4.0 GB, rows 1.5 million, 34 s left",
        "events: 30%, files 12 of 40, 1.2 GB of 4.0 GB, rows 3.0 million, 28 s left",
        "events: 45%, files 18 of 40, 1.8 GB of 4.0 GB, rows 4.5 million, 22 s left",
    ]
    told.progress.end("events rows=5000000 problems=0 took=20.0s")
    assert told.said == ["events rows=5000000 problems=0 took=20.0s"]
    assert len(told.shown) == 3, "the end is told once"


def test_what_goes_on_within_a_step_is_shown_until_it_is_done() -> None:
    told = Told()
    told.progress.begin("tables", files=10, unit="tables")
    told.now_s += 6.0
    told.progress.inside("task 3 of 8")
    told.now_s += 6.0
    told.progress.advance(files=5)
    assert told.shown == ["tables: 0%, tables 0 of 10, task 3 of 8", "tables: 50%, tables 5 of 10, 12 s left"]


def test_a_short_stage_has_only_its_end() -> None:
    told = Told()
    told.progress.begin("tags", files=1, size_bytes=10)
    told.progress.advance(files=1, size_bytes=10)
    told.progress.end("done")
    told.progress.advance(files=1)  # a step that ends late is of no stage
    assert (told.shown, told.said) == ([], ["done"])


def test_a_stage_without_totals_counts_up() -> None:
    told = Told()
    told.progress.begin("rows")
    told.now_s += 5.0
    told.progress.advance(rows=1234)
    assert told.shown == ["rows: rows 1,234"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (human_bytes(0), "0 B"),
        (human_bytes(999), "999 B"),
        (human_bytes(999_999), "1.0 MB"),
        (human_bytes(123_456_789), "123 MB"),
        (human_bytes(7_000_000_000_000_000), "7000 TB"),
        (human_count(999_999), "999,999"),
        (human_count(155_000_000), "155.0 million"),
        (human_time(0.4), "0 s"),
        (human_time(61), "1 min 01 s"),
        (human_time(7265), "2 h 01 min"),
    ],
)
def test_numbers_are_for_people(shown: str, expected: str) -> None:
    assert shown == expected


# --- a terminal


class Terminal:
    """A program on a pseudo-terminal of a common size."""

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        self.text = ""
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "headrace", *words], dict(environment))
        ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))

    def read_until(self, word: str | None) -> None:
        """Up to a word of its output, or to its end."""
        end_s = time.monotonic() + DEADLINE_S
        while word is None or word not in self.text:
            assert select.select([self._end], [], [], end_s - time.monotonic())[0], f"no {word!r} in {self.text!r}"
            try:
                data = os.read(self._end, 1 << 16)
            except OSError:  # Linux says so when the last one has closed it
                data = b""
            if not data:
                assert word is None, f"no {word!r} in {self.text!r}"
                return
            self.text += data.decode()

    def press(self, key: bytes) -> None:
        os.write(self._end, key)

    def wait(self) -> int:
        self.read_until(None)
        os.close(self._end)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def environment(**more: str) -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[3] / "src")
    quiet = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    return {**quiet, "PYTHONPATH": source, "TERM": "xterm-256color", **more}


def simulation(folder: Path, streams: int, hours: str, jobs: int = 1) -> list[str]:
    places = ["--data-dir", str(folder / "data"), "--record-dir", str(folder / "recordings")]
    return ["pipeline", "simulate", "--streams", str(streams), "--hours", hours, "--jobs", str(jobs), *places]


def test_a_terminal_shows_a_bar_and_keeps_only_the_lines(tmp_path: Path) -> None:
    terminal = Terminal(simulation(tmp_path, 8, "0.2"), environment())
    assert terminal.wait() == 0
    text = terminal.text
    assert "━" in text
    assert re.search(r"files \d+ of \d+, [\d.]+ MB of [\d.]+ MB, rows [\d,]+", text)
    assert COLOUR.search(text)
    assert text.rfind(SHOW_CURSOR) > text.rfind(HIDE_CURSOR) >= 0
    assert len(re.findall("events files=", text)) == len(re.findall("about ", text)) == 1
    # What is left when the bar is gone is the line alone.
    last = text.splitlines()[-1]
    assert re.search(r"events files=\d+ rows=\d+ bytes=\d+ took=[\d.]+s$", last)


@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_none(tmp_path: Path, more: dict[str, str]) -> None:
    terminal = Terminal(simulation(tmp_path, 2, "0.02"), environment(**more))
    assert terminal.wait() == 0
    assert not COLOUR.search(terminal.text)
    assert (HIDE_CURSOR in terminal.text) is ("NO_COLOR" in more), "no bar where the cursor cannot be moved"


@pytest.mark.parametrize(("jobs", "moment"), [(1, HIDE_CURSOR), (2, "events ")])
def test_ctrl_c_leaves_the_terminal_as_it_was(tmp_path: Path, jobs: int, moment: str) -> None:
    terminal = Terminal(simulation(tmp_path, 20, "1", jobs), environment())
    terminal.read_until("about ")
    terminal.read_until(moment)
    terminal.press(b"\x03")
    assert terminal.wait() == 128 + signal.SIGINT, terminal.text
    assert terminal.text.rfind(SHOW_CURSOR) > terminal.text.rfind(HIDE_CURSOR)
    assert "Traceback" not in terminal.text
