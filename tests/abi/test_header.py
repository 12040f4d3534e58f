# SPDX-License-Identifier: Apache-2.0
"""mdlm.h compiles alone, and no number or layout in it changes unnoticed."""

import platform
import re

from harness import (
    CC,
    HEADERS,
    ROOT,
    STRICT,
    SHARED,
    Skip,
    case,
    compare_stored,
    compile_text,
    have,
    header,
    plain,
    run,
)

INCLUDE = ["-I", ROOT + "/include"]
LANGUAGES = [("c", "-std=c99"), ("c", "-std=c11"), ("c", "-std=c17"), ("c++", "-std=c++11"), ("c++", "-std=c++20")]

for compilers in [("gcc", "g++"), ("clang-14", "clang++-14")]:
    for language, standard in LANGUAGES:
        compiler = compilers[language == "c++"]

        @case(f"header compiles alone: {compiler} {standard}")
        def _(folder, compiler=compiler, language=language, standard=standard):
            if not have(compiler):
                raise Skip(f"because {compiler} is not installed")
            kind = "-Wstrict-prototypes" if language == "c" else "-Wnon-virtual-dtor"
            for path in HEADERS:
                run(
                    [
                        compiler,
                        "-x",
                        language,
                        standard,
                        *STRICT,
                        "-Wshadow",
                        "-Wconversion",
                        "-Wundef",
                        kind,
                        *INCLUDE,
                        "-fsyntax-only",
                        path,
                    ]
                )
            # Twice in one file, and every INIT macro used.
            macros = re.findall(r"^#define (MDLM_(\w+)_INIT)\b", header(), re.MULTILINE)
            text = "#include <mdlm/chain.h>\n#include <mdlm/mdlm.h>\n#include <mdlm/chain.h>\nint main(void) {\n"
            for macro, name in macros:
                text += f"    mdlm_{name.lower()} a_{name.lower()} = {macro};\n    (void)a_{name.lower()};\n"
            compile_text(
                folder, text + "    return 0;\n}\n", [compiler], ["-x", language, standard, *STRICT, *INCLUDE, "-c"]
            )


def constants():
    return re.findall(r"\b(MDLM_\w+) = ", plain(header()))


def structs():
    """(struct name, field names) of every struct that is defined in the header."""
    found = []
    for name, body in re.findall(r"typedef struct (mdlm_\w+) \{(.*?)\n\} \1;", plain(header()), re.DOTALL):
        fields = []
        for declaration in body.split(";"):
            pointer = re.search(r"\(\*(\w+)\)\(", declaration)
            if pointer:
                fields.append(pointer.group(1))
            elif declaration.strip():
                fields += [re.sub(r"\[.*?\]", "", part).split()[-1].lstrip("*") for part in declaration.split(",")]
        found.append((name, fields))
    return found


@case("numbers of all constants are those of the stored list")
def _(folder):
    text = "#include <mdlm/chain.h>\n#include <stdio.h>\nint main(void) {\n"
    for name in constants():
        text += f'    printf("{name} %lld\\n", (long long){name});\n'
    out = run([compile_text(folder, text + "    return 0;\n}\n", CC, ["-std=c99", *INCLUDE])])
    assert len(out.splitlines()) > 50, "the header's constants were not found"
    compare_stored("constants.txt", out.splitlines())


@case("sizes and offsets of all structs are those of the stored list")
def _(folder):
    if platform.machine() != "x86_64":
        raise Skip("because the list is for x86-64")
    text = "#include <mdlm/chain.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n"
    for name, fields in structs():
        text += f'    printf("{name} size %zu\\n", sizeof({name}));\n'
        for field in fields:
            text += (
                f'    printf("{name}.{field} at %zu size %zu\\n", offsetof({name}, {field}), '
                f"sizeof((({name} *)0)->{field}));\n"
            )
    out = run([compile_text(folder, text + "    return 0;\n}\n", CC, ["-std=c99", *INCLUDE])])
    assert len(structs()) >= 10, "the header's structs were not found"
    compare_stored("layouts.txt", out.splitlines())


@case("every status has its name, in the library too; unknown ones do not crash")
def _(folder):
    names = [name for name in constants() if name == "MDLM_OK" or name.startswith("MDLM_ERROR_")]
    assert len(names) == 18, names
    text = (
        "#include <mdlm/chain.h>\n#include <stdio.h>\n#include <string.h>\nstatic int wrong = 0;\n"
        "static void check(mdlm_status status, const char *name) {\n"
        "    const char *seen = mdlm_status_name(status);\n"
        '    if (strcmp(seen, name) != 0) wrong = printf("%s: %s\\n", name, seen);\n}\n'
        "int main(void) {\n"
    )
    for name in names:
        text += f'    check({name}, "{name}");\n'
    text += (
        '    for (mdlm_status s = -300; s < 300; s++)\n'
        '        if (mdlm_status_name(s)[0] == 0) wrong = printf("%d\\n", (int)s);\n'
        '    check(12345, "unknown status");\n'
        '    if (strcmp(mdlm_last_error(), "") != 0) wrong = printf("last error of a fresh thread\\n");\n'
        '    if (mdlm_api_version() != MDLM_API_VERSION) wrong = printf("api version\\n");\n'
        '    { char v[32]; sprintf(v, "%d.%d.%d", MDLM_VERSION_MAJOR, MDLM_VERSION_MINOR, MDLM_VERSION_PATCH);\n'
        '      if (strcmp(mdlm_version(), v) != 0) wrong = printf("version: %s\\n", mdlm_version()); }\n'
    )
    program = compile_text(folder, text + "    return wrong;\n}\n", CC, ["-std=c99", *INCLUDE], libraries=[SHARED])
    run([program], env={"LD_LIBRARY_PATH": SHARED.rsplit("/", 1)[0]})
