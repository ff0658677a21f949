"""The page in a real browser: type, read, inspect a word, correct it, and see the correction used.

`test_page_management.py` has the memories and glossaries of the page, `test_page_views.py` its views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ibidem.memory import Memory
from ibidem.serve import Key, KeyStore, ServeSettings, hash_key, make_service, running

from .conftest import OPEN, Client, make_translator

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from .browser import Page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.decode import Translator

GERMAN, WANTED = "Die Einstellungen wurden gespeichert.", "Stop"
NEW = "Der Mandant wurde gelöscht."


@pytest.fixture
def url(tiny: Any, folder: Path) -> Iterator[str]:
    with running(make_service(make_translator(tiny, folder), OPEN)) as address:
        yield address


@pytest.fixture
def page(driver: Any, url: str) -> Page:
    return Page(driver, url)


@pytest.fixture(scope="module")
def shared_url(tiny: Any, memory: Memory) -> Iterator[str]:
    """A server for tests that change nothing."""
    with running(make_service(make_translator(tiny, memory), OPEN)) as address:
        yield address


@pytest.fixture
def still(driver: Any, shared_url: str) -> Page:
    return Page(driver, shared_url)


@pytest.fixture(scope="module")
def translations(translator: Translator) -> dict[str, str]:
    """The translations of the sentences before any correction."""
    return {german: translator.translate([german])[0] for german in (GERMAN, NEW)}


def test_suspicious_sentences_are_named(still: Page, translator: Translator) -> None:
    """The tiny model repeats syllables of this text."""
    page = still
    found: list[str] = []
    expected = translator.translate(["Datei öffnen"], warn=lambda _, message: found.append(message))[0]
    page.write("Datei öffnen")
    page.wait_for_translation(expected)
    assert len(found) == 1
    assert found[0] in page["warnings"].text
    page.write(GERMAN)
    page.wait_for_translation(translator.translate([GERMAN])[0])
    assert not page["warnings"].is_displayed()


def test_type_inspect_correct_and_undo(page: Page, tiny: Any, folder: Path) -> None:
    translator = make_translator(tiny, folder)
    before = translator.translate([GERMAN])[0]
    assert before.startswith("The settings have been"), "the memory contains the sentence"
    page.write(GERMAN)
    page.wait_for_translation(before)
    assert not page["base"].is_displayed()
    page["compare"].click()
    page.wait(lambda: page["base"].text == make_translator(tiny, None).translate([GERMAN])[0], "the base model")

    words = page.all("#translation .word")
    assert [word.text for word in words] == before.split()
    explained = translator.explain([GERMAN])[0].words
    page.point_at(words[1])
    evidence = page["evidence-body"].text
    assert "similar passage" in evidence
    assert "distance" not in evidence
    neighbour = explained[1].tokens[0].neighbours[0]
    assert neighbour.pair.target in evidence
    assert neighbour.pair.source in evidence
    page.all("#evidence summary")[0].click()
    details = page["evidence-body"].text
    assert explained[1].summary in details
    assert f"distance {neighbour.distance:.2f}"[:12] in details
    assert page.all("#evidence mark")
    widths = [bar.size["width"] for bar in page.all("#evidence .level.mix i")]
    probabilities = [token.probability for token in explained[1].tokens]
    assert [width > 0 for width in widths] == [p > 0.01 for p in probabilities]

    page["correct"].click()
    assert page["target"].get_attribute("value") == before
    page["target"].clear()
    page["target"].send_keys(WANTED)
    page["learn"].click()
    page.wait_for_translation(WANTED)
    assert "Learnt the correction" in page["status"].text
    assert page["base"].text != WANTED
    learnt = Memory.open(folder)
    assert learnt.find(GERMAN, WANTED), "it is on disk"
    assert page.wait(lambda: page.all("#memories .number")[0].text == f"{learnt.active_pairs:,} pairs", "the new count")
    page.point_at(page.all("#translation .word")[0])
    assert GERMAN in page["evidence-body"].text

    page["status"].find_element(By.TAG_NAME, "button").click()
    page.wait(lambda: "undone" in page["status"].text, "the end")
    page.wait_for_translation(before)
    assert not Memory.open(folder).find(GERMAN, WANTED)
    assert Memory.open(folder).find(GERMAN, "The settings have been saved."), "the replaced pair is restored"
    assert page.has_no_browser_errors()


def test_keyboard_only(page: Page, folder: Path, translations: dict[str, str]) -> None:
    page.wait(lambda: page.driver.switch_to.active_element == page["source"], "the focus on the source")
    page.press(GERMAN)
    page.wait_for_translation(translations[GERMAN])
    words = page.all("#translation .word")
    while page.driver.switch_to.active_element != words[0]:
        page.press(Keys.TAB)
    page.press(Keys.ARROW_RIGHT)
    assert page.driver.switch_to.active_element == words[1]
    assert page["evidence-body"].text.startswith(words[1].text)
    page.press(Keys.ENTER)
    page.press(Keys.END)
    assert page["evidence-body"].text.startswith(words[1].text), "it is pinned"
    page.press(Keys.ESCAPE, Keys.HOME)
    assert page["evidence-body"].text.startswith(words[0].text)

    page["source"].click()
    page.press_with_control(Keys.ENTER)
    assert page.driver.switch_to.active_element == page["target"]
    page.press(Keys.ESCAPE)
    assert page["translation"].is_displayed()
    page["source"].click()
    page.press_with_control(Keys.ENTER)
    page.press_with_control("a")
    page.press(WANTED)
    page.press_with_control(Keys.ENTER)
    page.wait_for_translation(WANTED)
    assert Memory.open(folder).find(GERMAN, WANTED)
    assert page.has_no_browser_errors()


def test_a_correction_belongs_to_the_corrected_source(page: Page, folder: Path, translations: dict[str, str]) -> None:
    """The source field may change while the correction is written."""
    page.write(GERMAN)
    page.wait_for_translation(translations[GERMAN])
    page["correct"].click()
    page["target"].clear()
    page["target"].send_keys(WANTED)
    page.write(NEW)
    page.wait(lambda: page["memory-pane"].get_attribute("aria-busy") == "false", "the next translation")
    page["learn"].click()
    page.wait(lambda: "Learnt the correction" in page["status"].text, "the end of learning")
    assert Memory.open(folder).find(GERMAN, WANTED)
    assert not Memory.open(folder).find(NEW)


def test_evidence_is_cleared_with_the_translation(still: Page, translations: dict[str, str]) -> None:
    page = still
    page.write(GERMAN)
    page.wait_for_translation(translations[GERMAN])
    page.point_at(page.all("#translation .word")[0])
    assert page.all("#evidence .neighbour")
    page["source"].clear()
    page["source"].send_keys(" ")
    page.wait(lambda: not page.all("#translation .word"), "an empty translation")
    assert not page.all("#evidence .neighbour")


def test_file_import_shows_progress(page: Page, tmp_path: Path, folder: Path, translations: dict[str, str]) -> None:
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{german}</seg></tuv><tuv xml:lang="en"><seg>{english}</seg></tuv></tu>'
        for german, english in [(NEW, WANTED), *((f"Satz {number}", f"Open {number}") for number in range(400))]
    )
    file = tmp_path / "firma.tmx"
    file.write_text(f'<tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>', encoding="utf-8")
    page.write(NEW)
    page.wait_for_translation(translations[NEW])
    pairs = Memory.open(folder).active_pairs
    page.driver.execute_script(
        "window.seen = []; const see = () => window.seen.push(document.querySelector('.busy progress')?.value);"
        "new MutationObserver(see).observe(document.getElementById('memories'), {attributes: true, subtree: true})"
    )
    page.all("#memories input[type=file]")[0].send_keys(str(file))
    page.wait(lambda: "firma.tmx: " in page["status"].text, "the end of the import")
    page.wait_for_translation(WANTED)
    assert page.all("#memories .number")[0].text == f"{pairs + 401:,} pairs"
    assert page.driver.execute_script("return window.seen").count(1) > 0, "the bar became full"
    assert page.has_no_browser_errors()

    file.write_text("<tmx", encoding="utf-8")
    page.all("#memories input[type=file]")[0].send_keys(str(file))
    page.wait(lambda: "wrong" in page["status"].get_attribute("class"), "an error")
    assert "firma.tmx" in page["status"].text


def test_a_refused_file_can_be_imported(page: Page, tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "firma.tsv"
    file.write_text("".join(f"Satz {number}\tOpen\n" for number in range(100)), encoding="utf-8")
    pairs = Memory.open(folder).active_pairs
    page.wait(lambda: page.all("#memories input[type=file]"), "the list of memories")
    page.all("#memories input[type=file]")[0].send_keys(str(file))
    page.wait(lambda: "Nothing was learnt." in page["status"].text, "the refusal")
    assert "--bad-pairs" not in page["status"].text
    assert Memory.open(folder).active_pairs == pairs
    labels = ["Leave bad pairs out", "Learn all pairs"]
    buttons = [button for button in page.all("#status button") if button.text in labels]
    assert [button.text for button in buttons] == labels
    buttons[1].click()
    page.wait(lambda: "firma.tsv: " in page["status"].text, "the end of the import")
    assert Memory.open(folder).active_pairs == pairs + 100
    assert page.has_no_browser_errors()


def test_texts_are_not_inserted_as_html(page: Page, url: str) -> None:
    evil = "<img src=x onerror=alert(1)>"
    pair = {"source": GERMAN, "target": evil}
    assert Client(url).post("/memories/mine/pairs", {"pairs": [pair], "origin": evil, "replace": True}).status == 200
    page.write(GERMAN)
    page.wait(lambda: "<" in page["translation"].text, "the text as it was learnt")
    for word in page.all("#translation .word"):
        page.point_at(word)
    assert evil in page["evidence-body"].text
    assert not page.all("img")
    assert page.has_no_browser_errors()


def test_all_resources_come_from_the_server(still: Page, shared_url: str, translations: dict[str, str]) -> None:
    page = still
    page.write(GERMAN)
    page.wait_for_translation(translations[GERMAN])
    loaded = page.driver.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert loaded
    assert all(address.startswith(shared_url) for address in loaded)


def test_key_form(driver: Any, tiny: Any, memory: Memory, translations: dict[str, str]) -> None:
    settings = ServeSettings(OPEN.limits, keys_required=True)
    with running(
        make_service(make_translator(tiny, memory), settings, KeyStore([Key(hash_key("open sesame"))]))
    ) as address:
        page = Page(driver, address)
        page.wait(lambda: page["key"].is_displayed(), "the key form")
        page["key"].send_keys("abracadabra", Keys.ENTER)
        page.wait(lambda: page["status"].text.startswith("Invalid API key"), "an error")
        assert page["key"].is_displayed()
        page["key"].send_keys("open sesame", Keys.ENTER)
        page.wait(lambda: page.all("#memories li"), "the memories")
        page.write(GERMAN)
        page.wait_for_translation(translations[GERMAN])
        assert not page["key"].is_displayed()
        page.driver.execute_script("sessionStorage.clear()")


@pytest.mark.slow
def test_choice_of_a_glossary(driver: Any) -> None:
    from ibidem.decode import Translator
    from ibidem.glossary import Entry, Glossary
    from ibidem.model import load_model

    glossary = Glossary("house terms", "de", "en", [Entry("Mandant", ("tenant",))])
    translator = Translator(load_model(device="cpu"), glossary=glossary)
    with running(make_service(translator, OPEN)) as url:
        page = Page(driver, url)
        page["compare"].click()
        page.write(NEW)
        page.wait_for_translation("The tenant was deleted.")
        assert [option.text for option in page.all("#glossary option")][2] == "house terms (1 term)"
        word = next(word for word in page.all("#translation .word") if word.text == "tenant")
        assert word.get_attribute("aria-label") == "tenant, from the glossary house terms"
        page.wait_until_idle()
        page.all("#glossary option")[1].click()
        page.wait_for_translation(page["base"].text)
        assert "tenant" not in page["translation"].text
        page.all("#glossary option")[2].click()
        page.wait_for_translation("The tenant was deleted.")
        assert page.has_no_browser_errors()


def test_a_server_without_a_memory(driver: Any, tiny: Any) -> None:
    with running(make_service(make_translator(tiny, None), OPEN)) as address:
        page = Page(driver, address)
        page["compare"].click()
        page.write(GERMAN)
        page.wait(lambda: page["translation"].text and page["translation"].text == page["base"].text, "a translation")
        assert "There is no memory" in page["memories"].text
        page["correct"].click()
        assert not page["learn"].is_enabled()


# The contrast of every visible text with its background; controls without a name.
CONTRASTS = """
const parse = (colour) => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
const light = (colour) => {
  const [r, g, b] = colour.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  if (!element) return [255, 255, 255];
  const colour = parse(getComputedStyle(element).backgroundColor);
  return colour[3] === 1 ? colour.slice(0, 3) : over(colour, behind(element.parentElement));
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
  if (element.closest(":disabled, #mirror")) continue;
  const back = behind(element);
  const [a, b] = [light(over(parse(getComputedStyle(element).color), back)), light(back)].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), texts.currentNode.data]);
}
return found;
"""
NAMELESS = """
return [...document.querySelectorAll("button, input, textarea, select, progress, [role=group], section")].filter(
  (one) => !one.labels?.length && !one.ariaLabel && !one.getAttribute("aria-labelledby") && !one.textContent.trim()
).map((one) => one.outerHTML);
"""


def test_contrast_labels_and_narrow_windows(still: Page, translations: dict[str, str]) -> None:
    page = still
    page.write(GERMAN)
    page.wait_for_translation(translations[GERMAN])
    page.all("#translation .word")[0].click()
    for theme in ("light", "dark"):
        page.show_in(theme)
        # Colours fade in for a moment.
        page.wait(lambda: min(page.driver.execute_script(CONTRASTS))[0] >= 4.5, f"contrast in the {theme} theme")
    page["correct"].click()
    assert page.driver.execute_script(NAMELESS) == []
    for width in (1300, 800, 500):
        page.driver.set_window_size(width, 900)
        assert page.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth"), width


def test_the_theme_is_stored(still: Page) -> None:
    page = still
    page.show_in("dark")
    colours = set()
    for name in ("auto", "light", "dark"):
        assert page["theme"].text == f"Theme: {name}"
        colours.add(page.driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
        page.driver.refresh()
        page.wait(lambda name=name: page["theme"].text == f"Theme: {name}", "the same theme")
        page["theme"].click()
    assert len(colours) == 2, "auto is dark here"


def test_a_file_is_translated_and_downloaded(still: Page, tmp_path: Path, translations: dict[str, str]) -> None:
    page = still
    source, broken = tmp_path / "text.md", tmp_path / "broken.docx"
    source.write_text(f"# {GERMAN}\n\n`bleibt`\n", encoding="utf-8")
    broken.write_bytes(b"no archive")
    saved = tmp_path / "downloads"
    saved.mkdir()
    behaviour = {"behavior": "allow", "downloadPath": str(saved)}
    page.driver.execute_cdp_cmd("Page.setDownloadBehavior", behaviour)
    page.wait(lambda: ".docx" in page["document-file"].get_attribute("accept"), "the list of formats")
    page["document-file"].send_keys(str(source))
    button = page.wait(lambda: page.all("#document-list .primary"), "the download")[0]
    button.click()
    expected = f"# {translations[GERMAN]}\n\n`bleibt`\n"
    page.wait((saved / "text.md").exists, "the file")
    assert (saved / "text.md").read_text("utf-8") == expected
    page["document-file"].send_keys(str(broken))
    wrong = page.wait(lambda: page.all("#document-list .wrong"), "the error")[0]
    page.wait(lambda: wrong.text.startswith("broken.docx: not a complete DOCX file"), "the message")
    for remove in page.all("#document-list .quiet"):
        remove.click()
    assert page.all("#document-list li") == []
    assert page.has_no_browser_errors()


def test_a_busy_server_gets_the_file_again(still: Page, tmp_path: Path) -> None:
    """A key has a few documents at a time, and a translator drops more."""
    page = still
    page.wait_for_start()
    page.run(
        """const real = window.fetch, seen = window.seen = [];
        window.fetch = (path, options) => {
          const kind = `${options.method} ${/^.documents/.test(path) ? "document" : path}`;
          seen.push(kind);
          if (seen.filter((one) => one === kind).length > 1) return real(path, options);
          const headers = { "Retry-After": "0.05" };
          return Promise.resolve(new Response(JSON.stringify({ error: "busy" }), { status: 429, headers }));
        };"""
    )
    (tmp_path / "text.txt").write_text(GERMAN, encoding="utf-8")
    page["document-file"].send_keys(str(tmp_path / "text.txt"))
    page.wait(lambda: page.all("#document-list .primary"), "the download")
    assert page.run("return window.seen.filter((one) => one === 'POST document').length") == 2
    assert page.has_no_browser_errors()


def test_a_file_is_dropped(still: Page) -> None:
    page = still
    page.wait_for_start()
    page.driver.execute_script(
        """const data = new DataTransfer();
        data.items.add(new File(["Datei"], "dropped.txt"));
        for (const name of ["dragover", "drop"])
          document.dispatchEvent(new DragEvent(name, { dataTransfer: data, bubbles: true, cancelable: true }));"""
    )
    page.wait(lambda: page.all("#document-list .primary"), "the download")
    assert "dropped.txt" in page["document-list"].text
    assert page.has_no_browser_errors()
