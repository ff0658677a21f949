"""The commands one after the other on the tiny model, as a user runs them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.cli.memories import describe_artefact
from ibidem.combine import FixedCombiner, load_combiner
from ibidem.decode import SearchSettings, Translator
from ibidem.memory import Memory
from ibidem.model import load_model

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run

CPU = ("--device", "cpu")
QUICK = ("--set", "metak.updates=20", "--set", "contextual.updates=20", "--k", 2, *CPU)
QUICK_LEARN = ("--set", "tune.metak.updates=20", "--set", "tune.contextual.updates=20", "--set", "tune.k=2", *CPU)


def test_from_text_to_translations(ibidem: Run, tmp_path: Path, tiny_folder: Path, few_file: Path) -> None:
    path = tmp_path / "memory"
    learnt = ibidem("learn", "--model", tiny_folder, "--train", few_file, "-o", path, *QUICK_LEARN, "--json")
    assert learnt.code == 0, learnt.err
    assert learnt.err == "read 20 pairs, kept 20\n"
    summary = json.loads(learnt.out)
    assert summary["pairs"] == 20
    assert set(summary["artefacts"]) == {
        *("source_projection", "combiner_fixed", "combiner_adaptive", "combiner_contextual")
    }
    assert summary["stages"]["tune"]["settings"]["metak"]["updates"] == 20

    inspected = ibidem("inspect", "-m", path, "--json")
    assert json.loads(inspected.out) == summary

    verified = ibidem("verify", "-m", path)
    assert (verified.code, verified.err) == (0, "")
    assert "sound" in verified.out
    assert json.loads(ibidem("verify", "-m", path, "--json").out) == []

    sources = [line.split("\t")[0] for line in few_file.read_text("utf-8").splitlines()][:5]
    translated = ibidem("translate", "-m", path, "--beam", 2, stdin="\n".join(sources))
    expected = Translator(memory=path, settings=SearchSettings(beam=2), device="cpu").translate(sources)
    assert (translated.code, translated.err) == (0, "")
    assert translated.lines == expected

    evaluated = ibidem(
        *("evaluate", "-m", path, "--test", few_file, "--beam", 1, "--samples", 10, "--json"),
        *("--combiner", "adaptive", "--combiner", "fixed", "--save", tmp_path / "saved"),
    )
    report = json.loads(evaluated.out)
    assert list(report["systems"]) == ["base", "adaptive", "fixed"]
    assert report["test"] == f"tsv from {few_file}, de to en"
    assert report["sentences"] == 20
    fixed, base = (report["systems"][name] for name in ("fixed", "base"))
    assert set(fixed["p_value_against_base"]) == {"BLEU", "chrF"}
    low, high = fixed["interval_against_base"]["BLEU"]
    assert low <= high
    assert base["interval_against_base"] == {}
    assert (tmp_path / "saved" / "adaptive.txt").read_text("utf-8").count("\n") == 20

    tuned = ibidem("tune", "-m", path, "--dev", few_file, *QUICK, "--set", "metak.validation=same", "--json")
    assert tuned.code == 0, tuned.err
    assert json.loads(tuned.out)["stages"]["tune"]["dev"] == f"tsv from {few_file}, de to en"

    indexed = ibidem("index", "-m", path, "exact", "--json")
    assert json.loads(indexed.out)["stages"]["index"]["setting"] == "exact"
    assert json.loads(indexed.out)["generation"] == json.loads(tuned.out)["generation"] + 1


def test_stages_of_learning_give_what_learn_gives(
    ibidem: Run, tmp_path: Path, tiny_folder: Path, few_file: Path
) -> None:
    model = ("--model", tiny_folder, "--device", "cpu", "--seed", 5)
    ibidem("learn", *model, "--train", few_file, "-o", tmp_path / "once", *QUICK_LEARN)
    assert ibidem("extract", *model, "--train", few_file, "-o", tmp_path / "staged").code == 0
    assert set(Memory.open(tmp_path / "staged").manifest.artefacts) == {"source_projection"}
    ibidem("index", "-m", tmp_path / "staged")
    ibidem("tune", "-m", tmp_path / "staged", *QUICK, "--seed", 5)
    once, staged = Memory.open(tmp_path / "once"), Memory.open(tmp_path / "staged")
    np.testing.assert_array_equal(once.values(), staged.values())
    assert once.manifest.stages == staged.manifest.stages
    for name in ("combiner_fixed", "combiner_adaptive", "combiner_contextual"):
        assert once.artefact(name).path.read_bytes() == staged.artefact(name).path.read_bytes()


def test_two_line_aligned_files(ibidem: Run, tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "a.de").write_text("Hallo\nDatei\n", "utf-8")
    (tmp_path / "a.en").write_text("Hello\nFile\n", "utf-8")
    files = ("--train", tmp_path / "a.de", "--train", tmp_path / "a.en")
    answer = ibidem("extract", "--model", tiny_folder, *files, "-o", tmp_path / "memory", "--json")
    assert json.loads(answer.out)["pairs"] == 2


def test_inspect_is_readable(ibidem: Run, memory: Path) -> None:
    ibidem("index", "-m", memory, "IVF16,SQ8;nprobe=4")
    opened = Memory.open(memory)
    fixed = load_combiner(opened, "fixed")
    assert isinstance(fixed, FixedCombiner)
    shown: dict[str, str] = {}
    for line in ibidem("inspect", "-m", memory).lines:
        cells = line.strip("│").split("│")
        if len(cells) == 2:
            shown.setdefault(cells[0].strip(), cells[1])
    expected = f"k {fixed.k}, weight {fixed.weight:.3g}, temperature {fixed.temperature:.3g}"
    assert shown["fixed combiner"].strip() == expected
    assert shown["index"].strip().startswith("IVF16,SQ8, nprobe 4")
    assert shown["adaptive combiner"].strip().startswith("k 8, hidden 32, temperature ")
    assert shown["contextual combiner"].strip().startswith("k 8, ")
    assert shown["corpus"].strip().startswith("tsv from ")
    # Text is aligned to the left, and none of it is JSON.
    assert all(value.startswith(" ") and not value.startswith("  ") for value in shown.values() if value.strip())
    assert not any(sign in value for value in shown.values() for sign in '{}"')


def test_inspect_divides_bytes_by_all_entries(ibidem: Run, tmp_path: Path, tiny_folder: Path) -> None:
    memory = tmp_path / "memory"
    ibidem("add", "-m", memory, "--model", tiny_folder, "Guten Morgen", "Good morning")
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in ibidem("inspect", "-m", memory).lines]
    [entries] = [int(cells[1].split()[0].replace(",", "")) for cells in lines if cells[0] == "entries"]
    assert entries > 1 > Memory.open(memory).entries  # all are in the journal
    storage = [cells for cells in lines if len(cells) == 3 and cells[1].replace(",", "").isdigit()]
    assert "journal" in [name for name, _, _ in storage]
    for _, size, share in storage:
        assert float(share) == pytest.approx(int(size.replace(",", "")) / entries, abs=0.051)


def test_verify_and_pull_count_the_entries_of_the_journal(ibidem: Run, tmp_path: Path, tiny_folder: Path) -> None:
    memory, bucket = tmp_path / "memory", f"file://{tmp_path}/bucket"
    ibidem("add", "-m", memory, "--model", tiny_folder, "Guten Morgen", "Good morning")
    opened = Memory.open(memory)
    entries = opened.tail.active_entries.sum()
    assert entries > opened.entries == 0
    assert f"sound, {entries:,} entries in" in ibidem("verify", "-m", memory).out
    assert ibidem("push", "-m", memory, bucket).code == 0
    assert f" {entries:,} entries, " in ibidem("pull", "-m", tmp_path / "replica", bucket).out


def test_inspect_explains_what_it_lists() -> None:
    native = {"kind": "native", "lists": 4, "nprobe": 2, "size": 9, "dimension": 8, "recall": 0.9812, "removals": 0}
    assert describe_artefact(native) == "native, lists 4, nprobe 2, finds 98.1% of the 16 nearest keys"
    assert describe_artefact(native | {"recall": None}) == "native, lists 4, nprobe 2"
    assert describe_artefact({"count": 1200}) == "1,200"
    assert describe_artefact({"input_dimension": 1024, "dimension": 64}) == "1,024 dimensions reduced to 64"
    confidence = {"sentences": 500, "unedited": 120, "from_memory": False}
    assert describe_artefact(confidence) == "sentences 500, needing no edit 120, trained on the dev set"
    assert describe_artefact({"from_memory": True}) == "trained on sentences of the memory"


def test_names_in_brackets_are_no_markup(ibidem: Run, tmp_path: Path, memory: Path) -> None:
    odd = memory.rename(tmp_path / "a[bold]b")
    assert ibidem("inspect", "-m", odd).lines[0].rstrip() == str(odd)


def test_the_papers_index_and_its_notes(ibidem: Run, tmp_path: Path, tiny_folder: Path, few_file: Path) -> None:
    memory = tmp_path / "memory"
    ibidem("extract", "--model", tiny_folder, "--train", few_file, "-o", memory)
    entries = Memory.open(memory).entries
    assert 256 <= entries < 39 * 8
    answer = ibidem("index", "-m", memory, "paper", "--json")
    stored = json.loads(answer.out)["artefacts"]["index"]
    assert stored["factory"] == "IVF4,PQ32"
    assert answer.err.splitlines() == stored["notes"]
    assert f"The paper's index has 1024 lists; {entries} keys allow 4" in answer.err
    by_hand = ("--k", 2, "--weight", 0.5, "--temperature", 1)
    assert ibidem("translate", "-m", memory, "--beam", 1, *by_hand, stdin="Hallo\n").code == 0
    assert "nprobe was not given" in ibidem("index", "-m", memory, "IVF4,Flat").err
    assert ibidem("index", "-m", memory, "IVF4,Flat;nprobe=3").err == ""
    assert Memory.open(memory).artefact("index").info["nprobe"] == 3
    assert ibidem("index", "-m", memory, "exact").code == 0
    assert Memory.open(memory).artefact("index") is None


def test_learn_prints_the_notes_of_the_index(ibidem: Run, tmp_path: Path, tiny_folder: Path, few_file: Path) -> None:
    answer = ibidem(
        *("learn", "--model", tiny_folder, "--train", few_file, "-o", tmp_path / "memory", *QUICK_LEARN),
        *("--set", "index=paper"),
    )
    assert answer.code == 0
    counts, *notes = answer.err.splitlines()
    assert counts == "read 20 pairs, kept 20"
    assert notes
    assert notes == Memory.open(tmp_path / "memory").artefact("index").info["notes"]


def test_the_index_command_gives_the_results_of_exact_search(ibidem: Run, memory: Path) -> None:
    """Probing all lists of a flat IVF is exact: the translations must not change."""
    lines = "Die Datei wurde nicht gefunden.\nBitte speichern.\n"
    by_hand = ("--beam", 2, "--k", 4, "--weight", 0.9, "--temperature", 0.1)
    exact = ibidem("translate", "-m", memory, *by_hand, "--index", "exact", stdin=lines)
    ibidem("index", "-m", memory, "IVF16,Flat;nprobe=16")
    assert ibidem("translate", "-m", memory, *by_hand, stdin=lines).out == exact.out
    assert ibidem("translate", "-m", memory, "--beam", 2, stdin=lines).out != exact.out


def test_evaluate_a_given_fixed_combiner(ibidem: Run, memory: Path, few_file: Path) -> None:
    by_hand = ("--k", 2, "--weight", 0.5, "--temperature", 1)
    answer = ibidem(
        *("evaluate", "-m", memory, "--test", few_file, "--beam", 1, "--samples", 5, "--json", *by_hand),
        *("--combiner", "fixed"),
    )
    assert list(json.loads(answer.out)["systems"]) == ["base", "given", "fixed"]


def test_evaluate_prints_a_table_and_signatures(ibidem: Run, tiny_folder: Path, few_file: Path) -> None:
    answer = ibidem("evaluate", "--model", tiny_folder, "--test", few_file, "--beam", 1)
    assert answer.code == 0
    assert "BLEU" in answer.out
    assert "20 sentences, beam 1" in answer.out
    assert [line.split(" ")[0] for line in answer.err.splitlines()] == ["BLEU", "chrF"]


def test_the_memory_changes_the_translation(ibidem: Run, memory: Path, tiny_folder: Path, few_file: Path) -> None:
    """The output of the random model is arbitrary; with all weight on its memory it repeats the stored translations."""
    pairs = [line.split("\t") for line in few_file.read_text("utf-8").splitlines()]
    source, target = next(pair for pair in pairs if pair[1].isascii())  # the tokenizer spells … as ...
    quick = ("--beam", 1, "--dtype", "float32")
    bare = ibidem("translate", "-m", "none", "--model", tiny_folder, *quick, stdin=source)
    by_hand = ("--k", 1, "--weight", 1, "--temperature", 1)
    taught = ibidem("translate", "-m", memory, *quick, *by_hand, stdin=source)
    assert taught.lines == [target]
    assert bare.lines != [target]
    assert bare.lines == Translator(load_model(tiny_folder, device="cpu"), settings=SearchSettings(beam=1)).translate(
        [source]
    )


@pytest.mark.parametrize("command", ["learn", "index"])
def test_no_progress_is_printed_without_a_terminal(
    ibidem: Run, tmp_path: Path, memory: Path, tiny_folder: Path, few_file: Path, command: str
) -> None:
    if command == "index":
        answer = ibidem("index", "-m", memory, "IVF16,SQ8;nprobe=4")
    else:
        answer = ibidem("learn", "--model", tiny_folder, "--train", few_file, "-o", tmp_path / "new", *QUICK_LEARN)
    assert answer.code == 0
    assert answer.err == ("" if command == "index" else "read 20 pairs, kept 20\n")


def test_a_memory_stores_the_prefix_of_its_sources(
    ibidem: Run, tmp_path: Path, tiny_folder: Path, few_file: Path
) -> None:
    path, prefix = tmp_path / "memory", "Bitte: "
    learnt = ibidem(
        *("learn", "--model", tiny_folder, "--train", few_file, "-o", path, *QUICK_LEARN),
        *("--set", f"model.source_prefix={prefix}", "--compact", "svd", "--set", "compact.dimension=5"),
    )
    assert learnt.code == 0, learnt.err
    assert Memory.open(path).identity.source_prefix == prefix
    assert ibidem("tune", "-m", path, "--dev", few_file, *QUICK).code == 0
    plain = ibidem("translate", "-m", path, "--device", "cpu", stdin="Hallo Welt\n")
    given = ibidem("translate", "-m", path, "--device", "cpu", "--source-prefix", prefix, stdin="Hallo Welt\n")
    assert plain.code == 0, plain.err
    assert plain.out == given.out
    other = ibidem("translate", "-m", path, "--device", "cpu", "--source-prefix", "Anders: ", stdin="Hallo Welt\n")
    assert other.code == 1
    assert "--source-prefix TEXT (for `ibidem learn`: --set model.source_prefix=TEXT)" in other.err
