# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by examples/run.sh and tests/run.sh: installs what they need and the machine does not have. Where everything
# is there it does nothing and needs no rights; where something is missing it uses apt, as root or through sudo;
# elsewhere it names what is missing.

# Debian's package, and a sign that it, or the same from elsewhere, is there: a command, a header, what clang links for
# an option, or clang-format of the version that .clang-format is written for.
mdlm_build_needs=(
    'g++ command g++'
    'meson command meson'
    'ninja-build command ninja'
    'pkg-config command pkg-config'
    'libdnnl-dev header dnnl.h'
    'libhwy-dev header hwy/highway.h'
    'nlohmann-json3-dev header nlohmann/json.hpp'
    'doctest-dev header doctest/doctest.h'
)
mdlm_test_needs=(
    'python3 command python3'
    'clang-14 command clang++-14'
    'clang-format-14 format -'
    'libclang-rt-14-dev clang -fsanitize=fuzzer'
    'abigail-tools command abidiff'
    'libopenmpi-dev command mpicc'
    'openmpi-bin command mpirun'
    'iproute2 command ip'
)
# For the suite aarch64, which is skipped without them.
mdlm_cross_needs=(
    'g++-aarch64-linux-gnu command aarch64-linux-gnu-g++'
    'qemu-user-static command qemu-aarch64-static'
)

mdlm_has() {
    case $1 in
    command) command -v "$2" >/dev/null ;;
    clang)
        echo 'extern "C" int LLVMFuzzerTestOneInput(const char *, long) { return 0; }' |
            clang++-14 "$2" -x c++ - -o /dev/null 2>/dev/null
        ;;
    format) command -v clang-format-14 >/dev/null || clang-format --version 2>/dev/null | grep -q 'version 14\.' ;;
    header) echo "#include <$2>" | g++ -x c++ -E - >/dev/null 2>&1 ;;
    esac
}

# Prints the packages of the given needs whose signs are absent, on one line.
mdlm_missing() {
    local need package kind sign
    for need in "$@"; do
        read -r package kind sign <<<"$need"
        mdlm_has "$kind" "$sign" || printf '%s ' "$package"
    done
}

mdlm_setup() {
    local missing as_root=()
    read -ra missing <<<"$(mdlm_missing "$@")"
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "missing, and there is no apt-get to install it with (Debian's names): ${missing[*]}" >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "missing, and installing needs root or sudo: apt-get install ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "installing: ${missing[*]}" >&2
    as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    "${as_root[@]}" update >&2 || return 1
    "${as_root[@]}" install --yes --no-install-recommends "${missing[@]}" >&2 || return 1
    read -ra missing <<<"$(mdlm_missing "$@")"
    if [ ${#missing[@]} -gt 0 ]; then
        echo "still missing after installing: ${missing[*]}" >&2
        return 1
    fi
}

mdlm_setup_build() {
    mdlm_setup "${mdlm_build_needs[@]}"
}

mdlm_setup_tests() {
    mdlm_setup "${mdlm_build_needs[@]}" "${mdlm_test_needs[@]}"
}

# mdlm_setup_cross FOLDER: what building for AArch64 takes, its Highway unpacked in FOLDER. Fails, and says why, where
# it can't be had.
mdlm_setup_cross() {
    local folder=$1 lists packages options highway
    [ "$(uname -m)" != aarch64 ] || return 1
    mdlm_setup "${mdlm_cross_needs[@]}" || return 1
    [ ! -f "$folder/complete" ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "there is no apt-get to fetch Highway for AArch64 with" >&2
        return 1
    fi
    # Lists of another architecture, apart from the machine's own, which stay as they are: that needs no rights.
    lists=$(mktemp -d)
    packages=$lists/packages
    mkdir -p "$lists/state/lists/partial" "$lists/cache/archives/partial" "$packages"
    options=(-o Dir::State="$lists/state" -o Dir::State::status=/dev/null -o Dir::Cache="$lists/cache"
        -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User="$(id -un)")
    echo "fetching Highway for AArch64" >&2
    apt-get -qq "${options[@]}" update >&2 || true  # one of several sources may know no such architecture
    if (cd "$packages" && apt-get -qq "${options[@]}" download libhwy-dev >&2 &&
        highway=$(dpkg --field libhwy-dev_*.deb Depends | grep -o 'libhwy1[a-z0-9]*' | head -n 1) &&
        apt-get -qq "${options[@]}" download "$highway" >&2); then
        rm -rf "$folder"
        mkdir -p "$folder"
        for package in "$packages"/*.deb; do dpkg --extract "$package" "$folder"; done
        touch "$folder/complete"
    fi
    rm -rf "$lists"
    [ -f "$folder/complete" ] || { echo "Highway for AArch64 could not be fetched" >&2; return 1; }
}

# What a build depends on and Meson asks for once: on the first line the compilers, then all that may be there or not.
mdlm_found() {
    local name
    printf '%s; %s\n' "$("${CC:-cc}" --version | sed -n 1p)" "$("${CXX:-c++}" --version | sed -n 1p)"
    for name in dnnl.h doctest/doctest.h nlohmann/json.hpp; do
        if mdlm_has header "$name"; then echo "$name"; fi
    done
    for name in mpicc mpirun python3; do echo "$name $(command -v "$name" || true)"; done
    for name in libhwy ompi-c mpich mpi-c mpi; do
        echo "$name $(pkg-config --modversion "$name" 2>/dev/null || true)"
    done
}

# mdlm_configure FOLDER [option...]: sets a build folder up. One that is there is set up again, with the options that it
# has, where the machine has other things than the last time: Meson remembers what it found, and what it did not. Other
# compilers start it anew.
mdlm_configure() {
    local folder=$1 found how=() log
    shift
    found=$(mdlm_found)
    if [ -f "$folder/build.ninja" ]; then
        [ "$found" != "$(cat "$folder/mdlm-found" 2>/dev/null || true)" ] || return 0
        how=(--reconfigure)
        if [ -f "$folder/mdlm-found" ] && [ "$(head -n 1 <<<"$found")" != "$(head -n 1 "$folder/mdlm-found")" ]; then
            how=(--wipe)
        fi
        rm -f "$folder/mdlm-found"
        [ "${how[*]}" = --wipe ] || meson configure "$folder" --clearcache >/dev/null || return 1
    else
        how=("$@")
    fi
    log=$(mktemp)
    if ! meson setup "$folder" "${how[@]}" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
    printf '%s\n' "$found" >"$folder/mdlm-found"
}
