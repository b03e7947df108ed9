// The body of the kernels for minima and maxima, written once over W, a vector of kBlock columns whose comparisons give
// one bit per column. Included by kernels_impl.h, inside the namespace of its variant.

inline constexpr int kBlock = 16;

// One block of a row on its way through a message that leaves and one that comes.
template <bool kMax>
struct MinMaxBlock {
  W best, next;
  std::uint32_t has_best, has_next, open_best, open_next;
  std::uint32_t holder_left = 0;

  MinMaxBlock(const MinMaxRow& row, int block)
      : best(W::load(row.best + block * kBlock)),
        next(W::load(row.next + block * kBlock)),
        has_best(row.masks[block].has_best),
        has_next(row.masks[block].has_next),
        open_best(row.masks[block].open_best),
        open_next(row.masks[block].open_next) {}

  void store(const MinMaxRow& row, int block) const {
    best.store(row.best + block * kBlock);
    next.store(row.next + block * kBlock);
    row.masks[block] = {static_cast<std::uint16_t>(has_best), static_cast<std::uint16_t>(has_next),
                        static_cast<std::uint16_t>(open_best), static_cast<std::uint16_t>(open_next)};
  }

  static std::uint32_t beats(W a, W b) { return kMax ? greater(a, b) : greater(b, a); }

  std::uint32_t tied() const { return has_next & open_next; }
  std::uint32_t known_next() const { return has_next & ~open_next; }
  std::uint32_t bounded_next() const { return open_next & ~has_next; }

  void take_out(W term, std::uint32_t lanes) {
    const std::uint32_t holder = lanes & has_best & equal(term, best);
    const std::uint32_t second = lanes & has_best & ~holder & known_next() & equal(term, next);
    const std::uint32_t counted = holder & tied(), promoted = holder & known_next();
    const std::uint32_t exposed = holder & bounded_next(), emptied = holder & ~has_next & ~open_next;
    next = blend(next, plus(next, W::set(-1.0f)), counted);
    const std::uint32_t single = counted & equal(next, W::set(0.0f));
    next = blend(next, best, single);
    best = blend(best, next, promoted | exposed);  // where exposed, the bound on what is left
    best = blend(best, W::set(0.0f), emptied);
    next = blend(next, W::set(0.0f), emptied);
    has_best &= ~(exposed | emptied);
    open_best |= exposed;
    has_next &= ~(promoted | second | single);
    open_next = (open_next & ~exposed) | promoted | second;
    holder_left |= holder;
  }

  void put_in(W term, std::uint32_t lanes) {
    const std::uint32_t above = beats(term, best), same = equal(term, best);
    const std::uint32_t first = lanes & ~has_best & ~open_best;
    const std::uint32_t covers = lanes & open_best & (above | same);
    const std::uint32_t wins = lanes & has_best & above, ties = lanes & has_best & same;
    const std::uint32_t below = lanes & has_best & ~above & ~same & ~tied();
    const std::uint32_t over_next = beats(term, next), at_next = equal(term, next);
    const std::uint32_t seconds =
        below & ((known_next() & over_next) | (bounded_next() & (over_next | at_next)) | ~(has_next | open_next));
    const W one_more = plus(blend(W::set(0.0f), next, tied()), W::set(1.0f));
    next = blend(next, best, covers | wins);
    next = blend(next, term, seconds);
    next = blend(next, one_more, ties);
    best = blend(best, term, first | covers | wins);
    has_best |= first | covers;
    open_best &= ~covers;
    has_next |= wins | ties | seconds;
    open_next = (open_next & ~(wins | seconds)) | covers | ties;
  }
};

inline std::uint32_t lanes_of(int width, int block) {
  const int left = width - block * kBlock;
  return left >= kBlock ? 0xffffu : (1u << left) - 1u;
}

// A message out of a row, one into it, or both; before(column) and now(column) give a block of their terms.
template <bool kMax, bool kOut, bool kIn, typename Before, typename Now>
inline int move_extreme(const MinMaxRow& row, int width, Before before, Now now) {
  std::uint32_t changed = 0, open = 0, left = 0, odd = 0;
  for (int block = 0; block * kBlock < width; ++block) {
    std::uint32_t lanes = lanes_of(width, block);
    const W old = before(block * kBlock), term = now(block * kBlock);
    if (kIn) odd |= lanes & ~finite(term);
    if (kOut && kIn) lanes &= ~equal(old, term);
    if (kOut && kIn && lanes == 0) {
      open |= row.masks[block].open_best;
      continue;
    }
    MinMaxBlock<kMax> b(row, block);
    const W was = b.best;
    if (kOut) b.take_out(old, lanes);
    if (kIn) b.put_in(term, lanes);
    b.store(row, block);
    changed |= lanes & ~equal(b.best, was);
    open |= b.open_best;
    left |= b.holder_left;
  }
  return (changed != 0 ? MinMaxFlag::kValueChanged : 0) | (open != 0 ? MinMaxFlag::kExposed : 0) |
         (left != 0 ? MinMaxFlag::kHolderLeft : 0) | (odd != 0 ? MinMaxFlag::kNotFinite : 0);
}

template <bool kMax, bool kIn>
int move_message(MinMaxRow row, const float* x, float source, float edge, int width) {
  const W s = W::set(source), e = W::set(edge);
  const auto term = [&](int column) { return times_plus_zero(times(W::load(x + column), s), e); };
  return move_extreme<kMax, !kIn, kIn>(row, width, term, term);
}

template <bool kMax>
int replace_message(MinMaxRow row, const float* before, const float* now, float edge, int width) {
  const W e = W::set(edge);
  return move_extreme<kMax, true, true>(
      row, width, [&](int column) { return times_plus_zero(W::load(before + column), e); },
      [&](int column) { return times_plus_zero(W::load(now + column), e); });
}

template <bool kMax>
constexpr MinMaxKernels extreme_kernels() {
  return {move_message<kMax, true>, move_message<kMax, false>, replace_message<kMax>};
}
