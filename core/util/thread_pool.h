// The one thread pool of an engine, a sampler or a store. The caller works too; workers spin briefly between jobs, then
// sleep. A job ends when its indices are done: a worker that wakes too late finds it closed. A forked process has no
// workers: there the caller does all of it, and touches nothing that they share, whose state is anybody's guess.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace livegnn {

class ThreadPool {
 public:
  using Spin = std::chrono::microseconds;
  static constexpr Spin kSpin{100}, kNoSpin{0};  // none: where jobs are far apart, or others want the core
  explicit ThreadPool(int threads,
                      Spin spin = kSpin);  // threads - 1 workers, or what there is
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_->size()) + 1; }

  // Runs task(index, thread) for every index in [0, count), indices handed out in order as threads become free.
  // The first exception thrown by a task is rethrown here after all threads have stopped. Not re-entrant.
  using Task = std::function<void(std::int64_t index, int thread)>;
  void run(std::int64_t count, const Task& task);

 private:
  static constexpr int kClosed = -1;
  void work(int thread);
  bool enter();
  bool is_forked() const;
  void drain(int thread);

  const Spin spin_;
  const unsigned forks_;  // of this process and those before it, when the workers were started
  std::unique_ptr<std::vector<std::thread>> workers_;
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> wake_;
  std::atomic<std::uint64_t> job_{0};  // number of the current job; a change wakes the workers
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> inside_{kClosed};  // workers in the current job; the caller closes it when all indices are done,
  std::atomic<int> sleepers_{0};      // so that it never waits for a worker that is still waking up
  std::int64_t count_ = 0;
  const Task* task_ = nullptr;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> stop_{false};
};

}  // namespace livegnn
