// What follows a graph batch by batch, beside the engines: it may refuse a batch, and once it has not, it keeps up.
#pragma once

#include "livegnn/graph.h"

namespace livegnn {

class BatchFollower {
 public:
  virtual ~BatchFollower() = default;
  // The store holds the batch, nothing is published yet. Throws Error to have the batch taken back; changes nothing.
  virtual void check(const BatchDelta& delta) const = 0;
  // The batch stands. Fails only where memory ends.
  virtual void follow(const BatchDelta& delta, const UpdateBuffer& batch) = 0;
};

}  // namespace livegnn
