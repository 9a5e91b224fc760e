"""Reports: the numbers, the table beside the paper, and files that are whole or not written."""

from __future__ import annotations

import base64
import csv
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from deu.experiments import registry, report, summaries, tables
from deu.experiments.cells import Cell, Result, ResultError, read_results, write_result
from deu.experiments.chapters import QUICK, ReportError
from deu.experiments.experiment import Experiment, Picture, Table, Text
from deu.experiments.provenance import how
from deu.experiments.tables import PaperRow, paper_table, paper_words

MADE = {
    "versions": {"deu": "0.1", "torch": "2.9"},
    "hardware": {"cpu": "a <fast> CPU", "threads": 2, "gpu": None},
    "date": "2026-01-05T10:00:00+00:00",
    "command": "deu reproduce toy",
}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def made(activation="deu", lr=0.01, values=(0.9,), *, quick=False, name="toy", **more) -> Result:
    cell = Cell(
        name, {"activation": activation, "lr": lr, **more}, tuple(range(len(values))), quick
    )
    return Result(cell, {"accuracy": list(values)}, parameters=21, seconds=40.0, made=MADE)


def sections(results):
    """A report that shows every kind of section."""
    rows = [
        [str(key), summaries.text(summaries.flat(own, "accuracy"), 1, True)]
        for key, own in summaries.group(results, "activation").items()
    ]
    return [
        Text("A word about `x < y` & **more**.\n\n- one\n- two"),
        Table("Accuracy <%>", ["activation", "ours"], rows),
        Picture("curve", 'The "curve"', lambda path: path.write_bytes(PIXEL)),
    ]


@pytest.fixture
def toy(monkeypatch):
    """The registry with one experiment in it, whose report a test may replace."""
    told = {"report": sections}

    def load(name):
        return Experiment(name, "A toy", "", lambda o: [], None, lambda rs: told["report"](rs))

    monkeypatch.setattr(registry, "SPECS", {"toy": "", "second": ""})
    monkeypatch.setattr(registry, "load", load)
    return told


class Page(HTMLParser):
    """The tags of a page; every one that opens has to close."""

    VOID = ("meta", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


# Numbers


def test_mean_and_spread_by_hand():
    mean, spread = summaries.mean_spread([2.0, 4.0, 9.0])
    assert mean == 5.0
    assert spread == pytest.approx(math.sqrt((9 + 1 + 16) / 2))
    assert summaries.mean_spread([2.0, None, 4.0])[0] == 3.0
    assert all(map(math.isnan, summaries.mean_spread([None])))


@pytest.mark.parametrize(
    ("values", "digits", "percent", "expected"),
    [
        ([0.922, 0.923, 0.924, 0.923, 0.923], 1, True, "92.3 ± 0.1 (5)"),
        ([1.0, 2.0, 3.0], 2, False, "2.00 ± 1.00 (3)"),
        ([1.0, None, 3.0, math.nan], 0, False, "2 ± 1 (2; 2 of 4 not finite)"),
        ([math.inf], 1, False, "1 of 1 not finite"),
        ([0.5], 1, True, "50.0 (1)"),
        ([], 1, False, "no runs"),
    ],
)
def test_text_counts_every_run(values, digits, percent, expected):
    assert summaries.text(values, digits, percent) == expected


def test_median_and_share_count_runs_that_were_not_finite_as_the_worst():
    assert summaries.median([0.1, None, 0.3, 0.2]) == pytest.approx(0.25)
    assert summaries.median([0.1, None, 0.3, 0.2], higher=True) == pytest.approx(0.15)
    assert summaries.median([0.1, None, None]) == math.inf
    assert summaries.share_below([0.1, None, 0.3, 0.2], 0.3) == 0.5
    assert math.isnan(summaries.median([]))
    assert math.isnan(summaries.share_below([], 1.0))


def test_groups_by_one_setting_or_more():
    results = [made("deu", 0.1), made("ReLU", 0.1), made("deu", 0.2, widths=[1, 2])]
    assert list(summaries.group(results, "activation")) == ["deu", "ReLU"]
    assert list(summaries.group(results, "activation", "widths")) == [
        ("deu", None),
        ("ReLU", None),
        ("deu", (1, 2)),
    ]
    with pytest.raises(KeyError, match=r"no metric 'loss' .*activation=deu.* it has accuracy"):
        summaries.flat(results, "loss")


def test_best_rate_takes_the_best_mean_and_never_one_that_fails():
    results = [
        made("deu", 0.1, [0.8, 0.9]),
        made("deu", 0.2, [0.7, 0.99]),  # the best seed, not the best mean
        made("deu", 0.3, [1.0, None]),
        made("ReLU", 0.1, [None, None]),
        made("ReLU", 0.2, [None, 0.2]),
    ]
    assert summaries.best_rate(results, "accuracy") == {"deu": 0.1, "ReLU": 0.2}
    assert summaries.best_rate(results, "accuracy", higher=False) == {"deu": 0.2, "ReLU": 0.2}
    best = summaries.best_results(results, "accuracy")
    assert summaries.flat(best["deu"], "accuracy") == [0.8, 0.9]
    split = [made("deu", 0.1, [0.8]), made("deu", 0.1, [0.2]), made("deu", 0.2, [0.6])]
    assert summaries.best_rate(split, "accuracy") == {"deu": 0.2}  # seeds in files of their own
    both = summaries.best_rate([made(model="CNN")], "accuracy", by=("model", "activation"))
    assert both == {("CNN", "deu"): 0.01}


# Beside the paper


def test_paper_table_by_hand():
    rows = [
        PaperRow("much better", "98.1", [0.985, 0.987], percent=True),
        PaperRow("within the spread", "0.500", [0.49, 0.53], digits=3, higher=False),
        PaperRow("within its rounding", 98.1, [98.14], digits=2),
        PaperRow("lower is better", "0.500", [0.6, 0.61], digits=2, higher=False),
        PaperRow("not finite", "1", [2.0, None]),
        PaperRow("new", None, [1.0]),
        PaperRow("left out", "97.4", [], reason="its size cannot be told"),
        PaperRow("no plot", None, [1.0], reason="a figure without numbers"),
    ]
    table = paper_table("T", rows)
    assert table.header == ["", "paper", "ours, mean ± spread (n)", "difference", "verdict"]
    assert table.rows == [
        ["much better", "98.1", "98.6 ± 0.1 (2)", "+0.5", "better"],
        ["within the spread", "0.500", "0.510 ± 0.028 (2)", "+0.010", "equal"],
        ["within its rounding", "98.1", "98.14 (1)", "+0.04", "equal"],
        ["lower is better", "0.500", "0.60 ± 0.01 (2)", "+0.10", "worse"],
        ["not finite", "1", "2.0 (1; 1 of 2 not finite)", "+1.0", "unstable"],
        ["new", "–", "1.0 (1)", "–", "not in the paper"],
        ["left out", "97.4", "–", "–", "its size cannot be told"],
        ["no plot", "–", "1.0 (1)", "–", "a figure without numbers"],
    ]
    assert paper_words(rows).text == (
        "Of 5 numbers of the paper ours is better in 1, equal in 2 and worse in 1. "
        "Ours falls short in: lower is better (0.60 ± 0.01 (2), paper 0.500). "
        "Runs that were not finite, so not judged: not finite (2.0 (1; 1 of 2 not finite)). "
        "In the paper and not here: left out (its size cannot be told)."
    )


def test_a_difference_that_rounds_to_nothing_has_no_sign():
    assert paper_table("T", [PaperRow("x", "1.0", [0.96, 0.99])]).rows[0][3] == "0.0"


def test_quick_runs_are_not_judged():
    rows = [PaperRow("x", "98.1", [50.0]), PaperRow("y", None, [1.0])]
    verdicts = [row[-1] for row in paper_table("T", rows, quick=True).rows]
    assert verdicts == [tables.QUICK, tables.NOT_IN_PAPER]
    assert "quick" in paper_words(rows, quick=True).text


# The report


def test_writes_every_form(toy, tmp_path):
    results = [made("deu", values=[0.9, None]), made("a|b <i>", values=[0.5])]
    paths = report.write(results, tmp_path / "new")
    names = [str(path.relative_to(tmp_path / "new")) for path in paths]
    assert names == ["report.html", "report.md", "report.csv", "pictures/toy-curve.png"]
    assert [path for path in (tmp_path / "new").iterdir() if path.name.startswith(".")] == []
    markdown = (tmp_path / "new" / "report.md").read_text()
    assert "## A toy (toy)" in markdown
    assert "90.0 (1; 1 of 2 not finite)" in markdown
    assert "a\\|b &lt;i>" in markdown
    assert '![The "curve"](pictures/toy-curve.png)' in markdown
    for said in ("cpu a &lt;fast> CPU, threads 2", "deu 0.1, torch 2.9", "deu reproduce toy"):
        assert said in markdown
    for said in ("date: 2026-01-05 10:00:00 UTC", "seeds: 2 (0–1)", "time: 1 min 20 s in 2 cells"):
        assert said in markdown
    assert "QUICK" not in markdown


def test_the_page_needs_nothing_else(toy, tmp_path):
    report.write([made("<script>alert(1)</script>"), made("&amp;")], tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "base")
        assert attributes.get("href", "#").startswith("#")
        assert attributes.get("src", "data:").startswith("data:image/png;base64,") or tag != "img"
    assert not re.search(r"https?://|url\(|@import", text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "&amp;amp;" in text
    (image,) = page.all("img")
    assert image["alt"] == 'The "curve"'
    assert base64.b64decode(image["src"].partition(",")[2]) == PIXEL
    assert (image["width"], image["height"]) == ("1", "1")
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all(
        "meta"
    )
    assert "prefers-color-scheme: dark" in text
    anchors = {attributes["href"][1:] for attributes in page.all("a")}
    assert anchors == {"toy"}
    assert anchors <= {attributes.get("id") for attributes in page.all("section")}
    assert "<code>x &lt; y</code> &amp; <strong>more</strong>." in text
    assert "<ul><li>one</li><li>two</li></ul>" in text


def test_quick_and_full_are_apart_and_quick_is_marked_everywhere(toy, tmp_path):
    results = [made(values=[0.25], quick=True), made(values=[0.75])]
    paths = report.write(results, tmp_path)
    assert [path.name for path in paths[3:]] == ["quick-toy-curve.png", "toy-curve.png"]
    markdown = (tmp_path / "report.md").read_text()
    full, _, quick = markdown.partition("## A toy (toy, QUICK RUN)")
    assert "75.0" in full
    assert "25.0" not in full
    assert "quick" not in full.lower()
    assert "25.0" in quick
    assert "75.0" not in quick
    assert f"> **{QUICK}**" in quick
    assert "**Accuracy &lt;%> (quick run)**" in quick
    assert f'*The "curve" ({QUICK})*' in quick
    html = (tmp_path / "report.html").read_text()
    banner = f'<p class="quick" role="note">{QUICK}</p>'
    assert html.count(banner) == 1
    assert html.index('id="toy-quick"') < html.index(banner)
    assert html.count(f'alt="The &quot;curve&quot; ({QUICK})"') == 1
    with open(tmp_path / "report.csv", newline="", encoding="utf-8") as file:
        assert {(row["quick"], row["value"]) for row in csv.DictReader(file)} == {
            ("True", "0.25"),
            ("False", "0.75"),
        }


def test_csv_has_every_number(toy, tmp_path):
    results = [
        made(values=[0.9, None], seed="odd", widths=[1, 2]),
        made(values=[0.5], note='with, "marks"'),
        Result(Cell("second", {}), {}),
        Result(Cell("second", {}, (0,)), {"fold": [1.0, 2.0]}),
    ]
    toy["report"] = lambda results: []
    report.write(results, tmp_path)
    with open(tmp_path / "report.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("experiment", "quick", "activation", "lr", "setting seed", "widths", "note"),
        *("seed", "metric", "value", "parameters", "seconds", "date", "hardware"),
    ]
    assert [(row["experiment"], row["seed"], row["value"]) for row in rows] == [
        ("toy", "0", "0.9"),
        ("toy", "1", "nan"),
        ("toy", "0", "0.5"),
        ("second", "", ""),
        ("second", "", "1.0"),
        ("second", "", "2.0"),
    ]
    assert (rows[0]["setting seed"], rows[0]["widths"]) == ("odd", "[1, 2]")
    assert rows[2]["note"] == 'with, "marks"'
    assert rows[0]["hardware"] == "cpu a <fast> CPU, threads 2"
    assert rows[3]["hardware"] == "not recorded"


def test_unknown_experiments_are_named(toy, tmp_path):
    report.write([made(name="<old>"), made(name="<old>", lr=0.1), made()], tmp_path)
    assert "- &lt;old>: 2" in (tmp_path / "report.md").read_text()
    html = (tmp_path / "report.html").read_text()
    assert "<li><code>&lt;old&gt;</code>: 2</li>" in html
    assert 'href="#unknown-experiments"' in html
    assert "<old>," in (tmp_path / "report.csv").read_text()


def test_how_it_was_made_tells_what_differs():
    bare = Result(Cell("toy", {"lr": 0.1}, (7, 3, 4)), {})
    said = dict(how([made(), bare, made(lr=0.2)]))
    assert said["hardware"] == "cpu a <fast> CPU, threads 2 (2 cells); not recorded (1 cell)"
    assert said["seeds"] == "4 (0, 3–4, 7)"
    assert said["settings"] == "activation deu; lr 0.01, 0.1, 0.2"
    assert dict(how([bare]))["date"] == "not recorded"


def test_what_was_not_run_is_counted(toy, tmp_path, monkeypatch):
    found = [made(activation, 0.1) for activation in ("deu", "ReLU", "GELU")]
    all_cells = [result.cell for result in found]
    load = registry.load
    monkeypatch.setattr(
        registry, "load", lambda name: replace(load(name), cells=lambda options: all_cells)
    )
    assert "not run: 2 of the 3 cells of deu reproduce toy" in report_of(found[:1], tmp_path)
    assert "not run" not in report_of(found, tmp_path)


def report_of(results, folder):
    report.write(results, folder)
    return (folder / "report.md").read_text()


def test_pictures_of_one_name_do_not_overwrite_each_other(toy, tmp_path):
    toy["report"] = lambda results: [sections(results)[2]] * 2
    names = [path.name for path in report.write([made()], tmp_path)[3:]]
    assert names == ["toy-curve-2.png", "toy-curve.png"]


def _fail(path):
    path.write_bytes(PIXEL[:4])
    raise ValueError("no such curve")


def _full(path):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (Picture("bad", "", _fail), ReportError, "the picture 'bad' of toy failed: ValueError: no"),
        (Picture("bad", "", lambda path: None), ReportError, "'bad' of toy is not there: its draw"),
        (Picture("bad", "", _full), OSError, "No space left"),
        (Table("T", ["a", "b"], [["1"]]), ReportError, r"'T' of toy has 2 columns and a row of 1"),
    ],
)
def test_a_report_that_fails_leaves_the_old_one(toy, tmp_path, broken, error, message):
    report.write([made(values=[0.25])], tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    toy["report"] = lambda results: [*sections(results), broken]
    with pytest.raises(error, match=message):
        report.write([made(values=[0.75])], tmp_path)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_no_results_are_an_error(tmp_path):
    with pytest.raises(ReportError, match="no results to report; deu reproduce NAME"):
        report.write([], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_damaged_result_is_named_and_a_whole_one_comes_back(toy, tmp_path):
    path = write_result(tmp_path, made(values=[0.5, None]))
    (again,) = read_results(tmp_path)
    assert again.cell == made(values=[0.5, None]).cell
    assert summaries.text(again["accuracy"]) == "0.5 (1; 1 of 2 not finite)"
    report.write([again], tmp_path)
    assert len(read_results(tmp_path)) == 1  # a report in their folder is not taken for results
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ResultError, match=rf"{re.escape(str(path))} is not a whole result.*delete"):
        read_results(tmp_path)


def test_drawing_helpers_draw(toy, tmp_path):
    pytest.importorskip("matplotlib")
    from deu.experiments import drawing

    def draw(path):
        figure = drawing.figure(4, 2)
        (axis,) = drawing.axes(figure).flat
        runs = [[1.0, 2.0, 3.0], [2.0, None, None]]
        drawing.band(axis, [0, 1, 2], runs, "deu", **drawing.style("deu"))
        assert [line.get_label() for line in axis.lines] == ["deu (1 of 2 not finite)"]
        assert list(axis.lines[0].get_ydata()) == [1.5, 2.0, 3.0]
        drawing.legend(axis)
        drawing.save(figure, path)

    toy["report"] = lambda results: [Picture("band", "A band", draw)]
    report.write([made()], tmp_path)
    (image,) = Page((tmp_path / "report.html").read_text()).all("img")
    assert (image["width"], image["height"]) == ("440", "220")
    assert drawing.style("deu other")["color"] == drawing.RED
