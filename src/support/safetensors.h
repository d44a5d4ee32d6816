// Named tensors in a safetensors file (github.com/huggingface/safetensors): eight bytes with the length of a JSON header, the header, the
// data. Files are written through AtomicFile and read through mmap, so that neither makes a second copy in memory.
// Each tensor's data have their CRC-32C in the metadata, "crc32c.NAME": "e3069283". Other readers pass over it, and files without are read
// unchecked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hinge::support {

enum class Dtype { kBool, kU8, kI8, kU16, kI16, kF16, kBF16, kU32, kI32, kF32, kU64, kI64, kF64 };

const char* name_of(Dtype dtype);  // as in the file: "F32"
size_t size_of(Dtype dtype);       // bytes of one element

// A tensor whose data, contiguous and row-major, belong to someone else.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;  // empty for a scalar
  const void* data = nullptr;

  size_t elements() const;
  size_t bytes() const;
};

using Metadata = std::map<std::string, std::string>;

// Replaces the file at `path` by one with these tensors. The data begin at a multiple of 64 bytes; tensors whose size is a multiple of 64
// come first and so stay aligned, the others are aligned to their element (the format allows no gaps).
// Throws std::runtime_error for a name given twice or too many of them, and for everything that AtomicFile throws.
void write_safetensors(const std::string& path, const std::vector<TensorView>& tensors, const Metadata& metadata = {});

// How much of a file is read and checked when it is opened.
enum class Verify { header, data };

// An open file. Its views stay valid as long as it lives, also when the file is replaced or removed meanwhile.
class SafetensorsFile {
 public:
  // Checks everything the header says against the file, and the data against their checksums. Throws std::runtime_error that names the file
  // and, where there is one, the tensor.
  explicit SafetensorsFile(std::string path, Verify verify = Verify::data);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }  // without the checksums
  bool has_checksums() const { return !checksums_.empty(); }
  // In the order of their data. Data of files from elsewhere need not be aligned to their element: copy them with memcpy.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;  // nullptr if there is none
  const TensorView& at(const std::string& name) const;    // throws, with the nearest name there is

 private:
  void read_header();
  void verify_data() const;

  std::string path_;
  const std::byte* bytes_ = nullptr;
  size_t size_ = 0;
  Metadata metadata_, checksums_;  // by the name of the tensor
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t> places_;
};

}  // namespace hinge::support
