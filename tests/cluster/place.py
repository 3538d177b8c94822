"""A namespace of a cluster, with the chart's releases in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from ..deploy.test_kubernetes import CHART
from . import programs
from .api import Resource
from .control_plane import ControlPlane

RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")
}
WORKERS = "app.kubernetes.io/component=worker"


class Place:
    """A namespace in which every pod must be confined.

    Args:
        plane: the cluster.
        name: name of the namespace.
        folder: folder for Helm values.
        labels: more labels of the namespace.
    """

    def __init__(
        self, plane: ControlPlane, name: str, folder: Path, labels: dict[str, str] | None = None
    ) -> None:
        self.name, self.api = name, plane.api
        self._plane, self._folder = plane, folder
        labelled = {"name": name, "labels": RESTRICTED | (labels or {})}
        self.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": labelled}))

    def apply(self, text: str, **query: str) -> list[str]:
        """Apply one resource; return the server's warnings."""
        return self.api.apply(text, self.name, **query).warnings

    def items(self, kind: str, group: str = "api/v1", **query: str) -> list[Resource]:
        """All resources of a kind."""
        return self.api.items(f"/{group}/namespaces/{self.name}/{kind}", **query)

    def one(self, kind: str, name: str, group: str = "api/v1") -> Resource:
        """One resource."""
        return self.api.get(f"/{group}/namespaces/{self.name}/{kind}/{name}")

    def workers(self, name: str = "hush") -> Resource:
        """The StatefulSet."""
        return self.one("statefulsets", name, "apis/apps/v1")

    def settled(self, name: str = "hush") -> bool:
        """Tell whether all workers run their latest specification."""
        found = self.workers(name)
        told, status = found["spec"], found["status"]
        return bool(
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("updatedReplicas", 0) == told["replicas"]
            and status.get("readyReplicas", 0) == told["replicas"]
            and status["currentRevision"] == status["updateRevision"]
        )

    def pods(self) -> dict[str, str]:
        """Pods of workers: name and identity."""
        found = self.items("pods", labelSelector=WORKERS)
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}

    def volumes(self) -> dict[str, str]:
        """Claims of volumes: name and identity."""
        found = self.items("persistentvolumeclaims")
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}

    def helm(self, *words: str, values: dict[str, Any] | None = None) -> str:
        """Run helm; return its output. It must not print any warning."""
        done = self.try_helm(*words, values=values)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # the server's warnings would be here
        return done.stdout

    def try_helm(
        self, *words: str, values: dict[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run helm with values in a file."""
        if values is not None:
            path = self._folder / "values.yaml"
            path.write_text(yaml.safe_dump(values))
            words = (*words, "-f", str(path))
        environ = {**os.environ, "KUBECONFIG": str(self._plane.kubeconfig)}
        environ |= {f"HELM_{one}_HOME": str(self._folder) for one in ("CACHE", "CONFIG", "DATA")}
        return subprocess.run(
            [programs.program("helm") or "helm", "-n", self.name, *words],
            env=environ, capture_output=True, text=True, timeout=600,
        )  # fmt: skip

    def put(self, word: str, values: dict[str, Any]) -> str:
        """Install or upgrade, and wait until all workers are ready."""
        return self.helm(word, "hush", str(CHART), "--wait", "--timeout", "8m", values=values)
