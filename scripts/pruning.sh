#!/usr/bin/env bash
# BLEU over the pruning rate, cost clusters against random, on one compact memory tuned before pruning (docs/results/pruning.md).
#   scripts/pruning.sh DATA OUTPUT [DEVICE] TRAIN_DE TRAIN_EN
# DATA holds it/{dev,test}.{de,en}.xz. JSON and translations go to OUTPUT, memories to $MEMORIES (OUTPUT/memories).
# RATES lists the rates, JOBS is the number of memories pruned and scored side by side, UPDATES bounds the network's training.
set -uo pipefail
data=$1
output=$2
device=$3
train_de=$4
train_en=$5
memories=${MEMORIES:-$output/memories}
ibidem=${IBIDEM:-ibidem}
mkdir -p "$output" "$memories"
started=$(date +%s)

say() { echo "$(($(date +%s) - started)) s: $*"; }

score() { # NAME
  $ibidem evaluate -m "$memories/$1" --test "$data/it/test.de.xz" --test "$data/it/test.en.xz" --device "$device" \
    --batch-size 128 --combiner adaptive --save "$output/$1" --json > "$output/evaluate-$1.json" 2>> "$output/$1.err"
  say "$1 scored ($?)"
}

pruned() { # STRATEGY RATE
  local name=$1-$2
  cp -al "$memories/whole" "$memories/$name" # hard links: segments never change
  rm -f "$memories/$name/lock"               # the lock must not be shared
  $ibidem prune -m "$memories/$name" --strategy "$1" --rate "$2" --final --seed 1 --json \
    > "$output/prune-$name.json" 2>> "$output/$name.err" && score "$name"
  rm -rf "${memories:?}/$name"
}

$ibidem learn --train "$train_de" --train "$train_en" --dev "$data/it/dev.de.xz" --dev "$data/it/dev.en.xz" \
  -o "$memories/whole" --compact network --set "compact.updates=${UPDATES:-30000}" --set "tune.k=${K:-8}" --set extract.batch_tokens=32768 \
  --device "$device" --seed 1 --json > "$output/learn.json" 2> "$output/learn.err"
say "learnt ($?)"
score whole &
for rate in ${RATES:-0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9}; do
  for strategy in cost-clusters random; do
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-6}" ]; do sleep 0.5; done
    pruned "$strategy" "$rate" &
  done
done
wait
say "done"
