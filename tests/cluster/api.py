"""A client of an API server by plain HTTPS: sends resources, returns answers and warnings."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Resource = dict[str, Any]
PATCH = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Refused(Exception):
    """An answer other than success.

    Args:
        status: HTTP status code.
        text: body of the server's answer.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Answer(NamedTuple):
    """A success: the resource, and the server's warnings."""

    body: Resource
    warnings: list[str]


def documents(text: str) -> list[str]:
    """Texts of a file's resources, unchanged, so that the server sees duplicate keys.

    >>> documents("# head\\n---\\nkind: A\\n---\\n# none\\n---\\nkind: B\\n")
    ['kind: A\\n', 'kind: B\\n']
    """
    parts = re.split(r"^---\n", text, flags=re.MULTILINE)
    return [part for part in parts if yaml.safe_load(part)]


def warned(headers: Iterable[str]) -> list[str]:
    """Texts of ``Warning`` headers.

    >>> warned(['299 - "no \\\\"x\\\\" there"'])
    ['no "x" there']
    """
    found = (re.fullmatch(r'\d+ \S+ ("(?:[^"\\]|\\.)*")(?: ".*")?', one) for one in headers)
    return [json.loads(one[1]) for one in found if one]


class Api:
    """A client.

    Args:
        url: address of the server.
        cafile: file of trusted certificate authorities.
        token: bearer token of the client.
    """

    def __init__(self, url: str, cafile: Path, token: str) -> None:
        self._url = url
        self._token = token
        self._context = ssl.create_default_context(cafile=str(cafile))
        self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # accepts a test's plain certificate

    def call(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json",
        **query: str,
    ) -> Answer:  # fmt: skip
        """Send one request.

        Raises:
            Refused: the server refuses it.
        """
        with self._open(method, path, body, kind, query) as answer:
            text = answer.read().decode()
            warnings = warned(answer.headers.get_all("Warning") or ())
        is_json = answer.headers.get_content_type() == "application/json"
        return Answer(json.loads(text) if is_json else {"text": text}, warnings)

    def _open(
        self, method: str, path: str, body: bytes | None, kind: str, query: dict[str, str]
    ) -> Any:
        url = f"{self._url}{path}?{urllib.parse.urlencode(query)}"
        headers = {"Content-Type": kind, "Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=300, context=self._context)
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode()) from None

    def get(self, path: str, **query: str) -> Resource:
        """Return the resource at a path."""
        return self.call("GET", path, **query).body

    def items(self, path: str, **query: str) -> list[Resource]:
        """Return all resources of a list."""
        found: list[Resource] = self.get(path, **query)["items"]
        return found

    def place(self, resource: Resource, namespace: str) -> str:
        """Path of a resource, from the server's description of its kind."""
        version = resource["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        kinds = self.get(root)["resources"]
        (kind,) = (k for k in kinds if k["kind"] == resource["kind"] and "/" not in k["name"])
        middle = f"/namespaces/{namespace}" if kind["namespaced"] else ""
        return f"{root}{middle}/{kind['name']}/{resource['metadata']['name']}"

    def apply(self, text: str, namespace: str, **query: str) -> Answer:
        """Apply one resource as written; a field that the server does not know is an error.

        Raises:
            Refused: the server, or its admission, refuses it.
        """
        strict = {"fieldManager": "test", "fieldValidation": "Strict", "force": "true", **query}
        place = self.place(yaml.safe_load(text), namespace)
        return self.call("PATCH", place, text.encode(), APPLY, **strict)

    def patch(self, path: str, change: Resource) -> Resource:
        """Merge a change into a resource."""
        return self.call("PATCH", path, json.dumps(change).encode(), PATCH).body

    def since(self, path: str, version: str, last: str) -> Iterator[Resource]:
        """All changes of a list between two of its versions, in order.

        Args:
            path: path of the list.
            version: resource version from which to begin, as in a list's metadata.
            last: resource version at which to end, from a later list.
        """
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true",
                 "timeoutSeconds": "5"}  # fmt: skip
        with self._open("GET", path, None, "application/json", query) as answer:
            for line in answer:
                event = json.loads(line)
                if int(event["object"]["metadata"]["resourceVersion"]) > int(last):
                    return
                if event["type"] != "BOOKMARK":
                    yield event
