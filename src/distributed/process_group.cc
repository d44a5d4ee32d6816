#include "distributed/process_group.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "distributed/rendezvous.h"

namespace hinge::distributed {
namespace {

// The rendezvous as Gloo's processes find each other through it. They ask for no more than this.
class Meeting final : public c10d::Store {
 public:
  Meeting(Rendezvous& rendezvous, double seconds, std::string prefix)
      : rendezvous_(rendezvous), seconds_(seconds), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    rendezvous_.set(prefix_ + key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const std::string value = rendezvous_.get(prefix_ + key, seconds_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) rendezvous_.get(prefix_ + key, seconds_);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

  int64_t add(const std::string&, int64_t) override { refuse(); }
  bool deleteKey(const std::string&) override { refuse(); }
  bool check(const std::vector<std::string>&) override { refuse(); }
  int64_t getNumKeys() override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw Error("the rendezvous only stores and gives values"); }

  Rendezvous& rendezvous_;
  const double seconds_;
  const std::string prefix_;  // of keys: groups of the same run are kept apart by it
};

std::vector<std::string> interfaces() {
  std::set<std::string> names;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next)
    if (entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6))
      names.insert(entry->ifa_name);
  ::freeifaddrs(first);
  return {names.begin(), names.end()};
}

// The interface that has this address; "" if none has.
std::string interface_of(const std::string& address) {
  std::string found;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return found;
  for (const ifaddrs* entry = first; entry != nullptr && found.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char name[NI_MAXHOST] = "";
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(entry->ifa_addr, size, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0 && address == name)
      found = entry->ifa_name;
  }
  ::freeifaddrs(first);
  return found;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

// What a thread that waits for a collective looks at.
struct Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  bool lost = false;  // a process of the run, perhaps this one

  void note_loss() {
    {
      const std::scoped_lock lock(mutex);
      lost = true;
    }
    changed.notify_all();
  }
};

class ProcessGroup::Impl {
 public:
  Impl(const Environment& environment, const std::string& version)
      : waiting(std::make_shared<Waiting>()),
        rank_in_run(environment.rank),
        own_rendezvous(std::make_unique<Rendezvous>(environment, version)),
        rendezvous(*own_rendezvous) {
    try {
      connect(environment, "");
      rendezvous.watch([state = waiting] { state->note_loss(); });
    } catch (const std::exception& error) {
      rendezvous.fail(error.what());
      throw;
    }
  }
  // Of some of the ranks of `whole`.
  Impl(const Environment& environment, const Impl& whole, const std::string& name)
      : waiting(whole.waiting), rank_in_run(whole.rank_in_run), rendezvous(whole.rendezvous) {
    connect(environment, name);
  }

  void connect(const Environment& environment, const std::string& prefix) {
    auto options =
        c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(static_cast<int64_t>(1000 * environment.timeout_seconds)));
    options->devices.push_back(device(environment));
    options->threads = 1;
    gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<Meeting>(rendezvous, environment.timeout_seconds, prefix),
                                                       environment.rank, environment.world, options);
  }
  // Gloo has no way to end a collective that waits for a process which has vanished. It is left behind with its thread then, and the end of
  // this process, which is near, takes both along.
  ~Impl() {
    const std::scoped_lock lock(waiting->mutex);
    if (waiting->lost) static_cast<void>(gloo.release());
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Returns once `work` is done; throws its error. False: a process was lost before.
  bool wait(c10d::Work& work) const {
    const auto done = std::make_shared<bool>(false);
    work.getFuture()->addCallback([state = waiting, done](c10::ivalue::Future&) {
      {
        const std::scoped_lock lock(state->mutex);
        *done = true;
      }
      state->changed.notify_all();
    });
    {
      std::unique_lock lock(waiting->mutex);
      waiting->changed.wait(lock, [&] { return *done || waiting->lost; });
      if (!*done) return false;
    }
    work.wait();
    return true;
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::string where;                       // "10.0.0.1 (eth0)"
  const std::shared_ptr<Waiting> waiting;  // of the whole run
  const int rank_in_run;
  const std::unique_ptr<Rendezvous> own_rendezvous;  // of the group of the whole run
  Rendezvous& rendezvous;

 private:
  std::shared_ptr<gloo::transport::Device> device(const Environment& environment) {
    if (environment.interface.empty()) {
      const std::string address = rendezvous.own_address(), name = interface_of(address);
      where = fmt::format("{} ({})", address, name.empty() ? "no interface of this machine" : name);
      return c10d::ProcessGroupGloo::createDeviceForHostname(address);
    }
    const std::vector<std::string> names = interfaces();
    if (std::find(names.begin(), names.end(), environment.interface) == names.end())
      throw Error(fmt::format("GLOO_SOCKET_IFNAME is '{}', but this machine has no such interface with an address: it has {}",
                              environment.interface, joined(names)));
    if (environment.interface == "lo" && environment.on_several_machines())
      throw Error("GLOO_SOCKET_IFNAME is 'lo', the loopback interface, which other machines cannot reach: name that of the network");
    where = fmt::format("{} (GLOO_SOCKET_IFNAME)", environment.interface);
    return c10d::ProcessGroupGloo::createDeviceForInterface(environment.interface);
  }
};

// ---- the group

ProcessGroup::ProcessGroup(const Environment& environment, const std::string& version) : environment_(environment) {
  try {
    impl_ = std::make_unique<Impl>(environment, version);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format("rank {} cannot connect to the others: {}", environment.rank, error.what()));
  }
}

ProcessGroup::ProcessGroup(const Environment& environment, std::unique_ptr<Impl> impl)
    : environment_(environment), impl_(std::move(impl)) {}

ProcessGroup::~ProcessGroup() = default;

std::unique_ptr<ProcessGroup> ProcessGroup::split(int size) {
  TORCH_CHECK(size > 0 && world() % size == 0, "hinge: ", world(), " ranks cannot be split into groups of ", size);
  Environment part = environment_;
  part.rank = rank() % size, part.world = size;
  const std::string name = fmt::format("group {} of {} ranks/", rank() / size, size);
  std::unique_ptr<Impl> impl;
  run("connecting groups of ranks", [&]() -> c10::intrusive_ptr<c10d::Work> {
    impl = std::make_unique<Impl>(part, *impl_, name);
    return impl_->gloo->barrier();
  });
  std::unique_ptr<ProcessGroup> group(new ProcessGroup(part, std::move(impl)));
  group->whole_ = this;
  return group;
}

void ProcessGroup::count(int64_t bytes, int64_t messages) {
  bytes_ += bytes, messages_ += messages;
  if (whole_ != nullptr) whole_->count(bytes, messages);
}

std::string ProcessGroup::description() const {
  return fmt::format("rank {} of {} at {}, rendezvous at {}, port {}", rank(), world(), impl_->where, environment_.master_address,
                     impl_->rendezvous.port());
}

// `start` begins a collective and gives c10d's handle of it.
template <class Start> void ProcessGroup::run(const char* what, const Start& start) {
  constexpr double kNewsSeconds = 3;  // what broke a connection is known soon
  std::string problem;
  try {
    if (const auto work = start(); impl_->wait(*work)) return;
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (const auto loss = impl_->rendezvous.loss(kNewsSeconds)) throw PeerError(*loss);
  impl_->waiting->note_loss();  // nothing more can be exchanged
  if (problem.find("imed out") != std::string::npos)
    throw Error(
        fmt::format("rank {} has had no answer from the other ranks for {:.0f} s ({}): one of them hangs, or needs more time than "
                    "HINGE_TIMEOUT gives",
                    impl_->rank_in_run, environment_.timeout_seconds, what));
  throw Error(fmt::format("rank {} has lost its connection to another rank ({}): {}", impl_->rank_in_run, what, problem));
}

void ProcessGroup::barrier() {
  run("barrier", [&] { return impl_->gloo->barrier(); });
}

void ProcessGroup::all_to_all(const at::Tensor& in, at::Tensor& out) {
  TORCH_CHECK(in.numel() == out.numel() && in.numel() % world() == 0, "hinge: all_to_all of ", in.numel(), " and ", out.numel(),
              " elements over ", world(), " ranks");
  const std::vector<int64_t> sizes(static_cast<size_t>(world()), in.numel() / world());
  all_to_all(in, sizes, out, sizes);
}

void ProcessGroup::all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_sizes, at::Tensor& out,
                              const std::vector<int64_t>& out_sizes) {
  TORCH_CHECK(in.is_contiguous() && out.is_contiguous() && in.scalar_type() == out.scalar_type() && std::ssize(in_sizes) == world() &&
                  std::ssize(out_sizes) == world() && std::accumulate(in_sizes.begin(), in_sizes.end(), int64_t{0}) == in.numel() &&
                  std::accumulate(out_sizes.begin(), out_sizes.end(), int64_t{0}) == out.numel(),
              "hinge: all_to_all takes contiguous tensors of one type, and a size for each rank");
  at::Tensor from = in.view(-1), to = out.view(-1);
  std::vector<int64_t> send = in_sizes, receive = out_sizes;
  run("all_to_all", [&] { return impl_->gloo->alltoall_base(to, from, receive, send); });
  for (int other = 0; other < world(); ++other) {
    const int64_t size = in_sizes[static_cast<size_t>(other)];
    if (other != rank() && size > 0) count(size * static_cast<int64_t>(in.element_size()), 1);
  }
}

void ProcessGroup::all_gather(const at::Tensor& own, at::Tensor& all) {
  TORCH_CHECK(own.is_contiguous() && all.is_contiguous() && own.scalar_type() == all.scalar_type() && all.numel() == own.numel() * world(),
              "hinge: all_gather of ", own.numel(), " elements from ", world(), " ranks into ", all.numel());
  std::vector<at::Tensor> inputs = {own.view(-1)};
  std::vector<std::vector<at::Tensor>> outputs = {all.view({world(), own.numel()}).unbind(0)};
  run("all_gather", [&] { return impl_->gloo->allgather(outputs, inputs); });
  count((world() - 1) * own.numel() * static_cast<int64_t>(own.element_size()), world() - 1);
}

void ProcessGroup::broadcast(at::Tensor& tensor, int root) {
  TORCH_CHECK(tensor.is_contiguous() && root >= 0 && root < world(), "hinge: broadcast of a contiguous tensor from a rank, not ", root);
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  run("broadcast", [&] { return impl_->gloo->broadcast(tensors, options); });
  if (rank() == root) count((world() - 1) * tensor.numel() * static_cast<int64_t>(tensor.element_size()), world() - 1);
}

std::vector<std::string> ProcessGroup::all_gather_bytes(std::string_view own) {
  // Short ones, which are the rule, take one exchange: each rank's length and beginning.
  constexpr size_t kBegin = 1016;
  const size_t head = sizeof(int64_t), first = std::min(own.size(), kBegin);
  const at::Tensor mine = at::zeros({static_cast<int64_t>(head + kBegin)}, at::kByte);
  const auto size = static_cast<int64_t>(own.size());
  std::memcpy(mine.data_ptr<uint8_t>(), &size, head);
  std::memcpy(mine.data_ptr<uint8_t>() + head, own.data(), first);
  at::Tensor all = at::empty({world(), mine.numel()}, at::kByte);
  all_gather(mine, all);
  std::vector<std::string> texts;
  int64_t longest = 0;
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < world(); ++i) {
    const uint8_t* row = all.data_ptr<uint8_t>() + i * mine.numel();
    int64_t count = 0;
    std::memcpy(&count, row, head);
    texts.emplace_back(reinterpret_cast<const char*>(row) + head, std::min(static_cast<size_t>(count), kBegin));
    sizes.push_back(count);
    longest = std::max(longest, count);
  }
  const int64_t rest = longest - static_cast<int64_t>(kBegin);
  if (rest <= 0) return texts;
  const at::Tensor more = at::zeros({rest}, at::kByte);
  std::memcpy(more.data_ptr<uint8_t>(), own.data() + first, own.size() - first);
  at::Tensor all_more = at::empty({world(), rest}, at::kByte);
  all_gather(more, all_more);
  for (int64_t i = 0; i < world(); ++i) {
    std::string& text = texts[static_cast<size_t>(i)];
    text.append(reinterpret_cast<const char*>(all_more.data_ptr<uint8_t>() + i * rest),
                static_cast<size_t>(sizes[static_cast<size_t>(i)]) - text.size());
  }
  return texts;
}

std::string ProcessGroup::broadcast_bytes(std::string_view bytes, int root) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
  broadcast(size, root);
  at::Tensor content = at::empty({size.item<int64_t>()}, at::kByte);
  if (content.numel() == 0) return "";
  if (rank() == root) std::memcpy(content.data_ptr<uint8_t>(), bytes.data(), bytes.size());
  broadcast(content, root);
  return {reinterpret_cast<const char*>(content.data_ptr<uint8_t>()), static_cast<size_t>(content.numel())};
}

void ProcessGroup::fail(const std::string& reason) {
  impl_->rendezvous.fail(reason);
  impl_->waiting->note_loss();
}

void ProcessGroup::leave() {
  barrier();
  impl_->rendezvous.leave();
}

}  // namespace hinge::distributed
