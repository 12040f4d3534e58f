# SPDX-License-Identifier: Apache-2.0
"""What a benchmark in Python needs of libmdlm, through its C ABI (include/mdlm/mdlm.h) and nothing else: structures,
calls, errors.

The structures are written by hand. Before anything is called, each is compared field by field with the stored layouts
of the header (tests/abi/layouts.txt), so that a change there is a line of text here and not a wrong figure.
"""
import ctypes
import glob
import os
from ctypes import byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAYOUTS = os.path.join(ROOT, "tests", "abi", "layouts.txt")

API_VERSION = 1  # MDLM_API_VERSION of the header that the structures below were written from
DTYPES = {"f32": 1, "bf16": 2}


class ContextDesc(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("api_version", c_int32), ("device", c_int32), ("device_index", c_int32),
                ("num_threads", c_int32), ("threadpool", c_void_p), ("device_allocator", c_void_p),
                ("host_allocator", c_void_p), ("log", c_void_p), ("log_payload", c_void_p), ("matmul", c_int32),
                ("reserved", c_int32), ("stream", c_void_p), ("cancelled", c_void_p), ("cancelled_payload", c_void_p),
                ("comm", c_void_p), ("comm_timeout_ms", c_int64), ("host_comm", c_void_p)]


class Shape(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("seq_length", c_int64), ("micro_batch_size", c_int64),
                ("max_tokens", c_int64), ("max_documents", c_int64), ("in_flight", c_int32),
                ("evaluate_in_flight", c_int32), ("input_requires_grad", c_int32), ("input_storage", c_int32),
                ("max_bytes", c_uint64), ("share_scratch", c_int32), ("reserved", c_int32)]


class Memory(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t)] + [(name, c_uint64) for name in (
        "peak_bytes", "fixed_bytes", "saved_bytes", "scratch_bytes", "host_bytes", "parameter_bytes", "gradient_bytes")]


class ParamDesc(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("layer", c_int64), ("ndim", c_int32),
                ("requires_grad", c_int32), ("full_shape", c_int64 * 2), ("local_shape", c_int64 * 2),
                ("partition_dim", c_int32), ("partition_stride", c_int32), ("dtype", c_int32), ("grad_dtype", c_int32),
                ("offset_bytes", c_uint64), ("bytes", c_uint64), ("grad_offset_bytes", c_uint64),
                ("grad_bytes", c_uint64)]


class Batch(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("seq_length", c_int64), ("micro_batch_size", c_int64),
                ("training", c_int32), ("attention_mask_type", c_int32), ("cu_seqlens", c_void_p),
                ("num_documents", c_int64), ("seed", c_uint64), ("step", c_uint32), ("micro_batch_index", c_uint32)]


class BackwardOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("overwrite_grads", c_int32), ("grad_ready", c_void_p),
                ("payload", c_void_p)]


class Config(ctypes.Structure):
    # All fields are here although they are only set by key: their places are what the comparison below checks.
    _fields_ = [("struct_size", c_size_t)] + [(name, c_int64) for name in (
        "num_layers", "layer_offset", "total_num_layers", "hidden_size", "num_attention_heads", "num_query_groups",
        "kv_channels", "ffn_hidden_size")] + [
        ("normalization", c_int32), ("layernorm_zero_centered_gamma", c_int32), ("layernorm_epsilon", c_double),
        ("qk_layernorm", c_int32), ("final_layernorm", c_int32), ("add_bias_linear", c_int32),
        ("add_qkv_bias", c_int32), ("activation_func", c_int32), ("position_embedding_type", c_int32),
        ("rotary_base", c_double), ("rotary_percent", c_double), ("rotary_interleaved", c_int32),
        ("use_rope_scaling", c_int32), ("rope_scaling_factor", c_double), ("rope_low_freq_factor", c_double),
        ("rope_high_freq_factor", c_double), ("rope_original_max_position", c_int64),
        ("seq_len_interpolation_factor", c_double), ("attention_mask_type", c_int32), ("mask_block_size", c_int32),
        ("window_left", c_int64), ("window_right", c_int64), ("softmax_scale", c_double),
        ("attention_backend", c_int32), ("attention_dropout", c_double), ("hidden_dropout", c_double),
        ("batch_first", c_int32), ("params_dtype", c_int32), ("grad_dtype", c_int32), ("init_method_std", c_double),
        ("output_init_std", c_double), ("tensor_model_parallel_size", c_int64), ("sequence_parallel", c_int32),
        ("recompute_granularity", c_int32), ("recompute_method", c_int32), ("recompute_num_layers", c_int64),
        ("recompute_modules", c_uint32), ("distribute_saved_activations", c_int32), ("cpu_offloading", c_int32),
        ("cpu_offloading_num_layers", c_int64), ("memory_budget", c_int64),
        ("memory_budget_includes_parameters", c_int32)]


STRUCTURES = {"mdlm_config": Config, "mdlm_context_desc": ContextDesc, "mdlm_shape": Shape, "mdlm_memory": Memory,
              "mdlm_param_desc": ParamDesc, "mdlm_batch": Batch, "mdlm_backward_options": BackwardOptions}


class Error(Exception):
    """A call that failed, or a library that is not the one expected; the text is one line."""


def lines_of(name, structure):
    yield f"{name} size {sizeof(structure)}"
    for field, _ in structure._fields_:
        at = getattr(structure, field)
        yield f"{name}.{field} at {at.offset} size {at.size}"


def check_layouts():
    with open(LAYOUTS) as file:
        stored = file.read().splitlines()
    for name, structure in STRUCTURES.items():
        wanted = [line for line in stored if line.split(" ")[0].split(".")[0] == name]
        here = list(lines_of(name, structure))
        if here != wanted:
            line = next(((a, b) for a, b in zip(here, wanted) if a != b), None)
            raise Error(f"{__file__}: {name}: expected {line[1]!r}, seen {line[0]!r}" if line else
                        f"{__file__}: {name}: expected {len(wanted) - 1} fields, seen {len(here) - 1}")


def find_library(path):
    """Path of the shared library: the one given, or the newest below a build folder."""
    if path is not None:
        if not os.path.isfile(path):
            raise Error(f"--library {path}: expected the built shared library, seen no such file")
        return os.path.abspath(path)
    usual = os.path.join(ROOT, "build", "src", "libmdlm.so.0")
    if os.path.isfile(usual):
        return usual
    found = [path for path in glob.glob(os.path.join(ROOT, "build*", "**", "libmdlm.so.0"), recursive=True)
             if os.path.isfile(path)]
    if not found:
        raise Error(f"{usual}: expected the built shared library, seen none: build it, or name one with --library")
    return max(found, key=os.path.getmtime)


class Library:
    """Calls that return a status raise Error with the library's own line. Arguments are converted by the prototypes
    given here."""

    def __init__(self, path):
        check_layouts()
        self.c = ctypes.CDLL(path)
        for name in ["mdlm_last_error", "mdlm_version"]:
            getattr(self.c, name).restype = c_char_p
        if self.c.mdlm_api_version() < API_VERSION:
            raise Error(f"{path}: expected API version {API_VERSION} or later, seen {self.c.mdlm_api_version()}")
        for name, arguments in {
                "context_create": [c_void_p, c_void_p], "context_info": [c_void_p, c_void_p, c_size_t, c_void_p],
                "config_set": [c_void_p, c_char_p, c_char_p], "block_create": [c_void_p, c_void_p, c_void_p],
                "block_reserve": [c_void_p, c_void_p, c_void_p], "block_memory": [c_void_p, c_void_p],
                "param_count": [c_void_p, c_void_p], "param_info": [c_void_p, c_int64, c_void_p],
                "param_write": [c_void_p, c_int64, c_char_p, c_void_p, c_void_p, c_int32, c_void_p, c_size_t],
                "param_grad_read": [c_void_p, c_int64, c_char_p, c_void_p, c_void_p, c_int32, c_void_p, c_size_t],
                "params_changed": [c_void_p], "tape_create": [c_void_p, c_void_p],
                "block_forward": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
                "block_backward": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]}.items():
            function = getattr(self.c, "mdlm_" + name)
            function.argtypes, function.restype = arguments, c_int32
        for kind in ["tape", "block", "context"]:
            destroy = getattr(self.c, f"mdlm_{kind}_destroy")
            destroy.argtypes, destroy.restype = [c_void_p], None

    def version(self):
        return self.c.mdlm_version().decode()

    def call(self, name, *arguments):
        if getattr(self.c, "mdlm_" + name)(*arguments) != 0:
            raise Error(f"mdlm_{name}: {self.c.mdlm_last_error().decode(errors='replace')}")

    def made(self, kind, **fields):
        """A structure with the library's defaults, then the fields given."""
        structure = STRUCTURES[f"mdlm_{kind}"]()
        initialise = getattr(self.c, f"mdlm_{kind}_init")
        initialise.argtypes, initialise.restype = [c_void_p, c_size_t], c_int32
        self.call(f"{kind}_init", byref(structure), sizeof(structure))
        for name, value in fields.items():
            setattr(structure, name, value)
        return structure

    def handle(self, name, *arguments):
        """What mdlm_<name>_create makes."""
        out = c_void_p()
        self.call(f"{name}_create", *arguments, byref(out))
        return out

    def context(self, num_threads):
        return self.handle("context",
                           byref(self.made("context_desc", api_version=API_VERSION, num_threads=num_threads)))

    def info(self, context):
        text = ctypes.create_string_buffer(1024)
        self.call("context_info", context, text, len(text), None)
        return text.value.decode()
