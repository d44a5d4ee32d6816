"""hinge.register_transformers: Hinge's attentions as attention implementations of the transformers library."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from . import _options
from ._ops import activations
from .attention import presets
from .maps import attend, attention_weights

#: What models hand to every attention and what changes nothing in it: notes for other layers, for the loss, or about what the mask holds.
_WITHOUT_EFFECT = frozenset(
    "position_ids cache_position use_cache output_hidden_states output_router_logits num_items_in_batch seq_idx sliding_window "
    "deterministic max_length_q max_length_k max_seqlen layer_idx return_dict input_ids logits_to_keep past_key_values".split()
)


def register_transformers(**more: Mapping[str, Any]) -> list[str]:
    """Registers Hinge's attentions with transformers, and returns their names: ``hinge_relu``, ``hinge_softmax``, ``hinge_reluformer``, ...

    There is one for each of :func:`hinge.presets` and for each of :func:`hinge.activations`; a word that is both, such as sigmoid, stands
    for the preset. Their length rule is "visible" where a preset has "keys": padding changes nothing, and generation with a cache gives
    what the whole sequence would give. Further ones are given by name, with a preset or options of :func:`hinge.attention`::

        hinge.register_transformers(hinge_half={"h": "relu", "alpha": 0.5})
        model = AutoModel.from_config(config, attn_implementation="hinge_half")

    Masks are handled as for transformers' own "sdpa". What a model asks for and these attentions do not have (softcap, sinks, ...) is an
    error in its first forward pass. ``output_attentions=True`` gives the weights.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError(f"register_transformers needs transformers 5: pip install 'transformers>=5' ({error})") from error
    known = {f"hinge_{name}": {"h": name} for name in activations()} | {f"hinge_{name}": {"preset": name} for name in presets()}
    names = []
    for name, parts in {**known, **more}.items():
        AttentionInterface.register(name, _attention_forward(name, dict(parts)))
        # Without a mask function of the same name, models would hand over no mask at all.
        AttentionMaskInterface.register(name, _mask)
        names.append(name)
    return names


def _mask(*places: Any, config: Any = None, **options: Any) -> torch.Tensor | None:
    """transformers' mask for "sdpa", for models that will hand it to Hinge's attention: others would understand it in their own way."""
    from transformers import MODEL_MAPPING
    from transformers.masking_utils import sdpa_mask

    if not torch.compiler.is_compiling() and type(config) in MODEL_MAPPING:
        kinds = MODEL_MAPPING[type(config)]
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            if not kind._can_set_attn_implementation():
                raise ValueError(
                    f"{kind.__name__} has an attention of its own and ignores attn_implementation={config._attn_implementation!r}; choose \"eager\""
                )
    mask: torch.Tensor | None = sdpa_mask(*places, config=config, **options)
    return mask


def _attention_forward(name: str, parts: dict[str, Any]) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
    """The function that transformers calls for the attention `name`, as its own sdpa_attention_forward."""
    options = _options.resolved(parts.pop("preset", None), parts.pop("gamma", 1.0), parts, visible=True)
    taken = {"is_causal", "dropout_p", "seed", "attn_mask", "key_lengths", "q_offsets", "k_offsets", "return_statistics"} & options.keys()
    if taken:
        raise ValueError(f"{name}: the model gives {', '.join(sorted(taken))}; leave it out")

    def forward(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        position_bias: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        cu_seq_lens_q: torch.Tensor | None = None,
        cu_seq_lens_k: torch.Tensor | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        _refuse_others(name, module, others)
        Lq, Lk = query.shape[2], key.shape[2]
        call: dict[str, Any] = dict(options)
        if scaling is not None:
            call.setdefault("scale", scaling)
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if attention_mask is not None:
            call["attn_mask"] = _as_mask(attention_mask, position_bias)
        elif cu_seq_lens_q is not None and query.shape[0] == 1:
            call.update(q_offsets=cu_seq_lens_q, k_offsets=cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k, is_causal=causal)
        elif causal and Lq > 1:
            # The mask is left out only where every key is the query of its place, or, at the first tokens of a cache of fixed size, where
            # the further keys are not there yet.
            key, value, call["is_causal"] = key[:, :, :Lq], value[:, :, :Lq], True
            if position_bias is not None:
                call["attn_mask"] = position_bias[..., :Lq]
        elif position_bias is not None:
            call["attn_mask"] = position_bias
        out = attend(module, query, key, value, dropout_p=dropout, **call)
        weights = None
        if output_attentions:
            weights = attention_weights(query, key, **call)
            weights = torch.nn.functional.pad(weights, (0, Lk - weights.shape[-1]))
        return out.transpose(1, 2).contiguous(), weights

    forward.__name__ = name
    return forward


def _as_mask(mask: torch.Tensor, position_bias: torch.Tensor | None) -> torch.Tensor:
    """A mask of transformers, boolean or with the lowest number of its type where a key is hidden, and the bias of positions as one."""
    if mask.dtype != torch.bool:
        # -inf hides a key; a low number would only make its score low, and not every h turns that into nothing.
        mask = mask.masked_fill(mask <= torch.finfo(mask.dtype).min / 2, -torch.inf)
    if position_bias is None:
        return mask
    if mask.dtype == torch.bool:
        return torch.where(mask, position_bias, -torch.inf)
    return mask + position_bias


def _refuse_others(name: str, module: nn.Module, others: dict[str, Any]) -> None:
    asked = [key for key, value in others.items() if key not in _WITHOUT_EFFECT and value is not None and value is not False]
    if asked:
        what = {"softcap": "capped scores", "s_aux": "attention sinks", "sinks": "attention sinks", "cache": "paged caches"}
        described = ", ".join(f"{key} ({what[key]})" if key in what else key for key in asked)
        asking = type(module).__name__
        raise ValueError(f"{asking} asks its attention for {described}, which {name} does not have; choose another attn_implementation")
