#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One contestant of compare_torch.py in a process of its own: libmdlm or a variant of PyTorch, one case, obeying lines
of JSON.

Own processes keep thread pools, allocators and OpenMP libraries apart, and let the peak of each be read off its
process. While one works the others sleep.

    contestants.py '{"contestant": "libmdlm" | "eager" | "compiled" | "reference", "threads": N, "library": PATH,
                     "case": {...}}'

Commands on stdin, one answer each on stdout: {"do": "results", "file": F} runs a step and stores what it gave; {"do":
"warm up"} runs one and measures memory; {"do": "steps", "count": N} times N. A failure answers {"error": LINE}, and the
process ends.
"""
import ctypes
import gc
import json
import os
import sys
import time

import mdlm_ctypes


def resident(field="VmRSS"):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(field + ":"))


def start_of_peak():
    """Gives free memory back and lets VmHWM begin anew; returns the resident bytes from which it begins."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return resident()


class Mdlm:
    """Peak: what the library predicts (arena, parameters, gradients), and y and dx, which are the caller's. The growth
    of the process beside it."""

    def __init__(self, order):
        # Before torch, so that the library gets the OpenMP it was built with; torch only fills memory and stores
        # results here.
        self.library = mdlm_ctypes.Library(order["library"])
        import torch
        import torch_block
        self.torch, self.case = torch, order["case"]
        torch.set_num_threads(order["threads"])
        dtype = torch_block.DTYPES[self.case["dtype"]]
        self.x, self.dy = torch_block.inputs(self.case, dtype)
        self.before = start_of_peak()
        self.y, self.dx = torch.empty_like(self.x), torch.empty_like(self.x)
        self.make_block(order["threads"])
        self.set_parameters(torch_block)

    def make_block(self, threads):
        library, case, byref = self.library, self.case, ctypes.byref
        self.context = library.context(threads)
        config = library.made("config")
        for key, value in {
                "num_layers": case["layers"], "hidden_size": case["hidden"], "num_attention_heads": case["heads"],
                "num_query_groups": case["groups"], "kv_channels": case["head_size"], "ffn_hidden_size": case["ffn"],
                "normalization": case["normalization"], "layernorm_epsilon": case["epsilon"],
                "qk_layernorm": int(case["qk_layernorm"]), "add_bias_linear": int(case["bias"]),
                "activation_func": case["activation"], "attention_mask_type": case["mask"],
                "params_dtype": case["dtype"], "batch_first": 1, "recompute_granularity": case["recompute"]}.items():
            library.call("config_set", byref(config), key.encode(), str(value).encode())
        self.block = library.handle("block", self.context, byref(config))
        shape = library.made("shape", seq_length=case["seq"], micro_batch_size=case["batch"])
        library.call("block_reserve", self.block, byref(shape), None)
        self.batch = library.made("batch", seq_length=case["seq"], micro_batch_size=case["batch"], training=1)
        self.overwrite = library.made("backward_options", overwrite_grads=1)
        self.tape = library.handle("tape", self.block)

    def parameters(self):
        count = ctypes.c_int64()
        self.library.call("param_count", self.block, ctypes.byref(count))
        for index in range(count.value):
            desc = self.library.made("param_desc")
            self.library.call("param_info", self.block, index, ctypes.byref(desc))
            yield index, desc.name.decode(), tuple(desc.full_shape[:desc.ndim])

    def set_parameters(self, torch_block):
        for index, name, shape in self.parameters():
            value = torch_block.values(name, shape, self.case)
            self.library.call("param_write", self.block, index, None, None, None,
                              mdlm_ctypes.DTYPES[self.case["dtype"]], value.data_ptr(),
                              value.numel() * value.element_size())

    def step(self):
        # As after an optimizer's step: what the library derives from parameters (packed weights) is made again, within
        # the time.
        begin = time.perf_counter()
        self.library.call("params_changed", self.block)
        self.library.call("block_forward", self.block, ctypes.byref(self.batch), self.x.data_ptr(), self.tape,
                          self.y.data_ptr())
        middle = time.perf_counter()
        self.library.call("block_backward", self.block, self.tape, ctypes.byref(self.overwrite), self.dy.data_ptr(),
                          self.dx.data_ptr())
        return middle - begin, time.perf_counter() - middle

    def results(self):
        import torch_block
        found = {"y": self.y.float(), "dx": self.dx.float()}
        for index, name, shape in self.parameters():
            if torch_block.compared(self.case, name):
                gradient = self.torch.empty(shape)
                self.library.call("param_grad_read", self.block, index, None, None, None, mdlm_ctypes.DTYPES["f32"],
                                  gradient.data_ptr(), 4 * gradient.numel())
                found[name] = gradient
        return found

    def warm_up(self):
        grown = resident("VmHWM") - self.before  # everything since the process was ready, its first step included
        seconds = self.step()
        memory = self.library.made("memory")
        self.library.call("block_memory", self.block, ctypes.byref(memory))
        predicted = (memory.peak_bytes + memory.parameter_bytes + memory.gradient_bytes
                     + 2 * self.y.numel() * self.y.element_size())
        return {"seconds": seconds, "peak_bytes": predicted, "grown_bytes": grown}

    def about(self):
        return f"libmdlm {self.library.version()}: {self.library.info(self.context)}"


class Torch:
    """Peak: growth of the resident set over a step, from a heap that holds parameters and inputs only, and the
    parameters' own bytes. Code, compiled kernels and what libraries cache between steps are not in it."""

    def __init__(self, order):
        import torch
        import torch_block
        self.torch, self.case, self.compiled = torch, order["case"], order["contestant"] == "compiled"
        torch.set_num_threads(order["threads"])
        dtype = torch.float32 if order["contestant"] == "reference" else torch_block.DTYPES[self.case["dtype"]]
        self.block = torch_block.block(self.case, dtype)
        self.x, self.dy = torch_block.inputs(self.case, dtype)
        self.x.requires_grad_()
        self.forward = torch.compile(self.block, dynamic=False) if self.compiled else self.block

    def clear(self):
        self.y = self.x.grad = None
        self.block.zero_grad(set_to_none=True)

    def step(self):
        begin = time.perf_counter()
        self.clear()
        self.y = self.forward(self.x)
        middle = time.perf_counter()
        self.y.backward(self.dy)
        return middle - begin, time.perf_counter() - middle

    def results(self):
        import torch_block
        found = {name: p.grad.float() for name, p in self.block.named_parameters()
                 if torch_block.compared(self.case, name)}
        return {"y": self.y.detach().float(), "dx": self.x.grad.float(), **found}

    def warm_up(self):
        self.clear()
        before = start_of_peak()
        seconds = self.step()
        parameters = sum(p.numel() * p.element_size() for p in self.block.parameters())
        return {"seconds": seconds, "peak_bytes": parameters + resident("VmHWM") - before}

    def about(self):
        torch = self.torch
        config = torch.__config__.show()
        libraries = [line.strip(" -") for line in config.splitlines() if "Math Kernel" in line or "MKL-DNN" in line
                     or "oneDNN" in line]
        blas = next((word.split("=")[1].strip(", ") for word in config.split() if word.startswith("BLAS_INFO=")),
                    "unknown")
        return (f"PyTorch {torch.__version__}: CPU capability {torch.backends.cpu.get_cpu_capability()}, BLAS {blas}, "
                + ", ".join(line.split(" for ")[0] for line in libraries))


def obey(contestant, command):
    if command["do"] == "results":
        seconds = contestant.step()
        contestant.torch.save(contestant.results(), command["file"])
        return {"seconds": seconds}
    if command["do"] == "warm up":
        return contestant.warm_up()
    return {"seconds": [contestant.step() for _ in range(command["count"])]}


def main():
    # Answers keep the real stdout; what libraries print goes where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(what):
        print(json.dumps(what), file=answers, flush=True)

    order = json.loads(sys.argv[1])
    try:
        contestant = (Mdlm if order["contestant"] == "libmdlm" else Torch)(order)
        answer({"about": contestant.about()})
        for line in sys.stdin:
            answer(obey(contestant, json.loads(line)))
    except Exception as error:  # whatever went wrong is the answer: the parent decides what it means
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer({"error": f"{type(error).__name__}: {lines[0] if lines else 'no text'}"[:400]})


if __name__ == "__main__":
    main()
