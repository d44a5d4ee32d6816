"""An attention as a preset and parts that differ from it: what hinge.Attention, replace_attention and register_transformers take."""

from typing import Any

import torch

from .attention import preset, presets

#: The numbers of an attention that may differ between heads and may be learned, and their defaults.
PER_HEAD_DEFAULTS: dict[str, float] = dict(torch.ops.hinge.per_head_defaults())


def resolved(name: str | None, gamma: float, parts: dict[str, Any], *, visible: bool) -> dict[str, Any]:
    """The options of :func:`hinge.attention` that a preset (or None) and the parts that are not None make together.

    visible: a length rule "keys" that nobody asked for becomes "visible". The result of a row then does not depend on padding, and a token
    that is decoded from a cache gets what it would get in the whole sequence.
    """
    given = {key: value for key, value in parts.items() if value is not None}
    options = {} if name is None else preset(name, gamma)
    if name is None and gamma != 1.0:
        raise ValueError(f"gamma belongs to the preset reluformer, got {gamma} without a preset; known presets are {', '.join(presets())}")
    options = options | given
    if options.get("h") == "softmax":
        return {"h": "softmax"} | given  # a preset's other numbers belong to its own h
    if visible and "length_rule" not in given and options.get("length_rule", "keys") == "keys":
        options["length_rule"] = "visible"
    return options
