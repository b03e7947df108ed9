#include "inference/halo_trade.h"

#include <algorithm>
#include <cstring>

#include "inference/counted_edges.h"
#include "inference/operators/operator.h"
#include "inference/workspace.h"

namespace livegnn {

namespace {

constexpr std::size_t kRowsSoon = 6, kRowsLater = 12;  // between the prefetch of what is known of a row, and its use

// Of a column on the wire, about: a sum's, a message's and, where the receiver has the one before, its difference's.
constexpr std::int64_t kSumBytes = 5, kRowBytes = 4, kDifferenceBytes = 3;

template <typename Visit>
void each_part(std::uint64_t bits, Visit&& visit) {
  for (; bits != 0; bits &= bits - 1) visit(std::countr_zero(bits));
}

std::vector<WireReader> readers_of(const Parcels& parcels) {
  std::vector<WireReader> readers;
  for (const std::string& parcel : parcels) readers.emplace_back(std::span<const char>(parcel));
  return readers;
}

// Of the ids that write_ids() has written local(id), in their order.
template <typename Local>
std::vector<VertexId> read_ids(WireReader& from, Local&& local) {
  std::vector<VertexId> list;
  from.begin_ids();
  for (std::size_t left = from.count(); left > 0; --left) list.push_back(local(from.id()));
  return list;
}

}  // namespace

void MailRows::begin(std::int64_t slots, int stride) {
  stride_ = stride;
  set_.prepare(slots, 1);
  reserve_places(place_, slots);
  count_ = 0;
}

std::int64_t* MailRows::open(VertexId v) {
  if (set_.add(v)) {
    place_[at(v)] = static_cast<std::int32_t>(count_);
    rows_.keep(count_ * at(stride_), (count_ + 1) * at(stride_));
    std::fill_n(rows_.data() + count_ * at(stride_), stride_, 0);
    ++count_;
  }
  return rows_.data() + at(place_[at(v)]) * at(stride_);
}

HaloTrade::HaloTrade(Workspace& work, Halo& halo) : work_(work), halo_(halo), mine_(std::uint64_t{1} << halo.part()) {
  const Program& program = work.source();
  const std::size_t kinds = program.stored.size();
  tables_.resize(program.stages.size());
  carrier_.assign(kinds, -1);
  forward_.assign(kinds, 0);
  backward_.assign(kinds, 0);
  changed_.resize(kinds);
  for (std::size_t k = 0; k < work.operators.size(); ++k) {
    const AggregationSpec& spec = program.aggregations[k];
    for (const int t : work.operators[k]->operands().sources) (spec.reversed ? backward_ : forward_)[at(t)] = 1;
    if (spec.message_table >= 0) carrier_[at(spec.message_table)] = static_cast<int>(k);
    const auto known = std::find(contexts_.begin(), contexts_.end(), spec.context);
    if (spec.scaled() && known == contexts_.end()) contexts_.push_back(spec.context);
  }
  for (std::size_t t = 0; t < kinds; ++t) {
    const int stage = program.stored[t].stage;
    if (forward_[t] == 0 && backward_[t] == 0) continue;
    crosses_first_ |= stage == 0;
    if (stage == 0) continue;
    tables_[at(stage)].push_back(static_cast<int>(t));
    work.row_users[t].keep_before = true;
    work.row_users[t].changed.push_back(&changed_[t]);
  }
  arrived_.resize(work.operators.size());
  mail_.resize(work.operators.size());
  stale_.resize(work.operators.size());
  stale_ghosts_.resize(work.operators.size());
  rows_of_stale_.resize(work.operators.size());
}

void HaloTrade::mark_stale(int k, VertexId v, std::uint64_t bits, bool stale) {
  std::vector<std::uint64_t>& marks = stale_[at(k)];
  reserve_places(marks, v + 1);
  stale_before_.push_back({{k, v}, marks[at(v)]});
  put_marks(k, v, stale ? marks[at(v)] | bits : marks[at(v)] & ~bits);
}

void HaloTrade::put_marks(int k, VertexId v, std::uint64_t marks) {
  stale_[at(k)][at(v)] = marks;
  if (!halo_.is_ghost(v)) return;
  if ((marks & mine_) != 0) {
    stale_ghosts_[at(k)].insert(v);
  } else {
    stale_ghosts_[at(k)].erase(v);
  }
}

void HaloTrade::undo() {
  for (auto it = stale_before_.rbegin(); it != stale_before_.rend(); ++it)
    put_marks(it->first.first, it->first.second, it->second);
  stale_before_.clear();
}

void HaloTrade::forget() {
  for (auto& marks : stale_) marks.clear();
  for (auto& ghosts : stale_ghosts_) ghosts.clear();
  stale_before_.clear();
}

void HaloTrade::recall(const std::vector<std::vector<std::uint64_t>>& stale) {
  invariant(stale.size() == stale_.size(), "marks of stale sources of another model");
  forget();
  for (std::size_t k = 0; k < stale.size(); ++k) {
    stale_[k].resize(stale[k].size());
    for (std::size_t v = 0; v < stale[k].size(); ++v) {  // there may be places beyond the slots, without marks
      if (stale[k][v] != 0) put_marks(static_cast<int>(k), static_cast<VertexId>(v), stale[k][v]);
    }
  }
}

const VertexSet* HaloTrade::rows_of_stale(int k) {
  constexpr std::int64_t kPerChange = 64;  // edges of stale ghosts; to look at more costs more than to save every row
  const BatchDelta& d = *work_.delta;
  const auto changes = d.added.size() + d.removed.size() + d.reweighted.size() + d.features_changed.size();
  VertexSet& rows = rows_of_stale_[at(k)];
  rows.prepare(work_.graph.slot_count(), 1);
  const Flow flow = work_.flow(k);
  std::int64_t edges = 0;
  for (const VertexId ghost : stale_ghosts_[at(k)]) {
    edges += flow.out_degree(ghost);
    if (edges > kPerChange * static_cast<std::int64_t>(changes)) return nullptr;
    work_.operators[at(k)]->each_target(ghost, [&](VertexId v) { rows.add(v); });
  }
  if (stale_ghosts_[at(k)].empty()) return &rows;
  for (const EdgeRecord& edge : work_.delta->removed) {
    if (stale_ghosts_[at(k)].contains(edge.src)) rows.add(edge.dst);
    if (stale_ghosts_[at(k)].contains(edge.dst)) rows.add(edge.src);
  }
  return &rows;
}

std::uint64_t HaloTrade::reach(int table, VertexId u) const {
  return (forward_[at(table)] != 0 ? halo_.out_at(u) : 0) | (backward_[at(table)] != 0 ? halo_.in_at(u) : 0);
}

bool HaloTrade::is_first(VertexId u, int part) const {
  const auto found = first_.find(u);
  return found != first_.end() && (found->second >> part & 1) != 0;
}

void HaloTrade::by_global(std::vector<VertexId>& vertices) const {
  const auto before = [&](VertexId a, VertexId b) { return halo_.global_of(a) < halo_.global_of(b); };
  if (!std::is_sorted(vertices.begin(), vertices.end(), before)) std::sort(vertices.begin(), vertices.end(), before);
}

// ---- one batch

void HaloTrade::begin(const BatchDelta& delta) {
  halo_.begin();
  const std::int64_t slots = work_.graph.slot_count();
  for (const auto& tables : tables_) {
    for (const int t : tables) {
      changed_[at(t)].prepare(slots, work_.pool.threads());
      const int k = carrier_[at(t)];
      if (k < 0) continue;
      arrived_[at(k)].prepare(slots, 1);
      if (work_.operators[at(k)]->mails()) mail_[at(k)].begin(slots, work_.operators[at(k)]->stride());
    }
  }
  stale_before_.clear();
  for (std::size_t k = 0; k < stale_.size(); ++k) {  // what a slot was before is another vertex's
    for (const VertexId v : delta.vertices_added) {
      if (stale_of(static_cast<int>(k), v) != 0) mark_stale(static_cast<int>(k), v, ~std::uint64_t{0}, false);
    }
  }
  for (const VertexId v : delta.vertices_added) {  // nor may its row be out of range along a heavier edge
    if (!halo_.is_ghost(v)) continue;
    for (const auto& tables : tables_) {
      for (const int t : tables)
        std::fill_n(work_.state.stored[at(t)].row(v), work_.source().stored[at(t)].width, 0.0f);
    }
  }
  first_.clear();
  for (int part = 0; part < halo_.parts(); ++part) {
    for (const auto* list : {&halo_.first_out(part), &halo_.first_in(part)}) {
      for (const VertexId v : *list) first_[v] |= std::uint64_t{1} << part;
    }
  }
}

void HaloTrade::send_factors() {
  if (contexts_.empty() || !halo_.may_move_degrees()) return;
  Parcels parcels(at(halo_.parts()));
  std::vector<std::vector<VertexId>> first(at(halo_.parts()));
  for (int part = 0; part < halo_.parts(); ++part) {
    first[at(part)] = halo_.first_out(part);
    first[at(part)].insert(first[at(part)].end(), halo_.first_in(part).begin(), halo_.first_in(part).end());
  }
  std::vector<WireWriter> to;
  for (std::string& parcel : parcels) to.emplace_back(parcel);
  for (const int context : contexts_) {
    const DegreeNorm& norm = work_.state.norms[at(context)];
    std::vector<std::vector<VertexId>> lists = first;
    for (const VertexId v : norm.changed()) {
      if (!halo_.is_ghost(v)) each_part(halo_.out_at(v) | halo_.in_at(v), [&](int p) { lists[at(p)].push_back(v); });
    }
    for (int part = 0; part < halo_.parts(); ++part) {
      if (part == halo_.part()) continue;
      std::vector<VertexId>& list = lists[at(part)];
      by_global(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
      std::erase_if(list, [&](VertexId v) { return !work_.graph.is_live(v); });
      to[at(part)].number(list.size());
      to[at(part)].begin_ids();
      for (const VertexId v : list) {
        to[at(part)].id(halo_.global_of(v));
        to[at(part)].plain(norm.scale(v));
      }
      halo_.counts.factors += static_cast<std::int64_t>(list.size());
    }
  }
  const Parcels got = halo_.swap(std::move(parcels));
  std::vector<WireReader> from = readers_of(got);
  for (const int context : contexts_) {
    DegreeNorm& norm = work_.state.norms[at(context)];
    for (int part = 0; part < halo_.parts(); ++part) {
      if (part == halo_.part()) continue;
      from[at(part)].begin_ids();
      for (std::size_t left = from[at(part)].count(); left > 0; --left) {
        const VertexId v = halo_.local_of(from[at(part)].id());
        const auto scale = from[at(part)].plain<float>();
        if (v != kNoVertex) norm.adopt(v, scale);
      }
    }
  }
}

void HaloTrade::send_stage(int stage) {
  if (tables_[at(stage)].empty()) return;
  Parcels parcels(at(halo_.parts()));
  std::vector<WireWriter> to;
  for (std::string& parcel : parcels) to.emplace_back(parcel);
  const auto mailer = [&](int t) {
    const int k = carrier_[at(t)];
    return k >= 0 && work_.operators[at(k)]->mails() ? k : -1;
  };
  for (const int t : tables_[at(stage)]) {
    const int k = mailer(t);
    k >= 0 ? write_sums(k, to) : write_rows(t, to);
  }
  const Parcels got = halo_.swap(std::move(parcels));
  std::vector<WireReader> from = readers_of(got);
  for (const int t : tables_[at(stage)]) {
    const int k = mailer(t);
    for (int part = 0; part < halo_.parts(); ++part) {
      if (part != halo_.part()) k >= 0 ? read_sums(k, from[at(part)]) : read_rows(t, from[at(part)]);
    }
    if (carrier_[at(t)] >= 0) take_moved_factors(carrier_[at(t)]);
  }
}

// By part: this part's vertices whose rows go there. A vertex that the part has just met goes, changed or not.
std::vector<std::vector<VertexId>> HaloTrade::changed_sources(int table) {
  std::vector<std::vector<VertexId>> lists(at(halo_.parts()));
  VertexSet& changed = changed_[at(table)];
  const auto take = [&](VertexId u) {
    if (!halo_.is_ghost(u) && work_.graph.is_live(u))
      each_part(reach(table, u), [&](int part) { lists[at(part)].push_back(u); });
  };
  std::vector<VertexId> sources = changed.collect();
  sort_unique(sources, work_.graph.slot_count());  // in the order of slots little is left to sort
  for (const VertexId u : sources) take(u);
  for (const auto& [u, parts] : first_) {
    if (!changed.contains(u) && work_.graph.is_live(u))
      each_part(parts & reach(table, u), [&](int part) { lists[at(part)].push_back(u); });
  }
  for (auto& list : lists) by_global(list);
  return lists;
}

void HaloTrade::write_rows(int table, std::vector<WireWriter>& to) {
  const std::vector<std::vector<VertexId>> lists = changed_sources(table);
  codes_.begin(work_.graph.slot_count());
  for (int part = 0; part < halo_.parts(); ++part) {
    if (part == halo_.part()) continue;
    write_listed(table, lists[at(part)], part, to[at(part)]);
  }
}

void HaloTrade::write_ids(const std::vector<VertexId>& list, WireWriter& to) const {
  to.number(list.size());
  to.begin_ids();
  for (const VertexId v : list) to.id(halo_.global_of(v));
}

// Ids go before all rows, so that both ends can ask for what a row is compared with before they come to it.
void HaloTrade::write_listed(int table, const std::vector<VertexId>& list, int part, WireWriter& to) {
  const StoredRows& rows = work_.state.stored[at(table)];
  const OldRows& before = work_.rows_before[at(table)];
  write_ids(list, to);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i + kRowsLater < list.size()) {
      before.prefetch(list[i + kRowsLater]);
      rows.prefetch(list[i + kRowsLater]);
    }
    if (i + kRowsSoon < list.size()) {
      const VertexId next = list[i + kRowsSoon];
      prefetch_row(before.find(next, rows.row(next)), rows.row_bytes());
    }
    write_row(table, list[i], part, to);
  }
  halo_.counts.source_rows += static_cast<std::int64_t>(list.size());
}

// A row to a part that has the one before, or has none of a vertex that it has just met.
void HaloTrade::write_row(int table, VertexId u, int part, WireWriter& to) {
  const float* row = work_.state.stored[at(table)].row(u);
  const int width = work_.source().stored[at(table)].width;
  if (halo_.is_near(part)) return to.floats_as_they_are(row, width);
  if (is_first(u, part)) return to.floats(row, width);
  const auto encode = [&](WireWriter& writer) {
    writer.floats_since(work_.rows_before[at(table)].find(u, row), row, width);
  };
  if (halo_.parts() == 2) return encode(to);  // no other part gets it
  const std::span<const char> code = codes_.code(u, encode);
  to.bytes(code.data(), code.size());
}

void HaloTrade::read_rows(int table, WireReader& from) {
  const int width = work_.source().stored[at(table)].width, k = carrier_[at(table)];
  Scratch<float> row;
  std::fill_n(row.need(at(round_up(width, 16))), round_up(width, 16), 0.0f);
  const std::vector<VertexId> list = read_ids(from, [&](std::int64_t global) { return halo_.local_of(global); });
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i + kRowsSoon < list.size()) prefetch_arriving(table, list[i + kRowsSoon]);
    const VertexId v = list[i];
    const float* kept = v == kNoVertex ? row.data() : work_.state.stored[at(table)].row(v);
    from.floats_since(kept, row.data(), width);
    if (v == kNoVertex) continue;
    if (k >= 0) {
      arrived_[at(k)].add(v);
      work_.operators[at(k)]->take_arrived(v, kept, row.data());
    } else if (std::memcmp(kept, row.data(), at(width) * sizeof(float)) != 0) {
      work_.replace_stored(table, v, row.data(), 0);
    }
  }
}

void HaloTrade::prefetch_arriving(int table, VertexId v) const {
  if (v == kNoVertex) return;
  work_.state.stored[at(table)].prefetch(v);
  work_.rows_before[at(table)].prefetch(v);
  prefetch_line(changed_[at(table)].mark_address(v));
  const int k = carrier_[at(table)];
  if (k < 0) return;
  prefetch_line(arrived_[at(k)].mark_address(v));
  const AggregationSpec& spec = work_.aggregation(k);
  if (spec.scaled()) work_.state.norms[at(spec.context)].prefetch(v);
  work_.flow(k).prefetch_out(v);
}

// Which way the changes of one sum go to each part.
struct HaloTrade::Choice {
  std::vector<std::vector<VertexId>> fresh, stale;   // changed sources, as their part keeps them
  std::vector<std::uint8_t> sums_fresh, sums_stale;  // whether those go as sums
};

void HaloTrade::choose(int k, Choice& choice) {
  const Operator& op = *work_.operators[at(k)];
  const int table = work_.aggregation(k).message_table;
  choice.fresh = changed_sources(table);
  choice.stale.resize(at(halo_.parts()));
  std::vector<std::int64_t> forced(at(halo_.parts()), 0);
  for (int part = 0; part < halo_.parts(); ++part) {
    std::vector<VertexId>& list = choice.fresh[at(part)];
    std::erase_if(list, [&](VertexId u) {
      const bool stale = (stale_of(k, u) >> part & 1) != 0;
      if (stale) choice.stale[at(part)].push_back(u);
      return stale;
    });
    for (const VertexId u : list) forced[at(part)] += is_first(u, part) ? 1 : 0;
  }
  if (work_.aggregation(k).scaled()) {
    for (const VertexId u : work_.state.norms[at(work_.aggregation(k).context)].changed()) {
      if (halo_.is_ghost(u) || changed_[at(table)].contains(u) || !work_.graph.is_live(u)) continue;
      each_part(stale_of(k, u) & reach(table, u), [&](int part) { choice.stale[at(part)].push_back(u); });
    }
  }
  const Flow flow = work_.flow(k);
  seen_.prepare(work_.graph.slot_count(), 1);
  for (const VertexId v : mail_[at(k)].vertices()) seen_.add(v);
  const auto count = [&](const std::vector<std::vector<VertexId>>& lists, const std::vector<std::int64_t>& limits,
                         bool skips_first) {
    std::vector<std::int64_t> reached(at(halo_.parts()), 0);
    for (int part = 0; part < halo_.parts(); ++part) {
      const std::vector<VertexId>& list = lists[at(part)];
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (i + kRowsLater < list.size()) flow.prefetch_out(list[i + kRowsLater]);
        if (i + kRowsSoon < list.size()) flow.prefetch_out_edges(list[i + kRowsSoon]);
        if (skips_first && is_first(list[i], part)) continue;
        if (reached[at(part)] * kSumBytes > limits[at(part)]) break;
        op.each_target(list[i], [&](VertexId v) {
          if (halo_.is_ghost(v) && halo_.owner(v) == part && seen_.add(v)) ++reached[at(part)];
        });
      }
    }
    std::vector<std::uint8_t> sums(at(halo_.parts()), 0);
    for (int part = 0; part < halo_.parts(); ++part)
      sums[at(part)] = reached[at(part)] * kSumBytes <= limits[at(part)] ? 1 : 0;
    return sums;
  };
  std::vector<std::int64_t> limits(at(halo_.parts()));
  for (int part = 0; part < halo_.parts(); ++part)
    limits[at(part)] = (kRowBytes + kDifferenceBytes) * static_cast<std::int64_t>(choice.stale[at(part)].size());
  choice.sums_stale = count(choice.stale, limits, false);
  for (int part = 0; part < halo_.parts(); ++part)
    limits[at(part)] = kDifferenceBytes * (static_cast<std::int64_t>(choice.fresh[at(part)].size()) - forced[at(part)]);
  choice.sums_fresh = count(choice.fresh, limits, true);
}

// For each part: sources that become stale; sources that are stale no more, before and now; other changed sources;
// sums.
void HaloTrade::write_sums(int k, std::vector<WireWriter>& to) {
  Operator& op = *work_.operators[at(k)];
  const AggregationSpec& spec = work_.aggregation(k);
  Choice choice;
  choose(k, choice);
  reserve_places(by_sums_, work_.graph.slot_count());
  codes_.begin(work_.graph.slot_count());
  std::vector<VertexId> by_sums;
  const auto send_by_sums = [&](VertexId u, std::uint64_t bit) {
    if (by_sums_[at(u)] == 0) by_sums.push_back(u);
    by_sums_[at(u)] |= bit;
  };
  for (int part = 0; part < halo_.parts(); ++part) {
    if (part == halo_.part()) continue;
    const std::uint64_t bit = std::uint64_t{1} << part;
    WireWriter& writer = to[at(part)];
    const StoredRows& rows = work_.state.stored[at(spec.message_table)];
    std::vector<VertexId> turned, sent;
    for (const VertexId u : choice.fresh[at(part)]) {
      const bool sums = choice.sums_fresh[at(part)] != 0 && !is_first(u, part);
      (sums ? turned : sent).push_back(u);
    }
    write_ids(turned, writer);
    for (const VertexId u : turned) {
      send_by_sums(u, bit);
      mark_stale(k, u, bit, true);
    }
    std::vector<VertexId>& stale = choice.stale[at(part)];
    by_global(stale);
    if (choice.sums_stale[at(part)] != 0) {
      for (const VertexId u : stale) send_by_sums(u, bit);
      stale.clear();
    }
    const OldRows& before = work_.rows_before[at(spec.message_table)];
    write_ids(stale, writer);
    for (const VertexId u : stale) {
      const float* old = before.find(u, rows.row(u));
      writer.floats(old, spec.width);
      writer.floats_since(old, rows.row(u), spec.width);
      mark_stale(k, u, bit, false);
    }
    halo_.counts.source_rows += static_cast<std::int64_t>(2 * stale.size());
    write_listed(spec.message_table, sent, part, writer);
  }
  if (!by_sums.empty()) op.mail_sources(by_sums_, mail_[at(k)]);
  for (const VertexId u : by_sums) by_sums_[at(u)] = 0;
  write_mail(k, true, to);
  write_mail(k, false, to);
}

// Sums for vertices that are there, or for those that the batch removes, whose rows are to be those of no edges.
void HaloTrade::write_mail(int k, bool live, std::vector<WireWriter>& to) {
  const int width = work_.aggregation(k).width;
  std::vector<std::vector<VertexId>> lists(at(halo_.parts()));
  for (const VertexId v : mail_[at(k)].vertices()) {
    const std::int64_t* row = mail_[at(k)].row(v);
    if (std::any_of(row, row + width, [](std::int64_t x) { return x != 0; }) && work_.graph.is_live(v) == live)
      lists[at(halo_.owner(v))].push_back(v);
  }
  for (int part = 0; part < halo_.parts(); ++part) {
    if (part == halo_.part()) continue;
    std::vector<VertexId>& list = lists[at(part)];
    by_global(list);
    write_ids(list, to[at(part)]);
    for (const VertexId v : list) to[at(part)].integers(mail_[at(k)].row(v), width);
    halo_.counts.sum_rows += static_cast<std::int64_t>(list.size());
  }
}

void HaloTrade::read_sums(int k, WireReader& from) {
  Operator& op = *work_.operators[at(k)];
  const AggregationSpec& spec = work_.aggregation(k);
  const int padded = round_up(spec.width, 16);
  Scratch<float> before, now;
  for (Scratch<float>* row : {&before, &now}) std::fill_n(row->need(at(padded)), padded, 0.0f);
  const auto local = [&](std::int64_t global) { return halo_.local_of(global); };
  for (const VertexId v : read_ids(from, local)) {
    if (v != kNoVertex) mark_stale(k, v, mine_, true);
  }
  const auto take = [&](VertexId v, const float* old) {
    arrived_[at(k)].add(v);
    op.take_arrived(v, old, now.data());
  };
  for (const VertexId v : read_ids(from, local)) {
    from.floats(before.data(), spec.width);
    from.floats_since(before.data(), now.data(), spec.width);
    if (v == kNoVertex) continue;
    mark_stale(k, v, mine_, false);
    take(v, before.data());
  }
  const std::vector<VertexId> sent = read_ids(from, local);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (i + kRowsSoon < sent.size()) prefetch_arriving(spec.message_table, sent[i + kRowsSoon]);
    const VertexId v = sent[i];
    const float* kept = v == kNoVertex ? now.data() : work_.state.stored[at(spec.message_table)].row(v);
    from.floats_since(kept, now.data(), spec.width);
    if (v != kNoVertex) take(v, kept);
  }
  Scratch<std::int64_t> sums;
  std::fill_n(sums.need(at(padded)), padded, 0);
  const auto take_sums = [&](const std::vector<VertexId>& list) {
    for (const VertexId v : list) {
      from.integers(sums.data(), spec.width);
      if (v != kNoVertex) op.take_mail(v, sums.data());
    }
  };
  take_sums(read_ids(from, local));
  take_sums(read_ids(from, [&](std::int64_t global) { return halo_.departed(global); }));
}

// Ghosts whose factor has changed and whose message has not.
void HaloTrade::take_moved_factors(int k) {
  const AggregationSpec& spec = work_.aggregation(k);
  if (!spec.scaled()) return;
  for (const VertexId v : work_.state.norms[at(spec.context)].changed()) {
    if (!halo_.is_ghost(v) || is_stale(k, v) || arrived_[at(k)].contains(v)) continue;
    const float* row = work_.state.stored[at(spec.message_table)].row(v);
    work_.operators[at(k)]->take_arrived(v, row, row);
  }
}

// ---- from scratch

Parcels HaloTrade::all_factors(const State& state) const {
  Parcels parcels(at(halo_.parts()));
  std::vector<WireWriter> to;
  for (std::string& parcel : parcels) to.emplace_back(parcel);
  for (VertexId v = 0; v < work_.graph.slot_count(); ++v) {
    if (halo_.is_ghost(v) || !work_.graph.is_live(v)) continue;
    each_part(halo_.out_at(v) | halo_.in_at(v), [&](int part) {
      to[at(part)].id(halo_.global_of(v));
      for (const int context : contexts_) to[at(part)].plain(state.norms[at(context)].scale(v));
    });
  }
  return parcels;
}

Parcels HaloTrade::all_rows(int table, const State& state) const {
  const int width = work_.source().stored[at(table)].width;
  Parcels parcels(at(halo_.parts()));
  std::vector<WireWriter> to;
  for (std::string& parcel : parcels) to.emplace_back(parcel);
  for (VertexId v = 0; v < work_.graph.slot_count(); ++v) {
    if (halo_.is_ghost(v) || !work_.graph.is_live(v)) continue;
    each_part(reach(table, v), [&](int part) {
      to[at(part)].id(halo_.global_of(v));
      to[at(part)].floats(state.stored[at(table)].row(v), width);
    });
  }
  return parcels;
}

std::vector<Parcels> HaloTrade::parcels_of_start() const {
  std::vector<Parcels> rounds;
  if (!contexts_.empty()) rounds.push_back(all_factors(work_.state));
  for (const auto& tables : tables_) {
    for (const int t : tables) rounds.push_back(all_rows(t, work_.state));
  }
  for (Parcels& parcels : rounds) {
    for (int part = 0; part < halo_.parts(); ++part) {
      if (part != halo_.part()) parcels[at(part)].push_back(Halo::kGoesOn);
    }
  }
  return rounds;
}

void HaloTrade::send_all_factors(State& state) const {
  if (contexts_.empty()) return;
  const Parcels got = halo_.swap(all_factors(state));
  std::vector<WireReader> from = readers_of(got);
  for (WireReader& reader : from) {
    while (!reader.at_end()) {
      const VertexId v = halo_.local_of(reader.id());
      for (const int context : contexts_) {
        const auto scale = reader.plain<float>();
        if (v != kNoVertex) state.norms[at(context)].put(v, scale);
      }
    }
  }
}

void HaloTrade::send_all(int stage, State& state) const {
  for (const int t : tables_[at(stage)]) {
    const int width = work_.source().stored[at(t)].width;
    const Parcels got = halo_.swap(all_rows(t, state));
    std::vector<float> unknown(at(width));
    std::vector<WireReader> from = readers_of(got);
    for (WireReader& reader : from) {
      while (!reader.at_end()) {
        const VertexId v = halo_.local_of(reader.id());
        reader.floats(v == kNoVertex ? unknown.data() : state.stored[at(t)].row(v), width);
      }
    }
  }
}

}  // namespace livegnn
