"""Attention whose weights are a projection of the scores onto the simplex, in plain tensor operations: sparsemax and 1.5-entmax.

Baselines beside the fused attention, for runs of the hinge command that were trained with them.
"""

import math

import torch

RULES = ("sparsemax", "entmax15")


def weights(
    rule: str,
    query: torch.Tensor,
    key: torch.Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    attn_mask: torch.Tensor | None = None,
    key_lengths: torch.Tensor | None = None,
    q_offsets: torch.Tensor | None = None,
    k_offsets: torch.Tensor | None = None,
) -> torch.Tensor:
    """w [B, Hq, Lq, Lk] of query [B, Hq, Lq, D] and key [B, Hkv, Lk, D]; rows that see nothing are zero."""
    B, Hq, Lq, D = query.shape
    Lk = key.shape[2]
    x = query @ key.repeat_interleave(Hq // key.shape[1], 1).mT * (1 / math.sqrt(D) if scale is None else scale)
    i, j = torch.arange(Lq, device=x.device)[:, None], torch.arange(Lk, device=x.device)
    visible = torch.ones(B, 1, Lq, Lk, dtype=torch.bool, device=x.device)
    if q_offsets is not None and k_offsets is not None:
        of_q, of_k = (torch.searchsorted(bounds, place.reshape(-1), right=True) - 1 for bounds, place in ((q_offsets, i), (k_offsets, j)))
        visible = visible & (of_q[:, None] == of_k)
        if is_causal:  # right-aligned within each sequence
            visible = visible & (j - k_offsets[1:][of_k] <= i - q_offsets[1:][of_q][:, None])
    elif is_causal:
        visible = visible & (j <= i + Lk - Lq)
    if key_lengths is not None:
        visible = visible & (j < key_lengths[:, None, None, None])
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            visible = visible & attn_mask
        else:
            x = x + attn_mask
            visible = visible & (attn_mask > -math.inf)
    return _projected(rule, x, visible.expand_as(x))


def _projected(rule: str, x: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Rows of x projected onto the simplex over what is visible. tau as in src/kernels/sparse_attention.cc: of the k largest z with the
    mean m and the sum of squares around it ss, sparsemax has tau = m - 1 / k and entmax15 tau = m - sqrt((1 - ss) / k)."""
    z = x if rule == "sparsemax" else x / 2
    z = z - z.masked_fill(~visible, -math.inf).amax(-1, keepdim=True).detach().nan_to_num(neginf=0.0)
    # Hidden keys come last and are never in the support: the threshold of any support is at least -1.
    ordered = z.masked_fill(~visible, -4.0).sort(-1, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    mean = ordered.cumsum(-1) / k
    if rule == "sparsemax":
        tau = mean - 1 / k
        inside = ordered > tau
    else:
        squares = (ordered.square().cumsum(-1) - k * mean.square()).clamp_min(0)
        rest = (1 - squares) / k
        tau = mean - rest.clamp_min(torch.finfo(z.dtype).tiny).sqrt()
        inside = (rest > 0) & (ordered > tau)
    size = inside.sum(-1, keepdim=True).clamp_min(1)
    gap = (z - tau.gather(-1, size - 1)).clamp_min(0)
    return (gap if rule == "sparsemax" else gap.square()).masked_fill(~visible, 0.0)
