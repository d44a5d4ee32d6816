"""timm, also where torchvision's compiled operators do not load: its wheels are built for CUDA. Vision transformers use none of them."""

import torch


def import_timm():
    if not hasattr(torch.ops.torchvision, "nms"):
        # torchvision says of these two what shapes they return, and cannot be imported if they are not there.
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_timm.library = library  # the operators live as long as this
    import timm

    return timm
