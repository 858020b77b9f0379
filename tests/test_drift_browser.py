"""Is the drift page a page? Read, filtered and sorted in a real browser, at two widths.

Selenium drives whatever Chromium and ChromeDriver the system has; where there are none, these
tests skip.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adapters.answer import Collective, Refused
from reports.drift import pages
from tests import planted as p

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not CHROMIUM or not DRIVER, reason="no chromium and chromedriver on this machine"
)

# No first-run pages, no look-ups of its own: all that is asked for is the page's doing.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
WIDTHS = {"laptop": (1366, 768), "phone": (390, 844)}


class Browser:
    """One Chromium, and what it asked for and complained of since it was last asked."""

    def __init__(self, profile: Path):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        assert CHROMIUM is not None
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))

    def open(self, path: Path, width: str = "laptop", scheme: str = "light") -> None:
        """Load a file at a width, and forget what was asked for before."""
        wide, high = WIDTHS[width]
        size = {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": width == "phone"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        # The new tab of the start is full of the browser's own pages.
        self.driver.get("about:blank")
        self.asked()
        self.driver.get(path.as_uri())

    def asked(self) -> list[str]:
        """The addresses asked for since the last time."""
        messages = [json.loads(row["message"])["message"]
                    for row in self.driver.get_log("performance")]  # fmt: skip
        return [
            one["params"]["request"]["url"]
            for one in messages
            if one["method"] == "Network.requestWillBeSent"
        ]

    def run(self, script: str, *given: object) -> Any:
        """What JavaScript in the page gives."""
        return self.driver.execute_script(script, *given)

    def shown(self) -> list[str]:
        """The ids of the findings that are on show, from the top."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll('#table tbody tr')]"
            ".filter((row) => row.getBoundingClientRect().height).map((row) => row.id)"
        )
        return found

    def pick(self, name: str, value: str) -> None:
        """Choose in the form, as a hand does."""
        self.run(
            "const field = document.getElementById('filter').elements[arguments[0]];"
            "if (field.type === 'checkbox') field.click();"
            "else { field.value = arguments[1];"
            " field.dispatchEvent(new Event('input', {bubbles: true}));"
            " field.dispatchEvent(new Event('change', {bubbles: true})); }",
            name, value,
        )  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install .[browser]")
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with changes of several kinds, in both frameworks."""
    folder = tmp_path_factory.mktemp("page")
    gather = Collective("all-gather", ("x",), 4, 64)
    more = p.seen("y", collectives=lambda own: (*(own or ()), gather))
    refused = p.on(p.MOVE, p.replaced(end=Refused("KeyError", "no <b>x</b>", "y")))
    quiet = p.on(p.PRODUCT, p.seen("y", dtype="float64"))
    facts = (p.FACTS, p.FACTS[1:])
    ids = (*p.IDS, "x4-r-to-s1", "x4-p-to-s1")
    p.planted(folder, lambda answer: quiet(refused(more(answer))), ids=ids, facts=facts)
    p.planted(folder, p.on(p.PRODUCT, p.replaced(program=(gather,) * 3), "jax/jit"),
              framework="jax")  # fmt: skip
    path = folder / "drift.html"
    path.write_text(pages.html(p.stories(folder), p.cases()))
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_quiet(browser: Browser, page: Path, width: str, scheme: str) -> None:
    """It asks for itself alone, and the console has nothing to say."""
    browser.open(page, width, scheme)
    for one in browser.shown():
        browser.run(
            "document.getElementById(arguments[0]).querySelector('details')?.setAttribute('open','')",
            one,
        )
    assert browser.asked() == [page.as_uri()]
    assert browser.driver.get_log("browser") == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["planted", "committed"])
def test_nothing_is_wider_than_the_screen(
    browser: Browser, page: Path, width: str, which: str
) -> None:
    """The page itself never scrolls sideways, and no cell of a finding is cut off."""
    browser.open(page if which == "planted" else pages.HTML, width)
    wide = WIDTHS[width][0]
    assert browser.run("return document.documentElement.scrollWidth") <= wide
    out = browser.run(
        "return [...document.querySelectorAll('#table td, form > *, h2, p')].filter((one) =>"
        " one.getBoundingClientRect().right > innerWidth + 0.5).map((one) => one.textContent)"
    )
    assert out == []


def boxes(browser: Browser) -> dict[str, dict[str, float]]:
    """Where the landmarks of the page are."""
    found: dict[str, dict[str, float]] = browser.run(
        "return Object.fromEntries(['header', 'nav', '#overview', '#findings', '#filter', '#table',"
        " '#imports', '#unseen'].map((name) => { const box ="
        " document.querySelector(name).getBoundingClientRect(); return [name, {left: box.left,"
        " top: box.top + scrollY, width: box.width, height: box.height}]; }))"
    )
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_stands_as_it_was_drawn(
    browser: Browser, page: Path, width: str, tmp_path: Path
) -> None:
    """Landmarks one below the other over the whole width; findings in columns, or as cards."""
    browser.open(page, width)
    assert browser.driver.save_screenshot(str(tmp_path / f"{width}.png"))
    found = boxes(browser)
    order = ["header", "#overview", "#findings", "#imports", "#unseen"]
    assert [*sorted(order, key=lambda name: found[name]["top"])] == order
    for one, other in pairwise(order):
        assert found[one]["top"] + found[one]["height"] <= found[other]["top"] + 0.5
    for name, box in found.items():
        assert box["height"] > 20, name
        assert box["left"] >= 0, name
    for name in ("#overview", "#findings", "#table"):
        assert found[name]["width"] > 0.9 * WIDTHS[width][0], name
    assert found["#filter"]["top"] < found["#table"]["top"]
    tops = browser.run(
        "return [...document.querySelector('#table tbody tr').cells]"
        ".map((cell) => cell.getBoundingClientRect().top)"
    )
    assert len(set(tops)) == (1 if width == "laptop" else 6)
    assert browser.run(
        "return getComputedStyle(document.querySelector('#table thead')).display"
    ) == ("table-header-group" if width == "laptop" else "none")
    sizes = browser.run(
        "return [...document.querySelectorAll('#table code')]"
        ".map((one) => parseFloat(getComputedStyle(one).fontSize))"
    )
    assert min(sizes) >= 12


def test_light_and_dark_are_both_legible(browser: Browser, page: Path) -> None:
    """Text and ground differ in lightness by more than half, whichever is asked for."""
    grounds = {}
    for scheme in ("light", "dark"):
        browser.open(page, "laptop", scheme)
        colours = browser.run(
            "const style = getComputedStyle(document.body);"
            "return [style.backgroundColor, style.color].map((text) =>"
            " text.match(/\\d+/g).slice(0, 3).map(Number))"
        )
        ground, ink = (sum(rgb) / 765 for rgb in colours)
        assert abs(ground - ink) > 0.5
        grounds[scheme] = ground
    assert grounds["light"] > 0.5 > grounds["dark"]


def test_rows_are_filtered(browser: Browser, page: Path) -> None:
    """By framework, releases, kind, silence and words, and all together."""
    browser.open(page)
    story = {story.framework: story.findings for story in p.stories(page.parent)}
    every = {one.id: one for found in story.values() for one in found}
    assert {*browser.shown()} == every.keys()
    assert len(every) >= 6

    browser.pick("framework", "jax")
    assert {*browser.shown()} == {one.id for one in story["jax"]}
    browser.pick("framework", "")
    browser.pick("border", f"torch-{p.NEWER['torch']}")
    assert {*browser.shown()} == {one.id for one in story["torch"]}
    browser.pick("kind", "count")
    counts = {one.id for one in story["torch"] if one.kind == "count"}
    assert {*browser.shown()} == counts
    assert f"{len(counts)} of {len(every)} findings" == browser.run(
        "return document.getElementById('shown').textContent"
    )
    browser.run("document.querySelector('#filter [type=reset]').click()")
    browser.run("return new Promise((done) => setTimeout(done, 50))")
    assert {*browser.shown()} == every.keys()
    browser.pick("silent", "")
    assert {*browser.shown()} == {one.id for one in every.values() if one.silent}
    browser.pick("silent", "")
    browser.pick("text", "KEYERROR no")
    assert [every[id].kind for id in browser.shown()] == ["refusal"]
    browser.pick("text", "nothing has this word")
    assert browser.shown() == []


def test_rows_are_sorted(browser: Browser, page: Path) -> None:
    """By consequence at first, then by what is chosen, in the form or at the head of a column."""
    browser.open(page)
    every = {one.id: one for story in p.stories(page.parent) for one in story.findings}
    first = browser.shown()
    assert every[first[0]].kind == "value"
    browser.pick("sort", "-cases")
    counts = [len(every[id].cases) for id in browser.shown()]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 1
    heads = "document.querySelectorAll('#table th[data-sort] button')"
    browser.run(f"{heads}[0].click()")
    assert browser.shown() == first
    browser.run(f"{heads}[1].click()")
    newest = [every[id].framework for id in browser.shown()]
    assert len(newest) == len(first)
    assert browser.run(f"return {heads}[1].parentElement.getAttribute('aria-sort')") == "descending"
    assert browser.run(f"return {heads}[0].parentElement.getAttribute('aria-sort')") is None


def test_all_cases_of_a_finding_can_be_listed(browser: Browser, page: Path) -> None:
    """They unfold below it; what a framework said is shown as it said it."""
    browser.open(page)
    every = {one.id: one for story in p.stories(page.parent) for one in story.findings}
    many = max(every.values(), key=lambda one: len(one.cases))
    assert len(many.cases) > 1
    browser.run(
        "document.getElementById(arguments[0]).querySelector('summary').click();"
        "return new Promise((done) => setTimeout(done, 100))",
        many.id,
    )
    unfolded = browser.run(
        "return [...document.getElementById(arguments[0]).querySelectorAll('li')]"
        ".map((one) => one.textContent)",
        many.id,
    )
    assert {*unfolded} == {*many.cases}
    refusal = next(one for one in every.values() if one.kind == "refusal")
    text = browser.run("return document.getElementById(arguments[0]).textContent", refusal.id)
    assert "no <b>x</b>" in text


def test_a_number_of_the_overview_leads_to_its_findings(browser: Browser, page: Path) -> None:
    """Of that framework, release and kind."""
    browser.open(page)
    every = {one.id: one for story in p.stories(page.parent) for one in story.findings}
    browser.run("document.querySelector('#overview a[data-kind=count]').click()")
    shown = [every[id] for id in browser.shown()]
    assert shown
    assert {(one.framework, one.kind) for one in shown} == {("torch", "count")}


def test_the_page_can_be_read_without_scripts(browser: Browser, page: Path, tmp_path: Path) -> None:
    """All findings are in the text, and what needs a script is not shown."""
    bare = tmp_path / "bare.html"
    text = page.read_text()
    bare.write_text(text[: text.rindex("<script>")] + "</body></html>")
    browser.open(bare)
    every = {one.id for story in p.stories(page.parent) for one in story.findings}
    assert {*browser.shown()} == every
    assert (
        browser.run("return getComputedStyle(document.getElementById('filter')).display") == "none"
    )
