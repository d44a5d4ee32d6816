#include "eval/fewshot.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>

#include "data/loader.h"
#include "eval/for_each_batch.h"
#include "eval/pixels.h"

namespace hinge::eval {
namespace {

using at::Tensor;

constexpr double kConstantFeature = 100;

// Whitened, with the constant feature as the last: [n, D + 1].
Tensor prepared(const LinearProbe& probe, const Tensor& features) {
  const Tensor white = (features.to(at::kDouble) - probe.mean) / probe.deviation;
  return at::constant_pad_nd(white, {0, 1}, kConstantFeature);
}

Tensor labels_of(const data::ImageSet& images) {
  const Tensor labels = at::empty({images.size()}, at::kLong);
  for (int64_t i = 0; i < images.size(); ++i) labels.data_ptr<int64_t>()[i] = images.label(i);
  return labels;
}

Tensor features_of(const models::Vit& model, const std::shared_ptr<const data::ImageSet>& images, const data::Pipeline& pipeline,
                   const FewshotOptions& options, const std::function<void(int64_t)>& progress) {
  data::LoaderOptions loading;
  loading.batch_size = options.batch;
  loading.threads = options.threads;
  loading.shuffle = loading.endless = false;
  data::Loader loader(images, pipeline, loading);
  std::vector<Tensor> parts(static_cast<size_t>(loader.steps_per_epoch()));
  std::mutex mutex;
  int64_t done = 0;
  const auto take = [&](data::Batch& batch) {
    parts[static_cast<size_t>(batch.step)] = model.features(pixels_of(batch));
    const std::scoped_lock lock(mutex);
    progress(done += batch.size);
  };
  for_each_batch(
      loader, [] { return true; }, take);
  return at::cat(parts);
}

}  // namespace

LinearProbe fit_probe(const Tensor& features, const Tensor& labels, int64_t classes, double l2) {
  const int64_t n = features.size(0);
  if (n == 0) throw std::runtime_error("a probe needs at least one example");
  const Tensor x64 = features.to(at::kDouble);
  LinearProbe probe;
  probe.mean = x64.mean(0);
  probe.deviation = x64.std(0, /*unbiased=*/false) + 1e-5;
  const Tensor x = prepared(probe, x64);                                                             // [N, D + 1]
  const Tensor y = at::full({n, classes}, -1.0, at::kDouble).scatter_(1, labels.unsqueeze(1), 1.0);  // [N, C]
  // With x^T x = q e q^T:  (x^T x + l2)^-1 x^T y = q (e + l2)^-1 q^T x^T y;  with x x^T = q e q^T:  x^T (x x^T + l2)^-1 y.
  // The two are equal; the smaller matrix is taken apart.
  if (n >= x.size(1)) {
    const auto [e, q] = at::linalg_eigh(at::mm(x.t(), x));
    probe.weights = at::mm(q / (e + l2), at::mm(q.t(), at::mm(x.t(), y)));
  } else {
    const auto [e, q] = at::linalg_eigh(at::mm(x, x.t()));
    probe.weights = at::mm(at::mm(x.t(), q) / (e + l2), at::mm(q.t(), y));
  }
  return probe;
}

Tensor probe_scores(const LinearProbe& probe, const Tensor& features) { return at::mm(prepared(probe, features), probe.weights); }

std::vector<uint32_t> choose_shots(const data::ImageSet& images, int64_t shots, uint64_t seed) {
  std::vector<std::vector<uint32_t>> of_class(images.classes().size());
  for (int64_t i = 0; i < images.size(); ++i) of_class[static_cast<size_t>(images.label(i))].push_back(static_cast<uint32_t>(i));
  std::vector<uint32_t> chosen;
  for (size_t label = 0; label < of_class.size(); ++label) {
    std::vector<uint32_t>& members = of_class[label];
    const size_t count = std::min(members.size(), static_cast<size_t>(shots));
    data::Random random(seed, data::Purpose::shuffle, 0, label);
    for (size_t i = 0; i < count; ++i) std::swap(members[i], members[i + random.below(members.size() - i)]);
    chosen.insert(chosen.end(), members.begin(), members.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return chosen;
}

double FewshotResult::mean() const {
  double sum = 0;
  for (const double accuracy : accuracies) sum += accuracy;
  return sum / static_cast<double>(accuracies.size());
}

double FewshotResult::deviation() const {
  if (accuracies.size() < 2) return 0;
  double sum = 0;
  for (const double accuracy : accuracies) sum += (accuracy - mean()) * (accuracy - mean());
  return std::sqrt(sum / static_cast<double>(accuracies.size() - 1));
}

std::vector<FewshotResult> fewshot(const models::Vit& model, const std::shared_ptr<const data::ImageSet>& support,
                                   const std::shared_ptr<const data::ImageSet>& test, const data::Pipeline& pipeline,
                                   const FewshotOptions& options) {
  if (support->classes() != test->classes())
    throw std::runtime_error("the images to learn from and those to test on have different classes");
  const at::NoGradGuard guard;
  const auto classes = static_cast<int64_t>(support->classes().size());

  // Features are computed once for every image that any of the probes uses.
  const int64_t most = *std::max_element(options.shots.begin(), options.shots.end());
  std::vector<uint32_t> used;
  for (int64_t seed = 0; seed < options.seeds; ++seed) {
    const std::vector<uint32_t> chosen = choose_shots(*support, most, static_cast<uint64_t>(seed));
    used.insert(used.end(), chosen.begin(), chosen.end());
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  const auto subset = std::make_shared<data::SubSet>(support, used);
  const int64_t total = subset->size() + test->size();
  const auto report = [&](int64_t before) {
    return [&, before](int64_t done) {
      if (options.progress) options.progress(before + done, total);
    };
  };
  const Tensor support_features = features_of(model, subset, pipeline, options, report(0)), support_labels = labels_of(*subset);
  const Tensor test_features = features_of(model, test, pipeline, options, report(subset->size())), test_labels = labels_of(*test);

  std::vector<FewshotResult> results;
  for (const int64_t shots : options.shots) {
    FewshotResult& result = results.emplace_back();
    result.shots = shots;
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      std::vector<int64_t> rows;
      for (const uint32_t image : choose_shots(*support, shots, static_cast<uint64_t>(seed)))
        rows.push_back(std::lower_bound(used.begin(), used.end(), image) - used.begin());
      const Tensor chosen = at::tensor(rows, at::kLong);
      const LinearProbe probe = fit_probe(support_features.index_select(0, chosen), support_labels.index_select(0, chosen), classes);
      const Tensor right = probe_scores(probe, test_features).argmax(1) == test_labels;
      result.accuracies.push_back(right.to(at::kDouble).mean().item<double>());
    }
  }
  return results;
}

}  // namespace hinge::eval
