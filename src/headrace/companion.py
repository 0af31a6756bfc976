"""The data pipeline beside the server: a process of its own that the server starts, listens to, and does without.

Its end, whatever the reason, is one line in the log. It ends with the server, also when that is killed: what it holds
of the server is the other end of its standard input.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from headrace.logs import get_logger

_LOG = get_logger(__name__)
# Of a line that it says; the rest of a longer one is a stack trace's business.
_MAX_TEXT = 500


class Companion:
    """`headrace pipeline run` over what this server writes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_closing = False
        self._last_complaint = ""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    @classmethod
    async def start(cls, data_dir: Path, record_dir: Path) -> Companion | None:
        """None if there is no process to be had: the relay does not need one."""
        command = [sys.executable, "-m", "headrace", "pipeline", "run", "--until-eof"]
        command += ["--data-dir", str(data_dir), "--record-dir", str(record_dir)]
        try:
            # A session of its own: Ctrl-C in the terminal is for the server, which then tells it.
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except OSError as error:
            _LOG.error("Pipeline failed", error=error.strerror)
            return None
        _LOG.info("Pipeline started", pid=process.pid, tables=str(data_dir / "lake"))
        return cls(process)

    async def close(self, deadline_s: float) -> None:
        """Ask it to end, and end it if it does not: its tables are whole either way."""
        self._is_closing = True
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.wait((self._task,), timeout=deadline_s)
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.wait((self._task,), timeout=deadline_s)

    async def _follow(self) -> None:
        process = self._process
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(self._tell(process.stdout), self._tell(process.stderr, is_complaint=True))
        status = await process.wait()
        if not self._is_closing:
            _LOG.error("Pipeline ended", status=status, said=self._last_complaint)

    async def _tell(self, stream: asyncio.StreamReader, *, is_complaint: bool = False) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than any line of ours: what was read of it is gone
                continue
            if not line:
                return
            if text := line.decode("utf-8", "replace").strip():
                _LOG.debug("Pipeline says", line=text[:_MAX_TEXT])
                if is_complaint:
                    self._last_complaint = text[:_MAX_TEXT]
