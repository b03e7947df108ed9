// Start here for pre-sampling (Helios, sections 4 and 5): one table of samples per one-hop query, kept up to date by
// batches, read by whole versions. docs/sampling.md has the definitions and the costs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "livegnn/follower.h"
#include "livegnn/graph.h"
#include "livegnn/types.h"

namespace livegnn {

enum class SampleBy : std::uint8_t { Random, TopK, Weighted };
enum class HopDirection : std::uint8_t { Out, In, Both };
inline constexpr std::int32_t kAnyType = -1;
inline constexpr std::int32_t kFanoutMax = 65535;

// A one-hop query: for each vertex, the first fanout of its edges in the order that `by` gives.
struct OneHop {
  std::int32_t hop = 1;  // counts from 1; part of every random rank
  std::int32_t edge_type = kAnyType;
  HopDirection direction = HopDirection::Out;
  SampleBy by = SampleBy::Random;
  std::int32_t fanout = 1;
  EdgeTime ttl = 0;  // edges of age ttl and more are no candidates; 0: none expire
  friend bool operator==(const OneHop&, const OneHop&) = default;
};

// The columns of edges that samples carry.
struct EdgeColumns {
  bool weight = false;
  bool time = false;
  std::int32_t attr_width = 0;
  std::int32_t words() const { return (weight ? 1 : 0) + (time ? 2 : 0) + attr_width; }  // of 32 bits, per edge
};
EdgeColumns edge_columns_of(const GraphOptions& graph);

// Where the values of one edge go, of the columns that are asked for.
struct EdgeValues {
  float* weight;
  EdgeTime* time;
  float* attr;
};

struct SamplingOptions {
  std::uint64_t seed = 0;
  int threads = 1;
  bool features = true;        // keep a copy of the features for readers
  bool track_changes = false;  // remember which rows each batch changed, for subscriptions
  bool edge_data = false;      // keep a copy of the edges' columns for readers
};

// Which vertices a worker owns: hash(v) falls into one of kBuckets, and owned[bucket] says. Empty: all.
inline constexpr int kBuckets = 1024;
int bucket_of(VertexId v);

// What one query is answered from: tables, in order of hops, and what to fill. Level 0 is the seeds.
struct SampleRequest {
  std::span<const std::int32_t> tables;
  std::span<const std::int64_t> seeds;
  std::vector<std::int64_t*> vertices;  // per hop: count(seeds) * fanout_1 * ... values, -1 where there are fewer
  std::vector<std::int64_t*> edge_ids;  // the same, or empty; reservoirs find columns by them
  std::vector<float*> features;         // per level, rows of widths[level] floats, zero for -1; or empty
  std::vector<std::int32_t> widths;
  EdgeColumns edge_columns{};  // for each of them a vector below has a pointer per hop, zeros where there are fewer
  std::vector<float*> edge_weights{};
  std::vector<EdgeTime*> edge_times{};
  std::vector<float*> edge_attrs{};  // rows of attr_width
  EdgeValues edge_values(std::size_t hop, std::int64_t place) const {
    return {edge_columns.weight ? edge_weights[hop] + place : nullptr,
            edge_columns.time ? edge_times[hop] + place : nullptr,
            edge_columns.attr_width > 0 ? edge_attrs[hop] + place * edge_columns.attr_width : nullptr};
  }
};

struct SamplingStats {        // bytes, and a count
  std::size_t rows_live;      // rows that readers can see
  std::size_t rows_reserved;  // places of freed rows, ends of chunks
  std::size_t pointers;       // per vertex and table
  std::size_t features;
  std::size_t edges;     // copied columns
  std::size_t expiry;    // the calendar of what expires when
  std::int64_t refills;  // rows filled again by a scan, since the start
};

// One changed sample, as subscriptions need it: the first fanout entries before and after.
struct SampleView {
  std::span<const VertexId> neighbours;
  std::span<const EdgeId> edge_ids;
};
struct SampleChange {
  VertexId vertex;
  SampleView before, after;
};

// The tables of all running queries over one graph. One writer (the graph's); any number of readers.
class Reservoirs final : public BatchFollower {
 public:
  Reservoirs(const GraphStore& graph, const SamplingOptions& options, std::vector<std::uint8_t> owned = {});
  ~Reservoirs() override;

  // ---- tables; the caller holds the graph's writer lock. Numbers are never used again.
  std::int32_t add_table(const OneHop& query);  // back-filled from the store; throws Error, then nothing has changed
  void drop_table(std::int32_t table);
  std::int32_t fanout(std::int32_t table) const;

  // ---- BatchFollower
  void check(const BatchDelta& delta) const override;  // throws Error: a negative weight in a weighted table
  void follow(const BatchDelta& delta, const UpdateBuffer& batch) override;

  // ---- reading, from any thread; returns the version that was read. Throws Error for a seed that is not live.
  std::int64_t sample(const SampleRequest& request);
  EdgeColumns edge_columns() const;  // that a sample can carry
  std::int64_t version() const;
  EdgeTime now() const;  // the largest time of any edge ever added; INT64_MIN before the first
  // Raises it: before any table is added, for a restored state, or right before a batch, for added edges not in it.
  void set_now(EdgeTime now);

  // ---- for subscriptions; of the latest batch, valid until the next
  std::vector<SampleChange> changes(std::int32_t table) const;  // by vertex; values of edges count as part of a sample
  const float* edge_row(EdgeId id) const;                       // edge_columns().words() words of a sampled edge
  SampleView view(std::int32_t table, VertexId v) const;

  SamplingStats stats() const;   // of the version
  std::uint64_t digest() const;  // order-free, of every sample; equal iff the samples are
  void check_invariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same answers computed when they are asked, from the store, by the caller's lock; throws Error likewise. It reads
// what it must: the ends of the time-ordered lists, one pass for the other strategies. sort_all: it collects and sorts
// all neighbours, as graph databases do (Helios, section 3.1).
void sample_ad_hoc(const GraphStore& graph, std::span<const OneHop> hops, std::uint64_t seed, EdgeTime now,
                   bool sort_all, const SampleRequest& request, int threads);

}  // namespace livegnn
