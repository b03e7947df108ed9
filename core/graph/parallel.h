// Short-lived threads for loading: no pool, no state.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace livegnn::graph_parallel {

// work(thread) for thread = 0 .. threads - 1; the first exception is thrown again here. Where the system gives no more
// threads, the caller does their work.
template <typename Work>
void run(int threads, Work&& work) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads));
  const auto guarded = [&](int thread) {
    try {
      work(thread);
    } catch (...) {
      failures[thread] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(threads));
  int started = 1;
  try {
    for (; started < threads; ++started) others.emplace_back(guarded, started);
  } catch (const std::system_error&) {
  }
  guarded(0);
  for (int thread = started; thread < threads; ++thread) guarded(thread);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// work(thread, begin, end) over [0, count) in one contiguous part per thread, in order.
template <typename Work>
void run_parts(int threads, std::int64_t count, Work&& work) {
  run(threads, [&](int thread) { work(thread, count * thread / threads, count * (thread + 1) / threads); });
}

// work(begin, end) over [0, count) in small pieces, taken by whoever is free.
template <typename Work>
void run_pieces(int threads, std::int64_t count, std::int64_t piece, Work&& work) {
  std::atomic<std::int64_t> next{0};
  run(threads, [&](int) {
    for (std::int64_t begin = next.fetch_add(piece); begin < count; begin = next.fetch_add(piece)) {
      work(begin, std::min(begin + piece, count));
    }
  });
}

}  // namespace livegnn::graph_parallel
