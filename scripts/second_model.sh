#!/usr/bin/env bash
# Make the second shipped model, ibidem-base-en-de: train, pack, make the general parts, score, write the card.
#   scripts/second_model.sh DATA WORK
# DATA as in docs/reproduce.md, with general, lexicon, news, flores and the domains. Everything is kept in WORK and in
# src/ibidem/model/shipped/ibidem-base-en-de; the same command resumes. DEVICE (cuda) trains for the 13 minutes of the
# recipe on an H200. After it, `ibidem model list` and the server have both directions: nothing else must be changed.
set -euo pipefail
data=$(cd "${1:?usage: scripts/second_model.sh DATA WORK}" && pwd)
work=$(mkdir -p "${2:?usage: scripts/second_model.sh DATA WORK}" && cd "$2" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
device=${DEVICE:-cuda}
shipped=$root/src/ibidem/model/shipped/ibidem-base-en-de
domains=(it koran games suttas law)

python3 "$root/recipes/base_model" "$root/recipes/base_model/en-de.toml" --data "$data" --output "$work/base" --device "$device"
if [ ! -f "$shipped/config.json" ]; then
  python3 -c "import sys; from pathlib import Path; from ibidem.model.loading import pack_folder; \
              pack_folder(Path(sys.argv[1]), Path(sys.argv[2]))" "$work/base/model" "$shipped"
fi

# The general parts, in a folder of their own until all three are complete.
if [ ! -d "$shipped/general" ]; then
  general=$work/general
  [ -f "$general/compactor.safetensors" ] || python3 "$root/recipes/general" compactor --model ibidem-base-en-de \
    --text "$data/general/train.en.xz" "$data/general/train.de.xz" -o "$general"
  memories=()
  for domain in "${domains[@]}"; do
    python3 -m ibidem learn --model ibidem-base-en-de --device "$device" --compactor "$general/compactor.safetensors" \
      --train "$data/$domain/train.en.xz" "$data/$domain/train.de.xz" -o "$work/memories/$domain"
    memories+=(--memory "$work/memories/$domain" "$data/$domain/dev.en.xz" "$data/$domain/dev.de.xz")
  done
  memories+=(--memory "$work/memories/it" "$data/news/dev.en.xz" "$data/news/dev.de.xz")
  memories+=(--memory "$work/memories/koran" "$data/news/dev.en.xz" "$data/news/dev.de.xz")
  python3 "$root/recipes/general" combiner --model ibidem-base-en-de -o "$general" "${memories[@]}"
  cp -r "$general" "$shipped/general"
fi

# Scores of the base model, and of the default memories of the domains (the gains).
scores=()
for set in flores news "${domains[@]}"; do
  [ -s "$work/$set.json" ] || python3 -m ibidem evaluate --model ibidem-base-en-de --device "$device" --json \
    --test "$data/$set/test.en.xz" --test "$data/$set/test.de.xz" > "$work/$set.json"
  scores+=("$set=$work/$set.json")
done
for domain in "${domains[@]}"; do
  python3 -m ibidem learn --model ibidem-base-en-de --device "$device" \
    --train "$data/$domain/train.en.xz" "$data/$domain/train.de.xz" --dev "$data/$domain/dev.en.xz" "$data/$domain/dev.de.xz" \
    -o "$work/tuned/$domain"
  [ -s "$work/$domain-memory.json" ] || python3 -m ibidem evaluate -m "$work/tuned/$domain" --device "$device" --json \
    --test "$data/$domain/test.en.xz" --test "$data/$domain/test.de.xz" > "$work/$domain-memory.json"
done
python3 "$root/recipes/base_model/card.py" "$shipped" --config "$root/recipes/base_model/en-de.toml" --scores "${scores[@]}"
