// Where a vision transformer looks in one image: maps of its attention, numbers about it, and pictures of both for people.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/image.h"
#include "models/vit.h"
#include "tasks/vision/attention_numbers.h"
#include "tasks/vision/trained_model.h"

namespace hinge::vision {

// Maps are over the squares of the image's patches, [rows, columns], float64. A patch's value is the weight with which it is read: by the
// class token if the model pools by one, else by all tokens in the mean.
struct LayerAttention : AttentionNumbers {
  at::Tensor map;    // mean of the heads
  at::Tensor heads;  // [H, rows, columns]
};

struct AttentionMaps {
  std::vector<LayerAttention> layers;
  at::Tensor rollout;  // through all layers: the product of half the normalised weights and half the unit matrix
};

// pixels [1, height, width, channels].
AttentionMaps attention_maps(const models::Vit& model, const at::Tensor& pixels);

AttentionNumbers mean_of_layers(const AttentionMaps& maps);

// The image in grey, at least 256 pixels wide, under the map in colours: from dark (the map's lowest value) to bright (its highest).
data::Image overlay(const data::Image& image, const at::Tensor& map, int64_t patch);
// The image itself, as large as its overlays.
data::Image enlarged(const data::Image& image);
// Pictures of one size in rows, with white between them.
data::Image grid(const std::vector<data::Image>& pictures, int columns);

// One PNG: the image as the model sees it, the map of each layer in their order, and last the rollout.
std::string attention_overview(const TrainedModel& model, const data::Image& image);

// The layers' maps as a grid of pictures in that order.
data::Image overview(const data::Image& image, const AttentionMaps& maps, int64_t patch);
// A row for each layer, a picture for each head.
data::Image head_overview(const data::Image& image, const AttentionMaps& maps, int64_t patch);

std::string png_of(const data::Image& image);

}  // namespace hinge::vision
