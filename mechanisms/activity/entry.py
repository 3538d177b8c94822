"""Registration of `activity`: all that the rest of the product imports of it."""

from __future__ import annotations

from ..entry import Entry
from .mechanism import Activity
from .settings import ActivityParameters, build

ENTRY = Entry(
    name="activity",
    summary="how many units send how many records, and to how few keys",
    parameters=ActivityParameters,
    mechanisms=(Activity,),
    grouped=False,
    build=build,
    published=lambda settings: "how many units have how many records",
)
