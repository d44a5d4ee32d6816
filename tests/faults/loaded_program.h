// hinge, loaded once and started often: its children begin where main() does (shim.cc). One at a time.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../cli/command.h"

namespace hinge::torture {

using Environment = std::vector<std::pair<std::string, std::string>>;

class LoadedProgram {
 public:
  LoadedProgram() {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) throw std::runtime_error("no sockets");
    server_ = ::fork();
    if (server_ == 0) {
      ::close(sockets[0]);
      ::setenv("LD_PRELOAD", HINGE_SHIM, 1);
      ::setenv("LD_BIND_NOW", "1", 1);  // once, not in each child
      ::setenv("HINGE_FORK_SERVER", std::to_string(sockets[1]).c_str(), 1);
      ::execl(HINGE_COMMAND, HINGE_COMMAND, static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(sockets[1]);
    socket_ = sockets[0];
  }
  ~LoadedProgram() {
    ::close(socket_);
    ::waitpid(server_, nullptr, 0);
  }
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  // As hinge_command::Process, and with variables.
  class Process {
   public:
    Process(LoadedProgram& program, std::string out, std::string err, const std::vector<std::string>& arguments,
            const Environment& environment = {})
        : program_(program), out_(std::move(out)), err_(std::move(err)) {
      std::string message = out_ + '\0' + err_ + '\0';
      for (const auto& [name, value] : environment) message += name + '=' + value + '\0';
      message += std::string(1, '\0') + HINGE_COMMAND + '\0';
      for (const std::string& word : arguments) message += word + '\0';
      if (::send(program_.socket_, message.data(), message.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error("the program has ended");
      id_ = program_.receive();
    }
    ~Process() {
      if (!ended_) send(SIGKILL), wait();
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    void send(int signal) const { ::kill(id_, signal); }
    bool ended() {
      pollfd ready{program_.socket_, POLLIN, 0};
      if (!ended_ && ::poll(&ready, 1, 0) > 0) status_ = program_.receive(), ended_ = true;
      return ended_;
    }
    hinge_command::Ended wait() {
      if (!ended_) status_ = program_.receive(), ended_ = true;
      return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, WIFSIGNALED(status_) ? WTERMSIG(status_) : 0, hinge_command::read_file(out_),
              hinge_command::read_file(err_)};
    }

   private:
    LoadedProgram& program_;
    std::string out_, err_;
    pid_t id_ = -1;
    int status_ = 0;
    bool ended_ = false;
  };

 private:
  int receive() const {
    int number = 0;
    if (::recv(socket_, &number, sizeof number, 0) != sizeof number) throw std::runtime_error("the program has ended");
    return number;
  }

  pid_t server_ = -1;
  int socket_ = -1;
};

}  // namespace hinge::torture
