"""Options that several commands share, and how a model or a translator is opened from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli.console import note, shown_wait, use_threads
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from ibidem.combine import FixedCombiner
    from ibidem.decode import Translator
    from ibidem.glossary import Glossary
    from ibidem.memory import ModelIdentity
    from ibidem.model import BaseModel
    from ibidem.retrieve.sharded import ShardSettings

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Folder, name (`ibidem model list`) or hub name of a Hugging Face encoder-decoder; default: the first "
        "known model of --source-language and --target-language, without these the shipped German-English one.",
        show_default=False,
    ),
]
Train = Annotated[
    list[str],
    typer.Option(
        "--train",
        metavar="FILE [FILE]",
        help="A TMX, XLIFF, TSV, CSV, XLSX, JSONL, PO or MO file, or two line-aligned files; .gz, .xz; - for stdin.",
    ),
]
Dev = Annotated[
    list[str] | None,
    typer.Option(
        "--dev",
        metavar="FILE [FILE]",
        help="Dev set for tuning; without one, pairs of the memory are held out.",
        show_default=False,
    ),
]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder of the memory.", show_default=False)]
MemoryPath = Annotated[Path, typer.Option("-m", "--memory", help="Folder of the memory.", show_default=False)]
Seed = Annotated[int, typer.Option("--seed", min=0, max=(1 << 31) - 1, help="Seed of every random draw.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="Arithmetic of the base model: float32, float16, bfloat16 or, on a CPU, int8; auto: int8 if possible.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, help="CPU threads to use.", show_default=False)
]
SourceLanguage = Annotated[
    str | None,
    typer.Option(
        "--source-language",
        help="Source language; chooses the model, or the language of a multilingual one.",
        show_default=False,
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(
        "--target-language",
        help="Target language, in the same way.",
        show_default=False,
    ),
]
SourcePrefix = Annotated[
    str, typer.Option("--source-prefix", help="Text in front of every source sentence (T5).", show_default=False)
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of the text, where the file name does not show it.", show_default=False),
]
CatalogueLanguage = Annotated[
    str | None,
    typer.Option("--catalogue-language", help="Language of the msgstr entries of a PO or MO file.", show_default=False),
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="Encoding of text that is neither UTF-8 nor UTF-16: cp1252 …", show_default=False),
]
BadPairs = Annotated[
    str,
    typer.Option(
        "--bad-pairs",
        help="stop: refuse certain defects such as exchanged languages, and warn of others; fix: repair bad pairs or "
        "leave them out; keep: learn all, unchecked.",
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Run in tasks on local (processes), ray, ray://HOST:PORT or slurm:PARTITION; default: this process.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Tasks that run at the same time, with --on.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
IndexSetting = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="auto, exact, native, paper, or a faiss factory string; on a GPU also int8 or lists.",
        show_default=False,
    ),
]
Combiner = Annotated[
    str | None,
    typer.Option(
        "--combiner",
        help="contextual, adaptive, fixed or distance-decay; default: the best one of the memory.",
        show_default=False,
    ),
]
Beam = Annotated[int, typer.Option("--beam", min=1, help="Width of the beam; 1 is greedy.")]
LengthPenalty = Annotated[float, typer.Option("--length-penalty", help="Scores are divided by length to this power.")]
RetrievalMargin = Annotated[
    float | None,
    typer.Option(
        "--retrieval-margin",
        min=0,
        help="Skip retrieval for hypotheses whose log-probability is this far below the best of their sentence; "
        "default: 3 on a CPU, inf (never skip) on a GPU.",
        show_default=False,
    ),
]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Sentences translated together.")]
Split = Annotated[
    bool,
    typer.Option("--split/--no-split", help="Translate the sentences of a line one by one, or each line as a whole."),
]
Compactor = Annotated[
    Path | None,
    typer.Option(
        "--compactor",
        help="File of a compactor that was trained on another memory of the same base model.",
        show_default=False,
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Run even if it was done with these settings already.")]
_MemoryChoice = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--memory",
        help="Folder of a memory, or FOLDER:WEIGHT; may be repeated. none: the base model alone.",
        show_default=False,
    ),
]
_GlossaryFile = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        help="Glossary whose terms translations must contain: .glossary, CSV, TSV or TBX.",
        show_default=False,
    ),
]
_K = Annotated[
    int | None, typer.Option("--k", min=1, max=4096, help="Fixed combiner: number of neighbours.", show_default=False)
]
_Weight = Annotated[
    float | None,
    typer.Option("--weight", min=0, max=1, help="Fixed combiner: weight (λ) of the memory.", show_default=False),
]
_Temperature = Annotated[
    float | None,
    typer.Option("--temperature", help="Fixed combiner: temperature.", show_default=False),
]


_Shards = Annotated[
    str | None,
    typer.Option(
        "--shards",
        metavar="ADDRESS,…",
        help="Search the memory's index in these `ibidem shard` processes: HOST:PORT or unix:PATH of each part; "
        "several of one part are replicas.",
        show_default=False,
    ),
]
ShardSecret = Annotated[
    Path | None,
    typer.Option(
        "--shard-secret",
        help="File with the secret that shards and their clients share; or set IBIDEM_SHARD_SECRET.",
        show_default=False,
    ),
]
_ShardDeadline = Annotated[
    float, typer.Option("--shard-deadline", help="Milliseconds that a step waits for the answers of shards.")
]
_Missing = Annotated[
    str,
    typer.Option(
        "--missing",
        help="What to do without the answer of a shard: flag (translate without its part, and say so) or refuse.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options that choose the base model and the device.

    The help texts of the annotations describe the fields.
    """

    model: Model = None
    device: Device = "auto"
    dtype: Dtype = "auto"
    threads: Threads = None
    source_language: SourceLanguage = None
    target_language: TargetLanguage = None
    source_prefix: SourcePrefix = ""

    def load(self, identity: ModelIdentity | None = None) -> BaseModel:
        """Load the model.

        Args:
            identity: The model identity of a memory; unset options default to it.

        Returns:
            The base model.

        Raises:
            UsageError: An option is invalid.
            ModelError: The model cannot be loaded.
        """
        with shown_wait("Loading the model…"):
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
        """Print a note where languages were given for a model that does not name its own.

        Args:
            loaded: The loaded model.
        """
        from ibidem.model import LanguagePair

        given = zip(loaded.tokens.assumed, (self.source_language, self.target_language), strict=True)
        assumed = LanguagePair(*(language if option else None for language, option in given))
        if named := assumed.options():
            note(
                f"{loaded.name} does not name its languages, so {named} cannot be checked. It changes how files "
                "are read; it does not change translations."
            )


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions(ModelOptions):
    """Options of commands that translate: model, memories, combiner, beam search.

    The help texts of the annotations describe the fields.
    """

    memory: _MemoryChoice = None
    glossary: _GlossaryFile = None
    k: _K = None
    weight: _Weight = None
    temperature: _Temperature = None
    index: IndexSetting = None
    beam: Beam = 4
    length_penalty: LengthPenalty = 1.0
    batch_size: BatchSize = 32
    retrieval_margin: RetrievalMargin = None
    split: Split = True
    shards: _Shards = None
    shard_secret: ShardSecret = None
    shard_deadline: _ShardDeadline = 1000.0
    missing: _Missing = "flag"

    @property
    def memories(self) -> list[tuple[str, float]]:
        """The folders and weights given with -m.

        Raises:
            UsageError: `-m none` is combined with folders.
        """
        if not self.memory or self.memory == ["none"]:
            return []
        if "none" in self.memory:
            raise UsageError("-m none is the base model alone: give either none or folders of memories.")
        return [_split_weight(value) for value in self.memory]

    @property
    def fixed_combiner(self) -> FixedCombiner | None:
        """The fixed combiner given by --k, --weight and --temperature, or None.

        Raises:
            UsageError: Only some of the three options are given.
        """
        if self.k is self.weight is self.temperature is None:
            return None
        if self.k is None or self.weight is None or self.temperature is None:
            raise UsageError("A fixed combiner needs all three of --k, --weight and --temperature.")
        from ibidem.combine import FixedCombiner

        return FixedCombiner(self.k, self.weight, self.temperature)

    def check(self, combiner: object) -> None:
        """Check the options before a model is loaded.

        Args:
            combiner: The given combiners; None or empty if there are none.

        Raises:
            UsageError: There is a combiner without a memory, the file of the glossary does not exist, or the options
                of shards are invalid.
            GlossaryError: The file of the glossary is damaged.
        """
        if self.glossary is not None and not self.glossary.is_file():
            raise UsageError(f"There is no glossary {self.glossary}: check the path.")
        if self.glossary is not None:
            from ibidem.glossary import ENDING, Glossary

            if self.glossary.suffix == ENDING:
                Glossary.open(self.glossary)
        self.shard_settings()
        if not self.memories and (self.fixed_combiner or combiner):
            raise UsageError("A combiner needs a memory: give its folder with -m.")

    def shard_settings(self) -> ShardSettings | None:
        """Return where the shards are; None without --shards.

        Raises:
            UsageError: An option is invalid, or another option of shards is given without --shards.
        """
        if self.shards is None:
            if self.shard_secret is not None or self.missing != "flag":
                raise UsageError("--shard-secret and --missing need the addresses of shards: give --shards.")
            return None
        if self.index is not None:
            raise UsageError("The shards have an index already: give either --index or --shards.")
        from ibidem.retrieve.sharded import ShardSettings, parse_addresses, read_secret

        return ShardSettings(
            parse_addresses(self.shards),
            read_secret(self.shard_secret),
            deadline_ms=self.shard_deadline,
            missing=self.missing,
        )

    def load_glossary(self, model: BaseModel) -> Glossary | None:
        """Read the glossary for the languages of a model; None without --glossary.

        Args:
            model: The base model.

        Raises:
            GlossaryError: The file cannot be read.
            UsageError: The glossary is for other languages.
        """
        if self.glossary is None:
            return None
        from ibidem.glossary import load_glossary

        source, target = model.tokens.source_language, model.tokens.target_language
        glossary = load_glossary(self.glossary, source or "de", target or "en")
        glossary.check_languages(source, target)
        return glossary

    def open(
        self,
        combiner: str | None,
        *,
        beam: int | None = None,
        model: BaseModel | None = None,
        with_glossary: bool = True,
    ) -> Translator:
        """Open the translator.

        Args:
            combiner: Name of the combiner, or None for the best that the memory has.
            beam: Width of the beam instead of --beam.
            model: A model that is loaded already.
            with_glossary: Whether the translator uses the glossary.

        Raises:
            UsageError: An option is invalid, or does not fit the others.
        """
        self.check(combiner)
        with shown_wait("Loading the memory…" if self.memories else "Loading the model…"):
            from ibidem.decode import SearchSettings, Translator

            use_threads(self.threads)
            translator = Translator(
                model or self.model,
                self.memories,
                combiner=self.fixed_combiner or combiner,
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
                split="sentences" if self.split else "off",
                glossary=self.glossary if with_glossary else None,
                shards=self.shard_settings(),
            )
        if model is None:
            self.note_assumed(translator.model)
        return translator


def _split_weight(value: str) -> tuple[str, float]:
    """Split FOLDER:WEIGHT; a folder of exactly this name takes precedence."""
    folder, colon, weight = value.rpartition(":")
    if not colon or Path(value).exists():
        return value, 1.0
    try:
        return folder, float(weight)
    except ValueError:
        return value, 1.0
