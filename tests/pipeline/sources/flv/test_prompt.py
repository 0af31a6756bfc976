"""A worker in a hurry: nothing is closed, nothing is left open, and what is no connection is left alone."""

from __future__ import annotations

import os
import pickle
import socket
from pathlib import Path

import pytest

from headrace.pipeline.sources.flv import prompt
from headrace.pipeline.sources.flv.prompt import Prompt, hurry


class Command(Prompt):
    def __init__(self, what: str) -> None:
        self.what = what


def open_files() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_a_connection_goes_on_as_before(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as near,
        listening.accept()[0] as far,
        (tmp_path / "a file").open("wb"),
    ):
        ours, theirs = socket.socketpair()
        before = open_files()
        far.sendall(b"first")
        assert near.recv(5) == b"first"
        hurry()
        assert open_files() == before
        assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        far.sendall(b"second")
        assert near.recv(6) == b"second"
        ours.sendall(b"a pair of Unix")
        assert theirs.recv(14) == b"a pair of Unix"
        ours.close()
        theirs.close()


def test_to_read_one_is_to_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr(prompt, "hurry", lambda: calls.append(None))
    assert pickle.loads(pickle.dumps(Command("read"))).what == "read"
    assert calls == [None]
