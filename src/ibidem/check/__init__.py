"""Checks of parallel text before it is learnt: defects of files and pairs, by their texts and by the base model."""

from ibidem.check.findings import Action, CheckReport, Example, Finding
from ibidem.check.language import knows_language, recognize_language
from ibidem.check.likelihood import check_sample, score_pairs
from ibidem.check.policy import POLICIES, check_policy, describe_warnings, guard, guard_pairs
from ibidem.check.text_check import CheckSettings, TextCheck, check_texts

__all__ = [
    "POLICIES",
    "Action",
    "CheckReport",
    "CheckSettings",
    "Example",
    "Finding",
    "TextCheck",
    "check_policy",
    "check_sample",
    "check_texts",
    "describe_warnings",
    "guard",
    "guard_pairs",
    "knows_language",
    "recognize_language",
    "score_pairs",
]
