"""Reports that leave a device: always the same bytes, whatever happens to the device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import hushstream.client as client_package
import pytest
from hushstream.client import (
    Client,
    ReportError,
    ReportStore,
    Survey,
    parse,
)
from hushstream.client.survey import RANGE, VALUE
from hypothesis import given, settings
from hypothesis import strategies as st

from .surveyed import BUDGET, RANGED, SURVEY, VALUED, store, user_of

__all__ = ["store"]  # a fixture

FOLDER = Path(str(client_package.__file__)).parent


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
    client.report(user_of(RANGE), 3, 40)  # another user is not affected


def test_every_period_has_reports_of_its_own(store: ReportStore) -> None:
    """A survey may run for ever, and a user's cost in one period stays the same."""
    survey = Survey(Fraction(1, 2), Fraction(100), "s", reports=2, period=7)
    client, user = Client(survey, store), user_of(VALUE, survey)
    for slot in (6, 0, 7, 13):
        client.report(user, slot, 40, 5)
    for slot in (1, 5, 8, 12):
        with pytest.raises(ReportError, match="reports = 2"):
            client.report(user, slot, 40, 5)
    client.report(user, 14, 40, 5)
    assert store.spent(user) == Fraction(5, 2)


# The device's budget


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
    """With fixed randomness, a value out of range gets the answer of the range's end."""
    for place in range(0, 1 << 24, 1 << 20):

        def fixed(n: int, place: int = place) -> int:
            return place % n

        assert SURVEY.perturb_range(far, fixed) == SURVEY.perturb_range(edge, fixed)
        assert SURVEY.perturb_value(far, 32, fixed) == SURVEY.perturb_value(edge, 32, fixed)


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
    """Without site-packages, so without any other library."""
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
