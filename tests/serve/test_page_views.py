"""The views of the page: marks, comparison, sentences, long texts, errors, languages, phones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.memory import Memory
from ibidem.serve import make_service, running

from .conftest import OPEN, make_translator

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from .browser import Page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.decode import Translator

KNOWN = ["Die Einstellungen wurden gespeichert.", "Bitte geben Sie Ihr Kennwort erneut ein.", "Datei öffnen …"]
LONG = "\n\n".join(f"{KNOWN[0]} {KNOWN[1]} Das ist Satz {number}." for number in range(1, 7))
BOTH = [{"code": "de", "name": "German", "targets": ["en"]}, {"code": "en", "name": "English", "targets": ["de"]}]
PAIR = {"id": 3, "source": "Die Datei (öffnen)", "target": "Open it", "origin": "a.tmx", "location": 7}
MATCH = {**PAIR, "memory": "mine", "source": KNOWN[0], "target": "Help", "percent": 92}


@pytest.fixture(scope="module")
def url(tiny: Any, memory: Memory) -> Iterator[str]:
    """A server for tests that change nothing."""
    with running(make_service(make_translator(tiny, memory), OPEN)) as address:
        yield address


@pytest.fixture
def page(driver: Any, url: str) -> Page:
    return Page(driver, url)


def test_only_what_the_memory_changed_is_marked(page: Page, tiny: Any) -> None:
    assert page["marks"].get_attribute("aria-pressed") == "true"
    page.paste(KNOWN[0])
    base = make_translator(tiny, None).translate([KNOWN[0]])[0].split()
    words = page.all("#translation .word")
    marked = {word.text for word in words if "changed" in word.get_attribute("class")}
    assert marked == {word.text for word in words} - set(base)
    assert marked
    assert page["legend"].is_displayed()
    one = next(word for word in words if word.text in marked)
    assert one.get_attribute("aria-label") == f"{one.text}, changed by the memory"
    colour = one.value_of_css_property("background-color")
    page["marks"].click()
    assert one.value_of_css_property("background-color") != colour
    assert not page["legend"].is_displayed()
    assert not page["base-pane"].is_displayed()
    page["compare"].click()
    assert page["base"].text == " ".join(base)
    page.driver.refresh()
    page.wait_for_start()
    pressed = [page[name].get_attribute("aria-pressed") for name in ("by-sentence", "marks", "compare")]
    assert pressed == ["false", "false", "true"], "the choices are stored"
    # A memory that changes nothing has no marks: without memories the base model translates.
    page["marks"].click()
    page.all("#memories input[type=checkbox]")[0].click()
    page.paste(KNOWN[0])
    assert page["translation"].text == " ".join(base)
    assert not page.all("#translation .changed")
    assert page.has_no_browser_errors()


def test_a_long_text(page: Page, translator: Translator) -> None:
    page.run(
        "window.seen = []; const bar = document.getElementById('progress');"
        "new MutationObserver(() => window.seen.push(bar.textContent))"
        ".observe(bar, {attributes: true, subtree: true, childList: true})"
    )
    page.paste(LONG)
    assert page["translation"].get_attribute("innerText").split() == " ".join(translator.translate([LONG])).split()
    assert any("of 18 sentences" in text for text in page.run("return window.seen")), "the progress"
    assert not page["progress"].is_displayed()
    sizes = [len(body["q"]) for body in page.sent("/translate")]
    assert max(sizes) <= 6, "a few sentences in each request"
    assert sum(sizes) == 2 * 8, "each different sentence is sent once, with and without memories"
    # The evidence stays in view, and both sides of the sentence are marked.
    last = page.all("#translation .word")[-1]
    linked = page.run("return arguments[0].closest('.sentence').querySelector('.from').textContent", last)
    page.run("arguments[0].scrollIntoView({block: 'center'})", last)
    page.point_at(last)
    assert page.is_in_view(page["evidence-title"])
    assert [mark.get_attribute("textContent") for mark in page.all("#mirror mark")] == [linked]
    assert len(page.all("#translation .linked")) == 1
    # The caret in the source marks the sentence in the translation.
    page.run("const source = arguments[0]; source.focus(); source.setSelectionRange(5, 5)", page["source"])
    page.wait(lambda: page.all("#translation .linked .word")[0].text == page.all("#translation .word")[0].text, "link")
    # After a change, only the changed sentence is sent.
    before = len(page.sent("/translate"))
    page.paste(LONG.replace("Satz 6", "Satz 7"))
    assert [body["q"] for body in page.sent("/translate")[before:]] == [["Das ist Satz 7."]] * 2
    assert page.has_no_browser_errors()


def test_the_height_of_the_source_is_that_of_its_text(page: Page) -> None:
    """The field does not keep the height of the text before, or of a translation beside it."""
    page.paste(KNOWN[0])
    short = page["source"].size["height"]
    page.paste("\n\n".join([LONG] * 4))
    long = page["source"].size["height"]
    assert long > short
    page.paste(KNOWN[0])
    assert page["source"].size["height"] == short
    page["by-sentence"].click()
    page.paste("\n\n".join([LONG] * 4))
    page["by-sentence"].click()
    assert page["source"].size["height"] == long
    assert page.run("return arguments[0].scrollHeight <= arguments[0].clientHeight", page["source"])


def test_sentences_beside_each_other(driver: Any, tiny: Any, folder: Path, translator: Translator) -> None:
    with running(make_service(make_translator(tiny, folder), OPEN)) as address:
        correct_a_sentence(Page(driver, address), folder, translator)


def correct_a_sentence(page: Page, folder: Path, translator: Translator) -> None:
    page.wait_for_start()
    page.paste(f"{KNOWN[0]} {KNOWN[1]}\n\n{NEW}")
    page["by-sentence"].click()
    assert not page["source"].is_displayed()
    for from_, to in zip(page.all(".sentence .from"), page.all(".sentence .to"), strict=True):
        assert abs(from_.location["y"] - to.location["y"]) < 8
        assert from_.location["x"] + from_.size["width"] <= to.location["x"]
    assert [one.text for one in page.all(".sentence .from")] == [KNOWN[0], KNOWN[1], NEW]
    # Each sentence is corrected beside its source, and only the changed one is learnt.
    page["correct"].click()
    fields = page.all("#correction textarea")
    assert [field.get_attribute("value") for field in fields] == translator.translate([KNOWN[0], KNOWN[1], NEW])
    pairs = Memory.open(folder).active_pairs
    fields[2].clear()
    page["learn"].click()
    page.wait(lambda: "has no translation" in page["status"].text, "a refusal")
    fields[2].send_keys("Stop", Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: "Learnt the correction" in page["status"].text, "the end of learning")
    assert Memory.open(folder).find(NEW, "Stop")
    assert Memory.open(folder).active_pairs == pairs + 1
    page.wait(lambda: page.all(".sentence .to")[2].text == "Stop", "the corrected sentence")
    # A click on a source returns to the text, with the caret in this sentence.
    page.all(".sentence .from")[1].click()
    assert page["source"].is_displayed()
    assert page.run("return document.activeElement.selectionStart") == len(KNOWN[0]) + 1
    assert page.has_no_browser_errors()


NEW = "Der Mandant wurde gelöscht."


def test_errors_are_shown_where_the_text_is(page: Page) -> None:
    page.paste(LONG)
    before = page["translation"].text
    page.run("arguments[0].scrollIntoView({block: 'center'})", page.all("#translation .word")[-1])
    page.run("window.real = window.fetch; window.fetch = () => Promise.reject(new TypeError('no network'))")
    page["source"].send_keys(" Noch einer.")
    page.wait(lambda: page["problem"].is_displayed(), "the message")
    assert page["problem"].text.startswith("The server cannot be reached.")
    assert page.is_in_view(page["problem"]), "also where a long text is read"
    assert page["translation"].text == before
    page.wait(lambda: float(page["translation"].value_of_css_property("opacity")) < 0.5, "old output is dimmed")
    assert page["confidence"].value_of_css_property("visibility") == "hidden", "it is that of the old output"
    assert not page["copy"].is_enabled()
    assert not page["correct"].is_enabled()
    page.run("window.fetch = window.real")
    page["problem"].find_element(By.TAG_NAME, "button").click()
    page.wait(lambda: not page["problem"].is_displayed(), "the next translation")
    page.wait_until_idle()
    assert page["copy"].is_enabled()
    limit = OPEN.limits.characters
    page.put("a " * limit)
    page.wait(lambda: f"translates {limit:,} at once" in page["problem"].text, "the limit")
    page["clear"].click()
    assert not page["problem"].is_displayed()
    assert page["translation"].text == ""
    page.wait(lambda: "cleared" in page["status"].text, "the way back")
    page["status"].find_element(By.TAG_NAME, "button").click()
    assert len(page["source"].get_attribute("value")) == 2 * limit


def test_a_translation_whose_comparison_is_late_is_not_dimmed(page: Page) -> None:
    page.wait_for_start()
    page.run(
        """const real = window.fetch, problem = arguments[0];
        window.compared = window.shown = 0;
        new MutationObserver(() => { window.shown += !problem.hidden; }).observe(problem, { attributes: true });
        window.fetch = (path, options) => {
          if (!String(options.body).includes('"memories":[]') || window.compared++) return real(path, options);
          const headers = { "Retry-After": "0.05" };
          return Promise.resolve(new Response(JSON.stringify({ error: "busy" }), { status: 429, headers }));
        };""",
        page["problem"],
    )
    page.paste("Die Vorlage ist leer.")
    page.wait(lambda: page.run("return window.compared") == 2, "the second attempt")
    page.wait_until_idle()
    assert page.run("return window.shown") == 0
    assert page["copy"].is_enabled()


def test_text_of_any_characters(page: Page, translator: Translator) -> None:
    """Offsets count code points; half of a surrogate pair is not a character."""
    text = f"😀 {KNOWN[0]} 𝒳 {KNOWN[1]}"
    page.paste(text)
    assert page["translation"].text == translator.translate([text])[0]
    parts = page.all("#translation .sentence .from")
    assert " ".join(part.get_attribute("textContent") for part in parts) == text
    page.run("document.getElementById('source').value = 'Datei \\ud83d öffnen'")
    page["source"].send_keys("!")
    page.wait(lambda: page.sent("/translate")[-1]["q"] == ["Datei \ufffd öffnen!"], "a valid request")
    page.wait_until_idle()
    assert not page["problem"].is_displayed()


def test_languages_of_a_server_with_one_direction(page: Page) -> None:
    page.wait_for_start()
    assert [page[name].is_enabled() for name in ("source-language", "target-language")] == [False, False]
    assert page["swap"].get_attribute("aria-disabled") == "true"
    reason = "This server does not translate from English to German."
    assert page["swap-reason"].get_attribute("textContent") == reason
    page["swap"].click()
    assert page["status"].text == reason


def test_swap_and_hint_of_a_server_with_two_directions(driver: Any, url: str) -> None:
    answers = {"/languages": BOTH, "/detect": [{"language": "en", "confidence": 88}]}
    page = Page(driver, url, answers)
    page.wait_for_start()
    page.paste(KNOWN[0])
    translation = page["translation"].text
    page.wait(lambda: page["detected"].is_displayed(), "the hint")
    assert page["detected"].text.startswith("This text seems to be English. It is translated as German.")
    page["swap"].click()
    page.wait(lambda: page["source"].get_attribute("value") == translation, "the exchange")
    page.wait(lambda: page["problem"].is_displayed(), "an error of this server, which has one direction")
    body = page.sent("/segments")[-1]
    assert (body["source"], body["target"], body["q"]) == ("en", "de", translation)
    assert not page["detected"].is_displayed()
    assert page["source"].get_attribute("lang") == "en"
    page["swap"].click()
    page.paste("Noch ein Satz zum Testen.")
    page.wait(lambda: page["detected"].is_displayed(), "the hint")
    page["detected"].find_element(By.TAG_NAME, "button").click()
    assert page.run("return document.getElementById('source-language').value") == "en"


def test_detection_that_has_no_answer(driver: Any, url: str) -> None:
    for answer in (None, [{"language": "fr", "confidence": 20}]):
        page = Page(driver, url, {"/detect": answer})
        page.wait_for_start()
        page.paste(KNOWN[1])
        page.wait(lambda page=page: page.sent("/detect"), "the request")
        assert not page["detected"].is_displayed()
        assert not page["problem"].is_displayed()


def test_confidence_matches_and_search(driver: Any, url: str) -> None:
    """What a server of these features sends."""
    segment = {"start": 0, "end": 4, "source_start": 0, "source_end": 4, "confidence": 0.34, "matches": [MATCH]}
    explained = {"translation": "Open", "pairs": [], "words": [], "terms": []}
    word = {"text": "Open", "start": 0, "end": 4, "memory_share": 0, "agreeing": 0, "retrieved": 0, "tokens": []}
    explained["words"] = [{**word, "summary": "from the base model: no neighbour"}]
    answers = {
        "/translate": {"translatedText": ["Open"], "segments": [[segment]], "explanation": [explained]},
        "/memories/sentences/search": {"pairs": [PAIR], "total": 1, "complete": True},
    }
    page = Page(driver, url, answers)
    page.wait_for_start()
    page.paste(KNOWN[0])
    assert page["confidence"].text == "Confidence 34 %"
    page.all("#translation .word")[0].click()
    evidence = page["sentence-body"].text
    assert "needs no edit with a probability of 34 %" in evidence
    assert "92 %" in evidence
    assert "mine: a.tmx, line 7" in evidence
    page["by-sentence"].click()
    assert page.all(".sure.low")[0].text == "34 %"
    page.button("Use the translation Help").click()
    assert page["target"].get_attribute("value") == "Help"
    page["cancel"].click()

    page = Page(driver, url)
    page.wait(lambda: page["search-pane"].is_displayed(), "the search of this server")
    page["search-text"].send_keys("einstellungen wurden", Keys.ENTER)
    page.wait(lambda: page.all("#search-list li"), "the results")
    assert KNOWN[0] in page["search-list"].text
    settings = page.run("return fetch('/frontend/settings').then((response) => response.json())")
    page = Page(driver, url, {**answers, "/frontend/settings": settings})
    page.wait(lambda: page["search-pane"].is_displayed(), "the search")
    page["search-text"].send_keys("(öffnen) open", Keys.ENTER)
    page.wait(lambda: page.all("#search-list li"), "the results")
    assert [mark.text for mark in page.all("#search-list mark")] == ["(öffnen)", "Open"]
    assert page["search-note"].text == "1 pair"
    page = Page(driver, url, {"/frontend/settings": {**settings, "features": []}})
    page.wait(lambda: page.all("#memories li"), "the memories")
    assert not page["search-pane"].is_displayed(), "a server without search"
    assert page.has_no_browser_errors()


def test_a_phone(driver: Any, url: str) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 5})
    try:
        page = Page(driver, url)
        page.wait_for_start()
        page.paste(LONG)
        assert not [one for one in page.all("kbd") if one.is_displayed()], "no keys are named"
        word = page.all("#translation .word")[-2]
        page.run("arguments[0].scrollIntoView({block: 'end'})", word)
        page.touch(word)
        page.wait(lambda: word.get_attribute("aria-pressed"), "the pinned word")
        assert page.is_in_view(page["evidence-title"])
        assert word.rect["y"] + word.rect["height"] <= page["evidence"].rect["y"], "the evidence does not cover it"
        small = """
        return [...document.querySelectorAll("button, select, input, summary, textarea")]
          .filter((one) => one.checkVisibility() && !one.matches(".word, .from, [type=checkbox], [type=file]"))
          .filter((one) => { const box = one.getBoundingClientRect(); return box.height < 44 || box.width < 44; })
          .map((one) => one.outerHTML);
        """
        wide = "return document.documentElement.scrollWidth > innerWidth"
        assert page.run(small) == []
        assert not page.run(wide)
        page["by-sentence"].click()
        page.run("arguments[0].scrollIntoView({block: 'start'})", page["correct"])
        page["correct"].click()
        assert page.run(small) == []
        assert not page.run(wide)
        assert not page["evidence"].is_displayed(), "it would cover the fields"
        boxes = page.run("return [...document.querySelectorAll('#memories label')].map((one) => one.offsetHeight)")
        assert min(boxes) >= 44
    finally:
        driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_reduced_motion(page: Page) -> None:
    assert page["translation"].value_of_css_property("transition-duration") == "0.15s"
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert page["translation"].value_of_css_property("transition-duration") == "0s"
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_read_only_server(driver: Any, tiny: Any, folder: Path) -> None:
    settings = replace(OPEN, read_only=True, memories=folder.parent / "store")
    with running(make_service(make_translator(tiny, folder), settings)) as address:
        page = Page(driver, address)
        page.wait(lambda: page.all("#memories li"), "the memories")
        assert page["memories"].text.startswith("mine (read only)")
        for name in ("new-memory", "glossaries-pane", "trash-pane"):
            assert not page[name].is_displayed(), name
        page.paste(KNOWN[0])
        page["correct"].click()
        assert not page["learn"].is_enabled()
        assert page["target"].is_displayed()
        assert page.has_no_browser_errors()
