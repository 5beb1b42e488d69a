"""The page of `ep explain --html` in a real browser: what is drawn, found, said and followed."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest
from headless import COUNTING, Browser
from onnx import TensorProto, helper
from opened_page import (
    BROWSER,
    CHAIN,
    COST,
    SKEWED,
    colours_on,
    drawn,
    find,
    graph,
    middle,
    needs_browser,
    panel,
    spans,
)

from ep_tools.cli import main
from ep_tools.page.colours import colour_of

pytestmark = needs_browser

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"'`${window.hacked = 1}",
    "<!--<script>",
    "\u2028\u202e\u00e9\U0001f600",
    "]]>&lt;&amp;\\u003c",
    "__proto__",
    "n" * 10_000,
]


# ---------------------------------------------------------------- what is drawn


def test_every_node_is_drawn_in_its_providers_colour(page):
    browser = page(CHAIN, *SKEWED)
    assert drawn(browser) == 5
    assert {colour_of(0), colour_of(1), colour_of(2)} <= colours_on(browser)
    legend = browser.evaluate("document.getElementById('legend').innerText").split("\n")
    assert [line for line in legend if ":" in line] == [
        "skewed: 1 node",
        "reference: 3 nodes",
        "core: 1 node",
    ]
    assert browser.evaluate("document.getElementById('summary').textContent").startswith(
        "skewed 1 of 7 nodes"
    )


def test_steps_are_in_order_and_lead_to_their_partitions(page):
    browser = page(CHAIN, *SKEWED)
    labels = browser.evaluate("[...document.querySelectorAll('.step')].map(s => s.title)")
    assert labels == [
        "1: reference_0, 1 node",
        "2: skewed_1, 1 node",
        "3: reference_2, 2 nodes",
        "4: If If_4",
    ]
    browser.click_on(".step:nth-of-type(2)")
    shown = panel(browser)
    assert shown.startswith("skewed_1")
    assert "2 values, 128 B" in shown, "it takes a and x, 64 bytes each"
    assert "1 value, 64 B" in shown
    assert browser.evaluate("document.querySelectorAll('.step[aria-current]').length") == 1


# ---------------------------------------------------------------- nodes


def test_search_finds_a_node_and_says_why_it_is_there(page):
    browser = page(CHAIN, *SKEWED)
    find(browser, "leaky")
    assert browser.evaluate("document.getElementById('count').textContent") == "1 found"
    shown = panel(browser)
    assert shown.startswith("LeakyRelu")
    assert "first that supports it" in shown
    assert "operator LeakyRelu has no kernel" in shown
    assert "float[2, 8], 64 B" in shown
    assert "alpha\n0.25" in shown


def test_a_click_on_a_node_opens_it_and_a_click_beside_it_closes_it(page):
    browser = page(CHAIN, *SKEWED)
    find(browser, "Neg_2")
    browser.press("Escape")
    assert panel(browser).startswith("Click a node")
    x, y = middle(browser)
    browser.click(x, y)
    shown = panel(browser)
    assert shown.startswith("Neg")
    assert "operator Neg has no kernel" in shown
    browser.click(x - 300, y)
    assert panel(browser).startswith("Click a node")


def test_keys_go_from_node_to_node(page):
    browser = page(CHAIN, *SKEWED)
    browser.evaluate("document.getElementById('picture').focus()")
    names = []
    for key in ("n", "n", "n", "p"):
        browser.press(key)
        names.append(panel(browser).split("\n")[0])
    assert names == ["Abs", "Mul", "Neg", "Mul"]


def test_the_whole_page_is_reached_with_the_tab_key(page):
    browser = page(CHAIN, *SKEWED)
    reached = []
    for _ in range(40):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
        reached.append(
            browser.evaluate("document.activeElement.id || document.activeElement.className")
        )
    for part in ("query", "scope", "closer", "fit", "theme", "picture", "tab-selection", "panel"):
        assert part in reached
    assert any(name.startswith("step") for name in reached)


def test_a_node_that_the_first_provider_runs_has_no_refusals(page):
    browser = page(CHAIN, *SKEWED)
    find(browser, "Mul_1")
    shown = panel(browser)
    assert "not on" not in shown
    assert "first in the caller's order" in shown
    assert "reference (cpu 0)" in shown, "the runner-up"


def test_why_not_groups_the_reasons(page):
    browser = page(CHAIN, *SKEWED)
    browser.click_on("#tab-refusals")
    shown = panel(browser)
    assert "operator Abs has no kernel" in shown
    assert "operator Neg has no kernel" in shown


# ---------------------------------------------------------------- copies and bodies


def test_copies_have_bytes_and_ends(page, what_if):
    browser = page(CHAIN, *what_if)
    assert "not here" in browser.evaluate("document.getElementById('legend').innerText")
    assert "isn't opened" in browser.evaluate("document.getElementById('notes').innerText")
    browser.click_on("#tab-copies")
    assert "192 B in each run" in panel(browser)
    browser.click_on("#panel li:nth-of-type(3) button")
    shown = panel(browser)
    assert shown.startswith("c\n")
    assert "npu:what-if/device" in shown
    assert "64 (64 B)" in shown
    assert "LeakyRelu" in shown, "it is read there"


def test_a_partition_of_a_device_lists_its_copies_ends(page, what_if):
    browser = page(CHAIN, *what_if, address="#partition=npu_1")
    shown = panel(browser)
    assert shown.startswith("npu_1")
    assert "npu (absent what-if)" in shown


def test_bodies_are_graphs_of_their_own(page):
    browser = page(CHAIN, *SKEWED)
    options = browser.evaluate("[...document.querySelectorAll('#scope option')].map(o => o.text)")
    assert options == ["main graph (5)", "If_4/then_branch (1)", "If_4/else_branch (1)"]
    find(browser, "If_4")
    browser.press("Enter")
    assert graph(browser) == options[1]
    assert drawn(browser) == 1
    browser.press("Escape")
    assert panel(browser).startswith("If")
    browser.evaluate(
        "(() => { const s = document.getElementById('scope'); s.value = '2';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    browser.settle()
    browser.press("n")
    assert panel(browser).startswith("Neg")


def test_search_goes_into_bodies(page):
    browser = page(CHAIN, *SKEWED)
    find(browser, "Neg")
    assert browser.evaluate("document.getElementById('count').textContent") == "2 found"
    browser.press("/")
    browser.press("ArrowDown")
    browser.press("Enter")
    assert "else_branch" in graph(browser)


def test_an_address_leads_to_a_node(page):
    browser = page(CHAIN, *SKEWED, address="#scope=If_4/else_branch&node=Neg_0&theme=dark")
    assert panel(browser).startswith("Neg")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"


# ---------------------------------------------------------------- the view


def test_zoom_pan_and_fit(page):
    browser = page(CHAIN, *SKEWED)
    x, y = middle(browser)
    for _ in range(8):
        browser.wheel(x, y, -400)
    near = drawn(browser)
    assert near < 5
    browser.drag((x, y), (x, y + 250))
    browser.drag((x, y), (x, y + 250))
    assert drawn(browser) <= 5
    browser.press("0")
    assert drawn(browser) == 5
    for _ in range(12):
        browser.press("+")
    assert drawn(browser) < 5
    browser.click_on("#fit")
    assert drawn(browser) == 5


def test_the_theme_is_the_persons_and_can_be_changed(page, browser):
    for scheme, ground in (("dark", "#14171b"), ("light", "#f4f5f7")):
        browser.prefer(scheme)
        page(CHAIN, *SKEWED)
        assert browser.evaluate("document.documentElement.dataset.theme") == scheme
        assert ground in colours_on(browser)
    browser.click_on("#theme")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"
    assert "#14171b" in colours_on(browser)


def test_it_prints(page):
    browser = page(CHAIN, *SKEWED, address="#node=Neg_2")
    assert browser.call("Page.printToPDF")["data"].startswith("JVBERi0"), "%PDF- in base64"


def test_a_narrow_screen(page, browser):
    metrics = {"height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.call("Emulation.setDeviceMetricsOverride", width=390, **metrics)
    try:
        page(CHAIN, *SKEWED)
        assert drawn(browser) == 5
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    finally:
        metrics = {"height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", width=1280, **metrics)


# ---------------------------------------------------------------- hostile and large models


def saved(nodes, inputs, outputs, path) -> str:
    def value(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64])

    graph = helper.make_graph(nodes, "g", [value(n) for n in inputs], [value(n) for n in outputs])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return str(path)


def test_hostile_names_are_shown_and_do_nothing(page, tmp_path):
    nodes = []
    previous = "<b>x</b>"
    for place, name in enumerate(HOSTILE):
        op_type, inputs = [("Abs", [previous]), ("Mul", [previous, previous])][place % 2]
        nodes.append(helper.make_node(op_type, inputs, [name], name=name))
        previous = name
    path = saved(nodes, ["<b>x</b>"], [previous], tmp_path / "<title><b>&amp;'.onnx")
    browser = page(path, *SKEWED)
    assert drawn(browser) == len(HOSTILE)
    browser.evaluate("document.getElementById('picture').focus()")
    for name in HOSTILE:
        browser.press("n")
        named = browser.evaluate("document.querySelector('#panel .muted').textContent")
        assert named == name
    for tab in ("partitions", "copies", "refusals", "selection"):
        browser.click_on(f"#tab-{tab}")
    find(browser, HOSTILE[1])
    assert browser.evaluate("document.getElementById('count').textContent") == "1 found"
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert browser.evaluate("document.querySelectorAll('script, img, b').length") == 2, "ours"
    assert browser.evaluate("document.title") == "<title><b>&amp;'.onnx - placement"


def large_model(count: int, folder: Path) -> str:
    nodes = []
    for i in range(count):
        inputs = [f"v{i - 1}" if i else "x"]
        inputs += [f"v{max(0, i - 7)}" if i % 3 else "x"] if i % 2 and i > 7 else []
        op_type = "Mul" if len(inputs) == 2 else ("Abs", "Neg")[i % 4 // 2]
        nodes.append(
            helper.make_node(op_type, inputs, [f"v{i}"], name=f"block{i // 50}/{op_type}_{i}")
        )
    return saved(nodes, ["x"], [f"v{count - 1}"], folder / f"big{count}.onnx")


@pytest.fixture
def counting(tmp_path):
    """A browser that counts what runs in its page."""
    made = Browser(BROWSER, tmp_path, flags=COUNTING)
    yield made
    made.close()


def test_the_work_of_a_frame_grows_with_the_nodes_and_no_faster(counting, what_if, tmp_path):
    runs = {}
    for count in (1000, 5000):
        target = tmp_path / "page.html"
        path = large_model(count, tmp_path)
        assert main(["explain", path, *what_if, *COST[:4], "--html", str(target)]) == 0
        counting.open(target)
        whole = counting.runs_during(lambda: counting.press("0"))
        assert (whole["draw"], whole["drawNode"]) == (1, count)
        find(counting, "Mul_501")
        near = counting.runs_during(lambda: counting.press("ArrowUp"))
        assert near["draw"] == 1
        assert 0 < near["drawNode"] < 200
        runs[count] = (whole[""], near[""])
    assert counting.complaints == []
    for small, large in zip(runs[1000], runs[5000], strict=True):
        assert large < 6 * small
    assert max(runs[5000]) < 20 * 5000


def test_5000_nodes_stay_pleasant(page, what_if, traced, tmp_path):
    count = 5000
    path = large_model(count, tmp_path)
    browser = page(path, *traced(path, *what_if, *COST[:4]))
    assert drawn(browser) == count
    find(browser, "Mul_4001")
    assert panel(browser).startswith("Mul")
    assert 0 < drawn(browser) < 200
    # A click on what is in the middle of the view: the node that the search went to.
    browser.click_on("#tab-times")
    browser.click(*middle(browser))
    shown = panel(browser)
    assert shown.startswith("Mul\n\nblock80/Mul_4001")
    assert "why\n" in shown
    assert "float[1, 64], 256 B" in shown
    assert "measured\n2.0 \u00b5s of a run" in shown
    browser.click_on("#mode-measured")
    assert 0 < spans(browser) <= 3 * count
    browser.evaluate("location.hash = 'colour=measured&theme=dark'")
    browser.settle()
    browser.click_on("#fit")
    assert drawn(browser) == count
    assert (tmp_path / "page.html").stat().st_size < 4_000_000


def test_a_model_without_nodes(page):
    browser = page("""
        <ir_version: 9, opset_import: ["" : 20]>
        nothing (float[2] x) => (float[2] x) { }
    """)
    assert drawn(browser) == 0
    browser.press("n")
    browser.click_on("#fit")
