#!/bin/bash
# Installs what is missing, builds libmdlm into build/, and runs the examples: a first step, then a small language model (about four
# minutes on two cores). Arguments go to the trainer: examples/run.sh --steps 300
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=tools/setup.sh
source tools/setup.sh
mdlm_setup_build

if [ ! -f build/build.ninja ]; then
    meson setup build >/dev/null
fi
ninja -C build --quiet examples/01_forward_backward examples/02_train_dlm

echo "== examples/01_forward_backward"
build/examples/01_forward_backward
echo
echo "== examples/02_train_dlm"
build/examples/02_train_dlm --out build "$@"
