#include "util/thread_pool.h"

#include <chrono>
#include <exception>

namespace livegnn {

namespace {

constexpr auto kSpin = std::chrono::microseconds(60);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t count, const Task& task) {
  if (workers_.empty() || count <= 1) {
    for (std::int64_t index = 0; index < count; ++index) task(index, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    count_ = count;
    task_ = &task;
    failure_ = nullptr;
    failed_ = false;
    next_ = 0;
    busy_ = static_cast<int>(workers_.size());
    job_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  drain(0);
  while (busy_.load(std::memory_order_acquire) != 0) relax();
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::drain(int thread) {
  try {
    while (!failed_.load(std::memory_order_relaxed)) {
      const std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) return;
      (*task_)(index, thread);
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    failed_ = true;
  }
}

void ThreadPool::work(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    while (job_.load(std::memory_order_acquire) == seen && !stop_.load(std::memory_order_relaxed)) {
      for (int i = 0; i < 32; ++i) relax();
      if (std::chrono::steady_clock::now() > until) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return job_.load(std::memory_order_acquire) != seen || stop_; });
      }
    }
    if (stop_) return;
    seen = job_.load(std::memory_order_acquire);
    drain(thread);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace livegnn
