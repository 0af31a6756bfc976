"""A process that a test started: its output kept line by line, every wait with a deadline, ended by its own pid."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

# Far beyond what any step takes on an idle machine: a deadline is there against hanging, not to measure.
DEADLINE_S = 40.0
_GOODBYE_S = 15.0

Found = TypeVar("Found")


class Child:
    """Starts at once. Lines are read by threads, so that no pipe ever fills up and blocks the process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        has_input: bool = False,
    ) -> None:
        self.name = name
        self.command = [str(word) for word in command]
        self.lines: list[str] = []  # of both outputs, as they came
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self._changed = threading.Condition()
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
        )
        self._threads = [
            threading.Thread(target=self._read, args=(self._process.stdout, self.stdout), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self.stderr), daemon=True),
        ]
        if has_input:
            self._threads.append(threading.Thread(target=self._write, daemon=True))
        self._exit_waiter = threading.Thread(target=self._await_exit, daemon=True)
        for thread in [*self._threads, self._exit_waiter]:
            thread.start()

    # What it is -----------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def status(self) -> int | None:
        """The exit status; negative for a signal, None while it runs."""
        return self._process.returncode

    @property
    def output(self) -> str:
        with self._changed:
            return "\n".join(self.lines)

    def report(self) -> str:
        """What a person needs when a test has failed."""
        return f"--- {self.name} (pid {self.pid}, exit {self.status}): {' '.join(self.command)}\n{self.output}\n"

    # Waiting --------------------------------------------------------------------------------------------------

    def wait_until(self, what: str, find: Callable[[], Found | None], deadline_s: float = DEADLINE_S) -> Found:
        """What `find` gives once it gives something; asked again after each line and at the process's end."""
        end_s = time.monotonic() + deadline_s
        with self._changed:
            while (found := find()) is None:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise AssertionError(f"{self.name}: no {what} within {deadline_s:g} s\n{self._tail()}")
                if not self._exit_waiter.is_alive():
                    raise AssertionError(f"{self.name} ended ({self.status}) before {what}\n{self._tail()}")
                # Not only on notice: `find` may look at a file or a clock too.
                self._changed.wait(min(left_s, 0.1))
            return found

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Its exit status, after all its output has been read."""
        self._exit_waiter.join(deadline_s)
        if self._exit_waiter.is_alive():
            raise AssertionError(f"{self.name} still runs after {deadline_s:g} s\n{self._tail()}")
        assert self._process.returncode is not None
        return self._process.returncode

    def _tail(self) -> str:
        return "\n".join(self.lines[-40:])

    # Acting ---------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Queue bytes for its standard input; never blocks."""
        self._input.put(data)

    def end_input(self) -> None:
        self._input.put(None)

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: it gets no chance to say goodbye."""
        self._process.kill()
        self.wait(_GOODBYE_S)

    def close(self) -> None:
        """At the end of a test: ask, then insist."""
        self._input.put(None)  # FFmpeg does not hear a signal while it waits for its input
        if self.is_running:
            self._process.terminate()
            self._exit_waiter.join(_GOODBYE_S)
        if self._exit_waiter.is_alive():
            self._process.kill()
        self._exit_waiter.join(_GOODBYE_S)

    # Its threads ----------------------------------------------------------------------------------------------

    def _read(self, pipe: IO[bytes], lines: list[str]) -> None:
        with pipe:
            for raw in pipe:
                line = raw.decode("utf-8", "backslashreplace").rstrip("\n")
                with self._changed:
                    self.lines.append(line)
                    lines.append(line)
                    self._changed.notify_all()

    def _write(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            while (data := self._input.get()) is not None:
                pipe.write(data)
                pipe.flush()
        except OSError:
            pass  # it ended before it had read everything: its exit status says whether that was right
        try:
            pipe.close()
        except OSError:
            pass

    def _await_exit(self) -> None:
        self._process.wait()
        self._input.put(None)
        for thread in self._threads:
            thread.join(_GOODBYE_S)
        with self._changed:
            self._changed.notify_all()
