"""hinge.regulariser: the ReLUFormer's regulariser of attention weights, from the statistics of an attention."""

import math
from typing import Any

import torch

from .attention import AttentionStatistics


def regulariser(statistics: AttentionStatistics, visible: int | torch.Tensor, margin: float | None = None) -> torch.Tensor:
    r"""The ReLUFormer's regulariser, a differentiable scalar to be added to the loss with a weight.

    Of each row, with S the sum of its weights, E the sum of w log w and n the number of keys that it sees,

    .. code-block:: text

        | log S |  +  max( H - margin log n, 0 ),      H = log S - E / S     the entropy of the weights divided by their sum

    averaged over all rows. Rows that see nothing count 0. Below S = 1e-3 the logarithm goes on as its tangent, so that rows without any
    weight have a finite value. It is meant for weights that are not negative (relu, relu2, relu6).

    Args:
        statistics: of ``hinge.attention(..., return_statistics=True)``, on the CPU.
        visible: how many keys a row sees: Lk, or a tensor that broadcasts to ``[B, Hq, Lq]``, such as ``attn_mask.sum(-1)``.
        margin: entropy that is allowed, as a share of log n; infinite: the second term is left out. The paper's 0.7 if None.

    Example::

        >>> out, statistics = hinge.attention(q, k, v, is_causal=True, return_statistics=True, **hinge.preset("reluformer"))
        >>> loss = task_loss + 0.1 * hinge.regulariser(statistics, visible=torch.arange(1, L + 1))
    """
    if margin is not None and math.isnan(margin):
        raise ValueError("margin must be a number, got nan")
    shape = statistics.weight_sum.shape
    rows = torch.as_tensor(visible, dtype=torch.float64).broadcast_to(shape).reshape(-1)
    options = {} if margin is None else {"margin": margin}
    value: torch.Tensor = torch.ops.hinge.regulariser(
        statistics.weight_sum.reshape(1, 1, -1), statistics.weight_log.reshape(1, 1, -1), rows, **options
    )[0]
    return value


def _shapes(weight_sum: torch.Tensor, weight_log: torch.Tensor, visible: torch.Tensor, margin: float = 0.0) -> tuple[torch.Tensor, ...]:
    return weight_sum.new_empty(()), torch.empty_like(weight_sum), torch.empty_like(weight_log)


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _scale_gradients(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
    by_sum, by_log = ctx.saved_tensors
    return by_sum * grad, by_log * grad, None, None


torch.library.register_fake("hinge::regulariser", _shapes)
torch.library.register_autograd("hinge::regulariser", _scale_gradients, setup_context=_keep_gradients)
