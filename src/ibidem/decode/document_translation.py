"""Translation of whole documents by a translator."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ibidem.decode.assessment import RecordedTranslations, check_min_confidence
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
    """Write a document with the translations that it lacks.

    Args:
        translator: The translator.
        path: The document; "-" for standard input.
        output: The path to write to, which may be that of the document, or an open binary file.
        format: The format of the document; by default that of its extension.
        settings: Which segments to translate, and how.
        mark_fuzzy: Whether to mark the translations in a PO file as fuzzy.
        progress: Called as the work proceeds.

    Returns:
        What was translated, kept and lost.

    Raises:
        UsageError: If the model does not state its languages.
        TextError: If the document cannot be read, or names other languages than the model's.

    Examples:
        >>> report = translate_document(Translator(memory="memories/it"), "de.xlf", "en.xlf")  # doctest: +SKIP
    """
    check_min_confidence(settings.min_confidence if settings is not None else 0.0)
    source, target = translator.model.tokens.source_language, translator.model.tokens.target_language
    if source is None or target is None:
        raise UsageError(
            f"The model {translator.model.name} does not name its languages: set them with "
            "--source-language and --target-language."
        )
    document = open_document(path, format=format, source_language=source, target_language=target, mark_fuzzy=mark_fuzzy)
    check_languages(document, source, target)
    with ExitStack() as stack:
        # The output is opened first, so that a missing folder is reported before the work and not after it.
        file = stack.enter_context(open_output(output)) if isinstance(output, str | os.PathLike) else output
        translate = RecordedTranslations(translator)
        targets, report = fill(document, translate, settings, confidences=translate.confidences, progress=progress)
        file.writelines(document.write(targets))
    return report
