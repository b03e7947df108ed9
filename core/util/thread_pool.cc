#include "util/thread_pool.h"

#include <pthread.h>

#include <exception>

namespace livegnn {

namespace {

std::atomic<unsigned> forks{0};  // by fork(); what makes processes without its handlers is not counted
[[maybe_unused]] const int counted = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

bool ThreadPool::is_forked() const { return forks_ != forks.load(std::memory_order_relaxed); }

ThreadPool::ThreadPool(int threads, Spin spin)
    : spin_(spin),
      forks_(forks.load(std::memory_order_relaxed)),
      workers_(std::make_unique<std::vector<std::thread>>()),
      wake_(std::make_unique<std::condition_variable>()) {
  workers_->reserve(static_cast<std::size_t>(threads));
  try {
    for (int thread = 1; thread < threads; ++thread) workers_->emplace_back([this, thread] { work(thread); });
  } catch (const std::exception&) {  // the system gives no more: the others do all of it
  }
}

ThreadPool::~ThreadPool() {
  if (is_forked()) {  // handles of threads that are not here: not to be joined, detached or woken
    static_cast<void>(workers_.release());
    static_cast<void>(wake_.release());
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_->notify_all();
  for (std::thread& worker : *workers_) worker.join();
}

void ThreadPool::run(std::int64_t count, const Task& task) {
  if (workers_->empty() || count <= 1 || is_forked()) {
    for (std::int64_t index = 0; index < count; ++index) task(index, 0);
    return;
  }
  count_ = count;
  task_ = &task;
  failure_ = nullptr;
  failed_ = false;
  next_ = 0;
  inside_.store(0, std::memory_order_release);  // open
  job_.fetch_add(1);
  if (sleepers_.load() > 0) {
    {
      std::lock_guard lock(mutex_);
    }  // a worker about to sleep is asleep, or has seen the job
    wake_->notify_all();
  }
  drain(0);
  for (int open = 0; !inside_.compare_exchange_weak(open, kClosed, std::memory_order_acq_rel); open = 0) relax();
  if (failure_) std::rethrow_exception(failure_);
}

bool ThreadPool::enter() {
  int inside = inside_.load(std::memory_order_acquire);
  while (inside != kClosed) {
    if (inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
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
    const auto until = std::chrono::steady_clock::now() + spin_;
    while (job_.load(std::memory_order_acquire) == seen && !stop_.load(std::memory_order_relaxed)) {
      for (int i = 0; i < 32; ++i) relax();
      if (std::chrono::steady_clock::now() > until) {
        std::unique_lock lock(mutex_);
        ++sleepers_;
        wake_->wait(lock, [&] { return job_.load() != seen || stop_; });
        --sleepers_;
      }
    }
    if (stop_) return;
    seen = job_.load(std::memory_order_acquire);
    if (!enter()) continue;
    drain(thread);
    inside_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace livegnn
