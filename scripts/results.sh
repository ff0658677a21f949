#!/usr/bin/env bash
# The runs behind docs/results/quality.md: learn IT and Koran, evaluate them, and the base model alone on other sets.
#   scripts/results.sh DATA OUTPUT [DEVICE]
# DATA holds DOMAIN/{train,dev,test}.{de,en}.xz. JSON goes to OUTPUT, memories to OUTPUT/memories.
set -euo pipefail
data=$1
output=$2
device=${3:-auto}
mkdir -p "$output"

evaluate() {
  local domain=$1
  shift
  ibidem evaluate --test "$data/$domain/test.de.xz" --test "$data/$domain/test.en.xz" --device "$device" \
    --batch-size 128 --json "$@"
}

for domain in it koran; do
  ibidem learn --train "$data/$domain/train.de.xz" --train "$data/$domain/train.en.xz" \
    --dev "$data/$domain/dev.de.xz" --dev "$data/$domain/dev.en.xz" -o "$output/memories/$domain" \
    --device "$device" --set extract.batch_tokens=32768 --set tune.objective=bleu --seed 1 --json > "$output/learn-$domain.json"
  evaluate "$domain" -m "$output/memories/$domain" --combiner fixed --combiner adaptive > "$output/$domain.json"
done
for domain in flores news law medical suttas games; do
  evaluate "$domain" > "$output/base-$domain.json"
done
