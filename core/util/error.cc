#include "livegnn/error.h"

namespace livegnn {

namespace {
std::string text_of(const ErrorFacts& facts) {
  std::string text = facts.where.empty() ? "" : "[" + facts.where + "] ";
  if (facts.update) {
    text += "update " + std::to_string(*facts.update) + " (" + facts.subject + "): ";
  } else if (!facts.subject.empty()) {
    text += facts.subject + ": ";
  }
  return text + "expected " + facts.expected + ", got " + facts.got + "; " + facts.advice;
}
}  // namespace

Error::Error(ErrorKind kind, ErrorFacts facts) : kind_(kind), facts_(std::move(facts)), text_(text_of(facts_)) {}

}  // namespace livegnn
