from __future__ import annotations

import subprocess
import sys

import pytest
import sacrebleu

from ibidem.errors import UsageError
from ibidem.evaluate import score

REFERENCES = [
    "Open the file with the editor.",
    "The printer reports a paper jam.",
    "Could you bring us the bill, please?",
]
HYPOTHESES = [
    "Open the file in the editor.",
    "The printer is reporting a paper jam.",
    "could you bring us the bill please?",
]


def test_values_are_those_of_sacrebleu_called_directly() -> None:
    bleu, chrf = score(HYPOTHESES, REFERENCES)

    assert (bleu.name, chrf.name) == ("BLEU", "chrF")
    assert bleu.value == pytest.approx(
        sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="13a", lowercase=False, smooth_method="exp").score
    )
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert 0 < bleu.value < 100


def test_signatures_name_the_settings_and_the_version() -> None:
    bleu, chrf = score(HYPOTHESES, REFERENCES)

    assert bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert chrf.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"


def test_case_counts() -> None:
    assert score([line.upper() for line in REFERENCES], REFERENCES)[0].value < 50
    assert score(REFERENCES, REFERENCES)[0].value == pytest.approx(100)


def test_unequal_counts_are_refused_with_both_counts() -> None:
    with pytest.raises(UsageError, match=r"hypotheses has 2 sentences but there are 3 references"):
        score(HYPOTHESES[:2], REFERENCES)


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(UsageError, match="0 hypotheses, 0 references"):
        score([], [])


def test_one_string_is_not_a_list_of_sentences() -> None:
    with pytest.raises(UsageError, match="split one string into its lines"):
        score("one", "two")


def test_importing_the_room_loads_no_heavy_library() -> None:
    program = (
        "import sys, ibidem.evaluate;"
        "print([name for name in ('numpy', 'sacrebleu', 'torch', 'transformers') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
