#include "tasks/translation/sentence_maps.h"

#include <ATen/ATen.h>

#include "eval/seq2seq_analysis.h"

namespace hinge::translation {

SentenceMaps sentence_maps(const TrainedModel& trained, const decode::Translator& translator, const decode::Source& source) {
  const text::Vocabulary& vocabulary = trained.vocabulary;
  const decode::Translation translation = translator.translate({source}).at(0).at(0);
  eval::ModelPair pair{{source.begin(), source.end()}, {vocabulary.bos()}};
  pair.target.insert(pair.target.end(), translation.ids.begin(), translation.ids.end());

  std::vector<std::string> source_pieces, target_pieces, written;
  for (const int32_t id : source) source_pieces.push_back(vocabulary.piece(id));
  for (const int64_t id : pair.target) target_pieces.push_back(vocabulary.piece(static_cast<int32_t>(id)));
  written.assign(target_pieces.begin() + 1, target_pieces.end());
  written.push_back(vocabulary.piece(vocabulary.eos()));
  SentenceMaps found{translation.text, {}};
  for (const eval::AttentionMap& map : eval::attention_maps(*trained.model, pair)) {
    const bool cross = map.source_columns && !map.source_rows;
    const at::Tensor weights = map.weights.contiguous();
    const double* values = weights.data_ptr<double>();
    found.maps.emplace_back(
        map.name, experiment::HeatMap{map.name,
                                      cross ? "Where the decoder looks in the source for each token that it writes; mean of the heads"
                                            : "What each token looks at; mean of the heads",
                                      cross ? "source" : "looked at",
                                      cross ? "written" : "looking",
                                      map.source_columns ? source_pieces : target_pieces,
                                      map.source_rows ? source_pieces
                                      : cross         ? written
                                                      : target_pieces,
                                      {values, values + weights.numel()}});
  }
  return found;
}

}  // namespace hinge::translation
