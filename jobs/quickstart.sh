#!/usr/bin/env bash
# From nothing to a trained model: installs what is missing, builds, packs Fashion-MNIST to HDF5, trains, prints the
# test accuracy. Arguments go to the trainer: jobs/quickstart.sh --train.epochs 1
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
. ./setup.sh

cmake --preset release >/dev/null
cmake --build --preset release --target trainer datatool

source=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
packed=.cache/fashion_mnist  # where jobs/fashion_mnist.ini looks
mkdir -p "$packed"
pack() {  # SPLIT PREFIX
  [ -e "$packed/$1.h5" ] || build/datatool pack-idx --images "$source/$2-images-idx3-ubyte.gz" \
    --labels "$source/$2-labels-idx1-ubyte.gz" --out "$packed/$1.h5" \
    --class-names "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
}
pack train train
pack test t10k

# A power of two of ranks, at most 8; unbound, they share the cores.
cores=$(nproc)
ranks=1
while [ $((ranks * 2)) -le "$cores" ] && [ "$ranks" -lt 8 ]; do ranks=$((ranks * 2)); done

run=$top/runs/quickstart-$(date +%Y%m%d-%H%M%S)
[ -t 1 ] || export NO_COLOR=1  # mpirun gives its ranks a terminal of their own, whatever its output is
cd build
mpirun -np "$ranks" --bind-to none ./trainer --job ../jobs/fashion_mnist.ini --run.dir "$run" "$@"

accuracy=$(sed -n 's/.*"top1": *\([0-9.eE+-]*\).*/\1/p' "$run/summary.json" | head -n 1)
echo "Fashion-MNIST test accuracy: ${accuracy:-unknown} (see $run/summary.json)"
