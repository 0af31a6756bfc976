"""The API of a Kubernetes, as a person with all rights calls it."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_DEADLINE_S = 60.0


class Api:
    def __init__(self, address: str, authority: Path, certificate: Path, key: Path) -> None:
        self.address = address
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(certificate, key)

    def is_ready(self) -> bool:
        try:
            self.text("/readyz")
        except OSError:  # HTTPError is one
            return False
        return True

    def text(self, path: str) -> str:
        return self._call("GET", path, None).decode()

    def get(self, path: str) -> Any:
        return json.loads(self._call("GET", path, None))

    def create(self, path: str, what: dict[str, Any]) -> Any:
        return json.loads(self._call("POST", path, what))

    def delete(self, path: str, *, at_once: bool = False) -> None:
        self._call("DELETE", path, {"gracePeriodSeconds": 0} if at_once else {})

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_DEADLINE_S, context=self._tls) as answer:
            return bytes(answer.read())
