"""`make docs` builds a site that needs no network: documents, search, every exported name.

Covers: client/__init__.py, mechanisms/noise/__init__.py, mechanisms/accounting/__init__.py
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from .chromium import Browser, found

ROOT = Path(__file__).parents[1]
SITE = runpy.run_path(str(ROOT / ".ci" / "site.py"))
HTML = ROOT / ".build" / "site" / "html"
FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//"""
    r"""|url\(\s*["']?(?:https?:)?//"""
)

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built as `make docs` builds it."""
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "NO_MKDOCS_2_WARNING": "1",
    }
    for command in ([sys.executable, ".ci/site.py"], [tools / "mkdocs", "build", "-q", "--strict"]):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return HTML


def test_the_reference_describes_every_exported_name(site: Path) -> None:
    text = "".join(page.read_text("utf-8") for page in (site / "api").glob("*.html"))
    described = set(re.findall(r'id="(hushstream\.[\w.]+)"', text))
    for _, package in SITE["PACKAGES"].values():
        names = {f"{SITE['_home'](package, n)}.{n}" for n in import_module(package).__all__}
        assert names <= described


def test_examples_are_shown_as_code(site: Path) -> None:
    page = (site / "api" / "accounting.html").read_text("utf-8")
    assert 'class="gp">&gt;&gt;&gt; ' in page
    assert "<blockquote>" not in page


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    files = [f for f in site.rglob("*") if f.suffix in (".html", ".css")]
    assert len(files) > 50
    assert [f.name for f in files if FETCHED.search(f.read_text("utf-8"))] == []
    assert FETCHED.search('<script src="https://x/shim"></script>')


@pytest.mark.skipif(not found(), reason="no Chromium: apt-get install chromium")
def test_pages_opened_from_disk_can_be_searched(site: Path) -> None:
    browser = Browser()
    try:
        browser.open((site / "docs" / "concepts.html").as_uri())
        browser.size(1300)
        browser.until("!!document.querySelector('.md-search__input')")
        browser.eval("document.querySelector('label[for=__search]').click()")
        browser.eval("document.querySelector('.md-search__input').focus()")
        for letter in "ledger":
            browser.call("Input.dispatchKeyEvent", type="keyDown", key=letter, text=letter)
        results = "document.querySelector('.md-search-result__link')?.href"
        assert browser.until(results, 60).startswith("file://")
        assert browser.errors == []
        assert [
            url for url in browser.requested if not url.startswith(("file:", "data:", "blob:"))
        ] == []
    finally:
        browser.close()
