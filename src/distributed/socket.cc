#include "distributed/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>

#include "distributed/error.h"

namespace hinge::distributed {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Whether the socket can be read from or written to before the deadline.
bool wait_for(int descriptor, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0) return false;
    pollfd one{descriptor, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::min<long>(left + 1, std::numeric_limits<int>::max())));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

void set(int descriptor, int level, int option, int value) { ::setsockopt(descriptor, level, option, &value, sizeof value); }

void set_port(Address& address, int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address.bytes.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address.bytes).sin6_port = number;
  else
    reinterpret_cast<sockaddr_in&>(address.bytes).sin_port = number;
}

const sockaddr* plain(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.bytes); }

}  // namespace

std::string Address::text() const {
  char name[NI_MAXHOST] = "?";
  ::getnameinfo(plain(*this), size, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
  return name;
}

bool Address::is_loopback() const {
  if (bytes.ss_family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in&>(bytes).sin_addr.s_addr) >> 24) == 127;
  return bytes.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(bytes).sin6_addr);
}

std::vector<Address> resolve(const std::string& host) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int problem = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (problem != 0) throw Error(fmt::format("MASTER_ADDR is '{}', which stands for no address: {}", host, ::gai_strerror(problem)));
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.bytes, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

Socket Socket::listen(const Address& given, int port, std::string& problem) {
  Address address = given;
  set_port(address, port);
  Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket) {
    set(socket.descriptor_, SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(socket.descriptor_, plain(address), address.size) == 0 && ::listen(socket.descriptor_, 1024) == 0) return socket;
  }
  problem = std::strerror(errno);
  return {};
}

Socket Socket::connect(const Address& given, int port, double seconds, std::string& problem) {
  Address address = given;
  set_port(address, port);
  Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = socket ? 0 : errno;
  if (socket && ::connect(socket.descriptor_, plain(address), address.size) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (!wait_for(socket.descriptor_, POLLOUT, after(seconds)))
        error = ETIMEDOUT;
      else
        ::getsockopt(socket.descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error != 0) {
    problem = std::strerror(error);
    return {};
  }
  return socket;
}

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void Socket::shut_down() const { ::shutdown(descriptor_, SHUT_RDWR); }

bool Socket::send(std::string_view bytes, double seconds) const {
  const auto deadline = after(seconds);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes.remove_prefix(static_cast<size_t>(sent));
    else if (sent < 0 && errno != EINTR && (errno != EAGAIN || !wait_for(descriptor_, POLLOUT, deadline)))
      return false;
  }
  return true;
}

bool Socket::receive(char* bytes, size_t count, double seconds) const {
  const auto deadline = after(seconds);
  while (count > 0) {
    const ssize_t got = ::recv(descriptor_, bytes, count, 0);
    if (got == 0) return false;
    if (got > 0)
      bytes += got, count -= static_cast<size_t>(got);
    else if (errno != EINTR && (errno != EAGAIN || !wait_for(descriptor_, POLLIN, deadline)))
      return false;
  }
  return true;
}

Address Socket::own_address() const {
  Address address;
  address.size = sizeof address.bytes;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address.bytes), &address.size);
  return address;
}

void keep_watching(const Socket& socket) {
  set(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket.descriptor(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket.descriptor(), IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(socket.descriptor(), IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(socket.descriptor(), IPPROTO_TCP, TCP_KEEPCNT, kSilenceSeconds / 5 - 1);
  set(socket.descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, kSilenceSeconds * 1000);
}

}  // namespace hinge::distributed
