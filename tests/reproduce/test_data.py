from __future__ import annotations

import gzip
import lzma
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import UsageError
from ibidem.reproduce.data import Data, find_changed, own_sentences, write_cut, write_joined, write_own_data

if TYPE_CHECKING:
    from pathlib import Path

LINES = {"de": "eins\nzwei\n", "en": "one\ntwo\n"}


def write(folder: Path, stem: str, ending: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pack = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress}[ending]
    for language, text in LINES.items():
        (folder / f"{stem}.{language}{ending}").write_bytes(pack(text.encode()))


@pytest.mark.parametrize(
    ("folder", "stem", "domain", "part"),
    [
        ("it", "train", "it", "train"),
        ("IT", "train", "it", "train"),
        ("it-large", "extra", "it-large", "train"),
        ("EMEA", "test", "medical", "test"),
        ("JRC-Acquis", "dev", "law", "dev"),
        ("koran", "valid", "koran", "dev"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".xz", ".gz"])
def test_layouts(tmp_path: Path, folder: str, stem: str, domain: str, part: str, ending: str) -> None:
    write(tmp_path / folder, stem, ending)
    data = Data(tmp_path)
    assert data.has(domain, part)
    assert [(pair.source, pair.target) for pair in data.corpus(domain, part)] == [("eins", "one"), ("zwei", "two")]


def test_a_tsv_file_is_a_part_too(tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "dev.tsv").write_text("eins\tone\n")
    assert [pair.target for pair in Data(tmp_path).corpus("it", "dev")] == ["one"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path / "it", "train")
    (tmp_path / "it" / "test.de").write_text("halb\n")  # its other half is not there
    data = Data(tmp_path)
    assert not data.has("it", "test")
    with pytest.raises(UsageError, match=r"no test text of the domain 'it'"):
        data.corpus("it", "test")
    with pytest.raises(UsageError, match="--data"):
        Data(tmp_path / "nowhere")


def test_the_digest_of_a_text_does_not_depend_on_its_compression(tmp_path: Path) -> None:
    for number, ending in enumerate(["", ".xz", ".gz"]):
        write(tmp_path / str(number) / "it", "train", ending)
    facts = [Data(tmp_path / str(number)).facts("it", "train") for number in range(3)]
    assert len(set(facts)) == 1
    assert facts[0].lines == 2
    (tmp_path / "0" / "it" / "train.en").write_text("one\nthree\n")
    changed = Data(tmp_path / "0")
    known = {"it/train": facts[0].digest, "koran/train": "elsewhere"}
    assert find_changed(known, Data(tmp_path / "1")) is None
    from ibidem.reproduce import data as module

    module._read_facts.cache_clear()
    assert find_changed(known, changed) == "it/train"


def test_joined_and_cut(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a", "train", ".xz")
    write(tmp_path / "data" / "b", "train")
    data = Data(tmp_path / "data")
    joined = write_joined([data.corpus("a", "train"), data.corpus("b", "train")], tmp_path / "joined")
    assert [pair.target for pair in joined] == ["one", "two", "one", "two"]
    cut = write_cut(data, tmp_path / "cut", {"train": 1})
    assert [pair.target for pair in cut.corpus("a", "train")] == ["one"]


def test_our_own_sentences_make_a_data_folder(tmp_path: Path) -> None:
    data = write_own_data(tmp_path)
    sentences = own_sentences()
    assert len(sentences) == 320
    texts = {part: [pair.source for pair in data.corpus("it", part)] for part in ("train", "dev", "test")}
    assert not set(texts["train"]) & set(texts["test"])
    assert all(data.has(domain, "train") for domain in ("it", "koran", "it-large", "general"))
    assert data.has("news", "test")
