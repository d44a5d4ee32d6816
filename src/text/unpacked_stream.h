// The content of a file, plain or packed by gzip or xz, as it comes: neither the packed file nor what is in it need fit into memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace hinge::text {

// Whether content that begins so is packed; nothing if that takes more bytes to tell.
std::optional<bool> begins_packed(std::string_view begin);

class UnpackedStream {
 public:
  // Puts the next bytes of the file into the buffer, at least one; 0 at its end.
  using Source = std::function<size_t(char* buffer, size_t size)>;

  // `name` is for errors.
  UnpackedStream(Source source, std::string name);
  ~UnpackedStream();
  UnpackedStream(const UnpackedStream&) = delete;
  UnpackedStream& operator=(const UnpackedStream&) = delete;

  // The next bytes of the content, at most `size`: at least one, without waiting for more than it takes; 0 at the end. Throws TextError if
  // the file is cut short or corrupt, or if to unpack it would take too much memory.
  size_t read(char* buffer, size_t size);

  bool packed() const { return decoder_ != nullptr; }  // known after the first read()

  class Decoder;

 private:
  void begin();
  bool refill();  // false: the file has ended

  Source source_;
  std::string name_;
  std::string buffer_;       // bytes of the file
  std::string_view unused_;  // those that were not used yet
  bool begun_ = false, ended_ = false;
  std::unique_ptr<Decoder> decoder_;  // none: it is plain
};

}  // namespace hinge::text
