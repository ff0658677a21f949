"""The check of whole corpora by their texts, with each defect put in on purpose."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ibidem.check import Action, CheckSettings, TextCheck, check_texts
from ibidem.check.alignment import Alignment
from ibidem.text import Corpus, Pair

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.check import Finding

FIRST, LAST = 0, 256


@pytest.fixture(scope="module")
def texts(sentences) -> list[tuple[str, str]]:
    return [(one.german, one.english) for one in sentences]


def pairs_of(texts: list[tuple[str, str]]) -> list[Pair]:
    return [Pair(source, target, "a.tsv", number + 1) for number, (source, target) in enumerate(texts)]


def findings(texts: list[tuple[str, str]], held_out: list[tuple[str, str]] | None = None) -> dict[str, Finding]:
    check = TextCheck(("de", "en"), held_out=pairs_of(held_out or []))
    for pair in pairs_of(texts):
        check.add(pair)
    return {finding.name: finding for finding in check.findings() if finding.action is not Action.NOTE}


def test_good_text_passes(texts: list[tuple[str, str]]) -> None:
    assert findings(texts) == {}


def test_exchanged_sides_are_refused(texts: list[tuple[str, str]]) -> None:
    found = findings([(target, source) for source, target in texts])["swapped"]
    assert found.action is Action.REFUSE
    assert found.count > 0.6 * len(texts)
    assert found.examples[0].place.startswith("a.tsv:")


def test_a_few_exchanged_pairs_are_a_warning(texts: list[tuple[str, str]]) -> None:
    mixed = [
        (target, source) if number % 10 == 0 else (source, target) for number, (source, target) in enumerate(texts)
    ]
    found = findings(mixed)
    assert found["swapped"].action is Action.WARN
    assert "shifted" not in found


@pytest.mark.parametrize("lost", ["source", "target"])
@pytest.mark.parametrize("place", [0, 150])
def test_a_missing_line_is_found(texts: list[tuple[str, str]], lost: str, place: int) -> None:
    sources, targets = [source for source, _ in texts], [target for _, target in texts]
    del (sources if lost == "source" else targets)[place]
    found = findings(list(zip(sources, targets, strict=False)))["shifted"]
    assert found.action is Action.REFUSE
    assert abs(found.count - (len(texts) - place)) <= 80
    line = int(found.message.partition("a.tsv:")[2].split()[0])
    assert abs(line - place) <= 80
    assert f"is 1 {'above' if lost == 'target' else 'below'}" in found.message


def test_sides_in_different_orders_are_refused(texts: list[tuple[str, str]]) -> None:
    targets = [target for _, target in texts]
    random.Random(1).shuffle(targets)
    found = findings([(source, target) for (source, _), target in zip(texts, targets, strict=True)])
    assert found["unrelated"].action is Action.REFUSE


def test_alignment_is_not_judged_across_gaps(texts: list[tuple[str, str]]) -> None:
    alignment = Alignment()
    for number, pair in enumerate(pairs_of(texts)):
        if number % 20 == 0:
            alignment.skip()
        alignment.add(pair)
    assert alignment.find_parts() == []


def test_repetitions_contradictions_and_leaks(texts: list[tuple[str, str]]) -> None:
    wrong = (texts[0][0], "This is something else.")
    check = TextCheck(("de", "en"), held_out=pairs_of(texts[:5]))
    wrong_later = ("Die Datei wird nicht noch einmal geladen.", "This is something else.")
    twice = [(wrong_later[0], "The file is not loaded again.")] * 2
    for pair in pairs_of([*texts, texts[1], wrong, *twice, wrong_later]):
        check.add(pair)
    found = {finding.name: finding.count for finding in check.findings()}
    assert found["duplicate"] == 2
    assert found["contradiction"] == 2
    assert found["in the dev set"] == 7
    select = check.new_filter()()
    unchanged = [select(pair) for pair in pairs_of([texts[9], texts[9], wrong_later, texts[0]])]
    assert [one if isinstance(one, str) else "kept" for one in unchanged] == [
        "kept",
        "duplicate",
        "contradiction",
        "in the dev set",
    ]


def test_the_filter_mends_or_leaves_out() -> None:
    check = TextCheck(("de", "en"))
    select = check.new_filter()()
    german, english = "Die Datei wurde nicht gefunden.", "The file was not found."
    for source, target, expected in (
        (german, english, (german, english)),
        (english.replace("file", "window"), german.replace("Datei", "Seite"), "exchanged"),
        (english, german, "duplicate"),
        ("Die TÃ¼r ist nicht offen.", "The door is not open.", ("Die Tür ist nicht offen.", "The door is not open.")),
        ("Die T\ufffdr ist nicht offen.", "The door is not open.", "mojibake"),
        (german, german, "untranslated"),
        ("12", "12", "no words"),
    ):
        found = select(Pair(source, target, "a.tsv", 1))
        if expected == "exchanged":
            assert found == Pair(target, source, "a.tsv", 1)
        elif isinstance(expected, str):
            assert found == expected
        else:
            assert isinstance(found, Pair)
            assert (found.source, found.target) == expected


def test_limits(texts: list[tuple[str, str]], tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in texts * 8), "utf-8")
    settings = CheckSettings(dense_pairs=64, memory_pairs=10, sample=20, seed=3)
    report, check = check_texts(Corpus([path]), settings=settings)
    assert (report.complete, report.read, len(check.sample)) == (True, len(texts) * 8, 20)
    assert all(pairs_of(texts)[one.number % len(texts)].source == one.pair.source for one in check.sample)
    judged = next(finding for finding in report.findings if finding.name == "duplicate")
    assert judged.count == 7 * 10
    report, _ = check_texts(Corpus([path]), settings=CheckSettings(seconds=0))
    assert (report.complete, report.read) == (False, 1000)
    assert check_texts(Corpus([path]), settings=settings)[1].sample == check.sample
