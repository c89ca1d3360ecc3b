"""The page in a real browser: it works, asks for nothing, and obeys no name of a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tapsect
from debugtaps import read_npz
from support import zoo
from support.browser import SHADOWS, Browser, browser, missing
from tapsect.cli import main
from tapsect.finding import Divergence, Finding
from tapsect.report import make, read_result, write_page
from tapsect.traced import Operator, Point, Profile, read_profile

pytest.importorskip("bokeh", reason="needs the extra report: pip install 'tapsect[report]'")
pytest.importorskip("selenium", reason="needs selenium: pip install selenium")
pytestmark = [
    pytest.mark.report,
    pytest.mark.engines,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.filterwarnings("default"),  # selenium's own
]

TENSOR = "<img src=x onerror=window.pwned=1>"
NODE = "</script><script>window.pwned=2</script>\x1b[31m\u202e$$x$$"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A diagnosis of a fault at a node, and in a tensor, of hostile names."""
    built = zoo.chain_cnn()
    for node in built.model.graph.node:
        if node.name == "block5/Conv":
            old, node.name = node.output[0], NODE
            node.output[0] = TENSOR
    for node in built.model.graph.node:
        node.input[:] = [TENSOR if name == old else name for name in node.input]
    del built.model.graph.value_info[:]
    place = tmp_path_factory.mktemp("page")
    model, inputs = built.save(place)
    faults = {"faults": [{"kind": "value", "nodes": [NODE], "error": 0.05}]}
    finding = tapsect.bisect(
        model, inputs=[inputs], engine="planted", engine_options=faults, out=place / "o"
    )
    assert finding.culprit_nodes == (NODE,)
    write_page(place / "o", finding)
    return place / "o"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def page(chromium: Browser, folder: Path) -> Browser:
    chromium.look()
    chromium.complaints()
    chromium.requests()
    chromium.open(folder / "report.html")
    return chromium


def culprit(page: Browser, source: str) -> int:
    column = {"points": "marker", "nodes": "marker"}[source]
    script = SOURCE + f"return held.data.{column}.indexOf('star')"
    return int(page.js(script, source))


SOURCE = """
const held = Bokeh.documents[0].roots().flatMap((plot) => plot.renderers)
  .map((each) => each.data_source).find((each) => each.name === arguments[0]);
"""


def test_it_is_quiet_and_asks_for_nothing(page: Browser, folder: Path) -> None:
    page.point("along", "points", culprit(page, "points"), click=True)
    page.point("graph", "nodes", culprit(page, "nodes"), click=True)
    assert page.complaints() == []
    assert page.requests() == {(folder / "report.html").as_uri()}


def test_hostile_names_stay_text(page: Browser) -> None:
    page.point("along", "points", culprit(page, "points"), click=True)
    assert page.js("return window.pwned") is None
    assert page.js(SHADOWS + "return [document, ...found].map("
                   "(each) => each.querySelectorAll('img[src=x]').length)"
                   ".reduce((a, b) => a + b)") == 0  # fmt: skip
    text = page.js("return document.body.innerText")
    assert TENSOR in text
    assert "</script><script>window.pwned=2</script>\\x1b[31m\\u202e" in text
    assert "\u202e" not in page.js("return document.documentElement.outerHTML")


def test_the_policy_holds_even_if_markup_came_in(page: Browser) -> None:
    page.js("document.body.insertAdjacentHTML('beforeend', arguments[0])", TENSOR)
    page.js("const s = document.createElement('script'); s.textContent = 'window.pwned = 3';"
            "document.body.append(s)")  # fmt: skip
    caught = page.driver.execute_async_script(
        "const done = arguments[0];"
        "fetch('http://page.invalid/').then(() => done('went out'), (e) => done(e.name))"
    )
    assert caught == "TypeError"
    assert page.js("return window.pwned") is None
    assert any("Content Security Policy" in line for line in page.complaints())
    assert not {url for url in page.requests() if url.startswith(("http:", "https:"))}


def test_pointing_tells_the_numbers(page: Browser) -> None:
    page.point("along", "points", culprit(page, "points"))
    page.until(SHADOWS + "return found.some((each) => each.textContent.includes('introduced'))")
    assert "introduced 0.05" in page.shadow_text()
    assert TENSOR in page.shadow_text()


def test_a_choice_in_one_picture_shows_in_the_other_and_in_words(page: Browser) -> None:
    page.point("along", "points", culprit(page, "points"), click=True)
    page.until("return document.getElementById('detail').textContent.includes('introduced 0.05')")
    assert page.js(SOURCE + "return held.selected.indices", "nodes") == [culprit(page, "nodes")]
    first = page.js(SOURCE + "return held.data.number.indexOf(0)", "nodes")
    page.js("const p = Bokeh.documents[0].roots().find((p) => p.name === 'graph');"
            "p.y_range.setv({start: -30, end: 2})")  # fmt: skip
    page.until("return Bokeh.documents[0].is_idle")
    page.point("graph", "nodes", first, click=True)
    page.until("return document.getElementById('detail').textContent.includes('block0/Conv')")
    assert page.js(SOURCE + "return held.data.x[held.selected.indices[0]]", "points") == 0


def test_a_name_is_found_with_the_keyboard_alone(page: Browser) -> None:
    box = page.driver.find_element("id", "search")
    box.send_keys("block9/co")
    assert page.js("return document.querySelector('#found button').textContent") == "block9/Conv"
    box.send_keys("\ue007")  # Enter
    assert "block9/Conv" in page.js("return document.getElementById('detail').textContent")
    y, middle = page.js(
        SOURCE + "const p = Bokeh.documents[0].roots().find((p) => p.name === 'graph');"
        "return [held.data.y[held.selected.indices[0]], (p.y_range.start + p.y_range.end) / 2]",
        "nodes",
    )
    assert y == pytest.approx(middle)
    box.clear()
    box.send_keys("nothing has this")
    assert "no node has this" in page.js("return document.getElementById('found').textContent")


def test_keys_zoom_and_move_the_graph(page: Browser) -> None:
    height = ("const p = Bokeh.documents[0].roots().find((p) => p.name === 'graph');"
              "return [p.y_range.end - p.y_range.start, p.x_range.start]")  # fmt: skip
    graph = page.driver.find_element("id", "graph")
    before = page.js(height)
    graph.send_keys("+")
    assert page.js(height)[0] == pytest.approx(0.8 * before[0])
    graph.send_keys("\ue014")  # right arrow
    assert page.js(height)[1] > before[1]
    graph.send_keys("0")
    assert page.js(height) == pytest.approx(before)


INKS = """
const axis = Bokeh.documents[0].roots()[0].below[0], body = getComputedStyle(document.body);
return [axis.major_label_text_color, body.color, body.backgroundColor];
"""


def luminance(colour: str) -> float:
    numbers = [int(n) for n in re.findall(r"\d+", colour)][:3]
    if colour.startswith("#"):
        numbers = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    parts = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in numbers]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_are_both_read_easily(page: Browser, *, dark: bool) -> None:
    page.look(dark=dark)
    page.until(f"return matchMedia('(prefers-color-scheme: dark)').matches === {str(dark).lower()}")
    page.until("return Bokeh.documents[0].is_idle")
    labels, ink, paper = (luminance(c) for c in page.js(INKS))
    assert (paper < 0.1) is dark
    for text in (labels, ink):
        high, low = max(text, paper), min(text, paper)
        assert (high + 0.05) / (low + 0.05) >= 7


def test_a_narrow_window_scrolls_down_only(page: Browser) -> None:
    page.look(width=400)
    page.until("return innerWidth === 400")
    page.until("return document.documentElement.scrollWidth <= 400")


def test_it_prints(page: Browser) -> None:
    page.look(dark=True)
    printed = page.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert printed["data"].startswith("JVBER")  # %PDF
    assert page.complaints() == []


def test_a_page_without_pictures_works_too(chromium: Browser, tmp_path: Path) -> None:
    finding = Finding("All <b>is</b> well.", "agrees", "0.1.0")
    write_page(tmp_path, finding)
    chromium.complaints()
    chromium.driver.get((tmp_path / "report.html").as_uri())
    assert "All <b>is</b> well." in chromium.js("return document.body.innerText")
    assert "no inner tensor was looked at" in chromium.js("return document.body.innerText")
    assert chromium.complaints() == []


# ------------------------------------------------------------------------------ without a browser


def test_bisect_writes_the_page_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    zoo.chain_cnn().save(tmp_path)
    words = ["bisect", "model.onnx", "--inputs", "inputs.npz", "--out", "o", "--engine", "planted"]
    assert main([*words, "--engine-option", "kind=value", "nodes=block5/Conv", "--html"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "Written to o: report.md, result.json, report.html, case/"
    text = (tmp_path / "o" / "report.html").read_text()
    assert 'id="along"' in text
    assert main(["report", "o", "--format", "html", "-o", "elsewhere.html"]) == 0
    assert len((tmp_path / "elsewhere.html").read_text()) == pytest.approx(len(text), rel=0.01)


def test_a_crash_has_a_graph_and_no_curve(tmp_path: Path) -> None:
    operators = tuple(Operator(f"n{i}", "Relu", i, (i - 1,) if i else ()) for i in range(5))
    Profile(operators=operators).write(tmp_path)
    first = Divergence("t", "n3", "Relu", evidence="predicate")
    finding = Finding("It crashes.", "diverges", "0", failure="crash", first_divergence=first)
    text = make(finding, tmp_path, "html").data.decode()
    assert 'id="graph"' in text
    assert 'id="along"' not in text


def test_a_very_large_model_makes_a_page_below_3_megabytes(tmp_path: Path) -> None:
    name = "/model/decoder/layers.{}/self_attention/query/projection/MatMul/with/a/long/name/{}"
    operators = tuple(
        Operator(name.format(i // 40, i), "MatMul", i, (i - 1,) if i else ()) for i in range(10_000)
    )
    points = tuple(
        Point(o.name + ":0", i, "float32", (1, 8), "ok", 1e-7, 1e-6, 1e-7, 1.0, 64.0, -1, 1)
        for i, o in enumerate(operators)
    )
    worst = replace(points[7000], kind="accuracy", ratio=1e5, introduced=0.1)
    Profile(0, operators, (*points[:7000], worst, *points[7001:])).write(tmp_path)
    first = Divergence(worst.tensor, operators[7000].name, "MatMul")
    finding = Finding("It is.", "diverges", "0", failure="accuracy", first_divergence=first)
    data = make(finding, tmp_path, "html").data
    assert len(data) < 3_000_000
    assert worst.tensor in data.decode()
    assert "tensors with the smallest ratios are left out" in " ".join(data.decode().split())


def test_the_page_under_other_names_holds_none_of_the_first(folder: Path) -> None:
    finding, profile = read_result(folder), read_profile(folder)
    assert profile is not None
    page = make(finding, folder, "html", redact=True).data.decode()
    names = {o.name for o in profile.operators} | {p.tensor for p in profile.points}
    inner = {json.dumps(n)[1:-1] for n in names} | names
    assert {n for n in inner if len(n) > 3 and n in page} == set()
    assert read_npz(folder / "case" / "inputs.npz")
