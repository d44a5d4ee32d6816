// Looks at every image of a set before a training does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/image_set.h"

namespace hinge::data {

struct BadImage {
  std::string name, problem;
};

struct CheckReport {
  int64_t images = 0;                            // bad ones included
  int64_t classes = 0, empty_classes = 0;        // empty: without images
  std::map<std::pair<int, int>, int64_t> sizes;  // (height, width) of the good ones, and how many have it
  std::vector<BadImage> bad;                     // in the order of the set
};

// Decodes every image on `threads` threads. `progress` gets the number done, now and then, from this thread.
CheckReport check(const ImageSet& set, int threads, const std::function<void(int64_t)>& progress = {});

}  // namespace hinge::data
