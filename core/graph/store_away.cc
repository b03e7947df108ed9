// Copies of the edges that are away, for readers of whole lists: a store of its own, whose columns lie in files without
// names. A list is read as if all of it were in memory: its edges in the order of their keys, whichever store has them.
#include <algorithm>
#include <ranges>
#include <utility>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
using graph_memory::InFiles;

constexpr std::size_t kChunk = std::size_t{1} << 20;  // edges that are copied at once

EdgeKey key_at(const EdgeSpan& span, std::int32_t i) { return {span.times[i], span.ids[i]}; }

std::int32_t count_below(const EdgeSpan& span, const EdgeKey& key) {
  const auto places = std::views::iota(std::int32_t{0}, span.count);
  const auto below = [&](std::int32_t i) { return key_at(span, i) < key; };
  return static_cast<std::int32_t>(std::ranges::partition_point(places, below) - places.begin());
}

// The first edges of a span; what follows them stays in it.
EdgeSpan taken(EdgeSpan& span, std::int32_t count) {
  EdgeSpan first = span;
  first.count = count;
  const auto pass = [&](auto*& column) { column += column != nullptr ? count : 0; };
  pass(span.neighbours);
  pass(span.weights);
  pass(span.ids);
  pass(span.times);
  pass(span.types);
  span.count -= count;
  return first;
}

// What is left of a list, span by span.
class Rest {
 public:
  Rest(const Adjacency& lists, VertexId v) {
    lists.visit(v, [&](const EdgeSpan& span) { spans_.push_back(span); });
  }
  bool empty() const { return at_ == spans_.size(); }
  EdgeKey first() const { return key_at(spans_[at_], 0); }
  // Edges below a key, as far as they lie side by side; the first one is.
  EdgeSpan below(const EdgeKey& key) {
    const EdgeSpan found = taken(spans_[at_], count_below(spans_[at_], key));
    if (spans_[at_].count == 0) ++at_;
    return found;
  }
  EdgeSpan next() { return spans_[at_++]; }

 private:
  std::vector<EdgeSpan> spans_;
  std::size_t at_ = 0;
};
}  // namespace

// As a rule all that is away is older than all that is in memory; not where edges came late or are back.
void GraphStore::merge_copies(bool outgoing, VertexId v, const std::function<void(const EdgeSpan&)>& visit) const {
  const Adjacency& loaded = outgoing ? out_ : *in_;
  const Adjacency& away = outgoing ? away_->out_ : *away_->in_;
  if (loaded.count(v) == 0 || away.last_key(v) < loaded.key(loaded.first(v))) {
    away.visit(v, visit);
    return loaded.visit(v, visit);
  }
  Rest rests[2] = {{away, v}, {loaded, v}};
  while (!rests[0].empty() && !rests[1].empty()) {
    const int older = rests[0].first() < rests[1].first() ? 0 : 1;
    visit(rests[older].below(rests[1 - older].first()));
  }
  for (Rest& rest : rests) {
    while (!rest.empty()) visit(rest.next());
  }
}

EdgeEntry GraphStore::newest_edge(VertexId u, VertexId v, EdgeId id) const {
  const EdgeEntry loaded = find_edge(u, v, {.id = id});
  if (away_ == nullptr || offloaded_out(u) == 0 || offloaded_in(v) == 0) return loaded;
  const EdgeEntry away = away_->find_edge(u, v, {.id = id});
  return away.id > loaded.id ? away : loaded;
}

std::unique_ptr<GraphStore> GraphStore::empty_copies(const std::string& folder) const {
  GraphOptions options = options_;
  options.feature_width = 0;
  options.simple = false;
  options.type_widths.clear();
  options.edge_ends.clear();
  auto made = std::make_unique<GraphStore>(options);
  made->folder_ = folder;
  return made;
}

void GraphStore::insert_copies(const std::string& where, VertexId slots, const EdgeRun& run,
                               const std::function<const float*(std::size_t)>& attr) {
  const InFiles in_files(where, folder_);
  if (slots > slot_count_) resize_slots(slots);
  insert_edges(run, attr);
  scratch_->release_runs();
}

// Edges of another store, in any order.
void GraphStore::copy_from(const GraphStore& other, const std::string& where, EdgeRun& edges) {
  std::sort(edges.begin(), edges.end(), [](const EdgeRecord& a, const EdgeRecord& b) { return a.id < b.id; });
  insert_copies(where, other.slot_count_, edges, [&](std::size_t i) { return other.loaded_attr(edges[i].id); });
}

void GraphStore::copy_offloaded(const std::string& where, const std::string& folder,
                                const std::function<bool(EdgeColumnsView&)>& next) {
  std::unique_ptr<GraphStore> made = empty_copies(folder);
  const auto width = static_cast<std::size_t>(options_.attr_width);
  for (EdgeColumnsView edges; next(edges);) {
    checked_reload(edges);
    made->insert_copies(where, slot_count_, edges.run(), [&](std::size_t i) { return edges.attr.data() + i * width; });
  }
  if (!are_copies(*made)) {
    throw Error(ErrorKind::StateMismatch, {.where = where,
                                           .expected = "the edges that are away",
                                           .got = "others",
                                           .advice = "give the files that offload() wrote"});
  }
  away_ = std::move(made);
}

// Those that stay away when these ids come back.
std::unique_ptr<GraphStore> GraphStore::copies_without(std::span<const std::int64_t> ids) const {
  std::unique_ptr<GraphStore> made = empty_copies(away_->folder_);
  EdgeRun chunk;
  const auto flush = [&] {
    made->copy_from(*away_, "reload", chunk);
    chunk.clear();
  };
  away_->visit_loaded_edges([&](const EdgeRecord& edge) {
    if (std::binary_search(ids.begin(), ids.end(), edge.id)) return;
    chunk.push_back(edge);
    if (chunk.size() == kChunk) flush();
  });
  flush();
  return made;
}

bool GraphStore::are_copies(const GraphStore& away) const {
  if (away.edge_count_ != offloaded_.count) return false;
  for (VertexId v = 0; v < slot_count_; ++v) {
    const bool has = v < away.slot_count_;
    if ((has ? away.out_.count(v) : 0) != offloaded_out(v) || (has ? away.in_->count(v) : 0) != offloaded_in(v)) {
      return false;
    }
  }
  std::uint64_t digest = 0;
  away.visit_loaded_edges([&](const EdgeRecord& edge) { digest += edge_digest(edge, away.loaded_attr(edge.id)); });
  return digest == offloaded_.digest;
}

}  // namespace livegnn
