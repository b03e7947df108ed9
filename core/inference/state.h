// Everything an engine keeps per vertex: aggregates, stored rows (messages among them), degree norms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inference/degree_norm.h"
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

struct State {
  std::vector<RowTable<std::int64_t>> aggregates;  // one per aggregation
  std::vector<StoredRows> stored;                  // one per stored row kind
  std::vector<DegreeNorm> norms;

  // strides: of aggregates, in int64 words; pager: where rows need not all be in memory; pin: those of the vertices
  // that it ranks first stay there
  State(const Program& program, const std::vector<int>& strides, bool compact, Pager* pager, bool pin) {
    const Rows rows = pin ? Rows::KeptByVertex : Rows::ByVertex;
    for (const int stride : strides) aggregates.emplace_back(stride, pager, rows);
    for (const StoredSpec& spec : program.stored) stored.emplace_back(round_up(spec.width, 16), !compact, pager, pin);
    for (const DegreeNormSpec& spec : program.contexts) norms.emplace_back(spec);
  }
  void fetch(std::int64_t first, std::int64_t last) const {  // all rows of a pass over these vertices
    for (const auto& table : aggregates) table.fetch(first, last);
    for (const auto& table : stored) table.fetch(first, last);
  }
  void release_rows() {  // of a compact state
    for (StoredRows& rows : stored) rows.release();
  }
  void reserve(std::int64_t slots) {
    for (auto& table : aggregates) table.reserve(slots);
    for (auto& table : stored) table.reserve(slots);
    for (auto& norm : norms) norm.reserve(slots);
  }
};

}  // namespace livegnn
