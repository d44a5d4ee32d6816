"""hinge.attention: point-wise attention with the face of torch.nn.functional.scaled_dot_product_attention."""

from typing import Any, Literal, NamedTuple, TypedDict, Unpack, overload

import torch

from . import _func, _ops  # noqa: F401, the ops must be loaded


class AttentionStatistics(NamedTuple):
    """What the weights of an attention were like, before dropout. The first two are differentiable."""

    weight_sum: torch.Tensor  #: [B, Hq, Lq], sum_j w_ij
    weight_log: torch.Tensor  #: [B, Hq, Lq], sum_j w_ij log |w_ij|
    zero_share: torch.Tensor  #: [B, Hq, Lq], share of the visible keys with w_ij == 0; of softmax over more than 256 keys a lower bound
    skipped_share: torch.Tensor  #: [B, Hq], share of the work behind a relu-like h that exact zeros saved


class _Options(TypedDict, total=False):
    """The types of attention's options, for the signatures that say what it returns."""

    h: str
    scale: float | None
    is_causal: bool
    alpha: float | torch.Tensor
    gain: float | torch.Tensor
    bias: float | torch.Tensor
    length_rule: str
    length_n: float
    bias_log_n: bool
    key_lengths: torch.Tensor | None
    attn_mask: torch.Tensor | None
    window: tuple[int | None, int | None] | None
    q_offsets: torch.Tensor | None
    k_offsets: torch.Tensor | None
    num_targets: torch.Tensor | None
    max_attn_len: int
    contextual_seq_len: int
    min_full_attn_seq_len: int
    dropout_p: float
    seed: int | torch.Tensor | None
    identity_order: str


@overload
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, return_statistics: Literal[False] = False, **options: Unpack[_Options]
) -> torch.Tensor: ...
@overload
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, return_statistics: Literal[True], **options: Unpack[_Options]
) -> tuple[torch.Tensor, AttentionStatistics]: ...
@overload
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, return_statistics: bool, **options: Unpack[_Options]
) -> torch.Tensor | tuple[torch.Tensor, AttentionStatistics]: ...
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    h: str = "relu",
    scale: float | None = None,
    is_causal: bool = False,
    alpha: float | torch.Tensor = 1.0,
    gain: float | torch.Tensor = 1.0,
    bias: float | torch.Tensor = 0.0,
    length_rule: str = "keys",
    length_n: float = 1.0,
    bias_log_n: bool = False,
    key_lengths: torch.Tensor | None = None,
    attn_mask: torch.Tensor | None = None,
    window: tuple[int | None, int | None] | None = None,
    q_offsets: torch.Tensor | None = None,
    k_offsets: torch.Tensor | None = None,
    num_targets: torch.Tensor | None = None,
    max_attn_len: int = 0,
    contextual_seq_len: int = 0,
    min_full_attn_seq_len: int = 0,
    dropout_p: float = 0.0,
    seed: int | torch.Tensor | None = None,
    identity_order: str = "auto",
    return_statistics: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, AttentionStatistics]:
    r"""Point-wise attention, fused: no softmax, each weight is a function of its own score.

    .. code-block:: text

        x_ij  = scale * q_i . k_j + attn_mask_ij + bias_h - [bias_log_n] log N_i
        w_ij  = gain_h * N_i^-alpha_h * h(x_ij)      if row i sees key j, else exactly 0
        out_i = sum_j dropout(w_ij) * v_j

    ``h="softmax"`` is the exception: ``w_i`` is the softmax of ``scale * q_i . k_j + attn_mask_ij`` over the visible keys, without gain,
    bias, alpha and length rule. A row that sees no key gives zero. Hidden keys may hold anything; a NaN in ``value`` behind a weight of exactly
    0 (relu and its like) may or may not show in the result.

    Forward and backward run in tiles; memory beyond inputs and outputs grows with L, not with L squared. Differentiable once, in
    ``query``, ``key``, ``value``, ``gain``, ``bias``, ``alpha`` and an additive ``attn_mask``, also under ``torch.func``.

    Args:
        query: ``[B, Hq, Lq, D]``, float32, float64, bfloat16 or float16. The last two are computed in float32, and their statistics are
            float32; autocast on CPUs casts to its lower type. Any strides in B, H and L are read in place; the result's memory follows the
            order of query's dimensions, so that with ``query = x.view(B, L, H, D).transpose(1, 2)`` merging the heads is free.
        key, value: ``[B, Hkv, Lk, D]`` and ``[B, Hkv, Lk, Dv]``. Hq is a multiple of Hkv: query head i reads key head ``i // (Hq // Hkv)``.
        h: one of :func:`hinge.activations`: relu, relu2, gelu (erf), gelu_tanh, softplus, identity, relu6, sigmoid, silu, softmax.
        scale: factor of the scores, 1 / sqrt(D) if None.
        is_causal: row i sees the keys j <= i + Lk - Lq. Right-aligned: the last row sees every key. Lk is the length of ``key`` also with
            ``key_lengths``; for caches of different lengths, use offsets.
        alpha, gain, bias: a number, or a float32 or float64 tensor with 1 or Hq elements (it may require grad).
        length_rule: what N_i is: "none" (1), "fixed" (``length_n``), "keys" (Lk), "visible" (the number of keys that row i sees; the
            result then does not depend on padding).
        length_n: N, for ``length_rule="fixed"`` only.
        bias_log_n: subtract log N_i from the scores.
        key_lengths: int64 ``[B]``: batch row b sees only its first ``key_lengths[b]`` keys.
        attn_mask: anything that broadcasts to ``[B, Hq, Lq, Lk]``, any strides. Boolean: True is visible. float32, float64, bfloat16 or
            float16: added to the scores, -inf hides. What is_causal, key_lengths and window hide stays hidden. A hidden key has a weight of
            exactly zero, whatever ``h`` is. Tiles that are hidden as a whole are skipped. Not with offsets.
        window: ``(left, right)``: row i, at the place p = i + Lk - Lq among the keys, sees the keys p - left to p + right; None or -1 is no
            bound. Time grows with L times the window.
        q_offsets, k_offsets: int64 ``[sequences + 1]``, for a batch of 1: sequence s owns the rows ``q_offsets[s]:q_offsets[s + 1]``
            and sees the keys ``k_offsets[s]:k_offsets[s + 1]``.
        num_targets, max_attn_len, contextual_seq_len, min_full_attn_seq_len: the mask of HSTU recommenders, with the names of that code;
            needs ``is_causal`` and as many keys as rows. A sequence is ``contextual_seq_len`` items of context, the history, and ``num_targets[s]`` targets (int64,
            one for each sequence or batch row). Context sees context and history; history what is before it and itself; a target sees
            context, history and itself, but no other target. Rows of history see at most ``max_attn_len`` items back, and targets the last
            ``max_attn_len`` items of history (0: all), where the context counts as one item. The last ``min_full_attn_seq_len`` rows of
            history (0: none), and with them the targets, see all of it.
        dropout_p: probability that a weight is dropped; the others are divided by ``1 - dropout_p``.
        seed: which weights are dropped is a function of the seed and their place. Drawn from torch's default generator if None.
        identity_order: for ``h="identity"``: "quadratic" (q k^T) v, "linear" q (k^T v), or "auto", the cheaper one. Statistics need every
            weight: with them the order is quadratic.
        return_statistics: also return :class:`AttentionStatistics`.

    Returns:
        ``[B, Hq, Lq, Dv]``, or that and the statistics.

    Example::

        >>> q, k, v = (torch.randn(2, 6, 197, 64) for _ in range(3))
        >>> out = hinge.attention(q, k, v, h="relu")
        >>> torch.allclose(out, torch.relu(q @ k.mT / 8) / 197 @ v, atol=1e-5)
        True
    """
    result: torch.Tensor | tuple[torch.Tensor, AttentionStatistics] = _call(**locals())
    return result


#: The options that may be a number or a tensor, and their defaults.
_PER_HEAD = dict(torch.ops.hinge.per_head_defaults())


def _per_head(value: Any, default: float) -> torch.Tensor | None:
    """A per-head option as the op takes it: None where it is the default."""
    if value is None or isinstance(value, torch.Tensor):
        return value
    return None if value == default else torch.full((1,), float(value), dtype=torch.float64)


def _call(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, is_causal: bool, dropout_p: float, seed: Any, window: Any,
    return_statistics: bool, **options: Any
) -> Any:  # fmt: skip
    """The op, called with the arguments of :func:`attention`. What is not named here has the op's name and type."""
    if any(getattr(tensor, "is_nested", False) for tensor in (query, key, value)):
        raise TypeError("nested tensors are not supported: give their values as a batch of 1, with q_offsets and k_offsets")
    if isinstance(window, (tuple, list)):
        window = [-1 if bound is None else bound for bound in window]
    if dropout_p > 0 and seed is None:
        seed = torch.randint(2**63 - 1, (1,), dtype=torch.int64)
    elif isinstance(seed, int):
        seed = torch.full((1,), seed, dtype=torch.int64)
    for name, default in _PER_HEAD.items():
        options[name] = _per_head(options[name], default)
    options.update(causal=is_causal, dropout=dropout_p, seed=seed, window=window)
    if _func.is_active():
        out, *statistics, _lse = _func.attention_with_statistics(query, key, value, statistics=return_statistics, **options)
        return (out, AttentionStatistics(*statistics)) if return_statistics else out
    if not return_statistics:
        return torch.ops.hinge.attention(query, key, value, **options)
    out, *statistics, _lse = torch.ops.hinge.attention_with_statistics(query, key, value, **options)
    return out, AttentionStatistics(*statistics)


def presets() -> list[str]:
    """The names of the published systems that :func:`preset` knows."""
    return list(torch.ops.hinge.presets())


def preset(name: str, gamma: float = 1.0) -> dict[str, Any]:
    """The options of :func:`attention` that make it a published system's: ``hinge.attention(q, k, v, **hinge.preset("sigmoid"))``.

    gamma is the ReLUFormer's, whose gain is sqrt(2) / gamma; the others have none.
    """
    names = (result.name for result in torch.ops.hinge.preset.default._schema.returns)
    return dict(zip(names, torch.ops.hinge.preset(name, gamma)))
