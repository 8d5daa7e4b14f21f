#!/bin/sh
# The program of a build for HIP starts, tells of itself, plans and trains on the CPU; and where it cannot
# use a card, each command says so in one line and leaves nothing.
#   program.sh RIDGE
set -u
ridge=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
small="--hidden-dim 32 --n-layers 1 --n-heads 2 --vocab-size 50 --seq-len 16 --batch-size 2 --num-steps 2"
failed=0
fail() { echo "FAILED: $*" && cat out err && failed=1; }

works() {  # WHAT IT SAYS, COMMAND..
  said=$1
  shift
  "$ridge" "$@" >out 2>err || fail "ridge $*: exit code $?"
  grep -q -- "$said" out || fail "ridge $*: does not say '$said'"
}
refused() {  # BEGIN OF THE LINE, COMMAND..
  said=$1
  shift
  "$ridge" "$@" >out 2>err
  code=$?
  [ $code = 1 ] || fail "ridge $*: exit code $code"
  [ "$(wc -l <err)" = 1 ] && grep -q "^ridge: $said" err || fail "ridge $*: not one line, '$said'"
  [ ! -e output ] || fail "ridge $*: left output/"
}

works '^Device: ' about
works 'built with HIP' doctor --device cpu
works '^Device: ' plan --device cpu $small
works 'Performance Summary' train --device cpu --output-dir trained $small
refused '--device cuda: this build of Ridge is for' train --device cuda $small
"$ridge" doctor --device hip >out 2>err
case $? in
  0) echo "there is a card: what it refuses without one was not tried" ;;
  1)
    grep -q 'missing.*Card' out || fail "ridge doctor --device hip: does not say what is missing"
    refused '--device hip: ' train --device hip $small
    refused '--device hip: ' plan --device hip $small
    refused '--device hip: ' bench --device hip --network resnet18 --num-steps 2
    refused '--device hip: ' verify --device hip
    refused '--device hip: ' roofline --device hip
    ;;
  *) fail "ridge doctor --device hip" ;;
esac
[ $failed = 0 ] && echo "all as it should be"
exit $failed
