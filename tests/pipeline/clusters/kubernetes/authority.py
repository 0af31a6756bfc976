"""Who is who in a Kubernetes of the tests: certificates of one authority, and the files that its parts log in with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import trustme


class Identity(NamedTuple):
    certificate: Path
    key: Path


class Authority:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.certificate = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.certificate))

    def issue(self, name: str, *hosts: str, user: str | None = None, group: str | None = None) -> Identity:
        """For a server on these hosts, or a client that is this user of this group to Kubernetes."""
        issued = self._authority.issue_cert(*(hosts or (name,)), common_name=user, organization_name=group)
        identity = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(str(identity.certificate))
        issued.private_key_pem.write_to_path(str(identity.key))
        return identity

    def kubeconfig(self, name: str, server: str, identity: Identity) -> Path:
        """JSON is YAML."""
        path = self._folder / f"{name}.kubeconfig"
        named = {"name": "here"}
        cluster = {"server": server, "certificate-authority": str(self.certificate)}
        user = {"client-certificate": str(identity.certificate), "client-key": str(identity.key)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**named, "cluster": cluster}],
            "users": [{**named, "user": user}],
            "contexts": [{**named, "context": {"cluster": "here", "user": "here"}}],
            "current-context": "here",
        }
        path.write_text(json.dumps(content))
        return path
