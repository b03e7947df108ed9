// Enumerations and structs of the core as data of Python. Names are those of the C++ source, read from the compiler, so
// that no list of them can fall behind.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace livegnn {

// GCC and Clang end it with "= livegnn::Op::Gemm]" or "= &livegnn::Instruction::op]"; with "= (livegnn::Op)99]" for a
// value that is no enumerator.
template <auto kConstant>
consteval const char* spelled() {
  return __PRETTY_FUNCTION__;
}

// Of an enumerator or a member, without its scope; empty for other values.
template <auto kConstant>
consteval std::string_view unqualified() {
  std::string_view text = spelled<kConstant>();
  text.remove_suffix(1);
  text.remove_prefix(text.rfind(':') + 1);
  if (text.find(')') != std::string_view::npos) return {};
  return text == "None" ? "Unset" : text;  // None is a keyword of Python
}

template <auto kConstant>
inline constexpr auto kName = [] {
  std::array<char, unqualified<kConstant>().size() + 1> name{};
  std::ranges::copy(unqualified<kConstant>(), name.begin());
  return name;
}();

inline constexpr int kEnumeratorsMax = 64;

template <auto kValue, typename Bound>
void bind_value(Bound& bound) {
  if constexpr (!unqualified<kValue>().empty()) bound.value(kName<kValue>.data(), kValue);
}

template <typename Enum>
std::string_view name_of(Enum value) {  // it ends with a 0
  return [&]<int... kValues>(std::integer_sequence<int, kValues...>) {
    std::string_view found;
    ((value == static_cast<Enum>(kValues) ? (void)(found = kName<static_cast<Enum>(kValues)>.data()) : (void)0), ...);
    return found;
  }(std::make_integer_sequence<int, kEnumeratorsMax>{});
}

// Enumerators count from 0.
template <typename Enum>
void bind_enum(nanobind::module_& m, const char* name) {
  static_assert(unqualified<static_cast<Enum>(kEnumeratorsMax)>().empty());
  nanobind::enum_<Enum> bound(m, name);
  [&]<int... kValues>(std::integer_sequence<int, kValues...>) {
    (bind_value<static_cast<Enum>(kValues)>(bound), ...);
  }(std::make_integer_sequence<int, kEnumeratorsMax>{});
}

template <typename Struct, typename Value>
Value value_of(Value Struct::*);
template <auto kMember>
using ValueOf = decltype(value_of(kMember));

template <auto kMember>
auto named() {
  const nanobind::arg name(kName<kMember>.data());
  if constexpr (std::is_enum_v<ValueOf<kMember>>) {
    return name.noconvert();  // or nanobind would take a number for a member
  } else {
    return name;
  }
}

template <auto kMember, bool kRequired, typename Struct>
auto argument(const Struct& defaults) {
  if constexpr (kRequired) {
    return named<kMember>();
  } else {
    return named<kMember>() = defaults.*kMember;
  }
}

// These fields by their names.
template <auto... kMembers, typename Struct>
nanobind::dict dict_of(const Struct& from) {
  nanobind::dict out;
  ((out[kName<kMembers>.data()] = from.*kMembers), ...);
  return out;
}

// A class that is made by keywords: the first fields have to be given, the others have the defaults of the struct.
template <typename Struct, std::size_t kRequired, auto... kMembers>
nanobind::class_<Struct> bind_struct(nanobind::module_& m, const char* name) {
  nanobind::class_<Struct> bound(m, name);
  const auto make = [](Struct* made, ValueOf<kMembers>... values) {
    new (made) Struct{};
    ((made->*kMembers = std::move(values)), ...);
  };
  [&]<std::size_t... kPlaces>(std::index_sequence<kPlaces...>) {
    bound.def("__init__", make, nanobind::kw_only(), argument<kMembers, (kPlaces < kRequired)>(Struct{})...);
  }(std::make_index_sequence<sizeof...(kMembers)>{});
  return bound;
}

}  // namespace livegnn
