"""Memories and glossaries on the page: create, rename, share, import, export, delete, restore."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.memory import Memory
from ibidem.serve import Key, KeyStore, hash_key, make_service, running

from .conftest import OPEN, make_translator

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from .browser import Page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GERMAN, WANTED = "Die Einstellungen wurden gespeichert.", "Stop"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def page(driver: Any, tiny: Any, store: Path, tmp_path: Path) -> Iterator[Page]:
    settings = replace(OPEN, memories=store, glossaries=tmp_path / "glossaries")
    saved = tmp_path / "downloads"
    saved.mkdir()
    driver.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(saved)})
    with running(make_service(make_translator(tiny, None), settings)) as url:
        found = Page(driver, url)
        found.wait(lambda: found["new-memory"].is_displayed(), "the start of the page")
        yield found


def names(page: Page, list: str = "memories") -> list[str]:
    return [one.text.partition(" (")[0] for one in page.all(f"#{list} .title")]


def undo(page: Page, message: str) -> None:
    page.wait(lambda: message in page["status"].text, message)
    page["status"].find_element(By.TAG_NAME, "button").click()


def test_the_life_of_a_memory(page: Page, store: Path, tmp_path: Path) -> None:
    assert "There is no memory" in page["memories"].text
    page["new-memory"].click()
    page["memory-name"].send_keys("a/b", Keys.ENTER)
    page.wait(lambda: "Invalid name" in page["status"].text, "a refusal")
    page["memory-name"].clear()
    page["memory-name"].send_keys("Firma", Keys.ENTER)
    page.wait(lambda: names(page) == ["Firma"], "the memory")
    assert not page["memory-form"].is_displayed()
    file = tmp_path / "pairs.tsv"
    file.write_text(f"{GERMAN}\t{WANTED}\n", encoding="utf-8")
    page.all("#memories input[type=file]")[0].send_keys(str(file))
    page.wait(lambda: "pairs.tsv" in page["status"].text, "the import")
    page.wait(lambda: page.all("#memories .number")[0].text == "1 pair", "the pair")
    page.paste(GERMAN)
    assert page["translation"].text == WANTED

    page.button("Rename Firma").click()
    page.press_with_control("a")
    page.press("Kunden <b>", Keys.ENTER)
    page.wait(lambda: "Invalid name" in page["status"].text, "a refusal")
    page.press_with_control("a")
    page.press("Kunden AG", Keys.ENTER)
    page.wait(lambda: names(page) == ["Kunden AG"], "the new name")
    assert Memory.open(store / "Kunden AG").find(GERMAN, WANTED)
    page.wait_until_idle()
    assert page["translation"].text == WANTED
    page.button("Export Kunden AG").click()
    exported = tmp_path / "downloads" / "Kunden AG.tmx"
    page.wait(exported.exists, "the file")
    assert WANTED in exported.read_text("utf-8")

    page.button("Delete Kunden AG").click()
    undo(page, "Deleted Kunden AG")
    page.wait(lambda: names(page) == ["Kunden AG"] and "Restored" in page["status"].text, "the memory")
    page.wait(lambda: page["translation"].text == WANTED, "its translation")
    page.button("Delete Kunden AG").click()
    page.wait(lambda: names(page, "trash") == ["Kunden AG"], "the trash")
    page.wait(lambda: page["translation"].text not in ("", WANTED), "a translation without it")
    page.driver.refresh()
    page.wait(lambda: names(page, "trash") == ["Kunden AG"], "the trash after a reload")
    page.button("Restore Kunden AG").click()
    page.wait(lambda: names(page) == ["Kunden AG"] and not page["trash-pane"].is_displayed(), "the memory")
    page.button("Delete Kunden AG").click()
    page.wait(lambda: names(page, "trash") == ["Kunden AG"], "the trash")
    page.button("Delete Kunden AG for good").click()
    page.button("Yes, delete it").click()
    page.wait(lambda: not page["trash-pane"].is_displayed(), "an empty trash")
    assert list((store / ".trash").iterdir()) == []
    assert page.has_no_browser_errors()


def test_the_life_of_a_glossary(page: Page, tmp_path: Path) -> None:
    page["new-glossary"].click()
    page["terms-name"].send_keys("Haus")
    page["terms"].send_keys("Mandant = tenant\nSchaltfläche=push button")
    page["terms-form"].submit()
    page.wait(lambda: names(page, "glossaries") == ["Haus"], "the glossary")
    assert page.all("#glossaries .number")[0].text == "2 terms"
    assert page.run("return document.getElementById('glossary').selectedOptions[0].text") == "Haus (2 terms)"
    page.button("Edit Haus").click()
    page.wait(lambda: page["terms"].get_attribute("value") == "Mandant = tenant\nSchaltfläche = push button", "terms")
    page["terms"].send_keys("\n\nDatei")
    page["terms-form"].submit()
    page.wait(lambda: "line 4: put = between" in page["status"].text, "the error")
    page["terms"].send_keys(" = file")
    page["terms-name"].send_keys("ordnung")
    page["terms-form"].submit()
    page.wait(lambda: names(page, "glossaries") == ["Hausordnung"], "the new name")
    assert page.all("#glossaries .number")[0].text == "3 terms"
    file = tmp_path / "Import.csv"
    file.write_bytes("de;en\nKonto;account\n".encode("utf-16"))
    page["glossary-file"].send_keys(str(file))
    page.wait(lambda: names(page, "glossaries") == ["Hausordnung", "Import"], "the imported glossary")
    page.button("Export Import").click()
    exported = tmp_path / "downloads" / "Import.csv"
    page.wait(exported.exists, "the file")
    assert exported.read_text("utf-8") == "de,en\nKonto,account\n"
    page.button("Delete Import").click()
    undo(page, "Deleted Import")
    page.wait(
        lambda: names(page, "glossaries") == ["Hausordnung", "Import"] and "Restored" in page["status"].text, "back"
    )
    assert page.has_no_browser_errors()


def test_rights_on_the_page(driver: Any, tiny: Any, store: Path) -> None:
    keys = KeyStore([Key(hash_key("anna"), "write"), Key(hash_key("carl"), "read")])
    settings = replace(OPEN, memories=store, keys_required=True)
    with running(make_service(make_translator(tiny, None), settings, keys)) as url:
        page = Page(driver, url)
        try:
            page.wait(lambda: page["key"].is_displayed(), "the key form")
            page["key"].send_keys("anna", Keys.ENTER)
            page.wait(lambda: page["new-memory"].is_displayed(), "the start")
            page["new-memory"].click()
            page["memory-name"].send_keys("team", Keys.ENTER)
            page.wait(lambda: names(page) == ["team"], "the memory")
            assert [one.text for one in page.all("#memories option")] == [
                *("Only this key", "Other keys may read", "Other keys may change"),
            ]
            page.all("#memories option")[1].click()
            page.wait(lambda: page["status"].text == "team: other keys may read.", "the change")
            page["key-button"].click()
            page["key"].send_keys("carl", Keys.ENTER)
            page.wait(lambda: "read only" in page["memories"].text, "the memory for the other key")
            assert not page["new-memory"].is_displayed()
            assert not page.all("#memories select")
            assert [one.text for one in page.all("#memories button")] == []
            page["key-button"].click()
            page["key"].send_keys("anna", Keys.ENTER)
            page.wait(lambda: page.all("#memories select"), "the owner")
            page.all("#memories option")[0].click()
            page.wait(lambda: page["status"].text == "team: only this key.", "the change")
            page["key-button"].click()
            page["key"].send_keys("carl", Keys.ENTER)
            page.wait(lambda: "There is no memory" in page["memories"].text, "it is hidden")
        finally:
            page.driver.execute_script("sessionStorage.clear()")
