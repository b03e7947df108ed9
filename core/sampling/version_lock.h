// Readers of one version beside a writer that replaces it: shared and exclusive, and a waiting writer goes first, so
// that a stream of readers cannot hold a batch back for ever.
#pragma once

#include <mutex>
#include <shared_mutex>

namespace livegnn {

class VersionLock {
 public:
  void lock_shared() {
    {
      const std::lock_guard wait(turn_);
    }
    lock_.lock_shared();
  }
  void unlock_shared() { lock_.unlock_shared(); }
  void lock() {
    turn_.lock();
    lock_.lock();
  }
  void unlock() {
    lock_.unlock();
    turn_.unlock();
  }

 private:
  std::mutex turn_;  // held by the writer, from when it starts to wait
  std::shared_mutex lock_;
};

}  // namespace livegnn
