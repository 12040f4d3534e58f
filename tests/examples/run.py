#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every example as its README says, and the tool as mpirun starts it. No case looks at a speed."""
import csv
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "abi"))
from harness import BUILD, ROOT, Skip, case, main, run  # noqa: E402

EXAMPLES = os.path.join(BUILD, "examples")
MDLM = os.path.join(BUILD, "tools", "mdlm")
HAVE_MPI = json.loads(run([MDLM, "info", "--json"]))["mpi"] is not None
GOLDEN = os.path.join(ROOT, "tests", "golden", "cases")


def mpirun(count, *command):
    """A command line, and an environment in which Open MPI runs as root and with more processes than cores."""
    if not HAVE_MPI:
        raise Skip("the build has no MPI")
    if shutil.which("mpirun") is None:
        raise Skip("there is no mpirun")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(count), *command], environment


def ends(command, **more):
    """(exit status, standard output, standard error)"""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, **more)
    return done.returncode, done.stdout, done.stderr


def trainer(folder, *words, launcher=None):
    program = [os.path.join(EXAMPLES, "02_train_dlm"), "--out", folder, "--threads", "1", *words]
    if launcher is None:
        return ends(program)
    command, environment = mpirun(launcher, *program)
    return ends(command, env=environment)


def rows(out):
    """Rows of the trainer's table: {setting: (saved bytes, loss, hash)}"""
    found = re.findall(r"^(\S.*?) +(\d+) +\d+ +\d+ +\d+\.\d+ +(\d\S+) +([0-9a-f]{16})$", out, re.MULTILINE)
    return {name: (int(saved), float(loss), digest) for name, saved, loss, digest in found}


def curve(folder):
    with open(os.path.join(folder, "loss.csv")) as file:
        return [(int(row["step"]), row["training"] and float(row["training"]),
                 row["held_out"] and float(row["held_out"]))
                for row in csv.DictReader(file)]


def close(a, b, tolerance=1e-4):
    return abs(a - b) <= tolerance * abs(b)


def digits(out):
    """The lines of 03 that are results, by what stands before them."""
    return dict(re.findall(r"^(\S.*?) +(\|y\| .*)$", out, re.MULTILINE))


@case("every example has a README and a place in examples/run.sh, and was built")
def _(_folder):
    folders = sorted(name for name in os.listdir(os.path.join(ROOT, "examples")) if re.match(r"\d\d_", name))
    assert len(folders) >= 3, folders
    with open(os.path.join(ROOT, "examples", "run.sh")) as script:
        text = script.read()
    for name in folders:
        assert os.path.exists(os.path.join(ROOT, "examples", name, "README.md")), name
        assert f"build/examples/{name}" in text, f"{name} is not run by examples/run.sh"
        assert os.access(os.path.join(EXAMPLES, name), os.X_OK), f"{name} was not built"


@case("01 prints its peak and its digits, which do not depend on recompute")
def _(_folder):
    out = run([os.path.join(EXAMPLES, "01_forward_backward")])
    assert re.fullmatch(r"peak \d+ bytes, y\[0\] = \S+, dx\[0\] = \S+\n", out), out


@case("02 ends in the same bits under every setting, alone and on ranks, and ranks train as one does")
def _(folder):
    seen = {}
    for name, words, count in [("1", [], 5), ("2", ["--tensor-model-parallel-size", "2"], 6),
                               ("4sp", ["--tensor-model-parallel-size", "4", "--sequence-parallel"], 5)]:
        where = os.path.join(folder, name)
        os.mkdir(where)
        status, out, err = trainer(where, "--compare-steps", "2", "--steps", "0", *words)
        assert status == 0 and err == "", (status, out, err)
        table = rows(out)
        assert len(table) == count, out
        assert len({row[1:] for row in table.values()}) == 1, out
        # In so few steps it cannot beat the baseline, and says so.
        status, out, err = trainer(where, "--compare-steps", "0", "--steps", "20", *words)
        assert status == 1 and "NOT BEATEN" in out and err == "", (status, out, err)
        seen[name] = table, curve(where)
    table, points = seen["1"]
    for name, (other, at) in seen.items():
        assert close(other["none"][1], table["none"][1]), (name, other, table)
        assert other["none"][0] <= table["none"][0]
        assert len(at) == len(points) == 3
        for (step, training, held_out), (s, t, h) in zip(at, points):
            assert step == s and all(a == b == "" or close(a, b) for a, b in [(training, t), (held_out, h)]), \
                (name, at, points)
    assert seen["2"][0]["full shared"][0] < seen["2"][0]["full/uniform"][0]


@case("02 refuses what it cannot do in one line")
def _(folder):
    for words, part in [(["--tensor-model-parallel-size", "3"], "1, 2 or 4"),
                        (["--tensor-model-parallel-size"], "value"), (["--sequence-parallell"], "unknown")]:
        status, out, err = trainer(folder, *words)
        assert status == 2 and out == "" and err.count("\n") == 1 and part in err, (status, out, err)


@case("03 prints the same digits for one rank, threads and processes, and what a lost rank does to the other")
def _(_folder):
    out = run([os.path.join(EXAMPLES, "03_tensor_parallel")])
    found = digits(out)
    assert len(found) == 5 and len(set(found.values())) == 1, out
    assert len(re.findall(r"rank 0 gets MDLM_ERROR_COMM: ", out)) == 2, out
    assert "rank 1 has left the group" in out and "rank 1 did not come in time" in out, out


@case("03 under mpirun prints the digits of one rank")
def _(_folder):
    alone = digits(run([os.path.join(EXAMPLES, "03_tensor_parallel")]))["one rank"]
    for count in (2, 4):
        command, environment = mpirun(count, os.path.join(EXAMPLES, "03_tensor_parallel_mpi"))
        found = digits(run(command, env=environment))
        assert len(found) == 3 and set(found.values()) == {alone}, (alone, found)


@case("02 under mpirun trains as threads do")
def _(folder):
    words = ["--compare-steps", "2", "--steps", "0"]
    status, out, err = trainer(folder, *words, launcher=2)
    assert status == 0, (status, out, err)
    threads = rows(trainer(folder, *words, "--tensor-model-parallel-size", "2")[1])
    assert rows(out) == threads, (out, threads)  # sums are in rank order, so to the last bit


def gpt2(folder, *words):
    return ends([os.path.join(EXAMPLES, "04_gpt2"), "--out", folder, *words])


@case("04 goes on from a file in the same bits under another plan and other threads, and learns")
def _(folder):
    seen = []
    for threads in ("1", "3"):
        status, out, err = gpt2(folder, "--steps", "30", "--threads", threads)
        # In so few steps it cannot beat the baseline, and says so.
        assert status == 1 and "NOT BEATEN" in out and "to the last bit" in out and err == "", (status, out, err)
        plans = re.findall(r"^  (\w+) +\d threads +saved +(\d+) bytes .* of the library (\d+) bytes$", out,
                           re.MULTILINE)
        assert [name for name, _saved, _library in plans] == ["none", "selective", "full"], out
        saved = [int(bytes_) for _name, bytes_, _library in plans]
        assert saved[0] > saved[1] > saved[2] > 0, out
        assert {library for _name, _saved, library in plans} == {"0"}, out  # all parameters are the trainer's
        losses = re.findall(r"^  step +\d+   loss (\S+)   (\S+)$", out, re.MULTILINE)
        assert len(losses) == 10 and all(a == b for a, b in losses), out
        held_out = [float(row) for row in re.findall(r"^ +\d+ .* (\d\.\d{4})$", out, re.MULTILINE)]
        assert len(held_out) == 2 and 5.4 < held_out[0] < 5.7 and held_out[1] < held_out[0] - 1.5, out
        assert not os.listdir(folder), os.listdir(folder)
        seen.append((losses, held_out, out[out.index("  prompt"):]))
    assert seen[0] == seen[1], seen  # on any number of threads, the text that it writes too


@case("04 refuses what it cannot do in one line")
def _(folder):
    short = os.path.join(folder, "short")
    with open(short, "w") as file:
        file.write("too short")
    for words, part in [(["--steps"], "value"), (["--step", "3"], "unknown"), (["--threads", "-1"], "whole number"),
                        (["--text", short], "9 bytes"), (["--text", os.path.join(folder, "none")], "none")]:
        status, out, err = gpt2(folder, *words)
        assert status == 2 and out == "" and err.count("\n") == 1 and part in err, (status, out, err)


@case("mdlm check and mdlm bench under mpirun")
def _(_folder):
    cases = [os.path.join(GOLDEN, name) for name in ("dlm", "gqa")]
    command, environment = mpirun(2, MDLM, "check", "--sweep", "--threads", "1", *cases)
    out = run(command, env=environment)
    assert out.count("ok ") == 2 and out.count("f32  t 2  ") == 2 and out.count("bits the same") == 2, out
    bench = ["bench", "--num-layers=2", "--hidden-size=32", "--num-attention-heads=4", "--seq-length=16", "--repeats=2",
             "--threads=1"]
    command, environment = mpirun(2, MDLM, *bench, "--recompute-granularity=full", "--json")
    out = run(command, env=environment)
    assert '"ranks_are": "processes"' in out and out.count('"version"') == 1, out
    assert '"forward_collectives": 4' in out, out


@case("under mpirun, one rank says what is wrong and all fail")
def _(folder):
    where = os.path.join(folder, "none")
    for words, part in [(["check", "--tensor-model-parallel-size=4", os.path.join(GOLDEN, "dlm")], "expected 2"),
                        (["check", where], "none"),
                        (["bench", "--num-layers=2", "--hidden-size=32", "--num-attention-heads=4",
                          "--params-dtype=f64"], "f64")]:
        command, environment = mpirun(2, MDLM, *words)
        status, _out, err = ends(command, env=environment)
        lines = [line for line in err.splitlines() if line.startswith("mdlm") or where in line]
        assert status != 0 and len(lines) == 1 and part in lines[0], (status, err)


@case("processes of a launcher are refused in one line where the build has no MPI")
def _(folder):
    if HAVE_MPI:
        raise Skip("the build has MPI")
    for rank in ("0", "1"):
        environment = {**os.environ, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank}
        for command in ([MDLM, "check", os.path.join(GOLDEN, "dlm")],
                        [os.path.join(EXAMPLES, "02_train_dlm"), "--out", folder]):
            status, _out, err = ends(command, env=environment)
            assert status == 2 and err.count("\n") == (1 if rank == "0" else 0), (status, err)
            assert rank == "1" or "without MPI" in err, err


if __name__ == "__main__":
    sys.exit(main())
