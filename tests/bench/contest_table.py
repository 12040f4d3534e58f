# SPDX-License-Identifier: Apache-2.0
"""Rows of compare_torch.py as a table or as JSON."""
import json
import math

from contest import PEERS


def label(case):
    return (f"{case['dtype']} {case['recompute']}, {case['layers']} x h {case['hidden']}, "
            f"{case['heads']} heads of {case['head_size']}, s {case['seq']}, b {case['batch']}, {case['mask']}")


HEADER = ["case", "libmdlm ms", *(f"{name} ms" for name in PEERS), "best", "torch/libmdlm", "repeats", "libmdlm MiB",
          "torch MiB", "libmdlm error", "torch error"]


def cells(row, width):
    """A row of the table, as text."""
    def of(name, key, form):
        value = row["contestants"].get(name, {}).get(key)
        return "-" if value is None else form(value)

    def ms(value):
        return f"{value:.1f}"

    def mib(value):
        return f"{value / 2**20:.0f}"

    def worst(errors):
        return f"{max(errors.values()):.1e}"
    best = row.get("best", "")
    ratio = f"{row['ratio']:.2f} ({row['ratio_min']:.2f}-{row['ratio_max']:.2f})" if best else "-"
    texts = [label(row["case"]), of("libmdlm", "ms", ms), *(of(name, "ms", ms) for name in PEERS), best or "-", ratio,
             str(row.get("repeats", "-")), of("libmdlm", "peak_bytes", mib), of(best, "peak_bytes", mib),
             of("libmdlm", "errors", worst), of(best, "errors", worst)]
    return line_of(texts, width)


def line_of(texts, width):
    widths = [width] + [max(len(title), 8) for title in HEADER[1:]]
    widths[HEADER.index("torch/libmdlm")] = 18
    return "  ".join([texts[0].ljust(widths[0])] + [text.rjust(w) for text, w in zip(texts[1:], widths[1:])])


def processor():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def report(rows, threads, as_json, load):
    """JSON, or what stands below the table."""
    if as_json:
        for one in (one for row in rows for one in row["contestants"].values()):
            one["errors"] = {name: error if math.isfinite(error) else None for name, error in one["errors"].items()}
        print(json.dumps({"processor": processor(), "threads": threads, "load_before": load, "rows": rows}, indent=1))
        return
    if not rows:
        return
    for about in sorted({one["about"] for row in rows for one in row["contestants"].values()}, reverse=True):
        print(about)
    print(f"on {processor()}, {threads} threads. ms: forward and backward, median of the repeats; torch/libmdlm: "
          "median (least-most) of the ratios within a repeat, of PyTorch's best variant.\n"
          "MiB: peak with parameters and gradients; libmdlm's as it says before it runs, PyTorch's by the growth of "
          "its process over a step.\n"
          "error: largest difference from a float32 step of PyTorch, over the tensor's largest value.")
    for row in rows:
        for why in row["skipped"].values():
            print(f"skipped in {label(row['case'])}: {why}")
    timed = [row for row in rows if "ratio" in row]
    if timed:
        least = min(timed, key=lambda row: row["ratio"])
        print(f"libmdlm is faster in {sum(row['ratio'] > 1 for row in timed)} of {len(timed)} cases; "
              f"least ratio {least['ratio']:.2f} in {label(least['case'])}")
