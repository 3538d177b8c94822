"""etcd, an API server and the controllers on loopback ports: a cluster that runs no pods yet."""

from __future__ import annotations

import secrets
import shutil
import signal
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml
from hushstream.deploy.process import Child
from hushstream.deploy.settings import HOST, free_port

from ..servers.secured import Authority
from .api import Api, Refused
from .programs import program

CONTROLLERS = (
    "statefulset", "job", "disruption", "garbage-collector", "namespace", "serviceaccount",
    "root-ca-certificate-publisher", "persistentvolumeclaim-protection",
    "persistentvolume-binder", "node-lifecycle",
)  # fmt: skip
PATIENCE = 240.0


def until(true: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, f"after {patience:.0f} s: not yet: {what}"
        time.sleep(0.1)


class ControlPlane:
    """A running control plane.

    Args:
        api: a client with all rights.
        kubeconfig: file that gives other clients the same rights.
    """

    def __init__(self, api: Api, kubeconfig: Path) -> None:
        self.api = api
        self.kubeconfig = kubeconfig

    def run(self, name: str, flags: dict[str, object], folder: Path) -> Child:
        """Start another program of the cluster, with its log in the folder."""
        return start([program(name) or name, *_flags(flags)], folder, name)


@contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Start everything with its data in a folder, and end it.

    Args:
        folder: folder for its files.
    """
    token = secrets.token_hex(16)
    (folder / "tokens").write_text(f"{token},admin,admin,system:masters\n")
    authority = Authority(folder)
    url = f"https://{HOST}:{free_port()}"
    api = Api(url, authority.cafile, token)
    kubeconfig = _kubeconfig(folder, url, token, authority.cafile)
    etcd = [f"http://{HOST}:{free_port()}" for _ in range(2)]
    cert, key = authority.issue("server")
    public, accounts = authority.issue("accounts")
    with ExitStack() as stack:
        _start(stack, folder, "etcd", _etcd(folder, *etcd))
        server = {
            "etcd-servers": etcd[0],
            "bind-address": HOST,
            "advertise-address": HOST,
            "endpoint-reconciler-type": "none",  # a loopback address cannot be an endpoint
            "secure-port": url.rpartition(":")[2],
            "tls-cert-file": cert,
            "tls-private-key-file": key,
            "token-auth-file": folder / "tokens",
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.96.0.0/16",
            "service-account-issuer": url,
            "service-account-key-file": public,
            "service-account-signing-key-file": accounts,
        }
        child = _start(stack, folder, "kube-apiserver", server)
        until(lambda: _ready(api) or child.returncode is not None, "the API server answers")
        assert child.returncode is None, (folder / "kube-apiserver.log").read_text()[-2000:]
        controllers = {
            "kubeconfig": kubeconfig,
            "controllers": ",".join(f"{name}-controller" for name in CONTROLLERS),
            "leader-elect": "false",
            "secure-port": "0",
            "root-ca-file": authority.cafile,
            "service-account-private-key-file": accounts,
        }
        _start(stack, folder, "kube-controller-manager", controllers)
        yield ControlPlane(api, kubeconfig)


def _start(stack: ExitStack, folder: Path, name: str, flags: dict[str, object]) -> Child:
    child = start([program(name) or name, *_flags(flags)], folder, name)
    stack.callback(end, child)
    return child


def _flags(flags: dict[str, object]) -> list[str]:
    return [f"--{flag}={value}" for flag, value in flags.items()]


def start(command: list[str], folder: Path, name: str = "") -> Child:
    """Start a program with its log in the folder, under the program's name."""
    path = shutil.which(command[0]) or command[0]
    return Child([path, *command[1:]], folder / f"{name or command[0]}.log")


def end(child: Child) -> None:
    """End a program, by force if necessary."""
    child.send(signal.SIGTERM)
    if not child.wait(10):
        child.send(signal.SIGKILL)
        child.wait(30)


def _etcd(folder: Path, client: str, peer: str) -> dict[str, object]:
    return {
        "data-dir": folder / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "unsafe-no-fsync": "true",
    }


def _ready(api: Api) -> bool:
    try:
        return api.get("/readyz")["text"] == "ok"
    except (Refused, urllib.error.URLError, ConnectionError):
        return False


def _kubeconfig(folder: Path, url: str, token: str, cafile: Path) -> Path:
    path = folder / "kubeconfig"
    cluster = {"server": url, "certificate-authority": str(cafile)}
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(told))
    path.chmod(0o600)
    return path
