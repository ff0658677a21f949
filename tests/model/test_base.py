"""Keys, values and steps of every architecture, against transformers' own full forward pass; and the fingerprints."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from ibidem.model import BaseModel, States, load_model

from .zoo import KINDS, Texts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def pairs(any_model: BaseModel, texts: Texts) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids of sentences of very different lengths."""
    by_length = sorted(range(len(texts.german)), key=lambda i: len(texts.german[i]))
    rows = [i for i in by_length if len(texts.german[i]) < 70][:: len(by_length) // 10]
    rows = [*rows[::2], *rows[1::2]]
    sources = any_model.tokens.encode_sources(texts.german[i] for i in rows)
    targets = any_model.tokens.encode_targets(texts.english[i] for i in rows)
    assert len({len(ids) for ids in sources}) > 3
    return sources, targets


def forward(model: BaseModel, source: list[int], target: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' logits [t, V] and last decoder states [t, d] that predict the tokens of one target."""
    given = [*model.tokens.start, *target[:-1]]
    with torch.inference_mode():
        output = model.network(
            input_ids=torch.tensor([source]),
            decoder_input_ids=torch.tensor([given]),
            use_cache=False,
            output_hidden_states=True,
        )
    skipped = len(model.tokens.start) - 1
    return output.logits[0, skipped:], output.decoder_hidden_states[-1][0, skipped:]


def test_states_equal_the_full_forward_pass(
    any_model: BaseModel, pairs: tuple[list[list[int]], list[list[int]]], request: pytest.FixtureRequest
) -> None:
    sources, targets = pairs
    states = any_model.states(sources, targets)
    logits = any_model.project(states.keys)
    log_probs = any_model.log_probs(states)
    scale = KINDS[request.node.callspec.params["any_model"]].scale
    row = 0
    for source, target in zip(sources, targets, strict=True):
        expected, hidden = forward(any_model, source, target)
        here = slice(row, row + len(target))
        torch.testing.assert_close(logits[here], expected, atol=5e-4, rtol=1e-4)
        # A key is the input of the output projection: the last hidden state, which tied T5 scales first.
        torch.testing.assert_close(states.keys[here], hidden * scale, atol=1e-4, rtol=1e-4)
        chosen = expected.log_softmax(1).gather(1, torch.tensor(target)[:, None])[:, 0]
        torch.testing.assert_close(log_probs[here], chosen, atol=1e-4, rtol=1e-4)
        assert states.values[here].tolist() == target
        row += len(target)
    assert row == len(states.values) == len(states.keys)
    assert states.lengths == [len(target) for target in targets]


def test_padded_batch_equals_single_sentences(
    any_model: BaseModel, pairs: tuple[list[list[int]], list[list[int]]]
) -> None:
    sources, targets = pairs
    batched = any_model.states(sources, targets)
    alone = [any_model.states([source], [target]) for source, target in zip(sources, targets, strict=True)]
    torch.testing.assert_close(batched.keys, torch.cat([s.keys for s in alone]), atol=1e-4, rtol=1e-4)
    means = torch.cat([s.source_means for s in alone])
    torch.testing.assert_close(batched.source_means, means, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(any_model.start(sources).source_means, means, atol=1e-4, rtol=1e-4)
    assert batched.values.tolist() == [value for s in alone for value in s.values.tolist()]


def test_values_are_target_tokens_with_end_of_sentence(
    any_model: BaseModel, pairs: tuple[list[list[int]], list[list[int]]]
) -> None:
    tokens = any_model.tokens
    states = any_model.states(*pairs)
    ends = torch.tensor(states.lengths).cumsum(0) - 1
    values = states.values
    assert (values[ends] == tokens.eos).all()
    assert (values == tokens.eos).sum() == len(ends)
    assert tokens.pad not in values.tolist()
    for forced in tokens.start[1:]:
        assert forced not in values.tolist()


def test_log_probs_in_blocks(any_model: BaseModel, pairs: tuple[list[list[int]], list[list[int]]], monkeypatch) -> None:
    states = any_model.states(*pairs)
    whole = any_model.log_probs(states)
    monkeypatch.setattr("ibidem.model.base._LOGIT_BYTES", 4 * any_model.vocabulary_size * 7)
    assert max(len(values) for _, values in any_model.logit_blocks(states)) == 7
    torch.testing.assert_close(any_model.log_probs(states), whole, atol=1e-5, rtol=1e-5)
    nothing = States(states.keys[:0], states.values[:0], [], states.source_means[:0])
    assert any_model.log_probs(nothing).shape == (0,)


@pytest.mark.parametrize("beam", [1, 3])
def test_steps_equal_the_teacher_forced_forward_pass(
    any_model: BaseModel, pairs: tuple[list[list[int]], list[list[int]]], beam: int
) -> None:
    """Hypotheses are reordered and sentences are dropped; the results equal those of single sentences."""
    sources = pairs[0][:4]
    draw = random.Random(5)
    decoding = any_model.start(sources, beam)
    rows: list[tuple[list[int], list[int]]] = [(source, []) for source in sources for _ in range(beam)]
    fed = torch.tensor(any_model.tokens.start).expand(len(rows), -1)
    for position in range(40):
        step = decoding.step(fed)
        assert step.states.shape == (len(rows), any_model.dimension)
        torch.testing.assert_close(any_model.project(step.states), step.logits, atol=1e-4, rtol=1e-4)
        for row in draw.sample(range(len(rows)), 2 if len(rows) > 1 else 1):
            source, history = rows[row]
            expected = forward(any_model, source, [*history, any_model.tokens.eos])[0]
            torch.testing.assert_close(step.logits[row], expected[position], atol=2e-3, rtol=1e-3)
        stay = list(range(len(rows) // beam))
        if position % 10 == 7 and len(stay) > 1:
            stay.remove(draw.choice(stay))
        chosen = [sentence * beam + draw.randrange(beam) for sentence in stay for _ in range(beam)]
        decoding.reorder(torch.tensor(chosen))
        words = [draw.randrange(5, any_model.vocabulary_size) for _ in chosen]
        rows = [(rows[parent][0], [*rows[parent][1], word]) for parent, word in zip(chosen, words, strict=True)]
        fed = torch.tensor(words)[:, None]


def test_no_hook_remains_on_the_network(any_model: BaseModel, pairs: tuple[list[list[int]], list[list[int]]]) -> None:
    any_model.states(*pairs)
    any_model.start(pairs[0]).step(torch.tensor(any_model.tokens.start).expand(len(pairs[0]), -1))
    assert not any_model.projection._forward_pre_hooks
    assert not any(parameter.requires_grad for parameter in any_model.network.parameters())
    assert not any_model.network.training


def test_hook_is_removed_after_an_error(any_model: BaseModel) -> None:
    out_of_range = [[any_model.vocabulary_size * 1000]]
    with pytest.raises(IndexError):
        any_model.states(out_of_range, out_of_range)
    assert not any_model.projection._forward_pre_hooks


def test_half_precision_keeps_the_fingerprint(model_of) -> None:
    """A memory of the model in float32 opens with the same model in bfloat16."""
    from ibidem.model import load_model

    whole = model_of("marian")
    rounded = load_model(whole.name, device="cpu", dtype="bfloat16")
    assert rounded.projection.weight.dtype == torch.bfloat16
    assert rounded.fingerprint == whole.fingerprint


def test_fingerprints_are_stable(any_model: BaseModel, request: pytest.FixtureRequest) -> None:
    options = KINDS[request.node.callspec.params["any_model"]].options
    again = load_model(any_model.name, device="cpu", **options)
    assert again.fingerprint == any_model.fingerprint
    assert again.tokenizer_fingerprint == any_model.tokenizer_fingerprint


def test_fingerprints_differ(model_of) -> None:
    loaded = [model_of(kind) for kind in KINDS]
    assert len({model.fingerprint for model in loaded}) == len(KINDS)
    assert len({model.tokenizer_fingerprint for model in loaded}) == len(KINDS)


@pytest.mark.parametrize("name", ["model.decoder.layers.1.fc2.bias", "final_logits_bias", "model.shared.weight"])
def test_one_changed_weight_changes_the_fingerprint(tiny: BaseModel, copied: Path, name: str) -> None:
    weights = load_file(copied / "model.safetensors")
    key = next(key for key in weights if key in (name, name.replace("model.shared", "model.encoder.embed_tokens")))
    weights[key].view(-1)[3] += 0.25
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    changed = load_model(copied, device="cpu")
    assert changed.fingerprint != tiny.fingerprint
    assert changed.tokenizer_fingerprint == tiny.tokenizer_fingerprint


def test_two_swapped_pieces_change_the_tokenizer_fingerprint(tiny: BaseModel, copied: Path) -> None:
    pieces = json.loads((copied / "vocab.json").read_text(encoding="utf-8"))
    first, second = list(pieces)[-2:]
    pieces[first], pieces[second] = pieces[second], pieces[first]
    (copied / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    changed = load_model(copied, device="cpu")
    assert changed.tokenizer_fingerprint != tiny.tokenizer_fingerprint
    assert changed.fingerprint == tiny.fingerprint


def test_another_target_language_changes_the_tokenizer_fingerprint(model_of) -> None:
    model = model_of("m2m100")
    french = load_model(model.name, device="cpu", source_language="de", target_language="fr")
    assert french.tokenizer_fingerprint != model.tokenizer_fingerprint
    assert french.fingerprint == model.fingerprint
