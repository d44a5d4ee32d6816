// The formats of image data sets. One row of the table in formats.cc holds all that differs between them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/image_set.h"

namespace hinge::data {

struct DataSource;

struct Format {
  std::string name = {};
  std::string help = {};  // what it is, in a few words
  std::unique_ptr<ImageSet> (*open)(const DataSource& source, const std::string& split) = nullptr;

  // The splits there are: these, or what `find_splits` sees in the folder.
  std::vector<std::string> splits = {};
  std::vector<std::string> (*find_splits)(const std::string& folder) = nullptr;

  bool many_sets = false;         // any set can have this format: one goes by its folder's name, not by the format's
  bool takes_path = true;         // false: the images come from nowhere
  std::string default_path = {};  // empty: a path must be given
  std::string install = {};       // the command that puts images at the default path

  bool sorted_by_class = false;  // images of a class stand together, so that a part of a split must be drawn from all of it

  bool needs_path() const { return takes_path && default_path.empty(); }
};

const std::vector<Format>& format_table();

// Throws std::runtime_error that names the formats there are.
const Format& find_format(const std::string& name);

}  // namespace hinge::data
