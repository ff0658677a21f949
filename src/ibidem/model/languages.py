"""Language tags of multilingual models."""

from __future__ import annotations

import difflib
from typing import Any

from ibidem.errors import ModelError


def known_languages(tokenizer: Any) -> dict[str, int]:
    """The tokenizer's language tags and their token ids; empty for a model of one language pair."""
    table = getattr(tokenizer, "lang_code_to_id", None)
    if isinstance(table, dict) and table:
        return dict(table)
    if "src_lang" not in vars(type(tokenizer)):
        return {}
    tags = {token: tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens}
    return {tag: number for tag, number in tags.items() if "_" in tag and "<" not in tag}


def find_language(tokenizer: Any, name: str | None, side: str) -> tuple[str, int]:
    """The tag a user means and its token id: exact, or the only tag of that language (de for de_DE)."""
    known = known_languages(tokenizer)
    if name is None:
        examples = ", ".join(sorted(known)[:5])
        raise ModelError(
            f"This model translates between many languages: name the {side} language with "
            f"--{side}-language (one of {len(known)}, such as {examples})."
        )
    if name in known:
        return name, known[name]
    same = [tag for tag in known if tag.split("_")[0].lower() == name.lower()]
    if len(same) == 1:
        return same[0], known[same[0]]
    near = same or difflib.get_close_matches(name, known, n=5, cutoff=0.3) or sorted(known)[:5]
    raise ModelError(
        f"Unknown {side} language '{name}' for this model: give --{side}-language one of its "
        f"{len(known)} tags, such as {', '.join(near)}."
    )
