#!/usr/bin/env bash
# Kills a training run with SIGKILL at random moments, checkpoint writes included, resumes it, and
# compares its final checkpoint and losses with those of an undisturbed run, bit for bit.
#
#   scripts/kill-test.sh [KILLS] [PROGRAM]        (200, build/bin/ridge)
set -euo pipefail
kills=${1:-200}
program=$(realpath "${2:-$(dirname "$0")/../build/bin/ridge}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

steps=150
# In a subshell of its own, which becomes the program, so that a kill meets the program itself.
train() {  # DIRECTORY: goes on from the directory's checkpoint if there is one
  local resume=()
  [ -f "$1/checkpoint.safetensors" ] && resume=(--resume "$1/checkpoint.safetensors")
  exec "$program" train --hidden-dim 64 --n-layers 2 --seq-len 32 --batch-size 2 --num-steps $steps \
    --learning-rate 1e-3 --max-grad-norm 1 --lr-schedule cosine --lr-warmup-steps 20 \
    --save-every 1 --threads 2 --output-dir "$1" "${resume[@]}"
}

start=$(date +%s%N)
(train whole) >whole.log 2>&1
took_ms=$((($(date +%s%N) - start) / 1000000))
done_kills=0 resumes=0 rounds=0
while [ "$done_kills" -lt "$kills" ]; do
  rounds=$((rounds + 1))
  rm -rf killed
  while true; do
    train killed >killed.log 2>&1 &
    pid=$!
    sleep "0.$(printf '%03d' $((RANDOM % (took_ms < 999 ? took_ms : 999))))"
    if [ "$done_kills" -lt "$kills" ] && kill -KILL $pid 2>/dev/null; then
      wait $pid 2>/dev/null || true
      done_kills=$((done_kills + 1))
    elif wait $pid; then
      break
    else
      echo "kill-test: the run failed after $done_kills kills:" >&2
      cat killed.log >&2
      exit 1
    fi
    [ -f killed/checkpoint.safetensors ] && resumes=$((resumes + 1))
  done
  if ! cmp -s whole/checkpoint.safetensors killed/checkpoint.safetensors; then
    echo "kill-test: after $done_kills kills the final checkpoint differs from the undisturbed run's" >&2
    exit 1
  fi
  echo "round $rounds: $done_kills kills, $resumes resumes, final checkpoint identical"
done
echo "$done_kills kills, $resumes resumes, 0 differences"
