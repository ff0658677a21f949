"""What is done about bad pairs before a corpus is learnt: stop, fix or keep."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from ibidem.check.findings import CheckReport
from ibidem.check.text_check import CheckSettings, TextCheck, check_texts
from ibidem.errors import RefusedTextError, UsageError
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ibidem.text import Corpus, Pair

POLICIES = ("stop", "fix", "keep")
"""Stop at certain defects and warn of others; repair or leave out; learn all pairs unchecked."""

_STDIN = "-"
_STREAMED_PAIRS = 20_000
_ALL_PAIRS = 1 << 62


def check_policy(policy: str) -> str:
    """Return a policy if it exists.

    Args:
        policy: Its name.

    Raises:
        UsageError: There is no such policy.
    """
    if policy not in POLICIES:
        raise UsageError(f"Unknown value '{policy}' for bad pairs: use one of {', '.join(POLICIES)}.")
    return policy


def guard(
    corpus: Corpus,
    policy: str = "stop",
    *,
    held_out: Iterable[Pair] = (),
    settings: CheckSettings | None = None,
    progress: Progress = silent,
) -> CheckReport | None:
    r"""Check a corpus before it is learnt, and apply a policy to its bad pairs.

    Args:
        corpus: The parallel text. With the policy "fix" it gets a filter, so that its next iterations repair bad pairs
            or leave them out.
        policy: "stop", "fix" or "keep".
        held_out: Pairs of dev and test sets, which the corpus must not have.
        settings: The limits of the check; with "fix", all pairs are judged.
        progress: Receives the progress.

    Returns:
        The report; None for "keep", and for standard input, which can be read only once.

    Raises:
        TextError: The corpus cannot be read, or the policy is "stop" and it has a certain defect.
        UsageError: There is no such policy.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from ibidem.text import Corpus
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "corpus.tsv")
        ...     _ = path.write_text("Die Tür ist offen.\tThe door is open.\n" * 2, encoding="utf-8")
        ...     corpus = Corpus([path])
        ...     report = guard(corpus, "fix")
        ...     len(list(corpus))
        1
    """
    if check_policy(policy) == "keep" or _STDIN in corpus.origins:
        return None
    settings = settings or CheckSettings()
    if policy == "fix":
        settings = replace(settings, dense_pairs=_ALL_PAIRS)
    report, check = check_texts(corpus, settings=settings, held_out=held_out, progress=progress)
    if policy == "fix":
        corpus.new_filter = check.new_filter()
    elif report.refused:
        raise refusal(report)
    return report


def guard_pairs(
    corpus: Corpus,
    policy: str = "stop",
    *,
    settings: CheckSettings | None = None,
    progress: Progress = silent,
) -> tuple[Iterator[Pair], CheckReport | None]:
    """Check a corpus before its pairs are added; of standard input, the first pairs are checked.

    Args:
        corpus: The parallel text.
        policy: "stop", "fix" or "keep".
        settings: The limits of the check.
        progress: Receives the progress.

    Returns:
        The pairs, without those that the policy leaves out; and the report, None for "keep".

    Raises:
        TextError: The corpus cannot be read, or the policy is "stop" and it has a certain defect.
        UsageError: There is no such policy.
    """
    report = guard(corpus, policy, settings=settings, progress=progress)
    if report is not None or policy == "keep":
        return iter(corpus), report
    pairs = iter(corpus)
    check = TextCheck((corpus.languages.source, corpus.languages.target), settings)
    first = list(islice(pairs, _STREAMED_PAIRS))
    for pair in first:
        check.add(pair)
    counts = corpus.counts
    complete = len(first) < _STREAMED_PAIRS
    report = CheckReport(corpus.description, counts.read, counts.kept, complete, check.findings())
    if policy == "fix":
        return _filtered(chain(first, pairs), check, corpus), report
    if report.refused:
        raise refusal(report)
    return chain(first, pairs), report


def _filtered(pairs: Iterator[Pair], check: TextCheck, corpus: Corpus) -> Iterator[Pair]:
    select = check.new_filter()()
    for pair in pairs:
        found = select(pair)
        if isinstance(found, str):
            corpus.counts.kept -= 1
            corpus.counts.dropped[found] = corpus.counts.dropped.get(found, 0) + 1
        else:
            yield found


def refusal(report: CheckReport) -> RefusedTextError:
    """Return the error for a corpus that is refused.

    Args:
        report: The report, with a certain defect.
    """
    reasons = f"{report.corpus}: {report.refusals()} Nothing was learnt."
    return RefusedTextError(
        f"{reasons} `ibidem check` shows such pairs; with --bad-pairs they are repaired or left out (fix), or learnt "
        "as they are (keep).",
        reasons,
    )


def describe_warnings(report: CheckReport | None, policy: str) -> list[str]:
    """Describe what was found but not refused, one line for each finding.

    Args:
        report: The report; None if nothing was checked.
        policy: The policy that was applied.

    Returns:
        The lines; none if there is nothing to report.
    """
    if report is None or policy == "keep":
        return []
    if policy == "fix":
        found = [one for one in report.findings if one.fix and not one.fix.startswith("keeps")]
        return [
            f"{one.name}: {one.message} --bad-pairs fix {one.fix}."
            for one in found
            if one.count and "as always" not in one.fix
        ]
    lines = []
    for one in report.warnings:
        first = f" The first: {one.examples[0].place}." if one.examples else ""
        lines.append(f"warning: {one.name}: {one.message}{first}")
    if lines:
        lines.append("`ibidem check` shows more of them; --bad-pairs fix repairs them or leaves them out.")
    return lines
