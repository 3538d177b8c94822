"""A real Prometheus for the pages of one machine, with the shipped settings."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from hushstream.deploy.process import Child
from hushstream.deploy.settings import free_port

from ..tree import ROOT

PROGRAM = shutil.which("prometheus")


class Prometheus:
    """Prometheus over the pages of one machine.

    Args:
        folder: folder for its settings and data.
        public: port of the page that anyone may read.
        operator: port of the operator's page.
        rules: text of its alerting rules.
        interval: seconds between two scrapes.
    """

    def __init__(
        self, folder: Path, public: int, operator: int, rules: str, interval: int = 1
    ) -> None:
        self._port = free_port()
        settings = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
        settings["global"] = {"scrape_interval": f"{interval}s", "evaluation_interval": "1s"}
        settings["rule_files"] = [str(folder / "rules.yml")]
        for job in settings["scrape_configs"]:
            port = public if job["job_name"] == "hush-public" else operator
            found = next(name for name in job if name.endswith("_configs"))
            del job[found]
            job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (folder / "rules.yml").write_text(rules)
        self._child = Child(
            [
                PROGRAM or "", f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            folder / "prometheus.log",
        )  # fmt: skip

    def ask(self, path: str, **words: str) -> Any:
        """An answer of its API; None if it does not answer."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except ConnectionError:
            return None
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is starting
                return None
            raise AssertionError(f"{words}: {error.read().decode()}") from None
        except urllib.error.URLError:
            return None

    def values(self, query: str) -> list[float]:
        """The current values of a query."""
        found = self.ask("query", query=query)
        return [float(one["value"][1]) for one in found["result"]] if found else []

    def rules(self) -> list[dict[str, Any]]:
        """All alerting rules with their current states."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def end(self) -> None:
        """Stop it."""
        self._child.send(signal.SIGTERM)
        self._child.wait(30)
