"""The one place where the rest of the product finds `privhp`."""

from __future__ import annotations

from ..entry import Entry, as_given, no_objection
from ..parts.bound_advisor import BoundAdvisor
from .mechanism import PrivHP
from .settings import PrivHPParameters, build

ENTRY = Entry(
    name="privhp",
    summary="private tree of a spatial stream and synthetic points, in bounded memory",
    parameters=PrivHPParameters,
    mechanisms=(PrivHP,),
    grouped=False,
    build=build,
    framed=as_given,
    objections=no_objection,
    advisor=BoundAdvisor("privhp"),
)
