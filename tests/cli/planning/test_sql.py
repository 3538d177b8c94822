"""`hush sql`, as a person types it."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from click.testing import CliRunner
from hushstream.agents.deployment.compile import compile_config
from hushstream.cli.group import hush
from hushstream.errors import ConfigError
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.topics.config.canonical import config_hash
from hushstream.topics.config.load import load

INPUT = """\
[[input]]
name = "orders"
topic = "shop-orders"
unit = "user"
time = { field = "created", format = "epoch_ms" }
"""
QUERY = (
    "SELECT product, COUNT(*) AS orders, AVG(price) AS mean_price FROM orders "
    "WHERE country = 'DE' GROUP BY product, TUMBLE(created, INTERVAL '1' DAY)"
)
CLIP = ("--clip", "price=0:200:0.01")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "hush.toml"
    file.write_text(INPUT)
    return file


def typed(path: Path, *words: str) -> str:
    result = CliRunner().invoke(hush, ["sql", *words, "-c", str(path)])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout if "--json" in words else result.output


def test_a_query_is_shown_as_settings_with_its_cost_and_changes_nothing(path: Path) -> None:
    told = typed(path, QUERY, *CLIP)
    assert 'where = [{ field = "country", equals = "DE" }]' in told
    assert "ε=1, δ=1e-06 per unit and epoch" in told
    assert "threshold of a key" in told
    assert path.read_text() == INPUT


def test_cautions_reach_programs_too(path: Path) -> None:
    (one,) = json.loads(typed(path, QUERY, *CLIP, "--delta", "0.01", "--json"))["warnings"]
    assert "delta = 0.01 allows a release to expose one unit in 100" in one


def test_both_forms_that_are_written_are_charged_alike(path: Path) -> None:
    typed(path, QUERY, *CLIP, "--name", "p", "--write", "settings")
    one = load(path, environ={})
    path.write_text(INPUT)
    typed(path, QUERY, *CLIP, "--name", "p", "--write", "query")
    other = load(path, environ={})
    assert QUERY in path.read_text()
    assert config_hash(one, one.pipeline[0]) == config_hash(other, other.pipeline[0])


@pytest.mark.parametrize("ends", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("way", ["settings", "query"])
def test_a_file_keeps_its_bytes_and_ends_of_lines_when_a_pipeline_is_appended(
    path: Path, way: str, ends: str
) -> None:
    held = f"\ufeff{INPUT.rstrip()}{ends}".replace("\n", "\r\n").encode()
    path.write_bytes(held)
    link = path.with_name("link.toml")
    link.symlink_to(path)
    typed(link, QUERY, *CLIP, "--name", "p", "--write", way)
    assert path.read_bytes().startswith(held) and link.is_symlink()
    added = path.read_bytes().removeprefix(held)
    assert added.count(b"\n") == added.count(b"\r\n") > 4
    assert b"}\r\n\r\n" + b"\r\n" * (len(ends) > 1) + b"[[pipeline]]" in path.read_bytes()
    assert [p.name for p in load(path, environ={}).pipeline] == ["p"]


def test_a_file_that_cannot_be_written_whole_is_as_before(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(INPUT) + 50, hard))
    try:
        with pytest.raises(ConfigError, match="cannot be written, it is as before: "):
            typed(path, QUERY, *CLIP, "--write", "settings")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == INPUT


def test_bounds_of_a_field_are_given_once(path: Path) -> None:
    done = CliRunner().invoke(hush, ["sql", QUERY, *CLIP, "--clip", "price=0:9", "-c", str(path)])
    assert done.exit_code == 2 and "--clip price: is given twice" in done.output


def test_a_view_that_is_refused_is_the_querys_and_no_line_of_the_file(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^the query's view: limit: 999999 must lie between"):
        typed(path, f"{QUERY} LIMIT 999999", *CLIP)


def test_a_query_in_another_encoding_is_refused(path: Path) -> None:
    query = b"SELECT gr\xf6sse, COUNT(*) FROM orders GROUP BY 1".decode(errors="surrogateescape")
    done = CliRunner().invoke(hush, ["sql", query, "-c", str(path)])
    assert done.exit_code == 2 and "QUERY: is not in UTF-8" in done.output


def test_sessions_are_written_both_ways(path: Path) -> None:
    session = "SESSION(created, INTERVAL '30' MINUTE), TUMBLE(created, INTERVAL '1' DAY)"
    query = f"SELECT product, COUNT(*) FROM orders GROUP BY user, product, {session}"
    assert 'session = "30m"' in typed(path, query, "--name", "p", "--write", "settings")
    one = load(path, environ={})
    path.write_text(INPUT)
    typed(path, query, "--name", "p", "--write", "query")
    other = load(path, environ={})
    assert one.pipeline[0].session == 1_800_000_000
    assert config_hash(one, one.pipeline[0]) == config_hash(other, other.pipeline[0])


def test_windows_that_hop_end_with_each_hop_both_ways(path: Path) -> None:
    hop = "HOP(created, INTERVAL '1' HOUR, INTERVAL '6' HOUR)"
    made = []
    for way in ("settings", "query"):
        path.write_text(INPUT)
        query = f"SELECT product, COUNT(*) FROM orders GROUP BY product, {hop}"
        told = typed(path, query, "--name", "p", "--write", way)
        assert "worst window of an" in told and "last trigger" not in told
        assert ("triggers" in path.read_text()) == (way == "settings")
        made.append(load(path, environ={}))
    one, other = (config_hash(config, config.pipeline[0]) for config in made)
    assert one == other


def test_quantiles_are_written_as_their_mechanism_both_ways(path: Path) -> None:
    query = "SELECT product, MEDIAN(price), COUNT(*) FROM orders GROUP BY product"
    made = []
    for way in ("settings", "query"):
        path.write_text(INPUT)
        told = typed(path, query, *CLIP, "--window", "1d", "--name", "p", "--write", way)
        assert "noise of a rank" in told and 'inputs = { value = "price" }' in told
        made.append(load(path, environ={}))
    (one,), (other,) = (compile_config(config).pipelines for config in made)
    assert one.kind == "quantile" and one.config == other.config


def test_a_view_is_a_pipeline_of_its_name_that_is_written(path: Path) -> None:
    told = typed(path, f"CREATE MATERIALIZED VIEW daily_orders AS {QUERY};", *CLIP)
    assert 'name = "daily-orders"' in told
    assert f"next: `hush topics -c {path}`, then start the workers again" in told
    assert [p.name for p in load(path, environ={}).pipeline] == ["daily-orders"]


def test_the_budget_and_the_bound_of_a_query_of_bigquery_are_the_pipelines(path: Path) -> None:
    query = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=2, delta=1e-7, privacy_unit_column=user, "
        "max_groups_contributed=3) product, COUNT(*, contribution_bounds_per_group => (0, 2)) "
        "FROM orders GROUP BY product"
    )
    typed(path, query, "--window", "1d", "--name", "p", "--write", "query")
    (pipeline,) = load(path, environ={}).pipeline
    assert (pipeline.budget.epsilon, float(pipeline.budget.delta)) == (2, 1e-7)
    bound = pipeline.mechanism.parameters
    assert (bound.bound, bound.per_key, bound.budget) == ("per-key", 2, 6)
    (built,) = compile_config(load(path, environ={})).pipelines
    assert isinstance(built.mechanism, Histogram)
    assert built.mechanism.bound.sensitivity2() == 3 * 2**2  # √3 groups times 2 records, squared
    words = ["sql", query, "--epsilon", "1", "--window", "1d", "-c", str(path)]
    said = CliRunner().invoke(hush, words)
    assert "the query says epsilon = 2 already" in said.output


def test_a_second_pipeline_gets_a_name_of_its_own(path: Path) -> None:
    for _ in range(3):
        typed(path, QUERY, *CLIP, "--write", "query")
    assert [p.name for p in load(path, environ={}).pipeline] == [
        "by-product", "by-product-2", "by-product-3",
    ]  # fmt: skip


def test_as_json(path: Path) -> None:
    body = json.loads(typed(path, QUERY, *CLIP, "--json", "--every", "6h", "--epsilon", "2"))
    assert body["pipeline"]["triggers"] == {"every": "6h"}
    assert (body["plan"]["triggers"], body["plan"]["epsilon"]) == (4, 2.0)


@pytest.mark.thorough
def test_a_sample_proposes_settings(path: Path, tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl"
    day = 86_400_000
    lines = (
        {"user": n % 400, "created": n * day // 4000, "product": f"p{n % 7}", "country": "DE"}
        for n in range(4000)
    )
    sample.write_text("\n".join(json.dumps(line) for line in lines))
    query = (
        "SELECT product, COUNT(*) FROM orders WHERE country = 'DE' "
        "GROUP BY product, TUMBLE(created, INTERVAL '1' DAY)"
    )
    said = typed(path, query, "--sample", str(sample))
    assert "ways to go" in said and 'mechanism = { kind = "histogram"' in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((QUERY,), "AVG(price): needs bounds"),
        ((QUERY.replace(", TUMBLE(created, INTERVAL '1' DAY)", ""), *CLIP), "--window 1d"),
        ((QUERY, *CLIP, "--every", "7h"), "does not divide window.length"),
        ((QUERY, *CLIP, "--delta", "0"), "cannot hide a key"),
        ((QUERY, *CLIP, "--epsilon", "0"), "budget.epsilon: 0 must be greater than 0"),
    ],
)
def test_mistakes_say_what_to_do(path: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        typed(path, *words)
    assert message in str(caught.value)
    assert path.read_text() == INPUT


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--clip", "price"), "write FIELD=LOW:HIGH"),
        (("--clip", "price=0:x"), "'x' is not a number"),
        (("--epsilon", "nan"), "'nan' is not finite"),
        ((*CLIP, "--window", "2d"), "the query has a window already"),
    ],
)
def test_wrong_options_are_refused(path: Path, words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(hush, ["sql", QUERY, "-c", str(path), *words])
    assert result.exit_code == 2
    assert message in result.output


def test_a_query_may_begin_with_a_comment(path: Path) -> None:
    assert 'key = ["product"]' in typed(path, f"-- of each day\n{QUERY}", *CLIP, "--name", "p")
    assert "mean_price" in typed(path, f"--each day\n{QUERY}", "--clip=price=0:9")


def test_a_mistake_names_no_line_that_the_file_does_not_have(path: Path) -> None:
    query = QUERY.replace("country = 'DE'", "price BETWEEN 10 AND 1")
    with pytest.raises(ConfigError, match=r"^the query's pipeline: where\[0\].at_most: is below"):
        typed(path, query, *CLIP)


def test_a_missing_configuration_names_the_way_to_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`hush init` writes one"):
        typed(tmp_path / "none.toml", QUERY)


def test_a_bound_of_distinct_values_is_the_bound_of_values_in_a_key(path: Path) -> None:
    query = (
        "SELECT product, COUNT(DISTINCT device, contribution_bounds_per_group => (0, 3)) "
        "FROM orders GROUP BY product"
    )
    typed(path, query, "--window", "1d", "--name", "p", "--write", "query")
    bound = load(path, environ={}).pipeline[0].mechanism.parameters
    assert (bound.bound, bound.per_key) == ("per-key", 3)


TOP = (
    "SELECT product, COUNT(*) AS n, SUM(price) / COUNT(*) AS mean FROM orders "
    "GROUP BY product, TUMBLE(created, INTERVAL '1' DAY) "
    "HAVING n_low > 3 ORDER BY mean DESC LIMIT 9"
)


def test_what_is_asked_of_released_rows_is_a_view_that_costs_nothing(path: Path) -> None:
    told = typed(path, f"CREATE MATERIALIZED VIEW top AS {TOP}", *CLIP)
    assert "view top: computed from the releases of top-source, at no cost" in told
    config = load(path, environ={})
    (view,), (pipeline,) = config.view, config.pipeline
    assert (view.name, view.source, pipeline.name) == ("top", "top-source", "top-source")
    assert [one.label for one in view.values] == ["n", "mean"] and view.limit == 9
    compile_config(config)
    before = config_hash(config, pipeline)
    path.write_text(INPUT)
    plain = TOP.partition("HAVING")[0].replace("/ COUNT(*) AS mean", "")
    typed(path, plain, *CLIP, "--name", "top-source", "--write", "settings")
    without = load(path, environ={})
    assert not without.view and config_hash(without, without.pipeline[0]) == before


def test_a_view_as_json_and_in_the_setting_query(path: Path) -> None:
    body = json.loads(typed(path, TOP, *CLIP, "--json"))
    assert body["view"]["source"] == body["pipeline"]["name"] == "by-product"
    words = ["sql", TOP, *CLIP, "--write", "query", "-c", str(path)]
    assert "a view is a table of its own" in CliRunner().invoke(hush, words).output
    assert path.read_text() == INPUT
