"""Attention in plain PyTorch, as a user would write it: what the op is compared with."""

import math

import torch

from hinge.models import ACTIVATIONS

ALL = list(ACTIVATIONS)


def visible_keys(Lq, Lk, is_causal=False, key_lengths=None, attn_mask=None, window=None):
    """[B or 1, Hq or 1, Lq, Lk], bool."""
    visible = torch.ones(1, 1, Lq, Lk, dtype=torch.bool)
    if is_causal:
        visible = visible.tril(Lk - Lq)
    if key_lengths is not None:
        visible = visible & (torch.arange(Lk) < key_lengths[:, None, None, None])
    if window is not None:
        left, right = (Lq + Lk if bound in (None, -1) else bound for bound in window)
        distance = torch.arange(Lk) - (torch.arange(Lq)[:, None] + Lk - Lq)
        visible = visible & (distance >= -left) & (distance <= right)
    if attn_mask is not None:
        visible = visible & (attn_mask if attn_mask.dtype == torch.bool else attn_mask != -math.inf)
    return visible


def weights(q, k, *, h="relu", scale=None, is_causal=False, alpha=1.0, gain=1.0, bias=0.0, length_rule="keys", length_n=1.0,
            bias_log_n=False, key_lengths=None, attn_mask=None, window=None):  # fmt: skip
    """[B, Hq, Lq, Lk], before dropout."""
    Lq, Lk = q.shape[2], k.shape[2]
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    x = q @ k.mT * (1 / math.sqrt(q.shape[3]) if scale is None else scale)
    visible = visible_keys(Lq, Lk, is_causal, key_lengths, attn_mask, window)
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        x = x + attn_mask.masked_fill(attn_mask == -math.inf, 0)
    if h == "softmax":
        return x.masked_fill(~visible, torch.finfo(x.dtype).min).softmax(-1).masked_fill(~visible, 0)

    def per_head(value):
        return value.reshape(-1, 1, 1).to(q.dtype) if isinstance(value, torch.Tensor) else value

    seen = visible.sum(-1, keepdim=True).clamp_min(1).to(q.dtype)
    n = {"none": torch.ones_like(seen), "fixed": seen * 0 + length_n, "keys": seen * 0 + Lk, "visible": seen}[length_rule]
    x = x + per_head(bias) - (n.log() if bias_log_n else 0)
    return torch.where(visible, per_head(gain) * n ** -per_head(alpha) * ACTIVATIONS[h](x), 0.0)


def attention(q, k, v, **options):
    return weights(q, k, **options) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
