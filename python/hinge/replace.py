"""hinge.replace_attention: Hinge's attention in the place of another one, with the weights that are there."""

import sys
from typing import Any

import torch
from torch import nn

from . import _options
from .huggingface import register_transformers
from .modules import Attention, MultiheadAttention, Sharing


def replace_attention(
    model: nn.Module,
    h: str | None = None,
    *,
    preset: str | None = None,
    gamma: float = 1.0,
    learn_alpha: Sharing = "none",
    learn_gain: Sharing = "none",
    learn_bias: Sharing = "none",
    **parts: Any,
) -> list[str]:
    """Replaces the softmax attention of a model, in place, and returns the names of the modules that were replaced.

    Replaces ``timm.layers.Attention`` by :class:`hinge.Attention` and ``nn.MultiheadAttention`` (as in nn.TransformerEncoderLayer) by
    :class:`hinge.MultiheadAttention`; in a model of transformers it sets the attention implementation. The parameters stay the same tensors
    under the same names: weights can be loaded before or after, and an optimiser keeps what it has.

    Args:
        model: the model, or a part of it such as ``model.blocks``. Nothing is changed if it has an attention that cannot be replaced.
        h, preset, gamma: what the new attention computes; relu as in vision transformers if nothing is given.
        learn_alpha, learn_gain, learn_bias: learn that number for each layer or each head, in timm's models only.
        parts: further options of :func:`hinge.attention`, such as ``alpha=0.5``. A length rule of "keys" that is not asked for becomes
            "visible", which is the same without masks and does not depend on padding with them.

    Example::

        >>> model = timm.create_model("vit_small_patch16_224")
        >>> hinge.replace_attention(model, h="relu", alpha=1)
        ['blocks.0.attn', 'blocks.1.attn', ...]
    """
    if h is None and preset is None:
        h = "relu"
    learned = {"learn_alpha": learn_alpha, "learn_gain": learn_gain, "learn_bias": learn_bias}
    options = _options.resolved(preset, gamma, {"h": h, **parts}, visible=True)
    _check_options(options)

    pretrained = _pretrained_models(model)
    inside_pretrained = {id(module) for one in pretrained.values() for module in one.modules()}
    found: dict[str, nn.Module] = {}
    refused: dict[str, nn.Module] = {}
    ours = False
    for name, module in model.named_modules(remove_duplicate=False):
        if id(module) in inside_pretrained:
            continue
        if isinstance(module, nn.MultiheadAttention) or type(module) in _timm_attention():
            found[name] = module
        elif isinstance(module, Attention | MultiheadAttention):
            ours = True
        elif any(part in type(module).__name__ for part in ("Attention", "Attn")) or hasattr(module, "fused_attn"):
            if not any(name.startswith(above + ".") for above in found):
                refused[name] = module
    # A module that only wraps attentions that can be replaced is no obstacle.
    refused = {name: module for name, module in refused.items() if not any(one.startswith(name + ".") for one in found)}
    if refused:
        raise ValueError(
            f"cannot replace {_listed(refused)}: only timm.layers.Attention, nn.MultiheadAttention and models of transformers can be; "
            "give the part of the model whose attention can be replaced, such as model.blocks"
        )
    if not found and not pretrained:
        if ours:
            raise ValueError(f"the attention of {type(model).__name__} is Hinge's already; replace that of a new model")
        kinds = "timm.layers.Attention, nn.MultiheadAttention or a model of transformers"
        raise ValueError(f"found no attention in {type(model).__name__}: {kinds}")
    not_timm = pretrained or any(isinstance(module, nn.MultiheadAttention) for module in found.values())
    if not_timm and any(sharing != "none" for sharing in learned.values()):
        raise ValueError("learned numbers would add parameters, for which only timm's attention has a place; leave learn_* out")
    if "" in found:
        raise ValueError("the model itself is an attention, which cannot be replaced in place: give what holds it")

    made = {id(module): _replacement(module, options, learned) for module in found.values()}  # all of them, before anything is changed
    replaced = [name for one in pretrained.items() for name in _set_pretrained(*one, options)]
    for name, module in found.items():
        model.set_submodule(name, made[id(module)])
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder):
            encoder.use_nested_tensor = False  # its fused softmax would pass the new attention over
    return [*replaced, *found]


def _listed(modules: dict[str, nn.Module]) -> str:
    """Their classes, each with the names of its first modules."""
    kinds: dict[type, list[str]] = {}
    for name, module in modules.items():
        kinds.setdefault(type(module), []).append(name)
    return ", ".join(
        f"{', '.join(names[:2])}{f' and {len(names) - 2} more' if len(names) > 2 else ''} ({kind.__module__}.{kind.__qualname__})"
        for kind, names in kinds.items()
    )


def _check_options(options: dict[str, Any]) -> None:
    """Words and numbers that the attention does not take are errors here, and not in the first forward pass."""
    from .attention import attention

    one = torch.zeros(1, 1, 1, 1)
    attention(one, one, one, **options)


def _timm_attention() -> tuple[type, ...]:
    """timm's Attention, if timm has been imported: else there is none in the model."""
    modules = [sys.modules.get(name) for name in ("timm.layers.attention", "timm.models.vision_transformer")]
    return tuple({module.Attention for module in modules if module is not None and hasattr(module, "Attention")})


def _replacement(module: nn.Module, options: dict[str, Any], learned: dict[str, Any]) -> nn.Module:
    if isinstance(module, nn.MultiheadAttention):
        return MultiheadAttention(module, options)
    return Attention.of_timm(module, options, learned)


def _pretrained_models(model: nn.Module) -> dict[str, Any]:
    """The topmost models of transformers within the model, by name."""
    transformers = sys.modules.get("transformers.modeling_utils")
    if transformers is None:
        return {}
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        if isinstance(module, transformers.PreTrainedModel) and not any(above == "" or name.startswith(above + ".") for above in found):
            found[name] = module
    for module in found.values():
        for one in module.modules():
            if isinstance(one, transformers.PreTrainedModel) and not one._can_set_attn_implementation():
                raise ValueError(f"{type(one).__name__} has an attention of its own that cannot be set (no AttentionInterface)")
        if not any("Attention" in type(one).__name__ for one in module.modules()):
            raise ValueError(f"found no attention in {type(module).__name__}")
    return found


def _set_pretrained(name: str, model: Any, options: dict[str, Any]) -> list[str]:
    """Registers the options under a name that says them, sets it, and returns the names of the modules that it reaches."""
    others = [f"{key}={value}" for key, value in options.items() if key != "h"]
    implementation = "_".join(["hinge", options["h"], *others])
    register_transformers(**{implementation: options})
    model.set_attn_implementation(implementation)
    prefix = name + "." if name else ""
    return [
        prefix + part
        for part, module in model.named_modules()
        if "Attention" in type(module).__name__ and getattr(getattr(module, "config", None), "_attn_implementation", None) == implementation
    ]
