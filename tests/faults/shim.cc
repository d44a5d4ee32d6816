// To be preloaded into a program whose system calls are to fail, whose clock is to jump, or which is to be loaded once and started often.
// Environment:
//   HINGE_FAULT_FOLDER  only calls on files below it count
//   HINGE_FAULT         "CALL K ERROR once" or "CALL K ERROR on": the K-th open, write, fsync, rename or mmap fails, or all from it on.
//                       ERROR is a number of errno; 0 is a short write: half of the bytes.
//   HINGE_FAULT_LOG     a file that gets a line for each call that counts
//   HINGE_CLOCK_JUMPS   seconds by which the time of day jumps, forth and back, at every look at it
//   HINGE_FORK_SERVER   a descriptor: main() is not called but in children, one for each message (loaded_program.h). Most of the time of a
//                       short run is that of loading LibTorch.
// The calls themselves are made directly: this has nothing of the C library's below it that could call it again.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

enum Call { kOpen, kWrite, kFsync, kRename, kMmap, kCalls };
constexpr const char* kNames[kCalls] = {"open", "write", "fsync", "rename", "mmap"};

struct Plan {
  const char* folder = std::getenv("HINGE_FAULT_FOLDER");
  const char* log = std::getenv("HINGE_FAULT_LOG");
  int call = -1, error = 0;
  long number = 0;
  bool on = false;

  Plan() {
    const char* text = std::getenv("HINGE_FAULT");
    char name[16] = "", how[16] = "";
    if (text == nullptr || std::sscanf(text, "%15s %ld %d %15s", name, &number, &error, how) != 4) return;
    for (int i = 0; i < kCalls; ++i)
      if (std::strcmp(name, kNames[i]) == 0) call = i;
    on = std::strcmp(how, "on") == 0;
  }
};

std::atomic<long> counts[kCalls];

Plan& plan() {
  static Plan plan;
  return plan;
}

// Whether the call is to fail; counts it if its file is below the folder.
bool fails(Call call, const char* path) {
  const Plan& now = plan();
  if (now.folder == nullptr || path == nullptr || std::strncmp(path, now.folder, std::strlen(now.folder)) != 0) return false;
  const long number = ++counts[call];
  if (now.log != nullptr) {
    char line[600];
    const int length = std::snprintf(line, sizeof line, "%s %ld %s\n", kNames[call], number, path);
    const long file = ::syscall(SYS_openat, AT_FDCWD, now.log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (file >= 0) ::syscall(SYS_write, file, line, length), ::syscall(SYS_close, file);
  }
  return now.call == call && (number == now.number || (now.on && number > now.number));
}

bool fails(Call call, int descriptor) {
  if (plan().folder == nullptr) return false;
  char link[40], path[512];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const long length = ::syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return fails(call, path);
}

int failed() {
  errno = plan().error;
  return -1;
}

int open_file(const char* path, int flags, mode_t mode) {
  if (fails(kOpen, path)) return failed();
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

// Forth at one look, back at the next.
time_t jump() {
  static const char* const text = std::getenv("HINGE_CLOCK_JUMPS");
  static std::atomic<unsigned> looks = 0;
  if (text == nullptr) return 0;
  return looks++ % 2 == 0 ? std::atol(text) : -std::atol(text);
}

// ---- a program that is loaded once

using Main = int (*)(int, char**, char**);
Main real_main = nullptr;

// In the child of a server: `words` are where its output goes, its variables up to an empty word, and its arguments.
[[noreturn]] void run(char* words, const char* end) {
  const auto next = [&] {
    char* const word = words;
    words += std::strlen(words) + 1;
    return word;
  };
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(::open(next(), O_WRONLY | O_CREAT | O_TRUNC, 0666), descriptor);
  for (char* variable = next(); *variable != '\0'; variable = next()) ::putenv(variable);
  char* arguments[64] = {};
  int count = 0;
  while (words < end && count < 63) arguments[count++] = next();
  plan() = Plan();
  const int code = real_main(count, arguments, environ);
  std::fflush(nullptr);
  ::_exit(code);  // LibTorch's destructors take half of the time of a short run
}

// For each message a child; the answers are its id and, once it has ended, its status.
int serve(int, char**, char**) {
  static char message[1 << 14];
  const int socket = std::atoi(std::getenv("HINGE_FORK_SERVER"));
  for (;;) {
    const ssize_t size = ::recv(socket, message, sizeof message, 0);
    if (size <= 0) std::_Exit(0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(socket);
      ::unsetenv("HINGE_FORK_SERVER");
      run(message, message + size);
    }
    int status = 0;
    if (child < 0 || ::send(socket, &child, sizeof child, 0) < 0 || ::waitpid(child, &status, 0) != child) std::_Exit(1);
    if (::send(socket, &status, sizeof status, 0) < 0) std::_Exit(0);
  }
}

}  // namespace

extern "C" {

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto start = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  real_main = main;
  return start(std::getenv("HINGE_FORK_SERVER") != nullptr ? &serve : main, argc, argv, init, fini, rtld_fini, stack_end);
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return open_file(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return open_file(path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  if (fails(kWrite, descriptor)) {
    if (plan().error != 0 || size < 2) return failed();
    size /= 2;
  }
  return ::syscall(SYS_write, descriptor, bytes, size);
}

int fsync(int descriptor) {
  if (fails(kFsync, descriptor)) return failed();
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  if (fails(kRename, to)) return failed();
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

void* mmap(void* address, size_t size, int protection, int flags, int descriptor, off_t offset) noexcept {
  if (descriptor >= 0 && fails(kMmap, descriptor)) {
    failed();
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
}

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  const long code = ::syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME && code == 0) now->tv_sec += jump();
  return static_cast<int>(code);
}

time_t time(time_t* now) noexcept {
  timespec exact{};
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now != nullptr) *now = exact.tv_sec;
  return exact.tv_sec;
}

int gettimeofday(struct timeval* now, void*) noexcept {
  timespec exact{};
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
}
