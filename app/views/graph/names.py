"""Short words for operations: the head of a column, one letter where there is no room, a name.

A node's role is its name without the layer's number. Known roles have short words; others keep
their name without the prefix that its group already tells; nameless ones are called by their
weight or their operation.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LAYER_SUFFIX = re.compile(r"-\d+(?=$| \()")
_CACHE_LAYER = re.compile(r"_l\d+\b")
_ANONYMOUS = re.compile(r"node_\d+$")
_WEIGHT = re.compile(r"(?:blk\.\d+\.)?(.*?)(?:\.weight|\.bias)?$")
TIMES = "\u00d7"
"""The multiplication sign; escaped, since it looks like an x."""

_PREFIX = re.compile(r"^(?:ffn_moe_|ffn_|attn_)")


class Head(NamedTuple):
    """Words for a column, from long to short, and the name in an opened node."""

    word: str
    letter: str
    name: str


_BY_ROLE = {
    "Qcur": Head("Q", "Q", "Q"),
    "Kcur": Head("K", "K", "K"),
    "Vcur": Head("V", "V", "V"),
    "attn_q": Head("Q", "Q", "Q"),
    "attn_k": Head("K", "K", "K"),
    "attn_v": Head("V", "V", "V"),
    "attn_qkv": Head("QKV", "Q", "QKV"),
    "wqkv": Head("QKV", "Q", "QKV"),
    "attn_out": Head("out", "o", "out"),
    "attn_output": Head("out", "o", "out"),
    "kqv_out": Head("join", "j", "join"),
    "kq": Head("kq", "·", "k·q"),
    "kqv": Head("kqv", "v", "kq·v"),
    "ffn_gate": Head("gate", "g", "gate"),
    "ffn_up": Head("up", "u", "up"),
    "ffn_out": Head("down", "d", "down"),
    "ffn_down": Head("down", "d", "down"),
    "ffn_moe_logits": Head("router", "r", "router"),
    "ffn_gate_inp": Head("router", "r", "router"),
    "result_output": Head("logits", "l", "result_output"),
}
"""Heads of matrix products, by role or by the weight's role."""

_BY_OP = {
    "RMS_NORM": Head("norm", "n", "norm"),
    "NORM": Head("norm", "n", "norm"),
    "L2_NORM": Head("norm", "n", "norm"),
    "ROPE": Head("rope", "r", "rope"),
    "FLASH_ATTN_EXT": Head("attn", "a", "attn"),
    "SOFT_MAX": Head("softmax", "s", "softmax"),
    "ADD": Head("+", "+", "+"),
    "ADD_ID": Head("+", "+", "+"),
    "MUL": Head(TIMES, TIMES, TIMES),
    "SCALE": Head(TIMES + "c", TIMES, TIMES + "c"),
    "GET_ROWS": Head("rows", "r", "rows"),
    "ARGSORT": Head("sort", "s", "sort"),
    "SUM_ROWS": Head("sum", "Σ", "sum"),
    "CONT": Head("cont", "c", "cont"),
    "SSM_CONV": Head("conv", "c", "conv"),
    "SSM_SCAN": Head("scan", "s", "scan"),
}

_UNITS = {"MUL_MAT": 2.1, "MUL_MAT_ID": 2.1, "FLASH_ATTN_EXT": 2.1, "GET_ROWS": 0.6}
_GLU_UNITS = 1.5


def role_of(name: str) -> str:
    """A node's name without its layer: "Qcur", "cache_k (view)"; empty where ggml numbered it."""
    if _ANONYMOUS.match(name):
        return ""
    return _CACHE_LAYER.sub("", _LAYER_SUFFIX.sub("", name)).strip()


def role_of_weight(name: str) -> str:
    """A weight's name without layer and kind: "attn_q" of "blk.3.attn_q.weight"."""
    found = _WEIGHT.match(name)
    return found.group(1) if found else name


def is_glu(op: str) -> bool:
    """Whether an operation, as ggml describes it, is a gated unit."""
    return "GLU" in op


def units_of(op: str) -> float:
    """How wide an operation's column is, 1 for most."""
    return _GLU_UNITS if is_glu(op) else _UNITS.get(op, 1.0)


def head_of(role: str, op: str) -> Head:
    """The words for a role and an operation."""
    cache = _cache_head(role, op)
    if cache is not None:
        return cache
    if op == "MUL" and "norm" in role:
        return Head(TIMES + "w", TIMES, TIMES + "w")
    if is_glu(op):
        return Head("glu", "g", "glu")
    if op in ("MUL_MAT", "MUL_MAT_ID"):
        return _BY_ROLE.get(role) or _from_text(_PREFIX.sub("", role) or TIMES + "W")
    bare = _PREFIX.sub("", role).split("(")[0].strip()
    return _BY_OP.get(op) or _from_text(bare or op.lower())


def _cache_head(role: str, op: str) -> Head | None:
    if op not in ("SET_ROWS", "CPY") or not role.startswith("cache_"):
        return None
    kind = role[len("cache_") :][:1]
    return Head(f"{kind}→", kind, f"{kind}→KV" if kind in "kv" else f"{kind}→state")


def _from_text(text: str) -> Head:
    return Head(text, text[:1], text)
