// How a job keeps its rate on cores that it shares with other threads, such as the spinning ones of torch:
//
// 1. A job ends when its indices are done. A worker that comes too late finds the job closed. A worker that holds the
//    last index is waited for, first by a short spin, then asleep, so that the worker can have this core.
// 2. Sleeping workers are woken only when the caller's first indices show that enough work is left.
// 3. A worker on the caller's core would only take its time: it moves to the other cores, where its short time slices
//    let it preempt a thread that spins. Before the caller sleeps, its core is open to all workers again.
// 4. Sharing has an account. A shared job pays in the time that it saved against the caller alone, or draws the time
//    that it lost; a job run alone pays in a small part of its time. While the account is in debt, jobs start alone,
//    and only a long one is shared. So in the long run sharing costs no more than that small part.
#include "util/thread_pool.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace livegnn {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kWorthWaking = 40'000;                   // ns of work left from which on a sleeper is woken
constexpr std::int64_t kLongAlone = 1'000'000;                  // ns after which even a debtor's job is shared
constexpr std::int64_t kSpinLeast = 2'000, kSpinMost = 50'000;  // ns that the caller spins for the last index

std::atomic<unsigned> forks{0};  // by fork(); what makes processes without its handlers is not counted
[[maybe_unused]] const int counted = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

// ---- cores; where the system does not name them, every thread is on none and may go anywhere

constexpr int kNoCore = -1;

int this_core() {
#if defined(__linux__)
  return ::sched_getcpu();
#else
  return kNoCore;
#endif
}

#if defined(__linux__)
using Cores = cpu_set_t;

Cores allowed_cores() {
  Cores cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof(cores), &cores);
  return cores;
}

void keep_to(pthread_t thread, const Cores& cores) { ::pthread_setaffinity_np(thread, sizeof(cores), &cores); }

// Whether any of the cores is another one than `core`; these go to *others.
bool without(const Cores& cores, int core, Cores* others) {
  *others = cores;
  if (core < 0 || core >= CPU_SETSIZE) return false;
  CPU_CLR(static_cast<std::size_t>(core), others);
  return CPU_COUNT(others) > 0;
}
#endif

// Linux 6.12 and later lets a thread that wakes up preempt one with a longer time slice. The thread's share of the core
// and its scheduling policy stay what they are: a process may run as batch or idle. Earlier kernels ignore the request.
void ask_for_short_slices() {
#if defined(__linux__) && defined(SYS_sched_setattr)
  struct {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } attributes{};
  constexpr std::uint64_t kKeepPolicy = 0x08;  // SCHED_FLAG_KEEP_POLICY; not in all headers
  attributes.size = sizeof(attributes);
  attributes.flags = kKeepPolicy;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = 100'000;  // ns, the least that Linux grants
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

}  // namespace

class ThreadPool::Crew {
 public:
  Crew(int threads, Spin spin)
      : spin_(spin), forks_(forks.load(std::memory_order_relaxed)), cores_known_(this_core() != kNoCore) {
    threads_->reserve(static_cast<std::size_t>(threads));
    try {
      for (int thread = 1; thread < threads; ++thread) threads_->emplace_back([this, thread] { work(thread); });
    } catch (const std::exception&) {  // the system gives no more: the others do all of it
    }
  }

  ~Crew() {
    if (is_forked()) {  // handles of threads that are not here: not to be joined or detached
      static_cast<void>(threads_.release());
      return;
    }
    stop_ = true;
    ++job_;
    job_.notify_all();
    for (std::thread& thread : *threads_) thread.join();
  }

  void run(std::int64_t count, const Task& task) {
    count_ = count;
    task_ = &task;
    failure_ = nullptr;
    failed_ = false;
    next_ = 0;
    caller_core_.store(this_core(), std::memory_order_relaxed);
    inside_.store(0, std::memory_order_release);  // open
    lead();
    if (failure_) std::rethrow_exception(failure_);
  }

  int workers() const { return static_cast<int>(threads_->size()); }
  bool is_forked() const { return forks_ != forks.load(std::memory_order_relaxed); }

 private:
  static constexpr int kClosed = -1;
  // The caller's part of a job: its indices, when the workers come in, and what sharing was worth.
  void lead() {
    const std::int64_t begun = now_ns(), threads = workers() + 1;
    bool shared = account_.solvent(), woken = false;
    std::int64_t done = 0, signalling = 0, moment = begun;
    const auto wake = [&] {
      if (sleepers_.load() > 0) job_.notify_all();
      woken = true;
      const std::int64_t after = now_ns();
      signalling += after - moment;
      moment = after;
    };
    if (shared) {
      ++job_;
      if (count_ <= threads) wake();
    }
    try {
      while (!failed_.load(std::memory_order_relaxed)) {
        const std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
        if (index >= count_) break;
        (*task_)(index, 0);
        ++done;
        if (woken) continue;
        moment = now_ns();
        const std::int64_t spent = moment - begun, left = count_ - index - 1;
        if (!shared && spent > kLongAlone && left > 0) {
          shared = true;
          ++job_;
        }
        if (shared && left > 1 && left * (spent / done) > kWorthWaking) wake();
      }
    } catch (...) {
      fail();
    }
    const std::int64_t busy = now_ns() - begun - signalling;
    close(done > 0 ? std::clamp(2 * busy / done, kSpinLeast, kSpinMost) : kSpinMost);
    if (!shared) {
      account_.alone(busy);
    } else if (done > 0) {
      account_.shared(busy * count_ / done, now_ns() - begun);
    }
  }

  void close(std::int64_t spin_ns) {
    int open = 0;
    if (inside_.compare_exchange_strong(open, kClosed, std::memory_order_acq_rel)) return;
    const std::int64_t until = now_ns() + spin_ns;
    bool sleeps = false;
    for (open = 0; !inside_.compare_exchange_strong(open, kClosed, std::memory_order_acq_rel); open = 0) {
      if (sleeps) {
        inside_.wait(open, std::memory_order_acquire);
        continue;
      }
      for (int i = 0; i < 16; ++i) relax();
      sleeps = now_ns() > until;
      if (sleeps) let_anywhere();
    }
  }

  void fail() {
    std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
    failed_ = true;
  }

  void work(int thread) {
    ask_for_short_slices();
    std::uint32_t seen = 0;
    for (;;) {
      const auto until = Clock::now() + spin_;
      while (job_.load(std::memory_order_acquire) == seen && !stop_.load(std::memory_order_relaxed)) {
        for (int i = 0; i < 32; ++i) relax();
        if (Clock::now() > until || crowds_caller()) {
          ++sleepers_;
          job_.wait(seen);
          --sleepers_;
        }
      }
      if (stop_) return;
      seen = job_.load(std::memory_order_acquire);
      if (!enter()) continue;
      drain(thread);
      if (inside_.fetch_sub(1, std::memory_order_acq_rel) == 1) inside_.notify_one();
    }
  }

  bool enter() {
    int inside = inside_.load(std::memory_order_acquire);
    while (inside != kClosed) {
      if (inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  void drain(int thread) {
    try {
      while (!failed_.load(std::memory_order_relaxed)) {
        if (crowds_caller()) make_way();
        const std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
        if (index >= count_) return;
        (*task_)(index, thread);
      }
    } catch (...) {
      fail();
    }
  }

  bool crowds_caller() const { return cores_known_ && this_core() == caller_core_.load(std::memory_order_relaxed); }
  // Moves this worker to the other cores.
  void make_way() {
#if defined(__linux__)
    Cores others;
    if (!without(allowed_, caller_core_.load(std::memory_order_relaxed), &others)) return;
    kept_away_.store(true);
    keep_to(::pthread_self(), others);
#endif
  }

  // Before the caller sleeps: its core is free for the workers that it waits for.
  void let_anywhere() {
#if defined(__linux__)
    if (!kept_away_.exchange(false)) return;
    for (std::thread& thread : *threads_) keep_to(thread.native_handle(), allowed_);
#endif
  }

  const Spin spin_;
  const unsigned forks_;  // of this process and those before it, when the workers were started
  std::unique_ptr<std::vector<std::thread>> threads_ = std::make_unique<std::vector<std::thread>>();
  const bool cores_known_;
#if defined(__linux__)
  const Cores allowed_ = allowed_cores();
#endif
  std::atomic<int> caller_core_{kNoCore};
  std::atomic<std::uint32_t> job_{0};  // number of the job announced last; sleeping workers wait for a change
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> inside_{kClosed};  // workers in the current job; the caller closes it when all indices are done
  std::atomic<int> sleepers_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> kept_away_{false};  // whether workers keep to other cores than the caller's
  std::int64_t count_ = 0;
  const Task* task_ = nullptr;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  SharingAccount account_;
};

ThreadPool::ThreadPool(int threads, Spin spin) : crew_(std::make_unique<Crew>(threads, spin)) {}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return crew_->workers() + 1; }

void ThreadPool::run(std::int64_t count, const Task& task) {
  if (crew_->workers() == 0 || count <= 1 || crew_->is_forked()) {
    for (std::int64_t index = 0; index < count; ++index) task(index, 0);
    return;
  }
  crew_->run(count, task);
}

}  // namespace livegnn
