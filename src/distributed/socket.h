// TCP sockets with deadlines, as the rendezvous needs them. No torch here.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hinge::distributed {

// An address that a name stands for.
struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;

  std::string text() const;  // "10.0.0.1"
  bool is_loopback() const;
};

// Throws Error for a name that stands for none.
std::vector<Address> resolve(const std::string& host);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  // Both give errno's text in `problem` and no socket if they fail.
  static Socket listen(const Address& address, int port, std::string& problem);
  static Socket connect(const Address& address, int port, double seconds, std::string& problem);

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void close();
  void shut_down() const;  // for both sides; wakes who reads from it

  // False: the connection is gone, or `seconds` have passed.
  bool send(std::string_view bytes, double seconds) const;
  bool receive(char* bytes, size_t count, double seconds) const;
  Address own_address() const;

 private:
  int descriptor_ = -1;
};

// After keep_watching(), a connection whose peer has vanished without a word breaks after so many seconds.
inline constexpr int kSilenceSeconds = 25;
void keep_watching(const Socket& socket);

}  // namespace hinge::distributed
