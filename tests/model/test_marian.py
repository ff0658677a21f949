"""Marian models that are read without transformers equal those that transformers loads."""

from __future__ import annotations

import json
import shutil
import time
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.model import SHIPPED, BaseModel, Tokens, find_folder, load_model
from ibidem.model.base import fingerprint_network
from ibidem.model.loading import PACKED_FILE, _read_weights, load_pretrained
from ibidem.model.marian import MarianNetwork, MarianTokenizer, read_marian

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINES = [
    "Zwischenablage einfügen",
    ">>de<< Hallo",
    "</s> und <pad>",
    "ΑΒΓ 漢字 🙂",
    "Es gibt 1.234 Dateien – „gut“!",
    "",
]


def read(folder: Path) -> tuple[MarianNetwork, MarianTokenizer] | None:
    return read_marian(folder, lambda: _read_weights(folder, "test"), lambda: load_pretrained("test", folder))


@pytest.fixture(scope="module")
def own() -> tuple[MarianNetwork, MarianTokenizer]:
    found = read(find_folder(SHIPPED))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def full() -> tuple[Any, Any]:
    return load_pretrained("test", find_folder(SHIPPED))


def make_model(parts: tuple[Any, Any]) -> BaseModel:
    network, tokenizer = parts
    return BaseModel("test", network, Tokens(tokenizer, network.config, network.generation_config))


def test_weights_are_the_same(own: Any, full: Any) -> None:
    mine, theirs = dict(own[0].named_parameters()), dict(full[0].named_parameters())
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert fingerprint_network(own[0]) == fingerprint_network(full[0])


def test_tokens_are_the_same(own: Any, full: Any) -> None:
    mine, theirs = make_model(own), make_model(full)
    assert mine.tokenizer_fingerprint == theirs.tokenizer_fingerprint
    for name in ("start", "eos", "pad", "max_source_length", "max_target_length", "source_language", "target_language"):
        assert getattr(mine.tokens, name) == getattr(theirs.tokens, name)
    assert mine.tokens.encode_sources(LINES) == theirs.tokens.encode_sources(LINES)
    assert mine.tokens.encode_targets(LINES) == theirs.tokens.encode_targets(LINES)
    assert mine.tokens.special_ids() == theirs.tokens.special_ids()
    assert mine.banned == theirs.banned
    assert mine.forces_eos == theirs.forces_eos


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 15_999), max_size=12))
def test_decoded_text_is_the_same(own: Any, full: Any, ids: list[int]) -> None:
    assert own[1].decode(ids, skip_special_tokens=True) == full[1].decode(ids, skip_special_tokens=True)
    assert own[1].convert_ids_to_tokens(ids) == full[1].convert_ids_to_tokens(ids)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_states_are_the_same(own: Any, full: Any, dtype: str) -> None:
    model = load_model(device="cpu", dtype=dtype)
    assert isinstance(model._network, MarianNetwork)
    sources = model.tokens.encode_sources(LINES[:2])
    targets = model.tokens.encode_targets(["Paste the clipboard", "Hello"])
    states = model.states(sources, targets)
    if dtype == "float32":
        expected = make_model(full).states(sources, targets)
        assert torch.equal(states.keys, expected.keys)
    network = model.network
    assert type(network).__name__ == "MarianMTModel"
    assert model.network is network
    assert model.projection is network.get_output_embeddings()
    assert torch.allclose(model.states(sources, targets).keys, states.keys)
    assert model.fingerprint == fingerprint_network(own[0])


def change(name: str, **fields: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        file = folder / f"{name}.json"
        content = {**json.loads(file.read_text("utf-8")), **fields}
        file.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), "utf-8")

    return write


@pytest.mark.parametrize(
    "damage",
    [
        change("config", activation_function="gelu"),
        change("config", model_type="bart"),
        change("config", tie_word_embeddings=False),
        change("config", d_model="512"),
        change("config", d_model=256),
        change("config", encoder_layers=5),
        change("config", max_position_embeddings=1 << 40),
        change("config", d_model=1 << 40),
        change("config", d_model=1 << 2000),
        change("config", encoder_layers=1 << 40),
        change("config", encoder_attention_heads=0),
        change("config", decoder_attention_heads=1024),
        change("tokenizer_config", model_max_length=float("inf")),
        change("config", eos_token_id=...),
        change("config", quantization_config={"bits": 4}),
        change("config", auto_map={"AutoModel": "code.Model"}),
        change("tokenizer_config", separate_vocabs=True),
        change("tokenizer_config", extra_special_tokens=["<x>"]),
        change("tokenizer_config", tokenizer_class="BartTokenizer"),
        change("vocab", **{"<unk>": ...}),
        lambda folder: (folder / "vocab.json").write_text("[]"),
        lambda folder: (folder / "generation_config.json").unlink(),
        lambda folder: (folder / "special_tokens_map.json").write_text("{}"),
        lambda folder: (folder / "source.spm").write_bytes(b"damaged"),
        lambda folder: ((folder / PACKED_FILE).unlink(), (folder / PACKED_FILE).write_bytes(b"damaged")),
        lambda folder: (folder / "config.json").write_bytes(b"\xff"),
    ],
)
def test_other_layouts_are_left_to_transformers(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = tmp_path / "model"
    shutil.copytree(find_folder(SHIPPED), folder, ignore=shutil.ignore_patterns("general", PACKED_FILE))
    (folder / PACKED_FILE).symlink_to(find_folder(SHIPPED) / PACKED_FILE)
    damage(folder)
    assert read(folder) is None


def test_several_threads_load_one_network() -> None:
    """As a server does that explains a translation while the first pair is added."""
    model = load_model(device="cpu")
    own = model._network
    assert isinstance(own, MarianNetwork)
    load, loaded = own.load, []

    def load_slowly() -> Any:
        time.sleep(0.1)
        loaded.append(load())
        return loaded[-1]

    own.load = load_slowly
    found: list[tuple[Any, Any]] = []
    threads = [Thread(target=lambda: found.append((model.network, model.projection))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 1
    assert all(network is loaded[0] and projection is loaded[0].lm_head for network, projection in found)
    assert len(found) == 3
