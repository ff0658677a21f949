#!/usr/bin/env bash
# Make the second shipped model, ibidem-base-en-de: train, pack, make the general parts, score, write the card.
#   scripts/second_model.sh DATA WORK [STAGE…]        stages: train extend general score ship (all but extend)
# DATA as in docs/reproduce.md, with general, lexicon, news, flores and the domains. Everything is kept in WORK and in
# src/ibidem/model/shipped/ibidem-base-en-de; the same command resumes. After it, `ibidem model list` and the server have
# both directions: nothing else must be changed.
#   DEVICE=cuda    the device; on a CPU nothing runs side by side, and all but the training takes some hours
#   CONFIG=FILE    the recipe (recipes/base_model/en-de.toml)
#   LIMIT=SECONDS  end after so many seconds: the training is made shorter, and no further step is begun
#   PUBLISH=FOLDER copy results there as soon as they are complete, in pieces of less than 16 MiB
#   FROM="FOLDER…" first take over what other runs published; a later folder replaces an earlier one
#   WHEELS=FOLDER  wheels for the modules that this Python lacks (scripts/fetch_wheels.sh)
# `extend` continues a training that has ended, where its checkpoint still exists, and keeps the better model. docs/models.md
# says how to use jobs of ten minutes on a machine that keeps nothing.
set -euo pipefail
usage="usage: scripts/second_model.sh DATA WORK [STAGE…]"
data=$(cd "${1:?$usage}" && pwd)
work=$(mkdir -p "${2:?$usage}" && cd "$2" && pwd)
shift 2
stages=("$@")
[ $# -gt 0 ] || stages=(train general score ship)
root=$(cd "$(dirname "$0")/.." && pwd)
first=$root/src/ibidem/model/shipped/ibidem-base-de-en
config=${CONFIG:-$root/recipes/base_model/en-de.toml}
device=${DEVICE:-cuda}
limit=${LIMIT:-1000000}
shipped=${SHIPPED:-$root/src/ibidem/model/shipped}/ibidem-base-en-de
model=$work/ibidem-base-en-de  # copied to $shipped when it is complete
general=$model/general
domains=(${DOMAINS:-it koran games suttas law})
export PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# Processes side by side would compete for all cores.
[ "$device" = cpu ] || export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"

# The seconds that are left, at least 1.
left() { echo $((limit - SECONDS > 1 ? limit - SECONDS : 1)); }
# End the script if less than the given seconds are left for the next step.
need() {
  if [ "$(left)" -lt "$1" ] && [ -n "${LIMIT:-}" ]; then
    echo "$SECONDS s: no time for $2; the same command resumes"
    exit 0
  fi
  echo "$SECONDS s: $2"
}
python() { timeout --kill-after=5 "$(left)" python3 "$@"; }
# Run a function in the background, or at once on a CPU.
jobs=()
start() {
  if [ "$device" = cpu ]; then "$@"; else
    "$@" &
    jobs+=($!)
  fi
}
# Wait for all jobs in the background; fail if one of them failed.
finish() {
  local job failed=0
  for job in "${jobs[@]}"; do wait "$job" || failed=1; done
  jobs=()
  return $failed
}

# Publish a packed model under a name: the pieces first, then the sums that make it complete.
publish_model() {
  [ -n "${PUBLISH:-}" ] || return 0
  mkdir -p "$PUBLISH"
  rm -f "$PUBLISH/$2".*
  tar cz -C "$(dirname "$1")" --exclude=general "$(basename "$1")" | split -b 16700000 -d - "$PUBLISH/$2.tar.gz."
  (cd "$PUBLISH" && sha256sum "$2".tar.gz.* > "$2.part" && mv "$2.part" "$2.sha256")
}
# Publish all small results.
publish_parts() {
  [ -n "${PUBLISH:-}" ] || return 0
  mkdir -p "$PUBLISH"
  (cd "$work" && find . -maxdepth 1 -type f \( -name '*.json' -o -name '*.log' -o -name '*.done' \) -print
    cd "$work" && find . -path './ibidem-base-en-de/general/*' -type f -print) > "$work/parts.list"
  tar cz -C "$work" -T "$work/parts.list" > "$PUBLISH/parts.part" && mv "$PUBLISH/parts.part" "$PUBLISH/parts.tar.gz"
}
trap publish_parts EXIT
# Delete the model, and what was made with it.
forget() { rm -rf "$model" "$work/model" "$work/memories" "$work"/*.done "$work"/*.json; }
# Unpack what another run published.
take_over() {
  local name
  for name in model plain snapshot; do
    [ -f "$1/$name.sha256" ] || continue
    # A model that was taken over before keeps its general parts; those of another model do not fit.
    ! cmp -s "$1/$name.sha256" "$work/taken.sha256" || break
    (cd "$1" && sha256sum --quiet -c "$name.sha256")
    forget
    cat "$1/$name".tar.gz.* | tar xz -C "$work"
    [ "$name" != plain ] || pack "$work/model" "$model"
    cp "$1/$name.sha256" "$work/taken.sha256"
    echo "took over $name of $1"
    break
  done
  [ ! -f "$1/parts.tar.gz" ] || tar xzf "$1/parts.tar.gz" -C "$work"
}
pack() {
  rm -rf "$2.part"
  python -c "import sys; from pathlib import Path; from ibidem.model.loading import pack_folder; \
             pack_folder(Path(sys.argv[1]), Path(sys.argv[2]))" "$1" "$2.part"
  rm -rf "$2"
  mv "$2.part" "$2"
}
# Publish a model of the unfinished training as soon as there is one, in case that the training never ends.
watch_snapshot() {
  until [ -f "$work/base/snapshot/config.json" ]; do sleep 2; done
  mkdir -p "$work/snapshot"
  pack "$work/base/snapshot" "$work/snapshot/ibidem-base-en-de"
  publish_model "$work/snapshot/ibidem-base-en-de" snapshot
}

train_model() {
  local options=() watcher=""
  # The rest is for the last scores, the export and packing.
  [ -z "${LIMIT:-}" ] || options+=(--end-at $(($(date +%s) + $(left) - ${RESERVE:-50})) --snapshot-at 0.9)
  if [ -n "${LIMIT:-}" ] && [ -n "${PUBLISH:-}" ]; then
    watch_snapshot > "$work/snapshot.log" 2>&1 &
    watcher=$!
  fi
  # The vocabulary of the first model, which was trained on both sides of the same text.
  mkdir -p "$work/base/vocabulary"
  cp "$first/source.spm" "$work/base/vocabulary/spm.model"
  python "$root/recipes/base_model" "$config" --data "$data" --output "$work/base" --device "$device" "${options[@]}" |
    tee -a "$work/train.log"
  # The snapshot may be published at this moment; it is not needed any more.
  [ -z "$watcher" ] || { kill "$watcher" 2> /dev/null || true; }
  pack "$work/base/model" "$model" || {
    [ -z "${PUBLISH:-}" ] || rm -f "$PUBLISH"/snapshot.*
    publish_model "$work/base/model" plain
    return 1
  }
  publish_model "$model" model
  [ -z "${PUBLISH:-}" ] || rm -f "$PUBLISH"/snapshot.*
}

train() {
  [ ! -f "$model/config.json" ] || return 0
  need 120 "train the base model"
  train_model
}

extend() {
  if [ ! -f "$work/base/checkpoint.pt" ] || [ ! -f "$model/config.json" ]; then
    echo "$work/base has no checkpoint of a training that has ended: nothing to extend"
    return 0
  fi
  need 180 "train the base model further"
  rm -rf "$work/base/snapshot"
  forget
  train_model
}

# The two files of a dev set.
dev() { echo "$data/$1/dev.en.xz" "$data/$1/dev.de.xz"; }
# Learn the memory of a domain; with a dev set only its combiners change.
learn() {
  local domain=$1 batch=${BATCH_TOKENS:-}
  shift
  [ -n "$batch" ] || [ "$device" = cpu ] || batch=32768
  python -m ibidem learn --model "$model" --device "$device" ${batch:+--set extract.batch_tokens=$batch} \
    --train "$data/$domain/train.en.xz" "$data/$domain/train.de.xz" -o "$work/memories/$domain" "$@" > "$work/learn-$domain.log"
}
learn_and_tune() {
  learn "$1"
  python -m ibidem tune -m "$work/memories/$1" --model "$model" --device "$device" --again > "$work/tune-$1.log"
}

# The general parts. Until there is a combiner, that of the first model takes its place: it is not used to train the new one.
general() {
  local domain set memories=() texts=()
  mkdir -p "$general"
  if [ ! -f "$work/compactor.done" ]; then
    need 60 "train the general compactor"
    python "$root/recipes/general" compactor --model "$model" --device "$device" ${GENERAL_OPTIONS:-} \
      --text "$data/general/train.en.xz" "$data/general/train.de.xz" -o "$general" > "$work/compactor.log"
    touch "$work/compactor.done"
    publish_parts
  fi
  if [ ! -f "$work/combiner.done" ]; then
    need 90 "learn the memories of ${domains[*]}"
    cp "$first/general/combiner.safetensors" "$general"
    for domain in "${domains[@]}"; do
      start learn "$domain"
      memories+=(--memory "$work/memories/$domain" $(dev "$domain"))
    done
    finish
    need 45 "train the general combiner"
    memories+=(--memory "$work/memories/${domains[0]}" $(dev news) --memory "$work/memories/${domains[1]}" $(dev news))
    python "$root/recipes/general" combiner --model "$model" --device "$device" ${COMBINER_OPTIONS:-} -o "$general" "${memories[@]}" > "$work/combiner.log"
    touch "$work/combiner.done"
    publish_parts
  fi
  # Confidence: dev lines with the base model and with memories; koran is left out, as for the first model.
  if [ ! -f "$work/confidence.done" ]; then
    need 90 "fit the confidence"
    memories=()
    for set in ${CONFIDENCE_TEXTS:-it law suttas medical news games}; do texts+=(--text $(dev "$set") 1000 200); done
    for set in ${CONFIDENCE_MEMORIES:-it games suttas}; do
      start learn_and_tune "$set"
      memories+=(--memory "$work/memories/$set" $(dev "$set") 600 250)
    done
    finish
    python "$root/recipes/general" confidence --model "$model" --device "$device" -o "$general" "${texts[@]}" "${memories[@]}" \
      > "$work/confidence.log"
    touch "$work/confidence.done"
    publish_parts
  fi
}

evaluate() {
  local output=$1 set=$2
  shift 2
  [ -s "$output" ] || { python -m ibidem evaluate --device "$device" --batch-size 64 --json "$@" \
    --test "$data/$set/test.en.xz" --test "$data/$set/test.de.xz" > "$output.part" && mv "$output.part" "$output"; }
}
gain() {
  [ -s "$work/$1-memory.json" ] && [ -s "$work/$1-memory-lines.json" ] && return
  learn "$1" --dev $(dev "$1")
  evaluate "$work/$1-memory.json" "$1" -m "$work/memories/$1"
  evaluate "$work/$1-memory-lines.json" "$1" -m "$work/memories/$1" --no-split
}
# Scores of the base model, and of the default memories of the domains (the gains).
sets=(flores news medical "${domains[@]}")
score() {
  local set
  need 60 "score the base model"
  for set in "${sets[@]}"; do start evaluate "$work/$set.json" "$set" --model "$model"; done
  finish
  publish_parts
  need 90 "score the memories"
  for set in "${domains[@]}"; do start gain "$set"; done
  finish
}

ship() {
  local set scores=()
  for set in "${sets[@]}"; do scores+=("$set=$work/$set.json"); done
  rm -rf "$shipped"
  mkdir -p "$(dirname "$shipped")"
  cp -r "$model" "$shipped"
  python "$root/recipes/base_model/card.py" "$shipped" --config "$config" --scores "${scores[@]}"
  echo "$SECONDS s: $shipped is complete"
}

if [ -n "${WHEELS:-}" ]; then
  python3 "$root/scripts/missing_wheels.py" "$WHEELS" "$work/site"
  PYTHONPATH=$PYTHONPATH:$work/site
fi
for folder in ${FROM:-}; do take_over "$folder"; done
for stage in "${stages[@]}"; do
  case $stage in
    train | extend | general | score | ship) "$stage" ;;
    *) echo "unknown stage $stage: $usage" >&2 && exit 2 ;;
  esac
done
