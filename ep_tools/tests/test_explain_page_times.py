"""Times on the page of `ep explain --html`, in a real browser: predicted and measured."""

from __future__ import annotations

import pytest
from opened_page import (
    CHAIN,
    COST,
    SKEWED,
    colours_on,
    find,
    modes,
    needs_browser,
    panel,
    spans,
)

pytestmark = needs_browser


def test_strategy_times_and_what_was_asked_for_are_told(page, what_if):
    browser = page(CHAIN, *what_if, *COST)
    shown = panel(browser)
    assert "placed by\ncost: asked for, and assumed for reference" in shown
    assert "pin\nop:Mul to npu" in shown
    assert "copies\nat most 9 in each graph" in shown
    (predicted,) = (line for line in shown.split("\n") if line.endswith(" a run"))
    assert predicted.endswith("\u00b5s a run")
    assert "by greedy\n" in shown
    find(browser, "Abs_0")
    shown = panel(browser)
    assert "why\nno other can run it" in shown
    assert "predicted\n1.0 \u00b5s" in shown
    find(browser, "Neg_2")
    shown = panel(browser)
    assert "why\n" in shown
    assert "npu (absent what-if)\n+" in shown, "the runner-up, and what it would cost"
    assert "\u00b5s if it alone ran there" in shown
    browser.click_on("#tab-copies")
    assert "100.0 \u00b5s predicted" in panel(browser)
    browser.click_on("#tab-times")
    shown = panel(browser)
    assert "where the predicted time goes" in shown
    assert "starting partitions" in shown
    assert "what takes longest, by prediction" in shown


def test_without_known_costs_there_are_no_times(page):
    browser = page(CHAIN, *SKEWED)
    assert "greedy: neither speed nor costs are known of skewed, reference" in panel(browser)
    assert browser.evaluate("document.getElementById('modes').hidden")
    assert browser.evaluate("document.getElementById('colour-label').hidden")
    browser.click_on("#tab-times")
    assert "no times are predicted" in panel(browser)


def test_predicted_times_along_a_clock(page, what_if):
    browser = page(CHAIN, *what_if, *COST)
    steps, predicted = modes(browser)
    assert steps == "Steps"
    assert predicted.startswith("Predicted ")
    browser.click_on("#mode-predicted")
    lanes = browser.evaluate("document.getElementById('lanes').innerText").split()
    assert lanes == ["npu", "reference", "core", "copies"]
    everything = spans(browser)
    assert everything == 3 + 3 + 4 + 1, "partitions, copies, nodes in them, and the If"
    browser.evaluate("document.getElementById('clock').focus()")
    for _ in range(12):
        browser.press("+")
    assert spans(browser) < everything
    browser.press("0")
    assert spans(browser) == everything
    names = []
    for _ in range(3):
        browser.press("n")
        names.append(panel(browser).split("\n")[0])
    assert names == ["reference_0", "Abs", "a"]
    find(browser, "If_4")
    browser.press("Enter")
    assert "the body once" in browser.evaluate("document.getElementById('modes').innerText")
    assert spans(browser) == 2


def test_a_profile_stands_beside_the_prediction(page, model, what_if, traced):
    browser = page(CHAIN, *traced(model(CHAIN), *what_if, *COST))
    assert "measured\n" in panel(browser)
    assert modes(browser)[2].startswith("Measured ")
    find(browser, "Mul_1")
    assert "measured\n2.0 \u00b5s of a run" in panel(browser)
    browser.click_on("#tab-partitions")
    assert "101.0 \u00b5s" not in panel(browser)
    assert "2.0 \u00b5s measured" in panel(browser), "of the device's nodes, not the handing over"
    browser.click_on("#tab-times")
    shown = panel(browser)
    assert "farthest from what was predicted" in shown
    rows = [line for line in shown.split("\n") if line.endswith(" measured")]
    apart = []
    for line in rows:
        figures = [word for word in line.replace(",", "").split() if word[0].isdigit()]
        apart.append(abs(float(figures[0]) - float(figures[1])))
    assert len(apart) == 3 + 3 + 4
    assert apart == sorted(apart, reverse=True)
    browser.click_on("#mode-measured")
    assert browser.evaluate("document.getElementById('lanes').innerText").split("\n") == [
        "MainThread",
        "npu stream 0",
    ]
    assert spans(browser) == 3 + 3 + 4
    assert "dashed: handing work to a device" in browser.evaluate(
        "document.getElementById('modes').innerText"
    )
    # A click in the middle of the device's row is a click on its only node.
    x, y, width, height = browser.evaluate(
        "(() => { const r = document.getElementById('clock').getBoundingClientRect();"
        " return [r.x, r.y, r.width, r.height]; })()"
    )
    columns = [x + width * part / 200 for part in range(200)]
    for column in columns:
        browser.click(column, y + height - 12)
        if panel(browser).startswith("Mul\n\nMul_1"):
            break
    else:
        pytest.fail("no click in the device's row leads to its node")
    assert browser.evaluate("document.getElementById('clock-room').hidden") is False


def test_nodes_in_the_colours_of_their_times(page, model, what_if, traced):
    browser = page(CHAIN, *traced(model(CHAIN), *what_if, *COST), address="#theme=light")
    before = colours_on(browser)
    for by in ("predicted", "measured"):
        browser.evaluate(
            f"(() => {{ const s = document.getElementById('colour'); s.value = '{by}';"
            " s.dispatchEvent(new Event('change')); })()"
        )
        browser.settle()
        assert "#7f0000" in colours_on(browser) - before, "what takes longest"
        assert f" {by}, each node" in browser.evaluate(
            "document.getElementById('legend').innerText"
        )
    for theme in ("dark", "light"):
        browser.evaluate(f"location.hash = 'theme={theme}&colour=measured&timeline=measured'")
        browser.settle()
        assert browser.evaluate("document.documentElement.dataset.theme") == theme
        assert spans(browser) == 10
