#!/usr/bin/env bash
# Train a base model with keys of 1024 dimensions, as the paper's has, and compare the spaces on IT: docs/results/wide.
#   scripts/wide.sh DATA WORK RESULTS [MINUTES of training]
# DATA as in docs/reproduce.md, with general, lexicon, news and it. The model stays in WORK, the rows go to RESULTS.
# One seed, on DEVICE (cuda). JOBS rows run side by side (4), each with all keys on the GPU: 9 GB for the 4.3 million of IT.
set -euo pipefail
data=${1:?usage: scripts/wide.sh DATA WORK RESULTS [MINUTES]}
work=$(mkdir -p "${2:?usage: scripts/wide.sh DATA WORK RESULTS [MINUTES]}" && cd "$2" && pwd)
results=${3:?usage: scripts/wide.sh DATA WORK RESULTS [MINUTES]}
minutes=${4:-12}
root=$(cd "$(dirname "$0")/.." && pwd)

# The recipe and the vocabulary of the shipped model.
mkdir -p "$work/wide-1024/vocabulary"
cp "$root"/src/ibidem/model/shipped/ibidem-base-de-en/source.spm "$work/wide-1024/vocabulary/spm.model"
python3 "$root/recipes/base_model" "$root/recipes/base_model/wide.toml" --data "$data" --output "$work/wide-1024" \
  --device "${DEVICE:-cuda}" --minutes "$minutes"
rm -rf "$work/ibidem-wide-de-en" # rows name the model after its folder
cp -r "$work/wide-1024/model" "$work/ibidem-wide-de-en"

# The base model, and at k = 4: full space, PCA, SVD, CKMT*, with exact search and (but SVD) with the paper's index.
only=(--only "it/test base")
for space in full pca64 svd64 "network64 static nce+CL"; do
  only+=(--only "it/test it $space k=4 seed=1")
  [ "$space" = svd64 ] || only+=(--only "it/test it $space k=4 index=paper seed=1")
done
python3 -m ibidem reproduce compact --data "$data" --model "$work/ibidem-wide-de-en" --results "$results" --work "$work/rows" \
  --device "${DEVICE:-cuda}" --jobs "${JOBS:-4}" --seeds 1 "${only[@]}"
