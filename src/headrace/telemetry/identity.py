"""Who a node is in the event log, and how it names its viewers without keeping their addresses."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

_FILE = "node.json"
_NODE = re.compile(r"[\w-]{1,64}")
_KEY_BYTES = 32
_HASH_BYTES = 8  # 2^64: a collision among a million viewers has a chance of one in 37 million


@dataclass(frozen=True, slots=True)
class Identity:
    """Stays the same over restarts: it is kept in the data directory."""

    node: str
    viewer_key: bytes

    def viewer(self, address: str) -> str:
        """The name of whoever connects from `address` (host:port): equal for one host, and no way back to it."""
        host = address.rpartition(":")[0]
        return hashlib.blake2b(host.encode(), key=self.viewer_key, digest_size=_HASH_BYTES).hexdigest()


def load_identity(data_dir: Path) -> Identity:
    """The identity of this data directory, made on first use. OSError if it can be neither read nor written."""
    path = data_dir / _FILE
    try:
        return _read(path)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the first start, or a file that was damaged: a new identity is better than no telemetry
    data_dir.mkdir(parents=True, exist_ok=True)
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname().partition(".")[0])[:32]
    content = json.dumps(
        {"node": f"{host or 'node'}-{secrets.token_hex(4)}", "viewer_key": secrets.token_hex(_KEY_BYTES)}
    )
    unfinished = path.with_name(f".{_FILE}.{os.getpid()}")
    with open(unfinished, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
    os.replace(unfinished, path)
    return _read(path)


def _read(path: Path) -> Identity:
    content = json.loads(path.read_text())
    node, viewer_key = content["node"], bytes.fromhex(content["viewer_key"])
    # The node is part of file names. A short key would let anybody try all addresses, a long one is none for BLAKE2.
    if len(viewer_key) != _KEY_BYTES or not _NODE.fullmatch(node):
        raise ValueError(f"a key of {len(viewer_key)} bytes, expected {_KEY_BYTES}, or a node that is no name")
    return Identity(node=node, viewer_key=viewer_key)
