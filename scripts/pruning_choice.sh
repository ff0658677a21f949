#!/usr/bin/env bash
# Compare settings of cost clusters at 30 % by BLEU on the dev set, one compact memory tuned before pruning (docs/results/pruning.md).
#   scripts/pruning_choice.sh DATA OUTPUT DEVICE TRAIN_DE TRAIN_EN [COMPACTOR]
# DATA holds it/{dev,test}.{de,en}.xz. With COMPACTOR, a trained one of the same model, no network is trained.
# VARIANTS holds words "GROUPS:N:SCALE:EPSILON:COST_N"; random and high-probability pruning are always among them.
set -uo pipefail
data=$1
output=$2
device=$3
train_de=$4
train_en=$5
compactor=${6:-}
memories=${MEMORIES:-$output/memories}
ibidem=${IBIDEM:-ibidem}
rate=${RATE:-0.3}
mkdir -p "$output" "$memories"
started=$(date +%s)

say() { echo "$(($(date +%s) - started)) s: $*"; }

pruned() { # NAME OPTIONS of ibidem prune
  local name=$1
  shift
  cp -al "$memories/whole" "$memories/$name" # hard links: segments never change
  rm -f "$memories/$name/lock"               # the lock must not be shared
  $ibidem prune -m "$memories/$name" --rate "$rate" --final --seed 1 "$@" --json \
    > "$output/prune-$name.json" 2>> "$output/$name.err" && score "$name"
  rm -rf "${memories:?}/$name"
}

score() { # NAME
  for set in ${SETS:-dev}; do
    $ibidem evaluate -m "$memories/$1" --test "$data/it/$set.de.xz" --test "$data/it/$set.en.xz" --device "$device" \
      --batch-size 128 --combiner adaptive --save "$output/$1-$set" --json > "$output/evaluate-$1-$set.json" 2>> "$output/$1.err"
    say "$1 scored on $set ($?)"
  done
}

wait_for_room() { while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-7}" ]; do sleep 0.3; done; }

$ibidem learn --train "$train_de" --train "$train_en" --dev "$data/it/dev.de.xz" --dev "$data/it/dev.en.xz" \
  -o "$memories/whole" --compact network ${compactor:+--set "compactor=$compactor"} --set "tune.k=${K:-8}" --set extract.batch_tokens=65536 \
  --device "$device" --seed 1 --json > "$output/learn.json" 2> "$output/learn.err"
say "learnt ($?)"
score whole &
for variant in ${VARIANTS:-ngram:2:perplexity:0.001:1 ngram:3:perplexity:0.01:1 ngram:4:perplexity:1.5:2}; do
  IFS=: read -r groups n scale epsilon cost_n <<< "$variant"
  wait_for_room
  pruned "$groups$n-$scale-$epsilon-cost$cost_n" --set "groups=$groups" --set "group_n=$n" --set "scale=$scale" \
    --set "epsilon=$epsilon" --set "n=$cost_n" &
done
for strategy in random high-probability; do
  wait_for_room
  pruned "$strategy" --strategy "$strategy" &
done
wait
say "done"
