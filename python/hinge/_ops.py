"""Loads the torch ops of hinge and says what shapes they return, for the meta device and torch.compile."""

from pathlib import Path

import torch

torch.ops.load_library(Path(__file__).with_name("_C.so"))


def activations() -> list[str]:
    """The names that `h` may have."""
    return torch.ops.hinge.activations()


def simd_target() -> str:
    """The SIMD instructions that the kernels use on this machine, for example "AVX2"."""
    return torch.ops.hinge.simd_target()


def _empty_in_order_of(model: torch.Tensor) -> torch.Tensor:
    """[B, H, L, D] like `model`, with memory in the order [B, L, H, D] if that is the order of model's."""
    B, H, L, D = model.shape
    if model.stride(2) > model.stride(1):
        return model.new_empty((B, L, H, D)).transpose(1, 2)
    return model.new_empty((B, H, L, D))


@torch.library.register_fake("hinge::attention_with_statistics")
def _(q, k, v, *, h="relu", statistics=True, **_options):
    for name, tensor in (("query", q), ("key", k), ("value", v)):
        torch._check(
            tensor.dim() == 4,
            lambda: f"hinge::attention: {name} must have four dimensions [batch, heads, length, width], got the shape {tensor.shape}",
        )

    def per_row(computed):
        return q.new_empty(q.shape[:3] if computed else (0,))

    return (
        _empty_in_order_of(q),
        per_row(statistics),
        per_row(statistics),
        per_row(statistics),
        q.new_empty(q.shape[:2] if statistics else (0,)),
        per_row(h == "softmax"),
    )


@torch.library.register_fake("hinge::attention_backward")
def _(
    grad_out, grad_weight_sum, grad_weight_log, q, k, v, out, lse, weight_log, *, wanted, gain=None, bias=None, alpha=None, **_options
):
    def per_head(option, is_wanted):
        return q.new_empty((0,)) if option is None or not is_wanted else option.new_empty(option.shape)

    return (
        _empty_in_order_of(q),
        _empty_in_order_of(k),
        _empty_in_order_of(v),
        per_head(gain, wanted[0]),
        per_head(bias, wanted[1]),
        per_head(alpha, wanted[2]),
    )
