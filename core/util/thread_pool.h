// The one thread pool of an engine, a sampler or a store. The caller works too; thread_pool.cc says how the pool keeps
// its rate on cores that it shares with other threads. A forked process has no workers: there the caller does all.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace livegnn {

// What sharing jobs has saved lately, in nanoseconds; in debt, jobs had better be run alone.
class SharingAccount {
 public:
  static constexpr std::int64_t kMost = 10'000'000, kLeast = -20'000'000;
  static constexpr std::int64_t kAloneShare = 32;  // time alone counts as savings by this part
  bool solvent() const { return balance_ >= 0; }
  void shared(std::int64_t alone_would_take, std::int64_t took) { add(alone_would_take - took); }
  void alone(std::int64_t took) { add(took / kAloneShare); }
  std::int64_t balance() const { return balance_; }

 private:
  void add(std::int64_t saved) { balance_ = std::clamp(balance_ + saved, kLeast, kMost); }
  std::int64_t balance_ = 0;
};

class ThreadPool {
 public:
  using Spin = std::chrono::microseconds;
  static constexpr Spin kSpin{100}, kNoSpin{0};         // none: where jobs are far apart, or others want the core
  explicit ThreadPool(int threads, Spin spin = kSpin);  // threads - 1 workers, or what there is
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Runs task(index, thread) for every index in [0, count), indices handed out in order as threads become free.
  // The first exception thrown by a task is rethrown here after all threads have stopped. Not re-entrant.
  using Task = std::function<void(std::int64_t index, int thread)>;
  void run(std::int64_t count, const Task& task);
  // work(part, begin, end) over [0, count) in one contiguous part per thread, in order.
  template <typename Work>
  void run_parts(std::int64_t count, Work&& work) {
    const std::int64_t parts = threads();
    run(parts, [&](std::int64_t part, int) {
      work(static_cast<std::size_t>(part), count * part / parts, count * (part + 1) / parts);
    });
  }
  // work(begin, end) over [0, count) in small pieces, taken by threads that are free.
  template <typename Work>
  void run_pieces(std::int64_t count, std::int64_t piece, Work&& work) {
    run((count + piece - 1) / piece,
        [&](std::int64_t at, int) { work(at * piece, std::min((at + 1) * piece, count)); });
  }

 private:
  class Crew;
  std::unique_ptr<Crew> crew_;
};

}  // namespace livegnn
