# SPDX-License-Identifier: Apache-2.0
"""Programs outside the tree: the one at the top of mdlm.h, built with nothing but what pkg-config says."""

import glob
import os
import re
import shutil
import sys

from harness import BUILD, CC, CXX, ROOT, STRICT, case, compile_text, header, run


def program():
    """The program in the comment at the top of mdlm.h, without its indentation."""
    comment = header().split("*/")[0]
    found = re.search(r"^    #include <mdlm/mdlm\.h>\n.*?^    \}\n", comment, re.MULTILINE | re.DOTALL)
    assert found, "no program found at the top of mdlm.h"
    return re.sub(r"^ {1,4}", "", found.group(0), flags=re.MULTILINE)


def install(folder, described="mdlm.pc"):
    """Installs into folder, where pkg-config's file `described` must then be.

    Returns (prefix, environment with which pkg-config and the loader find it)."""
    run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet"], env={**os.environ, "DESTDIR": folder})
    found = glob.glob(os.path.join(folder, "**", described), recursive=True)
    assert len(found) == 1, found
    libraries = os.path.dirname(os.path.dirname(found[0]))
    environment = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(found[0]), "LD_LIBRARY_PATH": libraries}
    return libraries, environment


def flags(environment, *options, name="mdlm"):
    return run(["pkg-config", *options, name], env=environment).split()


def mdlm_version_of(info):
    return re.search(r"^version +(\S+)$", info, re.MULTILINE).group(1)


def expect_output(out):
    assert re.fullmatch(r"peak [1-9]\d* bytes, y\[0\] = -?\d+\.\d{6}, dx\[0\] = -?\d+\.\d{6}\n", out), out


@case("examples/01_forward_backward/main.c is the program at the top of mdlm.h")
def _(_folder):
    with open(os.path.join(ROOT, "examples", "01_forward_backward", "main.c")) as file:
        assert file.read().split("\n", 2)[2] == program(), "they differ"


@case("the program at the top of mdlm.h runs as C99, C11 and C++20 with pkg-config alone, and prints the same")
def _(folder):
    _, environment = install(os.path.join(folder, "root"))
    outs = set()
    for compiler, language, standard in [(CC, "c", "-std=c99"), (CC, "c", "-std=c11"), (CXX, "c++", "-std=c++20")]:
        made = compile_text(
            folder,
            program(),
            compiler,
            ["-x", language, standard, *STRICT, *flags(environment, "--cflags")],
            libraries=["-x", "none", *flags(environment, "--libs")],
        )
        outs.add(run([made], env=environment))
    assert len(outs) == 1, outs
    expect_output(outs.pop())


@case("the same with the archive: pkg-config --static and a C compiler")
def _(folder):
    libraries, environment = install(os.path.join(folder, "root"))
    for shared in glob.glob(os.path.join(libraries, "libmdlm.so*")):
        os.remove(shared)
    made = compile_text(
        folder,
        program(),
        CC,
        ["-std=c99", *STRICT, *flags(environment, "--cflags")],
        libraries=flags(environment, "--static", "--libs"),
    )
    assert "libmdlm" not in run(["readelf", "-d", made]), "it was linked with the shared library"
    expect_output(run([made], env=environment))


@case("pkg-config asks for no library of others to link the shared one")
def _(folder):
    libraries, environment = install(os.path.join(folder, "root"))
    # Not even the names of what libmdlm.so is made with are known here.
    environment = {key: value for key, value in environment.items() if key != "PKG_CONFIG_PATH"}
    environment["PKG_CONFIG_LIBDIR"] = os.path.join(libraries, "pkgconfig")
    named = flags(environment, "--cflags", "--libs")
    assert [word for word in named if not word.startswith(("-I", "-L"))] == ["-lmdlm"], named
    made = compile_text(folder, program(), CC, ["-std=c99", *STRICT], libraries=named)
    expect_output(run([made], env=environment))
    assert "-lhwy" in flags(environment, "--static", "--libs"), "the archive needs Highway"


@case("the installed tree can be moved, holds what it should, and finds what it needs of itself")
def _(folder):
    libraries, _ = install(os.path.join(folder, "root"))
    prefix = (
        os.path.dirname(libraries)
        if os.path.basename(libraries) == "lib"
        else os.path.dirname(os.path.dirname(libraries))
    )
    installed = {
        os.path.relpath(os.path.join(where, name), prefix) for where, _, names in os.walk(prefix) for name in names
    }
    kinds = {re.sub(r"^lib/[^/]*-linux-gnu/", "lib/", name) for name in installed}
    wanted = {
        "include/mdlm/mdlm.h",
        "include/mdlm/chain.h",
        "lib/libmdlm.a",
        "lib/libmdlm.so",
        "lib/libmdlm.so.0",
        "lib/pkgconfig/mdlm.pc",
    }
    assert wanted <= kinds, kinds
    if os.path.exists(os.path.join(BUILD, "tools")):
        assert "bin/mdlm" in kinds, kinds
    moved = os.path.join(folder, "elsewhere")
    shutil.move(prefix, moved)
    libraries = os.path.join(moved, os.path.relpath(libraries, prefix))
    environment = {**os.environ, "PKG_CONFIG_PATH": os.path.join(libraries, "pkgconfig"), "LD_LIBRARY_PATH": libraries}
    made = compile_text(
        folder,
        "#include <mdlm/mdlm.h>\n#include <stdio.h>\nint main(void) { puts(mdlm_version()); return 0; }\n",
        CC,
        ["-std=c99", *STRICT, *flags(environment, "--cflags")],
        libraries=flags(environment, "--libs"),
    )
    assert run([made], env=environment).strip() == flags(environment, "--modversion")[0]
    assert ROOT not in open(os.path.join(libraries, "pkgconfig", "mdlm.pc")).read()
    nothing = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    if "bin/mdlm" in kinds:
        out = run([os.path.join(moved, "bin", "mdlm"), "info"], env=nothing)
        assert mdlm_version_of(out) == flags(environment, "--modversion")[0], out
        loaded = run(["ldd", os.path.join(moved, "bin", "mdlm")], env=nothing)
        assert os.path.realpath(libraries) in os.path.realpath(
            re.search(r"libmdlm\.so\.0 => (\S+)", loaded).group(1)
        ), loaded
    for library in glob.glob(
        os.path.join(libraries, "libmdlm-mpi.so")
    ):  # as Python or Julia load it, which do not load libmdlm first
        run(
            [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1]).mdlm_comm_create_mpi", library],
            env=nothing,
        )
