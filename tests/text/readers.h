// Readers of a text as threads that hand bytes over in memory.
#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "text/readers.h"

namespace hinge::text {

// Calls body(readers) on a thread for each of `count` readers; returns what each has thrown, "" for nothing.
inline std::vector<std::string> with_readers(int count, const std::function<void(const Readers&)>& body) {
  std::vector<std::string> given(static_cast<size_t>(count)), errors(given);
  std::barrier<> meeting(count);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      const auto all_gather = [&, rank](const std::string& own) {
        given[static_cast<size_t>(rank)] = own;
        meeting.arrive_and_wait();
        const std::vector<std::string> all = given;
        meeting.arrive_and_wait();
        return all;
      };
      try {
        body({rank, count, all_gather});
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
      meeting.arrive_and_drop();
    });
  threads.clear();
  return errors;
}

}  // namespace hinge::text
