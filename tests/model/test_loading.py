"""Loading and packing of models: equal to transformers, without code or pickles, with one-line errors."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, GPT2Config, GPT2LMHeadModel

from ibidem.errors import IbidemError, ModelError, UsageError
from ibidem.model import BaseModel, find_folder, load_model
from ibidem.model.loading import PACKED_FILE, load_pretrained, pack, pack_folder, unpack

from .zoo import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def refuse(kind: type[IbidemError], name: str | Path, **options: str) -> str:
    """Return the error message of `load_model`, which must be one line."""
    with pytest.raises(kind) as caught:
        load_model(name, **{"device": "cpu", **options})
    message = str(caught.value)
    assert "\n" not in message
    return message


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


def test_loading_does_not_change_the_default_dtype(model_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds for all threads: others would make tensors of this dtype."""
    folder = Path(shutil.copytree(model_of("marian").name, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float16"}), "utf-8")
    chosen: list[torch.dtype] = []
    monkeypatch.setattr(torch, "set_default_dtype", chosen.append)
    network, _ = load_pretrained(str(folder), folder)
    assert network.dtype == torch.float32
    assert set(chosen) <= {torch.float32}


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


def test_a_name_that_the_file_system_refuses() -> None:
    with pytest.raises(ModelError, match=r"Cannot (open|load) the model 'a{80}"):
        load_model(300 * "a")
    with pytest.raises(ModelError, match=r"Cannot (open|load) the model 'a{80}"):
        find_folder(300 * "a")


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
    """A packed folder gives the weights and settings of a plain folder with the unpacked weights."""
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


def test_weights_and_settings_equal_those_of_transformers(any_model: BaseModel) -> None:
    expected = AutoModelForSeq2SeqLM.from_pretrained(any_model.name, dtype=torch.float32, trust_remote_code=False)
    found = any_model.network.state_dict()
    assert found.keys() == expected.state_dict().keys()
    assert all(torch.equal(found[name], weight) for name, weight in expected.state_dict().items())
    assert type(any_model.network) is type(expected)
    assert any_model.network.generation_config.to_dict() == expected.generation_config.to_dict()
    assert any_model.network.config._attn_implementation == expected.config._attn_implementation


@pytest.mark.parametrize("kind", ["marian", "bart"])
def test_generation_settings_in_the_configuration(model_of, kind: str, tmp_path: Path) -> None:
    """Older models without generation_config.json have these settings in config.json."""
    folder = Path(shutil.copytree(model_of(kind).name, tmp_path / "old"))
    generation = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({**generation, **config}), encoding="utf-8")
    old, new = load_model(folder, device="cpu"), model_of(kind)
    assert (old.banned, old.forces_eos, old.tokens.start) == (new.banned, new.forces_eos, new.tokens.start)


def test_sharded_weights(model_of, tmp_path: Path) -> None:
    model = model_of("bart")
    model.network.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    for file in Path(model.name).glob("*token*"):
        shutil.copy(file, tmp_path / "sharded")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    assert load_model(tmp_path / "sharded", device="cpu").fingerprint == model.fingerprint


def test_only_needed_files_are_downloaded(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path, pickled: Path, tiny: BaseModel
) -> None:
    """No Python files, pickles or adapters are downloaded from the hub."""
    repositories = {"some/model": tiny_folder, "some/pickle": pickled}
    asked: list[dict[str, Any]] = []

    def download(name: str, **given: Any) -> str:
        asked.append(given)
        return str(repositories[name])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = load_model("some/model", device="cpu")
    assert (model.name, model.fingerprint) == ("some/model", tiny.fingerprint)
    held = [
        *("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "merges.txt", "source.spm"),
        *("spiece.model", "model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"),
    ]
    left = [
        *("modeling.py", "pytorch_model.bin", "tf_model.h5", "rust_model.ot", "adapter_config.json", "flax.msgpack"),
        *("adapter_model.safetensors", "chat_template.jinja", "custom_generate/generate.py", "onnx/config.json"),
        *("fp16/model.safetensors", ".metadata"),
    ]
    patterns = {name: asked[0][name] for name in ("allow_patterns", "ignore_patterns")}
    fetched = list(huggingface_hub.utils.filter_repo_objects([*held, *left], **patterns))
    assert fetched == held
    with pytest.raises(ModelError, match=r"convert it once: `python -m ibidem\.model\.convert some/pickle "):
        load_model("some/pickle", device="cpu")


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Yield all calls in the code of the package: the place, the call, and the called name."""
    for part in ("src", "recipes", "benchmarks", "demo"):
        for file in sorted((ROOT / part).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", node, ast.unparse(node.func)


def keyword_value(call: ast.Call, name: str) -> Any:
    """Return the literal value of a keyword argument; None where it is missing."""
    return next((ast.literal_eval(word.value) for word in call.keywords if word.arg == name), None)


_EXECUTOR = ("src/ibidem/executor/local.py", "src/ibidem/executor/worker.py")


def test_nothing_is_loaded_in_an_unsafe_way() -> None:
    wrong, seen = [], 0
    for place, call, name in calls():
        last = name.split(".")[-1]
        if last in ("from_pretrained", "from_config", "snapshot_download", "hf_hub_download", "pipeline"):
            seen += 1
            trusted = last.startswith("from_") and keyword_value(call, "trust_remote_code") is not False
            if trusted or not any(allowed in place for allowed in ("model/loading.py", "benchmarks/learnt_metric.py")):
                wrong.append(f"{place}: {name} outside of loading.py, or without trust_remote_code=False")
        has_weights = last == "from_pretrained" and "state_dict" in ast.unparse(call)
        if has_weights and keyword_value(call, "use_safetensors") is not True:
            wrong.append(f"{place}: {name} without use_safetensors=True")
        if name == "torch.load" and keyword_value(call, "weights_only") is not True:
            wrong.append(f"{place}: {name} without weights_only=True")
        if name in ("np.load", "numpy.load") and keyword_value(call, "allow_pickle"):
            wrong.append(f"{place}: {name} with allow_pickle")
        between = last == "loads" and place.startswith(_EXECUTOR)  # a driver and the workers that it started
        if not between and name in (
            "eval",
            "exec",
            "pickle.load",
            "pickle.loads",
            "joblib.load",
            "yaml.load",
            "yaml.unsafe_load",
        ):
            wrong.append(f"{place}: {name}")
    assert wrong == []
    assert seen >= 6
