"""Runs Weblate's own service classes against a server; needs the package weblate, and is started by test_weblate.py.

Only Django's settings are minimal: no database, an in-memory cache. Forms, requests and parsing are Weblate's.
"""

from __future__ import annotations

import argparse
import json

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="test",
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "weblate.utils",
        "weblate.checks",
        "weblate.lang",
    ],
    CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
    CHECK_LIST=("weblate.checks.format.PythonFormatCheck", "weblate.checks.same.SameCheck"),
    ALLOWED_ASSET_SIZE=1,
    SITE_DOMAIN="localhost",
    ENABLE_HTTPS=False,
    USE_I18N=False,
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
)
django.setup()

from weblate.machinery.deepl import DeepLTranslation  # noqa: E402
from weblate.machinery.libretranslate import LibreTranslateTranslation  # noqa: E402

# A text without a unit has no glossary; the method imports the models of projects before it says so.
DeepLTranslation.get_glossary_id = lambda *_: None


def describe(machinery: type, url: str, source: str, target: str, texts: list[str]) -> dict[str, object]:
    """Save the form of a service, and translate texts, and an English text in the other direction."""
    form = machinery.settings_form(machinery, {"url": url, "key": "key", "formality": "default", "source_language": ""})
    saved = form.is_valid()
    service = machinery({"url": url, "key": "key", "formality": "default"})
    upper = str.upper if machinery is DeepLTranslation else str
    source, target = upper(source), upper(target)
    found = service.download_multiple_translations(source, target, [(text, None) for text in texts])
    try:
        reverse = service.download_multiple_translations(target, source, [("The file was saved.", None)])
        refused = ""
    except Exception as error:
        refused, reverse = str(service.get_error_message(error)), {}
    return {
        "saved": saved,
        "errors": form.errors.get_json_data(),
        "supported": [service.is_supported(source, target), service.is_supported(source, upper("fr"))],
        "translations": [found[text][0]["text"] for text in texts],
        "reverse": [one["text"] for results in reverse.values() for one in results],
        "refused": refused,
        "glossaries": service.is_glossary_supported(source, target) if machinery is DeepLTranslation else None,
    }


parser = argparse.ArgumentParser()
parser.add_argument("--from", dest="source", default="de")
parser.add_argument("--to", dest="target", default="en")
parser.add_argument("address")
parser.add_argument("texts", nargs="+")
given = parser.parse_args()
print(
    json.dumps(
        {
            name: describe(machinery, f"{given.address}{path}", given.source, given.target, given.texts)
            for name, machinery, path in (
                ("LibreTranslate", LibreTranslateTranslation, "/"),
                ("DeepL", DeepLTranslation, "/v2/"),
            )
        }
    )
)
