# shellcheck shell=bash
# Sourced by examples/run.sh and tests/run.sh: installs what they need and the machine does not have. Where everything is there it does
# nothing and needs no rights; where something is missing it uses apt, as root or through sudo; elsewhere it names what is missing.

# Debian's package, and a sign that it, or the same from elsewhere, is there: a command or a header.
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
    'abigail-tools command abidiff'
    'libopenmpi-dev command mpicc'
    'openmpi-bin command mpirun'
    'iproute2 command ip'
)

mdlm_has() {
    case $1 in
    command) command -v "$2" >/dev/null ;;
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
