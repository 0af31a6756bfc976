"""What the address of a cluster tells: which machines it is about, and whether somebody answers there.

Owns the forms of `--master` and `--remote`. Opens a connection and closes it again; starts no Spark.
"""

from __future__ import annotations

import importlib.util
import re
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from headrace.pipeline.errors import PipelineError

_LOCAL = re.compile(r"local(\[[^\]]*\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[[^\]]*\]")
_STANDALONE, _KUBERNETES, _YARN = "spark://", "k8s://", "yarn"
_FORMS = "local[*], local-cluster[2,1,1024], spark://host:port, yarn or k8s://https://host:port"
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|\[?::1\]?")
_CONNECT_PORT = 15002  # of Spark Connect, where an address names none
_REACH_DEADLINE_S = 10.0
# What PySpark's client of Spark Connect imports, by the names of the packages.
_CONNECT_PACKAGES = {
    "grpcio": "grpc",
    "grpcio-status": "grpc_status",
    "googleapis-common-protos": "google.rpc",
    "protobuf": "google.protobuf",
    "zstandard": "zstandard",
}


def is_local(master: str) -> bool:
    """Whether everything runs in this process's own JVM: not with local-cluster, whose executors are processes."""
    return _LOCAL.fullmatch(master) is not None


def is_on_this_machine(master: str) -> bool:
    """Whether no other machine can have a part in it."""
    if is_local(master) or _LOCAL_CLUSTER.fullmatch(master):
        return True
    # An address of Kubernetes tells nothing of its pods'.
    return master.startswith(_STANDALONE) and all(_LOOPBACK.fullmatch(host) for host, _ in _places(master))


def is_kubernetes(master: str) -> bool:
    return master.startswith(_KUBERNETES)


def require_master(master: str, environ: Mapping[str, str]) -> None:
    """Raises PipelineError for what Spark would find out after a minute, or tell in a page of its own words."""
    if master.startswith(_STANDALONE):
        _require_one(master, list(_places(master)))
    elif is_kubernetes(master):
        place = _api_of(master)
        if not any(environ.get(name) for name in _PROXIES):  # behind one only it can tell who answers
            _require_one(master, [place])
    elif master == _YARN:
        if not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
            raise PipelineError("YARN_NOT_CONFIGURED")
    elif not (_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master)):
        raise PipelineError("MASTER_INVALID", master=master, expected=_FORMS)


def require_remote(remote: str) -> str:
    """The address of a Spark Connect server as it may be shown. Raises PipelineError if it cannot be used."""
    missing = [package for package, module in _CONNECT_PACKAGES.items() if not _is_there(module)]
    if missing:
        raise PipelineError("CONNECT_PACKAGES", packages=", ".join(missing))
    try:
        address = urlsplit(remote)
        host, port = address.hostname, address.port or _CONNECT_PORT
    except ValueError:  # a port that is none
        host, port = None, 0
    if not remote.startswith("sc://") or host is None:
        raise PipelineError("REMOTE_INVALID")
    shown = f"sc://{host}:{port}"  # behind it may stand a token
    _require_one(shown, [(host, port)])
    return shown


def _places(master: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports of a standalone master and those that stand by for it."""
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise PipelineError("MASTER_INVALID", master=master, expected="spark://host:port")
        yield host.strip("[]"), int(port)


def _api_of(master: str) -> tuple[str, int]:
    """Host and port of a Kubernetes API, which is HTTPS unless it says otherwise."""
    address = master.removeprefix(_KUBERNETES)
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        host, port = parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:  # a port that is none
        host, port = None, 0
    if host is None:
        raise PipelineError("MASTER_INVALID", master=master, expected="k8s://https://host:port")
    return host, port


def _require_one(shown: str, places: list[tuple[str, int]]) -> None:
    reason = ""
    for place in places:
        try:
            socket.create_connection(place, _REACH_DEADLINE_S).close()
            return
        except OSError as error:
            reason = error.strerror or str(error)
    raise PipelineError("CLUSTER_NOT_REACHED", address=shown, reason=reason)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False
