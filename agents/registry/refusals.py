"""Classifies a registry's refusals: of one id, or of all."""

from __future__ import annotations

WHOLE = (401, 407, 408, 429)  # HTTP: of the client or the moment, never of one id
FORBIDDEN = 403  # of the client, unless other ids are allowed


class IdRefused(Exception):
    """The registry answers, but not with a schema: a matter of this id, if it answers others."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.http_status_code = status
