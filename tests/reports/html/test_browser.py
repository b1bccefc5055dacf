"""The page in a browser: it opens without a word, moves by the API's numbers, sorts and prints."""

import pytest

import perfmodel
from perfmodel import Workload
from perfmodel.text import binary, digits, percent, seconds
from reports.html.page import write_page
from tests.reports.html.browser import chromium
from tests.reports.html.made import llama, llama_page, too_large
from tests.reports.html.test_page import HOSTILE, hostile  # noqa: F401  (a fixture)

keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
actions = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(llama_page(), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, report):
    browser.width(1280)
    browser.medium("screen")
    browser.open(report)
    return browser


def test_it_opens_without_complaint_and_asks_for_nothing(page, report):
    assert page.text("h1") == "llama-3.1-8b on 1 × NVIDIA H100 SXM5 80 GB"
    assert not page.one(".unscripted").is_displayed()
    assert page.complaints() == []
    assert [url for url in page.requests() if not url.startswith("data:")] == [report.as_uri()]


def slide(page, batch=0, prompt=0):
    """Press arrow keys on the sliders, as many as stops to move by."""
    for name, by in (("batch", batch), ("prompt", prompt)):
        key = keys.ARROW_RIGHT if by > 0 else keys.ARROW_LEFT
        if by:
            page.one(f"#slide-{name}").send_keys(key * abs(by))


@pytest.mark.parametrize(("batch", "prompt"), [(3, 0), (-3, 5), (0, -4), (2, 1)])
def test_the_sliders_change_the_numbers_to_those_of_the_api(page, batch, prompt):
    slide(page, batch, prompt)
    work = {"batch": 2 ** (3 + batch), "prompt": 2 ** (11 + prompt), "output": 256}
    result = perfmodel.estimate("llama-3.1-8b", "h100-sxm", Workload(**work))
    assert result.memory.fits
    shown = {
        "ttft_s": seconds, "tpot_s": seconds,
        "output_tokens_per_s": lambda rate: digits(float(rate)),
    }  # fmt: skip
    for name, text in shown.items():
        assert page.text(f'#figures [data-text="{name}"]') == text(getattr(result, name))
        low, high = (text(end) for end in result.interval(name))
        assert page.text(f'#figures [data-text="{name}_interval"]') == f"{low} – {high}"
    for part, size in (
        ("weights", result.memory.weights_bytes), ("kv", result.memory.kv_bytes),
        ("activation", result.memory.activation_bytes), ("required", result.memory.required_bytes),
    ):  # fmt: skip
        assert page.text(f'.explore [data-text="{part}"]') == binary(size)
    most = result.memory.max_sequences
    assert page.text('.explore [data-text="max_sequences"]') == f"{most:,}"
    assert page.one("#slide-batch").get_attribute("aria-valuetext") == f"{work['batch']:,}"
    for phase, found in (("prefill", result.prefill), ("decode", result.decode)):
        spent = sum(o.cost.time_s for o in found.cost.operators if o.name == "attention")
        row = next(r for r in page.all("#table-breakdown tr") if r.text.startswith("attention"))
        cells = row.find_elements("css selector", f'[data-text*=".{phase}."]')
        texts = [cell.get_attribute("textContent") for cell in cells]
        assert texts == [seconds(spent), percent(spent / found.time_s)]
    assert page.complaints() == []


def test_the_marks_move_with_the_sliders(page):
    mark = '.wide .mark.decode[data-name="attention"]'
    before = page.one(mark).rect
    slide(page, prompt=4)
    after = page.one(mark).rect
    # Decode attention reads the cache whatever its length: as fast, with more of the time.
    assert after["width"] > 1.3 * before["width"]
    slide(page, prompt=-4)
    assert page.one(mark).rect == before


def test_what_does_not_fit_says_so_and_shows_no_times(page):
    slide(page, batch=5)  # 256 sequences of 2,048 tokens; 182 fit
    assert page.one(".misfit").is_displayed()
    assert "doesn’t fit" in page.text(".misfit")
    assert page.text('#figures [data-text="ttft_s"]') == "–"
    assert not [m for m in page.all(".wide .mark") if m.is_displayed() and m.rect["width"]]
    page.one("#back").click()
    assert page.text(".misfit") == ""
    assert page.text('#figures [data-text="ttft_s"]') == page.text(".cards .value")


def test_a_screen_reader_hears_the_setting(page):
    wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
    slide(page, batch=1)
    wait(page.driver, 5).until(lambda _: page.text("#said"))
    assert page.one("#said").get_attribute("aria-live") == "polite"
    said = page.text("#said")
    assert said.startswith("Batch 16, prompt 2,048")
    assert page.text('#figures [data-text="ttft_s"]') in said


def test_a_mark_that_is_pointed_at_says_what_it_is(page):
    mark = page.one('.wide .mark.decode[data-name="attention"]')
    page.run("arguments[0].scrollIntoView({block: 'center'})", mark)
    actions(page.driver).move_to_element(mark).perform()
    operator = next(o for o in llama().answer.decode.cost.operators if o.name == "attention")
    assert page.one("#tip").is_displayed()
    assert page.text("#tip strong") == "attention"
    assert page.text("#tip .phase") == "decode"
    cost = operator.cost
    assert page.text("#tip [data-tip=time]").split(" (")[0] == seconds(cost.time_s)
    assert page.text("#tip [data-tip=intensity]").split()[0] == digits(cost.arithmetic_intensity)
    actions(page.driver).move_to_element(page.one("h1")).perform()
    assert not page.one("#tip").is_displayed()


def test_the_keyboard_walks_over_the_marks(page):
    first = page.one('.wide .mark[tabindex="0"]')
    page.run("arguments[0].focus()", first)
    assert page.text("#tip strong") == first.get_attribute("data-name")
    actions(page.driver).send_keys(keys.ARROW_RIGHT).perform()
    now = page.driver.switch_to.active_element
    assert now != first
    name, phase = (now.get_attribute(f"data-{what}") for what in ("name", "phase"))
    assert now.get_attribute("aria-label").startswith(f"{name}, {phase}: Time")
    actions(page.driver).send_keys(keys.ESCAPE).perform()
    assert not page.one("#tip").is_displayed()


def column(page, number):
    cells = page.all(f"#table-decode tbody tr > :nth-child({number})")
    return [cell.get_attribute("data-sort") or cell.get_attribute("textContent") for cell in cells]


def test_tables_sort_by_a_heading_and_back(page):
    names = column(page, 1)
    heading = page.all("#table-decode thead th")[5]
    button = heading.find_element("css selector", "button")
    assert button.text == "Time"
    page.run("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    times = [float(value) for value in column(page, 6)]
    assert times == sorted(times, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    button.send_keys(keys.ENTER)
    assert [float(value) for value in column(page, 6)] == times[::-1]
    button.click()
    assert column(page, 1) == names
    assert heading.get_attribute("aria-sort") is None
    first = page.one("#table-decode thead th button")
    first.click()
    assert column(page, 1)[0] == min(names, key=str.lower)
    assert page.one("#table-prefill tbody th").text.startswith("embedding")  # the others stay


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_it_never_scrolls_sideways(page, width):
    page.width(width)
    assert page.run("return document.documentElement.scrollWidth") <= width
    shown = [
        p.get_attribute("class").split()[1]
        for p in page.all(".roofline .picture")
        if p.is_displayed()
    ]
    assert shown == ["narrow" if width < 700 else "wide"]
    for figure in page.all(".picture, .card, .controls"):
        if figure.is_displayed():
            assert figure.rect["x"] >= 0
            assert figure.rect["x"] + figure.rect["width"] <= width


def test_letters_on_a_phone_are_large_enough_to_read(page):
    page.width(390)
    sizes = page.run(
        "return Array.from(document.querySelectorAll('.picture.narrow, .curve')).map(picture => "
        "parseFloat(picture.getAttribute('font-size')) * picture.getBoundingClientRect().width"
        " / picture.viewBox.baseVal.width)"
    )
    assert min(sizes) >= 10


def test_it_prints_whole(page):
    page.medium("print")
    page.width(688)  # A4 between margins of 14 mm
    assert not page.one(".controls").is_displayed()
    assert page.one(".picture.wide").is_displayed()
    assert page.run("return document.documentElement.scrollWidth") <= 688
    cut = page.run(
        "return Array.from(document.querySelectorAll('.scroll')).filter(box => "
        "box.scrollWidth > box.clientWidth + 1 || getComputedStyle(box).overflowX !== 'visible')"
        ".length"
    )
    assert cut == 0
    page.medium("screen")
    paper = page.pdf()
    assert paper.startswith(b"%PDF")
    assert 4 <= paper.count(b"/Type /Page\n") <= 15


def test_colours_stand_out_in_the_dark_too(page):
    for scheme in ("light", "dark"):
        page.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        for selector in ("body", ".facts", ".card .more", "thead th", ".hint", "button"):
            assert page.run(CONTRAST, page.one(selector)) >= 4.5, (scheme, selector)


CONTRAST = """
const light = (colour) => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
let behind = arguments[0];
while (/, 0\\)$/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
const a = light(getComputedStyle(arguments[0]).color);
const b = light(getComputedStyle(behind).backgroundColor);
return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
"""


def test_hostile_names_do_nothing(browser, hostile, tmp_path):  # noqa: F811
    path = tmp_path / "hostile.html"
    write_page(hostile, path)
    browser.width(1280)
    browser.open(path)
    assert browser.run("return window.pwned === undefined")
    assert HOSTILE in browser.text("h1")
    assert "<script>window.pwned=2<!--" in browser.text("h1")
    assert browser.complaints() == []
    assert [u for u in browser.requests() if not u.startswith("data:")] == [path.as_uri()]


def test_a_page_without_anything_to_slide_opens_too(browser, tmp_path):
    path = tmp_path / "large.html"
    write_page(too_large(), path)
    browser.open(path)
    assert browser.complaints() == []
    assert browser.all("#table-errors button")


def test_without_scripts_it_shows_the_case_that_was_asked_for(browser, report):
    browser.width(1280)
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(report)
        assert not browser.one(".controls").is_displayed()
        assert browser.one(".unscripted").is_displayed()
        first = browser.text(".cards .value")
        assert browser.text('#figures [data-text="ttft_s"]') == first != ""
        assert sum(mark.is_displayed() for mark in browser.all(".wide .mark")) > 5
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
