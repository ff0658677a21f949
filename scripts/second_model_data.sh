#!/usr/bin/env bash
# Collect what scripts/second_model.sh reads, and nothing more, for a machine that gets little data:
#   scripts/second_model_data.sh DATA FOLDER     FOLDER/train for its first stage, FOLDER/rest for the others
# The general text of FOLDER/rest is the sample that the compactor's training would draw.
set -euo pipefail
data=$(cd "${1:?usage: scripts/second_model_data.sh DATA FOLDER}" && pwd)
folder=$(mkdir -p "${2:?usage: scripts/second_model_data.sh DATA FOLDER}" && cd "$2" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)

# take PART SET PREFIX…: the files of a set whose names start so.
take() {
  local part=$1 set=$2 prefix side
  shift 2
  mkdir -p "$folder/$part/$set"
  for prefix in "$@"; do
    for side in de en; do cp "$data/$set/$prefix.$side.xz" "$folder/$part/$set"; done
  done
}
rm -rf "$folder/train" "$folder/rest"
take train general train
take train lexicon train
take train news dev
for set in it koran games suttas law; do take rest "$set" train dev test; done
for set in medical news; do take rest "$set" dev test; done
take rest flores test
mkdir -p "$folder/rest/general"
PYTHONPATH=$root/src python3 - "$data/general" "$folder/rest/general" "${SAMPLE:-60000}" << 'EOF'
import lzma, sys
from pathlib import Path
import numpy as np
from ibidem.text import Corpus

source, target, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
files = [f"train.{side}.xz" for side in ("en", "de")]
pairs = list(Corpus([source / file for file in files]))
drawn = np.sort(np.random.default_rng(1).permutation(len(pairs))[:count])  # as recipes/general draws
for file, side in zip(files, ("source", "target"), strict=True):
    with lzma.open(target / file, "wt", encoding="utf-8", newline="\n") as lines:
        lines.writelines(f"{getattr(pairs[i], side)}\n" for i in drawn)
EOF
du -sb "$folder"/*
