// Everything an engine keeps per vertex: aggregates, stored rows (messages among them), degree contexts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dense/kernels.h"
#include "inference/contexts.h"
#include "inference/stored_rows.h"
#include "livegnn/program.h"
#include "util/aligned.h"

namespace livegnn {

// Powers of two per column. A message x is kept as round(x * up); `limit` is the largest |x * up| and, with at most
// degree_max in-edges, no sum can leave 62 bits.
struct Scales {
  std::vector<float> up, down;
  std::vector<int> exponents;
};

inline constexpr int kSumBits = 62;
inline constexpr int kHeadroomBits = 9;  // a message may grow 512-fold over the largest of the first run
inline constexpr int kFloorBits = 6;     // a column's largest is taken as at least 1/64 of the layer's

template <typename Acc>
struct State {
  std::vector<RowTable<Acc>> aggregates;  // one per aggregation
  std::vector<StoredRows> stored;         // one per stored row kind
  std::vector<DegreeContext> contexts;

  State(const Program& program, bool compact) {
    for (const AggregationSpec& spec : program.aggregations) aggregates.emplace_back(round_up(spec.width, 8));
    for (const StoredSpec& spec : program.stored) stored.emplace_back(round_up(spec.width, 16), !compact);
    for (const ContextSpec& spec : program.contexts) contexts.emplace_back(spec);
  }
  void release_rows() {  // of a compact state
    for (StoredRows& rows : stored) rows.release();
  }
  void reserve(std::int64_t slots) {
    for (auto& table : aggregates) table.reserve(slots);
    for (auto& table : stored) table.reserve(slots);
    for (auto& context : contexts) context.reserve(slots);
  }
};

}  // namespace livegnn
