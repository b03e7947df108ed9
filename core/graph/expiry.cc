#include "livegnn/expiry.h"

#include <algorithm>
#include <vector>

namespace livegnn {

EdgeTime first_alive(EdgeTime now, std::int64_t ttl) {
  constexpr EdgeTime kFirst = kUnsetTime + 1;
  return now < kFirst + ttl ? kFirst : now - ttl + 1;
}

namespace {

// Of one lifetime in the course of a batch: removals are due while first > clear.
struct LifetimeEnd {
  Lifetime lifetime;
  EdgeTime first;  // the first time that is alive
  EdgeTime clear;  // no edge has an earlier time
};

Update removal_of(const LifetimeEnd& cut) {
  Update update{};
  update.kind = UpdateKind::RemoveEdgesBefore;
  update.is_expiry = true;
  update.type = cut.lifetime.type;
  update.time = cut.first;
  return update;
}

bool looks_for_edges(UpdateKind kind, bool simple) {
  return kind == UpdateKind::RemoveEdge || kind == UpdateKind::SetWeight || kind == UpdateKind::SetEdgeAttr ||
         (simple && kind == UpdateKind::AddEdge);
}

}  // namespace

ExplicitBatch with_expiry(const UpdateBuffer& batch, std::span<const Lifetime> lifetimes, EdgeTime now, bool simple) {
  std::vector<LifetimeEnd> cuts;
  for (const Lifetime& lifetime : lifetimes) {
    const EdgeTime first = first_alive(now, lifetime.ttl);
    cuts.push_back({lifetime, first, first});
  }
  ExplicitBatch out{batch, now};  // for its rows; the updates are written anew
  out.buffer.clear_updates();
  out.buffer.reserve(batch.size() + cuts.size());
  const auto write_removals = [&] {
    for (LifetimeEnd& cut : cuts) {
      if (cut.first <= cut.clear) continue;
      out.buffer.add(removal_of(cut));
      cut.clear = cut.first;
    }
  };
  for (const Update& update : batch.updates()) {
    const bool adds = update.kind == UpdateKind::AddEdge && update.time != kUnsetTime;
    if (adds && update.time > out.now) {
      out.now = update.time;
      for (LifetimeEnd& cut : cuts) cut.first = first_alive(out.now, cut.lifetime.ttl);
    }
    if (looks_for_edges(update.kind, simple)) write_removals();
    out.buffer.add(update);
    for (LifetimeEnd& cut : cuts) {
      if (adds) cut.clear = std::min(cut.clear, update.time);  // perhaps it has expired as it comes
      const bool clears = update.kind == UpdateKind::RemoveEdgesBefore && update.type == cut.lifetime.type;
      if (clears) cut.clear = std::max(cut.clear, update.time);  // as in a batch that was written out before
    }
  }
  write_removals();
  return out;
}

}  // namespace livegnn
