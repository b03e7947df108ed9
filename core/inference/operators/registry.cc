#include "inference/operators/operator.h"

// One line an operator. The first that takes an aggregation has it.
#define LIVEGNN_OPERATORS(OPERATOR) \
  OPERATOR(split_attention)         \
  OPERATOR(edge_sum)                \
  OPERATOR(edge_reduce)             \
  OPERATOR(min_max)                 \
  OPERATOR(median)                  \
  OPERATOR(fixed_point_sum)

namespace livegnn {

#define DECLARE_OPERATOR(name) OperatorKind name();
LIVEGNN_OPERATORS(DECLARE_OPERATOR)

#define CALL_OPERATOR(name) name,
constexpr OperatorKind (*kOperators[])() = {LIVEGNN_OPERATORS(CALL_OPERATOR)};

std::unique_ptr<Operator> make_operator(Workspace& work, int k) {
  for (const auto& operator_kind : kOperators) {
    const OperatorKind kind = operator_kind();
    if (kind.takes(work.source(), work.aggregation(k))) return kind.make(work, k);
  }
  invariant(false, "an aggregation that no operator takes");
  return nullptr;
}

}  // namespace livegnn
