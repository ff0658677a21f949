"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Folder or hub name of a Hugging Face encoder-decoder; else the shipped model.",
        show_default=False,
    ),
]
Train = Annotated[
    list[str],
    typer.Option(
        "--train",
        help="Parallel text: a TMX, XLIFF, TSV, JSONL, PO or MO file, or give the option twice for two line-aligned "
        "files; .gz and .xz too, - for stdin.",
    ),
]
Dev = Annotated[
    list[str] | None,
    typer.Option(
        "--dev",
        help="Dev set to tune on, in the same forms; else pairs of the memory itself stand in.",
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
        help="Arithmetic of the base model: float32, float16, bfloat16 or, on a CPU, int8; auto: int8 if it can be.",
    ),
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads to use.", show_default=False)]
SourceLanguage = Annotated[
    str | None,
    typer.Option(
        "--source-language",
        help="Source language, for a multilingual model, or one that does not say its own.",
        show_default=False,
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(
        "--target-language",
        help="Target language, for a multilingual model, or one that does not say its own.",
        show_default=False,
    ),
]
SourcePrefix = Annotated[
    str, typer.Option("--source-prefix", help="Text before every source (T5).", show_default=False)
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of the text, where its ending does not tell.", show_default=False),
]
DevFormat = Annotated[str | None, typer.Option("--dev-format", help="The same for the dev set.", show_default=False)]
CatalogueLanguage = Annotated[
    str | None,
    typer.Option("--catalogue-language", help="Language of the msgstr entries of a PO or MO file.", show_default=False),
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
    typer.Option("--combiner", help="adaptive, fixed or fading; else the best the memory has.", show_default=False),
]
BatchTokens = Annotated[int, typer.Option("--batch-tokens", min=16, help="Padded tokens in a forward pass.")]
Beam = Annotated[int, typer.Option("--beam", min=1, help="Width of the beam; 1 is greedy.")]
LengthPenalty = Annotated[
    float, typer.Option("--length-penalty", help="Exponent of the length that scores are divided by.")
]
RetrievalMargin = Annotated[
    float | None,
    typer.Option(
        "--retrieval-margin",
        min=0,
        help="Hypotheses farther than this behind the best of their sentence, in log-probability, do not ask the "
        "memory, and those a little behind, or sure of their next word, ask briefly; else 3 on a CPU; on a GPU all "
        "ask. inf: all ask in full.",
        show_default=False,
    ),
]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Sentences translated together.")]
