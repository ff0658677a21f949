"""Decoding with a memory: in the own loop, inside `generate()`, and what must not change without one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from ibidem.combine import AdaptiveCombiner, Combiner, FixedCombiner, MetaK, mix, store_adaptive, store_fixed
from ibidem.decode import BaseScorer, MemoryLogitsProcessor, MemoryScorer, Translator, beam_search
from ibidem.decode.mounting import check_identity, load_combiner
from ibidem.errors import MismatchError, UsageError
from ibidem.model import BaseModel, load_model
from ibidem.retrieve import ArrayKeys, ExactIndex

from .oracle import generate, limited, memory_scorer, write_memory

if TYPE_CHECKING:
    from ibidem.memory import Memory

LIMIT = 10


def adaptive() -> AdaptiveCombiner:
    torch.manual_seed(2)
    return AdaptiveCombiner(MetaK(8, scale=20.0).eval().requires_grad_(False), 10.0)


@pytest.fixture(scope="session")
def stored(tiny: BaseModel, sentences: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return write_memory(tiny, sentences[:60], tmp_path_factory.mktemp("stored") / "memory")


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("combiner", [FixedCombiner(4, 0.5, 10.0), adaptive()], ids=["fixed", "adaptive"])
def test_inside_generate_is_the_own_loop(any_model: BaseModel, short: list[Any], beam: int, combiner: Combiner) -> None:
    """Half of the sentences are in the memory, so that it both helps and disturbs."""
    known = short[::2]
    scorer = memory_scorer(any_model, [s.german for s in known], [s.english for s in known], combiner)
    sources = any_model.tokens.encode_sources(s.german for s in short)
    settings = limited(LIMIT, beam)
    found = beam_search(any_model, sources, settings, scorer)
    with MemoryLogitsProcessor(any_model, scorer) as processor:
        expected = generate(any_model, sources, settings, processors=[processor])
    assert [best[0].tokens for best in found] == [best[0][0] for best in expected]
    for best, own in zip(found, expected, strict=True):
        assert own[0][1] is None or best[0].score == pytest.approx(own[0][1], abs=1e-4)
    assert not any_model.projection._forward_pre_hooks
    base = beam_search(any_model, sources, settings, BaseScorer())
    assert [best[0].tokens for best in base] != [best[0].tokens for best in found]


def test_the_processor_obeys_the_processors_before_it(tiny: BaseModel, short: list[Any]) -> None:
    """A word that the caller forbids stays forbidden, though the memory votes for it."""
    scorer = memory_scorer(tiny, [short[0].german], [short[0].english], FixedCombiner(1, 0.99, 1e-5))
    sources = tiny.tokens.encode_sources([short[0].german])
    first = tiny.tokens.encode_targets([short[0].english])[0][0]
    with MemoryLogitsProcessor(tiny, scorer) as processor:
        assert generate(tiny, sources, limited(LIMIT), processors=[processor])[0][0][0][0] == first
        output = tiny.network.generate(
            torch.tensor(sources),
            logits_processor=[processor],
            suppress_tokens=[first],
            num_beams=4,
            max_new_tokens=8,
        )
    assert first not in output[0].tolist()


def test_the_hook_goes_when_generate_fails(tiny: BaseModel, short: list[Any]) -> None:
    scorer = memory_scorer(tiny, [short[0].german], [short[0].english], FixedCombiner(1, 0.5, 1.0))
    with pytest.raises(RuntimeError, match="outside"), MemoryLogitsProcessor(tiny, scorer) as processor:
        processor(torch.zeros(1, 1), torch.zeros(1, tiny.vocabulary_size))
    assert not tiny.projection._forward_pre_hooks


def test_an_empty_memory_is_the_base_model(tiny: BaseModel, short: list[Any]) -> None:
    nothing = ExactIndex(ArrayKeys(np.empty((0, tiny.dimension), np.float16)))
    scorer = MemoryScorer(nothing, torch.empty(0, dtype=torch.long), FixedCombiner(4, 0.9, 1.0))
    sources = tiny.tokens.encode_sources(s.german for s in short)
    assert beam_search(tiny, sources, limited(LIMIT), scorer) == beam_search(
        tiny, sources, limited(LIMIT), BaseScorer()
    )


def test_an_empty_memory_folder_is_the_base_model(tiny: BaseModel, short: list[Any], tmp_path: Path) -> None:
    memory = write_memory(tiny, [], tmp_path / "empty")
    lines = [s.german for s in short]
    assert Translator(tiny, memory).translate(lines) == Translator(tiny).translate(lines)


def test_a_weight_of_nothing_is_the_base_model(tiny: BaseModel, stored: Memory, short: list[Any]) -> None:
    lines = [s.german for s in short]
    mixed = Translator(tiny, stored, combiner=FixedCombiner(4, 0.0, 1.0))
    assert mixed.translate(lines) == Translator(tiny).translate(lines)


def test_k_may_be_larger_than_the_memory(tiny: BaseModel, short: list[Any]) -> None:
    """Three entries and k = 64 is three entries and k = 3."""
    pair = next(s for s in short if len(tiny.tokens.encode_targets([s.english])[0]) >= 3)
    states = tiny.states(tiny.tokens.encode_sources([pair.german]), tiny.tokens.encode_targets([pair.english]))
    index = ExactIndex(ArrayKeys(states.keys[:3].numpy()))
    base = tiny.project(states.keys).log_softmax(dim=1)
    asked = [MemoryScorer(index, states.values[:3], FixedCombiner(k, 0.8, 5.0)).retrieve(states.keys) for k in (64, 3)]
    many, three = (mix(base, votes.weights, votes.values) for votes in asked)
    torch.testing.assert_close(many, three)
    sources = tiny.tokens.encode_sources(s.german for s in short)
    scorer = MemoryScorer(index, states.values[:3], FixedCombiner(64, 0.8, 5.0))
    assert all(best[0].score > -1e3 for best in beam_search(tiny, sources, limited(LIMIT), scorer))


@pytest.mark.parametrize("weight", [0.99, 1.0])
def test_stored_sentences_come_back(tiny: BaseModel, stored: Memory, sentences: list[Any], weight: float) -> None:
    """A random model that trusts its memory says what it holds; its states lie close together."""
    translator = Translator(tiny, stored, combiner=FixedCombiner(4, weight, 1e-5), index="exact")
    fitting = [s for s in sentences[:60] if len(tiny.tokens.encode_targets([s.english])[0]) < 100]
    expected = [tiny.tokens.decode(ids) for ids in tiny.tokens.encode_targets(s.english for s in fitting)]
    assert len(fitting) > 50
    assert translator.translate([s.german for s in fitting]) == expected
    assert Translator(tiny).translate([s.german for s in fitting]) != expected


def test_another_model_is_refused_by_name(
    tiny: BaseModel, model_of, stored: Memory, tiny_folder: Path, tmp_path: Path
) -> None:
    check_identity(stored, tiny)
    with pytest.raises(MismatchError, match="vocabulary size") as caught:
        check_identity(stored, model_of("marian"))
    assert tiny.name in str(caught.value)
    assert model_of("marian").name in str(caught.value)
    other = load_model(tiny_folder, device="cpu")
    with torch.no_grad():
        other.projection.weight[0, 0] += 1
    with pytest.raises(MismatchError, match=r"another state of.*\(model [0-9a-f]{12}, now [0-9a-f]{12}\)"):
        Translator(other, stored, combiner=FixedCombiner(4, 0.5, 1.0))
    assert tmp_path.exists()


def test_another_tokenizer_is_refused_by_name(stored: Memory, tiny_folder: Path, tmp_path: Path) -> None:
    import json
    import shutil

    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    pieces = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    first, second = list(pieces)[-2:]
    pieces[first], pieces[second] = pieces[second], pieces[first]
    (folder / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    with pytest.raises(MismatchError, match=r"\(tokenizer [0-9a-f]{12}\)") as caught:
        Translator(folder, stored, combiner=FixedCombiner(4, 0.5, 1.0), device="cpu")
    assert str(folder) in str(caught.value)
    assert "learn the memory again" in str(caught.value)


def test_a_rounded_model_opens_the_memory(stored: Memory, tiny_folder: Path) -> None:
    rounded = load_model(tiny_folder, device="cpu", dtype="bfloat16")
    assert isinstance(Translator(rounded, stored, combiner=FixedCombiner(4, 0.9, 1.0)).scorer, MemoryScorer)


def test_a_memory_without_a_combiner_fades(tiny: BaseModel, stored: Memory) -> None:
    assert load_combiner(stored) is None
    assert load_combiner(stored, "fading") is None
    assert isinstance(Translator(tiny, stored).scorer, MemoryScorer)
    with pytest.raises(UsageError, match="ibidem tune"):
        Translator(tiny, stored, combiner="adaptive")
    with pytest.raises(UsageError, match="use one of adaptive, fixed, fading"):
        load_combiner(stored, "magic")


def test_the_adaptive_combiner_comes_before_the_fixed_one(
    tiny: BaseModel, sentences: list[Any], tmp_path: Path
) -> None:
    memory = write_memory(tiny, sentences[:5], tmp_path / "memory")
    fixed, trained = store_fixed(FixedCombiner(4, 0.5, 10.0)), store_adaptive(adaptive())
    with memory.edit() as edit:
        edit.put_artefact("combiner_fixed", fixed.extension, fixed.payload, fixed.summary)
        memory = edit.commit()
    assert load_combiner(memory) == FixedCombiner(4, 0.5, 10.0)
    with memory.edit() as edit:
        edit.put_artefact("combiner_adaptive", trained.extension, trained.payload, trained.summary)
        memory = edit.commit()
    chosen = load_combiner(memory)
    assert isinstance(chosen, AdaptiveCombiner)
    assert (chosen.k, chosen.temperature) == (8, 10.0)
    assert load_combiner(memory, "fixed") == FixedCombiner(4, 0.5, 10.0)
    assert len(Translator(tiny, memory).translate(["Datei öffnen", ""])) == 2


def test_a_forced_word_that_no_neighbour_knows(tiny: BaseModel, stored: Memory) -> None:
    translator = Translator(tiny, stored, combiner=FixedCombiner(4, 1.0, 1.0))
    assert translator.translate(["Datei öffnen"], prefixes=["Zebra"])[0].startswith("Zebra")
