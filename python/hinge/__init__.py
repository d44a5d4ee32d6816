"""Fused point-wise attention for PyTorch. See hinge.attention, hinge.Attention, hinge.replace_attention and hinge.register_transformers."""

from ._ops import activations, simd_target
from .attention import AttentionStatistics, attention, preset, presets
from .huggingface import register_transformers
from .maps import attention_maps, attention_weights
from .models import TranslationModel, VisionTransformer
from .modules import Attention, MultiheadAttention
from .replace import replace_attention
from .runs import load_run, save_run
from .statistics import regulariser

__all__ = [
    "Attention",
    "AttentionStatistics",
    "MultiheadAttention",
    "TranslationModel",
    "VisionTransformer",
    "activations",
    "attention",
    "attention_maps",
    "attention_weights",
    "load_run",
    "preset",
    "presets",
    "register_transformers",
    "regulariser",
    "replace_attention",
    "save_run",
    "simd_target",
]
