"""Registration of `privhp`: all that the rest of the product imports of it."""

from __future__ import annotations

from ..entry import MANY, Entry, Picture
from ..factorization.prefix_noise import longest
from ..spatial.settings import adopting, map_of
from .mechanism import PrivHP
from .planner import PrivHPPlanner
from .settings import PrivHPParameters, build


def triggers(parameters: PrivHPParameters) -> int:
    """Most triggers of the noise: a tree has any number, a matrix a limited one."""
    return MANY if parameters.noise == "laplace" else longest(parameters.factorization)


ENTRY = Entry(
    name="privhp",
    summary="private tree of a spatial stream and synthetic points, in bounded memory",
    parameters=PrivHPParameters,
    mechanisms=(PrivHP,),
    grouped=False,
    build=build,
    triggers=triggers,
    planner=PrivHPPlanner(),
    sibling="phdstream",
    adopted=adopting("binary", 2),
    picture=Picture("cells"),
    published=map_of,
)
