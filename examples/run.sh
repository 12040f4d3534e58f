#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds libmdlm into build/, and runs the examples: a first step, one step on several ranks,
# then two small language models (about six minutes on two cores). Arguments go to the last of them, 02:
# examples/run.sh --steps 300
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=tools/setup.sh
source tools/setup.sh
mdlm_setup_build

mdlm_configure build
programs=(01_forward_backward 02_train_dlm 03_tensor_parallel 04_gpt2)
mpi=0
if ninja -C build -t query examples/03_tensor_parallel_mpi >/dev/null 2>&1; then
    programs+=(03_tensor_parallel_mpi)
    mpi=1
fi
ninja -C build --quiet "${programs[@]/#/examples/}"

echo "== examples/01_forward_backward"
build/examples/01_forward_backward
echo
echo "== examples/03_tensor_parallel"
build/examples/03_tensor_parallel
if [ $mpi = 1 ] && command -v mpirun >/dev/null; then
    echo
    echo "== examples/03_tensor_parallel, MPI"
    # Open MPI asks to be told that it may run as root, and with more processes than cores.
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        mpirun --oversubscribe -n 2 build/examples/03_tensor_parallel_mpi
fi
echo
echo "== examples/04_gpt2"
build/examples/04_gpt2 --out build
echo
echo "== examples/02_train_dlm"
build/examples/02_train_dlm --out build "$@"
