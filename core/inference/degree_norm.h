// Degree norms of GCN-like layers: d_v, the self-loop weight L_v and the factor s_v = d_v^-1/2. d_v is of in-edges
// or, in Laplacians, of out-edges; there s_v may be 1 / d_v, or 1 with L_v = -d_v. Of sums over filled self-loops
// s_v = 1. Reversed, all edges are turned round.
//
// d_v is kept in 128-bit fixed point (units of 2^-64), so that adding and removing weights accumulates no rounding
// error.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "inference/vertex_lists.h"
#include "livegnn/detail/prefetch.h"
#include "livegnn/graph.h"
#include "livegnn/halo.h"
#include "livegnn/program.h"

namespace livegnn {

inline bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

class DegreeNorm {
 public:
  explicit DegreeNorm(const DegreeNormSpec& spec) : spec_(spec) {}

  void leave_out(const Halo* halo) { halo_ = halo; }  // its ghosts have the factors that their owners send
  void adopt(VertexId v, float scale);                // a ghost's, after update()
  void put(VertexId v, float scale) { factors_[at(v)].scale = scale; }  // the same from scratch

  void reserve(std::int64_t slots);
  void rebuild(const GraphStore& graph, VertexId first, VertexId last);  // from scratch for slots in [first, last)

  // Brings the norm up to date with a batch; afterwards changed() lists vertices whose s or L has other bits.
  void update(const GraphStore& graph, const BatchDelta& delta, VertexId slots_before);
  void restore();                                         // undoes the latest update, bit for bit
  void check(const GraphStore& graph, VertexId v) const;  // throws where v has no degree in the graph as it is
  bool weighted() const { return spec_.weighted; }
  bool outgoing() const { return spec_.outgoing; }
  float share_max(float weight_max) const;  // of out-edges: the largest |w_uv s_u|, whatever the degrees
  // Whose degree the edge is in.
  VertexId owner(const EdgeRecord& edge) const { return counts_out_lists() ? edge.src : edge.dst; }
  void forget();  // there is nothing to restore
  const std::vector<VertexId>& changed() const { return changed_; }
  template <typename Visit>
  void visit_before(Visit&& visit) const {  // visit(v, s, L): as they were before the latest update, where it looked
    for (const Before& before : before_) visit(before.vertex, before.scale, before.loop);
  }

  float scale(VertexId v) const { return factors_[at(v)].scale; }
  // Of a norm without weights and loops: its in-edges.
  std::int32_t edges(VertexId v) const { return static_cast<std::int32_t>(sum_[at(v)] >> 64); }
  std::int32_t edges_before(VertexId v) const {
    return touched(v) ? static_cast<std::int32_t>(before_[factors_[at(v)].slot].degree >> 64) : edges(v);
  }
  float loop(VertexId v) const { return factors_[at(v)].loop; }
  float scale_before(VertexId v) const { return touched(v) ? before_[factors_[at(v)].slot].scale : scale(v); }
  float loop_before(VertexId v) const { return touched(v) ? before_[factors_[at(v)].slot].loop : loop(v); }
  void prefetch(VertexId v) const { prefetch_line(&factors_[at(v)]); }
  std::size_t bytes() const;
  std::uint64_t digest_row(VertexId v) const;
  bool equal_row(const DegreeNorm& other, VertexId v) const;

 private:
  __extension__ typedef __int128 Fixed;
  struct Before {
    VertexId vertex;
    Fixed degree;
    float scale, loop;
  };
  static Fixed fixed(float weight);
  Fixed share(float weight, VertexId v) const;  // of an edge in v's degree
  bool counts_out_lists() const { return spec_.outgoing != spec_.reversed; }
  bool skips_loops() const { return spec_.self_loops || spec_.outgoing; }
  struct Factors {  // what a row needs of its vertex, side by side
    float scale = 0.0f, loop = 0.0f;
    std::uint32_t mark = 0, slot = 0;  // into before_, where the mark is this epoch's
  };
  bool touched(VertexId v) const { return factors_[at(v)].mark == epoch_; }
  void next_epoch();
  void touch(VertexId v);
  void count(const EdgeRecord& edge, float weight, int sign);
  float loop_weight(const GraphStore& graph, VertexId v) const;
  Fixed sum_of(const GraphStore& graph, VertexId v) const;
  void refuse_negative(Fixed degree, VertexId v) const;
  void finish(const GraphStore& graph, VertexId v);  // loop, degree, scale from the edges' sum

  bool is_ghost(VertexId v) const { return halo_ != nullptr && halo_->is_ghost(v); }

  DegreeNormSpec spec_;
  const Halo* halo_ = nullptr;
  std::vector<Fixed> sum_;  // of the weights that count
  std::vector<Factors> factors_;
  std::vector<Before> before_;
  std::vector<VertexId> changed_;
  std::uint32_t epoch_ = 1;
};

}  // namespace livegnn
