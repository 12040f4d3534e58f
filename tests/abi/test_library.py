# SPDX-License-Identifier: Apache-2.0
"""Exported symbols of libmdlm.so, and its binary interface against that of the last release."""

import os
import re

from harness import (
    ARCHIVE,
    HEADERS,
    HERE,
    MPI_ARCHIVE,
    ROOT,
    SHARED,
    STATIC_RUNTIME,
    UPDATE,
    Skip,
    case,
    have,
    header,
    plain,
    run,
)


def declared():
    return sorted(set(re.findall(r"^MDLM_API [^;()]*?\b(mdlm_\w+)\(", plain(header()), re.MULTILINE)))


def undefined(archive):
    """Names that objects of an archive take from elsewhere."""
    return {
        line.split()[-1] for line in run(["nm", "--undefined-only", archive]).splitlines() if len(line.split()) == 2
    }


def symbols(path, *options):
    """Name -> type letter of the defined symbols."""
    found = {}
    for line in run(["nm", *options, "--defined-only", path]).splitlines():
        words = line.split()
        if len(words) == 3:
            found[words[2].split("@")[0]] = words[1]
    return found


@case("libmdlm.so exports the functions of mdlm.h and nothing else")
def _(_folder):
    names = declared()
    assert len(names) > 60, names
    exported = symbols(SHARED, "-D")
    assert sorted(exported) == names, (
        f"exported, not declared: {sorted(set(exported) - set(names))}; "
        f"declared, not exported: {sorted(set(names) - set(exported))}"
    )
    assert set(exported.values()) == {"T"}, exported


@case("libmdlm.a defines the functions of mdlm.h; its other symbols are C++ in a namespace of the library")
def _(_folder):
    found = symbols(ARCHIVE, "-g")
    missing = [name for name in declared() if found.get(name) != "T"]
    assert not missing, missing
    strange = [
        name for name, kind in found.items() if name not in declared() and kind in "TDBR" and "4mdlm" not in name
    ]
    assert not strange, strange


@case("libmdlm.so has its soname and needs no library that is not asked for")
def _(_folder):
    out = run(["readelf", "-d", SHARED])
    assert "Library soname: [libmdlm.so.0]" in out, out
    needed = set(re.findall(r"Shared library: \[(.*?)\]", out))
    runtime = "" if STATIC_RUNTIME else r"stdc\+\+|gcc_s|"
    allowed = re.compile(rf"lib(c|m|{runtime}pthread|gomp|dnnl|hwy)\.so\.\d+|ld-linux.*")
    assert all(allowed.fullmatch(name) for name in needed), needed


@case("the library prints nothing, exits nowhere, reads no environment")
def _(_folder):
    # Its own objects, as the archive has them: the C++ runtime inside libmdlm.so ends a process that throws out of a
    # destructor.
    banned = {
        "abort",
        "exit",
        "_exit",
        "_Exit",
        "quick_exit",
        "printf",
        "puts",
        "putchar",
        "fprintf",
        "fputs",
        "perror",
        "getenv",
        "secure_getenv",
        "setenv",
        "signal",
        "sigaction",
        "setlocale",
        "rand",
        "srand",
        "__printf_chk",
        "__fprintf_chk",
        "_ZSt4cout",
        "_ZSt4cerr",
        "_ZSt4clog",
        "stdout",
        "stderr",
    }
    for archive in [ARCHIVE] + ([MPI_ARCHIVE] if os.path.exists(MPI_ARCHIVE) else []):
        taken = undefined(archive)
        assert len(taken) > 50 and "memcpy" in taken, (archive, taken)
        assert not taken & banned, (archive, taken & banned)


@case("each call to oneDNN that can fail is one that the suite fault makes fail")
def _(_folder):
    called = {name for name in undefined(ARCHIVE) if name.startswith("dnnl_")}
    cannot_fail = {"dnnl_version", "dnnl_status2str", "dnnl_primitive_desc_query_md", "dnnl_memory_desc_get_size"}
    with open(os.path.join(ROOT, "tests", "fault", "dnnl_stand_ins.cpp")) as file:
        replaced = set(re.findall(r"^(?:STAND_IN|ONLY_MARK)\((\w+),", file.read(), re.MULTILINE))
    with open(os.path.join(ROOT, "tests", "fault", "meson.build")) as file:
        wrapped = set(re.findall(r"'(dnnl_\w+)'", file.read()))
    assert called <= replaced | cannot_fail, called - replaced - cannot_fail
    assert replaced <= wrapped, replaced - wrapped


@case("binary interface against the stored one (abidiff)")
def _(folder):
    if not have("abidw") or not have("abidiff"):
        raise Skip("because abigail-tools is not installed")
    if "clang" in run(["readelf", "-p", ".comment", SHARED]):
        raise Skip("because the stored interface was made by gcc")
    # Types come from the header (libmdlm.so is built without debug information): a C file that names every function.
    stub = os.path.join(folder, "stub.c")
    with open(stub, "w") as file:
        file.writelines(f'#include "{path}"\n' for path in HEADERS)
        text = plain(header())
        for declaration in re.findall(r"^MDLM_API ([^;]*?\bmdlm_\w+\([^;]*\));", text, re.MULTILINE):
            file.write(f"{declaration} {{ for (;;) {{}} }}\n")
    made = os.path.join(folder, "libmdlm.so.0")
    run(
        [
            "gcc",
            "-std=c99",
            "-g",
            "-O0",
            "-w",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libmdlm.so.0",
            "-I",
            ROOT + "/include",
            stub,
            "-o",
            made,
        ]
    )
    baseline = os.path.join(HERE, "baseline.abi")
    if UPDATE:
        run(["abidw", "--no-corpus-path", "--no-show-locs", "--no-comp-dir-path", "--out-file", baseline, made])
        with open(baseline, "r+") as file:
            text = file.read().replace(stub, "mdlm.h")
            file.seek(0)
            file.write(text)
            file.truncate()
    # What is new is no difference; what changed is, until it is stored on purpose (run.py --update).
    run(["abidiff", "--no-default-suppression", "--no-added-syms", baseline, made])
