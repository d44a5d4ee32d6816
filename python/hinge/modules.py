"""hinge.Attention: multi-head attention as a module. hinge.MultiheadAttention: the same with the face of torch.nn.MultiheadAttention."""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from . import _options, _sparse
from .attention import AttentionStatistics
from .maps import attend, attention_weights, record

Sharing = Literal["none", "layer", "head"]
Gate = Literal["none", "linear", "sigmoid"]

#: The parts of an attention beside its preset, none of them given.
_PARTS = dict.fromkeys(("h", "alpha", "gain", "bias", "length_rule", "length_n", "bias_log_n", "scale"))

#: Of the norms of queries, keys and results, as in the hinge command.
NORM_EPS = 1e-6


class Attention(nn.Module):
    r"""Multi-head attention: projections around :func:`hinge.attention`.

    What it computes is a preset, and parts that differ from it. The parts have the names that they have in :func:`hinge.attention`; without
    a preset they also have its defaults, which make relu attention. Parameters have timm's names: ``qkv`` (or ``q`` and ``kv``, or
    ``q_proj``, ``k_proj`` and ``v_proj``), ``q_norm``, ``k_norm``, ``gate``, ``proj``; those that are learned besides are ``alpha``,
    ``gain``, ``bias``.

    Args:
        dim: width of the input and of the result.
        num_heads: query heads Hq.
        num_kv_heads: key and value heads Hkv, a divisor of num_heads (grouped-query attention); num_heads if None.
        head_dim: width D of a head, ``dim // num_heads`` if None.
        projections: "qkv" (one product), "q_kv" (two, for a context), "separate" (three).
        preset: one of :func:`hinge.presets`, or "rela", "sparsemax", "entmax15". In a causal attention the length rule "keys" of a preset
            becomes "visible", as in the hinge command.
        gamma: of the preset reluformer.
        h, alpha, gain, bias, length_rule, length_n, bias_log_n, scale: parts of the attention; None: the preset's.
        learn_alpha, learn_gain, learn_bias: learn that number, one for the layer or one for each head. It starts at the value above.
        is_causal: row i sees the keys j <= i + Lk - Lq.
        qkv_bias, proj_bias: whether the projections have biases.
        qk_norm, qk_norm_bias: a layer norm of each head's queries and keys, and whether it has a bias.
        gate: multiply the result by one more projection of the input, as it is or through a sigmoid.
        attn_drop, proj_drop: probabilities of dropping a weight, and an element of the result, in training.

    Shapes: the input ``[B, Lq, dim]`` and the context ``[B, Lk, dim]`` give ``[B, Lq, dim]``. Jagged sequences follow one another in a
    batch of 1, with offsets.

    Example::

        >>> attn = hinge.Attention(384, 6, preset="relu-vit", qk_norm=True)
        >>> attn(torch.randn(2, 197, 384)).shape
        torch.Size([2, 197, 384])
    """

    alpha: Any  # these three: an nn.Parameter, a number, or None
    gain: Any
    bias: Any

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        projections: Literal["qkv", "q_kv", "separate"] = "qkv",
        preset: str | None = None,
        gamma: float = 1.0,
        h: str | None = None,
        alpha: float | None = None,
        gain: float | None = None,
        bias: float | None = None,
        length_rule: str | None = None,
        length_n: float | None = None,
        bias_log_n: bool | None = None,
        scale: float | None = None,
        learn_alpha: Sharing = "none",
        learn_gain: Sharing = "none",
        learn_bias: Sharing = "none",
        is_causal: bool = False,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        qk_norm: bool = False,
        qk_norm_bias: bool = True,
        gate: Gate = "none",
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if head_dim is None:
            if dim % num_heads:
                raise ValueError(f"dim {dim} is not a multiple of num_heads {num_heads}; give a head_dim")
            head_dim = dim // num_heads
        if num_heads % num_kv_heads:
            raise ValueError(f"num_heads {num_heads} is not a multiple of num_kv_heads {num_kv_heads}")
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.is_causal = is_causal
        self._borrowed: dict[str, nn.Parameter] = {}  # numbers that a whole model shares, see share()
        self._set_rule(preset, gamma, dict(h=h, alpha=alpha, gain=gain, bias=bias, length_rule=length_rule, length_n=length_n,
                       bias_log_n=bias_log_n, scale=scale), dict(alpha=learn_alpha, gain=learn_gain, bias=learn_bias), made)  # fmt: skip

        q_dim, kv_dim = num_heads * head_dim, num_kv_heads * head_dim
        _one_of("projections", projections, ("qkv", "q_kv", "separate"))
        if projections == "qkv":
            self.qkv = nn.Linear(dim, q_dim + 2 * kv_dim, bias=qkv_bias, **made)
        elif projections == "q_kv":
            self.q = nn.Linear(dim, q_dim, bias=qkv_bias, **made)
            self.kv = nn.Linear(dim, 2 * kv_dim, bias=qkv_bias, **made)
        else:
            self.q_proj = nn.Linear(dim, q_dim, bias=qkv_bias, **made)
            self.k_proj = nn.Linear(dim, kv_dim, bias=qkv_bias, **made)
            self.v_proj = nn.Linear(dim, kv_dim, bias=qkv_bias, **made)
        norm = {"eps": NORM_EPS, "bias": qk_norm_bias, **made}
        self.q_norm: nn.Module = nn.LayerNorm(head_dim, **norm) if qk_norm else nn.Identity()
        self.k_norm: nn.Module = nn.LayerNorm(head_dim, **norm) if qk_norm else nn.Identity()
        self.attn_drop = nn.Dropout(attn_drop)
        self.norm: nn.Module = nn.Identity()  # timm's norm of the result
        if preset == "rela":
            self.rms_norm = nn.RMSNorm(q_dim, eps=NORM_EPS, **made)
        _one_of("gate", gate, ("none", "linear", "sigmoid"))
        self.gate: nn.Module | None = None if gate == "none" else nn.Linear(dim, q_dim, bias=qkv_bias, **made)
        self.sigmoid_gate = gate == "sigmoid"
        self.proj: nn.Module = nn.Linear(q_dim, dim, bias=proj_bias, **made)
        self.proj_drop: nn.Module = nn.Dropout(proj_drop)

    def _set_rule(
        self, preset: str | None, gamma: float, parts: dict[str, Any], learned: dict[str, str], made: dict[str, Any]
    ) -> None:
        """The options of the attention, and what of them is learned."""
        self.sparse = preset if preset in _sparse.RULES else None
        if self.sparse or preset == "rela":
            given = [name for name, value in parts.items() if value is not None and name != "scale"]
            given += [f"learn_{name}" for name, sharing in learned.items() if sharing != "none"]
            if given:
                raise ValueError(f"the preset {preset} takes only scale, qk_norm, gate and dropout; remove {', '.join(given)}")
            options: dict[str, Any] = {"h": "relu", "length_rule": "none"} if preset == "rela" else {}
            if parts["scale"] is not None:
                options["scale"] = parts["scale"]
        else:
            options = _options.resolved(preset, gamma, parts, visible=self.is_causal)
        numbers = {name: options.pop(name, None) for name in learned}
        self.options = options
        for name, sharing in learned.items():
            _one_of(f"learn_{name}", sharing, ("none", "layer", "head"))
            if sharing == "none":
                setattr(self, name, numbers[name])
                continue
            if options.get("h") == "softmax":
                raise ValueError(f"softmax has no {name} to learn; leave learn_{name} out or choose a point-wise h")
            start = _options.PER_HEAD_DEFAULTS[name] if numbers[name] is None else numbers[name]
            count = self.num_heads if sharing == "head" else 1
            setattr(self, name, nn.Parameter(torch.full((count,), float(start), **made)))

    @classmethod
    def of_timm(cls, of: Any, options: dict[str, Any], learned: dict[str, Any]) -> "Attention":
        """One with the layers of a timm.layers.Attention: projections, norms, gate and dropout are taken over, not copied."""
        weight = of.qkv.weight
        # On the meta device nothing is allocated, and no random numbers are drawn.
        new = cls(of.qkv.in_features, of.num_heads, head_dim=of.head_dim, device="meta", **options)
        new._set_rule(None, 1.0, _PARTS | options, {name.removeprefix("learn_"): sharing for name, sharing in learned.items()},
                      {"device": weight.device, "dtype": weight.dtype})  # fmt: skip
        for name in ("qkv", "q_norm", "k_norm", "attn_drop", "norm", "gate", "proj", "proj_drop"):
            setattr(new, name, getattr(of, name, getattr(new, name)))
        new.sigmoid_gate = new.gate is not None
        if not math.isclose(of.scale, 1 / math.sqrt(of.head_dim)):
            new.options.setdefault("scale", of.scale)
        return new.train(of.training)

    def project(self, x: torch.Tensor, context: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries ``[B, Hq, Lq, D]``, keys and values ``[B, Hkv, Lk, D]``, before their norms; views wherever projections are packed."""
        source = x if context is None else context
        q_dim, kv_dim = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        if hasattr(self, "qkv"):
            if context is None:
                q, k, v = self.qkv(x).split((q_dim, kv_dim, kv_dim), -1)
            else:  # the packed matrix, in its parts
                q_weight, kv_weight = torch.split(self.qkv.weight, [q_dim, 2 * kv_dim])
                q_bias, kv_bias = (None, None) if self.qkv.bias is None else torch.split(self.qkv.bias, [q_dim, 2 * kv_dim])
                q = F.linear(x, q_weight, q_bias)
                k, v = F.linear(source, kv_weight, kv_bias).chunk(2, -1)
        elif hasattr(self, "kv"):
            q = self.q(x)
            k, v = self.kv(source).chunk(2, -1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(source), self.v_proj(source)

        def heads(y: torch.Tensor, count: int) -> torch.Tensor:
            return y.reshape(*y.shape[:2], count, self.head_dim).transpose(1, 2)

        return heads(q, self.num_heads), heads(k, self.num_kv_heads), heads(v, self.num_kv_heads)

    def share(self, name: str, number: nn.Parameter) -> None:
        """Takes `number` for alpha, gain or bias; whoever gave it owns it, and it is no parameter of this module."""
        self._parameters.pop(name, None)
        self._borrowed[name] = number

    def attention_options(self) -> dict[str, Any]:
        """What :func:`hinge.attention` is called with, beside masks and dropout."""
        numbers = {name: self._borrowed.get(name, getattr(self, name, None)) for name in _options.PER_HEAD_DEFAULTS}
        return self.options | {name: value for name, value in numbers.items() if value is not None}

    def attended(self, x: torch.Tensor, context: torch.Tensor | None = None, *, is_causal: bool = False, return_statistics: bool = False,
                 **masks: Any) -> tuple[torch.Tensor, AttentionStatistics | None]:  # fmt: skip
        """The heads of the result side by side, ``[B, Lq, Hq * D]``, before the output projection."""
        if x.dim() != 3:
            raise ValueError(f"the input must be [batch, length, width], got the shape {tuple(x.shape)}")
        q, k, v = self.project(x, context)
        q, k = self.q_norm(q), self.k_norm(k)
        given: dict[str, Any] = {name: mask for name, mask in masks.items() if mask is not None}
        causal = self.is_causal or is_causal
        dropout = self.attn_drop.p if self.training else 0.0
        statistics = None
        if self.sparse:
            if return_statistics or "window" in given:
                raise ValueError(f"the preset {self.sparse} has neither statistics nor windows: its weights sum to 1, and it takes attn_mask")
            weights = _sparse.weights(self.sparse, q, k, is_causal=causal, **self.options, **given)
            record(self, lambda: weights)
            out = F.dropout(weights, dropout) @ v.repeat_interleave(self.num_heads // self.num_kv_heads, 1)
        else:
            result = attend(self, q, k, v, is_causal=causal, dropout_p=dropout, return_statistics=return_statistics,
                            **self.attention_options(), **given)  # fmt: skip
            out, statistics = result if return_statistics else (result, None)
        return out.transpose(1, 2).flatten(2), statistics

    def finish(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """The output projection of what was attended, and what comes before it; x is the input, for the gate."""
        if hasattr(self, "rms_norm"):
            out = self.rms_norm(out)
        if self.gate is not None:
            gate = self.gate(x)
            out = out * (gate.sigmoid() if self.sigmoid_gate else gate)
        result: torch.Tensor = self.proj_drop(self.proj(out))
        return result

    def forward(
        self,
        x: torch.Tensor,
        context: torch.Tensor | None = None,
        *,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
        key_lengths: torch.Tensor | None = None,
        window: tuple[int | None, int | None] | None = None,
        q_offsets: torch.Tensor | None = None,
        k_offsets: torch.Tensor | None = None,
        return_statistics: bool = False,
    ) -> Any:
        """``[B, Lq, dim]``; with return_statistics that and :class:`hinge.AttentionStatistics`. Masks are as in :func:`hinge.attention`."""
        out, statistics = self.attended(x, context, is_causal=is_causal, return_statistics=return_statistics, attn_mask=attn_mask,
                                        key_lengths=key_lengths, window=window, q_offsets=q_offsets, k_offsets=k_offsets)  # fmt: skip
        result = self.finish(x, self.norm(out))
        return (result, statistics) if return_statistics else result

    def extra_repr(self) -> str:
        parts = [f"num_heads={self.num_heads}", f"head_dim={self.head_dim}"]
        if self.num_kv_heads != self.num_heads:
            parts.append(f"num_kv_heads={self.num_kv_heads}")
        if self.is_causal:
            parts.append("is_causal=True")
        if self.sparse:
            parts.append(self.sparse)
        for name, value in self.attention_options().items():
            parts.append(f"{name}=learned" if isinstance(value, nn.Parameter) else f"{name}={value}")
        return ", ".join(parts)


class MultiheadAttention(nn.Module):
    """Hinge's attention with the parameters and the calls of torch.nn.MultiheadAttention: what replace_attention puts in its place.

    Takes over the parameters of the module that it is made of. ``options`` are those of :func:`hinge.attention`.
    """

    def __init__(self, of: nn.MultiheadAttention, options: dict[str, Any]) -> None:
        super().__init__()
        for problem, there in {
            "keys or values of another width than queries (kdim, vdim)": not of._qkv_same_embed_dim,
            "a bias that is appended to the keys (add_bias_kv)": of.bias_k is not None or of.bias_v is not None,
            "a zero that is appended to the keys (add_zero_attn)": of.add_zero_attn,
        }.items():
            if there:
                raise ValueError(f"an nn.MultiheadAttention has {problem}, which Hinge's attention has not")
        self.embed_dim, self.num_heads, self.head_dim = of.embed_dim, of.num_heads, of.head_dim
        self.batch_first, self.dropout, self.options = of.batch_first, of.dropout, options
        self.in_proj_weight, self.in_proj_bias, self.out_proj = of.in_proj_weight, of.in_proj_bias, of.out_proj
        self.training = of.training
        # nn.TransformerEncoderLayer reads this before it takes its own fused softmax, which would pass this module over.
        self._qkv_same_embed_dim = False

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As of torch.nn.MultiheadAttention: in the masks, True and -inf hide a key."""
        batched = query.dim() == 3
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._project(query, key, value)
        if is_causal and attn_mask is None:
            raise ValueError("is_causal is a hint about attn_mask, as in torch.nn.MultiheadAttention: give the mask, too")
        options = dict(self.options)
        if is_causal and key_padding_mask is None and q.shape[2] == k.shape[2]:  # of other lengths only the mask says which rows meet
            options["is_causal"] = True
        else:
            mask = _visible_or_added(attn_mask, q.shape[0], self.num_heads, q.dtype)
            padding = _visible_or_added(key_padding_mask, q.shape[0], None, q.dtype)
            mask = _both(mask, padding, q.dtype)
            if mask is not None:
                options["attn_mask"] = mask
        out = attend(self, q, k, v, dropout_p=self.dropout if self.training else 0.0, **options)
        result = self.out_proj(out.transpose(1, 2).flatten(2))
        weights = None
        if need_weights:
            weights = attention_weights(q, k, **options)
            weights = weights.mean(1) if average_attn_weights else weights
        if not batched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), weights

    def _project(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        C = self.embed_dim
        if query is key and key is value:
            parts = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            biases = (None, None, None) if self.in_proj_bias is None else torch.split(self.in_proj_bias, C)
            weights = torch.split(self.in_proj_weight, C)
            parts = tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        q, k, v = (y.reshape(*y.shape[:2], self.num_heads, self.head_dim).transpose(1, 2) for y in parts)
        return q, k, v

    def extra_repr(self) -> str:
        return ", ".join([f"embed_dim={self.embed_dim}", f"num_heads={self.num_heads}", *(f"{k}={v}" for k, v in self.options.items())])


def _visible_or_added(mask: torch.Tensor | None, batch: int, heads: int | None, dtype: torch.dtype) -> torch.Tensor | None:
    """A mask of torch.nn.MultiheadAttention as one of hinge.attention's: [B, H, Lq, Lk] or what broadcasts to it; True is visible there.

    heads None: a padding mask [B, Lk] (or [Lk]).
    """
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = ~mask
    else:
        mask = mask.to(dtype)
    if heads is None:
        return mask.reshape(batch, 1, 1, mask.shape[-1])
    return mask.reshape(batch, heads, *mask.shape[1:]) if mask.dim() == 3 else mask


def _both(a: torch.Tensor | None, b: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Two masks as one: a key is visible, or gets a number added, if both say so."""
    if a is None or b is None:
        return b if a is None else a
    if a.dtype == torch.bool and b.dtype == torch.bool:
        return a & b

    def added(mask: torch.Tensor) -> torch.Tensor:
        if mask.dtype != torch.bool:
            return mask
        return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -math.inf)

    return added(a) + added(b)


def _one_of(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {given!r}")
