"""Resource files of programs with the texts of a user interface by key."""

from __future__ import annotations

from ibidem.text.resources.apple import read_strings_document
from ibidem.text.resources.json_file import read_json_document
from ibidem.text.resources.properties import read_properties_document
from ibidem.text.resources.qt import read_ts_document
from ibidem.text.resources.xcstrings import read_xcstrings_document
from ibidem.text.resources.xml_file import read_android_document, read_resx_document
from ibidem.text.resources.yaml_file import read_yaml_document

__all__ = [
    "read_android_document",
    "read_json_document",
    "read_properties_document",
    "read_resx_document",
    "read_strings_document",
    "read_ts_document",
    "read_xcstrings_document",
    "read_yaml_document",
]
