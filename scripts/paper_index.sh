#!/usr/bin/env bash
# BLEU and recall of the paper's index (IVF1024,PQ64, nprobe 32) in the full and in a compact space (docs/results/quality.md).
#   scripts/paper_index.sh DATA OUTPUT [DEVICE] [DOMAIN]
# The model runs on DEVICE, faiss on the CPU. JSON and translations go to OUTPUT, memories to $MEMORIES (OUTPUT/memories).
# TEST_LINES bounds the test set, UPDATES the training of the network, KS lists the numbers of neighbours.
set -uo pipefail
data=$1
output=$2
device=${3:-auto}
domain=${4:-it}
memories=${MEMORIES:-$output/memories}
ibidem=${IBIDEM:-ibidem}
python=${PYTHON:-python3}
mkdir -p "$output" "$memories"
started=$(date +%s)

say() { echo "$(($(date +%s) - started)) s: $*"; }

for side in de en; do xz -dc "$data/$domain/test.$side.xz" | head -n "${TEST_LINES:-100000}" > "$memories/test.$side"; done

measure() { # NAME
  local dev=(--dev "$data/$domain/dev.de.xz" --dev "$data/$domain/dev.en.xz")
  $ibidem index paper -m "$memories/$1" --json > "$output/index-$1.json" 2>> "$output/$1.err"
  say "$1 indexed ($?)"
  for k in ${KS:-8 4}; do
    $ibidem tune -m "$memories/$1" "${dev[@]}" --index paper --k "$k" --device "$device" --seed 1 --json \
      > "$output/tune-$1-k$k.json" 2>> "$output/$1.err"
    say "$1, K = $k tuned ($?)"
    $ibidem evaluate -m "$memories/$1" --test "$memories/test.de" --test "$memories/test.en" --index paper \
      --combiner adaptive --device "$device" --batch-size 128 --save "$output/$1-k$k" --json \
      > "$output/evaluate-$1-k$k.json" 2>> "$output/$1.err"
    say "$1, K = $k scored ($?)"
  done
  $python benchmarks/search.py -m "$memories/$1" --text "$data/$domain/dev.de.xz" "$data/$domain/dev.en.xz" \
    --index paper --k 8 --queries 2048 --rounds 3 --device "$device" > "$output/recall-$1.json" 2>> "$output/$1.err"
  say "$1: recall measured ($?)"
}

$ibidem extract --train "$data/$domain/train.de.xz" --train "$data/$domain/train.en.xz" -o "$memories/full" \
  --device "$device" --batch-tokens 32768 --seed 1 --json > "$output/extract.json" 2> "$output/extract.err"
say "extracted ($?)"
$ibidem cluster -m "$memories/full" --device "$device" --seed 1 --json > "$output/cluster.json" 2> "$output/cluster.err"
cp -al "$memories/full" "$memories/network64" # hard links: segments never change
rm -f "$memories/network64/lock"              # the lock must not be shared
measure full &
$ibidem compact network -m "$memories/network64" --drop-keys --set "updates=${UPDATES:-30000}" --device "$device" \
  --seed 1 --json > "$output/compact.json" 2> "$output/compact.err"
say "compacted ($?)"
measure network64 &
wait
say "done"
