#!/usr/bin/env bash
# Measure rows of tables within a time limit, on a machine that may keep nothing, and pack the new results:
#   scripts/rows.sh DATA RESULTS TABLE… [options of ibidem reproduce]
# RESULTS may hold stored rows (rows/rows.jsonl.xz and model.json of docs/results/tables), which are not measured again.
#   LIMIT=SECONDS  stop after so many seconds (570); no row is started that would not be ready in time
#   PUBLISH=FOLDER where new rows go as rows.tgz, every half minute and at the end (RESULTS)
#   WHEELS=FOLDER  wheels for the modules that this Python lacks (scripts/fetch_wheels.sh)
#   DEVICE=cuda, JOBS=8, ROWS_WORK=/dev/shm/rows (memories)
set -euo pipefail
usage="usage: scripts/rows.sh DATA RESULTS TABLE… [options of ibidem reproduce]"
data=${1:?$usage} results=${2:?$usage}
shift 2
: "${1:?$usage}"
root=$(cd "$(dirname "$0")/.." && pwd)
limit=${LIMIT:-570} work=${ROWS_WORK:-/dev/shm/rows} publish=${PUBLISH:-$results}
mkdir -p "$results/rows" "$work" "$publish"
export PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
if [ -n "${WHEELS:-}" ]; then
  python3 "$root/scripts/missing_wheels.py" "$WHEELS" "$work/site"
  PYTHONPATH=$PYTHONPATH:$work/site
fi
touch "$work/begin"

# Pack what is newer than this run; an archive is complete or is not there.
pack() {
  (cd "$results" && find . -type f -newer "$work/begin" ! -path './work/*' ! -name 'rows.tgz*' | sort > "$work/list" &&
    tar czf "$work/rows.tgz" -T "$work/list")
  cp "$work/rows.tgz" "$publish/rows.tgz.part"
  mv "$publish/rows.tgz.part" "$publish/rows.tgz"
}
while sleep 30; do pack || true; done &
packer=$!
finish() {
  kill "$packer" 2> /dev/null || true
  wait "$packer" 2> /dev/null || true
  pack
}
trap finish EXIT
# The last minute is for rows that take longer than they should.
timeout --kill-after=5 $((limit - SECONDS - 10)) python3 -m ibidem reproduce "$@" --data "$data" --device "${DEVICE:-cuda}" \
  --jobs "${JOBS:-8}" --minutes $(((limit - SECONDS - 60) / 60)) --work "$work/memories" --results "$results" > /dev/null
