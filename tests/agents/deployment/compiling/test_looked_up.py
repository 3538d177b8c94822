"""Tables of topics that a deployment needs: which, where it keeps them, and who may read them."""

from __future__ import annotations

from hushstream.agents.deployment.cluster.rights import rights
from hushstream.agents.deployment.cluster.topic_specs import internal_topics
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.formats.events.expressions.looked_up import Origin, PublicTable
from hushstream.topics.config.load import loads
from hushstream.topics.names import Names

from ....topics.config.expressions.test_conditions import TEXT

NAMES = Names("hush", "0123456789")
LOOKUP = '[[lookup]]\nname = "products"\ntopic = "shop-products"\n'
ROW = 'field = "page", lookup = "products"'


def tables(pipeline: str, origin: Origin) -> PublicTable:
    return PublicTable({"a": origin.take}, origin)


def deployment(settings: str) -> Deployment:
    text = TEXT.replace('key = "page"', "") + settings + LOOKUP
    return compile_config(loads(text, environ={}, tables=tables))


EVERYWHERE = deployment(
    f"""key = ["kind", "case"]
where = [{{ any = [{{ {ROW}, take = "a", equals = "a" }}, {{ field = "n", above = 1 }}] }}]
aggregate = [{{ kind = "count", where = [{{ {ROW}, take = "b", match = "m", equals = "b" }}] }}]
derive.kind = {{ {ROW}, take = "c", otherwise = "-" }}
derive.case = {{ cases = [{{ where = [{{ {ROW}, take = "c", equals = "c" }}], then = 1 }}],
    otherwise = 2 }}
""".replace(",\n   ", ",")
)
NONE = deployment('key = "page"\n')


def test_every_table_is_found_wherever_settings_name_it_and_each_once():
    (pipeline,) = EVERYWHERE.pipelines
    origins = [one.origin for one in pipeline.tables]
    assert origins == [
        Origin("shop-products", "m", "b"), Origin("shop-products", "page", "a"),
        Origin("shop-products", "page", "c"),
    ]  # fmt: skip
    assert NONE.pipelines[0].tables == ()


def test_tables_are_kept_for_good_and_only_where_there_are_any():
    (spec,) = [one for one in internal_topics(EVERYWHERE, NAMES) if one.name == NAMES.tables]
    assert spec.partitions == 1 and spec.config["retention.ms"] == "-1"
    assert spec.config.get("cleanup.policy", "delete") == "delete"
    assert NAMES.tables not in {one.name for one in internal_topics(NONE, NAMES)}


def test_the_administrator_reads_reference_data_and_everybody_else_what_was_kept():
    topics = {
        role: {
            right.name for right in rights(role, EVERYWHERE, NAMES) if "READ" in right.operations
        }
        for role in ("administrator", "worker", "mender", "verifier", "reader", "producer")
    }
    assert [role for role in topics if "shop-products" in topics[role]] == ["administrator"]
    assert [role for role in topics if NAMES.tables in topics[role]] == ["mender", "verifier"]
    assert f"{NAMES.base}." in topics["worker"]  # the prefix of all internal topics
    made = rights("verifier", NONE, NAMES)
    assert NAMES.tables not in {right.name for right in made}
