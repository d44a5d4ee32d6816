"""The attention op for torch.func (grad, vjp, jacrev, and vmap of them), which takes no autograd functions of C++: those of
src/ops/attention.cc once more, in Python."""
# What the functions below take and return is in the schemas of the ops.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from typing import Any

import torch

from . import _ops  # noqa: F401, the ops must be loaded

#: The options and their defaults, in the order in which the functions below take them.
_DEFAULTS = {argument.name: argument.default_value for argument in torch.ops.hinge.attention.default._schema.arguments if argument.kwarg_only}
_NAMES = list(_DEFAULTS)
#: The options that have a gradient, in the order of the op's results.
_LEARNED = ("gain", "bias", "alpha", "attn_mask")


def is_active() -> bool:
    """Whether a transform of torch.func is being applied."""
    return torch._C._are_functorch_transforms_active()


def attention_with_statistics(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, statistics: bool, **options: Any
) -> tuple[torch.Tensor, ...]:
    """The op of that name."""
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (_autocast(tensor) for tensor in (query, key, value))
    results: tuple[torch.Tensor, ...] = _Attention.apply(query, key, value, statistics, *(_DEFAULTS | options).values())
    return results


def _autocast(tensor: torch.Tensor) -> torch.Tensor:
    """What the op's own rule does, which comes too late here: the functions below keep what they are given."""
    castable = tensor.device.type == "cpu" and tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(torch.get_autocast_dtype("cpu")) if castable else tensor


class _Attention(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, statistics, *options):
        return torch.ops.hinge.attention_with_statistics(q, k, v, statistics=statistics, **dict(zip(_NAMES, options, strict=True)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        q, k, v, ctx.statistics, *options = inputs
        out, weight_sum, weight_log, zero_share, skipped_share, lse = output
        ctx.mark_non_differentiable(zero_share, skipped_share, lse, *(() if ctx.statistics else (weight_sum, weight_log)))
        ctx.plain = [None if isinstance(option, torch.Tensor) else option for option in options]
        tensors = [option if isinstance(option, torch.Tensor) else None for option in options]
        of_softmax = (out, lse, weight_log if ctx.statistics else None) if options[_NAMES.index("h")] == "softmax" else (None, None, None)
        ctx.save_for_backward(q, k, v, *of_softmax, *tensors)

    @staticmethod
    def backward(ctx, grad_out, grad_weight_sum, grad_weight_log, *_):
        q, k, v, out, lse, weight_log, *tensors = ctx.saved_tensors
        options = [plain if tensor is None else tensor for plain, tensor in zip(ctx.plain, tensors, strict=True)]
        learned = [_NAMES.index(name) for name in _LEARNED]
        wanted = [ctx.needs_input_grad[4 + place] for place in learned]
        of_statistics = (grad_weight_sum, grad_weight_log) if ctx.statistics else (None, None)
        dq, dk, dv, *of_learned = _AttentionBackward.apply(grad_out, *of_statistics, q, k, v, out, lse, weight_log, wanted, *options)
        of_options = [None] * len(options)
        for place, gradient, is_wanted in zip(learned, of_learned, wanted, strict=True):
            of_options[place] = gradient if is_wanted else None
        return dq, dk, dv, None, *of_options


class _AttentionBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(grad_out, grad_weight_sum, grad_weight_log, q, k, v, out, lse, weight_log, wanted, *options):
        return torch.ops.hinge.attention_backward(
            grad_out, grad_weight_sum, grad_weight_log, q, k, v, out, lse, weight_log, wanted=wanted, **dict(zip(_NAMES, options, strict=True))
        )

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            "hinge::attention: its gradients cannot be differentiated once more (double backward is not implemented). Write this attention "
            "in plain tensor operations where second derivatives are needed"
        )
