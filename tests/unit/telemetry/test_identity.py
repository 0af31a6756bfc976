"""Who a node is: the same after a restart, and viewers named without their addresses."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.telemetry.identity import Identity, load_identity

KEY = bytes(range(32))
IDENTITY = Identity("node-1", KEY)


def test_an_identity_stays_the_same_over_restarts(tmp_path: Path) -> None:
    first = load_identity(tmp_path / "new" / "data")
    assert load_identity(tmp_path / "new" / "data") == first
    assert len(first.viewer_key) == 32
    assert [path.name for path in (tmp_path / "new" / "data").iterdir()] == ["node.json"]


def test_two_data_directories_are_two_nodes_with_two_keys(tmp_path: Path) -> None:
    first, second = load_identity(tmp_path / "a"), load_identity(tmp_path / "b")
    assert first.node != second.node
    assert first.viewer_key != second.viewer_key


def test_only_the_owner_may_read_the_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_identity(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "node.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "host", ["camera.studio.example", "räder", "a b/../c", "", "x" * 300, "\u200b", "-"], ids=lambda host: host[:20]
)
def test_whatever_the_host_is_called_the_node_can_be_part_of_a_file_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    node = load_identity(tmp_path).node
    assert 0 < len(node.encode()) < 120
    assert not set(node) & set("/\0 .")
    assert load_identity(tmp_path).node == node


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'"node"',
        b"\xff\xfe\x00",
        b"{}",
        b'{"node": "n"}',
        b'{"node": "n", "viewer_key": 5}',
        b'{"node": "n", "viewer_key": "no hex"}',
        b'{"node": "n", "viewer_key": ""}',
        b'{"node": "n", "viewer_key": "00ff"}',
        b'{"node": "n", "viewer_key": "' + b"00" * 65 + b'"}',
        b'{"node": "", "viewer_key": "' + b"00" * 32 + b'"}',
        b'{"node": 5, "viewer_key": "' + b"00" * 32 + b'"}',
        b'{"node": "../../etc/n", "viewer_key": "' + b"00" * 32 + b'"}',
        b'{"node": "n\\n", "viewer_key": "' + b"00" * 32 + b'"}',
    ],
)
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.json"
    path.write_bytes(content)
    path.chmod(0o644)
    identity = load_identity(tmp_path)
    assert len(identity.viewer_key) == 32
    assert load_identity(tmp_path) == identity
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(json.loads(path.read_text())) == {"node", "viewer_key"}


def test_a_directory_that_cannot_be_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        load_identity(tmp_path / "file" / "data")


@pytest.mark.parametrize("host", ["203.0.113.7", "[2001:db8::7]", "[fe80::1%eth0]"])
def test_one_host_is_one_viewer_whatever_its_port(host: str) -> None:
    names = {IDENTITY.viewer(f"{host}:{port}") for port in (1, 1935, 50_000, 65_535)}
    assert len(names) == 1
    [name] = names
    assert len(name) == 16
    assert int(name, 16) >= 0


def test_hosts_that_look_alike_are_different_viewers() -> None:
    hosts = ["203.0.113.7", "203.0.113.70", "203.0.113.8", "[2001:db8::7]", "[2001:db8::7:1]", "[::ffff:203.0.113.7]"]
    assert len({IDENTITY.viewer(f"{host}:1935") for host in hosts}) == len(hosts)


def test_without_the_key_nobody_can_tell_which_address_it_was() -> None:
    other = Identity("node-1", KEY[::-1])
    assert IDENTITY.viewer("203.0.113.7:1") != other.viewer("203.0.113.7:1")


# Worked out apart from hashlib, by the steps of RFC 7693: BLAKE2b with this key, eight bytes, of "203.0.113.7".
def test_a_name_is_blake2b_of_the_host_and_so_the_same_for_ever() -> None:
    assert IDENTITY.viewer("203.0.113.7:1935") == "183e0464da578fee"


@given(st.ip_addresses(), st.integers(0, 65535))
def test_no_name_shows_any_part_of_its_address(address: object, port: int) -> None:
    shown = f"[{address}]" if ":" in str(address) else str(address)
    name = IDENTITY.viewer(f"{shown}:{port}")
    assert str(address) not in name
    assert set(name) <= set("0123456789abcdef")
