"""Model folders that try to run code: nothing of theirs is executed or unpickled, and the refusal is one line."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Run

YES = "y\n" * 20


class Hostile(NamedTuple):
    """A copy of a Marian folder to which hostile code is added; code that is executed writes `marker`."""

    folder: Path
    marker: Path

    @property
    def code(self) -> str:
        """Python code that writes the marker when it is imported, with classes that transformers could load."""
        return (
            f"open({str(self.marker)!r}, 'w').close()\n"
            "from transformers import MarianConfig, MarianMTModel, MarianTokenizer\n"
            "class Config(MarianConfig):\n    model_type = 'trap'\n"
            "class Model(MarianMTModel):\n    config_class = Config\n"
            "class Tokenizer(MarianTokenizer):\n    pass\n"
            "def generate(model, *given, **options):\n    return None\n"
        )

    def write(self, name: str, content: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(content, encoding="utf-8")

    def change(self, name: str, **values: Any) -> None:
        """Set values in a JSON file of the folder, which need not be there yet; None removes one."""
        file = self.folder / name
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        merged = {key: value for key, value in {**known, **values}.items() if value is not None}
        file.write_text(json.dumps(merged), encoding="utf-8")

    def write_pickle(self, name: str) -> None:
        """Write the model's weights as a pickle that also creates the marker when it is read."""
        weights: dict[str, Any] = dict(load_file(self.folder / "model.safetensors"))
        torch.save({**weights, "trap": Trap(self.marker)}, self.folder / name)


class Trap:
    """An object that creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (open, (str(self.marker), "w"))


@pytest.fixture
def hostile(tiny_folder: Path, tmp_path: Path) -> Hostile:
    return Hostile(Path(shutil.copytree(tiny_folder, tmp_path / "model")), tmp_path / "executed")


def all_classes(module: str) -> dict[str, Any]:
    """An auto_map that names the module for everything that transformers loads by itself."""
    return {
        "AutoConfig": f"{module}.Config",
        "AutoModel": f"{module}.Model",
        "AutoModelForSeq2SeqLM": f"{module}.Model",
        "AutoProcessor": f"{module}.Tokenizer",
        "AutoTokenizer": [f"{module}.Tokenizer", None],
    }


def with_own_model(hostile: Hostile) -> None:
    hostile.write("trap.py", hostile.code)
    hostile.change("config.json", model_type="trap", auto_map=all_classes("trap"))


def with_own_model_elsewhere(hostile: Hostile) -> None:
    """The code is named as that of another repository, from which it would be fetched."""
    hostile.write("trap.py", hostile.code)
    hostile.change("config.json", model_type="trap", auto_map=all_classes("other/repository--trap"))


def with_own_tokenizer(hostile: Hostile) -> None:
    hostile.write("trap.py", hostile.code)
    hostile.change("config.json", model_type="trap", auto_map={"AutoTokenizer": ["trap.Tokenizer", None]})
    hostile.change("tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=all_classes("trap"))


def with_a_processor_as_tokenizer(hostile: Hostile) -> None:
    hostile.write("trap.py", hostile.code)
    hostile.change("tokenizer_config.json", tokenizer_class="AutoProcessor", processor_class="Trap")
    for file in ("processor_config.json", "preprocessor_config.json"):
        hostile.change(file, processor_class="Trap", auto_map=all_classes("trap"))


def with_a_tokenizer_of_parts(hostile: Hostile) -> None:
    """A RagTokenizer loads two other tokenizers from folders inside."""
    for part in ("question_encoder", "generator"):
        hostile.write(f"{part}_tokenizer/trap.py", hostile.code)
        hostile.change(f"{part}_tokenizer/tokenizer_config.json", auto_map=all_classes("trap"))
        hostile.change(f"{part}_tokenizer/config.json", model_type="trap", auto_map=all_classes("trap"))
    hostile.change("tokenizer_config.json", tokenizer_class="RagTokenizer")


def with_code_in_a_part(hostile: Hostile) -> None:
    """The encoder of an encoder-decoder is of a type without a model, and names code for one."""
    hostile.write("trap.py", hostile.code)
    part = {"model_type": "encoder-decoder", "auto_map": all_classes("trap"), "name_or_path": str(hostile.folder)}
    hostile.change("config.json", model_type="encoder-decoder", encoder=part, decoder={"model_type": "bert"})


def with_only_a_pickle(hostile: Hostile) -> None:
    hostile.write_pickle("pytorch_model.bin")
    (hostile.folder / "model.safetensors").unlink()


def with_an_index_of_pickles(hostile: Hostile) -> None:
    hostile.write_pickle("trap.bin")
    (hostile.folder / "model.safetensors").unlink()
    hostile.change("model.safetensors.index.json", metadata={}, weight_map={"trap": "trap.bin"})


def with_an_index_outside(hostile: Hostile) -> None:
    (hostile.folder / "model.safetensors").rename(hostile.folder.parent / "outside.safetensors")
    hostile.change("model.safetensors.index.json", metadata={}, weight_map={"trap": "../outside.safetensors"})


def with_quantisation(hostile: Hostile) -> None:
    hostile.change("config.json", quantization_config={"quant_method": "gptq", "bits": 4})


REFUSED = {
    with_own_model: "never runs code",
    with_own_model_elsewhere: "never runs code",
    with_own_tokenizer: "never runs code|Cannot load the model",
    with_a_processor_as_tokenizer: "tokenizer_class 'AutoProcessor' is not a tokenizer",
    with_a_tokenizer_of_parts: "tokenizer_class 'RagTokenizer' is not a tokenizer",
    with_code_in_a_part: "never runs code|Cannot load the model",
    with_only_a_pickle: "python -m ibidem.model.convert",
    with_an_index_of_pickles: "names 'trap.bin', which is not a .safetensors file",
    with_an_index_outside: "names '../outside.safetensors', which is not a .safetensors file",
    with_quantisation: "quantization_config",
}


@pytest.mark.parametrize("prepare", REFUSED, ids=lambda prepare: prepare.__name__)
def test_refused_and_not_executed(fails: Run, hostile: Hostile, prepare: Callable[[Hostile], None]) -> None:
    prepare(hostile)
    error = fails(1, "translate", "--model", hostile.folder, "--device", "cpu", stdin=YES)
    assert str(hostile.folder) in error
    assert any(words in error for words in REFUSED[prepare].split("|")), error
    assert not hostile.marker.exists()


def with_an_additional_pickle(hostile: Hostile) -> None:
    hostile.write_pickle("pytorch_model.bin")


def with_a_pickle_named(hostile: Hostile) -> None:
    """transformers reads the file that config.json names, even where safetensors are requested."""
    hostile.write_pickle("adapter_model.bin")
    hostile.change("config.json", transformers_weights="adapter_model.bin")


def with_a_custom_generate(hostile: Hostile) -> None:
    hostile.write("custom_generate/generate.py", hostile.code)


def with_code_for_a_known_type(hostile: Hostile) -> None:
    hostile.write("trap.py", hostile.code)
    hostile.change("config.json", auto_map=all_classes("trap"))
    hostile.change("tokenizer_config.json", auto_map=all_classes("trap"))


def with_an_adapter(hostile: Hostile) -> None:
    hostile.change("adapter_config.json", base_model_name_or_path="other/model", peft_type="LORA", auto_mapping=None)


def with_a_kernel(hostile: Hostile) -> None:
    """Attention by a compiled kernel that would be fetched from the hub."""
    hostile.change("config.json", attn_implementation="other/kernel", experts_implementation="other/kernel")


def with_another_name(hostile: Hostile) -> None:
    hostile.change("config.json", _name_or_path="other/model", name_or_path="other/model")


def with_a_chat_template(hostile: Hostile) -> None:
    hostile.write("chat_template.jinja", "{{ raise_exception('rendered') }}")
    hostile.change("tokenizer_config.json", chat_template="{{ raise_exception('rendered') }}")


HARMLESS = (
    with_an_additional_pickle,
    with_a_pickle_named,
    with_a_custom_generate,
    with_code_for_a_known_type,
    with_an_adapter,
    with_a_kernel,
    with_another_name,
    with_a_chat_template,
)


@pytest.mark.parametrize("prepare", HARMLESS, ids=lambda prepare: prepare.__name__)
def test_loaded_without_what_it_brings(
    ibidem: Run, hostile: Hostile, tiny_folder: Path, prepare: Callable[[Hostile], None]
) -> None:
    """The model itself is sound: it translates as it does without the trap."""
    prepare(hostile)
    given = ("translate", "--device", "cpu", "--dtype", "float32", "--model")
    expected = ibidem(*given, tiny_folder, stdin="y\nDatei\n")
    answer = ibidem(*given, hostile.folder, stdin="y\nDatei\n")
    assert (answer.code, answer.lines) == (0, expected.lines), answer
    assert not hostile.marker.exists()


def test_stdin_is_not_read_for_a_confirmation(hostile: Hostile) -> None:
    """The installed command with a yes in a pipe, as in `yes | ibidem translate`."""
    with_own_model(hostile)
    done = subprocess.run(
        [sys.executable, "-m", "ibidem", "translate", "--model", hostile.folder],
        input=YES,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "HF_MODULES_CACHE": str(hostile.folder.parent / "modules")},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "[y/N]" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not hostile.marker.exists()


def test_the_traps_work(hostile: Hostile) -> None:
    """The tests above can fail: the code writes its marker when it is imported, the pickle when it is read."""
    exec(compile(hostile.code, "trap.py", "exec"), {})
    assert hostile.marker.exists()
    hostile.marker.unlink()
    pickle.load(io.BytesIO(pickle.dumps(Trap(hostile.marker)))).close()
    assert hostile.marker.exists()
