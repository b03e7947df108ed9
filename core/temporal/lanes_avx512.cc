// Sixteen numbers of a target's stream (draw.h) at a time, one in each lane; eight edges at a time are copied.
//
// Functions of headers are used only where they are sure to go inline: the linker could keep this file's copy for all.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns inside its own intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <bit>

#include "temporal/lanes.h"

namespace livegnn {

namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ull;  // from a number of the stream to the next

__m512i times_64(__m512i x, std::uint64_t factor) {
  return _mm512_mullo_epi64(x, _mm512_set1_epi64(static_cast<long long>(factor)));
}

// mix() of each lane.
__m512i mixed(__m512i x) {
  x = _mm512_add_epi64(x, _mm512_set1_epi64(static_cast<long long>(kGolden)));
  x = times_64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)), 0xbf58476d1ce4e5b9ull);
  x = times_64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)), 0x94d049bb133111ebull);
  return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
}

// floor(number n / 2^64) of each lane, in its lower half. n is below 2^31, so no sum leaves 64 bits.
__m512i ranks_of(__m512i numbers, __m512i n) {
  const __m512i low = _mm512_srli_epi64(_mm512_mul_epu32(numbers, n), 32);
  return _mm512_srli_epi64(_mm512_add_epi64(_mm512_mul_epu32(_mm512_srli_epi64(numbers, 32), n), low), 32);
}

// The ranks below n of numbers 0 to 15 of a stream that begins at `state`.
__m512i sixteen_ranks(std::uint64_t state, std::uint32_t n) {
  const __m512i first = _mm512_set_epi64(static_cast<long long>(7 * kGolden), static_cast<long long>(6 * kGolden),
                                         static_cast<long long>(5 * kGolden), static_cast<long long>(4 * kGolden),
                                         static_cast<long long>(3 * kGolden), static_cast<long long>(2 * kGolden),
                                         static_cast<long long>(kGolden), 0);
  const __m512i low = _mm512_add_epi64(first, _mm512_set1_epi64(static_cast<long long>(state)));
  const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64(static_cast<long long>(8 * kGolden)));
  const __m512i all_n = _mm512_set1_epi64(n);
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutex2var_epi32(ranks_of(mixed(low), all_n), even, ranks_of(mixed(high), all_n));
}

__m512i lane_numbers() { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }

// One layer of a sorting network: lane i is compared with lane i ^ kPartner; those of `upper` keep the larger.
template <int kPartner>
__m512i layer(__m512i v, __mmask16 upper) {
  const __m512i other = _mm512_permutexvar_epi32(_mm512_xor_si512(lane_numbers(), _mm512_set1_epi32(kPartner)), v);
  return _mm512_mask_max_epu32(_mm512_min_epu32(v, other), upper, v, other);
}

// Bitonic: runs of 2, 4, 8 and 16 in order.
__m512i sorted(__m512i v) {
  v = layer<1>(v, 0xAAAA);
  v = layer<1>(layer<3>(v, 0xCCCC), 0xAAAA);
  v = layer<1>(layer<2>(layer<7>(v, 0xF0F0), 0xCCCC), 0xAAAA);
  return layer<1>(layer<2>(layer<4>(layer<15>(v, 0xFF00), 0xF0F0), 0xCCCC), 0xAAAA);
}

// `take` ascending ranks, then lanes of all ones. Ranks that came before give way to the next numbers of the stream, as
// many as are missing, until all differ.
__m512i drawn_ranks(const RunTarget& target, __mmask16 taken, bool replace) {
  const __m512i ones = _mm512_set1_epi32(-1);
  std::uint64_t state = target.state;
  __m512i stream = sixteen_ranks(state, target.count);
  __m512i ranks = sorted(_mm512_mask_mov_epi32(ones, taken, stream));
  if (replace) return ranks;
  const __mmask16 compared = taken & static_cast<__mmask16>(~1u);
  auto used = static_cast<std::uint32_t>(target.take);
  while (true) {
    const __m512i before = _mm512_alignr_epi32(ranks, ranks, 15);  // of each lane's left neighbour
    const __mmask16 again = _mm512_mask_cmpeq_epi32_mask(compared, ranks, before);
    if (again == 0) [[likely]]
      return ranks;
    const auto missing = static_cast<std::uint32_t>(std::popcount(static_cast<unsigned>(again)));
    if (used + missing > 16) {
      state += used * kGolden;
      used = 0;
      stream = sixteen_ranks(state, target.count);
    }
    const __m512i next =
        _mm512_permutexvar_epi32(_mm512_add_epi32(lane_numbers(), _mm512_set1_epi32(static_cast<int>(used))), stream);
    ranks = sorted(_mm512_mask_expand_epi32(ranks, again, next));
    used += missing;
  }
}

void copy_longs(std::int64_t* to, const std::int64_t* from, __m512i places, __mmask8 lanes) {
  _mm512_mask_storeu_epi64(to, lanes, _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), lanes, places, from, 8));
}

void copy_ints(std::int64_t* to, const std::int32_t* from, __m512i places, __mmask8 lanes) {
  const __m256i found = _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), lanes, places, from, 4);
  _mm512_mask_storeu_epi64(to, lanes, _mm512_cvtepi32_epi64(found));
}

void copy_places(const LaneColumns& columns, std::int64_t edge, std::int64_t row, __m512i places, __mmask8 lanes) {
  copy_longs(columns.to_ids + edge, columns.ids, places, lanes);
  copy_ints(columns.to_src + edge, columns.neighbours, places, lanes);
  if (columns.times != nullptr) copy_longs(columns.to_times + edge, columns.times, places, lanes);
  if (columns.types != nullptr) copy_ints(columns.to_types + edge, columns.types, places, lanes);
  if (columns.weights != nullptr) {
    _mm256_mask_storeu_ps(columns.to_weights + edge, lanes,
                          _mm512_mask_i64gather_ps(_mm256_setzero_ps(), lanes, places, columns.weights, 4));
  }
  _mm512_mask_storeu_epi64(columns.to_rows + edge, lanes, _mm512_set1_epi64(row));
}

// places(ranks, lanes): where eight ranks of the target's candidates stand in the pool.
template <typename PlacesOf>
void copy_drawn(const RunTarget& target, const LaneColumns& columns, bool replace, PlacesOf&& places) {
  const auto taken = static_cast<__mmask16>((1u << target.take) - 1);
  const auto low = static_cast<__mmask8>(taken), high = static_cast<__mmask8>(taken >> 8);
  const __m512i ranks = drawn_ranks(target, taken, replace), first = _mm512_set1_epi64(target.place);
  const auto eight = [&](__m256i half) { return _mm512_add_epi64(first, _mm512_cvtepu32_epi64(half)); };
  copy_places(columns, target.edge, target.row, places(eight(_mm512_castsi512_si256(ranks)), low), low);
  if (high == 0) return;
  copy_places(columns, target.edge + 8, target.row, places(eight(_mm512_extracti64x4_epi64(ranks, 1)), high), high);
}

void drawn(std::span<const RunTarget> targets, const LaneColumns& columns, bool replace) {
  for (const RunTarget& target : targets) {
    copy_drawn(target, columns, replace, [](__m512i places, __mmask8) { return places; });
  }
}

// The blocks that hold edges of these ranks: before[block] <= rank < before[block + 1].
__m512i blocks_by_search(const BlockTable& table, __m512i ranks, __mmask8 lanes) {
  __m512i found = _mm512_setzero_si512();
  for (std::int64_t left = table.blocks; left > 1;) {
    const std::int64_t half = left / 2;
    const __m512i next = _mm512_add_epi64(found, _mm512_set1_epi64(half));
    const __m512i before = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), lanes, next, table.before, 8);
    found = _mm512_mask_mov_epi64(found, _mm512_cmple_epi64_mask(before, ranks), next);
    left -= half;
  }
  return found;
}

// The first values of a column of a chain's table, in registers.
struct FewValues {
  static constexpr std::int64_t kCount = 16;
  FewValues(const std::int64_t* values, std::int64_t count) {
    const auto lanes = static_cast<__mmask16>(count < kCount ? (1u << count) - 1 : 0xFFFF);
    low = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(lanes), values);
    high = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(lanes >> 8), values + 8);
  }
  __m512i at(__m512i places) const { return _mm512_permutex2var_epi64(low, places, high); }
  __m512i low, high;
};

// Blocks are about equally full, so the block of a rank is guessed, and looked for where the guess is wrong.
struct ChainPlaces {
  explicit ChainPlaces(const BlockTable& of)
      : table(of),
        last(of.blocks - 1),
        per_edge(last > 0 ? static_cast<double>(last) / static_cast<double>(of.before[last]) : 0.0),
        few_before(of.before, of.blocks),
        few_places(of.place, of.blocks) {}
  __m512i of(__m512i ranks, __mmask8 lanes) const {
    const __m512i all_last = _mm512_set1_epi64(last);
    const __m512i guess = _mm512_cvttpd_epi64(_mm512_mul_pd(_mm512_cvtepi64_pd(ranks), _mm512_set1_pd(per_edge)));
    __m512i block = _mm512_min_epi64(guess, all_last);
    __m512i before = value(few_before, table.before, block, lanes);
    const __mmask8 in_middle = _mm512_mask_cmplt_epi64_mask(lanes, block, all_last);
    const __m512i end = value(few_before, table.before, _mm512_add_epi64(block, _mm512_set1_epi64(1)), in_middle);
    const auto wrong = static_cast<__mmask8>(_mm512_mask_cmpgt_epi64_mask(lanes, before, ranks) |
                                             _mm512_mask_cmple_epi64_mask(in_middle, end, ranks));
    if (wrong != 0) [[unlikely]] {
      block = blocks_by_search(table, ranks, lanes);
      before = value(few_before, table.before, block, lanes);
    }
    return _mm512_add_epi64(value(few_places, table.place, block, lanes), _mm512_sub_epi64(ranks, before));
  }
  __m512i value(const FewValues& few, const std::int64_t* values, __m512i blocks, __mmask8 lanes) const {
    if (table.blocks <= FewValues::kCount) return few.at(blocks);
    return _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), lanes, blocks, values, 8);
  }
  const BlockTable& table;
  std::int64_t last;
  double per_edge;
  FewValues few_before, few_places;
};

void drawn_in_chains(std::span<const ChainTarget> targets, const LaneColumns& columns, bool replace) {
  for (const auto& [target, table] : targets) {
    const ChainPlaces chain(table);
    copy_drawn(target, columns, replace, [&](__m512i ranks, __mmask8 lanes) { return chain.of(ranks, lanes); });
  }
}

void copy_run(const LaneColumns& columns, std::int64_t place, std::int64_t edge, std::int64_t row, __mmask8 lanes) {
  const auto longs = [&](std::int64_t* to, const std::int64_t* from) {
    _mm512_mask_storeu_epi64(to + edge, lanes, _mm512_maskz_loadu_epi64(lanes, from + place));
  };
  const auto ints = [&](std::int64_t* to, const std::int32_t* from) {
    _mm512_mask_storeu_epi64(to + edge, lanes, _mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32(lanes, from + place)));
  };
  longs(columns.to_ids, columns.ids);
  ints(columns.to_src, columns.neighbours);
  if (columns.times != nullptr) longs(columns.to_times, columns.times);
  if (columns.types != nullptr) ints(columns.to_types, columns.types);
  if (columns.weights != nullptr) {
    _mm256_mask_storeu_ps(columns.to_weights + edge, lanes, _mm256_maskz_loadu_ps(lanes, columns.weights + place));
  }
  _mm512_mask_storeu_epi64(columns.to_rows + edge, lanes, _mm512_set1_epi64(row));
}

void runs(std::span<const RunTarget> targets, const LaneColumns& columns) {
  for (const RunTarget& target : targets) {
    std::int32_t left = target.take;
    for (std::int64_t done = 0; left > 0; done += 8, left -= 8) {
      const auto lanes = static_cast<__mmask8>(left >= 8 ? 0xFF : (1u << left) - 1);
      copy_run(columns, target.place + done, target.edge + done, target.row, lanes);
    }
  }
}

void search_step(const std::int64_t** begin, const std::int64_t* wanted, std::size_t count, std::int64_t half) {
  const __m512i last = _mm512_set1_epi64(8 * (half - 1)), step = _mm512_set1_epi64(8 * half);
  for (std::size_t i = 0; i < count; i += 8) {
    const auto lanes = static_cast<__mmask8>(count - i >= 8 ? 0xFF : (1u << (count - i)) - 1);
    const __m512i at = _mm512_maskz_loadu_epi64(lanes, begin + i);
    const __m512i times =
        _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), lanes, _mm512_add_epi64(at, last), nullptr, 1);
    const __mmask8 on = _mm512_mask_cmple_epi64_mask(lanes, times, _mm512_maskz_loadu_epi64(lanes, wanted + i));
    _mm512_mask_storeu_epi64(begin + i, on, _mm512_add_epi64(at, step));
  }
}

}  // namespace

extern const LaneKernels kLanesAvx512;
const LaneKernels kLanesAvx512{runs, drawn, drawn_in_chains, search_step};

}  // namespace livegnn
