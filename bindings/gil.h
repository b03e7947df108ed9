// The release of Python's lock around native work.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <thread>

namespace livegnn {

/// Releases Python's lock for its scope. A daemon thread that wants the lock back while the interpreter ends stays
/// here, as in Python 3.14. Older versions end such a thread by unwinding its stack, and a frame that throws nothing,
/// as nanobind's are, turns that into an abort of the process.
class GilRelease {
 public:
  GilRelease() noexcept : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }

 private:
  PyThreadState* state_;
};

/// What the work gives, done without the lock.
template <typename Work>
auto without_gil(Work&& work) {
  const GilRelease release;
  return work();
}

}  // namespace livegnn
