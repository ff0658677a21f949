"""Tuning end to end on the tiny model: the chosen combiners are stored and can be loaded."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.combine import (
    AdaptiveCombiner,
    ContextualCombiner,
    ContextualNetwork,
    EntryTable,
    FixedCombiner,
    load_combiner,
    load_entry_table,
)
from ibidem.decode import Translator
from ibidem.errors import MismatchError, TextError, UsageError
from ibidem.evaluate import score
from ibidem.learn import (
    ContextualSettings,
    LearnSettings,
    MetaKSettings,
    TuneSettings,
    extract,
    gather_examples,
    index_memory,
    learn,
    tune,
    tune_fixed,
)
from ibidem.learn.combiner_training import mixture_loss
from ibidem.learn.tuning import read_dev, sample_dev, tune_contextual
from ibidem.memory import Memory
from ibidem.progress import silent
from ibidem.retrieve import open_index
from ibidem.text import Corpus

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.model import BaseModel

QUICK = MetaKSettings(updates=30, validate_every=10, validation="same")
BRIEF = ContextualSettings(updates=30, validate_every=10)


@pytest.fixture
def memory(tmp_path: Path, learnt: Memory) -> Memory:
    """A copy of the learnt memory that may be changed."""
    return Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))


@pytest.fixture
def dev(tmp_path: Path, sentences) -> Corpus:
    file = tmp_path / "dev.tsv"
    rows = [s for s in sentences if len(s.german) < 60][:6]
    file.write_text("".join(f"{s.german}\t{s.english}.\n" for s in rows), encoding="utf-8")
    return Corpus([file])


def test_both_combiners_are_stored_as_they_were_chosen(memory: Memory, dev: Corpus, tiny: BaseModel) -> None:
    tuned = tune(memory, tiny, dev, settings=TuneSettings(k=4, metak=QUICK, contextual=BRIEF))
    report = tuned.manifest.stages["tune"]
    read = read_dev(dev)
    examples = gather_examples(
        tiny,
        open_index(tuned, None, tiny.device),
        EntryTable(torch.from_numpy(tuned.values().astype(np.int64))),
        read.sources,
        read.targets,
        4,
    )
    assert report["tokens"] == len(examples)
    assert report["loss_base"] == pytest.approx(float(-examples.base_gold.mean()), rel=1e-6)
    fixed = load_combiner(tuned, "fixed")
    assert isinstance(fixed, FixedCombiner)
    best = tune_fixed(examples)[0]
    assert (fixed.k, fixed.weight) == (best.combiner.k, best.combiner.weight)
    assert fixed.temperature == pytest.approx(best.combiner.temperature)
    adaptive = load_combiner(tuned, "adaptive")
    assert isinstance(adaptive, AdaptiveCombiner)
    assert adaptive.k == 4
    loss = float(mixture_loss(adaptive.network, examples, adaptive.temperature, 0.0).mean())
    assert report["loss_adaptive_validation"] == pytest.approx(loss, rel=1e-5)
    assert isinstance(load_combiner(tuned, context=False), AdaptiveCombiner)
    assert isinstance(load_combiner(tuned), ContextualCombiner)


def test_tuning_without_a_contextual_combiner_removes_an_older_one(
    memory: Memory, dev: Corpus, tiny: BaseModel
) -> None:
    assert isinstance(load_combiner(memory), ContextualCombiner)
    untrained = ContextualSettings(updates=0)
    tuned = tune(memory, tiny, dev, settings=TuneSettings(k=4, metak=QUICK, contextual=untrained))
    assert isinstance(load_combiner(tuned), AdaptiveCombiner)
    assert tuned.manifest.stages["tune"].get("contextual") is None


def test_few_sampled_pairs_change_the_general_combiner_little(
    memory: Memory, tiny: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With half of the trusted pairs, the weights lie halfway between the general and the trained ones."""
    sampled = sample_dev(memory, 10)
    examples = gather_examples(
        tiny,
        open_index(memory, None, tiny.device),
        load_entry_table(memory, tiny.device),
        sampled.sources,
        sampled.targets,
        4,
        hidden=sampled.hidden,
    )
    torch.manual_seed(0)
    general = ContextualNetwork(4, examples.typical_distance()).requires_grad_(False)
    monkeypatch.setattr(tiny, "general", memory.path)
    monkeypatch.setattr(
        "ibidem.learn.tuning.load_general_combiner", lambda _: ContextualCombiner(copy.deepcopy(general))
    )
    monkeypatch.setattr("ibidem.learn.tuning.is_general", lambda *_: True)

    def tuned(trusted: int) -> torch.Tensor:
        contextual = replace(BRIEF, updates=100, trusted_pairs=trusted)
        settings = TuneSettings(k=4, metak=QUICK, contextual=contextual)
        found = tune_contextual(examples, tiny, memory, settings, sampled=True, progress=silent)
        assert found is not None
        return torch.nn.utils.parameters_to_vector(found.combiner.network.parameters())

    start = torch.nn.utils.parameters_to_vector(general.parameters())
    assert not torch.allclose(tuned(1), start, atol=1e-4)
    assert torch.allclose(tuned(20), (tuned(1) + start) / 2, atol=1e-6)
    assert torch.equal(tuned(1), tuned(10))


def test_tuning_is_deterministic(memory: Memory, tiny: BaseModel) -> None:
    settings = TuneSettings(k=2, sampled_pairs=20, metak=QUICK, contextual=BRIEF)
    first = tune(memory, tiny, settings=settings)
    payloads = [first.artefact(f"combiner_{name}").path.read_bytes() for name in ("fixed", "adaptive", "contextual")]
    assert tune(first, tiny, settings=settings).generation == first.generation  # done already
    second = tune(first, tiny, settings=settings, again=True)
    assert second.generation == first.generation + 1
    assert payloads == [
        second.artefact(f"combiner_{name}").path.read_bytes() for name in ("fixed", "adaptive", "contextual")
    ]
    assert second.manifest.stages["tune"] == first.manifest.stages["tune"]


def test_the_entries_of_sampled_pairs_are_hidden(learnt: Memory) -> None:
    sampled = sample_dev(learnt, 40)
    assert len(sampled.sources) == len(set(sampled.hidden)) == 40
    for source, target, entries in zip(sampled.sources, sampled.targets, sampled.hidden, strict=True):
        pair = learnt.sentence(learnt.locate(entries.start)[0])
        assert (pair.source, pair.target, pair.entries) == (source, target, entries)
    assert sample_dev(learnt, 40) == sampled
    assert len(sample_dev(learnt, 10**6).sources) == learnt.pairs


def test_tuning_by_bleu(memory: Memory, dev: Corpus, tiny: BaseModel) -> None:
    settings = TuneSettings(k=2, objective="bleu", bleu_sentences=3, metak=QUICK, contextual=BRIEF)
    tuned = tune(memory, tiny, dev, settings=settings)
    tried = tuned.manifest.stages["tune"]["bleu_search"]
    assert len(tried) >= 7
    chosen = load_combiner(tuned, "fixed")
    read = read_dev(dev)
    translator = Translator(tiny, tuned, combiner=chosen, batch_size=64)
    bleu = score(translator.translate(read.sources[:3]), read.targets[:3])[0].value
    assert bleu == pytest.approx(max(row["bleu"] for row in tried), abs=1e-6)


def test_invalid_tuning_is_refused(tmp_path: Path, memory: Memory, tiny: BaseModel) -> None:
    with pytest.raises(UsageError, match="--dev"):
        tune(memory, tiny, settings=TuneSettings(objective="bleu"))
    with pytest.raises(UsageError, match="likelihood, bleu"):
        TuneSettings(objective="comet")
    for text, message in (("", "holds no pair"), (f"{'Wort ' * 200}\tWord\n", "short enough")):
        file = tmp_path / "dev.tsv"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(TextError, match=message):
            tune(memory, tiny, Corpus([file]))
    (tmp_path / "one.tsv").write_text("Hallo\tHello\n", encoding="utf-8")
    single = extract(tiny, Corpus([tmp_path / "one.tsv"]), tmp_path / "single")
    with pytest.raises(UsageError, match="too few pairs"):
        tune(single, tiny)
    assert memory.refresh().generation == memory.generation


def test_another_models_memory_is_not_tuned(memory: Memory, tiny_folder: Path) -> None:
    import torch

    from ibidem.model import load_model

    other = load_model(tiny_folder, device="cpu")
    with torch.no_grad():
        other.projection.weight[5, 5] += 1e-3
    with pytest.raises(MismatchError, match="learnt with another state of"):
        tune(memory, other)


def test_a_pair_with_a_duplicate_is_not_sampled(tmp_path: Path, tiny: BaseModel) -> None:
    """The entries of its duplicate would contain the reference, although its own entries are hidden."""
    file = tmp_path / "twins.tsv"
    lines = ["Hallo\tHello", "Welt\tWorld", "Hallo\tHello", "Baum\tTree", "Ein Baum\tTree", "Haus\tHouse"]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    memory = extract(tiny, Corpus([file]), tmp_path / "memory")
    assert sample_dev(memory, 10).sources == ["Welt", "Haus"]


def test_learning_again_repeats_what_changed(memory: Memory, dev: Corpus, tiny: BaseModel, corpus_file: Path) -> None:
    first = LearnSettings(tune=TuneSettings(k=4, metak=QUICK, contextual=BRIEF))
    tuned = learn(tiny, Corpus([corpus_file]), memory.path, dev=dev, seed=1, settings=first)
    again = learn(tiny, Corpus([corpus_file]), memory.path, dev=dev, seed=1, settings=first)
    assert again.generation == tuned.generation
    other = LearnSettings(tune=TuneSettings(k=2, metak=QUICK, contextual=BRIEF), index="Flat")
    changed = learn(tiny, Corpus([corpus_file]), memory.path, dev=dev, seed=1, settings=other)
    assert load_combiner(changed, "adaptive").k == 2
    assert changed.manifest.stages["index"]["setting"] == "Flat"
    with pytest.raises(MismatchError, match="started with the seed 1"):
        learn(tiny, Corpus([corpus_file]), memory.path, dev=dev, seed=2, settings=other)


def test_an_unfinished_memory_is_refused(memory: Memory, dev: Corpus, tiny: BaseModel) -> None:
    with memory.edit() as edit:
        edit.set_complete(False)
        unfinished = edit.commit()
    for use in (
        lambda: tune(unfinished, tiny, dev, settings=TuneSettings(metak=QUICK, contextual=BRIEF)),
        lambda: index_memory(unfinished, "Flat"),
        lambda: Translator(tiny, unfinished),
    ):
        with pytest.raises(UsageError, match="is unfinished: run the `ibidem learn`"):
            use()
