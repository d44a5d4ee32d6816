// A sentence, what a trained model translates it to, and where its layers look while they do.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "decode/translator.h"
#include "experiment/heat_map.h"
#include "tasks/translation/trained_model.h"

namespace hinge::translation {

struct SentenceMaps {
  std::string translation;
  // The attention of each layer, the mean of its heads, in the order of computation: "encoder.0.attn" and the map, tokens on both axes.
  std::vector<std::pair<std::string, experiment::HeatMap>> maps;
};

// The translator is of the same model.
SentenceMaps sentence_maps(const TrainedModel& trained, const decode::Translator& translator, const decode::Source& source);

}  // namespace hinge::translation
