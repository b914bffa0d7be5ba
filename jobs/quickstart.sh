#!/usr/bin/env bash
# From nothing to a trained model: installs what is missing, builds, packs Fashion-MNIST to HDF5, trains, prints the
# test accuracy. Arguments go to the trainer: jobs/quickstart.sh --train.epochs 1
set -euo pipefail
here=$PWD
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

# The run's folder: --run.dir of the arguments, the last one, else a new one.
run=
previous=
for argument in "$@"; do
  case $argument in
    --run.dir=*) run=${argument#*=} ;;
    *) [ "$previous" != --run.dir ] || run=$argument ;;
  esac
  previous=$argument
done
own=()
if [ -z "$run" ]; then
  run=$top/runs/quickstart-$(date +%Y%m%d-%H%M%S)
  own=(--run.dir "$run")
fi

cd "$here"  # where relative paths in the arguments start
[ -t 1 ] || export NO_COLOR=1  # mpirun gives its ranks a terminal of their own, whatever its output is
mpirun -np "$ranks" --bind-to none "$top/build/trainer" --job "$top/jobs/fashion_mnist.ini" "${own[@]}" "$@"

accuracy=$(sed -n 's/.*"top1": *\([0-9.eE+-]*\).*/\1/p' "$run/summary.json" | head -n 1)
echo "Fashion-MNIST test accuracy: ${accuracy:-unknown} (see $run/summary.json)"
