"""Catalogues of installed packages: no filled entry is lost or broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.text.document import FillSettings, State
from ibidem.text.formats import open_document
from ibidem.text.po import read_entries

from .samples import filled
from .translators import backwards, strip_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = [Path("/usr/share/locale"), *map(Path, dict.fromkeys(path for path in sys.path if "site-packages" in path))]
MOST = 6
LARGEST = 20_000


@pytest.fixture(scope="module")
def catalogues(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A few PO files as they were found, or made by gettext from the compiled ones that were found."""
    written = sorted(path for place in PLACES if place.is_dir() for path in place.rglob("*.po"))
    found = [path for path in written if path.stat().st_size < 2 * LARGEST][:MOST]
    compiled: list[Path] = []
    for language in ("de", "fr", "ja", "ru", "ar", "zh_CN"):
        files = [path for place in PLACES for path in place.glob(f"**/{language}/LC_MESSAGES/*.mo")]
        small = [path for path in files if path.stat().st_size < LARGEST]
        compiled += sorted(small, key=lambda path: (path.stat().st_size, path))[-1:]
    if shutil.which("msgunfmt"):
        folder = tmp_path_factory.mktemp("catalogues")
        for number, path in enumerate(compiled[: MOST - len(found)]):
            target = folder / f"{number}.po"
            subprocess.run(["msgunfmt", "-o", target, path], check=True, capture_output=True)
            if b"charset=UTF-8" in target.read_bytes():
                found.append(target)
    if not found:
        pytest.skip("no catalogues, or no msgunfmt to read them, on this machine")
    return found


def masked(data: bytes) -> Iterator[str]:
    """The lines of a catalogue without its msgstr fields and flags."""
    lines = data.decode("utf-8").split("\n")
    entries = list(read_entries(list(enumerate(lines, 1)), "masked"))
    hidden: dict[int, str] = {}
    for entry in entries:
        for name, span in entry.fields.items():
            if name.startswith("msgstr") and not entry.message.is_header:
                hidden.update(dict.fromkeys(range(span.line, span.last_line + 1), ""))
                hidden[span.line] = name
    for number, line in enumerate(lines, 1):
        text = hidden.get(number, line).replace("#, fuzzy, ", "#, ")
        if text and text != "#, fuzzy":
            yield text


def is_sound(data: bytes, path: Path) -> bool:
    path.write_bytes(data)
    return (
        subprocess.run(
            ["msgfmt", "-c", "--use-fuzzy", "-o", path.with_suffix(".mo"), path], check=False, capture_output=True
        ).returncode
        == 0
    )


@pytest.mark.parametrize("how", [backwards, strip_codes])
def test_installed_catalogues_can_be_filled(catalogues: list[Path], tmp_path: Path, how) -> None:
    count = 0
    for path in catalogues:
        document = open_document(path, source_language="en", target_language="de")
        new, report = filled(document, how, FillSettings(overwrite=True))
        assert list(masked(new)) == list(masked(document.data)), path
        assert report.translated >= 0.9 * sum(segment.state != State.LOCKED for segment in document.segments)
        count += report.translated
        if shutil.which("msgfmt") and is_sound(document.data, tmp_path / "before.po"):
            assert is_sound(new, tmp_path / "after.po"), path
    assert count
