#!/bin/sh
# Loads a store of runs: processes that write while one of them is killed every so often, and how
# long a store of many runs takes to answer. The tests have smaller ones of both.
#
#   scripts/store-test.sh [--bin build/bin] [--processes 8] [--runs 10000] [--kill-every 1]
#                         [--fill 1000000] [--keep DIR]
#
# Needs some 3 GB of disk for a million runs; --keep leaves the files in DIR.
set -eu
bin=build/bin processes=8 runs=10000 kill_every=1 fill=1000000 directory=
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$2 ;;
    --processes) processes=$2 ;;
    --runs) runs=$2 ;;
    --kill-every) kill_every=$2 ;;
    --fill) fill=$2 ;;
    --keep) directory=$2 ;;
    *)
      echo "store-test: unknown argument '$1'; see its first lines" >&2
      exit 2
      ;;
  esac
  shift 2
done
if [ -z "$directory" ]; then
  directory=$(mktemp -d)
  trap 'rm -rf "$directory"' EXIT
fi

echo "== $processes processes write $runs runs each, one is killed every $kill_every s"
"$bin/store_load" write "$directory/written.db" "$processes" "$runs" "$kill_every"
echo "== $fill runs"
"$bin/store_load" fill "$directory/many.db" "$fill"
"$bin/store_load" ask "$directory/many.db"
echo "== the program as a whole"
for filter in "" "version=v4 and gpu~H100"; do
  begin=$(date +%s.%N)
  if [ -n "$filter" ]; then
    "$bin/ridge" runs list --store "$directory/many.db" --filter "$filter"
  else
    "$bin/ridge" runs list --store "$directory/many.db"
  fi | tail -n 1
  echo "$begin $(date +%s.%N)" | awk '{ printf "  %.3f s\n", $2 - $1 }'
done
