#!/usr/bin/env bash
# gpu_bundle.sh TVM_BUNDLE [OUT]
# Gathers what has to travel to a GPU machine without a network, besides the repository, in OUT
# (default .gpu, which git ignores). TVM_BUNDLE holds tvm-gpu.tar and setup.sh, which bring TVM for
# Python 3.12 there; it may be OUT itself. There: source OUT/setup.sh && bash scripts/gpu_check.sh
#
# Adds OUT/collage-gpu.tar.xz: CUTLASS's example 41 (its fused attention, which is headers), and
# wheels of small Python packages, used only where one is missing.
# PyTorch, cuBLAS, cuDNN and CUDA's compiler are expected there, TensorRT is not.
# And OUT/zoo.tar.xz: the packages that build the networks of benchmarks/zoo, which are all Python;
# torchvision and transformers are expected there.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tvm_bundle=$1
out=${2:-.gpu}
limit=${BUNDLE_LIMIT:-56000000}
python=${PYTHON:-python3}
mkdir -p "$out"
for file in tvm-gpu.tar setup.sh; do
  [ -f "$tvm_bundle/$file" ] || { echo "'$tvm_bundle' has no $file" >&2; exit 1; }
  [ "$tvm_bundle/$file" -ef "$out/$file" ] || cp "$tvm_bundle/$file" "$out/$file"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
download() {  # download FOLDER REQUIREMENT...
  local folder=$1; shift
  "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version 3.12 --implementation cp --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 -d "$folder" "$@" 2> >(grep -v '^WARNING' >&2)
}
# What pyproject.toml requires and neither TVM's bundle nor PyTorch is sure to bring; the last line
# is for `pytest -m gpu`.
download "$work/site/wheels" 'typer>=0.12,<1' 'click>=8' 'shellingham>=1.5' 'annotated-doc' \
  'filelock>=3.12,<5' 'threadpoolctl>=3.5,<4' 'jinja2>=3.1,<4' 'markupsafe>=2' 'msgspec>=0.19,<1' \
  'pytest>=8,<10' 'pytest-timeout>=2.3,<3' 'pluggy>=1.6,<2' 'iniconfig>=2'
# The same bounds as the extra [cuda].
download "$work/download" 'nvidia-cutlass>=4.2,<4.3'
unzip -q "$work"/download/nvidia_cutlass-*.whl \
  'cutlass_library/source/examples/41_fused_multi_head_attention/*' -d "$work/cutlass"
mkdir -p "$work/site/cutlass"
mv "$work/cutlass/cutlass_library/source/examples" "$work/site/cutlass/examples"
tar -C "$work/site" --owner=0 --group=0 -cf - . | xz -9e >"$out/collage-gpu.tar.xz"
"$python" -m pip install -q --disable-pip-version-check --no-deps --no-compile \
  --target "$work/zoo" 'timm>=1.0,<2' 'diffusers>=0.30,<1' 'segmentation-models-pytorch>=0.4,<1' \
  'monai>=1.3,<2' 'einops>=0.7,<1' 2> >(grep -v '^WARNING' >&2)
# Programs, diffusers' pipelines and timm's names of classes take a third of it, and no network needs
# them.
rm -rf "$work/zoo/bin" "$work"/zoo/diffusers/{pipelines,modular_pipelines} "$work/zoo/timm/data/_info"
tar -C "$work/zoo" --owner=0 --group=0 -cf - . | xz -9e >"$out/zoo.tar.xz"
total=$(cat "$out/tvm-gpu.tar" "$out/setup.sh" "$out/collage-gpu.tar.xz" "$out/zoo.tar.xz" | wc -c)
echo "$(stat -c '%s bytes %n' "$out"/*)"
echo "together $total bytes"
[ "$total" -le "$limit" ] || { echo "more than $limit bytes" >&2; exit 1; }
