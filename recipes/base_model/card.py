"""Write the card (README.md) of a shipped model from the log of its training and the scores of its test sets.

    python recipes/base_model/card.py FOLDER --config CONFIG --scores NAME=FILE …

FILE is the output of `ibidem evaluate --json`. Every figure of the card comes from these files.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from settings import Settings, read_settings

_NAMES = {"de": "German", "en": "English"}


def main() -> None:
    """Write the card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the packed model")
    parser.add_argument("--config", type=Path, required=True, help="the settings that it was trained with")
    parser.add_argument("--scores", nargs="+", required=True, metavar="NAME=FILE")
    arguments = parser.parse_args()
    scores = [entry.partition("=") for entry in arguments.scores]
    reports = {name: json.loads(Path(file).read_text(encoding="utf-8")) for name, _, file in scores}
    card = write_card(arguments.folder, arguments.config.name, read_settings(arguments.config), reports)
    (arguments.folder / "README.md").write_text(card, encoding="utf-8")


def write_card(folder: Path, config: str, settings: Settings, reports: dict[str, dict[str, Any]]) -> str:
    """Return the text of the card.

    Args:
        folder: The packed model with its `training.json`.
        config: The name of the file of settings.
        settings: The settings of the training.
        reports: The output of `ibidem evaluate --json` by name of the test set.
    """
    source, target = (_NAMES.get(tag, tag) for tag in (settings.languages.source, settings.languages.target))
    article = "An" if source[0] in "AEIOU" else "A"
    last = json.loads((folder / "training.json").read_text(encoding="utf-8"))[-1]
    size = (folder / "model.int8.safetensors").stat().st_size / 1e6
    model = settings.model
    corpora = ", ".join(files.source.partition("/")[0] for files in settings.corpora)
    general = "yes" if (folder / "general").is_dir() else "no: each memory gets a compactor and a combiner of its own"
    lines = [
        "---",
        f"language: [{settings.languages.source}, {settings.languages.target}]",
        "tags: [translation, marian]",
        "---",
        "",
        f"# {folder.name}",
        "",
        f"{article} {source}-{target} base model of ibidem, meant to be adapted with a memory.",
        "",
        "| | |",
        "|---|---|",
        f"| architecture | Marian: {model.encoder_layers} encoder and {model.decoder_layers} decoder layers, width "
        f"{model.d_model}, feed-forward {model.ffn}, {model.heads} heads, shared embeddings |",
        f"| vocabulary | {settings.vocabulary.size:,} SentencePiece pieces with byte fallback, both languages |",
        f"| file | `model.int8.safetensors`, {size:.1f} MB: matrices as int8 rows with a scale each |",
        f"| training | `recipes/base_model/{config}`, seed {settings.seed}: {last['step']:,} steps of "
        f"{settings.training.max_tokens:,} padded tokens a side in {last['minutes']} minutes, dev BLEU "
        f"{last['dev_bleu']}; `training.json` has the log |",
        f"| corpora | {corpora}: those of ibidem-base-de-en, whose card lists their sources and terms |",
        f"| general parts | {general} |",
        "",
        "## Scores",
        "",
    ]
    first = next(iter(reports.values()))
    lines += [f"sacreBLEU, beam {first['beam']}, length penalty {first['length_penalty']}, the packed weights:", ""]
    lines += [f"- {name}: `{signature}`" for name, signature in first["signatures"].items()]
    metrics = list(first["systems"]["base"]["scores"])
    lines += ["", f"| test set | lines | {' | '.join(metrics)} |", f"|---|---|{'---|' * len(metrics)}"]
    for name, report in reports.items():
        values = " | ".join(f"{report['systems']['base']['scores'][metric]:.1f}" for metric in metrics)
        lines.append(f"| {name} | {report['sentences']:,} | {values} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
