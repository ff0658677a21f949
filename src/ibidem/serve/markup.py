"""Translation of HTML and XML texts of requests that keeps their tags.

A block is translated as a whole with its inline tags protected; if the translation loses a tag, the runs between the
tags are translated separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.text import Pieces, Request, Untranslated, find_blocks, translate_pieces, write_markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.text import Translate


def translate_markup(
    documents: Sequence[str], translate: Translate, ignored: frozenset[str] = frozenset()
) -> list[str]:
    """Translate the text of documents.

    Args:
        documents: HTML or XML, well-formed or not.
        translate: Translates a list of single lines, in the same order.
        ignored: Names of elements, in lower case, whose content is kept as it is.

    Returns:
        The documents with the same tags.

    Examples:
        >>> translate_markup(["<p>one <b>two</b></p>"], lambda lines: [line.upper() for line in lines])
        ['<p>ONE <b>TWO</b></p>']
    """
    cut = [list(find_blocks(document, ignored)) for document in documents]
    blocks = [block.pieces for blocks_of_one in cut for block in blocks_of_one]
    answers = translate_pieces([Request(block, keep_lines=False, accelerators=False) for block in blocks], translate)
    lost = [block for block, answer in zip(blocks, answers, strict=True) if isinstance(answer, Untranslated)]
    repaired = iter(_translate_runs(lost, translate))
    done = iter([next(repaired) if isinstance(answer, Untranslated) else answer for answer in answers])
    written = []
    for document, blocks_of_one in zip(documents, cut, strict=True):
        parts, place = [], 0
        for block in blocks_of_one:
            parts += [document[place : block.start], write_markup(next(done))]
            place = block.end
        written.append("".join([*parts, document[place:]]))
    return written


def count_blocks(document: str, ignored: frozenset[str] = frozenset()) -> int:
    """Count the blocks of text of a document.

    Args:
        document: HTML or XML.
        ignored: Names of elements, in lower case, whose content is kept as it is.

    Examples:
        >>> count_blocks("<p>one <b>two</b></p><p>three</p>")
        2
    """
    return sum(1 for _ in find_blocks(document, ignored))


def _translate_runs(blocks: Sequence[Pieces], translate: Translate) -> list[Pieces]:
    """Translate each run of text between two tags separately, which keeps all tags in place."""
    runs = [piece for block in blocks for piece in block if isinstance(piece, str) and any(map(str.isalpha, piece))]
    lines = [" ".join(run.split()) for run in runs]
    found = dict(zip(runs, translate(lines), strict=True)) if runs else {}
    return [
        tuple(_keep_spaces(piece, found) if isinstance(piece, str) else piece for piece in block) for block in blocks
    ]


def _keep_spaces(run: str, found: dict[str, str]) -> str:
    """Return a translated run with its original surrounding white space."""
    if run not in found:
        return run
    start, end = len(run) - len(run.lstrip()), len(run.rstrip())
    return run[:start] + found[run] + run[end:]
