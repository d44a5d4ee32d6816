"""Loads the torch ops of hinge and says what shapes they return, for the meta device and torch.compile."""
# What the functions below take and return is in the schemas of the ops.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False, warn-return-any=False

from pathlib import Path

import torch

torch.ops.load_library(Path(__file__).with_name("_C.so"))


def activations() -> list[str]:
    """The names that `h` may have."""
    return torch.ops.hinge.activations()


def simd_target() -> str:
    """The SIMD instructions that the kernels use on this machine, for example "AVX2"."""
    return torch.ops.hinge.simd_target()


#: Types that are stored and not computed with: statistics are float32 then.
_ONLY_STORED = (torch.bfloat16, torch.float16)


def _computed_type(stored: torch.dtype) -> torch.dtype:
    return torch.float32 if stored in _ONLY_STORED else stored


def _empty_in_order_of(model: torch.Tensor, width: int) -> torch.Tensor:
    """[B, H, L, width] with model's B, H and L, and with memory in the order [B, L, H, width] if that is the order of model's."""
    B, H, L, _ = model.shape
    if model.stride(2) > model.stride(1):
        return model.new_empty((B, L, H, width)).transpose(1, 2)
    return model.new_empty((B, H, L, width))


def _check_inputs(q, k, v):
    """The checks of shapes, dtypes and devices, as the kernels make them."""

    def check(condition, message):
        torch._check(condition, lambda: f"hinge::attention: {message}")

    for name, tensor in (("query", q), ("key", k), ("value", v)):
        check(tensor.dim() == 4, f"{name} must have four dimensions [batch, heads, length, width], got the shape {tuple(tensor.shape)}")
        check(
            tensor.dtype in (torch.float32, torch.float64, *_ONLY_STORED),
            f"{name} has dtype {tensor.dtype}; float32, float64, bfloat16 and float16 are supported, cast it to one of them",
        )
        for what, theirs, ours in (("have one dtype", q.dtype, tensor.dtype), ("be on one device", q.device, tensor.device)):
            check(theirs == ours, f"query, key and value must {what}, got {theirs} for query and {ours} for {name}")
    check(k.shape[:3] == v.shape[:3], f"key and value must have one shape but for the width, got {tuple(k.shape)} and {tuple(v.shape)}")
    for what, dim in (("batch size", 0), ("head width", 3)):
        check(q.shape[dim] == k.shape[dim], f"query and key must have one {what}, got {q.shape[dim]} and {k.shape[dim]}")
    check(
        k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0,
        f"the number of query heads must be a multiple of the number of key and value heads, got {q.shape[1]} and {k.shape[1]}",
    )


@torch.library.register_fake("hinge::attention_with_statistics")
def _(q, k, v, *, h="relu", statistics=True, **_options):
    _check_inputs(q, k, v)

    def per_row(computed):
        return q.new_empty(q.shape[:3] if computed else (0,), dtype=_computed_type(q.dtype))

    return (
        _empty_in_order_of(q, v.shape[3]),
        per_row(statistics),
        per_row(statistics),
        per_row(statistics),
        q.new_empty(q.shape[:2] if statistics else (0,), dtype=_computed_type(q.dtype)),
        per_row(h == "softmax"),
    )


@torch.library.register_fake("hinge::attention_backward")
def _(
    grad_out, grad_weight_sum, grad_weight_log, q, k, v, out, lse, weight_log, *,
    wanted, gain=None, bias=None, alpha=None, attn_mask=None, **_options
):  # fmt: skip
    def gradient_of(option, is_wanted):
        if option is None or not is_wanted or not option.is_floating_point():
            return q.new_empty((0,), dtype=_computed_type(q.dtype))
        return option.new_empty(option.shape)

    return (
        *(_empty_in_order_of(tensor, tensor.shape[3]) for tensor in (q, k, v)),
        gradient_of(gain, wanted[0]),
        gradient_of(bias, wanted[1]),
        gradient_of(alpha, wanted[2]),
        gradient_of(attn_mask, wanted[3]),
    )
