"""The options of verbs that load a model or open a translator, and what they open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options  # noqa: TC001 - typer reads the annotations
from ibidem.cli.console import note, use_threads
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from ibidem.combine import FixedCombiner
    from ibidem.decode import Translator
    from ibidem.memory import ModelIdentity
    from ibidem.model import BaseModel

_MemoryChoice = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--memory",
        help="Folder of a memory, or FOLDER:WEIGHT; may be given several times. none: the bare base model.",
        show_default=False,
    ),
]
_K = Annotated[int | None, typer.Option("--k", min=1, help="Fixed combiner by hand: neighbours.", show_default=False)]
_Weight = Annotated[
    float | None,
    typer.Option(
        "--weight", min=0, max=1, help="Fixed combiner by hand: weight (λ) of the memory.", show_default=False
    ),
]
_Temperature = Annotated[
    float | None,
    typer.Option("--temperature", help="Fixed combiner by hand: temperature.", show_default=False),
]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which base model, and on what it runs."""

    model: options.Model = None
    device: options.Device = "auto"
    dtype: options.Dtype = "auto"
    threads: options.Threads = None
    source_language: options.SourceLanguage = None
    target_language: options.TargetLanguage = None
    source_prefix: options.SourcePrefix = ""

    def load(self, identity: ModelIdentity | None = None) -> BaseModel:
        """The model; a memory's own where the identity of one is given, and what is not said is as it was there."""
        from ibidem.decode import load_model_for

        use_threads(self.threads)
        loaded = load_model_for(
            identity,
            self.model,
            device=self.device,
            dtype=self.dtype,
            source_language=self.source_language,
            target_language=self.target_language,
            source_prefix=self.source_prefix,
        )
        self.note_assumed(loaded)
        return loaded

    def note_assumed(self, loaded: BaseModel) -> None:
        """Tell the user of languages that were given for a model that cannot confirm them."""
        from ibidem.model import LanguagePair

        given = zip(loaded.tokens.assumed, (self.source_language, self.target_language), strict=True)
        assumed = LanguagePair(*(language if option else None for language, option in given))
        if named := assumed.options():
            note(
                f"{loaded.name} does not say which languages it translates, so {named} cannot be checked: that changes "
                "how files are read, and no translation."
            )


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions(ModelOptions):
    """What is translated with: a model, memories, how they are combined, and how translations are searched for."""

    memory: _MemoryChoice = None
    k: _K = None
    weight: _Weight = None
    temperature: _Temperature = None
    index: options.IndexSetting = None
    beam: options.Beam = 4
    length_penalty: options.LengthPenalty = 1.0
    batch_size: options.BatchSize = 32
    retrieval_margin: options.RetrievalMargin = None

    @property
    def memories(self) -> list[tuple[str, float]]:
        """The folders of memories and their weights, as -m names them."""
        if not self.memory or self.memory == ["none"]:
            return []
        if "none" in self.memory:
            raise UsageError("-m none stands for the bare base model, and alone: give it, or folders of memories.")
        return [_split_weight(value) for value in self.memory]

    @property
    def by_hand(self) -> FixedCombiner | None:
        """The fixed combiner that the options give, None where they give none."""
        if self.k is self.weight is self.temperature is None:
            return None
        if self.k is None or self.weight is None or self.temperature is None:
            raise UsageError("A combiner by hand needs all three of --k, --weight and --temperature.")
        from ibidem.combine import FixedCombiner

        return FixedCombiner(self.k, self.weight, self.temperature)

    def check(self, combiner: object) -> None:
        """Refuse a combiner that has nothing to combine, before a model is loaded."""
        if not self.memories and (self.by_hand or combiner):
            raise UsageError("A combiner needs a memory to combine: give its folder with -m.")

    def open(self, combiner: str | None, *, beam: int | None = None, model: BaseModel | None = None) -> Translator:
        """The translator; with another beam, or with a model that was loaded already."""
        from ibidem.decode import SearchSettings, Translator

        self.check(combiner)
        use_threads(self.threads)
        translator = Translator(
            model or self.model,
            self.memories,
            combiner=self.by_hand or combiner,
            index=self.index,
            settings=SearchSettings(
                beam=beam or self.beam, length_penalty=self.length_penalty, retrieval_margin=self.retrieval_margin
            ),
            batch_size=self.batch_size,
            device=self.device,
            dtype=self.dtype,
            source_language=self.source_language,
            target_language=self.target_language,
            source_prefix=self.source_prefix,
        )
        if model is None:
            self.note_assumed(translator.model)
        return translator


def _split_weight(value: str) -> tuple[str, float]:
    """FOLDER:WEIGHT; a folder that has such a name itself is meant itself."""
    folder, colon, weight = value.rpartition(":")
    if not colon or Path(value).exists():
        return value, 1.0
    try:
        return folder, float(weight)
    except ValueError:
        return value, 1.0
