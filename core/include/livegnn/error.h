// The one exception type of the core. Bindings turn each kind into the Python class of the same name.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace livegnn {

enum class ErrorKind {
  VertexUnknown,     // an id that is not a live vertex
  VertexExists,      // adding a vertex that is already there
  VertexIdGap,       // adding a vertex whose id is neither the next one nor a removed one
  EdgeMissing,       // removing or changing an edge that is not there
  EdgeOffloaded,     // removing, changing or reading edges that lie in a file
  EdgeDuplicate,     // adding an edge twice to a simple graph
  ValueInvalid,      // NaN, infinity, negative where that is refused
  WidthMismatch,     // a row of the wrong width
  ColumnMissing,     // a weight, time, type or attribute for a graph without that column (or the reverse)
  RangeOverflow,     // a fixed-point message or a degree out of range
  DegreeNegative,    // a weighted degree below zero in a degree-normalised layer, or a weight in a Laplacian
  SpillUnavailable,  // a folder that cannot hold paged rows
  PartRefused,       // another part of a cluster has refused the batch
  StateMismatch,     // verify() found live state that differs from a run from scratch
  InvariantBroken,   // our own mistake; the process must not go on serving
};

// What an error says; a field that does not apply stays empty. Vertices are slots.
struct ErrorFacts {
  std::string where = {}, expected = {}, got = {}, advice = {};
  std::optional<std::int64_t> vertex = {};
  std::optional<std::pair<std::int64_t, std::int64_t>> edge = {};  // source and destination
  std::string subject = {};                                        // "add_edge 3 -> 5": what was asked for
  std::optional<std::int64_t> update = {};                         // its place in the batch
  std::optional<std::int64_t> engine = {};  // the place, among those of the batch, of the engine that refused it
};

// what(): `[where] expected X, got Y; advice`, with the update or the subject after the place, where one is given.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, ErrorFacts facts);
  Error(ErrorKind kind, std::string text) : kind_(kind), text_(std::move(text)) {}
  ErrorKind kind() const noexcept { return kind_; }
  const ErrorFacts& facts() const noexcept { return facts_; }
  void name_engine(std::size_t place) { facts_.engine = static_cast<std::int64_t>(place); }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  ErrorKind kind_;
  ErrorFacts facts_;
  std::string text_;
};

// Our own mistakes stop the work, in production too: a wrong answer is worse than none.
inline void invariant(bool condition, const char* why) {
  if (!condition) [[unlikely]]
    throw Error(ErrorKind::InvariantBroken, std::string("invariant broken: ") + why);
}

}  // namespace livegnn
