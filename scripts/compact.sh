#!/usr/bin/env bash
# The runs behind docs/results/compact.md: one domain in the full space and in compact ones, K = 8 and 4, adaptive combiner.
#   scripts/compact.sh DATA OUTPUT [DEVICE] [DOMAIN]
# DATA holds DOMAIN/{train,dev,test}.{de,en}.xz. JSON and translations land in OUTPUT, memories in $MEMORIES (OUTPUT/memories).
# All variants run side by side, so no speed can be read off them. UPDATES bounds the training of each network.
set -uo pipefail
data=$1
output=$2
device=${3:-auto}
domain=${4:-it}
memories=${MEMORIES:-$output/memories}
ibidem=${IBIDEM:-ibidem}
updates=${UPDATES:-30000}
mkdir -p "$output" "$memories"
started=$(date +%s)

say() { echo "$(($(date +%s) - started)) s: $*"; }

tune_and_score() { # NAME K
  $ibidem tune -m "$memories/$1" --dev "$data/$domain/dev.de.xz" --dev "$data/$domain/dev.en.xz" --device "$device" \
    --k "$2" --seed 1 --json > "$output/tune-$1-k$2.json" 2>> "$output/$1.err" &&
    $ibidem evaluate -m "$memories/$1" --test "$data/$domain/test.de.xz" --test "$data/$domain/test.en.xz" \
      --device "$device" --batch-size 128 --combiner adaptive --save "$output/$1-k$2" --json \
      > "$output/evaluate-$1-k$2.json" 2>> "$output/$1.err"
  say "$1, K = $2 scored ($?)"
}

variant() { # NAME SOURCE [OPTIONS of ibidem compact]
  local name=$1 source=$2
  shift 2
  cp -al "$memories/$source" "$memories/$name" # segments never change: the copies share them
  rm -f "$memories/$name/lock"                 # but must not share the lock
  if [ $# -gt 0 ]; then
    $ibidem compact -m "$memories/$name" "$@" --drop-keys --compact-updates "$updates" --device "$device" --seed 1 --json \
      > "$output/compact-$name.json" 2>> "$output/$name.err"
    say "$name compacted ($?)"
  fi
  tune_and_score "$name" 8
  tune_and_score "$name" 4
}

clustering() { # NAME QUANTILE
  cp -al "$memories/whole" "$memories/$1"
  rm -f "$memories/$1/lock"
  $ibidem cluster -m "$memories/$1" --eps-quantile "$2" --device "$device" --seed 1 --json \
    > "$output/cluster-$1.json" 2> "$output/cluster-$1.err"
  say "$1 clustered ($?)"
}

$ibidem extract --train "$data/$domain/train.de.xz" --train "$data/$domain/train.en.xz" -o "$memories/whole" \
  --device "$device" --batch-tokens 32768 --seed 1 --json > "$output/extract.json" 2> "$output/extract.err"
say "extracted ($?)"
variant full whole &
variant pca64 whole pca &
variant svd64 whole svd &
variant network64-tanh-families whole network --activation tanh --no-clusters &
clustering most 0.9
variant network64 most network --activation sigmoid &
variant network64-tanh most network --activation tanh &
variant network32-tanh most network --activation tanh --dimension 32 &
variant network64-tanh-fast most network --activation tanh --learning-rate 1e-3 &
variant network64-tanh-sum most network --activation tanh --objectives nce+prediction &
clustering half 0.5
variant network64-tanh-half half network --activation tanh &
wait
say "done"
