// A test program in three macros: TEST(name) { CHECK(...); CHECK_THROWS(...); } and LIVEGNN_TEST_MAIN.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

namespace livegnn::testing {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Registered {
  Registered(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

inline int run_all() {
  for (const Test& test : tests()) {
    try {
      test.run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: expected no exception, got %s\n", test.name, error.what());
      return 1;
    }
    std::printf("%s: ok\n", test.name);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace livegnn::testing

#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      std::fprintf(stderr, "%s:%d: expected %s, got false\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                            \
    }                                                                                          \
  } while (false)

// The expression throws livegnn::Error of this kind.
#define CHECK_THROWS(expression, error_kind)                                                                   \
  do {                                                                                                         \
    bool thrown = false;                                                                                       \
    try {                                                                                                      \
      (void)(expression);                                                                                      \
    } catch (const livegnn::Error& error) {                                                                    \
      thrown = true;                                                                                           \
      if (error.kind() != (error_kind)) std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, error.what()); \
      CHECK(error.kind() == (error_kind));                                                                     \
    }                                                                                                          \
    CHECK(thrown);                                                                                             \
  } while (false)

#define TEST(name)                                                          \
  static void name();                                                       \
  static const livegnn::testing::Registered registered_##name(#name, name); \
  static void name()

#define LIVEGNN_TEST_MAIN \
  int main() { return livegnn::testing::run_all(); }
