"""Joins with public tables: columns of the key; joins of inputs stay refused."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import read_query
from hushstream.topics.sql.refusal import QueryError

SOURCES = [QuerySource("trips", "trips", ("user",), "t"), QuerySource("b", "b", ("user",), "t")]
LEFT = "FROM trips AS r LEFT JOIN 'zones.csv' AS z ON r.at.zone = z.id"
LOOKUP = {
    "field": "at.zone", "lookup": "zones.csv", "match": "id", "take": "borough",
    "otherwise": "unmatched",
}  # fmt: skip


@pytest.mark.parametrize(
    "joined",
    [
        LEFT,
        LEFT.replace("LEFT ", "LEFT OUTER "),
        LEFT.replace("r.at.zone = z.id", "z.id = at.zone"),
        LEFT.replace("'zones.csv'", "read_csv('zones.csv')"),
        LEFT.replace("'zones.csv'", "`zones.csv`"),
    ],
)
def test_a_column_of_a_public_table_is_looked_up_by_a_field_of_the_record(joined):
    read = read_query(f"SELECT z.borough, COUNT(*) {joined} GROUP BY z.borough", SOURCES)
    assert read.settings == {
        "input": "trips", "key": ["borough"], "derive": {"borough": LOOKUP},
        "aggregate": [{"kind": "count"}],
    }  # fmt: skip
    (note,) = read.notes
    assert "counts under 'unmatched'; COALESCE(z.borough, 'other')" in note


ROW = {"field": "at.zone", "lookup": "zones.csv", "match": "id", "take": "borough"}
QUEENS = {**ROW, "equals": "Queens"}
THERE = {"field": "at.zone", "lookup": "zones.csv", "match": "id", "take": "id", "present": True}


@pytest.mark.parametrize("how", ["", "INNER "])
def test_an_inner_join_leaves_out_records_without_a_row(how: str):
    joined = LEFT.replace("LEFT ", how)
    read = read_query(f"SELECT z.borough, COUNT(*) {joined} GROUP BY z.borough", SOURCES)
    assert read.settings["where"] == [THERE]
    assert read.settings["derive"] == {"borough": LOOKUP}
    (note,) = read.notes
    assert "a record whose row has no value in zones.csv counts under 'unmatched'" in note


@pytest.mark.parametrize(
    ("condition", "where"),
    [
        ("fare > 2", [THERE, {"field": "fare", "above": 2}]),
        ("z.borough = 'Queens'", [QUEENS]),
        ("z.borough = 'Queens' OR fare > 2",
         [THERE, {"any": [QUEENS, {"field": "fare", "above": 2}]}]),
        ("z.borough IS NULL", [THERE, {**ROW, "present": False}]),
    ],
)  # fmt: skip
def test_a_condition_may_say_already_that_there_is_a_row(condition: str, where: Any):
    joined = LEFT.replace("LEFT ", "")
    read = read_query(f"SELECT page, SUM(CLIP(fare, 0, 9)) {joined} WHERE {condition} "
                      "GROUP BY page", SOURCES)  # fmt: skip
    assert read.settings["where"] == where


def test_a_column_without_the_name_of_a_table_is_told_to_be_the_records():
    read = read_query(f"SELECT borough, COUNT(*) {LEFT} GROUP BY borough", SOURCES)
    assert read.settings["key"] == ["borough"] and "derive" not in read.settings
    assert "z: no column of it is named; a name without z and a dot" in read.notes[0]


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT b, COUNT(*) FROM (SELECT z.borough AS b {LEFT} WHERE r.fare > 3) GROUP BY b",
        f"WITH q AS (SELECT z.borough AS place, fare {LEFT}), s AS (SELECT place AS b FROM q "
        "WHERE fare > 3) SELECT b, COUNT(*) FROM s GROUP BY b",
        "WITH q AS (SELECT r.at.zone AS id FROM trips AS r WHERE fare > 3) "
        "SELECT z.borough AS b, COUNT(*) FROM q LEFT JOIN 'zones.csv' z USING (id) GROUP BY b",
        "WITH q AS (SELECT * FROM trips WHERE fare > 3) SELECT z.borough AS b, COUNT(*) FROM q "
        "LEFT JOIN 'zones.csv' AS z ON q.at.zone = z.id GROUP BY z.borough",
        "SELECT q.b, COUNT(*) FROM (SELECT r.*, z.borough AS b FROM trips AS r LEFT JOIN "
        "'zones.csv' AS z ON r.at.zone = z.id) AS q WHERE q.fare > 3 GROUP BY q.b",
    ],
)
def test_a_query_within_may_join_and_so_may_the_one_around_it(query: str):
    settings = read_query(query, SOURCES).settings
    assert settings["derive"] == {"b": LOOKUP} and settings["key"] == ["b"]
    assert settings["where"] == [{"field": "fare", "above": 3}]


def test_an_inner_join_of_a_query_within_leaves_records_out():
    joined = LEFT.replace("LEFT ", "")
    query = f"SELECT page, COUNT(*) FROM (SELECT page {joined}) GROUP BY page"
    assert read_query(query, SOURCES).settings["where"] == [THERE]
    query = f"""SELECT page, COUNT(*) FROM (SELECT page, zip {joined}) AS q
    JOIN 'zips.csv' AS y ON q.zip = y.zip GROUP BY page"""
    zips = {"field": "zip", "lookup": "zips.csv", "take": "zip", "present": True}
    assert read_query(query, SOURCES).settings["where"] == [THERE, zips]


def test_a_query_names_the_key_of_records_without_a_row():
    query = f"SELECT COALESCE(z.borough, 'other') AS place, HOUR(t), COUNT(*) {LEFT} GROUP BY 1, 2"
    read = read_query(query, SOURCES)
    assert read.settings["key"] == ["place", "hour"]
    assert read.settings["derive"]["place"] == LOOKUP | {"otherwise": "other"}
    assert read.notes == ()


def test_a_column_of_the_same_name_needs_no_match():
    read = read_query("SELECT z.b FROM trips JOIN 'zones.csv' z USING (id) GROUP BY 1", SOURCES)
    assert read.settings["derive"]["b"] == {
        "field": "id", "lookup": "zones.csv", "take": "b", "otherwise": "unmatched"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT z.b FROM trips JOIN zones z ON zone = z.id GROUP BY 1",
            "A public table is a file",
        ),
        ("SELECT z.b FROM trips JOIN b ON b.user = trips.user GROUP BY 1", "JOIN of two inputs"),
        ("SELECT z.b FROM trips JOIN 'z.csv' ON zone = id GROUP BY 1", "the table needs a name"),
        ("SELECT z.b FROM trips JOIN 'z.csv' z ON zone > z.id GROUP BY 1", "compare one field"),
        ("SELECT z.b FROM trips JOIN 'z.csv' z ON z.a = z.id GROUP BY 1", "compare one field"),
        ("SELECT z.b FROM trips JOIN 'z.csv' z ON zone = 1 GROUP BY 1", "compare one field"),
        ("SELECT z.b FROM trips RIGHT JOIN 'z.csv' z ON zone = z.id GROUP BY 1", "or none"),
        ("SELECT z.b FROM trips CROSS JOIN 'z.csv' z GROUP BY 1", "or none"),
        ("SELECT z.b FROM trips NATURAL JOIN 'z.csv' z GROUP BY 1", "or none"),
        ("SELECT z.b FROM trips LEFT ANTI JOIN 'z.csv' z ON zone = z.id GROUP BY 1", "or none"),
        ("SELECT z.b FROM trips ASOF JOIN 'z.csv' z ON zone = z.id GROUP BY 1", "or none"),
        (
            "SELECT z.b FROM trips LEFT JOIN 'z.csv' AS z TABLESAMPLE (9 PERCENT) ON zone = z.id "
            "GROUP BY 1",
            "is read whole, and once",
        ),
        (f"SELECT y.b {LEFT} LEFT JOIN 'b.csv' y ON z.a = y.id GROUP BY 1", "compare one field"),
        (f"SELECT b FROM (SELECT * {LEFT}) GROUP BY b", "*: name the columns of a joined table"),
        (f"SELECT b FROM (SELECT z.* {LEFT}) GROUP BY b", "z.*: name the columns of a joined"),
        (f"SELECT z.b FROM (SELECT r.* {LEFT}) GROUP BY z.b", "and no such column"),
        (f"SELECT z.b FROM (SELECT page {LEFT}) GROUP BY z.b", "and no such column"),
        (
            "SELECT zone, SUM(n) FROM (SELECT zone, page, COUNT(*) AS n FROM trips GROUP BY 1, 2) "
            "q JOIN 'z.csv' z ON q.zone = z.id GROUP BY zone",
            "joins released rows: write it in the query within, which counts",
        ),
        (f"SELECT z.b, SUM(CLIP(z.a, 0, 1)) {LEFT} GROUP BY 1", "CASE WHEN z.a = ... THEN 1"),
        (f"SELECT page, COUNT(DISTINCT z.a) {LEFT} GROUP BY 1", "CASE WHEN z.a = ... THEN 1"),
        (f"SELECT page, MEDIAN(CLIP(z.a, 0, 9)) {LEFT} GROUP BY 1", "CASE WHEN z.a = ... THEN 1"),
        (
            f"SELECT page, SUM(CASE WHEN n > 1 THEN CLIP(z.a, 0, 9) ELSE 0 END) {LEFT} GROUP BY 1",
            "CASE WHEN z.a = ... THEN 1",
        ),
        (f"SELECT z.b > fare, COUNT(*) {LEFT} GROUP BY 1", "two fields are not compared"),
        (f"SELECT page, COUNT(*) {LEFT} WHERE r.z.b = 1 GROUP BY 1", "a table are named z"),
        (f"SELECT zone, z.b, COUNT(*) {LEFT} GROUP BY zone", "add it to GROUP BY"),
        (f"SELECT z.b {LEFT} JOIN 'b.csv' z ON zone = z.id GROUP BY 1", "is named z already"),
        (f"SELECT COALESCE(z.b, fare) {LEFT} GROUP BY 1", "must be a text, a whole number"),
        (f"SELECT CONCAT(z.b, 'x') {LEFT} GROUP BY 1", "no column of a key is made by this"),
    ],
)
def test_other_joins_are_refused_with_what_to_do(query, message):
    with pytest.raises(QueryError) as caught:
        read_query(query, SOURCES)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("column", "settings"),
    [
        ("CASE WHEN z.borough = 'Queens' AND fare > 3 THEN 'a' ELSE 'b' END AS c",
         {"cases": [{"where": [QUEENS, {"field": "fare", "above": 3}], "then": "a"}],
          "otherwise": "b"}),
        ("IF(z.borough = 'Queens', 1, 0) AS c",
         {"cases": [{"where": [QUEENS], "then": 1}], "otherwise": 0}),
        ("CASE z.borough WHEN 'Queens' THEN 1 WHEN 'Bronx' THEN 2 ELSE 0 END AS c",
         {"cases": [{"where": [QUEENS], "then": 1},
                    {"where": [{**ROW, "equals": "Bronx"}], "then": 2}], "otherwise": 0}),
        ("z.borough = 'Queens' AS c",
         {"cases": [{"where": [QUEENS], "then": True}], "otherwise": False}),
        ("LOWER(z.borough) AS c", {**LOOKUP, "text": [{"case": "lower"}]}),
        ("COALESCE(LEFT(z.borough, 2), '-') AS c",
         {**LOOKUP, "otherwise": "-", "text": [{"start": 1, "length": 2}]}),
        ("FLOOR(z.area / 10) * 10 AS c", {**LOOKUP, "take": "area", "bucket": 10}),
        ("ROUND(z.area, 1) AS c", {**LOOKUP, "take": "area", "round": 1}),
    ],
)  # fmt: skip
def test_what_is_computed_from_a_looked_up_column_is_one_of_the_key(column: str, settings: Any):
    read = read_query(f"SELECT {column}, COUNT(*) {LEFT} GROUP BY c", SOURCES)
    assert read.settings["derive"] == {"c": settings} and read.over is None
    assert ("public_keys" in read.settings) == ("cases" in settings)


@pytest.mark.parametrize(
    ("condition", "where"),
    [
        ("z.borough = 'Queens'", [QUEENS]),
        ("fare > 2 AND LOWER(z.borough) LIKE 'q%'",
         [{"field": "fare", "above": 2}, {**ROW, "text": [{"case": "lower"}], "like": "q%"}]),
        ("z.borough IS NULL OR z.borough <> 'Queens'",
         [{"any": [{**ROW, "present": False}, {**ROW, "none_of": ["Queens"]}]}]),
        ("z.area BETWEEN 1 AND 2", [{**ROW, "take": "area", "at_least": 1, "at_most": 2}]),
        ("COALESCE(z.borough, 'Queens') = 'Queens'",
         [{"any": [{**ROW, "present": False}, QUEENS]}]),
    ],
)  # fmt: skip
def test_a_looked_up_column_decides_which_records_count(condition: str, where: Any):
    query = f"SELECT page, COUNT(*) {LEFT} WHERE {condition} GROUP BY page"
    read = read_query(query, SOURCES)
    assert read.settings["where"] == where and read.settings["key"] == ["page"]
    assert read.over is None and read.notes == ()


def test_an_aggregate_may_have_a_condition_on_a_looked_up_column():
    query = f"""SELECT page, COUNT(*) FILTER (WHERE z.borough = 'Queens') AS n,
    SUM(CASE WHEN z.borough = 'Queens' THEN CLIP(fare, 0, 9) ELSE 0 END) AS s, COUNT(z.borough)
    {LEFT} GROUP BY page"""
    made = read_query(query, SOURCES).settings["aggregate"]
    assert [one["where"] for one in made] == [[QUEENS], [QUEENS], [{**ROW, "present": True}]]


def test_attributes_and_rows_stand_side_by_side():
    query = f"""SELECT page, COUNT(*) AS n {LEFT} LEFT JOIN users u ON user = u.id
    WHERE u.country = 'DE' AND z.borough = 'Queens' GROUP BY page"""
    read = read_query(query, WITH)
    assert read.settings["where"] == [QUEENS] and read.settings["key"] == ["page", "country"]
    assert read.over == {"where": [{"field": "country", "equals": "DE"}]}


USERS = QuerySource("users", "crm.users", ("id",), None, "trips")
WITH = [*SOURCES, USERS]


@pytest.mark.parametrize(
    "joined",
    [
        "FROM trips AS r LEFT JOIN users AS u ON r.user = u.id",
        "FROM trips AS r LEFT JOIN users AS u ON u.id = r.user",
        "FROM trips LEFT JOIN users u ON trips.user = u.id",
    ],
)
def test_an_attribute_is_joined_by_the_unit(joined: str):
    read = read_query(f"SELECT u.country, COUNT(*) {joined} GROUP BY u.country", WITH)
    assert read.settings["key"] == ["country"]
    assert read.settings["derive"] == {
        "country": {"attribute": "country", "otherwise": "unmatched"}
    }
    (note,) = read.notes
    assert "a record whose unit states none in crm.users counts under 'unmatched'" in note


def test_an_attribute_may_be_a_part_of_a_value_and_have_a_value_without():
    query = """SELECT COALESCE(users.home.country, 'none') AS land, COUNT(*) FROM trips
    LEFT JOIN users ON user = users.id GROUP BY 1"""
    assert read_query(query, WITH).settings["derive"] == {
        "land": {"attribute": "home.country", "otherwise": "none"}
    }


@pytest.mark.parametrize(
    ("column", "cases", "otherwise"),
    [
        ("CASE WHEN u.country = 'DE' THEN 'home' ELSE 'abroad' END",
         [{"where": [{"field": "country", "equals": "DE"}], "then": "home"}], "abroad"),
        ("CASE u.home.country WHEN 'DE' THEN 1 WHEN 'FR' THEN 2 ELSE 0 END",
         [{"where": [{"field": "home.country", "equals": "DE"}], "then": 1},
          {"where": [{"field": "home.country", "equals": "FR"}], "then": 2}], 0),
        ("(u.age >= 18 AND u.country IS NOT NULL)",
         [{"where": [{"field": "age", "at_least": 18}, {"field": "country", "present": True}],
           "then": True}], False),
    ],
)  # fmt: skip
def test_a_case_of_attributes_is_a_column_of_the_key(column: str, cases: Any, otherwise: Any):
    joined = "FROM trips LEFT JOIN users AS u ON user = u.id WHERE u = 'x'"
    read = read_query(f"SELECT {column} AS kind, COUNT(*) {joined} GROUP BY {column}", WITH)
    assert read.settings == {
        "input": "trips", "key": ["kind"], "where": [{"field": "u", "equals": "x"}],
        "derive": {"kind": {"of_unit": True, "cases": cases, "otherwise": otherwise}},
        "aggregate": [{"kind": "count"}], "public_keys": "natural",
    }  # fmt: skip
    told = "u.age >= 18 AND u.country IS NOT NULL: where it is neither true nor false, the column "
    assert read.notes == ((f"{told}is false",) if otherwise is False else ())


def test_attributes_have_types_of_their_own():
    query = """SELECT CASE WHEN u.page = 3 THEN 1 ELSE 0 END AS c, page, COUNT(*)
    FROM trips LEFT JOIN users u ON user = u.id WHERE page = 'a' GROUP BY c, page"""
    assert read_query(query, WITH).settings["key"] == ["c", "page"]


def test_units_of_one_name_are_joined_by_it():
    users = USERS._replace(unit=("user",))
    query = "SELECT u.country FROM trips LEFT JOIN users u USING (user) GROUP BY 1"
    settings = read_query(query, [*SOURCES, users]).settings
    assert settings["derive"]["country"]["attribute"] == "country"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT u.a FROM trips LEFT JOIN users u ON driver = u.id GROUP BY 1",
         r"write ON trips\.user = u\.id\. By another field"),
        ("SELECT u.a FROM trips LEFT JOIN users u ON user = u.friend GROUP BY 1", "another unit"),
        ("SELECT u.a FROM trips LEFT JOIN users u USING (id) GROUP BY 1", "another unit"),
        ("SELECT u.a FROM trips JOIN users u ON user = u.id GROUP BY 1",
         "and here every record counts, theirs under 'unmatched': write LEFT JOIN"),
        ("SELECT u.a FROM trips CROSS JOIN users u GROUP BY 1", "one row of the table, or none"),
        ("SELECT u.a FROM b LEFT JOIN users u ON user = u.id GROUP BY 1", "JOIN of two inputs"),
        ("SELECT a, COUNT(*) FROM users GROUP BY a", "FROM trips LEFT JOIN users"),
        ("SELECT UPPER(u.a) FROM trips LEFT JOIN users u ON user = u.id GROUP BY 1",
         "GROUP BY u.a, and add up .*; or let crm.users state it"),
        ("SELECT CASE WHEN u.a = 'x' AND fare > 3 THEN 1 ELSE 0 END FROM trips LEFT JOIN users u "
         "ON user = u.id GROUP BY 1", "at the record and at its unit at once: GROUP BY a CASE of"),
        ("SELECT u.a > fare FROM trips LEFT JOIN users u ON user = u.id GROUP BY 1",
         "GROUP BY a CASE"),
        ("SELECT CASE WHEN u.a = 'x' THEN 1 END FROM trips LEFT JOIN users u ON user = u.id "
         "GROUP BY 1",
         "write ELSE 'other'"),
        ("SELECT SUM(CASE WHEN u.a = 'x' THEN 1 ELSE 0 END) FROM trips LEFT JOIN users u "
         "ON user = u.id", "is a column of the key"),
        ("SELECT page, SUM(CLIP(u.a, 0, 1)) FROM trips LEFT JOIN users u ON user = u.id "
         "GROUP BY page",
         "or compare it in WHERE"),
    ],
)  # fmt: skip
def test_attributes_are_joined_by_nothing_else(query: str, message: str):
    with pytest.raises(QueryError, match=message):
        read_query(query, WITH)


PRODUCTS = QuerySource("products", "shop-products", (), None, public=True)


@pytest.mark.parametrize(
    "joined",
    [
        "FROM trips AS r LEFT JOIN products AS p ON r.at.zone = p.id",
        "FROM trips JOIN products p ON p.id = at.zone",
    ],
)
def test_a_lookup_from_a_topic_is_joined_by_its_name(joined: str):
    query = f"""SELECT p.category, COUNT(*) {joined} WHERE p.price > 3 GROUP BY p.category"""
    read = read_query(query, [*WITH, PRODUCTS])
    row = {"field": "at.zone", "lookup": "products", "match": "id"}
    assert read.settings["derive"] == {
        "category": {**row, "take": "category", "otherwise": "unmatched"}
    }
    assert read.settings["where"] == [{**row, "take": "price", "above": 3}]
    assert read.over is None


def test_a_public_table_needs_no_other_name_and_has_no_records():
    query = "SELECT products.category FROM trips JOIN products ON zone = products.id GROUP BY 1"
    assert read_query(query, [*SOURCES, PRODUCTS]).settings["key"] == ["category"]
    with pytest.raises(QueryError, match=r"is a public table.* write FROM trips JOIN products"):
        read_query("SELECT category, COUNT(*) FROM products GROUP BY 1", [*SOURCES, PRODUCTS])
