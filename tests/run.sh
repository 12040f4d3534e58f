#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test. The last line printed is "N passed, N failed, N skipped".
#
#   tests/run.sh                                  everything: release build, clang build, sanitizer builds
#   tests/run.sh --suite unit [--case 'packed*']  one suite of the release build, or some of its cases
#   tests/run.sh --suite unit --sanitizers        the same under AddressSanitizer and UndefinedBehaviorSanitizer
#   tests/run.sh --suite unit --tsan              the same under ThreadSanitizer
#   tests/run.sh --fuzz-minutes 60                only libFuzzer, every target for so long (more: tests/fuzz/run.py)
#   tests/run.sh --list                           names the suites
set -Eeuo pipefail
cd "$(dirname "$0")/.."

suites=() sanitizers_only=0 tsan_only=0 fuzz_minutes=0
for ((i = 1; i <= $#; i++)); do
    case "${!i}" in
    --suite | --case) suites+=("${!i}"); i=$((i + 1)); suites+=("${!i:?needs a value}") ;;
    --list) suites+=(--list) ;;
    --sanitizers) sanitizers_only=1 ;;
    --tsan) tsan_only=1 ;;
    --fuzz-minutes) i=$((i + 1)); fuzz_minutes=${!i:?needs a value} ;;
    *) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done

# A step that fails before the suites could count is one failure.
trap 'echo "0 passed, 1 failed, 0 skipped"' ERR
began=$SECONDS
step() { printf '== %s  (%d s)\n' "$1" $((SECONDS - began)); }

source tools/setup.sh
step 'installing what is missing'
mdlm_setup_tests

# build FOLDER [target...]
build() {
    ninja -C "$@" >"$1/build.log" 2>&1 || { grep -v '^\[' "$1/build.log" | tail -n 80; false; }
}
# Files of the targets that are not tests, relative to the build folder.
shipped_targets='
import json, sys
for target in json.load(sys.stdin):
    if target["build_by_default"] and "/tests/" not in target["defined_in"]:
        print("\n".join(name.split("/build/clang/")[1] for name in target["filename"]))
'
release() { step 'building (gcc, release)'; mdlm_configure build; build build; }
# What is shipped, for its warnings and for the C ABI; unoptimised, which compiles in half the time.
clang() {
    step 'building (clang)'
    CC=clang-14 CXX=clang++-14 mdlm_configure build/clang --optimization=0
    local shipped
    mapfile -t shipped < <(meson introspect --targets build/clang | python3 -c "$shipped_targets")
    build build/clang "${shipped[@]}"
}
sanitizers() {
    step 'building (gcc, address and undefined behaviour sanitizers)'
    # Lines for stack traces, and no variables for a debugger: a fifth of the time that the library takes to compile.
    mdlm_configure build/asan --optimization=1 --debug -Dcpp_args=-g1 -Db_ndebug=false -Db_sanitize=address,undefined \
        -Dexamples=false -Dtools=false
    build build/asan
}
# The tool and the CPU kernels' cases for AArch64, which the suite aarch64 runs emulated, or says why not. With less
# optimisation it compiles in half the time.
aarch64() {
    step 'building (AArch64)'
    mdlm_setup_cross build/arm64-packages || return 0
    local place=$PWD/build/arm64-packages
    printf "[properties]\nsys_root = '%s'\npkg_config_libdir = '%s'\n" "$place" \
        "$place/usr/lib/aarch64-linux-gnu/pkgconfig" >"$place/cross.ini"
    CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ mdlm_configure build/aarch64 \
        --cross-file tests/aarch64/cross.ini --cross-file "$place/cross.ini" --optimization=1 \
        -Donednn=disabled -Dmpi=disabled -Dexamples=false
    build build/aarch64 tools/mdlm tests/unit/mdlm-test-unit-cpu
}
# libFuzzer's targets, with one instruction set, which takes half of the time to compile.
fuzzers() {
    step 'building (clang, libFuzzer)'
    CC=clang-14 CXX=clang++-14 mdlm_configure build/fuzz --optimization=1 -Dfuzz=true -Db_ndebug=false \
        -Db_sanitize=address,undefined -Db_lundef=false -Donednn=disabled -Dmpi=disabled -Dexamples=false -Dtools=false
    build build/fuzz tests/fuzz/mdlm-fuzz
}

tsan() {
    step 'building (gcc, thread sanitizer)'
    # Without oneDNN, whose OpenMP ThreadSanitizer does not see into.
    mdlm_configure build/tsan --optimization=1 --debug -Dcpp_args=-g1 -Db_ndebug=false -Db_sanitize=thread \
        -Dexamples=false -Dtools=false -Dmpi=disabled -Donednn=disabled
    build build/tsan tests/mdlm-test-unit tests/mdlm-test-parallel
}

if [ "$fuzz_minutes" != 0 ]; then
    fuzzers
    trap - ERR
    step 'fuzzing'
    exec python3 tests/fuzz/run.py --minutes "$fuzz_minutes" --jobs 2
fi

folders=()
if [ $sanitizers_only = 1 ]; then
    sanitizers
    folders=(build/asan)
elif [ $tsan_only = 1 ]; then
    tsan
    folders=(build/tsan)
elif [ ${#suites[@]} -gt 0 ]; then
    release
    [[ " ${suites[*]} " != *" aarch64 "* ]] || aarch64
    folders=(build)
else
    release
    clang
    sanitizers
    tsan
    fuzzers
    aarch64
    # What looks for faults and leaks finds more under sanitizers; what compares numbers finds nothing more.
    numbers=unit,unit-avx2,unit-sse4,unit-scalar,golden,golden-own,golden-onednn,planner,property,parallel
    folders=(
        "build:source,$numbers,tool,examples,no_alloc,abi,mpi,setup,aarch64" build/clang:abi
        build/asan:unit,planner,property,parallel,fault,fuzz,mpi build/tsan:unit,parallel build/fuzz:fuzz-run)
fi
trap - ERR
step 'running the suites'
exec python3 tests/run_suites.py "${folders[@]}" ${suites[@]+"${suites[@]}"}
