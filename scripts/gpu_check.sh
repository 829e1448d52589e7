#!/usr/bin/env bash
# Everything that needs a GPU, in one command, with no network: what the machine is, whether every
# backend's kernels are right, how fast whole networks are beside the peers.
#
#   bash scripts/gpu_check.sh [--stage environment|tests|numerics|benchmarks|zoo|fleet]...
#                             [--models a,b] [--batch 1,16] [--peers "a;b"] [--targets a,b] [--rounds N]
#                             [--reuse FOLDER] [--log FILE] [--merge FILE] [--again]
#                             [--gpus 0,1] [--abreast N] [--time-budget SEC]
#                             [--families a,b] [--match TEXT] [--tune] [--numerics-budget SEC]
#                             [--networks a,b] [--network-limit SEC] [--search-sec SEC]
#                             [--compile-peer a,b]
#                             [--out FOLDER] [--dry-run]
#
# Each stage writes its results into --out ($OUT, or ./out) as it goes: environment.json; tests-N.xml of
# each GPU; numerics.jsonl and .md; gpu.json, gpu.md, collage.jsonl and tuned.tar; zoo.jsonl and zoo_cuda.md;
# two_gpus.json and .md; check.log. Without --stage all but the tests, the zoo and the fleet are run.
# Every GPU that may be seen is used: each has a network, or a case, of its own; --abreast N prepares several networks at once on
# each, and times them one by one. What does not fit in the time budget is said to be left out.
# --reuse FOLDER takes an earlier run's results: its measurements (--log FILE alone), its tables,
# which are gone on with (--merge FILE alone), and what the backends tuned. So the same command
# again and again completes the table.
# --dry-run goes the same way on a CPU with tiny networks. docs/cuda.md tells more.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
begin=$(date +%s)

stages=() models= batch=1,16 budget=520 numerics_budget=220 tests_budget=480
log= merge= reuse= dry= families= match= tune= networks=
more=() zoo=()
out=${OUT:-out}
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
while [ $# -gt 0 ]; do
  case "$1" in
    --stage) stages+=("$2"); shift;;
    --models) models=$2; shift;;
    --batch) batch=$2; shift;;
    --time-budget) budget=$2; shift;;
    --numerics-budget) numerics_budget=$2; shift;;
    --reuse) reuse=$2; shift;;
    --log) log=$2; shift;;
    --merge) merge=$2; shift;;
    --gpus) export CUDA_VISIBLE_DEVICES=$2; shift;;
    --networks) networks=$2; shift;;
    --network-limit) zoo+=(--limit "$2"); shift;;
    --search-sec|--compile-peer) zoo+=("$1" "$2"); shift;;
    --peers|--targets|--rounds|--least-budget) more+=("$1" "$2"); shift;;
    --abreast) more+=("$1" "$2"); zoo+=("$1" "$2"); shift;;
    --again) more+=("$1");;
    --out) out=$2; shift;;
    --families) families=$2; shift;;
    --match) match=$2; shift;;
    --tune) tune=1;;
    --dry-run) dry=1;;
    -h|--help) usage; exit 0;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2;;
  esac
  shift
done
[ ${#stages[@]} -gt 0 ] || stages=(environment numerics benchmarks)
for stage in "${stages[@]}"; do
  case "$stage" in environment|tests|numerics|benchmarks|zoo|fleet);;
    *) echo "unknown stage '$stage'" >&2; exit 2;; esac
done
mkdir -p "$out"
out=$(cd "$out" && pwd)

# A copy of the tree may have lost its relative links.
for folder in backends search cost; do
  [ -e "collage/$folder/__init__.py" ] || { rm -rf "collage/$folder"; ln -s "../$folder" "collage/$folder"; }
done
python=${PYTHON:-python3}
if [ -f .gpu/collage-gpu.tar.xz ] && [ -z "$dry" ]; then
  site=$("$python" scripts/gpu_site.py .gpu/collage-gpu.tar.xz "${COLLAGE_SITE:-/tmp/collage-gpu-site}") &&
    export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
fi
if [ -f .gpu/zoo.tar.xz ] && [ -z "$dry" ]; then
  site=$("$python" scripts/gpu_site.py .gpu/zoo.tar.xz "${COLLAGE_SITE:-/tmp/collage-gpu-site}-zoo") &&
    export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$site"
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
# Where PyTorch is installed TVM would import it in every process, and compile an extension for it.
export TVM_FFI_DISABLE_TORCH_C_DLPACK=1
# Compiled objects, by content: later stages and calls take them from here.
export COLLAGE_CACHE_DIR=${COLLAGE_CACHE_DIR:-/tmp/collage-gpu-cache}
device=cuda
[ -z "$dry" ] || device=cpu
if [ -n "$reuse" ]; then
  [ -z "$log" ] && [ -f "$reuse/collage.jsonl" ] && log=$reuse/collage.jsonl
  [ -z "$merge" ] && [ -f "$reuse/gpu.json" ] && merge=$reuse/gpu.json
  [ ! -f "$reuse/zoo.jsonl" ] || [ "$reuse" -ef "$out" ] || cp "$reuse/zoo.jsonl" "$out/zoo.jsonl"
  mkdir -p "$COLLAGE_CACHE_DIR"
  [ ! -f "$reuse/tuned.tar" ] || tar -C "$COLLAGE_CACHE_DIR" --skip-old-files -xf "$reuse/tuned.tar"
fi
# What backends keep of their own measurements; kernels themselves are compiled again.
keep_tuned() {
  (cd "$COLLAGE_CACHE_DIR" && find . -mindepth 2 -name '*.jsonl' -print0 |
    tar --null -T - -cf "$out/tuned.tar")
}

# The GPUs that may be seen, by number; at least one, for whoever has none to be told so.
cards() {
  [ -z "${CUDA_VISIBLE_DEVICES:-}" ] || { tr , ' ' <<<"$CUDA_VISIBLE_DEVICES"; return; }
  seq 0 $(($(nvidia-smi -L 2>/dev/null | grep -c . || true) - 1)) | grep . || echo 0
}
left() { echo $((budget - $(date +%s) + begin)); }
say() { echo "== $*" | tee -a "$out/check.log"; }
worst=0 status=0
run() {  # run NAME LIMIT_SEC COMMAND...
  local name=$1 limit=$2; shift 2
  say "$name ($(left) s left)"
  [ "$limit" -gt 0 ] || { say "$name: no time left"; worst=1 status=124; return; }
  timeout -k 10 "$limit" "$@" 2>&1 | tee -a "$out/check.log"
  status=${PIPESTATUS[0]}
  [ "$status" -ne 124 ] || say "$name: stopped after $limit s"
  say "$name: exit status $status ($(left) s left)"
  [ "$status" -eq 0 ] || worst=1
}

for stage in "${stages[@]}"; do
  case "$stage" in
    environment)
      run environment 90 "$python" -m benchmarks.gpu.environment --out "$out" ${dry:+--quick};;
    tests)
      limit=$(left); [ "$limit" -lt "$tests_budget" ] || limit=$tests_budget
      # Each GPU has a share of the files: one after the other they take longer than a run may.
      gpus=($(cards)) files=($(grep -rlF mark.gpu tests --include='test_*.py' | sort -r)) jobs=()
      for i in "${!gpus[@]}"; do
        share=()
        for ((f = i; f < ${#files[@]}; f += ${#gpus[@]})); do share+=("${files[f]}"); done
        [ ${#share[@]} -gt 0 ] || continue
        (run "tests on ${gpus[i]}" "$limit" env CUDA_VISIBLE_DEVICES="${gpus[i]}" "$python" -m pytest \
          -m gpu -p no:cacheprovider -v -rfEs --durations=5 --junitxml "$out/tests-$i.xml" \
          ${match:+-k "$match"} "${share[@]}"; exit "$status") & jobs+=($!)
      done
      none=5 found=
      for job in "${jobs[@]}"; do
        wait "$job"; status=$?
        # Of a share --match may leave nothing, but not of all.
        [ "$status" -eq "$none" ] || { found=1; [ "$status" -eq 0 ] || worst=1; }
      done
      [ -n "$found" ] || worst=1;;
    numerics)
      if [ -n "$dry" ] && [ -z "$families" ]; then families=tests.benchmarks_tests.gpu_rehearsal_cases; fi
      limit=$(left); [ "$limit" -lt "$numerics_budget" ] || limit=$numerics_budget
      run numerics $((limit + 45)) "$python" -m benchmarks.gpu.numerics --out "$out" \
        --cache "$COLLAGE_CACHE_DIR" --device "$device" --time-budget "$limit" \
        ${families:+--families "$families"} ${match:+--match "$match"} ${tune:+--tune};;
    benchmarks)
      # Written to in --out, which comes back from a machine that does not stay.
      [ -z "$log" ] || [ "$log" -ef "$out/collage.jsonl" ] || cp "$log" "$out/collage.jsonl"
      run benchmarks "$(left)" "$python" -m benchmarks.gpu.run --out "$out" --batch "$batch" \
        --time-budget "$(($(left) - 15))" --log "$out/collage.jsonl" \
        --compiler-cache "$COLLAGE_CACHE_DIR/torch.compile" \
        ${models:+--models "$models"} ${merge:+--merge "$merge"} ${dry:+--dry-run} \
        ${more[@]+"${more[@]}"}
      keep_tuned;;
    zoo)
      run zoo "$(left)" "$python" -m benchmarks.zoo --stage run --device "$device" --out "$out" \
        --budget "$(($(left) - 15))" ${networks:+--networks "$networks"} ${zoo[@]+"${zoo[@]}"};;
    fleet)
      # Two GPUs beside one: each search has a cache of its own, and needs both GPUs for itself.
      for file in two_gpus.json two_gpus.jsonl; do
        [ -z "$reuse" ] || [ "$reuse" -ef "$out" ] || [ ! -f "$reuse/$file" ] || cp "$reuse/$file" "$out"
      done
      run fleet "$(left)" "$python" -m benchmarks.fleet.two_gpus --out "$out" \
        --budget "$(($(left) - 15))";;
  esac
done
exit "$worst"
