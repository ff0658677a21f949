"""Term recall: how many of a domain's terms a system translates as the domain does.

The list of terms is made from the training text, never from the test set.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

# The most pairs that terms are collected from; the counts of word pairs need memory in proportion.
MOST_PAIRS = 200_000

_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_SHORTEST = 4  # letters; shorter words are mostly function words
_FEWEST = 3  # pairs that a term occurs in
_COMMON = 0.02  # of the pairs; words in more of them are common words of the domain
_LEAST_DICE = 0.6


def collect_terms(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Collect the words of the source language that a text translates by one word nearly always.

    A word s is a term with the translation t if t is the word with the largest Dice coefficient
    2 c(s, t) / (c(s) + c(t)), at least 0.6, where c counts the pairs that contain the words. Words of fewer than four
    letters, in fewer than three pairs or in more than 2 % of them, and terms that are equal in both languages, are left
    out.

    Args:
        pairs: Sources and targets of the training text; the first 200,000 are used.

    Returns:
        The translation of each term, both in lower case.

    Examples:
        >>> text = [(f"Die Zwischenablage {n}", f"The clipboard {n}") for n in ("einfügen", "öffnen", "leeren")]
        >>> collect_terms(text + [("Guten Morgen", "Good morning")] * 150)
        {'zwischenablage': 'clipboard'}
    """
    sources, targets = [], []
    for number, (source, target) in enumerate(pairs):
        if number == MOST_PAIRS:
            break
        sources.append(words_of(source))
        targets.append(words_of(target))
    most = max(_FEWEST, int(_COMMON * len(sources)))
    in_sources, in_targets = (
        {word: count for word, count in Counter(word for words in side for word in words).items() if count <= most}
        for side in (sources, targets)
    )
    together: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for source_words, target_words in zip(sources, targets, strict=True):
        known = [word for word in target_words if in_targets.get(word, 0) >= _FEWEST]
        for word in source_words:
            if in_sources.get(word, 0) >= _FEWEST:
                together[word].update(known)
    terms = {}
    for word, counts in sorted(together.items()):
        best = max(
            ((2 * n / (in_sources[word] + in_targets[other]), other) for other, n in counts.items()), default=None
        )
        if best is not None and best[0] >= _LEAST_DICE and best[1] != word:
            terms[word] = best[1]
    return terms


def words_of(text: str) -> set[str]:
    """Return the words of a text of at least four letters, in lower case.

    Args:
        text: The text.
    """
    return {word.lower() for word in _WORD.findall(text) if len(word) >= _SHORTEST}


def count_terms(
    terms: Mapping[str, str], sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> NDArray[np.int64]:
    """Count the terms of each source whose translation is in the reference, and those that are in the hypothesis too.

    Args:
        terms: The translation of each term, as `collect_terms` returns them.
        sources: The source sentences.
        hypotheses: A translation of each.
        references: A reference of each.

    Returns:
        [sentences, 2]: terms in source and reference, and those of them that the hypothesis contains.

    Raises:
        UsageError: The numbers of lines differ.
    """
    import numpy as np

    if not len(sources) == len(hypotheses) == len(references):
        raise UsageError(
            f"{len(sources)} sources, {len(hypotheses)} hypotheses and {len(references)} references: "
            "give one line of each, in the same order."
        )
    rows = []
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        expected = {terms[word] for word in words_of(source) if word in terms} & words_of(reference)
        rows.append((len(expected), len(expected & words_of(hypothesis))))
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def score_terms(counts: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute term recall in percent; 0 where there are no terms.

    Args:
        counts: [..., 2] sums of what `count_terms` returns.

    Returns:
        [...] from 0 to 100.
    """
    import numpy as np

    expected = counts[..., 0].astype(np.float64)
    return np.asarray(100 * counts[..., 1] / np.where(expected > 0, expected, 1))
