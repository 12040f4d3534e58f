# SPDX-License-Identifier: Apache-2.0
"""What the documents show: programs compile and run, links and files are there, edits fit the sources."""

import glob
import os
import re

from harness import CC, ROOT, STRICT, case, compile_text, run
from test_install import flags, install, program

# A fragment stands in a function whose caller has made these, and may be changed by it.
FRAGMENT = """#include <mdlm/chain.h>
#include <mdlm/mdlm.h>
#include <stdio.h>
#define TRY(call) if ((call) != MDLM_OK) return fprintf(stderr, "%%s\\n", mdlm_last_error()), 1

int fragment(mdlm_config config, mdlm_shape shape, mdlm_batch batch, mdlm_context_desc desc, mdlm_context *context,
             mdlm_block *block, mdlm_plan *plan, mdlm_tape *tape, const float *x, float *y, const float *dy,
             float *dx, int r) {
%s    return 0;
}
"""


def read(*path):
    with open(os.path.join(ROOT, *path)) as file:
        return file.read()


def documents():
    """Every document, relative to the root."""
    found = []
    for pattern in ("*.md", "docs/*.md", "examples/*/*.md", "tests/*/*.md"):
        found += glob.glob(os.path.join(ROOT, pattern))
    return sorted(os.path.relpath(path, ROOT) for path in found)


def blocks(document, language):
    """Fenced blocks of a language: (where it begins, its text, what follows it)."""
    text = read(document)
    for found in re.finditer(rf"^```{language}\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL):
        yield f"{document}:{text.count(chr(10), 0, found.start()) + 1}", found.group(1), text[found.end() :]


def is_whole(text):
    return re.search(r"^int main\(", text, re.MULTILINE) is not None


def words(text):
    """Text whose lines may be broken anywhere between words."""
    return " ".join(text.split())


@case("README.md's program is the one at the top of mdlm.h")
def _(_folder):
    whole = [text for _, text, _ in blocks("README.md", "c") if is_whole(text)]
    assert whole and whole[0] == program(), "they differ"


@case("programs in documents compile as C99 with pkg-config alone and run, and print what is said; fragments compile")
def _(folder):
    _, environment = install(os.path.join(folder, "root"))
    with_mdlm, libraries = ["-std=c99", *STRICT, *flags(environment, "--cflags")], flags(environment, "--libs")
    unused = ["-Wno-unused", "-Wno-unused-parameter"]
    programs = fragments = outputs = 0
    for where, text, rest in (block for document in documents() for block in blocks(document, "c")):
        try:
            if not is_whole(text):
                compile_text(folder, FRAGMENT % text, CC, [*with_mdlm, *unused, "-c"], output="fragment.o")
                fragments += 1
                continue
            out = run([compile_text(folder, text, CC, with_mdlm, libraries=libraries)], env=environment)
            programs += 1
            said = re.match(r"\nIt prints\n\n((?:    .*\n)+)", rest)
            if said:
                assert words(out) == words(said.group(1)), out
                outputs += 1
        except AssertionError as why:
            raise AssertionError(f"{where}: {why}") from why
    assert programs >= 2 and fragments >= 3 and outputs >= 1, (programs, fragments, outputs)


@case("links of documents lead to files, and to headings in them")
def _(_folder):
    def headings(path):
        with open(path) as file:
            lines = re.findall(r"^#+ (.*)$", file.read(), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}

    wrong, links = [], 0
    for document in documents():
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", read(document), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            place, _, heading = target.partition("#")
            path = os.path.join(ROOT, os.path.dirname(document), place) if place else os.path.join(ROOT, document)
            if not os.path.exists(path) or (heading and heading not in headings(path)):
                wrong.append(f"{document}: {target}")
    assert not wrong, wrong
    assert links > 20, links


@case("README.md has at most 150 lines")
def _(_folder):
    assert read("README.md").count("\n") <= 150, read("README.md").count("\n")


@case("files that documents name are there")
def _(_folder):
    absent, named = [], 0
    for document in (d for d in documents() if not d.startswith("examples/") and d != "docs/adding.md"):
        text = re.sub(r"^```.*?^```$", "", read(document), flags=re.MULTILINE | re.DOTALL)
        names = re.findall(r"`((?:src|tests|tools|include|examples|docs)/[\w./*-]+)`", text)
        if document == "docs/design.md":  # its table of promises leaves out what all have in common
            rows = "\n".join(line for line in text[text.index("| promise |") :].split("\n") if line.startswith("|"))
            names += [
                f"tests/{name}" + ("" if name.endswith(".py") else ".cpp")
                for name in re.findall(r"`(\w+/[\w.*]+)`", rows)
            ]
        named += len(names)
        absent += [
            f"{document}: {name}" for name in names if not glob.glob(os.path.join(ROOT, name)) and "TARGET" not in name
        ]
    assert not absent, absent
    assert named > 60, named


@case("edits that docs/adding.md shows fit the sources, each in one place, or have been made")
def _(_folder):
    wrong, edits = [], 0
    for where, text, _ in blocks("docs/adding.md", "diff"):
        path, places = None, []
        for line in text.rstrip("\n").split("\n"):
            if line.startswith("--- "):
                path = line[4:]
            if line.startswith("--- ") or line == "@@":
                places.append((path, []))
            else:
                places[-1][1].append(line)
        for path, lines in places:
            source = "\n" + read(path)
            old, new = ("\n".join(["", *(line[1:] for line in lines if line[:1] != sign), ""]) for sign in "+-")
            edits += 1
            if source.count(old) != 1 and source.count(new) != 1:
                wrong.append(f"{where}: {path}: {source.count(old)} places have {old!r}")
    assert not wrong, "\n".join(wrong)
    assert edits > 30, edits
