"""Dashboards drawn by Grafana's own components, from npm, in a headless Chromium."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from PIL import Image

from ..chromium import Browser
from ..tree import ROOT

SOURCES = Path(__file__).parent / "grafana"
LOCKS = ("package.json", "package-lock.json")
MARK = "Dashboard"  # a picture's field for the digest of its dashboard
OURS = ("@grafana/data", "@grafana/ui")
ICONS = "@grafana/ui/dist/public"
FONTS = {"Regular": 400, "Medium": 500}
PAGE = """<!doctype html><meta charset="utf-8"><title>Dashboard</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css"><style>body { height: auto; overflow: visible }
.empty { display: grid; place-items: center; height: 100% }</style>
<div id="root"></div><script src="page.js"></script>
"""


def digest(text: str) -> str:
    """The digest that a picture has of its dashboard."""
    return hashlib.sha256(text.encode()).hexdigest()


def shown(path: Path) -> str | None:
    """The digest in a picture; None if it has none."""
    with Image.open(path) as picture:
        told = picture.info.get(MARK)
    return str(told) if told else None


def version() -> str:
    """The version of Grafana that the components belong to."""
    told = json.loads((SOURCES / LOCKS[0]).read_text("utf-8"))
    return str(told["dependencies"]["@grafana/ui"])


def _modules() -> Path:
    """Install the locked modules, once for each lock; return their folder."""
    text = b"".join((SOURCES / name).read_bytes() for name in LOCKS)
    folder = ROOT / ".build" / f"grafana-{hashlib.sha256(text).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in LOCKS:
            shutil.copy(SOURCES / name, folder)
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (folder / "complete").touch()
    return folder / "node_modules"


def build(folder: Path) -> None:
    """Bundle the page with Grafana's components into a folder.

    Their modules for browsers lack some exports, so this takes those for Node.js.
    """
    modules = _modules()
    words = [
        str(modules / ".bin" / "esbuild"), str(SOURCES / "page.jsx"), "--bundle", "--minify",
        "--jsx=automatic", "--log-level=error", f"--outfile={folder / 'page.js'}",
        '--define:process.env.NODE_ENV="production"',
        "--loader:.ttf=empty",
        *(f"--alias:{name}={modules / name / 'dist/cjs/index.cjs'}" for name in OURS),
    ]  # fmt: skip
    subprocess.run(words, check=True, env={"NODE_PATH": str(modules)})
    (folder / "index.html").write_text(PAGE)
    fonts = folder / "public" / "fonts" / "inter"
    fonts.mkdir(parents=True)
    for name, weight in FONTS.items():
        file = modules / f"@fontsource/inter/files/inter-latin-{weight}-normal.woff2"
        (fonts / f"Inter-{name}.woff2").symlink_to(file)
    (folder / "public" / "build").symlink_to(modules / ICONS)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Pages:
    """A browser that draws dashboards, one after the other; it ends with the block.

    Attributes:
        browser: browser that shows them.
    """

    def __enter__(self) -> Pages:
        self._folder = Path(tempfile.mkdtemp(prefix="dashboards-"))
        build(self._folder)
        handler = partial(_Quiet, directory=str(self._folder))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.browser = Browser()
        self.browser.size(1400)
        return self

    def __exit__(self, *_: object) -> None:
        self.browser.close()
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._folder)

    def show(self, told: dict[str, Any]) -> None:
        """Draw one dashboard.

        Args:
            told: dashboard, answers by panel, caption, time range and step in seconds.
        """
        (self._folder / "told.json").write_text(json.dumps(told))
        self.browser.open(f"http://127.0.0.1:{self._server.server_address[1]}/")
        self.browser.until("window.shown || window.failed")
        assert not (failed := self.browser.eval("window.failed")), failed

    def empty(self) -> list[str]:
        """Titles of the panels without data."""
        found = "document.querySelectorAll('[data-panel]:has(.empty)')"
        return list(self.browser.eval(f"[...{found}].map((e) => e.dataset.title)"))

    def shot(self) -> bytes:
        """The current dashboard as a PNG."""
        path = self._folder / "shot.png"
        self.browser.shot(path, "#board")
        return path.read_bytes()
