"""NetworkPolicies in force: kube-router's firewall, and pods that test who reaches whom."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import yaml

from .api import Resource
from .control_plane import ControlPlane, end, until
from .kubelets import ready
from .node import NAME, Node
from .place import Place

OURS = "KUBE-"  # in the names of its chains and sets
TRY = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
"""


@contextmanager
def enforcer(plane: ControlPlane, running: Node) -> Iterator[None]:
    """Enforce the cluster's policies on this machine's pods; remove all rules at the end.

    Args:
        plane: the cluster.
        running: the machine.
    """
    flags = {
        "kubeconfig": plane.kubeconfig,
        "hostname-override": NAME,
        "run-firewall": "true",
        "run-router": "false",
        "run-service-proxy": "false",
        "enable-cni": "false",
        "health-port": "0",
    }
    with ExitStack() as stack:
        stack.callback(_clear)
        child = plane.run("kube-router", flags, running.folder)
        stack.callback(end, child)
        until(lambda: child.returncode is not None or OURS in _rules(), "rules are there")
        assert child.returncode is None, running.log("kube-router")
        yield


def _rules() -> str:
    return _run("iptables-save", "-t", "filter")


def _clear() -> None:
    kept = [line for line in _rules().splitlines() if OURS not in line]
    _run("iptables-restore", stdin="\n".join(kept) + "\n")
    for name in _run("ipset", "list", "-n").split():
        if OURS in name or name.startswith("kube-router"):
            _run("ipset", "destroy", name)


def _run(*words: str, stdin: str = "") -> str:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reaches(process: int, address: str, port: int) -> bool:
    """Tell whether a client in the network of a process can connect."""
    inside = ["nsenter", "-t", str(process), "-n", sys.executable, "-I", "-c", TRY]
    done = subprocess.run([*inside, address, str(port)], capture_output=True, timeout=60)
    return done.returncode == 0


class Outsider:
    """A pod in another namespace, which serves on a port.

    Args:
        place: its namespace.
        running: the machine.
        image: container image that has Python.
        port: port at which it serves.
    """

    def __init__(self, place: Place, running: Node, image: str, port: int) -> None:
        self._place, self._running = place, running
        accounts = f"/api/v1/namespaces/{place.name}/serviceaccounts"
        until(lambda: place.api.items(accounts), "the namespace has its account")
        place.apply(yaml.safe_dump(_pod(image, port)))
        until(lambda: ready(self._pod()), f"the pod in {place.name} runs")

    def _pod(self) -> Resource:
        return self._place.one("pods", "outsider")

    def process(self) -> int:
        """Its process on this machine."""
        return self._running.process(self._pod())

    def address(self) -> str:
        """Its address in the network of pods."""
        return str(self._pod()["status"]["podIP"])


def _pod(image: str, port: int) -> Resource:
    confined = {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    serves = {
        "name": "serves", "image": image, "imagePullPolicy": "Never",
        "command": ["python", "-m", "http.server", str(port), "-d", "/tmp"],
        "securityContext": confined, "readinessProbe": {"tcpSocket": {"port": port}},
    }  # fmt: skip
    spec = {
        "containers": [serves], "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "outsider"}, "spec": spec}
