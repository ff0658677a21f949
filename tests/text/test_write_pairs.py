"""Written pairs are read back with their origins."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.text import Corpus, Pair, Written, corpus, write_pairs
from ibidem.text.pair import join_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAIRS = [
    Pair("Ein <b>Haus</b> & mehr", 'A "house" > more', "a.tmx", 4),
    Pair("€ 😀 Größe", "size ]]>", "ordner/b c.tsv", 0),
    Pair("x", "y", "-", 2**40),
]


def write(pairs: Sequence[Pair], path: Path, **options: str) -> Written:
    return write_pairs(pairs, path, source_language="de", target_language="en", **options)


@pytest.mark.parametrize("ending", ["tmx", "jsonl"])
def test_pairs_come_back_with_their_origins(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    assert write(PAIRS, path) == Written(3, 0)
    assert list(Corpus([path])) == PAIRS
    assert [(pair.source, pair.target) for pair in Corpus([path], source_language="en", target_language="de")] == [
        (pair.target, pair.source) for pair in PAIRS
    ]


def test_tsv_has_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    assert write([*PAIRS, Pair("a\tb\n", "c", "x", 1)], path) == Written(4, 1)
    found = [(pair.source, pair.target) for pair in Corpus([path])]
    assert found == [*((pair.source, pair.target) for pair in PAIRS), ("a b", "c")]


texts = st.text(st.characters(codec="utf-8"), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.tuples(texts, texts, st.text(st.characters(codec="utf-8"), min_size=1, max_size=9)), max_size=4))
def test_arbitrary_pairs_are_read_back(tmp_path: Path, drawn: list[tuple[str, str, str]]) -> None:
    """Every pair of a corpus is read back; XML alone cannot contain some characters."""
    tidy = [(join_lines(source), join_lines(target), origin) for source, target, origin in drawn]
    pairs = [Pair(source, target, origin, 5) for source, target, origin in tidy if source and target]
    write(pairs, tmp_path / "a.jsonl")
    assert list(Corpus([tmp_path / "a.jsonl"])) == pairs
    written = write(pairs, tmp_path / "a.tmx")
    found = list(Corpus([tmp_path / "a.tmx"]))
    assert len(found) == len(pairs)
    same = [pair for pair, other in zip(pairs, found, strict=True) if pair == other]
    assert len(same) >= len(pairs) - written.mended


def test_characters_that_xml_cannot_contain_are_replaced_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    assert write([Pair("a\x00b\x1bc\ufffe", "d", "e\x01", 1), Pair("a\rb", "c", "x", 1)], path) == Written(2, 1)
    assert list(Corpus([path])) == [Pair("a\ufffdb\ufffdc\ufffd", "d", "e\ufffd", 1), Pair("a\rb", "c", "x", 1)]


def test_the_file_is_valid_tmx_1_4(tmp_path: Path) -> None:
    """Another parser finds what the DTD requires: every attribute, and the order in a unit."""
    path = tmp_path / "a.tmx"
    write(PAIRS, path)
    root = ElementTree.parse(path).getroot()
    assert (root.tag, root.get("version"), [child.tag for child in root]) == ("tmx", "1.4", ["header", "body"])
    required = {"creationtool", "creationtoolversion", "segtype", "o-tmf", "adminlang", "srclang", "datatype"}
    assert set(root[0].keys()) == required
    assert root[0].get("segtype") == "sentence"
    for unit in root[1]:
        assert [child.tag for child in unit] == ["prop", "prop", "tuv", "tuv"]
        assert [next(iter(variant.attrib.values())) for variant in unit[2:]] == ["de", "en"]


def test_an_origin_needs_its_location(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = (
        '{"de": "a", "en": "b", "origin": "x"}',
        '{"de": "a", "en": "b", "origin": "x", "location": "1"}',
        '{"de": "a", "en": "b", "origin": "x", "location": true}',
        '{"de": "a", "en": "b", "origin": "x", "location": -1}',
        '{"de": "a", "en": "b", "origin": "", "location": 1}',
        '{"de": "a", "en": "b", "origin": 3, "location": 1}',
    )
    path.write_text("\n".join(lines), "utf-8")
    assert [(pair.origin, pair.location) for pair in Corpus([path])] == [(str(path), n) for n in range(1, 7)]
    tmx = tmp_path / "a.tmx"
    write(PAIRS[:1], tmx)
    for old, new in ((">4<", ">4x<"), (">4<", f">{'9' * 20}<"), ("x-ibidem-location", "x-other"), (">a.tmx<", "><")):
        tmx.write_text(tmx.read_text("utf-8").replace(old, new), "utf-8")
        [pair] = Corpus([tmx])
        assert (pair.origin, pair.location) == (str(tmx), 6)
        write(PAIRS[:1], tmx)


def test_the_number_of_stated_origins_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_MAX_ORIGINS", 2)
    path = tmp_path / "a.jsonl"
    write([Pair("a", "b", f"{n % 4}", n) for n in range(8)], path)
    read = Corpus([path])
    for _ in range(2):
        assert [pair.origin for pair in read] == ["0", "1", str(path), str(path)] * 2


def test_formats_by_ending_or_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the ending names no format to write\. Choose tsv, jsonl, tmx"):
        write(PAIRS, tmp_path / "a.po")
    with pytest.raises(UsageError, match="'po' is not a format to write"):
        write(PAIRS, tmp_path / "a.tmx", format="po")
    write(PAIRS, tmp_path / "a.x", format="tsv")
    assert [path.name for path in tmp_path.iterdir()] == ["a.x"]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text("before")

    def broken():
        yield PAIRS[0]
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write(broken(), path)
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tmx"]
