"""Text that a person reads in a terminal, a log or a picture never acts there."""

from __future__ import annotations

import ast
import csv
import io
import json
from collections import Counter
from pathlib import Path

import hushstream
import msgspec
import pytest
from hushstream.agents.kafka.set_aside import Letter
from hushstream.agents.worker.lines.screen import Screen, put, say
from hushstream.cli import dead_letters, group, releases, replay
from hushstream.cli.options import emit
from hushstream.errors import ConfigError
from hushstream.offline.compare import ReplayOutcome
from hushstream.reading.live import picture
from hushstream.reading.live.views import Wish, shown, view
from rich.table import Table

from ....cli.bench import typed
from ....reading.live.test_history import released
from ....reading.live.test_views import known
from .test_log_lines import made  # noqa: F401

EVIL = "tea\x1b[2J\x9b1m\x1b]0;owned\x07\n\u202eeurt\u2066\u200b\x7f"
SEEN = r"tea\u001b[2J\u009b1m\u001b]0;owned\u0007\n\u202eeurt\u2066\u200b\u007f"
ROOT = Path(hushstream.__path__[0])
# Output for other programs is exact; everything else goes through `say` and `Screen`.
EXACT = {"cli/releases.py": 2, "cli/topics.py": 5, "cli/planning/sql.py": 1,
         "cli/options.py": 1, "cli/version.py": 1}  # fmt: skip


def acts(text: str) -> set[str]:
    return {one for one in text if one != "\n" and not one.isprintable()}


def test_a_screen_keeps_its_own_colours_and_writes_out_what_is_not_its_own():
    out = io.StringIO()
    screen = Screen(file=out, width=120, force_terminal=True, color_system="standard")
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    screen.print(table, style="red")
    screen.print(EVIL, markup=False, highlight=False)
    text = out.getvalue()
    assert "\x1b[31m" in text and r"\u001b[2J" in text
    assert not {"\x9b", "\x07", "\u202e", "\u2066", "\x7f"} & set(text)
    assert "\x1b[2J" not in text and "\x1b]" not in text


def test_brackets_are_text_and_no_markup():
    """Keys, paths and problems have them: "[/]" alone would be an error, "[red]" would vanish."""
    out, odd = io.StringIO(), "[red] [/] [/red] [link=x]"
    table = Table(odd, title=odd)
    table.add_row(odd)
    screen = Screen(file=out, width=120)
    screen.print(table)
    screen.print(odd)
    assert out.getvalue().count(odd) == 4


def test_reports_show_what_producers_wrote_in_brackets(capsys):
    outcome = ReplayOutcome(problems=["lost: [/]"], left_out=["[red]"])
    replay._show(outcome)
    dead_letters._table([Letter("wrong_type", "[/b]", "raw", 0, 0, 0, None, None, (), 0)])
    out = capsys.readouterr().out
    assert "lost: [/]" in out and "[red]" in out and "[/b]" in out


def test_lines_for_a_person_and_lines_for_a_program(capsys):
    say(f"one\n{EVIL}", err=True)
    put(EVIL)
    emit({"key": EVIL})
    out, err = capsys.readouterr()
    assert err == f"one\n{SEEN.replace(chr(92) + 'n', chr(10))}\n"
    assert out.startswith(EVIL + "\n") and json.loads(out[len(EVIL) + 1 :]) == {"key": EVIL}
    assert acts(out[len(EVIL) + 1 :]) == set()


def evil() -> list[releases.Released]:
    """Recorded releases with a malicious key."""
    first = released("histogram-sums")[0]
    rows = [msgspec.structs.replace(row, key={**row.key, "zone": EVIL}) for row in first.rows[:1]]
    return [releases.Released((*rows,), first.manifests)]


def test_released_keys_do_not_act_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    releases._print("text", evil(), False)
    out = capsys.readouterr().out
    assert SEEN in out and acts(out) == set()
    releases._print("json", evil(), False)
    out = capsys.readouterr().out
    assert json.loads(out)["zone"] == EVIL and acts(out) == set()


def test_csv_is_for_machines_and_exact(capfdbinary):
    releases._print("csv", evil(), False)
    text = capfdbinary.readouterr().out.decode()
    assert next(csv.DictReader(io.StringIO(text, newline="")))["zone"] == EVIL


def test_errors_that_quote_a_name_do_not_act(monkeypatch, capsys):
    error = ConfigError(f"no record has the field {EVIL}")
    monkeypatch.setattr(group.hush, "main", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(SystemExit):
        group.main([])
    assert acts(capsys.readouterr().err) == set()


def test_wrong_usage_does_not_act(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["plan", "--set", EVIL], ["plot", "p", "--out", EVIL], [EVIL]):
        code, _, err = typed(*words)
        assert code == 2 and acts(err) == set(), err


def test_lines_of_the_log_do_not_act(made):  # noqa: F811
    log, out, *_ = made
    log.error("topic %s is gone", EVIL)
    assert acts(out.getvalue()) == set() and r"\u001b[2J" in out.getvalue()


def test_pictures_and_pages_show_keys_as_they_are_written_out(tmp_path, monkeypatch):
    assert shown(json.dumps([EVIL, 4])) == f"{SEEN} / 4"
    pipeline, history = known("histogram-sums")
    told = {"unit": EVIL, "mechanism": pipeline.mechanism, "measured": pipeline.measured}
    asked: list[str] = []
    monkeypatch.setattr(
        picture, "_figure", lambda name, told, view: asked.extend([name, told["unit"]])
    )
    monkeypatch.setattr(picture, "FigureCanvasAgg", lambda figure: None)
    with pytest.raises(AttributeError):  # there is no figure to save
        picture.draw(EVIL, told, view(pipeline, history, Wish()), tmp_path / "p.png")
    assert asked == [SEEN, SEEN]


def test_every_command_prints_through_one_of_the_two():
    found: Counter[str] = Counter()
    packages = ("agents", "cli", "offline", "planning", "reading")
    for path in sorted(path for one in packages for path in (ROOT / one).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name in ("cli/group.py", "agents/worker/lines/screen.py"):
            continue  # one escapes text itself and imports nothing; the other is `Screen`
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("click.echo", "click.secho", "print", "Console"), name
                found[name] += called == "put" and name.startswith("cli/")
    assert {name: n for name, n in found.items() if n} == EXACT


def test_the_command_line_itself_writes_out_all_but_its_own_words():
    tree = ast.parse((ROOT / "cli" / "group.py").read_text("utf-8"))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    assert [ast.unparse(n.func) for n in calls].count("click.echo") == 1  # in `_tell`
    told = [n.args[0] for n in calls if ast.unparse(n.func) == "_tell"]
    assert len(told) == 5
    for one in told:
        assert isinstance(one, ast.Constant) or "visible_lines(" in ast.unparse(one)
