"""Attention weights for looking at: hinge.attention_weights of one attention, hinge.attention_maps of a whole model."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .attention import attention

if TYPE_CHECKING:  # torch does without NumPy, and so does all but attention_maps
    import numpy as np
    import numpy.typing as npt

#: While hinge.attention_maps runs: the weights of each attention, in the order of computation.
_recorded: list[tuple[nn.Module, torch.Tensor]] | None = None


def attention_weights(query: torch.Tensor, key: torch.Tensor, **options: Any) -> torch.Tensor:
    """The weights w ``[B, Hq, Lq, Lk]`` of :func:`hinge.attention` with these options, before dropout.

    They come from the engine itself: they are its result for the unit matrix as values. Made for looking at short inputs; memory grows with
    Lq times Lk.
    """
    for name in ("dropout_p", "seed", "return_statistics"):
        options.pop(name, None)
    Lk, D = key.shape[2:]
    unit = torch.eye(Lk, dtype=key.dtype, device=key.device)
    columns = []
    for first in range(0, Lk, D):  # as many columns at a time as values have
        part = unit[:, first : first + D]
        values = torch.nn.functional.pad(part, (0, D - part.shape[1])).expand_as(key)
        weights: torch.Tensor = attention(query, key, values, **options)
        columns.append(weights[..., : part.shape[1]])
    return torch.cat(columns, -1) if columns else query.new_zeros(*query.shape[:3], 0)


def attend(module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> Any:
    """:func:`hinge.attention` on behalf of a module: all modules of this package call it, so that hinge.attention_maps sees them."""
    if _recorded is not None:
        record(module, lambda: attention_weights(query, key, **options))
    return attention(query, key, value, **options)


def record(module: nn.Module, weights: Callable[[], torch.Tensor]) -> None:
    """Keeps the weights of a module's attention if someone is looking."""
    if _recorded is not None:
        with torch.no_grad():
            _recorded.append((module, weights()))


def attention_maps(model: nn.Module, *inputs: Any, **keywords: Any) -> dict[str, npt.NDArray[np.float32]]:
    """Runs ``model(*inputs, **keywords)`` without gradients and returns the attention weights of every attention in it that is Hinge's.

    They are float32 arrays ``[B, heads, Lq, Lk]`` under the names of their modules, such as ``blocks.0.attn``. An attention that runs more
    than once leaves its last weights. Works for :class:`hinge.Attention` and for models that :func:`hinge.replace_attention`,
    :func:`hinge.register_transformers` or :func:`hinge.load_run` gave their attention; not for compiled ones.
    """
    global _recorded
    if find_spec("numpy") is None:
        raise ImportError("attention_maps returns NumPy arrays: pip install numpy")
    if _recorded is not None:
        raise RuntimeError("attention_maps is running already, in another thread or around this call")
    _recorded = []
    try:
        with torch.no_grad():
            model(*inputs, **keywords)
        recorded = _recorded
    finally:
        _recorded = None
    names = {module: name for name, module in model.named_modules()}
    if not recorded:
        raise ValueError("no attention of Hinge's has run in this model; hinge.replace_attention puts it there")
    return {names.get(module, type(module).__name__): weights.float().cpu().numpy() for module, weights in recorded}
