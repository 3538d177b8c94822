"""Reports that leave a device: the same bytes for ever, whatever happens to it.

Covers: client/report.py, client/store.py, client/survey.py
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import hushstream.client as client_package
import pytest
from hushstream.client import (
    Budget,
    Client,
    Report,
    ReportError,
    ReportStore,
    Survey,
    parse,
    published_threshold,
)
from hushstream.client.survey import RANGE, VALUE
from hypothesis import given, settings
from hypothesis import strategies as st

SURVEY = Survey(Fraction(1, 2), Fraction(100), "s", reports=3, buckets=32, levels=16)
BUDGET = Budget(Fraction(50))
FOLDER = Path(str(client_package.__file__)).parent


def user_of(group: int, survey: Survey = SURVEY) -> str:
    return next(str(i) for i in range(1000) if survey.group(str(i)) == group)


VALUED, RANGED = user_of(VALUE), user_of(RANGE)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ReportStore]:
    with ReportStore(tmp_path / "reports.db", BUDGET) as opened:
        yield opened


def test_a_retry_sends_the_same_bytes(store: ReportStore) -> None:
    client = Client(SURVEY, store)
    for user, theta in ((VALUED, 5), (RANGED, None)):
        first = client.report(user, 1, 40, theta)
        again = {
            client.report(user, 1, value, 9) for value in (0, 40, 99.5, 1e9) for _ in range(25)
        }
        assert again == {first}
    assert store.spent(VALUED) == Fraction(1, 2)


def test_a_new_process_sends_the_same_bytes(tmp_path: Path) -> None:
    with ReportStore(tmp_path / "reports.db", BUDGET) as first:
        sent = Client(SURVEY, first).report(VALUED, 1, 40, 5)
    with ReportStore(tmp_path / "reports.db") as second:
        assert Client(SURVEY, second).report(VALUED, 1, 0, 7) == sent


DIES = """
import os, signal
from fractions import Fraction
from hushstream.client import *
survey = Survey.from_json({survey!r})
store = ReportStore({path!r}, Budget(Fraction({budget})))
def die(n):
    os.kill(os.getpid(), signal.SIGKILL)
client = Client(survey, store, **({{"uniform": die}} if {early} else {{}}))
payload = client.report({user!r}, 1, 40, 5)
open({path!r} + ".bytes", "wb").write(payload)
os.kill(os.getpid(), signal.SIGKILL)  # persisted, never sent
"""


@pytest.mark.parametrize("early", [False, True])
def test_killed_between_persisting_and_sending(tmp_path: Path, early: bool) -> None:
    path = str(tmp_path / "reports.db")
    script = DIES.format(survey=SURVEY.to_json(), path=path, user=VALUED, early=early, budget=1)
    died = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    with ReportStore(path) as store:
        assert store.spent(VALUED) == (0 if early else Fraction(1, 2))
        assert store.left() == (1 if early else Fraction(1, 2))
        payload = Client(SURVEY, store).report(VALUED, 1, 41, 6)
        assert store.spent(VALUED) == store.left() == Fraction(1, 2)
    if not early:
        assert payload == Path(path + ".bytes").read_bytes()


def test_threads_racing_for_one_slot_agree(tmp_path: Path) -> None:
    path, out = tmp_path / "reports.db", set()
    ReportStore(path, BUDGET).close()

    def race() -> None:
        with ReportStore(path) as store:
            out.add(Client(SURVEY, store).report(VALUED, 1, 40, 5))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(out) == 1


def test_nothing_is_sent_if_it_cannot_be_persisted(store: ReportStore) -> None:
    store.close()
    with pytest.raises(Exception, match="closed"):
        Client(SURVEY, store).report(VALUED, 1, 40, 5)


def test_a_user_has_so_many_reports_and_no_more(store: ReportStore) -> None:
    client = Client(SURVEY, store)
    sent = [client.report(VALUED, slot, 40, 5) for slot in range(3)]
    with pytest.raises(ReportError, match="reports = 3"):
        client.report(VALUED, 3, 40, 5)
    assert [client.report(VALUED, slot, 40, 5) for slot in range(3)] == sent
    assert store.spent(VALUED) == Fraction(3, 2)
    client.report(user_of(RANGE), 3, 40)  # somebody else is not affected


def test_every_period_has_reports_of_its_own(store: ReportStore) -> None:
    """A survey may go on for ever; what a user pays in one period stays the same."""
    survey = Survey(Fraction(1, 2), Fraction(100), "s", reports=2, period=7)
    client, user = Client(survey, store), user_of(VALUE, survey)
    for slot in (6, 0, 7, 13):
        client.report(user, slot, 40, 5)
    for slot in (1, 5, 8, 12):
        with pytest.raises(ReportError, match="reports = 2"):
            client.report(user, slot, 40, 5)
    client.report(user, 14, 40, 5)
    assert store.spent(user) == Fraction(5, 2)


def manifest(survey: Survey = SURVEY, **public: object) -> bytes:
    return json.dumps({"public": {"survey": [survey.number], "theta": [5]} | public}).encode()


def test_devices_take_the_threshold_of_their_survey_from_a_manifest() -> None:
    other = Survey(Fraction(1, 2), Fraction(99), "s", reports=3, buckets=32, levels=16)
    assert published_threshold(manifest(), SURVEY) == 5
    assert published_threshold(manifest().decode(), SURVEY) == 5
    assert published_threshold(manifest(other), SURVEY) is None
    for theta in ([0], [33], [5.0], [True], ["5"], [], [5, 6], 5, None):
        assert published_threshold(manifest(theta=theta), SURVEY) is None


def test_a_decoded_manifest_tells_the_same() -> None:
    body = json.loads(manifest())
    assert published_threshold(body, SURVEY) == 5
    assert published_threshold(bytearray(manifest()), SURVEY) == 5
    assert published_threshold(body | {"public": {}}, SURVEY) is None
    for nothing in (None, 5, [body], body["public"]["theta"]):
        with pytest.raises(ReportError, match="record = "):
            published_threshold(nothing, SURVEY)  # type: ignore[arg-type]


def test_a_threshold_is_for_the_slots_of_its_window() -> None:
    window = {"start": "2019-03-01T00:00:00Z", "end": "2019-03-02T00:00:00Z"}
    body, first = json.loads(manifest()) | {"window": window}, 17956 * 86_400
    told = {
        slot: published_threshold(body, SURVEY, slot)
        for slot in (first - 1, first, first + 86_399, first + 86_400)
    }
    assert list(told.values()) == [None, 5, 5, None]
    for window in ({}, {"start": "x", "end": "y"}, {"start": 1, "end": 2}):  # type: ignore[dict-item]
        assert published_threshold(body | {"window": window}, SURVEY, first) is None
    assert published_threshold(manifest(), SURVEY, first) is None  # of an unknown window


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"null", b"[]", b'{"public": 3}', b'{"values": {}}']
)
def test_other_records_of_a_release_topic_tell_no_threshold(payload: bytes) -> None:
    assert published_threshold(payload, SURVEY) is None


def test_spending_adds_up_over_surveys(store: ReportStore) -> None:
    other = Survey(Fraction(1), Fraction(100), "s", buckets=32, levels=16)
    for survey in (SURVEY, other):
        Client(survey, store).report(VALUED, 1, 40, 5)
    assert store.spent(VALUED) == Fraction(3, 2)


# The device's budget


def asked(number: int, epsilon: Fraction = Fraction(1)) -> Survey:
    """One of many surveys that differ in nothing but the salt."""
    return Survey(epsilon, Fraction(100), f"salt {number}", buckets=32, levels=16)


def answers(store: ReportStore, surveys: int, user: str = "alice") -> int:
    """How many of so many salted surveys get a report of one value."""
    made = 0
    for number in range(surveys):
        try:
            Client(asked(number), store).report(user, 1, 40, 5)
        except ReportError as error:
            assert str(error).startswith("budget = ε = 8")
        else:
            made += 1
    return made


def test_salted_surveys_draw_no_more_than_the_budget(tmp_path: Path) -> None:
    """One value asked for 200 times, each time by a survey that the device has never seen."""
    path = tmp_path / "reports.db"
    with ReportStore(path, Budget(Fraction(8))) as store:
        assert answers(store, 200) == 8
        assert store.spent("alice") == 8 and store.left() == 0
    with ReportStore(path) as store:  # a restart changes nothing
        assert answers(store, 200) == 8  # those that were made before, the same bytes
        assert answers(store, 200, "also alice") == 0  # nor does another name
        with pytest.raises(ReportError, match="8 is spent, this report would cost ε = 1/1000"):
            Client(asked(0, Fraction(1, 1000)), store).report("alice", 1, 40, 5)


def test_a_retry_costs_nothing_when_the_budget_is_spent(store: ReportStore) -> None:
    store.change(Budget(Fraction(1)))
    first = Client(asked(0), store).report("alice", 1, 40, 5)
    assert store.left() == 0
    assert Client(asked(0), store).report("alice", 1, 0, 9) == first


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(-3 * 86_400, 3 * 86_400), st.fractions("1/1000", 5)), max_size=30
    )
)
def test_any_days_have_the_budget_whatever_the_clock_does(
    steps: list[tuple[int, Fraction]],
) -> None:
    now, made = 10**9, []
    with ReportStore(":memory:", Budget(Fraction(6), 2), lambda: now) as store:
        latest = now
        for number, (move, epsilon) in enumerate(steps):
            now += move
            latest = max(latest, now)
            spent = sum(cost for when, cost in made if when >= latest - 2 * 86_400)
            try:
                Client(asked(number, epsilon), store).report("alice", 1, 40, 5)
            except ReportError:
                assert spent + epsilon > 6
            else:
                made.append((latest, epsilon))
                assert spent + epsilon <= 6
            latest = max([when for when, _ in made], default=0)  # what the file remembers
    for end, _ in made:
        assert sum(cost for when, cost in made if end - 2 * 86_400 < when <= end) <= 6


def test_a_budget_of_days_comes_back() -> None:
    now = 0.0
    with ReportStore(":memory:", Budget(Fraction(2), 7), lambda: now) as store:
        for day, number in ((0, 0), (3, 1)):
            now = day * 86_400.0
            Client(asked(number), store).report("alice", 1, 40, 5)
        for days, left in ((6.9, 0), (7.1, 1), (10.1, 2)):
            now = days * 86_400
            assert store.left() == left
        with pytest.raises(ReportError, match="budget = ε = 1/2 in 30 days"):
            store.change(Budget(Fraction(1, 2), 30))
            Client(asked(2), store).report("alice", 1, 40, 5)


@pytest.mark.parametrize("told", [float("nan"), float("inf"), float("-inf")])
def test_a_clock_that_is_no_time_spends_nothing_and_frees_nothing(told: float) -> None:
    now = 0.0
    with ReportStore(":memory:", Budget(Fraction(1), 7), lambda: now) as store:
        Client(asked(0), store).report("alice", 1, 40, 5)
        now = told
        with pytest.raises(ReportError, match=f"clock = {told}: must be a time"):
            Client(asked(1), store).report("alice", 1, 40, 5)
        now = 1.0
        assert store.left() == 0


def test_threads_racing_for_the_last_of_the_budget(tmp_path: Path) -> None:
    path, out = tmp_path / "reports.db", []
    ReportStore(path, Budget(Fraction(3))).close()

    def race(number: int) -> None:
        with ReportStore(path) as store, contextlib.suppress(ReportError):
            out.append(Client(asked(number), store).report("alice", 1, 40, 5))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(out) == 3


def test_a_file_keeps_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "reports.db"
    with pytest.raises(ReportError, match="budget = None"):
        ReportStore(path)
    ReportStore(path, Budget(Fraction(3), 7)).close()
    for other in (Budget(Fraction(4), 7), Budget(Fraction(3)), Budget(Fraction(2), 7)):
        with pytest.raises(ReportError, match="this file's is ε = 3 in 7 days"):
            ReportStore(path, other)
    with ReportStore(path, Budget(Fraction(3), 7)) as store:
        assert store.budget == Budget(Fraction(3), 7)
        store.change(Budget(Fraction(9)))
    with ReportStore(path) as store:
        assert store.budget == Budget(Fraction(9))


@pytest.mark.parametrize(
    "epsilon,days", [(0, 0), (-1, 0), (float("nan"), 0), (1, -1), (1, 0.5), (1, True), ("1", 0)]
)
def test_budgets_that_mean_nothing_are_refused(epsilon: object, days: object) -> None:
    with pytest.raises(ReportError):
        Budget(epsilon, days)  # type: ignore[arg-type]


FIRST = """CREATE TABLE report (
    survey TEXT NOT NULL, user TEXT NOT NULL, slot INTEGER NOT NULL,
    epsilon TEXT NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (survey, user, slot)
) WITHOUT ROWID"""


def test_reports_of_a_file_without_budget_count_as_made_when_it_got_one(tmp_path: Path) -> None:
    path, now = tmp_path / "reports.db", 1e9
    with sqlite3.connect(path) as old:
        old.execute(FIRST)
        old.execute("INSERT INTO report VALUES (?, 'alice', 1, '3/2', x'7b7d')", [asked(0).digest])
    old.close()
    with ReportStore(path, Budget(Fraction(2), 7), lambda: now) as store:
        assert Client(asked(0), store).report("alice", 1, 40, 5) == b"{}"
        with pytest.raises(ReportError, match="3/2 is spent"):
            Client(asked(1), store).report("alice", 1, 40, 5)
        now += 8 * 86_400
        Client(asked(1), store).report("alice", 1, 40, 5)


def test_a_refused_value_leaves_no_trace(store: ReportStore) -> None:
    client = Client(SURVEY, store)
    for value in (float("nan"), float("inf"), "12", None):
        with pytest.raises(ReportError) as caught:
            client.report(VALUED, 1, value, 5)
        assert "12" not in str(caught.value)  # an error never shows the value
    assert store.spent(VALUED) == 0


@pytest.mark.parametrize("slot", [-1, 1 << 32, 1.0, True])
def test_slots_are_checked(store: ReportStore, slot: object) -> None:
    with pytest.raises(ReportError, match="slot"):
        Client(SURVEY, store).report(VALUED, slot, 40, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("theta", [None, 0, 33, 2.0])
def test_the_value_group_needs_a_threshold(store: ReportStore, theta: object) -> None:
    with pytest.raises(ReportError, match="theta"):
        Client(SURVEY, store).report(VALUED, 1, 40, theta)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    value=st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(10**400), 10**400)
    | st.fractions(),
    theta=st.integers(1, 32),
)
def test_hostile_values_never_leave_the_table(value: object, theta: int) -> None:
    assert 0 <= SURVEY.perturb_range(value) < SURVEY.square_wave.outputs
    code = SURVEY.perturb_value(value, theta)
    assert 0 <= code < SURVEY.hybrid.outputs
    reach = max(abs(SURVEY.hybrid.decode(j)) for j in range(SURVEY.hybrid.outputs))
    top = SURVEY.threshold(theta)
    assert (1 - reach) * top / 2 <= SURVEY.estimate(code, theta) <= (1 + reach) * top / 2


@pytest.mark.parametrize("far,edge", [(-1e300, 0), (1e300, 100), (100.0001, 100), (-0.1, 0)])
def test_values_are_clipped_on_both_sides(far: float, edge: int) -> None:
    """With the randomness fixed, a value out of range is answered as the edge is."""
    for place in range(0, 1 << 24, 1 << 20):

        def fixed(n: int, place: int = place) -> int:
            return place % n

        assert SURVEY.perturb_range(far, fixed) == SURVEY.perturb_range(edge, fixed)
        assert SURVEY.perturb_value(far, 32, fixed) == SURVEY.perturb_value(edge, 32, fixed)


def test_reports_say_what_they_cost(store: ReportStore) -> None:
    payload = Client(SURVEY, store).report(VALUED, 1, 40, 5)
    record = json.loads(payload)
    assert record["schema"] == "hush.report/1"
    assert record["definition"] == "local"
    assert record["epsilon"] == "1/2" and record["epsilon_user"] == "3/2"
    assert record["survey"] == SURVEY.number and record["period"] == 0
    assert parse(payload, SURVEY) == Report(VALUED, 1, VALUE, 5, record["code"])


def forged(**changes: object) -> bytes:
    fields = {
        "schema": "hush.report/1",
        "survey": SURVEY.number,
        **Report(VALUED, 1, VALUE, 5, 3)._asdict(),
    }
    return json.dumps({**fields, **changes}).encode()


def test_the_unchanged_forgery_is_readable() -> None:
    assert parse(forged(), SURVEY).code == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"survey": SURVEY.number + 1},
        {"survey": SURVEY.digest},
        {"schema": "hush.report/2"},
        {"group": RANGE, "theta": 0},  # not this user's group
        {"group": 3},
        {"theta": 0},
        {"theta": 33},
        {"code": -1},
        {"code": SURVEY.hybrid.outputs},
        {"code": 3.0},
        {"code": float("nan")},
        {"code": True},
        {"slot": 1 << 32},
        {"user": 7},
    ],
)
def test_impossible_reports_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ReportError):
        parse(forged(**changes), SURVEY)


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{}", b"\xff", b'{"survey": 1}'])
def test_unreadable_reports_are_refused(payload: bytes) -> None:
    with pytest.raises(ReportError):
        parse(payload, SURVEY)


def test_groups_follow_share_and_salt() -> None:
    users = [f"user-{i}" for i in range(4000)]
    ranged = [user for user in users if SURVEY.group(user) == RANGE]
    assert abs(len(ranged) - 400) < 4 * (4000 * 0.1 * 0.9) ** 0.5
    other = Survey(Fraction(1, 2), Fraction(100), "t")
    both = [user for user in ranged if other.group(user) == RANGE]
    assert len(both) < len(ranged) / 4
    # salt and user cannot trade characters
    survey_ab, survey_a = (Survey(Fraction(1), Fraction(1), salt) for salt in ("ab", "a"))
    assert {survey_ab.group(f"{i}") == survey_a.group(f"b{i}") for i in range(200)} == {True, False}


def test_a_survey_travels_as_text() -> None:
    again = Survey.from_json(SURVEY.to_json())
    assert again == SURVEY and again.digest == SURVEY.digest
    assert Survey(Fraction(1, 2), Fraction(100), "s", reports=4).digest != SURVEY.digest


@pytest.mark.parametrize(
    "name,value",
    [
        ("epsilon", Fraction(0)),
        ("epsilon", Fraction(17)),
        ("bound", Fraction(0)),
        ("share", Fraction(1)),
        ("reports", 0),
        ("buckets", 1),
        ("levels", 4097),
        ("levels", 2.5),
        ("period", -1),
    ],
)
def test_surveys_name_what_is_wrong(name: str, value: object) -> None:
    given_ = {"epsilon": Fraction(1), "bound": Fraction(1), "salt": "s", name: value}
    with pytest.raises(ReportError, match=f"{name} = "):
        Survey(**given_)  # type: ignore[arg-type]


ALONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "hushstream_client", {folder!r} + "/__init__.py", submodule_search_locations=[{folder!r}]
)
module = importlib.util.module_from_spec(spec)
sys.modules["hushstream_client"] = module
spec.loader.exec_module(module)
survey = module.Survey.from_json({survey!r})
from fractions import Fraction
with module.ReportStore(":memory:", module.Budget(Fraction(1))) as store:
    print(module.Client(survey, store).report("a", 1, 40, 5).decode())
foreign = {{name.partition(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names)
print(sorted(foreign - {{"__main__", "hushstream_client"}}))
"""


def test_the_client_runs_alone_on_the_standard_library() -> None:
    """Without site-packages: nothing but Python, and certainly no broker's client."""
    script = ALONE.format(folder=str(FOLDER), survey=SURVEY.to_json())
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    payload, foreign = done.stdout.splitlines()
    assert foreign == "[]"
    assert parse(payload.encode(), SURVEY).user == "a"


def test_a_commit_waits_until_it_is_on_disk(tmp_path):
    """EXTRA: the file and its directory entry; a device may lose power after any report."""
    with ReportStore(tmp_path / "reports", Budget(Fraction(1))) as store:
        assert store._db.execute("PRAGMA synchronous").fetchone() == (3,)
