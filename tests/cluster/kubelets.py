"""A stand-in for the kubelets of a cluster: it reports pods as running or finished."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .api import Api, Refused, Resource

PODS = "/api/v1/pods"
LOOK = 0.1  # seconds between two checks of all pods


def ready(pod: Resource) -> bool:
    """Tell whether a pod serves and is not about to end."""
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


class Kubelets:
    """The stand-in.

    A pod that ends when its work is done, like a Job's, ends at once. Other pods become ready,
    unless that is held back.

    Args:
        api: client of the cluster.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._end = threading.Event()
        self._go = threading.Event()
        self._go.set()
        self._thread = threading.Thread(target=self._serve, name="kubelets", daemon=True)
        self._thread.start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no pod become ready during the block."""
        self._go.clear()
        try:
            yield
        finally:
            self._go.set()

    def end(self) -> None:
        """Stop it."""
        self._end.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._end.wait(LOOK):
            with contextlib.suppress(OSError, Refused):  # a busy server or machine: check again
                self._look()

    def _look(self) -> None:
        for pod in self._api.items(PODS):
            if pod["status"]["phase"] == "Pending" and self._go.is_set():
                self._answer(pod)

    def _answer(self, pod: Resource) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        done = pod["spec"]["restartPolicy"] != "Always"
        status = {"phase": "Succeeded" if done else "Running", "conditions": [
            {"type": kind, "status": "False" if done else "True"}
            for kind in ("Ready", "ContainersReady")
        ]}  # fmt: skip
        try:
            self._api.patch(
                f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status}
            )
        except Refused as error:  # it was deleted meanwhile
            if error.status not in (404, 409):
                raise
