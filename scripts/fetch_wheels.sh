#!/usr/bin/env bash
# Fetch the small wheels that ibidem needs in addition to torch and transformers, for a machine without a registry:
#   scripts/fetch_wheels.sh .wheels 3.12     here, then there:
#   python3 scripts/missing_wheels.py .wheels FOLDER && export PYTHONPATH=src:FOLDER
set -euo pipefail
folder=${1:-.wheels}
python=${2:-3.12}
mkdir -p "$folder"
python3 -m pip download -q --dest "$folder" --python-version "$python" --only-binary=:all: --no-deps \
  -c "$(dirname "$0")/../constraints.txt" \
  annotated-doc annotated-types click cloudpickle colorama filelock joblib markdown-it-py mdurl portalocker pydantic \
  pydantic-core pygments pyyaml regex rich sacrebleu sacremoses shellingham tabulate tqdm typer typing-extensions typing-inspection
du -sh "$folder"
