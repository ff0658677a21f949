"""The base model in CTranslate2, the engine that people take for speed; for who has it installed.

Its threads and torch's disturb each other in one process: what is fair is a race on one thread (`--threads 1`).
"""

from __future__ import annotations

import copy
import tempfile
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from ibidem.decode import SearchSettings
from ibidem.errors import UsageError
from ibidem.evaluate.bench.contenders import Batch, System

if TYPE_CHECKING:
    from ibidem.model import BaseModel


def has_ctranslate2() -> bool:
    """Whether CTranslate2 is installed."""
    return find_spec("ctranslate2") is not None


def converted_contender(model: BaseModel, name: str = "CTranslate2") -> System:
    """The base model alone by CTranslate2: in int8 on a CPU with as many threads as torch has, in float16 on a GPU."""
    translator = _convert(model)
    eos = str(model.tokens.eos)

    def translate(batch: Batch, beam: int) -> int:
        longest = max(SearchSettings().limit(len(source), model.tokens.longest_target) for source in batch)
        found = translator.translate_batch(
            [list(map(str, source)) for source in batch],
            beam_size=beam,
            length_penalty=1.0,
            max_decoding_length=longest,
            max_input_length=0,
            end_token=eos,
        )
        return sum(len(one.hypotheses[0]) + 1 for one in found)

    return System(name, translate)


def _convert(model: BaseModel) -> Any:
    """A CTranslate2 translator whose tokens are the model's token ids, written out."""
    if not has_ctranslate2():
        raise UsageError("CTranslate2 is not installed: run `pip install ctranslate2`, or leave it out of --against.")
    if type(model.network).__name__ != "MarianMTModel":
        raise UsageError(f"CTranslate2 is measured with Marian models only, not {type(model.network).__name__}.")
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    class Loader(MarianMTLoader):  # type: ignore[misc]
        """Marian as we have it: the padding, which the decoder starts with, need not be the last token."""

        def _remove_pad_weights(self, spec: Any) -> None:
            pass

    words = [str(number) for number in range(model.network.config.vocab_size)]
    special = SimpleNamespace(
        get_vocab=lambda: {word: number for number, word in enumerate(words)},
        eos_token=words[model.tokens.eos],
        unk_token=words[model.tokens.pad],  # nothing is unknown
    )
    spec = Loader()(copy.deepcopy(model.network), special)  # it changes what it is given
    spec.validate()
    on_gpu = model.device.type == "cuda"
    spec.optimize(quantization="float16" if on_gpu else "int8")
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        return ctranslate2.Translator(
            folder,
            device=model.device.type,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
