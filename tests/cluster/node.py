"""One machine that runs pods: its own scheduler, kubelet and containerd, as root.

Pods have their own network, a bridge whose first address is this machine. There are no names in it,
and only `policies.enforcer` enforces a NetworkPolicy. Images come from the Docker engine, which
also keeps them. The containers of that engine are not touched.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import yaml
from hushstream.deploy.process import Child

from ..e2e.engine import docker, has_image
from ..e2e.standins import DEBIAN
from .api import Resource
from .control_plane import ControlPlane, end, start, until

BRIDGE = "hushtest0"
SUBNET, GATEWAY = "10.213.77.0/24", "10.213.77.1"
NAME = "node"
PAUSE = "hush-e2e/pause:1"
PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
PREFIX = "hushnode-"
LONG = 600.0  # seconds


def missing() -> str | None:
    """What this machine lacks to run pods; None: nothing."""
    if os.geteuid() != 0:
        return "only root can run a kubelet"
    for command, package in (("containerd", "containerd"), ("ip", "iproute2"), ("runc", "runc"),
                             ("iptables", "iptables"), ("ipset", "ipset")):  # fmt: skip
        if shutil.which(command) is None:
            return f"no `{command}`: Debian has a package {package}"
    if not any((folder / "bridge").is_file() for folder in PLUGINS):
        return "no plug-ins of CNI: Debian's package is containernetworking-plugins"
    if any(one.info["name"] == "kubelet" for one in psutil.process_iter(["name"])):
        return "a kubelet runs here already, and two would end each other's pods"
    if not has_image(DEBIAN):
        return "no stand-ins of images: start dockerd and run `make e2e ARGS=--stand-ins`"
    return None


class Node:
    """A running machine.

    Args:
        folder: folder for its files; its path must be short, for sockets.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "c.sock"

    def ctr(self, *words: str, timeout: float = LONG) -> str:
        """Run a command of containerd's client, in the namespace where kubelets keep containers."""
        command = ["ctr", "-a", str(self.socket), "-n", "k8s.io", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def take(self, image: str) -> None:
        """Copy an image from the Docker engine."""
        path = self.folder / "image.tar"
        docker("save", "-o", str(path), image, timeout=LONG)
        self.ctr("images", "import", str(path))
        path.unlink()

    def process(self, pod: Resource) -> int:
        """Process of a pod's first container on this machine."""
        name = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        lines = self.ctr("tasks", "list").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

    def log(self, name: str) -> str:
        """The last lines of a program's log."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")[-3000:]


@contextmanager
def node(plane: ControlPlane) -> Iterator[Node]:
    """Start a machine and wait until it accepts pods; end it with all of its pods.

    Args:
        plane: the cluster that it joins.
    """
    with ExitStack() as stack:
        _clear()
        made = Node(Path(tempfile.mkdtemp(prefix=PREFIX)))
        stack.callback(_remove, made.folder)
        stack.callback(_remove_groups)
        stack.enter_context(_bridge())
        _write(made)
        words = ["containerd", "-c", str(made.folder / "containerd.toml")]
        stack.callback(end, start(words, made.folder))
        until(lambda: made.socket.exists() and made.ctr("version"), "containerd answers")
        stack.callback(_end_pods, made)
        _make_pause()
        made.take(PAUSE)
        rights = {"kubeconfig": plane.kubeconfig}
        scheduling = {**rights, "leader-elect": "false", "secure-port": "0"}
        stack.callback(end, plane.run("kube-scheduler", scheduling, made.folder))
        kubelet = {
            **rights,
            "config": made.folder / "kubelet.yaml",
            "hostname-override": NAME,
            "node-ip": GATEWAY,
            "root-dir": made.folder / "kubelet",
            "cert-dir": made.folder / "pki",
        }
        child = plane.run("kubelet", kubelet, made.folder)
        stack.callback(end, child)
        until(lambda: _takes_pods(plane, child, made), "the node is ready")
        yield made


def _takes_pods(plane: ControlPlane, child: Child, made: Node) -> bool:
    assert child.returncode is None, made.log("kubelet")
    for found in plane.api.items("/api/v1/nodes"):
        conditions = {c["type"]: c["status"] for c in found["status"].get("conditions", ())}
        if conditions.get("Ready") == "True" and not found["spec"].get("taints"):
            return True
    return False


def _write(made: Node) -> None:
    folder = made.folder
    plugins = next(one for one in PLUGINS if (one / "bridge").is_file())
    (folder / "cni").mkdir()
    (folder / "cni" / "1-bridge.conflist").write_text(json.dumps(_network(folder)))
    cri = "plugins.'io.containerd.grpc.v1.cri'"
    (folder / "containerd.toml").write_text(
        f"version = 2\nroot = '{folder}/root'\nstate = '{folder}/state'\n"
        f"[grpc]\naddress = '{made.socket}'\n"
        f"[{cri}]\nsandbox_image = 'docker.io/{PAUSE}'\ndisable_apparmor = true\n"
        "restrict_oom_score_adj = true\n"  # root in a container may not lower it
        f"[{cri}.cni]\nbin_dir = '{plugins}'\nconf_dir = '{folder}/cni'\n"
    )
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(made)))


def _network(folder: Path) -> Resource:
    addresses = {"type": "host-local", "subnet": SUBNET, "gateway": GATEWAY,
                 "dataDir": str(folder / "addresses")}  # fmt: skip
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "hush", "plugins": [bridge]}


def _kubelet(made: Node) -> Resource:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": GATEWAY,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "clusterDNS": [],
        "containerRuntimeEndpoint": f"unix://{made.socket}",
        "enforceNodeAllocatable": ["pods"],
        "evictionHard": {"memory.available": "100Mi"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "healthzPort": 0,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(made.folder / "logs"),
        "volumePluginDir": str(made.folder / "plugins"),
    }


def _clear() -> None:
    """Remove what a killed run has left, before another machine meets it."""
    subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True, timeout=30)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        _remove(folder)


@contextmanager
def _bridge() -> Iterator[None]:
    _ip("link", "add", BRIDGE, "type", "bridge")
    try:
        _ip("address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        yield
    finally:
        _ip("link", "delete", BRIDGE)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def _make_pause() -> None:
    if not has_image(PAUSE):
        text = f'FROM {DEBIAN}\nENTRYPOINT ["sleep", "infinity"]\n'
        docker("build", "-q", "-t", PAUSE, "-", stdin=text)


def _end_pods(made: Node) -> None:
    """Kill the processes that the kubelet has started: it ends without ending its pods."""
    for one in _tasks(made):
        with suppress(AssertionError):  # containerd cleans up at the same time
            made.ctr("tasks", "kill", "--signal", str(int(signal.SIGKILL)), one)
    until(lambda: not _tasks(made, "RUNNING"), "all pods have ended")


def _tasks(made: Node, status: str = "") -> Sequence[str]:
    lines = made.ctr("tasks", "list").splitlines()[1:]
    return [line.split()[0] for line in lines if line.split()[2:] and status in line]


def _remove_groups() -> None:
    """Remove the pods' control groups, which are empty now."""
    for top in Path("/sys/fs/cgroup").glob("**/kubepods"):
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()


def _remove(folder: Path) -> None:
    """Unmount everything in the folder, then delete it."""
    mounts = Path("/proc/mounts").read_text("utf-8").splitlines()
    inside = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{folder}/")]
    for place in sorted(inside, reverse=True):
        subprocess.run(["umount", "-l", place], check=False, capture_output=True, timeout=30)
    shutil.rmtree(folder, ignore_errors=True)
