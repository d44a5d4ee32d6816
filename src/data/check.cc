// Threads take runs of images in turn and keep what they found.
#include "data/check.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "data/error.h"
#include "support/threads.h"

namespace hinge::data {
namespace {

constexpr int64_t kRun = 64;

struct Found {
  std::map<std::pair<int, int>, int64_t> sizes;
  std::vector<std::pair<int64_t, BadImage>> bad;
};

}  // namespace

CheckReport check(const ImageSet& set, int threads, const std::function<void(int64_t)>& progress) {
  std::atomic<int64_t> next = 0;
  const auto work = [&](Found& found, bool tell) {
    Image image;
    for (int64_t first = next.fetch_add(kRun); first < set.size(); first = next.fetch_add(kRun)) {
      for (int64_t i = first; i < std::min(first + kRun, set.size()); ++i) {
        try {
          set.load(i, image);
          ++found.sizes[{image.height, image.width}];
        } catch (const DataError& error) {
          found.bad.push_back({i, {error.file, error.problem}});
        } catch (const std::exception& error) {
          found.bad.push_back({i, {set.name(i), error.what()}});
        }
      }
      if (tell && progress) progress(std::min(next.load(), set.size()));
    }
  };

  std::vector<Found> found(static_cast<size_t>(std::max(threads, 1)));
  {
    const std::vector<std::jthread> helpers = support::start_threads(
        static_cast<int>(found.size()) - 1, [&](int i) { work(found[static_cast<size_t>(i) + 1], false); }, [&] { next = set.size(); },
        "set --threads lower");
    work(found[0], true);
  }

  CheckReport report;
  report.images = set.size();
  report.classes = static_cast<int64_t>(set.classes().size());
  std::vector<bool> seen(set.classes().size());
  for (int64_t i = 0; i < set.size(); ++i) seen[static_cast<size_t>(set.label(i))] = true;
  report.empty_classes = std::count(seen.begin(), seen.end(), false);
  std::vector<std::pair<int64_t, BadImage>> bad;
  for (Found& one : found) {
    for (const auto& [size, count] : one.sizes) report.sizes[size] += count;
    std::move(one.bad.begin(), one.bad.end(), std::back_inserter(bad));
  }
  std::sort(bad.begin(), bad.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [index, image] : bad) report.bad.push_back(std::move(image));
  return report;
}

}  // namespace hinge::data
