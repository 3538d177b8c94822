"""Rights of each role: what a role must never have, even if its other rights change.

`tests/integration/test_rights.py` shows on a broker that each role's rights suffice and that
nothing else is allowed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hushstream.agents.deployment.cluster.rights import ROLES, Right, reached, rights, wanted
from hushstream.agents.deployment.cluster.topic_specs import internal_topics, public_topics
from hushstream.topics.names import OWNERS, Names

from ....support import deployment

MADE = deployment()
NAMES = Names(MADE.name, "0123456789")
PUBLIC = [spec.name for spec in public_topics(MADE)]
INTERNAL = [spec.name for spec in internal_topics(MADE, NAMES)]
RAW = [source.topic for source in MADE.inputs]
DEAD = sorted({p.dlq_topic for p in MADE.pipelines if p.dlq_topic})
EVERY = [*RAW, *PUBLIC, *INTERNAL]


def given(role: str) -> dict[str, list[str]]:
    return wanted(rights(role, MADE, NAMES), EVERY)  # type: ignore[arg-type]


def test_only_workers_and_administrators_write() -> None:
    for role in ROLES:
        writes = {t for t, operations in given(role).items() if "WRITE" in operations}
        if role == "producer":
            assert writes == set(RAW)
        elif role == "mender":
            assert writes == {*RAW, *DEAD}
        elif role in ("auditor", "verifier", "reader", "remover"):
            assert writes == set()
        else:
            assert writes and not writes & set(RAW)


def test_readers_see_nothing_that_is_a_function_of_raw_data() -> None:
    assert not given("reader").keys() & {*RAW, *INTERNAL}
    aside = {t for p in MADE.pipelines for t in (p.dlq_topic, p.late_topic) if t}
    assert not given("reader").keys() & aside
    assert all(set(operations) == {"READ"} for operations in given("reader").values())


def test_the_ledger_tells_of_load_and_is_for_verifiers_not_for_readers() -> None:
    """Markers of its transactions bear the moment, and epochs of its producer count beats."""
    released = {t for p in MADE.pipelines for t in (p.release_topic, p.latest_topic) if t}
    assert set(given("reader")) == {OWNERS, *released}
    assert set(given("verifier")) == {OWNERS, *released, NAMES.ledger}
    assert given("verifier")[NAMES.ledger] == ["READ"]


def test_who_removes_a_deployment_deletes_all_topics_of_it_and_no_input() -> None:
    found = given("remover")
    gone = {topic for topic, operations in found.items() if "DELETE" in operations}
    assert gone == {*PUBLIC, *INTERNAL} - {OWNERS}
    assert all("WRITE" not in o and "CREATE" not in o for o in found.values())


def test_workers_make_and_alter_nothing_and_delete_only_what_is_trimmed() -> None:
    found = given("worker")
    assert not any({"CREATE", "ALTER", "ALTER_CONFIGS"} & set(o) for o in found.values())
    deleted = {topic for topic, operations in found.items() if "DELETE" in operations}
    assert deleted < set(INTERNAL) and not any("changelog" in t or "begins" in t for t in deleted)
    assert f"{NAMES.base}.clock" in deleted
    assert set(found) == set(EVERY)


def test_administrators_read_no_input_and_no_release() -> None:
    found = given("administrator")
    assert all(found[topic] == ["DESCRIBE", "DESCRIBE_CONFIGS"] for topic in RAW)
    assert all("READ" not in found[p.release_topic] for p in MADE.pipelines)


def test_auditors_read_everything() -> None:
    found = given("auditor")
    assert set(found) == set(EVERY)
    assert {o for operations in found.values() for o in operations} == {"READ", "DESCRIBE_CONFIGS"}


@pytest.mark.parametrize("role", ROLES)
def test_nobody_has_a_right_on_everything_of_a_kind(role: str) -> None:
    for one in rights(role, MADE, NAMES):  # type: ignore[arg-type]
        assert one.name not in ("", "*") and one.operations and "ALL" not in one.operations
        assert not one.prefixed or one.name[-1] in ".-"


def test_a_prefix_covers_names_that_begin_so_and_a_name_only_itself() -> None:
    prefix = Right("topic", "a.", True, ("READ",), "")
    assert prefix.covers("a.b") and not prefix.covers("ab") and not prefix.covers("b.a.")
    literal = prefix._replace(prefixed=False, name="a")
    assert literal.covers("a") and not literal.covers("a.b")
    assert not prefix._replace(kind="group").covers("a.b")


def test_what_the_administrators_prefix_reaches_besides_is_told() -> None:
    assert reached(replace(MADE, name="shop")) == ""
    assert "every deployment" in reached(replace(MADE, name="hush"))
    (source,) = MADE.inputs
    own = replace(MADE, name="shop", inputs=(replace(source, topic="shop.orders"),))
    assert reached(own) == "the input shop.orders"
