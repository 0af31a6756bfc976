"""A real Kubernetes of one node: etcd, API server, controllers, scheduler, kubelet, containerd and runc.

`make kubernetes` builds the first five; the other two are the machine's own. Runs inside `alone.sh`, whose network has
an address for the node, and a bridge for its pods.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.sockets import free_port
from tests.helpers.waiting import eventually
from tests.pipeline.clusters.kubernetes.api import Api
from tests.pipeline.clusters.kubernetes.authority import Authority
from tests.pipeline.clusters.kubernetes.images import write_image
from tests.pipeline.clusters.loopback import DEADLINE_S, LOOPBACK, Process

PROGRAMS = Path(__file__).resolve().parents[4] / "build" / "kubernetes"
POLL_S = 0.2  # of its API, which has others to serve
NODE, NODE_ADDRESS = "node", "10.88.0.1"
_BRIDGE, _POD_SUBNET = "cni0", "10.88.0.0/24"  # as in alone.sh
# Where Debian puts the plugins that give pods their network, and where their makers do.
_NETWORK_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_PAUSE = "headrace.test/pause:1"
_CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
_SERVICES = "10.96.0.0/16"  # addresses that nobody here calls


class Kubernetes:
    """Its parts are started one by one; `running` are their processes, and what they say is in the folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.running: list[Process] = []
        self.authority = Authority(folder)
        self.address = f"https://{LOOPBACK}:{free_port()}"
        self.api = Api(
            self.address,
            self.authority.certificate,
            *self.authority.issue("admin", user="admin", group="system:masters"),
        )

    def start(
        self, name: str, program: Path, words: Sequence[str], environ: Mapping[str, str] | None = None
    ) -> Process:
        process = Process(name, [str(program), *words], self.folder, {**os.environ, **(environ or {})})
        self.running.append(process)
        return process

    def write(self, name: str, content: Any) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def kubeconfig(self, name: str, user: str, group: str | None = None) -> Path:
        return self.authority.kubeconfig(name, self.address, self.authority.issue(name, user=user, group=group))

    def import_image(self, archive: Path) -> None:
        subprocess.run(
            ["ctr", "--address", _CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import", str(archive)],
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )

    def token_of(self, namespace: str, account: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.api.create(path, request)["status"]["token"])


@contextmanager
def kubernetes(folder: Path) -> Iterator[Kubernetes]:
    cluster = Kubernetes(folder)
    try:
        _start_etcd_and_api(cluster)
        _start_control(cluster)
        _start_node(cluster)
        yield cluster
    finally:
        for process in reversed(cluster.running):
            process.stop()


def missing() -> list[str]:
    """What has to be there before one can be started."""
    built = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "pause")
    return [
        *(f"{name} (make kubernetes)" for name in built if not (PROGRAMS / name).is_file()),
        *(f"{name} on PATH" for name in ("containerd", "ctr", "runc") if shutil.which(name) is None),
        *([] if _network_plugins() else ["the bridge plugin of containernetworking-plugins"]),
        *([] if _BRIDGE in {name for _, name in socket.if_nameindex()} else ["the network of alone.sh"]),
    ]


def _network_plugins() -> list[Path]:
    named = [Path(folder) for folder in os.environ.get("CNI_PATH", "").split(os.pathsep) if folder]
    return [folder for folder in (*named, *_NETWORK_PLUGINS) if (folder / "bridge").is_file()]


def _start_etcd_and_api(cluster: Kubernetes) -> None:
    store, peers = (f"http://{LOOPBACK}:{free_port()}" for _ in range(2))
    cluster.start(
        "etcd",
        PROGRAMS / "etcd",
        [
            *("--data-dir", str(cluster.folder / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", store, "--advertise-client-urls", store),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}"),
        ],
    )
    identity = cluster.authority.issue("api", LOOPBACK, NODE_ADDRESS, "kubernetes.default.svc")
    to_kubelets = cluster.authority.issue("api-to-kubelets", user="admin", group="system:masters")
    accounts = cluster.authority.issue("accounts")  # for its key: who has it makes tokens
    words = {
        "etcd-servers": store,
        "bind-address": "0.0.0.0",  # of a network that is this cluster's own
        "advertise-address": NODE_ADDRESS,
        "secure-port": cluster.address.rpartition(":")[2],
        "service-cluster-ip-range": _SERVICES,
        "tls-cert-file": identity.certificate,
        "tls-private-key-file": identity.key,
        "client-ca-file": cluster.authority.certificate,
        "kubelet-certificate-authority": cluster.authority.certificate,
        "kubelet-client-certificate": to_kubelets.certificate,
        "kubelet-client-key": to_kubelets.key,
        "kubelet-preferred-address-types": "InternalIP",  # there is nobody to ask for names
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": accounts.key,
        "service-account-signing-key-file": accounts.key,
        "audit-policy-file": cluster.write("audit.json", _AUDIT),
        "audit-log-path": cluster.folder / "audit.log",
    }
    cluster.start("api", PROGRAMS / "kube-apiserver", _flags(words))
    _wait(cluster, cluster.api.is_ready, "the API server")


# Who asked for what, which is how the rights that a job needs are known.
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


def _start_control(cluster: Kubernetes) -> None:
    for name in ("kube-controller-manager", "kube-scheduler"):
        words = {
            "kubeconfig": cluster.kubeconfig(name, f"system:{name}"),
            "bind-address": LOOPBACK,
            "secure-port": free_port(),
            "leader-elect": "false",
        }
        if name == "kube-controller-manager":
            words |= {
                "use-service-account-credentials": "true",
                "service-account-private-key-file": cluster.folder / "accounts.key",
                "root-ca-file": cluster.authority.certificate,
            }
        cluster.start(name, PROGRAMS / name, _flags(words))


def _start_node(cluster: Kubernetes) -> None:
    containerd = cluster.start("containerd", Path("containerd"), ["--config", str(_containerd_config(cluster))])
    containerd.wait_said("(containerd successfully booted)")
    cluster.import_image(
        write_image(
            cluster.folder / "pause.tar",
            _PAUSE,
            files={"/pause": (PROGRAMS / "pause").read_bytes()},
            directories=[],
            entrypoint=["/pause"],
            environ={},
        )
    )
    words = {
        "config": cluster.write("kubelet.json", _kubelet_config(cluster)),
        "kubeconfig": cluster.kubeconfig("kubelet", f"system:node:{NODE}", "system:nodes"),
        "hostname-override": NODE,
        "node-ip": NODE_ADDRESS,
        "root-dir": cluster.folder / "kubelet",
    }
    cluster.start("kubelet", PROGRAMS / "kubelet", _flags(words))
    _wait(cluster, lambda: _is_ready_node(cluster.api), "a node that is ready")


def _containerd_config(cluster: Kubernetes) -> Path:
    network = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": _BRIDGE,
                "isDefaultGateway": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": _POD_SUBNET, "rangeStart": "10.88.0.16", "gateway": NODE_ADDRESS}]],
                },
            }
        ],
    }
    cluster.write("network/pods.conflist", network)
    # The native snapshotter copies files: it works on any file system, and the images here are small.
    return cluster.write(
        "containerd.toml",
        f"""\
version = 2
root = "{cluster.folder}/containerd"
state = "/run/containerd"
[grpc]
address = "{_CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{_PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{_network_plugins()[0]}"
conf_dir = "{cluster.folder}/network"
""",
    )


def _kubelet_config(cluster: Kubernetes) -> dict[str, Any]:
    identity = cluster.authority.issue("kubelet-server", NODE_ADDRESS, NODE)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": str(cluster.authority.certificate)}},
        "tlsCertFile": str(identity.certificate),
        "tlsPrivateKeyFile": str(identity.key),
        "containerRuntimeEndpoint": f"unix://{_CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": str(cluster.write("resolv.conf", "")),
        "podLogsDir": str(cluster.folder / "pods"),
        "healthzPort": 0,
        # How full the disk of this machine is is not the question.
        "evictionHard": {f"{name}.available": "0%" for name in ("nodefs", "imagefs", "memory")},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
    }


def _is_ready_node(api: Api) -> bool:
    """Ready, and without the mark by which controllers keep pods away from one that was not."""
    return any(
        not node["spec"].get("taints")
        and any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", []))
        for node in api.get("/api/v1/nodes")["items"]
    )


def _flags(words: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in words.items()]


def _wait(cluster: Kubernetes, condition: Any, what: str) -> None:
    def is_so() -> bool:
        ended = [process for process in cluster.running if not process.is_running]
        assert not ended, ended[0].said[-3000:]
        return bool(condition())

    eventually(is_so, f"{what}: see {cluster.folder}/*.log", DEADLINE_S, POLL_S)
