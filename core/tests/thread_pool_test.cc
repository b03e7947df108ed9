// Every index runs exactly once, failures come back to the caller, and the pool can be used again (run under TSan too).
#include "util/thread_pool.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
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
