"""Fused point-wise attention for PyTorch. See hinge.attention."""

from ._ops import activations, simd_target
from .attention import AttentionStatistics, attention, preset, presets

__all__ = ["AttentionStatistics", "activations", "attention", "preset", "presets", "simd_target"]
