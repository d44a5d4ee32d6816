"""Lets timm and transformers import torchvision where its compiled operators do not load: its wheels are built for CUDA. Vision transformers
use none of them."""

import torch

_library = None


def define_missing() -> None:
    """Defines the two operators of which torchvision says what shapes they return: it cannot be imported if they are not there."""
    global _library
    if _library is None and not hasattr(torch.ops.torchvision, "nms"):
        _library = torch.library.Library("torchvision", "DEF")  # they live as long as this
        for name in ("nms", "qnms"):
            _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
