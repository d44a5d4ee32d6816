// Opens a data set from a few words: its format, where it is, which part of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/image_set.h"

namespace hinge::data {

struct DataSource {
  std::string format = {};      // one of formats()
  std::string path = {};        // the folder of the set; some formats have a default, or none
  std::string split = "train";  // a name, or a part: "train[:90%]", "train[90%:]", "test[:1000]", "train[-10%:]"
  std::string label_map = {};   // file with lines "class<TAB>new class"; classes without a line are left out
  Synthetic synthetic = {};     // format "synthetic" only; its stream is given by the split
};

const std::vector<std::string>& formats();  // the names in the table of formats.h

// Throws DataError for files, std::runtime_error for a mistake in `source`.
std::unique_ptr<ImageSet> open_images(const DataSource& source);

// Whether all that open_images() reads lies in this folder: by the names, and with no symbolic link on the way or among the files.
bool lies_within(const DataSource& source, const std::string& folder);

// The splits that are there.
std::vector<std::string> splits(const DataSource& source);

// "train[10%:20%]" taken apart.
struct Split {
  struct Bound {
    bool given = false, percent = false;
    int64_t value = 0;
  };
  std::string name;
  Bound from, to;

  bool whole() const { return !from.given && !to.given; }
  // The first image and the one past the last of a set of `size`; percentages are rounded to the nearest image. Throws if there is none.
  std::pair<int64_t, int64_t> range(int64_t size) const;
  std::string text;  // as it was given, for messages
};
Split parse_split(const std::string& text);

}  // namespace hinge::data
