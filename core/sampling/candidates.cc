#include "sampling/candidates.h"

#include <algorithm>
#include <string>

#include "livegnn/error.h"

namespace livegnn {

EdgeTime Candidates::horizon(EdgeTime now) const {
  if (!timed() || now == INT64_MIN || now < INT64_MIN + query_.ttl) return INT64_MIN;
  return now - query_.ttl;
}

void check_sample_weight(const EdgeRecord& edge, float weight, WeightOf of) {
  if (weight >= 0.0f) return;
  throw Error(
      ErrorKind::ValueInvalid,
      {.where = of == WeightOf::Read ? "sample" : "apply",
       .expected = "weights of at least 0 for a weighted sample",
       .got = std::to_string(weight) + " for edge " + std::to_string(edge.src) + " -> " + std::to_string(edge.dst) +
              (of == WeightOf::Added ? "" : " (edge id " + std::to_string(edge.id) + ")"),
       .advice = "correct the weight",
       .edge = {{edge.src, edge.dst}}});
}

void Candidates::check_weight(const EdgeRecord& edge, float weight, WeightOf of) const {
  if (query_.by == SampleBy::Weighted && of_type(edge)) check_sample_weight(edge, weight, of);
}

template <typename Visitor>
void Candidates::visit_lists(VertexId v, Visitor&& visitor) const {
  const bool one_way = graph_.options().undirected;
  if (one_way || query_.direction != HopDirection::In) {
    graph_.visit_out(v, [&](const EdgeSpan& span) { visitor(Listed{span, false}); });
  }
  if (!one_way && query_.direction != HopDirection::Out) {
    graph_.visit_in(v, [&](const EdgeSpan& span) { visitor(Listed{span, true}); });
  }
}

// visitor(entry) if the edge at this place is a candidate; returns whether it is.
template <typename Visitor>
bool Candidates::visit_place(VertexId v, const Listed& listed, std::int32_t at, EdgeTime horizon,
                             Visitor&& visitor) const {
  const EdgeSpan& span = listed.span;
  EdgeRecord edge{v, span.neighbours[at], 1.0f, 0, span.ids[at], 0};
  if (listed.incoming) std::swap(edge.src, edge.dst);
  if (span.weights != nullptr) edge.weight = span.weights[at];
  if (span.types != nullptr) edge.type = span.types[at];
  if (span.times != nullptr) edge.time = span.times[at];
  check_weight(edge, edge.weight, WeightOf::Read);
  if (!matches(edge, horizon)) return false;
  if (listed.incoming && query_.direction == HopDirection::Both && edge.src == edge.dst) return false;
  visitor(entry_of(edge, span.neighbours[at]));
  return true;
}

void Candidates::trim(std::vector<RowEntry>& found, std::int32_t limit) const {
  if (found.size() <= static_cast<std::size_t>(limit)) return;
  std::nth_element(found.begin(), found.begin() + limit - 1, found.end(),
                   [&](const RowEntry& a, const RowEntry& b) { return before(a, b); });
  found.resize(static_cast<std::size_t>(limit));
}

void Candidates::sort(std::vector<RowEntry>& found) const {
  std::sort(found.begin(), found.end(), [&](const RowEntry& a, const RowEntry& b) { return before(a, b); });
}

bool Candidates::scan_all(VertexId v, EdgeTime horizon, std::int32_t limit, std::vector<RowEntry>& found) const {
  const auto room = static_cast<std::size_t>(limit) * 4;
  RowEntry bar{};  // once there were more than enough, only what is before the last of those kept can matter
  bool barred = false;
  visit_lists(v, [&](const Listed& listed) {
    for (std::int32_t at = 0; at < listed.span.count; ++at) {
      visit_place(v, listed, at, horizon, [&](const RowEntry& entry) {
        if (barred && !before(entry, bar)) return;
        found.push_back(entry);
        if (found.size() < room) return;
        trim(found, limit);
        bar = found.back();
        barred = true;
      });
    }
  });
  return !barred && found.size() <= static_cast<std::size_t>(limit);
}

// Lists are in (time, id) order.
bool Candidates::scan_latest(VertexId v, EdgeTime horizon, std::int32_t limit, std::vector<RowEntry>& found) const {
  std::vector<Listed> spans;
  visit_lists(v, [&](const Listed& listed) { spans.push_back(listed); });
  std::int32_t taken[2] = {0, 0};  // of out-edges, of in-edges
  bool all = true;
  for (auto listed = spans.rbegin(); listed != spans.rend(); ++listed) {
    for (std::int32_t at = listed->span.count - 1; at >= 0; --at) {
      if (timed() && listed->span.times[at] <= horizon) break;  // and so are all before it
      if (taken[listed->incoming] == limit) {
        all = false;
        break;
      }
      taken[listed->incoming] +=
          visit_place(v, *listed, at, horizon, [&](const RowEntry& entry) { found.push_back(entry); });
    }
  }
  return all && found.size() <= static_cast<std::size_t>(limit);
}

bool Candidates::scan(VertexId v, EdgeTime horizon, std::int32_t limit, std::vector<RowEntry>& found) const {
  found.clear();
  const bool all =
      query_.by == SampleBy::TopK ? scan_latest(v, horizon, limit, found) : scan_all(v, horizon, limit, found);
  trim(found, limit);
  sort(found);
  return all;
}

void Candidates::sort_all(VertexId v, EdgeTime horizon, std::vector<RowEntry>& found) const {
  found.clear();
  scan_all(v, horizon, INT32_MAX, found);
  sort(found);
}

}  // namespace livegnn
