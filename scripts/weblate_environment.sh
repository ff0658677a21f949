#!/bin/sh
# Make an environment with Weblate's service classes, for the slow test of tests/serve/test_weblate.py:
#
#   scripts/weblate_environment.sh build/weblate
#   IBIDEM_WEBLATE_PYTHON=build/weblate/bin/python python -m pytest -m slow tests/serve/test_weblate.py
#
# Weblate itself is installed without its requirements, some of which need libraries of the system (cairo, GTK); those
# that the classes import are listed here.
set -eu
folder=$1
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet \
  "Django>=5.2,<6" ahocorasick-rs altcha argon2-cffi celery certifi charset-normalizer crispy-bootstrap3 cryptography \
  cyrtranslit diff-match-patch disposable-email-domains django-appconf django-celery-beat django-compressor \
  django-cors-headers django-crispy-forms django-filter django-otp django-redis djangorestframework docutils \
  drf-spectacular filelock fluent.syntax GitPython hiredis html2text iniparse jsonschema lxml mistletoe nh3 openpyxl \
  packaging phply pillow Pygments pyicumessageformat pyparsing python-dateutil qrcode rapidfuzz regex requests \
  ruamel.yaml sentry-sdk siphashc social-auth-app-django "translate-toolkit==3.16.*" "translation-finder<3" unidecode \
  user-agents weblate-language-data "weblate-schemas==2025.6"
"$folder/bin/pip" install --quiet --no-deps "weblate==5.14.3"
