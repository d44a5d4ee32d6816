// The safetensors format, checked on the way in as strictly as its own library does: no gaps, no overlaps, no name twice.
#include "support/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "support/atomic_file.h"
#include "support/crc32c.h"
#include "support/json.h"
#include "support/nearest.h"

namespace hinge::support {
namespace {

static_assert(std::endian::native == std::endian::little, "the data of a safetensors file are little-endian");

constexpr size_t kAlignment = 64, kLengthBytes = 8;
constexpr size_t kLongestHeader = 8 << 20;  // some 50,000 tensors; the JSON of a longer one would take hundreds of megabytes
constexpr int kDeepestHeader = 3;           // the list of a tensor's sizes
constexpr const char* kMetadataKey = "__metadata__";
constexpr std::string_view kChecksumPrefix = "crc32c.";

struct DtypeEntry {
  const char* name;
  size_t size;
};
// In the order of Dtype.
constexpr std::array<DtypeEntry, 13> kDtypes = {{{"BOOL", 1},
                                                 {"U8", 1},
                                                 {"I8", 1},
                                                 {"U16", 2},
                                                 {"I16", 2},
                                                 {"F16", 2},
                                                 {"BF16", 2},
                                                 {"U32", 4},
                                                 {"I32", 4},
                                                 {"F32", 4},
                                                 {"U64", 8},
                                                 {"I64", 8},
                                                 {"F64", 8}}};

std::optional<Dtype> dtype_of(const std::string& name) {
  for (size_t i = 0; i < kDtypes.size(); ++i)
    if (name == kDtypes[i].name) return static_cast<Dtype>(i);
  return std::nullopt;
}

// Bytes of a tensor of this shape; nothing if a size is negative or the product has no room in 63 bits.
std::optional<size_t> bytes_of(Dtype dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return static_cast<size_t>(bytes);
}

// Looks for a key of the outermost object that is there twice; the parser itself would keep the last one.
class NamesOnce : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::optional<std::string> twice;

  bool key(std::string& name) override {
    if (depth_ != 1 || names_.insert(name).second) return true;
    twice = name;
    return false;
  }
  bool start_object(size_t) override { return ++depth_, true; }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override { return ++depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  int depth_ = 0;
  std::set<std::string> names_;
};

std::optional<std::string> name_there_twice(std::string_view text) {
  NamesOnce names;
  nlohmann::json::sax_parse(text, &names);
  return names.twice;
}

std::string_view bytes_view(const void* data, size_t bytes) { return {static_cast<const char*>(data), bytes}; }

}  // namespace

const char* name_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }
size_t size_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].size; }

size_t TensorView::bytes() const {
  const std::optional<size_t> bytes = bytes_of(dtype, shape);
  if (!bytes) throw std::runtime_error(fmt::format("tensor '{}' has the impossible shape {}", name, shape));
  return *bytes;
}
size_t TensorView::elements() const { return bytes() / size_of(dtype); }

void write_safetensors(const std::string& path, const std::vector<TensorView>& tensors, const Metadata& metadata) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    const bool a_whole = a->bytes() % kAlignment == 0, b_whole = b->bytes() % kAlignment == 0;
    return a_whole != b_whole ? a_whole : !a_whole && size_of(a->dtype) > size_of(b->dtype);
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  Metadata all = metadata;
  for (const TensorView& tensor : tensors)
    all[std::string(kChecksumPrefix) + tensor.name] = crc32c_text(bytes_view(tensor.data, tensor.bytes()));
  if (!all.empty()) header[kMetadataKey] = all;
  size_t offset = 0;
  for (const TensorView* tensor : order) {
    if (tensor->name.empty() || header.contains(tensor->name) || tensor->name == kMetadataKey)
      throw std::runtime_error(
          fmt::format("cannot write '{}': the tensor name '{}' is empty, reserved or given twice", path, tensor->name));
    const size_t end = offset + tensor->bytes();
    header[tensor->name] = {{"dtype", name_of(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - (kLengthBytes + text.size()) % kAlignment) % kAlignment, ' ');

  if (text.size() > kLongestHeader)
    throw std::runtime_error(
        fmt::format("cannot write '{}': {} tensors make a header of more than {} bytes", path, order.size(), kLongestHeader));

  AtomicFile file(path);
  const uint64_t length = text.size();
  file.write(bytes_view(&length, sizeof length));
  file.write(text);
  for (const TensorView* tensor : order) file.write(bytes_view(tensor->data, tensor->bytes()));
  file.commit();
}

SafetensorsFile::SafetensorsFile(std::string path, Verify verify) : path_(std::move(path)) {
  const int descriptor = uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); });
  if (descriptor < 0) throw_file_error("open", path_);
  struct stat status {};
  void* mapped = MAP_FAILED;
  int failed = 0;
  if (::fstat(descriptor, &status) != 0) failed = errno;
  const bool ordinary = S_ISREG(status.st_mode);
  size_ = static_cast<size_t>(status.st_size);
  if (failed == 0 && ordinary && size_ >= kLengthBytes) {
    mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped == MAP_FAILED) failed = errno;
  }
  ::close(descriptor);
  if (failed != 0) throw_file_error("read", path_, failed);
  if (!ordinary) throw std::runtime_error(fmt::format("'{}' is not an ordinary file; a safetensors file is expected", path_));
  if (mapped == MAP_FAILED)
    throw std::runtime_error(fmt::format("'{}' is not a safetensors file: it has {} bytes, fewer than {}", path_, size_, kLengthBytes));
  bytes_ = static_cast<const std::byte*>(mapped);
  try {
    read_header();
    if (verify == Verify::data) verify_data();
  } catch (...) {
    ::munmap(mapped, size_);  // the destructor does not run
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { ::munmap(const_cast<std::byte*>(bytes_), size_); }

void SafetensorsFile::read_header() {
  const auto fail = [&](const std::string& reason) {
    throw std::runtime_error(fmt::format("'{}' is not a whole safetensors file: {}", path_, reason));
  };
  uint64_t length = 0;
  std::memcpy(&length, bytes_, sizeof length);
  if (length > kLongestHeader) fail(fmt::format("its header would have {} bytes, more than the {} allowed", length, kLongestHeader));
  if (length > size_ - kLengthBytes)
    fail(fmt::format("its header should have {} bytes, but only {} follow; it was probably cut off", length, size_ - kLengthBytes));
  const std::string_view text = bytes_view(bytes_ + kLengthBytes, length);
  const std::byte* data = bytes_ + kLengthBytes + length;
  const size_t data_size = size_ - kLengthBytes - length;

  if (is_nested_deeper(text, kDeepestHeader)) fail(fmt::format("its header is nested more than {} deep", kDeepestHeader));
  if (const std::optional<std::string> twice = name_there_twice(text)) fail(fmt::format("tensor '{}' is there twice", *twice));
  nlohmann::json header;
  try {
    header = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(fmt::format("its header is not JSON ({})", error.what()));
  }
  if (!header.is_object()) fail("its header is not a JSON object");

  std::vector<std::pair<size_t, size_t>> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadataKey) {
      if (!entry.is_object()) fail("its __metadata__ is not an object of texts");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) fail(fmt::format("its __metadata__ '{}' is not a text", key));
        if (key.starts_with(kChecksumPrefix))
          checksums_[key.substr(kChecksumPrefix.size())] = value.get<std::string>();
        else
          metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    const auto fail_tensor = [&, &name = name](const std::string& reason) { fail(fmt::format("tensor '{}' {}", name, reason)); };
    const auto sizes = [&, &entry = entry](const char* key) {
      if (!entry.is_object() || !entry.contains(key) || !entry[key].is_array()) fail_tensor(fmt::format("has no list '{}'", key));
      std::vector<int64_t> numbers;
      for (const nlohmann::json& number : entry[key]) {
        if (!number.is_number_unsigned() || number.get<uint64_t>() > INT64_MAX)
          fail_tensor(fmt::format("has {} in '{}', which is no size", number.dump(), key));
        numbers.push_back(number.get<int64_t>());
      }
      return numbers;
    };
    TensorView tensor{.name = name, .shape = sizes("shape")};
    if (!entry.contains("dtype") || !entry["dtype"].is_string()) fail_tensor("has no dtype");
    const std::optional<Dtype> dtype = dtype_of(entry["dtype"].get<std::string>());
    if (!dtype) fail_tensor(fmt::format("has the dtype {}, which is not known here", entry["dtype"].dump()));
    tensor.dtype = *dtype;
    const std::vector<int64_t> offsets = sizes("data_offsets");
    if (offsets.size() != 2) fail_tensor(fmt::format("has {} data_offsets instead of two", offsets.size()));
    const auto begin = static_cast<size_t>(offsets[0]), end = static_cast<size_t>(offsets[1]);
    if (begin > end || end > data_size)
      fail_tensor(fmt::format("should lie at bytes {} to {} of the data, but there are only {}; the file was probably cut off", begin, end,
                              data_size));
    const std::optional<size_t> bytes = bytes_of(tensor.dtype, tensor.shape);
    if (bytes != end - begin)
      fail_tensor(fmt::format("of shape {} and dtype {} cannot have {} bytes", tensor.shape, name_of(tensor.dtype), end - begin));
    tensor.data = data + begin;
    tensors_.push_back(std::move(tensor));
    ranges.emplace_back(begin, end);
  }

  std::vector<size_t> order(tensors_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranges[a] < ranges[b]; });
  std::vector<TensorView> sorted;
  size_t covered = 0;
  for (const size_t i : order) {
    if (ranges[i].first < covered) fail(fmt::format("tensor '{}' overlaps '{}'", tensors_[i].name, sorted.back().name));
    if (ranges[i].first > covered) fail(fmt::format("there is a gap before tensor '{}'", tensors_[i].name));
    covered = ranges[i].second;
    sorted.push_back(std::move(tensors_[i]));
  }
  if (covered != data_size) fail(fmt::format("{} bytes at its end belong to no tensor", data_size - covered));
  tensors_ = std::move(sorted);
  for (size_t i = 0; i < tensors_.size(); ++i) places_[tensors_[i].name] = i;
  if (checksums_.empty()) return;
  for (const TensorView& tensor : tensors_)
    if (!checksums_.contains(tensor.name)) fail(fmt::format("tensor '{}' has no checksum, although others have", tensor.name));
  for (const auto& checksum : checksums_)
    if (!places_.contains(checksum.first)) fail(fmt::format("there is a checksum of a tensor '{}', but no such tensor", checksum.first));
}

void SafetensorsFile::verify_data() const {
  for (const auto& [name, expected] : checksums_) {
    const TensorView& tensor = at(name);
    if (const std::string found = crc32c_text(bytes_view(tensor.data, tensor.bytes())); found != expected)
      throw std::runtime_error(fmt::format("'{}' is damaged: tensor '{}' has the checksum {}, not {}", path_, name, found, expected));
  }
}

const TensorView* SafetensorsFile::find(const std::string& name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &tensors_[place->second];
}

const TensorView& SafetensorsFile::at(const std::string& name) const {
  if (const TensorView* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const TensorView& tensor : tensors_) names.push_back(tensor.name);
  const std::optional<std::string> near = nearest(name, names);
  throw std::runtime_error(
      fmt::format("'{}' has no tensor '{}' among its {}{}", path_, name, names.size(), near ? fmt::format("; nearest: '{}'", *near) : ""));
}

}  // namespace hinge::support
