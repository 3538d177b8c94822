"""The one place where the rest of the product finds `topl`."""

from __future__ import annotations

from ..entry import Entry, as_given, no_objection
from .advisor import ToPLAdvisor
from .mechanism import ToPL
from .settings import ToPLParameters, build

ENTRY = Entry(
    name="topl",
    summary="means and sums of values that devices perturb themselves",
    parameters=ToPLParameters,
    mechanisms=(ToPL,),
    grouped=False,
    build=build,
    framed=as_given,
    objections=no_objection,
    advisor=ToPLAdvisor(),
)
