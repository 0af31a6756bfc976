"""Addresses of clusters, before any Spark is started."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from headrace.pipeline import masters
from headrace.pipeline.errors import PipelineError
from headrace.pipeline.masters import is_local, is_on_this_machine, require_master, require_remote


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def with_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if what Spark Connect needs were there: it is about addresses."""
    monkeypatch.setattr(masters, "_CONNECT_PACKAGES", {})


@pytest.mark.parametrize(
    ("master", "is_in_one_process", "is_on_one_machine"),
    [
        ("local", True, True),
        ("local[*]", True, True),
        ("local[2,3]", True, True),
        ("local-cluster[2,1,1024]", False, True),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://localhost:7077,127.0.0.2:7077", False, True),
        ("spark://[::1]:7077", False, True),
        ("spark://localhost:7077,far:7077", False, False),
        ("spark://master.example:7077", False, False),
        ("yarn", False, False),
        ("k8s://https://127.0.0.1:6443", False, False),  # whose pods have addresses of their own
    ],
)
def test_a_master_tells_where_executors_are(master: str, is_in_one_process: bool, is_on_one_machine: bool) -> None:
    assert (is_local(master), is_on_this_machine(master)) == (is_in_one_process, is_on_one_machine)


def test_one_master_of_several_that_answers_is_enough(listening: int, closed: int) -> None:
    require_master(f"spark://127.0.0.1:{closed},127.0.0.1:{listening}", {})
    require_master("local[*]", {})
    require_master(f"k8s://https://127.0.0.1:{listening}", {})
    require_master(f"k8s://127.0.0.1:{listening}", {})
    require_master(f"k8s://https://127.0.0.1:{closed}", {"HTTPS_PROXY": "http://proxy:3128"})
    require_master("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})


def test_a_master_that_does_not_answer_is_told_at_once(closed: int) -> None:
    with pytest.raises(PipelineError, match=rf"^nobody answers at spark://127.0.0.1:{closed}: Connection refused$"):
        require_master(f"spark://127.0.0.1:{closed}", {})


def test_a_kubernetes_that_does_not_answer_is_told_at_once(closed: int) -> None:
    with pytest.raises(PipelineError, match=rf"^nobody answers at k8s://https://127.0.0.1:{closed}: Connection ref"):
        require_master(f"k8s://https://127.0.0.1:{closed}", {})


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        *((f"spark://{place}", "spark://host:port") for place in ("", "host", "host:", ":7077", "h:99999", "h:x")),
        *((f"k8s://{place}", "k8s://https://host:port") for place in ("", "https://", "https://host:port")),
        *((word, r"local\[\*\], local-cluster.*, yarn or k8s://") for word in ("local[2", "mesos://h:1", "", "Yarn")),
    ],
)
def test_what_is_no_address_of_a_master_is_refused(master: str, expected: str) -> None:
    with pytest.raises(PipelineError, match=f"^master {re.escape(master)}, expected {expected}"):
        require_master(master, {})


def test_yarn_without_its_settings_is_refused() -> None:
    with pytest.raises(PipelineError, match="HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set"):
        require_master("yarn", {"HADOOP_CONF_DIR": ""})


@pytest.mark.usefixtures("with_packages")
def test_a_token_in_an_address_is_never_shown(listening: int, closed: int) -> None:
    assert require_remote(f"sc://127.0.0.1:{listening}/;token=s3cret") == f"sc://127.0.0.1:{listening}"
    with pytest.raises(PipelineError, match="nobody answers at") as refused:
        require_remote(f"sc://127.0.0.1:{closed}/;token=s3cret")
    assert "s3cret" not in str(refused.value)


@pytest.mark.usefixtures("with_packages")
@pytest.mark.parametrize("remote", ["127.0.0.1:15002", "sc://", "sc://host:port/;token=s3cret", "http://s3cret@host"])
def test_what_is_no_address_of_spark_connect_is_refused(remote: str) -> None:
    with pytest.raises(PipelineError, match="expected sc://host:port") as refused:
        require_remote(remote)
    assert "s3cret" not in str(refused.value)


def test_packages_that_spark_connect_lacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = {"grpcio": "no_such_module", "protobuf": "no_such_package.at_all", "there": "json"}
    monkeypatch.setattr(masters, "_CONNECT_PACKAGES", lacking)
    with pytest.raises(PipelineError, match=r"^Spark Connect needs grpcio, protobuf; install headrace\[connect\]$"):
        require_remote("sc://127.0.0.1:15002")
