// Start here for sampling back in time: targets (a vertex at a time) in, hops of sampled in-edges out, as flat arrays.
//
// docs/temporal-sampling.md has the definitions. A sample is a function of the graph, the options and the number of the
// call: random numbers are counted, not kept (core/temporal/draw.h), so threads and the store's layout do not show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "livegnn/follower.h"
#include "livegnn/graph.h"
#include "livegnn/types.h"

namespace livegnn {

enum class TemporalBy : std::uint8_t { Recent, Uniform };

struct TemporalOptions {
  std::vector<std::int32_t> fan_outs;  // by hop; -1: all
  TemporalBy by = TemporalBy::Recent;
  bool inclusive = false;                // edges at the target's own time are in its past
  std::int64_t window = 0;               // only edges that are at most so old; 0: all
  std::int32_t snapshots = 1;            // windows side by side, newest first; more than one need a window
  bool prop_time = false;                // later hops look from the root's time, not from their edge's
  bool replace = false;                  // uniform: with replacement
  bool unique = false;                   // the next hop's targets hold each new (vertex, time) once
  std::vector<std::int32_t> edge_types;  // only edges of these types; empty: all
  std::uint64_t seed = 0;
  int threads = 1;
};

// One allocation for all arrays of a hop. Freed ones are kept for the next call: fresh pages cost more than the sample.
class TemporalBuffers {
 public:
  struct Buffer {
    std::unique_ptr<std::int64_t[]> values;
    std::size_t capacity = 0;
  };
  Buffer take(std::size_t count);  // at least so many values, not set
  void give(Buffer buffer);        // from any thread

 private:
  static constexpr std::size_t kBuffersMax = 16;
  static constexpr std::size_t kValuesMax = std::size_t{1} << 25;  // of one buffer that is kept: 256 MiB
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

// The first row whose time is int64's smallest number, which stands for none; -1 where all have one.
std::ptrdiff_t row_without_time(std::span<const std::int64_t> times);

// One hop; the spans lie in `memory`, which goes back to the sampler's buffers by whoever holds the hop.
struct TemporalHopArrays {
  TemporalBuffers::Buffer memory;
  std::span<std::int64_t> targets, target_times;  // B: heads of next_targets and next_times where those begin so
  std::span<std::int64_t> ptr;                    // B + 1
  std::span<std::int64_t> src, edge_ids, times;   // E
  std::span<std::int64_t> edge_index;             // 2 E: rows of sources among the next targets, then rows of targets
  std::span<std::int64_t> next_targets, next_times;
  std::span<std::int64_t> next_types;  // of the vertices; empty in a graph without types
  std::span<std::int64_t> edge_types;  // E; empty in a graph whose edges have none
  std::span<float> weights;            // likewise
};

struct TemporalWalkArrays {
  std::vector<std::int64_t> vertices;         // B x (length + 1), -1 after the end
  std::vector<std::int64_t> edge_ids, times;  // B x length; -1 and 0 after the end; without times the target's own
};

// What a graph was at one version, for samplers, whatever is applied since. Holds what has gone: removed edges, old
// feature rows; and which edges and vertices are newer. Attached as a follower from its version on, and read under the
// graph's lock as the store is.
class TemporalPin final : public BatchFollower {
 public:
  explicit TemporalPin(const GraphStore& graph);
  ~TemporalPin() override;

  void check(const BatchDelta&) const override {}
  void follow(const BatchDelta& delta, const UpdateBuffer& batch) override;

  std::int64_t version() const { return version_; }
  EdgeId next_edge_id() const { return next_edge_id_; }  // edges from this id on came later
  bool is_live(std::int64_t v) const;                    // in the pinned version; any number may be asked for
  void read_features(VertexId v, float* out, std::int32_t width) const;  // of a vertex that is live in it
  const float* edge_attr(EdgeId id) const;           // attr_width floats, nullptr of an edge that was not there
  bool keeps_weights() const;                        // whether any edge weighs something else now
  bool keeps_rows() const;                           // whether rows of any vertex or edge have changed since
  bool keeps_row(std::int64_t id, bool edge) const;  // whether this one's has
  std::int32_t vertex_type(VertexId v) const;        // of a vertex that is live in it
  float weight(EdgeId id, float now) const;          // of an edge of it that weighs `now` in the store
  const EdgeEntry* removed(const EdgeKey& key, VertexId v) const;  // of v's in-edges; nullptr where none such has gone
  std::size_t bytes() const;                                       // held because of changes since

  struct Changes;                            // of one vertex's in-edges
  const Changes* changes(VertexId v) const;  // nullptr where there are none

 private:
  struct Impl;
  void follow_edges(const BatchDelta& delta);

  const GraphStore& graph_;
  std::int64_t version_;
  EdgeId next_edge_id_;
  std::unique_ptr<Impl> impl_;
};

// Weights of edges, each named by its destination, time and id, as the store has them, or a pinned version. Throws
// Error naming an edge that is not there.
void read_event_weights(const GraphStore& graph, std::span<const std::int64_t> dst, std::span<const std::int64_t> time,
                        std::span<const std::int64_t> ids, const TemporalPin* pin, float* out);

// Which hop of which call draws: all that its numbers are a function of, but for the seed and the row.
struct HopPlace {
  std::size_t hop = 0;
  std::uint64_t call = 0;
  std::int32_t snapshot = 0;
};

// One call at a time; the caller holds the graph's lock, and the store outlives the sampler.
class TemporalSampler {
 public:
  TemporalSampler(const GraphStore& graph, TemporalOptions options);
  ~TemporalSampler();

  // The hops of one snapshot, outermost target first. Throws Error for a target that is not live, naming its row.
  // pin: the version to read, nullptr for the store as it is.
  std::vector<TemporalHopArrays> sample(std::span<const std::int64_t> vertices, std::span<const std::int64_t> times,
                                        std::uint64_t call, std::int32_t snapshot, const TemporalPin* pin);
  // One hop for some of its targets: target i is row rows[i] of the whole hop, and is answered as that row would be.
  TemporalHopArrays sample_rows(std::span<const std::int64_t> vertices, std::span<const std::int64_t> times,
                                std::span<const std::int64_t> rows, const HopPlace& place);
  // Random walks back in time: each step to the source of an in-edge drawn uniformly from the past, at its time.
  TemporalWalkArrays walks(std::span<const std::int64_t> vertices, std::span<const std::int64_t> times,
                           std::int64_t length, std::uint64_t call, const TemporalPin* pin);
  const std::shared_ptr<TemporalBuffers>& buffers() const;
  const GraphStore& graph() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace livegnn
