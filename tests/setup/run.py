#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suite `setup`: a build folder follows what is installed, in whichever order a machine comes to have it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "abi"))
from harness import ROOT, Skip, case, have, main, run  # noqa: E402

# A project that asks for MPI as libmdlm does: as libmdlm it would take ten times as long to set up.
PROJECT = """project('p', 'c', 'cpp', default_options: ['buildtype=release'])
mpi = dependency('mpi', language: 'c', required: false)
configure_file(output: 'seen', configuration: {'mpi': mpi.found() ? 1 : 0, 'greeting_' + get_option('greeting'): 1,
    'compiler_' + meson.get_compiler('c').get_id(): 1})
"""


def without_mpi(folder):
    """An environment in which neither a command nor pkg-config knows MPI: folders of PATH with its commands become
    links to all others."""
    path = []
    for number, place in enumerate(os.environ["PATH"].split(os.pathsep)):
        names = os.listdir(place) if os.path.isdir(place) else []
        if any(name.startswith("mpi") for name in names):
            hidden = os.path.join(folder, f"bin{number}")
            os.mkdir(hidden)
            for name in names:
                if not name.startswith(("mpi", "ompi")):
                    os.symlink(os.path.join(place, name), os.path.join(hidden, name))
            place = hidden
        path.append(place)
    descriptions = os.path.join(folder, "pkgconfig")
    os.mkdir(descriptions)
    others = {key: value for key, value in os.environ.items() if key != "PKG_CONFIG_PATH"}
    return {**others, "PATH": os.pathsep.join(path), "PKG_CONFIG_LIBDIR": descriptions}


def start(folder):
    if not have("mpicc"):
        raise Skip("because there is no MPI here to come and go")
    with open(os.path.join(folder, "meson.build"), "w") as file:
        file.write(PROJECT)
    with open(os.path.join(folder, "meson_options.txt"), "w") as file:
        file.write("option('greeting', type: 'string', value: 'none')\n")


def configure(folder, environment=None):
    """As tests/run.sh and examples/run.sh do; True if Meson ran."""
    note = os.path.join(folder, "build", "mdlm-found")
    before = os.stat(note).st_mtime_ns if os.path.exists(note) else 0
    script = f"set -Eeuo pipefail; source {ROOT}/tools/setup.sh; cd {folder}; mdlm_configure build -Dgreeting=hello"
    run(["bash", "-c", script], env=environment)
    return os.stat(note).st_mtime_ns != before


def holds(folder, what):
    """Whether the build folder was set up with it."""
    with open(os.path.join(folder, "build", "seen")) as file:
        lines = file.read().split("\n")
    assert "#define greeting_hello 1" in lines, lines  # the options of the first time stay
    return f"#define {what} 1" in lines


@case("MPI that is installed after the first build is found, MPI that is gone is not, and else nothing is done")
def _(folder):
    start(folder)
    poorer = without_mpi(folder)
    assert configure(folder, poorer) and not holds(folder, "mpi")
    assert not configure(folder, poorer)
    assert configure(folder) and holds(folder, "mpi"), "MPI was installed, and the build is still without"
    assert not configure(folder)
    assert configure(folder, poorer) and not holds(folder, "mpi"), "MPI was removed, and the build still has it"


@case("a folder that was set up by hand is set up again")
def _(folder):
    start(folder)
    run(["meson", "setup", os.path.join(folder, "build"), folder, "-Dgreeting=hello"], env=without_mpi(folder))
    assert not holds(folder, "mpi")
    assert configure(folder) and holds(folder, "mpi")


@case("another compiler starts a folder anew")
def _(folder):
    start(folder)
    if not have("clang-14"):
        raise Skip("because clang-14 is not installed")
    assert configure(folder, {**os.environ, "CC": "gcc", "CXX": "g++"}) and holds(folder, "compiler_gcc")
    assert configure(folder, {**os.environ, "CC": "clang-14", "CXX": "clang++-14"})
    assert holds(folder, "compiler_clang") and not holds(folder, "compiler_gcc")


@case("what failed half-way is tried again")
def _(folder):
    start(folder)
    assert configure(folder)
    with open(os.path.join(folder, "meson.build"), "a") as file:
        file.write("error('not today')\n")
    try:
        configure(folder, without_mpi(folder))
    except AssertionError as why:
        assert "not today" in str(why), why
    else:
        raise AssertionError("setting up failed, and nobody said so")
    with open(os.path.join(folder, "meson.build"), "w") as file:
        file.write(PROJECT)
    assert configure(folder) and holds(folder, "mpi")


sys.exit(main())
