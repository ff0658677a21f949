"""Loading, packing, fingerprints, and the messages of what cannot be loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from ibidem.errors import IbidemError, ModelError, UsageError
from ibidem.model import BaseModel, load_model
from ibidem.model.loading import PACKED_FILE, pack, pack_folder, unpack

from .zoo import KINDS


def refuse(kind: type[IbidemError], name: str | Path, **options: str) -> str:
    """The message of a model that cannot be loaded: one line."""
    with pytest.raises(kind) as caught:
        load_model(name, **{"device": "cpu", **options})
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    """A Marian folder to break."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def test_every_kind_loads(any_model: BaseModel, request: pytest.FixtureRequest) -> None:
    weight = any_model.network.get_output_embeddings().weight
    assert any_model.dimension == 32
    assert any_model.vocabulary_size == any_model.projection.out_features == len(weight)
    assert any_model.device.type == "cpu"
    expected = {
        "bart": True,
        "fsmt": True,
        "marian": True,
        "marian-separate": True,
        "mbart": True,
        "mbart50": True,
    }
    assert any_model.forces_eos == expected.get(request.node.callspec.params["any_model"], False)


def test_marian_bans_its_padding_token(model_of) -> None:
    model = model_of("marian")
    assert model.banned == [model.tokens.pad]


def test_folder_without_config(tmp_path: Path) -> None:
    message = refuse(ModelError, tmp_path)
    assert str(tmp_path) in message
    assert "config.json" in message


def test_file_instead_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    assert "config.json" in refuse(ModelError, tmp_path / "model.bin")


def test_decoder_only_model(tmp_path: Path) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2)).save_pretrained(tmp_path)
    message = refuse(ModelError, tmp_path)
    assert "gpt2" in message
    assert "use a Marian" in message


@pytest.mark.parametrize("name", ["nowhere/no-such-model", "/no/such/folder", "./no-such-folder", "no such name"])
def test_name_that_cannot_be_reached(name: str) -> None:
    message = refuse(ModelError, name)
    assert name in message
    assert "Give a folder" in message


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "vocab.json", "source.spm"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_damaged_folder(copied: Path, file: str, damage: str) -> None:
    content = (copied / file).read_bytes()
    if damage == "missing":
        (copied / file).unlink()
    else:
        ruined = {"empty": b"", "cut": content[: len(content) // 3], "noise": bytes(range(256)) * 4}
        (copied / file).write_bytes(ruined[damage])
    assert str(copied) in refuse(ModelError, copied)


def test_weights_of_another_size(copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text(encoding="utf-8"))
    (copied / "config.json").write_text(json.dumps({**config, "d_model": 64}), encoding="utf-8")
    assert "Give a folder" in refuse(ModelError, copied)


def test_unknown_settings(tiny_folder: Path) -> None:
    assert "float32, float16, bfloat16" in refuse(UsageError, tiny_folder, dtype="int4")
    assert "auto, cpu, cuda" in refuse(UsageError, tiny_folder, device="abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_on_a_machine_without(tiny_folder: Path) -> None:
    assert "--device cpu" in refuse(UsageError, tiny_folder, device="cuda")


@settings(deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 30),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 1e-20, 1e-3, 1.0, 1e6, 1e30]),
)
def test_packing_error_is_at_most_half_a_step(rows: int, columns: int, seed: int, size: float) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    again = unpack(pack({"weight": weight}))["weight"]
    step = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    assert again.dtype == torch.float32
    assert ((again - weight).abs() <= step * 0.5001).all()


def test_packing_keeps_vectors_and_integers() -> None:
    weights = {"bias": torch.tensor([0.5, -2.0]), "count": torch.tensor([[300, 1]])}
    again = unpack(pack(weights))
    assert torch.equal(again["bias"], weights["bias"])
    assert torch.equal(again["count"], weights["count"])


@pytest.mark.parametrize("kind", KINDS)
def test_packed_folder_equals_the_unpacked_weights(model_of, kind: str, tmp_path: Path) -> None:
    """A packed folder loads as a plain folder with the unpacked weights would: weights and settings."""
    plain = model_of(kind)
    pack_folder(Path(plain.name), tmp_path / "packed")
    assert (tmp_path / "packed" / PACKED_FILE).exists()
    assert not (tmp_path / "packed" / "model.safetensors").exists()
    packed = load_model(tmp_path / "packed", device="cpu", **KINDS[kind].options)

    shutil.copytree(plain.name, tmp_path / "expected")
    weights = unpack(pack(load_file(Path(plain.name) / "model.safetensors")))
    save_file(weights, tmp_path / "expected" / "model.safetensors", metadata={"format": "pt"})
    expected = load_model(tmp_path / "expected", device="cpu", **KINDS[kind].options)

    found = dict(packed.network.state_dict())
    for name, weight in expected.network.state_dict().items():
        assert torch.equal(found[name], weight), name
    assert packed.fingerprint == expected.fingerprint
    assert packed.tokenizer_fingerprint == plain.tokenizer_fingerprint
    assert packed.network.generation_config.to_dict() == expected.network.generation_config.to_dict()
    # Tied weights stay one tensor.
    tied = plain.network.get_input_embeddings().weight is plain.projection.weight
    assert (packed.network.get_input_embeddings().weight is packed.projection.weight) == tied


def test_packed_folder_is_readable_by_all_users(tiny_folder: Path, tmp_path: Path) -> None:
    pack_folder(tiny_folder, tmp_path / "packed")
    assert (tmp_path / "packed" / PACKED_FILE).stat().st_mode & 0o044 == 0o044


def test_damaged_packed_folder(tiny_folder: Path, tmp_path: Path) -> None:
    pack_folder(tiny_folder, tmp_path / "packed")
    file = tmp_path / "packed" / PACKED_FILE
    file.write_bytes(file.read_bytes()[:-100])
    assert "Give a folder" in refuse(ModelError, tmp_path / "packed")


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
