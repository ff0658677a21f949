from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import IbidemError, UsageError
from ibidem.text import Pair

if TYPE_CHECKING:
    from types import ModuleType

PO = """\
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: de\\n"

msgid "Delete the {0} volume"
msgstr "Datenträger {0} löschen"

msgid "Create network"
msgstr "Netzwerk erstellen"

msgid "Create network."
msgstr "Netz anlegen."

msgid "Attach %(name)s"
msgstr "Einen Datenträger anhängen"
"""


def load_script() -> ModuleType:
    """Import the script, which is no part of a package."""
    path = Path(__file__).parents[2] / "demo" / "catalogues.py"
    spec = importlib.util.spec_from_file_location("demo_catalogues", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


catalogues = load_script()


def pair(source: str, target: str) -> Pair:
    return Pair(source, target, "memory", 1)


@pytest.fixture
def wheel_path(tmp_path: Path) -> Path:
    """A wheel with one German catalogue among other files."""
    path = tmp_path / "cache" / "tiny_cloud-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/locale/de/LC_MESSAGES/django.po", PO)
        archive.writestr("tiny/locale/fr/LC_MESSAGES/django.po", PO)
        archive.writestr("tiny/__init__.py", "")
    return path


def pin(path: Path) -> object:
    return catalogues.Wheel("tiny-cloud", "1.0", hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_cached_wheel_needs_no_network(wheel_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogues.subprocess, "run", lambda *_, **__: pytest.fail("pip was called"))

    assert catalogues.fetch(pin(wheel_path), wheel_path.parent) == wheel_path


def test_a_damaged_wheel_is_named(wheel_path: Path) -> None:
    wheel = pin(wheel_path)
    wheel_path.write_bytes(wheel_path.read_bytes()[:-1])

    with pytest.raises(IbidemError, match=r"tiny_cloud-1\.0.*sha256.*Delete it"):
        catalogues.fetch(wheel, wheel_path.parent)


def test_no_network_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Port 9 of this machine is an index that cannot be reached.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(catalogues, "WHEELS", (catalogues.Wheel("tiny-cloud", "1.0", "0" * 64),))

    assert catalogues.main([str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith("error: Could not download tiny-cloud==1.0")
    assert "Check the network" in message


def test_only_german_catalogues_are_unpacked(wheel_path: Path, tmp_path: Path) -> None:
    paths = catalogues.unpack(wheel_path, tmp_path / "out")

    assert paths == [tmp_path / "out" / "tiny" / "locale" / "de" / "LC_MESSAGES" / "django.po"]
    assert paths[0].read_text(encoding="utf-8") == PO


def test_a_wheel_without_catalogues_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("tiny/locale/fr/LC_MESSAGES/django.po", PO)

    with pytest.raises(IbidemError, match="holds no German catalogue"):
        catalogues.unpack(tmp_path / "empty.whl", tmp_path)


def test_normalising_keeps_letters_and_digits_only() -> None:
    assert catalogues.normalise("„Größe“: 10 GB …") == catalogues.normalise("größe 10gb")
    assert catalogues.normalise("— … —") == ""


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        ("Netzwerk erstellen", "Create network", None),
        ("%(name)s löschen, %s", "Delete %s, %(name)s", None),
        ("50 % der Fälle", "50% of cases", None),
        ("{{ name }} löschen", "Delete {{ name }}", None),
        ("<b>Achtung</b>: neu", "<b>Attention</b>: new", None),
        ("…", "…", "no letters"),
        ("Wort " * 61, "short", "too long"),
        ("<p>Ein <b>Wort</b></p>", "A word", "markup"),
        ("{name} löschen", "Delete {title}", "placeholders differ"),
        ("Löschen", "Delete %(name)s", "placeholders differ"),
        ("%s von %s", "%s", "placeholders differ"),
    ],
)
def test_faults(source: str, target: str, fault: str | None) -> None:
    assert catalogues.find_fault(pair(source, target)) == fault


def test_the_filter_keeps_each_source_and_target_once_over_all_catalogues() -> None:
    pair_filter = catalogues.PairFilter()

    assert len(pair_filter.select([pair("Netz anlegen", "Create network"), pair("Netz anlegen!", "Add network")])) == 1
    assert pair_filter.select([pair("Netzwerk erstellen", "create network.")]) == []
    assert pair_filter.select([pair("Netz löschen", "Delete network")]) == [pair("Netz löschen", "Delete network")]
    assert pair_filter.dropped == {"repeated": 2}


def test_the_split_is_disjoint_complete_and_ordered() -> None:
    pairs = [pair(f"Quelle {number}", f"target {number}") for number in range(40)]
    parts = catalogues.split(pairs, held_out=10)

    assert {name: len(part) for name, part in parts.items()} == {"train": 20, "dev": 10, "test": 10}
    assert {p for part in parts.values() for p in part} == set(pairs)
    for part in parts.values():
        assert part == sorted(part, key=pairs.index)


def test_the_split_depends_on_the_seed_and_not_on_the_order() -> None:
    pairs = [pair(f"Quelle {number}", f"target {number}") for number in range(40)]
    test = set(catalogues.split(pairs, held_out=10)["test"])

    assert set(catalogues.split(pairs[::-1], held_out=10)["test"]) == test
    assert set(catalogues.split(pairs, held_out=10, seed=2)["test"]) != test


def test_too_few_pairs_for_a_split_are_refused() -> None:
    with pytest.raises(UsageError, match="20 pairs cannot give 10 each"):
        catalogues.split([pair(f"Quelle {number}", f"target {number}") for number in range(20)], held_out=10)


def test_the_whole_run_writes_the_same_files_twice(
    wheel_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = "".join(f'\nmsgid "Delete volume {n}"\nmsgstr "Datenträger {n} löschen"\n' for n in range(1, 1101))
    with zipfile.ZipFile(wheel_path, "w") as archive:
        archive.writestr("tiny/locale/de/LC_MESSAGES/django.po", PO + entries)
    monkeypatch.setattr(catalogues, "WHEELS", (pin(wheel_path),))
    output = tmp_path / "out"

    written = []
    for _ in range(2):
        assert catalogues.main([str(output), "--cache", str(wheel_path.parent)]) == 0
        written.append({name: (output / f"{name}.tsv").read_bytes() for name in ("train", "dev", "test")})

    assert written[0] == written[1]
    lines = {name: text.decode().splitlines() for name, text in written[0].items()}
    assert {name: len(part) for name, part in lines.items()} == {"train": 102, "dev": 500, "test": 500}
    assert all(len(line.split("\t")) == 2 for part in lines.values() for line in part)
    assert "Netzwerk erstellen\tCreate network" in [line for part in lines.values() for line in part]
    assert "1 repeated, 1 placeholders differ" in capsys.readouterr().out
