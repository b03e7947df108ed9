// Every index runs exactly once, failures come back to the caller, and the pool can be used again (run under TSan too).
#include "util/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "tests/check.h"

using namespace livegnn;

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

TEST(a_forked_process_works_alone_and_ends) {
  for (const bool asleep : {false, true}) {
    ThreadPool pool(2, asleep ? ThreadPool::kNoSpin : ThreadPool::kSpin);
    pool.run(10, [](std::int64_t, int) {});
    if (asleep) ::usleep(20000);
    const ::pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      int sum = 0;
      pool.run(100, [&](std::int64_t i, int) { sum += static_cast<int>(i); });
      pool.~ThreadPool();
      ::_exit(sum == 4950 ? 0 : 1);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

int main() { return livegnn::testing::run_all(); }
