// Unpacking by zlib and liblzma.
#include "text/unpacked_stream.h"

#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "text/error.h"

namespace hinge::text {

class UnpackedStream::Decoder {
 public:
  virtual ~Decoder() = default;
  // Unpacks from `packed`, and takes from it what it has used; the number of bytes that it gave. `last`: nothing will follow.
  virtual size_t unpack(std::string_view& packed, bool last, char* buffer, size_t size) = 0;
  virtual bool between_streams() const = 0;  // the file may end here
};

namespace {

constexpr size_t kFileBytes = 1 << 16;
constexpr size_t kMostBytesAtOnce = 1 << 30;           // zlib counts in 32 bits
constexpr uint64_t kMostXzMemory = uint64_t{1} << 27;  // xz -9 asks for 65 MiB

constexpr std::string_view kGzip = "\x1F\x8B";
constexpr std::string_view kXz("\xFD\x37zXZ\0", 6);

// One gzip member after the other. What follows the last one and is not gzip is an error: it would silently be lost.
class Gunzip : public UnpackedStream::Decoder {
 public:
  explicit Gunzip(const std::string& name) : name_(name) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw TextError(name_, 0, "cannot be unpacked: zlib does not start");
  }
  ~Gunzip() override { inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  size_t unpack(std::string_view& packed, bool /*last*/, char* buffer, size_t size) override {
    if (ended_) inflateReset(&stream_);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.avail_in = static_cast<uInt>(packed.size());
    stream_.next_out = reinterpret_cast<Bytef*>(buffer);
    const auto room = static_cast<uInt>(std::min(size, kMostBytesAtOnce));
    stream_.avail_out = room;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    packed.remove_prefix(packed.size() - stream_.avail_in);
    ended_ = code == Z_STREAM_END;
    if (code != Z_OK && code != Z_BUF_ERROR && !ended_)
      throw TextError(name_, 0, fmt::format("is corrupt: {}; fetch it again", stream_.msg != nullptr ? stream_.msg : "not a gzip stream"));
    return room - stream_.avail_out;
  }
  bool between_streams() const override { return ended_; }

 private:
  const std::string& name_;
  z_stream stream_{};
  bool ended_ = false;
};

class Unxz : public UnpackedStream::Decoder {
 public:
  explicit Unxz(const std::string& name) : name_(name) {
    if (lzma_stream_decoder(&stream_, kMostXzMemory, LZMA_CONCATENATED) != LZMA_OK)
      throw TextError(name_, 0, "cannot be unpacked: liblzma does not start");
  }
  ~Unxz() override { lzma_end(&stream_); }
  Unxz(const Unxz&) = delete;
  Unxz& operator=(const Unxz&) = delete;

  size_t unpack(std::string_view& packed, bool last, char* buffer, size_t size) override {
    stream_.next_in = reinterpret_cast<const uint8_t*>(packed.data());
    stream_.avail_in = packed.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(buffer);
    stream_.avail_out = size;
    const lzma_ret code = lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
    packed.remove_prefix(packed.size() - stream_.avail_in);
    ended_ = code == LZMA_STREAM_END;
    if (code == LZMA_MEMLIMIT_ERROR)
      throw TextError(name_, 0,
                      fmt::format("would take {} MiB of memory to unpack, {} are allowed; pack it by xz -9 or less",
                                  lzma_memusage(&stream_) >> 20, kMostXzMemory >> 20));
    if (code != LZMA_OK && code != LZMA_BUF_ERROR && !ended_)
      throw TextError(name_, 0, fmt::format("is corrupt (xz error {}); fetch it again", static_cast<int>(code)));
    return size - stream_.avail_out;
  }
  bool between_streams() const override { return ended_; }

 private:
  const std::string& name_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ended_ = false;
};

}  // namespace

std::optional<bool> begins_packed(std::string_view begin) {
  if (begin.starts_with(kGzip) || begin.starts_with(kXz)) return true;
  if (kGzip.starts_with(begin) || kXz.starts_with(begin)) return std::nullopt;
  return false;
}

UnpackedStream::UnpackedStream(Source source, std::string name) : source_(std::move(source)), name_(std::move(name)) {}
UnpackedStream::~UnpackedStream() = default;

bool UnpackedStream::refill() {
  buffer_.assign(unused_);
  const size_t before = buffer_.size();
  buffer_.resize(before + kFileBytes);
  const size_t got = ended_ ? 0 : source_(buffer_.data() + before, kFileBytes);
  buffer_.resize(before + got);
  unused_ = buffer_;
  ended_ = got == 0;
  return !ended_;
}

void UnpackedStream::begin() {
  begun_ = true;
  std::optional<bool> packed;
  do {
    packed = begins_packed(unused_);
  } while (!packed && refill());
  if (unused_.starts_with(kGzip)) decoder_ = std::make_unique<Gunzip>(name_);
  if (unused_.starts_with(kXz)) decoder_ = std::make_unique<Unxz>(name_);
}

size_t UnpackedStream::read(char* buffer, size_t size) {
  if (!begun_) begin();
  if (!decoder_) {
    if (unused_.empty() && !refill()) return 0;
    const size_t given = std::min(size, unused_.size());
    std::memcpy(buffer, unused_.data(), given);
    unused_.remove_prefix(given);
    return given;
  }
  for (;;) {
    if (unused_.empty()) refill();
    if (unused_.empty() && decoder_->between_streams()) return 0;
    const size_t before = unused_.size(), given = decoder_->unpack(unused_, ended_, buffer, size);
    if (given > 0) return given;
    if (ended_ && unused_.empty() && before == 0 && !decoder_->between_streams())
      throw TextError(name_, 0, "is cut short: the packed stream has no end; fetch it again");
  }
}

}  // namespace hinge::text
