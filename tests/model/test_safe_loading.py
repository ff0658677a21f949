"""Reading models through transformers: as transformers reads them, but never code or pickles."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from ibidem.errors import ModelError, UsageError
from ibidem.model import BaseModel, load_model
from ibidem.model.convert import convert, main

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


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
    """Models of before generation_config.json have these settings in config.json."""
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


@pytest.fixture
def pickled(tiny_folder: Path, tmp_path: Path) -> Path:
    """A Marian folder as many are on the hub, with its weights as a pickle alone."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "pickled"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_pickle_can_be_converted(pickled: Path, tiny: BaseModel, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model\.safetensors.*python -m ibidem\.model\.convert"):
        load_model(pickled, device="cpu")
    convert(str(pickled), tmp_path / "converted")
    assert not list((tmp_path / "converted").glob("*.bin"))
    converted = load_model(tmp_path / "converted", device="cpu")
    assert converted.fingerprint == tiny.fingerprint
    assert converted.tokenizer_fingerprint == tiny.tokenizer_fingerprint
    assert converted.banned == tiny.banned


def test_conversion_refuses_other_files(pickled: Path, tiny_folder: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with pytest.raises(ModelError, match=r"no pytorch_model\.bin"):
        convert(str(tiny_folder), new)
    with pytest.raises(UsageError, match="exists already"):
        convert(str(pickled), tiny_folder)
    (pickled / "pytorch_model.bin").write_bytes(b"noise")
    with pytest.raises(ModelError, match="is damaged"):
        convert(str(pickled), new)
    torch.save({"weight": torch.zeros(1), "code": subprocess.Popen}, pickled / "pytorch_model.bin")
    with pytest.raises(ModelError, match="may be code"):
        convert(str(pickled), new)
    assert not new.exists()


def test_conversion_command(
    pickled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["convert", str(pickled / "nowhere"), str(tmp_path / "new")])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert err.startswith(f"error: Cannot load the model '{pickled / 'nowhere'}'")
    assert err.count("\n") == 1
    monkeypatch.setattr(sys, "argv", ["convert", str(pickled), str(tmp_path / "new")])
    main()
    assert str(tmp_path / "new") in capsys.readouterr().out
    assert (tmp_path / "new" / "model.safetensors").is_file()


def test_only_needed_files_are_downloaded(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path, pickled: Path, tiny: BaseModel
) -> None:
    """No Python files, pickles or adapters come from the hub, whatever a repository holds."""
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
    """All calls in code that is shipped or run by users: the place, the call, and the name that is called."""
    for part in ("src", "recipes", "benchmarks", "demo"):
        for file in sorted((ROOT / part).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", node, ast.unparse(node.func)


def said(call: ast.Call, name: str) -> Any:
    """The literal that a keyword argument is given, None where it is not given."""
    return next((ast.literal_eval(word.value) for word in call.keywords if word.arg == name), None)


def test_nothing_is_loaded_in_an_unsafe_way() -> None:
    wrong, seen = [], 0
    for place, call, name in calls():
        last = name.split(".")[-1]
        if last in ("from_pretrained", "from_config", "snapshot_download", "hf_hub_download", "pipeline"):
            seen += 1
            trusted = last.startswith("from_") and said(call, "trust_remote_code") is not False
            if "model/loading.py" not in place or trusted:
                wrong.append(f"{place}: {name} outside of loading.py, or without trust_remote_code=False")
        has_weights = last == "from_pretrained" and "state_dict" in ast.unparse(call)
        if has_weights and said(call, "use_safetensors") is not True:
            wrong.append(f"{place}: {name} without use_safetensors=True")
        if name == "torch.load" and said(call, "weights_only") is not True:
            wrong.append(f"{place}: {name} without weights_only=True")
        if name in ("np.load", "numpy.load") and said(call, "allow_pickle"):
            wrong.append(f"{place}: {name} with allow_pickle")
        if name in ("eval", "exec", "pickle.load", "pickle.loads", "joblib.load", "yaml.load", "yaml.unsafe_load"):
            wrong.append(f"{place}: {name}")
    assert wrong == []
    assert seen >= 6
