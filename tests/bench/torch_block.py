# SPDX-License-Identifier: Apache-2.0
"""The block in PyTorch, as its users write it: modules under Megatron's names, so that parameters pair with libmdlm's
by name.

Layout [b, s, h], which is the one PyTorch likes best; libmdlm is told the same (batch_first).
"""
import math
import zlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
GATED = {"swiglu": F.silu, "geglu": lambda x: F.gelu(x, approximate="tanh")}
PLAIN = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
         "squared_relu": lambda x: F.relu(x).square()}


def norm(case, size):
    kind = nn.RMSNorm if case["normalization"] == "RMSNorm" else nn.LayerNorm
    return kind(size, eps=case["epsilon"])


class Attention(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.heads, self.groups, self.size = case["heads"], case["groups"], case["head_size"]
        self.causal = case["mask"] == "causal"
        width = self.size * self.heads
        self.linear_qkv = nn.Linear(case["hidden"], width + 2 * self.size * self.groups, bias=False)
        self.linear_proj = nn.Linear(width, case["hidden"], bias=case["bias"])
        self.q_layernorm = norm(case, self.size) if case["qk_layernorm"] else nn.Identity()
        self.k_layernorm = norm(case, self.size) if case["qk_layernorm"] else nn.Identity()

    @staticmethod
    def rotated(x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        packed = self.linear_qkv(x).view(b, s, self.groups, self.heads // self.groups + 2, self.size)
        q, k, v = packed.split((self.heads // self.groups, 1, 1), dim=3)
        q, k, v = (part.reshape(b, s, -1, self.size).transpose(1, 2) for part in (q, k, v))
        q, k = self.rotated(self.q_layernorm(q), cos, sin), self.rotated(self.k_layernorm(k), cos, sin)
        grouped = {"enable_gqa": True} if self.groups != self.heads else {}
        context = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, **grouped)
        return self.linear_proj(context.transpose(1, 2).reshape(b, s, -1))


class Mlp(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.activation = case["activation"]
        self.linear_fc1 = nn.Linear(case["hidden"], case["ffn"] * (2 if self.activation in GATED else 1),
                                    bias=case["bias"])
        self.linear_fc2 = nn.Linear(case["ffn"], case["hidden"], bias=case["bias"])

    def forward(self, x):
        x = self.linear_fc1(x)
        if self.activation in GATED:
            gate, up = x.chunk(2, dim=-1)
            return self.linear_fc2(GATED[self.activation](gate) * up)
        return self.linear_fc2(PLAIN[self.activation](x))


class Layer(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.input_layernorm, self.pre_mlp_layernorm = norm(case, case["hidden"]), norm(case, case["hidden"])
        self.self_attention, self.mlp = Attention(case), Mlp(case)

    def forward(self, x, cos, sin):
        x = x + self.self_attention(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.pre_mlp_layernorm(x))


class Block(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.replay = case["recompute"] == "full"
        self.layers = nn.ModuleList(Layer(case) for _ in range(case["layers"]))
        self.final_layernorm = norm(case, case["hidden"])
        half = case["head_size"] // 2
        frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.outer(torch.arange(case["seq"], dtype=torch.float64), frequency)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def forward(self, x):
        for layer in self.layers:
            if self.replay:
                x = checkpoint(layer, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = layer(x, self.cos, self.sin)
        return self.final_layernorm(x)


def values(name, shape, case, seed=1234):
    """Values of a parameter (by its name) or of the input or output gradient: the same in every process, rounded to the
    case's dtype."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    drawn = torch.randn(tuple(shape), generator=generator)
    if name.endswith("layernorm.weight"):
        drawn = 1 + 0.1 * drawn
    elif name.endswith(".weight"):
        drawn /= math.sqrt(shape[-1])
    elif name.endswith(".bias"):
        drawn *= 0.1
    return drawn.to(DTYPES[case["dtype"]])


def inputs(case, dtype):
    """x and dy."""
    shape = (case["batch"], case["seq"], case["hidden"])
    return [values(name, shape, case).to(dtype) for name in ("x", "dy")]


def block(case, dtype):
    """The block with its parameters, in a dtype that may be wider than the one that their values were rounded to."""
    made = Block(case).to(dtype)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(values(name, parameter.shape, case))
    return made


def compared(case, name):
    """Are the gradients of this parameter compared? Those of the first and the last layer, and of the final norm."""
    return name.startswith(("layers.0.", f"layers.{case['layers'] - 1}.", "final_layernorm."))
