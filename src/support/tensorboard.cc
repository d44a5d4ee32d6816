// Event files: TFRecords (length, its checksum, bytes, their checksum) of Event messages. The few protobuf fields in use are written by
// hand:
//   Event          1 double wall_time, 2 int64 step, 3 string file_version, 5 Summary summary, 7 SessionLog session_log
//   Summary        1 repeated Value { 1 string tag, 2 float simple_value }
//   SessionLog     1 enum status (1 = START)
#include "support/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "support/atomic_file.h"
#include "support/crc32c.h"

namespace hinge::support {
namespace {

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

template <class T> std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// A checksum over bytes that hold checksums themselves is weak, so TFRecords store it turned and shifted.
std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return raw<uint32_t>(((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string tag(uint64_t field, WireType type) { return varint(field << 3 | type); }
std::string whole_field(uint64_t field, int64_t value) { return tag(field, kVarint) + varint(static_cast<uint64_t>(value)); }
std::string bytes_field(uint64_t field, std::string_view value) { return tag(field, kBytes) + varint(value.size()) + std::string(value); }
std::string double_field(uint64_t field, double value) { return tag(field, kFixed64) + raw(value); }
std::string float_field(uint64_t field, float value) { return tag(field, kFixed32) + raw(value); }

constexpr std::string_view kPrefix = "events.out.tfevents.";

bool has_events(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(kPrefix)) return true;
  return false;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }
std::string event_head(int64_t step) { return double_field(1, now()) + whole_field(2, step); }

}  // namespace

EventWriter::EventWriter(const std::string& folder, int64_t last_step) {
  const bool others = has_events(folder);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "localhost");
  // TensorBoard reads the files of a folder in the order of their names, so the time comes first; the last number keeps names apart.
  const auto seconds = static_cast<int64_t>(now());
  for (int number = 0; descriptor_ < 0; ++number) {
    path_ = fmt::format("{}/{}{}.{}.{}.{}", folder, kPrefix, seconds, host.data(), ::getpid(), number);
    descriptor_ = uninterrupted([&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
    if (descriptor_ < 0 && errno != EEXIST) throw_file_error("create", path_);
  }
  record(double_field(1, now()) + bytes_field(3, "brain.Event:2"));
  if (others) record(event_head(last_step + 1) + bytes_field(7, whole_field(1, 1)));
}

EventWriter::~EventWriter() { ::close(descriptor_); }

void EventWriter::scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [name, value] : values) summary += bytes_field(1, bytes_field(1, name) + float_field(2, static_cast<float>(value)));
  record(event_head(step) + bytes_field(5, summary));
}

void EventWriter::record(std::string_view event) {
  const std::string length = raw<uint64_t>(event.size());
  write_all(descriptor_, length + masked_crc(length) + std::string(event) + masked_crc(event), path_);
}

}  // namespace hinge::support
