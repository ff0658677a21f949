"""Whole documents in, whole documents out."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.progress import Progress, silent
from ibidem.text import FillReport, FillSettings, check_languages, fill, open_document, open_output

if TYPE_CHECKING:
    from typing import BinaryIO

    from ibidem.decode.translator import Translator


def translate_document(
    translator: Translator,
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | BinaryIO,
    *,
    format: str | None = None,
    settings: FillSettings | None = None,
    mark_fuzzy: bool = True,
    progress: Progress = silent,
) -> FillReport:
    """Write a document with the translations that it lacks, and report what was translated, kept and lost.

    `path` may be "-", standard input; `output` is a path, which may be that of the document, or an open file. The
    languages that the document names must be the model's.

    >>> report = translate_document(Translator(memory="memories/it"), "de.xlf", "en.xlf")   # doctest: +SKIP
    """
    source, target = translator.model.tokens.source_language, translator.model.tokens.target_language
    if source is None or target is None:
        raise UsageError(
            f"The model {translator.model.name} does not say which languages it translates: name them with "
            "--source-language and --target-language."
        )
    document = open_document(path, format=format, source_language=source, target_language=target, mark_fuzzy=mark_fuzzy)
    check_languages(document, source, target)
    with ExitStack() as stack:
        # Opened first: that a folder is missing is better known before an hour of translating than after it.
        file = stack.enter_context(open_output(output)) if isinstance(output, str | os.PathLike) else output
        targets, report = fill(document, translator.translate, settings, progress=progress)
        file.writelines(document.write(targets))
    return report
