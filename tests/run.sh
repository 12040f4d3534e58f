#!/bin/bash
# Installs what is missing, builds, and runs every test. The last line printed is "N passed, N failed, N skipped".
#
#   tests/run.sh                                  everything: release build, clang build, sanitizer build
#   tests/run.sh --suite unit [--case 'packed*']  one suite of the release build, or some of its cases
#   tests/run.sh --suite unit --sanitizers        the same under AddressSanitizer and UndefinedBehaviorSanitizer
#   tests/run.sh --list                           names the suites
set -Eeuo pipefail
cd "$(dirname "$0")/.."

suites=() sanitizers_only=0
for ((i = 1; i <= $#; i++)); do
    case "${!i}" in
    --suite | --case) suites+=("${!i}"); i=$((i + 1)); suites+=("${!i:?needs a value}") ;;
    --list) suites+=(--list) ;;
    --sanitizers) sanitizers_only=1 ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done

# A step that fails before the suites could count is one failure.
trap 'echo "0 passed, 1 failed, 0 skipped"' ERR
began=$SECONDS
step() { printf '== %s  (%d s)\n' "$1" $((SECONDS - began)); }

source tools/setup.sh
step 'installing what is missing'
mdlm_setup_tests

# configure FOLDER [option...]; once, unless the folder is there.
configure() {
    local folder=$1
    shift
    [ -f "$folder/build.ninja" ] || meson setup "$folder" "$@" >"/tmp/mdlm-setup.$$" || { cat "/tmp/mdlm-setup.$$"; false; }
    rm -f "/tmp/mdlm-setup.$$"
}
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
release() { step 'building (gcc, release)'; configure build; build build; }
# What is shipped, for its warnings and for the C ABI; unoptimised, which compiles in half the time.
clang() {
    step 'building (clang)'
    CC=clang-14 CXX=clang++-14 configure build/clang --optimization=0
    local shipped
    mapfile -t shipped < <(meson introspect --targets build/clang | python3 -c "$shipped_targets")
    build build/clang "${shipped[@]}"
}
sanitizers() {
    step 'building (gcc, address and undefined behaviour sanitizers)'
    # Lines for stack traces, and no variables for a debugger: a fifth of the time that the library takes to compile.
    configure build/asan --optimization=1 --debug -Dcpp_args=-g1 -Db_ndebug=false -Db_sanitize=address,undefined \
        -Dexamples=false -Dtools=false
    build build/asan
}

folders=()
if [ $sanitizers_only = 1 ]; then
    sanitizers
    folders=(build/asan)
elif [ ${#suites[@]} -gt 0 ]; then
    release
    folders=(build)
else
    release
    clang
    sanitizers
    # What looks for faults and leaks finds more under sanitizers; what compares numbers finds nothing more.
    folders=(build:unit,unit-avx2,unit-sse4,unit-scalar,golden,golden-own,golden-onednn,tool,planner,property,parallel,examples,no_alloc,abi,mpi build/clang:abi build/asan:unit,planner,property,parallel,fault,mpi)
fi
trap - ERR
step 'running the suites'
exec python3 tests/run_suites.py "${folders[@]}" ${suites[@]+"${suites[@]}"}
