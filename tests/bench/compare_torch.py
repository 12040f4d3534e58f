#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same transformer block, parameters, dtype and threads in libmdlm and in PyTorch: numbers first, then times and
peaks.

A case is a shape, a dtype and a recompute setting (none, or full: a replay of every layer, in PyTorch by
torch.utils.checkpoint). For each, libmdlm, eager PyTorch and torch.compile run a step and are compared with an eager
step in float32; then they are timed in turn, so that what disturbs the machine hits all alike, and ratios are within a
repeat. A step is a forward and its backward with the gradients of input and parameters, assigned; libmdlm's parameters
count as changed before each. The peer is the best of PyTorch's variants in each case.

    tests/bench/compare_torch.py [--grid] [--json] [OPTION...]       with a python that has torch

The default is 4 diffusion layers, h 1024, s 1024, b 2, in f32 and bf16, none and full. --grid runs one layer in f32
without replay over h 256, 1024, 2048, s 128, 1024, 4096, heads of 64 and 128, causal and not. Options narrow or change
either; lists are joined by commas.

Exit status: 0 when all was compared and timed, 1 when numbers disagree, 77 without PyTorch, 2 when something else
failed.
"""
import argparse
import itertools
import json
import math
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mdlm_ctypes  # noqa: E402
from contest import PEERS, Contestant, Failed, Progress  # noqa: E402
from contest_table import HEADER, cells, label, line_of, report  # noqa: E402

TURN_SECONDS = 0.3   # a turn repeats short steps until about this long
PAUSE_SECONDS = 0.05  # between turns: threads of the contestant before stop spinning
F32_LIMIT = 1e-4     # of |difference| against the largest value of a tensor
BF16_LIMIT = 0.1     # no noise excuses more than this


def words(kind, allowed=None):
    def read(text):
        try:
            found = [kind(word) for word in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected values joined by commas, seen {text!r}")
        for value in found:
            if value not in allowed if allowed else value < 1:
                expected = " or ".join(allowed) if allowed else "positive integers"
                raise argparse.ArgumentTypeError(f"expected {expected}, seen {value!r}")
        return found
    return read


def positive(text):
    return words(int)(text)[0]


def read_options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library",
                   help="shared library of libmdlm (default: build/src/libmdlm.so.0, or the newest below build*)")
    p.add_argument("--grid", action="store_true", help="the grid of shapes instead of the one")
    p.add_argument("--json", action="store_true", help="JSON on stdout instead of the table")
    p.add_argument("--threads", type=positive, default=2, help="of both sides (default 2)")
    p.add_argument("--repeats", type=positive, default=5, help="timed turns of each contestant (default 5)")
    p.add_argument("--patience", type=positive, default=600, metavar="SECONDS",
                   help="fewer repeats, at least one, where those of a case would take longer (default 600)")
    p.add_argument("--step-limit", type=positive, default=900, metavar="SECONDS",
                   help="a variant of PyTorch whose step takes longer, compilation included, is skipped (default 900)")
    p.add_argument("--peers", type=words(str, PEERS), default=PEERS,
                   help="variants of PyTorch (default eager,compiled)")
    p.add_argument("--dtype", type=words(str, list(mdlm_ctypes.DTYPES)), help="list (default f32,bf16; grid: f32)")
    p.add_argument("--recompute", type=words(str, ["none", "full"]), help="list (default none,full; grid: none)")
    p.add_argument("--layers", type=positive, help="default 4; grid: 1")
    p.add_argument("--bf16-layers", type=positive,
                   help="of bf16 cases (default: as --layers); PyTorch's bf16 is slow without AVX-512")
    p.add_argument("--hidden-size", type=words(int), help="list (default 1024; grid: 256,1024,2048)")
    p.add_argument("--seq-length", type=words(int), help="list (default 1024; grid: 128,1024,4096)")
    p.add_argument("--micro-batch-size", type=positive,
                   help="default 2; grid: as many sequences as make --tokens, at least one")
    p.add_argument("--tokens", type=positive, default=4096, help="of a micro-batch of the grid (default 4096)")
    p.add_argument("--head-size", type=words(int), help="list; heads are h over it (default 64; grid: 64,128)")
    p.add_argument("--num-query-groups", type=positive, help="key/value heads (default: as many as heads)")
    p.add_argument("--mask", type=words(str, ["no_mask", "causal"]),
                   help="list (default no_mask; grid: no_mask,causal)")
    p.add_argument("--ffn-hidden-size", type=positive, help="default 3 h")
    p.add_argument("--normalization", choices=["RMSNorm", "LayerNorm"], default="RMSNorm")
    p.add_argument("--activation", choices=["swiglu", "geglu", "gelu", "gelu_tanh", "squared_relu"], default="swiglu")
    p.add_argument("--no-qk-layernorm", action="store_true")
    p.add_argument("--bias", action="store_true", help="biases of linear_proj, linear_fc1 and linear_fc2")
    return p, p.parse_args()


def cases_of(parser, o):
    grid = o.grid
    layers = o.layers or (1 if grid else 4)
    cases = []
    for h, s, d, mask, dtype, recompute in itertools.product(
            o.hidden_size or ([256, 1024, 2048] if grid else [1024]),
            o.seq_length or ([128, 1024, 4096] if grid else [1024]), o.head_size or ([64, 128] if grid else [64]),
            o.mask or (["no_mask", "causal"] if grid else ["no_mask"]),
            o.dtype or (["f32"] if grid else ["f32", "bf16"]), o.recompute or (["none"] if grid else ["none", "full"])):
        if h % d != 0 or d % 2 != 0:
            parser.error(f"--head-size {d}: expected an even divisor of h {h}")
        heads = h // d
        groups = o.num_query_groups or heads
        if heads % groups != 0:
            parser.error(f"--num-query-groups {groups}: expected a divisor of the {heads} heads of h {h}")
        cases.append({"dtype": dtype, "recompute": recompute,
                      "layers": (o.bf16_layers or layers) if dtype == "bf16" else layers, "hidden": h, "seq": s,
                      "batch": o.micro_batch_size or (max(1, o.tokens // s) if grid else 2), "heads": heads,
                      "groups": groups, "head_size": d, "mask": mask, "ffn": o.ffn_hidden_size or 3 * h,
                      "normalization": o.normalization, "epsilon": 1e-6, "activation": o.activation,
                      "qk_layernorm": not o.no_qk_layernorm, "bias": o.bias})
    return cases


def median(numbers):
    ordered = sorted(numbers)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def errors_of(found, reference):
    """Largest difference of each tensor over the reference's largest value."""
    import torch
    if found.keys() != reference.keys():
        raise Failed(f"different parameters: {sorted(found.keys() ^ reference.keys())}")
    errors = {}
    for name, wanted in reference.items():
        if found[name].shape != wanted.shape:
            raise Failed(f"{name}: expected shape {tuple(wanted.shape)}, seen {tuple(found[name].shape)}")
        error = ((found[name] - wanted).abs().max() / wanted.abs().max()).item()
        errors[name] = error if math.isfinite(error) and torch.count_nonzero(wanted) > wanted.numel() // 2 else math.inf
    return errors


def disagreement(case, errors):
    """The first tensor of any contestant that is further from float32 than its dtype explains, as a line; None when
    there is none."""
    for name, tensors in errors.items():
        for tensor, error in tensors.items():
            limit = F32_LIMIT
            if case["dtype"] == "bf16":
                # Noise is what PyTorch itself has; where that chances to be small, the rounding of one result.
                noise = max((errors[peer][tensor] for peer in errors if peer != "libmdlm"), default=math.inf)
                limit = min(BF16_LIMIT, 2 * noise + 2 ** -8) if name == "libmdlm" else BF16_LIMIT
            if not error <= limit:
                return (f"{label(case)}: {tensor} of {name}: expected at most {limit:.1e} of the largest value from "
                        f"float32, seen {error:.1e}")
    return None


def measure(case, options, library, folder, progress, references):
    """The case's row; raises Failed. references holds the last float32 step, which none and full of a shape share."""
    def start(name):
        progress.say(f"{name}: starts")
        return Contestant(name, case, options.threads, library, folder)

    def results(contestant, limit=None):
        progress.say(f"{contestant.name}: "
                     + ("compiles, first step" if contestant.name == "compiled" else "first step"))
        import torch
        path = os.path.join(folder, "results")
        contestant.ask({"do": "results", "file": path}, limit)
        return torch.load(path)

    running, row = {}, {"case": case, "contestants": {}, "skipped": {}}
    try:
        key = json.dumps({**case, "recompute": "none"})
        if key not in references:
            references.clear()
            running["reference"] = start("reference")
            references[key] = results(running["reference"])
            running.pop("reference").stop()
        wanted = references[key]

        errors = {}
        for name in ["libmdlm"] + options.peers:
            try:
                contestant = running[name] = start(name)
                errors[name] = errors_of(results(contestant, None if name == "libmdlm" else options.step_limit), wanted)
                warm = contestant.ask({"do": "warm up"}, None if name == "libmdlm" else options.step_limit)
            except Failed as why:
                if name in running:
                    running.pop(name).stop()
                if name == "libmdlm":
                    raise
                errors.pop(name, None)
                row["skipped"][name] = str(why)
                progress.note(f"{label(case)}: skipped: {why}")
                continue
            row["contestants"][name] = {"about": contestant.about, "warm": sum(warm["seconds"]),
                                        "peak_bytes": warm["peak_bytes"], "grown_bytes": warm.get("grown_bytes"),
                                        "errors": errors[name], "turns": []}
        row["disagreement"] = disagreement(case, errors)
        if row["disagreement"] is None and len(running) > 1:
            take_turns(row, running, options, progress)
    finally:
        for contestant in running.values():
            contestant.stop()
    return row


def take_turns(row, running, options, progress):
    counts = {name: max(1, round(TURN_SECONDS / row["contestants"][name]["warm"])) for name in running}
    turn = sum(counts[name] * row["contestants"][name]["warm"] for name in running)
    row["repeats"] = max(1, min(options.repeats, int(options.patience / turn)))
    for repeat in range(row["repeats"]):
        order = list(running)
        order = order[repeat % len(order):] + order[:repeat % len(order)]
        for name in order:
            progress.say(f"repeat {repeat + 1} of {row['repeats']}: {name}")
            time.sleep(PAUSE_SECONDS)
            steps = running[name].ask({"do": "steps", "count": counts[name]})["seconds"]
            row["contestants"][name]["turns"].append(
                [1e3 * sum(step[phase] for step in steps) / len(steps) for phase in range(2)])
    for one in row["contestants"].values():
        one["forward_ms"], one["backward_ms"] = (median([turn[phase] for turn in one["turns"]]) for phase in range(2))
        one["ms"] = median([sum(turn) for turn in one["turns"]])
    peers = [name for name in running if name != "libmdlm"]
    row["best"] = min(peers, key=lambda name: row["contestants"][name]["ms"])
    ratios = [sum(a) / sum(b)
              for a, b in zip(row["contestants"][row["best"]]["turns"], row["contestants"]["libmdlm"]["turns"])]
    row["ratio"], row["ratio_min"], row["ratio_max"] = median(ratios), min(ratios), max(ratios)


def main():
    parser, options = read_options()
    try:
        import torch
        if not hasattr(torch.nn, "RMSNorm") or not hasattr(torch, "compile"):
            print(f"skipped: expected PyTorch 2.4 or later, seen {torch.__version__}: install a newer one in a virtual "
                  "environment: python3 -m venv FOLDER && FOLDER/bin/pip install torch, then run this with "
                  "FOLDER/bin/python", file=sys.stderr)
            return 77
    except ImportError as why:
        print(f"skipped: {sys.executable} has no PyTorch ({why}): python3 -m venv FOLDER && "
              "FOLDER/bin/pip install torch, then run this with FOLDER/bin/python", file=sys.stderr)
        return 77
    cases, rows, references, status = cases_of(parser, options), [], {}, 0
    progress, load = Progress(len(cases)), os.getloadavg()[0]
    if load > 0.5:
        progress.note(f"the machine is busy (load {load:.1f}): times are not to be quoted, "
                      "those with OpenMP least of all")
    width = max(len(label(case)) for case in cases)
    try:
        mdlm_ctypes.check_layouts()
        library = mdlm_ctypes.find_library(options.library)
        if not options.json:
            print(line_of(HEADER, width), flush=True)
        with tempfile.TemporaryDirectory(prefix="mdlm-compare-") as folder:
            for case in cases:
                progress.next(label(case))
                rows.append(measure(case, options, library, folder, progress, references))
                progress.clear()
                if not options.json:
                    print(cells(rows[-1], width), flush=True)
                if rows[-1]["disagreement"]:
                    print(rows[-1]["disagreement"], file=sys.stderr)
                    status = 1
    except (Failed, mdlm_ctypes.Error) as why:
        progress.clear()
        print(why, file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        progress.clear()
        status = 130
    report(rows, options.threads, options.json, load)
    return status if status or all("ratio" in row for row in rows) else 2


if __name__ == "__main__":
    sys.exit(main())
