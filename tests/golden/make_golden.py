#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden cases: small transformer blocks run forward and backward in float64 by PyTorch autograd.

Nothing here shares code with the library, so agreement means something. Needs torch and numpy.

    make_golden.py OUT [CASE ...]      writes OUT/CASE/{config.txt, *.npy}

Each case is a folder:
    config.txt            one "key = value" a line, the keys of mdlm_config (and seq_length, micro_batch_size)
    input.npy             hidden states, [s, b, h]
    output.npy            block output, [s, b, h]
    grad_output.npy       dL/d(output), [s, b, h]
    grad_input.npy        dL/d(input), [s, b, h]
    param/NAME.npy        every parameter, full (not sharded), in the layouts that mdlm_param_write takes
    grad/NAME.npy         its gradient
    cu_seqlens.npy        int32 [n+1], only where sequences are packed (then b = 1)
All arrays are float64 unless said otherwise. Dropout is 0 in every case.
"""
import math
import pathlib
import sys

import numpy as np
import torch

torch.set_default_dtype(torch.float64)

DEFAULTS = dict(
    num_layers=2, hidden_size=32, num_attention_heads=4, num_query_groups=0, kv_channels=0, ffn_hidden_size=0,
    normalization="rmsnorm", layernorm_epsilon=1e-5, layernorm_zero_centered_gamma=False,
    activation_func="swiglu", add_bias_linear=False, add_qkv_bias=False, qk_layernorm=False,
    position_embedding_type="rope", rotary_base=10000.0, rotary_percent=1.0, rotary_interleaved=False,
    attention_mask_type="no_mask", window_left=-1, window_right=-1, mask_block_size=0, softmax_scale=0.0,
    final_layernorm=True, seq_length=12, micro_batch_size=2,
)

CASES = {
    # the shape of a MegaDLMs model: bidirectional, RMSNorm, QK-norm, RoPE, SwiGLU, no bias
    "dlm": dict(qk_layernorm=True, ffn_hidden_size=96, layernorm_epsilon=1e-6, num_layers=3),
    # the shape of GPT-2/3: LayerNorm, biases, GELU, causal, no rotary embedding
    "gpt": dict(normalization="layernorm", activation_func="gelu", add_bias_linear=True, add_qkv_bias=True,
                position_embedding_type="none", attention_mask_type="causal", ffn_hidden_size=128),
    # grouped queries, head size that differs from hidden/heads, QKV bias only
    "gqa": dict(num_attention_heads=6, num_query_groups=2, kv_channels=8, hidden_size=40, add_qkv_bias=True,
                attention_mask_type="causal", ffn_hidden_size=72, rotary_base=500000.0),
    # interleaved, partial rotary; tanh GELU gate; zero-centred gamma; own softmax scale; no final norm
    "odd": dict(rotary_interleaved=True, rotary_percent=0.5, activation_func="geglu",
                layernorm_zero_centered_gamma=True, softmax_scale=0.2, final_layernorm=False, ffn_hidden_size=48,
                seq_length=7, micro_batch_size=3),
    # causal with a sliding window
    "window": dict(attention_mask_type="causal", window_left=3, window_right=0, ffn_hidden_size=64, num_layers=1),
    # block diffusion: a token sees its own block of 4 and all earlier blocks
    "block_causal": dict(attention_mask_type="block_causal", mask_block_size=4, qk_layernorm=True, ffn_hidden_size=64),
    # three documents packed into one row, each seeing only itself; positions restart
    "packed": dict(micro_batch_size=1, seq_length=16, qk_layernorm=True, ffn_hidden_size=64, packed=[0, 5, 6, 16]),
    # squared ReLU MLP; add_bias_linear alone gives linear_qkv its bias
    "relu2": dict(activation_func="squared_relu", normalization="layernorm", add_bias_linear=True, ffn_hidden_size=64,
                  num_layers=1, attention_mask_type="causal"),
}


def norm(x, p, name, c):
    w = p[name + ".weight"]
    if c["layernorm_zero_centered_gamma"]:
        w = w + 1
    if c["normalization"] == "rmsnorm":
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["layernorm_epsilon"]) * w
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["layernorm_epsilon"]) * w + p[name + ".bias"]


def rope(x, pos, c):
    """x [s, b, heads, d]; the first int(d * rotary_percent) channels turn, the rest pass."""
    d = int(x.shape[-1] * c["rotary_percent"])
    turn, keep = x[..., :d], x[..., d:]
    angle = pos[:, None].double() * c["rotary_base"] ** (-torch.arange(0, d, 2).double() / d)  # [s, d/2]
    cos, sin = angle.cos()[:, None, None, :], angle.sin()[:, None, None, :]
    if c["rotary_interleaved"]:
        a, b = turn[..., 0::2], turn[..., 1::2]
        turn = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    else:
        a, b = turn[..., : d // 2], turn[..., d // 2:]
        turn = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.cat((turn, keep), -1)


def allowed(c, s, cu):
    """bool [s, s]: may query i see key j."""
    i, j = torch.arange(s)[:, None], torch.arange(s)[None, :]
    ok = torch.ones(s, s, dtype=torch.bool)
    if c["attention_mask_type"] == "causal":
        ok &= j <= i
    if c["attention_mask_type"] == "block_causal":
        ok &= j // c["mask_block_size"] <= i // c["mask_block_size"]
    if c["window_left"] >= 0:
        ok &= j >= i - c["window_left"]
    if c["window_right"] >= 0:
        ok &= j <= i + c["window_right"]
    if cu is not None:
        doc = torch.bucketize(torch.arange(s), torch.tensor(cu[1:]), right=True)
        ok &= doc[:, None] == doc[None, :]
    return ok


def layer(x, p, n, c, pos, ok):
    s, b, h = x.shape
    heads, groups, d = c["num_attention_heads"], c["num_query_groups"], c["kv_channels"]
    per = heads // groups
    u = norm(x, p, n + "input_layernorm", c)
    qkv = u @ p[n + "self_attention.linear_qkv.weight"].T
    if c["add_bias_linear"] or c["add_qkv_bias"]:
        qkv = qkv + p[n + "self_attention.linear_qkv.bias"]
    qkv = qkv.view(s, b, groups, per + 2, d)          # packed by group: its query heads, then key, then value
    q = qkv[:, :, :, :per].reshape(s, b, heads, d)
    k, v = qkv[:, :, :, per], qkv[:, :, :, per + 1]
    if c["qk_layernorm"]:
        q = norm(q, p, n + "self_attention.q_layernorm", c)
        k = norm(k, p, n + "self_attention.k_layernorm", c)
    if c["position_embedding_type"] == "rope":
        q, k = rope(q, pos, c), rope(k, pos, c)
    k, v = k.repeat_interleave(per, 2), v.repeat_interleave(per, 2)
    score = torch.einsum("sbhd,tbhd->bhst", q, k) * c["softmax_scale"]
    prob = score.masked_fill(~ok, -math.inf).softmax(-1)
    ctx = torch.einsum("bhst,tbhd->sbhd", prob, v).reshape(s, b, heads * d)
    y = ctx @ p[n + "self_attention.linear_proj.weight"].T
    if c["add_bias_linear"]:
        y = y + p[n + "self_attention.linear_proj.bias"]
    x = x + y
    u = norm(x, p, n + "pre_mlp_layernorm", c)
    g = u @ p[n + "mlp.linear_fc1.weight"].T
    if c["add_bias_linear"]:
        g = g + p[n + "mlp.linear_fc1.bias"]
    act = c["activation_func"]
    if act in ("swiglu", "geglu"):
        gate, up = g.chunk(2, -1)
        gate = gate * torch.sigmoid(gate) if act == "swiglu" else torch.nn.functional.gelu(gate, approximate="tanh")
        m = gate * up
    elif act == "squared_relu":
        m = torch.relu(g) ** 2
    else:
        m = torch.nn.functional.gelu(g, approximate="tanh" if act == "gelu_tanh" else "none")
    y = m @ p[n + "mlp.linear_fc2.weight"].T
    if c["add_bias_linear"]:
        y = y + p[n + "mlp.linear_fc2.bias"]
    return x + y


def parameters(c, gen):
    h, d, f = c["hidden_size"], c["kv_channels"], c["ffn_hidden_size"]
    heads, groups = c["num_attention_heads"], c["num_query_groups"]
    gated = 2 if c["activation_func"] in ("swiglu", "geglu") else 1
    p = {}

    def weight(name, *shape):
        p[name] = torch.randn(*shape, generator=gen) / math.sqrt(shape[-1])

    def vector(name, n, around):
        p[name] = around + 0.3 * torch.randn(n, generator=gen)

    def norm_of(name, n):
        vector(name + ".weight", n, 0.0 if c["layernorm_zero_centered_gamma"] else 1.0)
        if c["normalization"] == "layernorm":
            vector(name + ".bias", n, 0.0)

    for i in range(c["num_layers"]):
        n = f"layers.{i}."
        norm_of(n + "input_layernorm", h)
        weight(n + "self_attention.linear_qkv.weight", (heads + 2 * groups) * d, h)
        if c["add_bias_linear"] or c["add_qkv_bias"]:
            vector(n + "self_attention.linear_qkv.bias", (heads + 2 * groups) * d, 0.0)
        if c["qk_layernorm"]:
            norm_of(n + "self_attention.q_layernorm", d)
            norm_of(n + "self_attention.k_layernorm", d)
        weight(n + "self_attention.linear_proj.weight", h, heads * d)
        if c["add_bias_linear"]:
            vector(n + "self_attention.linear_proj.bias", h, 0.0)
        norm_of(n + "pre_mlp_layernorm", h)
        weight(n + "mlp.linear_fc1.weight", gated * f, h)
        if c["add_bias_linear"]:
            vector(n + "mlp.linear_fc1.bias", gated * f, 0.0)
        weight(n + "mlp.linear_fc2.weight", h, f)
        if c["add_bias_linear"]:
            vector(n + "mlp.linear_fc2.bias", h, 0.0)
    if c["final_layernorm"]:
        norm_of("final_layernorm", h)
    return p


def complete(case):
    c = {**DEFAULTS, **case}
    cu = c.pop("packed", None)
    c["num_query_groups"] = c["num_query_groups"] or c["num_attention_heads"]
    c["kv_channels"] = c["kv_channels"] or c["hidden_size"] // c["num_attention_heads"]
    c["ffn_hidden_size"] = c["ffn_hidden_size"] or 4 * c["hidden_size"]
    c["softmax_scale"] = c["softmax_scale"] or 1 / math.sqrt(c["kv_channels"])
    return c, cu


def run(case, seed):
    c, cu = complete(case)
    gen = torch.Generator().manual_seed(seed)
    p = parameters(c, gen)
    s, b, h = c["seq_length"], c["micro_batch_size"], c["hidden_size"]
    x = torch.randn(s, b, h, generator=gen)
    grad_out = torch.randn(s, b, h, generator=gen)
    for t in [x, *p.values()]:
        t.requires_grad_()
    pos = torch.arange(s)
    if cu is not None:
        pos = torch.cat([torch.arange(e - a) for a, e in zip(cu, cu[1:])])
    ok, y = allowed(c, s, cu), x
    for i in range(c["num_layers"]):
        y = layer(y, p, f"layers.{i}.", c, pos, ok)
    if c["final_layernorm"]:
        y = norm(y, p, "final_layernorm", c)
    y.backward(grad_out)
    return c, cu, x, y, grad_out, p


def write(out, name, case, seed):
    c, cu, x, y, grad_out, p = run(case, seed)
    folder = pathlib.Path(out) / name
    for sub in ("param", "grad"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    text = lambda v: {True: "true", False: "false"}.get(v, v) if isinstance(v, bool) else v
    (folder / "config.txt").write_text("".join(f"{k} = {text(v)}\n" for k, v in c.items()))
    save = lambda path, t: np.save(folder / path, t.detach().numpy())
    save("input.npy", x), save("output.npy", y), save("grad_output.npy", grad_out), save("grad_input.npy", x.grad)
    for k, t in p.items():
        save(f"param/{k}.npy", t), save(f"grad/{k}.npy", t.grad)
    if cu is not None:
        np.save(folder / "cu_seqlens.npy", np.array(cu, dtype=np.int32))


if __name__ == "__main__":
    out, *names = sys.argv[1:]
    for k in names or CASES:
        write(out, k, CASES[k], seed=1000 + list(CASES).index(k))
        print("wrote", k)
