#include "distributed/rendezvous.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "distributed/error.h"
#include "support/json.h"

namespace hinge::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kGreeting = "hinge rendezvous 1\n";  // from the server, so that a token is shown to no other
constexpr int kPorts = 16;                                      // behind MASTER_PORT
constexpr double kKnockSeconds = 5, kSendSeconds = 10, kLeaveSeconds = 5, kLateSeconds = 15;
constexpr uint32_t kLongest = 1 << 20;

// A message: its length, its kind, its content.
enum class Kind : char {
  hello = 'h',
  welcome = 'w',
  other_run = 'o',
  refused = 'r',
  set = 's',
  get = 'g',
  value = 'v',
  failed = 'f',
  lost = 'l',
  bye = 'b'
};

std::string message(Kind kind, std::string_view content) {
  const auto size = static_cast<uint32_t>(content.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  bytes += static_cast<char>(kind);
  return bytes.append(content);
}

// The next whole message at the beginning of `bytes`, taken from it. Throws Error for what is none.
std::optional<std::pair<Kind, std::string>> take_message(std::string& bytes) {
  uint32_t size = 0;
  constexpr size_t kHead = sizeof size + 1;
  if (bytes.size() < kHead) return {};
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size > kLongest) throw Error("not a message");
  if (bytes.size() < kHead + size) return {};
  std::pair<Kind, std::string> taken(static_cast<Kind>(bytes[sizeof size]), bytes.substr(kHead, size));
  bytes.erase(0, kHead + size);
  return taken;
}

std::optional<std::pair<Kind, std::string>> receive_message(const Socket& socket, double seconds) {
  uint32_t size = 0;
  std::string bytes(sizeof size + 1, '\0');
  if (!socket.receive(bytes.data(), bytes.size(), seconds)) return {};
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size > kLongest) return {};
  const size_t head = bytes.size();
  bytes.resize(head + size);
  if (!socket.receive(bytes.data() + head, size, seconds)) return {};
  return take_message(bytes);
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// A name that stands for the loopback address, where machines do not reach each other. Who asks for that address itself, or for localhost,
// means it: the machines may be one.
bool likely_mistake(const Environment& environment, const Address& address) {
  const std::string& name = environment.master_address;
  in6_addr number;
  const bool asked_for =
      name == "localhost" || ::inet_pton(AF_INET, name.c_str(), &number) == 1 || ::inet_pton(AF_INET6, name.c_str(), &number) == 1;
  return environment.on_several_machines() && address.is_loopback() && !asked_for;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string lost_text(const std::string& who) { return fmt::format("{} was lost: it was killed, has crashed or cannot be reached", who); }

}  // namespace

// ---- rank 0's side

class RendezvousServer {
 public:
  RendezvousServer(const Environment& environment, std::string version) : environment_(environment), version_(std::move(version)) {
    open();
    thread_ = std::jthread([this] { serve(); });
  }
  // Stays until all have left, for a short while.
  ~RendezvousServer() { stop_ = true; }
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  const Address& address() const { return address_; }
  int port() const { return port_; }

 private:
  struct Peer {
    Socket socket;
    std::string received;
    std::string who;  // "rank 1 (host, process 1234)"; empty before its hello
    int rank = -1;
    Clock::time_point came = Clock::now();
    std::set<std::string> waits_for;  // keys
    bool left = false, gone = false;
  };

  void open() {
    std::string problem;
    for (const Address& address : resolve(environment_.master_address)) {
      if (likely_mistake(environment_, address)) {
        problem =
            fmt::format("here it stands for the loopback address {}, which no other machine can reach; see /etc/hosts", address.text());
        continue;
      }
      for (int port = environment_.master_port + 1; port <= std::min(65535, environment_.master_port + kPorts); ++port)
        if (Socket socket = Socket::listen(address, port, problem)) {
          listening_ = std::move(socket);
          address_ = address, port_ = port;
          return;
        }
      problem =
          fmt::format("{}, ports {} to {}: {}", address.text(), environment_.master_port + 1, environment_.master_port + kPorts, problem);
    }
    throw Error(fmt::format("rank 0 cannot listen at MASTER_ADDR '{}': {}; give an address of the machine of rank 0",
                            environment_.master_address, problem));
  }

  void serve() {
    std::optional<Clock::time_point> stopped;
    for (;;) {
      if (stop_ && !stopped) stopped = Clock::now();
      if (stopped) {
        // After a failure at the start, those who come late are told why there is nobody.
        const bool all_know = peers_.empty() && (!loss_ || std::ssize(came_) == environment_.world);
        if (all_know || seconds_since(*stopped) > (loss_ ? kLateSeconds : kLeaveSeconds)) return;
      }
      std::vector<pollfd> descriptors = {{listening_.descriptor(), POLLIN, 0}};
      for (const Peer& peer : peers_) descriptors.push_back({peer.socket.descriptor(), POLLIN, 0});
      ::poll(descriptors.data(), descriptors.size(), 100);
      size_t at = 1;
      for (Peer& peer : peers_) {
        if (descriptors[at++].revents != 0) read_from(peer);
        if (peer.who.empty() && seconds_since(peer.came) > 2 * kKnockSeconds) peer.gone = true;
      }
      for (Peer& peer : peers_)
        if (peer.gone && !peer.left && !peer.who.empty()) tell_loss(lost_text(peer.who));
      peers_.remove_if([](const Peer& peer) { return peer.gone; });
      if (descriptors[0].revents != 0) accept();
    }
  }

  void accept() {
    for (;;) {
      Socket socket(::accept4(listening_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) return;
      keep_watching(socket);
      if (!socket.send(kGreeting, kSendSeconds)) continue;
      peers_.emplace_back().socket = std::move(socket);
    }
  }

  void read_from(Peer& peer) {
    char bytes[65536];
    for (;;) {
      const ssize_t got = ::recv(peer.socket.descriptor(), bytes, sizeof bytes, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) {
        peer.gone = true;
        break;
      }
      peer.received.append(bytes, static_cast<size_t>(got));
    }
    try {
      while (auto next = take_message(peer.received)) take(peer, next->first, next->second);
    } catch (const std::exception&) {
      peer.gone = true;  // somebody else's words
    }
  }

  void take(Peer& peer, Kind kind, const std::string& content) {
    if (peer.who.empty() && kind != Kind::hello) throw Error("not a message");
    switch (kind) {
      case Kind::hello: return take_hello(peer, support::parse_json(content));
      case Kind::set: {
        const size_t end = content.find('\0');
        const std::string key = content.substr(0, end), value = content.substr(std::min(content.size(), end + 1));
        values_[key] = value;
        for (Peer& other : peers_)
          if (other.waits_for.erase(key) > 0) send(other, Kind::value, value);
        return;
      }
      case Kind::get:
        if (const auto found = values_.find(content); found != values_.end())
          send(peer, Kind::value, found->second);
        else
          peer.waits_for.insert(content);
        return;
      case Kind::failed: return tell_loss(fmt::format("{} has ended: {}", peer.who, content));
      case Kind::bye:
        peer.left = true;
        send(peer, Kind::bye, "");
        return;
      default: throw Error("not a message");
    }
  }

  void take_hello(Peer& peer, const nlohmann::json& hello) {
    if (hello.at("token").get<std::string>() != environment_.token) {
      send(peer, Kind::other_run, "");
      peer.gone = true;
      return;
    }
    const int rank = support::whole_number<int>(hello.at("rank")), world = support::whole_number<int>(hello.at("world"));
    const std::string version = hello.at("version").get<std::string>();
    came_.insert(rank);
    std::string refusal;
    const auto taken = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& other) { return other.rank == rank; });
    if (loss_)
      refusal = *loss_;
    else if (version != version_)
      refusal = fmt::format("rank {} is {}, but rank 0 is {}: run the same program on all machines", rank, version, version_);
    else if (world != environment_.world)
      refusal = fmt::format("rank {} has WORLD_SIZE {}, but rank 0 has {}", rank, world, environment_.world);
    else if (taken != peers_.end())
      refusal = fmt::format("RANK {} was given to two processes: {} is there already", rank, taken->who);
    if (!refusal.empty()) {
      send(peer, Kind::refused, refusal);
      peer.gone = true;
      return;
    }
    peer.rank = rank;
    peer.who =
        fmt::format("rank {} (host {}, process {})", rank, hello.at("host").get<std::string>(), support::whole_number(hello.at("process")));
    send(peer, Kind::welcome, host_name());
  }

  // The first loss counts: the others follow from it.
  void tell_loss(const std::string& what) {
    if (loss_) return;
    loss_ = what;
    for (Peer& peer : peers_)
      if (!peer.gone && !peer.who.empty()) send(peer, Kind::lost, what);
  }

  static void send(Peer& peer, Kind kind, std::string_view content) {
    if (!peer.socket.send(message(kind, content), kSendSeconds)) peer.gone = true;
  }

  const Environment environment_;
  const std::string version_;
  Socket listening_;
  Address address_;
  int port_ = 0;
  std::list<Peer> peers_;
  std::map<std::string, std::string> values_;
  std::set<int> came_;  // ranks
  std::optional<std::string> loss_;
  std::atomic<bool> stop_ = false;
  std::jthread thread_;
};

// ---- every rank's side

Rendezvous::Rendezvous(const Environment& environment, const std::string& version) : environment_(environment), version_(version) {
  if (environment_.rank == 0) server_ = std::make_unique<RendezvousServer>(environment_, version_);
  meet();
  reader_ = std::jthread([this] { read_messages(); });
}

Rendezvous::~Rendezvous() {
  {
    const std::scoped_lock lock(mutex_);
    leaving_ = true;
  }
  socket_.shut_down();
  reader_.join();
  socket_.close();
}

void Rendezvous::meet() {
  std::string problem;
  if (server_) {
    if (!knock(server_->address(), server_->port(), problem)) throw Error(fmt::format("rank 0 cannot reach itself: {}", problem));
    return;
  }
  const auto start = Clock::now();
  do {
    for (const Address& address : resolve(environment_.master_address)) {
      if (likely_mistake(environment_, address) && !environment_.on_first_machine())
        throw Error(
            fmt::format("MASTER_ADDR '{}' is the loopback address {} on this machine, but rank 0 runs on another: give the address "
                        "at which it can be reached, or mend /etc/hosts",
                        environment_.master_address, address.text()));
      for (int port = environment_.master_port + 1; port <= std::min(65535, environment_.master_port + kPorts); ++port) {
        if (knock(address, port, problem)) return;
        if (seconds_since(start) > environment_.timeout_seconds) break;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (seconds_since(start) < environment_.timeout_seconds);
  if (environment_.on_several_machines() && resolve(environment_.master_address).front().is_loopback())
    problem += "; it is a loopback address, at which only processes of one machine meet";
  throw Error(fmt::format("rank {} has not met rank 0 at MASTER_ADDR '{}', ports {} to {}, within {:.0f} s: {}", environment_.rank,
                          environment_.master_address, environment_.master_port + 1, environment_.master_port + kPorts,
                          environment_.timeout_seconds, problem));
}

bool Rendezvous::knock(const Address& address, int port, std::string& problem) {
  Socket socket = Socket::connect(address, port, kKnockSeconds, problem);
  if (!socket) return false;
  std::string greeting(kGreeting.size(), '\0');
  if (!socket.receive(greeting.data(), greeting.size(), kKnockSeconds) || greeting != kGreeting) {
    problem = fmt::format("another program listens at {}, port {}", address.text(), port);
    return false;
  }
  keep_watching(socket);
  const nlohmann::json hello = {{"token", environment_.token}, {"rank", environment_.rank}, {"world", environment_.world},
                                {"version", version_},         {"host", host_name()},       {"process", ::getpid()}};
  if (!socket.send(message(Kind::hello, hello.dump()), kSendSeconds)) return false;
  const auto answer = receive_message(socket, kKnockSeconds);
  if (!answer || answer->first == Kind::other_run) {
    problem = fmt::format("another run (with another token) listens at {}, port {}", address.text(), port);
    return false;
  }
  if (answer->first != Kind::welcome) throw Error(answer->second);
  first_host_ = answer->second;
  own_address_ = socket.own_address().text();
  port_ = port;
  socket_ = std::move(socket);
  return true;
}

void Rendezvous::read_messages() {
  constexpr double kForever = 1e9;
  while (const auto next = receive_message(socket_, kForever)) {
    if (next->first == Kind::lost) note_loss(next->second);
    const std::scoped_lock lock(mutex_);
    if (next->first == Kind::value) value_ = next->second;
    if (next->first == Kind::bye) closed_ = true;
    changed_.notify_all();
  }
  bool left = false;
  {
    const std::scoped_lock lock(mutex_);
    left = leaving_;
    closed_ = true;
  }
  if (!left) note_loss(lost_text(fmt::format("rank 0 (host {})", first_host_)));
  changed_.notify_all();
}

void Rendezvous::note_loss(const std::string& what) {
  std::function<void()> lost;
  {
    const std::scoped_lock lock(mutex_);
    if (loss_) return;
    loss_ = what;
    lost = std::exchange(lost_, nullptr);
  }
  changed_.notify_all();
  if (lost) lost();
}

void Rendezvous::set(const std::string& key, const std::string& value) {
  const std::scoped_lock lock(sending_);
  std::string content = key;
  content += '\0';
  socket_.send(message(Kind::set, content + value), kSendSeconds);
}

std::string Rendezvous::get(const std::string& key, double seconds) {
  const std::scoped_lock request(requests_);
  {
    const std::scoped_lock lock(sending_);
    socket_.send(message(Kind::get, key), kSendSeconds);
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return value_ || loss_; });
  if (value_) return *std::exchange(value_, std::nullopt);
  if (loss_) throw PeerError(*loss_);
  throw Error(fmt::format("the other processes did not arrive within {:.0f} s", seconds));
}

void Rendezvous::watch(std::function<void()> lost) {
  {
    const std::scoped_lock lock(mutex_);
    if (!loss_) {
      lost_ = std::move(lost);
      return;
    }
  }
  lost();
}

std::optional<std::string> Rendezvous::loss(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return loss_.has_value(); });
  return loss_;
}

void Rendezvous::fail(const std::string& reason) {
  {
    const std::scoped_lock lock(mutex_);
    if (loss_) return;
    lost_ = nullptr;
  }
  const std::scoped_lock lock(sending_);
  socket_.send(message(Kind::failed, reason), kSendSeconds);
}

void Rendezvous::leave() {
  {
    const std::scoped_lock lock(mutex_);
    leaving_ = true;
    lost_ = nullptr;
  }
  {
    const std::scoped_lock lock(sending_);
    socket_.send(message(Kind::bye, ""), kSendSeconds);
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(kSendSeconds), [&] { return closed_; });
}

}  // namespace hinge::distributed
