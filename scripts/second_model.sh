#!/usr/bin/env bash
# Make the second shipped model, ibidem-base-en-de: train, pack, make the general parts, score, write the card.
#   scripts/second_model.sh DATA WORK
# DATA as in docs/reproduce.md, with general, lexicon, news, flores and the domains. Everything is kept in WORK and in
# src/ibidem/model/shipped/ibidem-base-en-de; the same command resumes. DEVICE (cuda) trains for the 13 minutes of the
# recipe on an H200; PAUSE stops the training after so many minutes. Memories are learnt and sets are scored side by side.
# After it, `ibidem model list` and the server have both directions: nothing else must be changed.
set -euo pipefail
data=$(cd "${1:?usage: scripts/second_model.sh DATA WORK}" && pwd)
work=$(mkdir -p "${2:?usage: scripts/second_model.sh DATA WORK}" && cd "$2" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
device=${DEVICE:-cuda}
shipped=$root/src/ibidem/model/shipped/ibidem-base-en-de
model=$work/ibidem-base-en-de  # copied to $shipped when it is complete
general=$model/general
domains=(it koran games suttas law)

# The two files of a dev set.
dev() { echo "$data/$1/dev.en.xz" "$data/$1/dev.de.xz"; }
# Learn the memory of a domain; with a dev set only its combiners change.
learn() {
  local domain=$1
  shift
  python3 -m ibidem learn --model "$model" --device "$device" --set extract.batch_tokens="${BATCH_TOKENS:-32768}" \
    --train "$data/$domain/train.en.xz" "$data/$domain/train.de.xz" -o "$work/memories/$domain" "$@" > "$work/learn-$domain.log"
}
# Wait for all jobs in the background; fail if one of them failed.
finish() {
  local job failed=0
  for job in "$@"; do wait "$job" || failed=1; done
  return $failed
}

if [ ! -f "$work/base/model/config.json" ]; then
  # The vocabulary of the first model, which was trained on both sides of the same text.
  mkdir -p "$work/base/vocabulary"
  cp "$root/src/ibidem/model/shipped/ibidem-base-de-en/source.spm" "$work/base/vocabulary/spm.model"
  python3 "$root/recipes/base_model" "$root/recipes/base_model/en-de.toml" --data "$data" --output "$work/base" \
    --device "$device" ${PAUSE:+--pause-after "$PAUSE"}
  [ -f "$work/base/model/config.json" ] || exit 0  # paused
fi
if [ ! -f "$model/config.json" ]; then
  python3 -c "import sys; from pathlib import Path; from ibidem.model.loading import pack_folder; \
              pack_folder(Path(sys.argv[1]), Path(sys.argv[2]))" "$work/base/model" "$model"
fi

# The general parts. Until there is a combiner, that of the first model takes its place: it is not used to train the new one.
mkdir -p "$general"
[ -f "$general/source_projection.safetensors" ] || python3 "$root/recipes/general" compactor --model "$model" \
  --device "$device" --text "$data/general/train.en.xz" "$data/general/train.de.xz" -o "$general"
if [ ! -f "$work/combiner.done" ]; then
  cp "$root/src/ibidem/model/shipped/ibidem-base-de-en/general/combiner.safetensors" "$general"
  jobs=() memories=()
  for domain in "${domains[@]}"; do
    learn "$domain" &
    jobs+=($!)
    memories+=(--memory "$work/memories/$domain" $(dev "$domain"))
  done
  finish "${jobs[@]}"
  memories+=(--memory "$work/memories/it" $(dev news) --memory "$work/memories/koran" $(dev news))
  python3 "$root/recipes/general" combiner --model "$model" --device "$device" -o "$general" "${memories[@]}"
  touch "$work/combiner.done"
fi

# Confidence: dev lines with the base model and with memories; koran is left out, as for the first model.
if [ ! -f "$general/confidence.json" ]; then
  texts=() memories=() jobs=()
  for set in it law suttas medical news games; do texts+=(--text $(dev "$set") 1000 200); done
  for set in it games suttas; do
    python3 -m ibidem tune -m "$work/memories/$set" --model "$model" --device "$device" --again > "$work/tune-$set.log" &
    jobs+=($!)
    memories+=(--memory "$work/memories/$set" $(dev "$set") 600 250)
  done
  finish "${jobs[@]}"
  python3 "$root/recipes/general" confidence --model "$model" --device "$device" -o "$general" "${texts[@]}" "${memories[@]}"
fi

# Scores of the base model, and of the default memories of the domains (the gains).
evaluate() {
  local output=$1 set=$2
  shift 2
  [ -s "$output" ] || { python3 -m ibidem evaluate --device "$device" --batch-size 64 --json "$@" \
    --test "$data/$set/test.en.xz" --test "$data/$set/test.de.xz" > "$output.part" && mv "$output.part" "$output"; }
}
scores=() jobs=()
for set in flores news medical "${domains[@]}"; do
  evaluate "$work/$set.json" "$set" --model "$model" &
  jobs+=($!)
  scores+=("$set=$work/$set.json")
done
for domain in "${domains[@]}"; do
  {
    learn "$domain" --dev $(dev "$domain") &&
      evaluate "$work/$domain-memory.json" "$domain" -m "$work/memories/$domain" &&
      evaluate "$work/$domain-memory-lines.json" "$domain" -m "$work/memories/$domain" --no-split
  } &
  jobs+=($!)
done
finish "${jobs[@]}"
rm -rf "$shipped"
cp -r "$model" "$shipped"
python3 "$root/recipes/base_model/card.py" "$shipped" --config "$root/recipes/base_model/en-de.toml" --scores "${scores[@]}"
