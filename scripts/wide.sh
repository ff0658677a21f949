#!/usr/bin/env bash
# Tables for a base model with keys of 1024 dimensions, as the paper's has: trains one, then compares the spaces on IT.
#   scripts/wide.sh DATA WORK RESULTS [MINUTES of training]
# DATA as in docs/reproduce.md, with general, lexicon, news and it; the model (in WORK) is not kept, the rows in RESULTS are.
# One seed, on DEVICE (cuda). JOBS rows side by side (4), each with all keys on the GPU: 9 GB for the 4.3 million of IT.
set -euo pipefail
data=${1:?which data? scripts/wide.sh DATA WORK RESULTS [MINUTES]}
work=$(mkdir -p "${2:?which folder for the model and memories?}" && cd "$2" && pwd)
results=${3:?which folder for the results?}
minutes=${4:-12}
root=$(cd "$(dirname "$0")/.." && pwd)

# The shipped model's recipe, and so its vocabulary too.
mkdir -p "$work/wide-1024/vocabulary"
cp "$root"/src/ibidem/model/shipped/ibidem-base-de-en/source.spm "$work/wide-1024/vocabulary/spm.model"
python3 "$root/recipes/base_model" "$root/recipes/base_model/wide.toml" --data "$data" --output "$work/wide-1024" \
  --device "${DEVICE:-cuda}" --minutes "$minutes"
rm -rf "$work/ibidem-wide-de-en" # what rows call the model
cp -r "$work/wide-1024/model" "$work/ibidem-wide-de-en"

# The base model, and k = 4: full space, PCA, SVD, CKMT*, with exact search and with the paper's index.
only=()
for row in af7e4a55528db40c 70676a498f7cefca ff649cf1e1e67934 0af156ebd2b49b5f 0237cee94f8fb27b \
  359aab1b38ce8481 1cf3868d7b644d0e 79d9a9017655df66; do
  only+=(--only "$row")
done
python3 -m ibidem reproduce compact --data "$data" --model "$work/ibidem-wide-de-en" --results "$results" --work "$work/rows" \
  --device "${DEVICE:-cuda}" --jobs "${JOBS:-4}" --seeds 1 "${only[@]}"
