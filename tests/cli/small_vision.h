// A config of a vision transformer that is trained in a moment, on made-up images. Keys of [optim] and other tables can follow.
#pragma once

inline constexpr const char* kSmallVision = R"(
[model]
image_size = 16
channels = 3
classes = 0
patch = 4
width = 16
depth = 2
ffn.width = 32
heads = 2
[data]
format = "synthetic"
synthetic_size = 16
synthetic_classes = 4
synthetic_count = 96
[optim]
batch = 32
)";
