// Every index runs exactly once, failures come back to the caller, and the pool can be used again (run under TSan too).
#include "util/thread_pool.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/check.h"

using namespace livegnn;

// ThreadSanitizer itself cannot follow threads that are made after a fork of a process with threads.
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadsAfterFork = false;
#else
constexpr bool kThreadsAfterFork = true;
#endif

TEST(every_index_runs_once_whatever_the_threads) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 300; ++round) {
      std::vector<int> hits(static_cast<std::size_t>(round), 0);
      pool.run(round, [&](std::int64_t i, int) { ++hits[static_cast<std::size_t>(i)]; });
      for (const int hit : hits) CHECK(hit == 1);
    }
  }
}

TEST(thread_numbers_are_below_the_count) {
  ThreadPool pool(3);
  std::atomic<bool> fine = true;
  pool.run(1000, [&](std::int64_t, int thread) {
    if (thread < 0 || thread >= 3) fine = false;
  });
  CHECK(fine);
}

#if defined(__linux__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(where_the_system_gives_no_more_threads_the_others_do_the_work) {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before;
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit tight = before;  // room for the stacks of a few
  tight.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
  CHECK(setrlimit(RLIMIT_AS, &tight) == 0);
  {
    ThreadPool pool(200);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(pool.threads() < 200);
    std::atomic<int> done = 0;
    pool.run(1000, [&](std::int64_t, int) { ++done; });
    CHECK(done == 1000);
  }
}
#endif

TEST(the_first_failure_is_rethrown_and_the_pool_goes_on) {
  ThreadPool pool(2);
  for (int round = 0; round < 50; ++round) {
    bool caught = false;
    try {
      pool.run(100, [](std::int64_t i, int) {
        if (i == 37) throw std::runtime_error("37");
      });
    } catch (const std::runtime_error&) {
      caught = true;
    }
    CHECK(caught);
    std::atomic<int> sum = 0;
    pool.run(100, [&](std::int64_t, int) { ++sum; });
    CHECK(sum == 100);
  }
}

TEST(an_account_in_debt_is_solvent_again_after_time_alone) {
  SharingAccount account;
  CHECK(account.solvent());
  account.shared(5'000'000, 3'000'000);  // saved 2 ms
  CHECK(account.balance() == 2'000'000);
  account.shared(1'000'000, 6'000'000);
  CHECK(account.balance() == -3'000'000);
  CHECK(!account.solvent());
  account.alone(3'000'000 * SharingAccount::kAloneShare - SharingAccount::kAloneShare);
  CHECK(!account.solvent());
  account.alone(SharingAccount::kAloneShare);
  CHECK(account.solvent());
}

TEST(an_account_forgets_what_is_long_ago) {
  SharingAccount account;
  for (int i = 0; i < 100; ++i) account.shared(10'000'000, 0);
  CHECK(account.balance() == SharingAccount::kMost);
  for (int i = 0; i < 100; ++i) account.shared(0, 10'000'000);
  CHECK(account.balance() == SharingAccount::kLeast);
}

// Every index once, whoever has the core: workers that sleep, that are late, or that share the caller's core.
TEST(jobs_are_done_beside_threads_that_never_sleep) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> spinners;
  for (unsigned i = 0; i < std::max(2u, std::thread::hardware_concurrency()); ++i) {
    spinners.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  ThreadPool pool(3, ThreadPool::Spin{20});
  bool fine = true;
  for (int round = 0; round < 200; ++round) {
    std::vector<int> hits(40, 0);
    std::atomic<std::int64_t> sink = 0;
    pool.run(40, [&](std::int64_t i, int) {
      ++hits[static_cast<std::size_t>(i)];
      for (int k = 0; k < 2000; ++k) sink.fetch_add(k, std::memory_order_relaxed);
    });
    for (const int hit : hits) fine &= hit == 1;
  }
  stop = true;
  for (std::thread& spinner : spinners) spinner.join();
  CHECK(fine);
}

#if defined(__linux__)
TEST(workers_go_nowhere_that_their_process_may_not) {
  cpu_set_t all, one;
  CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
  const int core = sched_getcpu();
  {
    ThreadPool pool(2);
    std::atomic<bool> fine = true;
    for (int round = 0; round < 300; ++round) {
      pool.run(8, [&](std::int64_t, int) {
        if (sched_getcpu() != core) fine = false;
      });
      if (round % 50 == 0) ::usleep(500);  // until the worker sleeps
    }
    CHECK(fine);
  }
  CHECK(sched_setaffinity(0, sizeof(all), &all) == 0);
}
// The caller's policy says how much of the cores the process may take; a worker that ran by another would take more.
TEST(workers_keep_the_policy_of_their_process) {
  sched_param none{};
  CHECK(sched_setscheduler(0, SCHED_BATCH, &none) == 0);
  {
    ThreadPool pool(2);
    std::atomic<int> by_worker = 0;
    std::atomic<bool> fine = true;
    for (int round = 0; round < 2000 && by_worker == 0; ++round) {
      pool.run(8, [&](std::int64_t, int thread) {
        if (thread > 0) ++by_worker;
        if (sched_getscheduler(0) != SCHED_BATCH) fine = false;
        ::usleep(100);  // so that the worker gets its share
      });
    }
    CHECK(by_worker > 0);
    CHECK(fine);
  }
  CHECK(sched_setscheduler(0, SCHED_OTHER, &none) == 0);
}
#endif

// The child makes a pool of its own, too: its threads may get the handles of those that stayed behind.
TEST(a_forked_process_works_alone_and_ends) {
  for (int round = 0; round < 60; ++round) {
    ThreadPool pool(2 + round % 3, round % 2 == 0 ? ThreadPool::kNoSpin : ThreadPool::kSpin);
    pool.run(10, [](std::int64_t, int) {});
    if (round % 4 == 0) ::usleep(2000);  // else while workers are about to sleep
    const ::pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      std::int64_t sum = 0;
      for (int job = 0; job < 3; ++job) pool.run(100, [&](std::int64_t i, int) { sum += i; });
      {
        ThreadPool own(kThreadsAfterFork ? 4 : 1);
        std::atomic<int> hits = 0;
        own.run(100, [&](std::int64_t, int) { ++hits; });
        pool.~ThreadPool();
        if (hits != 100) ::_exit(2);
      }
      ::_exit(sum == 3 * 4950 ? 0 : 1);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

int main() { return livegnn::testing::run_all(); }
