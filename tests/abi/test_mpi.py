# SPDX-License-Identifier: Apache-2.0
"""The second library, libmdlm-mpi: its header, its symbols, and a program outside the tree. The suite mpi runs it."""

import os
import re
import subprocess

from harness import ARCHIVE, CC, CXX, MPI_ARCHIVE, MPI_SHARED, ROOT, STRICT, Skip, case, compile_text, have, plain, run
from test_install import flags, install
from test_library import symbols

HEADER = os.path.join(ROOT, "include", "mdlm", "mpi.h")

PROGRAM = """#include <mdlm/mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    mdlm_comm *comm = NULL;
    float sum = 1.0f;
    int32_t rank = 0, size = 0;
    mdlm_status early = mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm), status;
    MPI_Init(&argc, &argv);
    status = mdlm_comm_create_mpi_f((int32_t)MPI_Comm_c2f(MPI_COMM_WORLD), &comm);
    if (status == MDLM_OK) status = mdlm_comm_rank(comm, &rank, &size);
    if (status == MDLM_OK) status = mdlm_comm_all_reduce(comm, &sum, &sum, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 20000);
    if (rank == 0)
        printf("%s, then %s, a sum of %g over %d ranks\\n", mdlm_status_name(early), mdlm_status_name(status),
               (double)sum, (int)size);
    mdlm_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
"""


def need_mpi():
    if not os.path.exists(MPI_SHARED):
        raise Skip("because this build has no MPI")


def mpi_includes():
    """Options with which a compiler finds mpi.h, as a header of the system's."""
    if have("pkg-config"):
        for name in ("ompi-c", "mpich", "mpi-c", "mpi"):
            found = subprocess.run(
                ["pkg-config", "--cflags-only-I", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            if found.returncode == 0:
                return [word for folder in found.stdout.split() for word in ("-isystem", folder.removeprefix("-I"))]
    raise Skip("because pkg-config knows no MPI")


for compiler, standard in [
    ("gcc", "-std=c99"),
    ("gcc", "-std=c17"),
    ("g++", "-std=c++11"),
    ("g++", "-std=c++20"),
    ("clang-14", "-std=c99"),
    ("clang++-14", "-std=c++20"),
]:

    @case(f"mpi.h compiles alone: {compiler} {standard}")
    def _(folder, compiler=compiler, standard=standard):
        need_mpi()
        if not have(compiler):
            raise Skip(f"because {compiler} is not installed")
        text = "#include <mdlm/mpi.h>\n" * 2 + "mdlm_status (*made)(MPI_Comm, mdlm_comm **) = mdlm_comm_create_mpi;\n"
        compile_text(
            folder,
            text,
            [compiler],
            [
                "-x",
                "c++" if "++" in compiler else "c",
                standard,
                *STRICT,
                "-Wshadow",
                "-Wundef",
                "-I",
                ROOT + "/include",
                *mpi_includes(),
                "-c",
            ],
        )


@case("libmdlm-mpi.so exports the functions of mpi.h and nothing else, has its soname, and needs libmdlm and MPI")
def _(_folder):
    need_mpi()
    with open(HEADER) as file:
        names = sorted(re.findall(r"^MDLM_API [^;()]*?\b(mdlm_\w+)\(", plain(file.read()), re.MULTILINE))
    assert names == ["mdlm_comm_create_mpi", "mdlm_comm_create_mpi_f"], names
    exported = symbols(MPI_SHARED, "-D")
    assert exported == {name: "T" for name in names}, exported
    dynamic = run(["readelf", "-d", MPI_SHARED])
    assert "Library soname: [libmdlm-mpi.so.0]" in dynamic, dynamic
    needed = set(re.findall(r"Shared library: \[(.*?)\]", dynamic))
    assert "libmdlm.so.0" in needed and any(name.startswith("libmpi") for name in needed), needed
    # Of libmdlm only what its header declares.
    undefined = {
        line.split()[-1].split("@")[0] for line in run(["nm", "-D", "--undefined-only", MPI_SHARED]).splitlines()
    }
    assert not [name for name in undefined if "4mdlm" in name], undefined


@case("libmdlm-mpi.a shares no symbol with libmdlm.a")
def _(_folder):
    need_mpi()
    both = set(symbols(MPI_ARCHIVE, "-g")) & set(symbols(ARCHIVE, "-g"))
    strange = [name for name in both if "4mdlm" in name or name.startswith("mdlm_")]
    assert not strange, strange


@case("a program outside the tree runs with what pkg-config says of mdlm-mpi: C99, C++20, and linked with the archives")
def _(folder):
    need_mpi()
    libraries, environment = install(os.path.join(folder, "root"), "mdlm-mpi.pc")
    environment = {**environment, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    expected = "MDLM_ERROR_STATE, then MDLM_OK, a sum of 1 over 1 ranks\n"
    for compiler, language, standard in [(CC, "c", "-std=c99"), (CXX, "c++", "-std=c++20")]:
        made = compile_text(
            folder,
            PROGRAM,
            compiler,
            ["-x", language, standard, *STRICT, *flags(environment, "--cflags", name="mdlm-mpi")],
            libraries=["-x", "none", *flags(environment, "--libs", name="mdlm-mpi")],
        )
        out = run([made], env=environment)
        assert out == expected, out
    archives = [os.path.join(libraries, name) for name in ("libmdlm-mpi.a", "libmdlm.a")]
    rest = [
        word
        for word in flags(environment, "--static", "--libs", name="mdlm-mpi")
        if word not in ("-lmdlm", "-lmdlm-mpi")
    ]
    made = compile_text(
        folder,
        PROGRAM,
        CC,
        ["-std=c99", *STRICT, *flags(environment, "--cflags", name="mdlm-mpi")],
        libraries=[*archives, *rest],
    )
    assert "libmdlm" not in run(["readelf", "-d", made]), "it was linked with a shared library of ours"
    assert run([made], env=environment) == expected
