// What forward and backward share: how a problem is cut into row tiles and units of work, packing, per-row factors.
// Compiled once per target.
//
// Unit: one sequence and one key/value head with its group of query heads. Many units: each is one task and packs for itself, so that
// its keys stay in a core's cache. Few units: keys are packed by everybody, then blocks of rows are handed out (split mode).
// Tiles, blocks and the order of sums depend on the shape only, never on the number of workers, so neither do the results.
#if defined(HINGE_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_ATTENTION_INL_H_
#undef HINGE_ATTENTION_INL_H_
#else
#define HINGE_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "hinge/kernels/attention.h"
#include "hwy/cache_control.h"
#include "kernels/mask-inl.h"
#include "kernels/sequences.h"
#include "kernels/tile-inl.h"
#include "kernels/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kBlockTiles = 96 / kTileRows;    // row tiles of a block, at most
inline constexpr size_t kPackedBytes = size_t{24} << 20;  // packed keys and values of units in flight, in split mode

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
constexpr int64_t CeilDiv(int64_t n, int64_t by) { return (n + by - 1) / by; }

// [0, count) cut into as few parts of at most `most` as possible, as equal as can be, the first the largest.
struct Parts {
  int64_t count, parts;
  Parts(int64_t n, int64_t most) : count(n), parts(CeilDiv(n, most)) {}
  int64_t begin(int64_t part) const { return CeilDiv(part * count, parts); }
  int64_t size(int64_t part) const { return begin(part + 1) - begin(part); }
};

// Keys [begin, end) cut likewise, but at multiples of kKeyStep: whole panels, and whole runs of dropout.
inline constexpr int64_t kKeyStep = 64;
struct KeyParts {
  int64_t begin_, end_, parts, step;
  KeyParts(int64_t begin, int64_t end, int64_t most)
      : begin_(begin), end_(end), parts(CeilDiv(end - begin, most)), step(parts ? RoundUp(CeilDiv(end - begin, parts), kKeyStep) : 0) {}
  int64_t begin(int64_t part) const { return std::min(begin_ + part * step, end_); }
  int64_t end(int64_t part) const { return std::min(begin_ + (part + 1) * step, end_); }
};

// The rows of a sequence as tiles.
struct Tiles : Parts {
  explicit Tiles(int64_t rows) : Parts(rows, kTileRows) {}
};

// Sizes that every part of a call needs.
struct Plan {
  const AttentionShape& shape;
  const AttentionRule& rule;
  int64_t NR;
  int64_t depth, padded_depth, width_panels;        // of queries and keys: D, in whole panels, panels
  int64_t value_depth, padded_value, value_panels;  // of values
  int64_t group;
  std::vector<Sequence> sequences;  // the most work first
  int64_t longest_seen = 0;
  bool softmax;
  bool masked;                  // rows may see something other than the first keys
  std::vector<int32_t> counts;  // [B][Hq or 1][Lq]: how many keys a row sees, if there is a mask

  template <typename T> static Plan make(const AttentionShape& shape, const AttentionRule& rule) {
    const int64_t NR = PanelWidth<T>();
    Plan plan{shape,
              rule,
              NR,
              shape.D,
              RoundUp(shape.D, NR),
              CeilDiv(shape.D, NR),
              shape.value_width(),
              RoundUp(shape.value_width(), NR),
              CeilDiv(shape.value_width(), NR),
              shape.Hkv ? shape.Hq / shape.Hkv : 0,
              {},
              0,
              rule.h == Activation::softmax,
              shape.mask.data || shape.window_left >= 0 || shape.hstu.used,
              {}};
    for (int64_t s = 0; s < sequence_count(shape); ++s) {
      const Sequence seq = sequence(shape, s);
      plan.sequences.push_back(seq);
      plan.longest_seen = std::max(plan.longest_seen, seq.seen);
    }
    // The longest first: whoever comes last then waits least.
    std::stable_sort(plan.sequences.begin(), plan.sequences.end(),
                     [](const Sequence& a, const Sequence& b) { return a.lq * a.seen > b.lq * b.seen; });
    return plan;
  }

  // With a mask: once, before any row is asked for.
  template <typename T> void count_visible(Parallel& parallel) {
    if (!shape.mask.data) return;
    const int64_t heads = count_heads();
    counts.resize(static_cast<size_t>(shape.B * heads * shape.Lq));
    parallel.run(shape.B * heads, [&](int64_t task, int) HWY_ATTR {
      const Sequence seq = sequence(shape, task / heads);
      int32_t* const count = counts.data() + task * shape.Lq;
      for (int64_t i = 0; i < shape.Lq; ++i)
        count[i] = i > 0 && rows_see_alike(seq) ? count[0] : static_cast<int32_t>(CountVisible<T>(shape.mask, seq, task % heads, i));
    });
  }

  // How many keys row i of a sequence sees.
  int64_t seen_by(const Sequence& seq, int64_t head, int64_t i) const {
    if (!masked) return seq.visible(i);
    if (!shape.mask.data) return seq.keys_of(i).count();
    const int64_t heads = count_heads();
    return counts[static_cast<size_t>((seq.b * heads + (heads > 1 ? head : 0)) * shape.Lq + i)];
  }

  // True if all rows of a head see the same keys.
  bool rows_see_alike(const Sequence& seq) const {
    return !seq.causal() && seq.left < 0 && !seq.hstu && (!shape.mask.data || shape.mask.stride_q == 0);
  }

  // The keys that any of the rows [first, last] may see: from the first to before the last.
  std::pair<int64_t, int64_t> span_of(const Sequence& seq, int64_t first, int64_t last) const {
    if (!masked) return {0, seq.visible(last)};
    std::pair<int64_t, int64_t> span = {seq.lk, 0};
    for (int64_t i = first; i <= last; ++i) {
      const RowKeys keys = seq.keys_of(i);
      if (keys.count() > 0) span = {std::min(span.first, keys.begin), std::max(span.second, keys.last_end())};
    }
    return span;
  }

  int64_t units() const { return static_cast<int64_t>(sequences.size()) * shape.Hkv; }
  const Sequence& unit_sequence(int64_t unit) const { return sequences[static_cast<size_t>(unit / shape.Hkv)]; }
  int64_t unit_kv_head(int64_t unit) const { return unit % shape.Hkv; }

  int64_t count_heads() const { return shape.mask.stride_h == 0 ? 1 : shape.Hq; }

  double gain(int64_t head) const { return rule.gain ? rule.gain[head] : 1.0; }
  double bias(int64_t head) const { return rule.bias ? rule.bias[head] : 0.0; }
  double alpha(int64_t head) const { return rule.alpha ? rule.alpha[head] : 1.0; }
};

// Backward finds the gradient of gain as a sum with gain in it, divided by gain. A head whose gain is 0, or so small that the products
// with it are lost, runs with gain 1 instead (early), and its other gradients get the gain at last (late).
struct SplitGain {
  double early, late;
};
template <typename T> HWY_INLINE SplitGain Split(double gain, bool divides) {
  const bool is_late = gain == 0 || (divides && std::abs(gain) < std::sqrt(static_cast<double>(std::numeric_limits<T>::min())));
  return is_late ? SplitGain{1, gain} : SplitGain{gain, 1};
}

// N_i^-alpha and log N_i of neighbouring rows; N seldom changes from row to row, and alpha is mostly 0, 1/2 or 1.
class RowLengths {
 public:
  RowLengths(const Plan& plan, const Sequence& seq, int64_t head) : plan_(plan), seq_(seq), head_(head), alpha_(plan.alpha(head)) {}

  void set_row(int64_t i) {
    const double n = seq_.row_length(plan_.rule, plan_.seen_by(seq_, head_, i));
    if (n == n_) return;
    n_ = n;
    power_ = alpha_ == 0 ? 1.0 : alpha_ == 1 ? 1.0 / n : alpha_ == 0.5 ? 1.0 / std::sqrt(n) : std::pow(n, -alpha_);
    has_log_ = false;
  }
  double power() const { return power_; }
  double log_n() {
    if (!has_log_) log_ = std::log(n_);
    has_log_ = true;
    return log_;
  }

 private:
  const Plan& plan_;
  const Sequence& seq_;
  int64_t head_;
  double alpha_, n_ = -1, power_ = 1, log_ = 0;
  bool has_log_ = false;
};

template <typename T> HWY_INLINE void PrefetchRow(const T* row, int64_t depth) {
  for (int64_t k = 0; k < depth; k += static_cast<int64_t>(64 / sizeof(T))) hwy::Prefetch(row + k);
}

// Score panels of factor * the keys or values [begin, end) (begin a multiple of NR) of one head, into the packed array of the whole head.
template <typename S, typename T>
void PackScores(const Plan& plan, const Sequence& seq, const View<const S>& keys, int64_t depth, int64_t kv_head, int64_t begin,
                int64_t end, T factor, T* packed) {
  for (int64_t j = begin; j < end; j += plan.NR) {
    for (int64_t next = j + plan.NR; next < std::min(j + 2 * plan.NR, end); ++next)
      PrefetchRow(row_of(keys, seq.b, kv_head, seq.k_begin + next), depth);
    PackScorePanel(row_of(keys, seq.b, kv_head, seq.k_begin + j), keys.stride_l, std::min(plan.NR, end - j), depth, factor,
                   packed + j * depth);
  }
}

// Width panels of the rows [begin, end) of one head.
template <typename S, typename T>
void PackWidths(const Plan& plan, const Sequence& seq, const View<const S>& rows, int64_t depth, int64_t kv_head, int64_t begin,
                int64_t end, T* packed) {
  for (int64_t j = begin; j < end; ++j)
    PackWidthRow(row_of(rows, seq.b, kv_head, seq.k_begin + j), depth, packed + j * plan.NR, seq.seen * plan.NR);
}

// Elements of the packed arrays of one head.
HWY_INLINE int64_t PackedScoresSize(const Plan& plan, int64_t keys, int64_t depth) { return RoundUp(keys, plan.NR) * depth; }
HWY_INLINE int64_t PackedWidthsSize(const Plan& plan, int64_t keys, int64_t depth) { return keys * RoundUp(depth, plan.NR); }

// Micro-kernels by the height of a tile, for whole panels and for what fits into the first vector of one: the end of the keys.
template <typename Kernel> struct PanelKernels {
  ByRows<Kernel> wide, narrow;
  Kernel operator()(int rows, int64_t keys, int64_t NR) const {
    return (keys > NR / kPanelVectors ? wide : narrow)[static_cast<size_t>(rows)];
  }
};
#define HINGE_PANEL_KERNELS(F, ...) \
  { HINGE_BY_ROWS(F, true, __VA_ARGS__), HINGE_BY_ROWS(F, false, __VA_ARGS__) }

// Scores and activation of one h: a tile of scores, in which cheap activations are applied at once; the others have `activate`.
template <typename T> struct ScoreKernels {
  PanelKernels<void (*)(const T*, int64_t, const T*, int64_t, const T*, T*, T*, uint32_t*)> tile;
  void (*activate)(T*, T*, int, int64_t);  // null: done in the tile
  bool has_zeros;
};

// The same for partial tiles (mask-inl.h): scores without activation, then it and the mask at once.
template <typename T> struct MaskedKernels {
  PanelKernels<void (*)(const T*, int64_t, const T*, int64_t, const T*, T*, T*, uint32_t*)> tile;
  void (*activate)(T*, T*, const T*, int, int64_t, uint32_t*);
};

template <class H, int64_t kKeys, bool kSlopes, typename T> MaskedKernels<T> MakeMaskedKernels() {
  return {HINGE_PANEL_KERNELS(ScoreTile, Identity, kKeys, false, T), ActivateMasked<H, kKeys, kSlopes, T>};
}

template <class H, int64_t kKeys, bool kSlopes, typename T> ScoreKernels<T> MakeScoreKernels() {
  if constexpr (H::kInTile) {
    return {HINGE_PANEL_KERNELS(ScoreTile, H, kKeys, kSlopes, T), nullptr, H::kHasZeros};
  } else {
    return {HINGE_PANEL_KERNELS(ScoreTile, Identity, kKeys, false, T), ActivateTile<H, kKeys, kSlopes, T>, false};
  }
}

// Calls make.template operator()<H>() with the class of the activation; softmax has a stand-in.
template <class SoftmaxStandIn, class Make> auto WithActivation(Activation h, const Make& make) {
  switch (h) {
#define HINGE_CASE(name, cls) \
  case Activation::name: return make.template operator()<cls>();
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_CASE)
#undef HINGE_CASE
    case Activation::softmax: break;
  }
  return make.template operator()<SoftmaxStandIn>();
}

// WeightedRows by height; a null list means the keys 0 .. count-1.
template <int64_t kKeys, typename T>
HWY_INLINE void CallWeightedRows(int rows, const T* weights, const uint32_t* list, int64_t count, const T* right, int64_t right_row,
                                 T* sums, int64_t sum_row, bool add, const T* factor) {
  using F = void (*)(const T*, const uint32_t*, int64_t, const T*, int64_t, T*, int64_t, bool, const T*);
  static constexpr ByRows<F> kDense = HINGE_BY_ROWS(WeightedRows, kKeys, false, T);
  static constexpr ByRows<F> kListed = HINGE_BY_ROWS(WeightedRows, kKeys, true, T);
  (list ? kListed : kDense)[rows](weights, list, count, right, right_row, sums, sum_row, add, factor);
}

template <typename T>
HWY_INLINE void CallSpreadRows(int rows, const T* weights, const uint32_t* list, int64_t count, const T* tile, int64_t tile_row, T* sums) {
  using F = void (*)(const T*, const uint32_t*, int64_t, const T*, int64_t, T*);
  static constexpr ByRows<F> kDense = HINGE_BY_ROWS(SpreadRows, false, T);
  static constexpr ByRows<F> kListed = HINGE_BY_ROWS(SpreadRows, true, T);
  (list ? kListed : kDense)[rows](weights, list, count, tile, tile_row, sums);
}

// SpreadKeys by the number of keys, 1 to kSpreadKeys, for targets that use it.
template <typename T, int... kLess>
HWY_INLINE void CallSpreadKeys(std::integer_sequence<int, kLess...>, int64_t keys, const T* weights, int64_t rows, const T* tile,
                               int64_t tile_row, T* sums) {
  using F = void (*)(const T*, int64_t, const T*, int64_t, T*);
  static constexpr F kByKeys[] = {SpreadKeys<kLess + 1, T>...};
  kByKeys[keys - 1](weights, rows, tile, tile_row, sums);
}
template <typename T>
HWY_INLINE void CallSpreadKeys(int64_t keys, const T* weights, int64_t rows, const T* tile, int64_t tile_row, T* sums) {
  CallSpreadKeys<T>(std::make_integer_sequence<int, std::max(kSpreadKeys, 1)>(), keys, weights, rows, tile, tile_row, sums);
}

// Which keys of a block a row tile works on. All rows of the tile see the first `common` keys; causal rows r see own(r) >= common.
// The list of non-zero keys is used when it leaves out enough to pay for its indirection.
// With masks and the like (set_sight), `common` and own(r) are all keys of the block, or none if they are hidden, and the list of a partial
// tile leaves out what no row sees.
template <int64_t kKeys, typename T> struct TileKeys {
  int rows = 0;    // real rows
  int padded = 0;  // height of the micro-kernels
  int64_t common = 0;
  int64_t own[kTileRows] = {};
  const uint32_t* list = nullptr;  // null: dense
  int64_t count = 0;               // entries of the list, or `common`

  Sight sight = Sight::open;
  int64_t not_seen[kTileRows];  // of a partial tile, per row
  const T* apart = nullptr;     // the mask tile, if rows must be summed one by one: 0 * NaN would show what is hidden from a row

  int64_t most() const { return own[rows - 1]; }

  void set_visible(const Sequence& seq, int64_t first_row, int64_t tile_rows, int64_t first_key, int64_t keys) {
    rows = static_cast<int>(tile_rows);
    padded = PaddedRows(tile_rows);
    for (int r = 0; r < rows; ++r) own[r] = std::clamp<int64_t>(seq.visible(first_row + r) - first_key, 0, keys);
    common = own[0];
    list = nullptr;
    count = common;
  }

  void set_sight(const Plan& plan, const Sequence& seq, int64_t head, int64_t first_row, int64_t tile_rows, int64_t first_key, int64_t keys,
                 T* tile, uint32_t* bits, uint32_t* buffer, bool one_by_one) {
    rows = static_cast<int>(tile_rows);
    padded = PaddedRows(tile_rows);
    sight = SeeTile<kKeys>(plan.shape.mask, seq, head, first_row, rows, padded, first_key, keys, tile, bits, not_seen);
    common = sight == Sight::hidden ? 0 : keys;
    std::fill_n(own, rows, common);
    list = sight == Sight::open ? nullptr : buffer;
    count = common;
    apart = sight == Sight::partial && one_by_one && rows > 1 ? tile : nullptr;
  }

  // Of a partial tile: the list of the keys in the bits, which must be used unless those are all.
  int64_t set_list_of_partial(const uint32_t* bits, int64_t NR, uint32_t* buffer) {
    uint32_t* end = buffer;
    for (int64_t first = 0; first < common; first += NR)
      end = AppendSetBits(Bits(bits[first / NR], std::min(NR, common - first)), static_cast<uint32_t>(first), end);
    count = end - buffer;
    list = count == common && !apart ? nullptr : buffer;
    return common - count;
  }

  // The keys that row r sees, of a tile whose rows are apart.
  int64_t list_of_row(int r, uint32_t* buffer) const {
    int64_t n = 0;
    for (int64_t j = 0; j < common; ++j)
      if (apart[r * kKeys + j] != kHidden<T>) buffer[n++] = static_cast<uint32_t>(j);
    return n;
  }

  // masks: per panel of NR keys, those that any row gives a weight other than zero. Makes the list, if it pays, in `buffer`; returns how
  // many keys that leaves out.
  int64_t set_list(const uint32_t* masks, int64_t NR, uint32_t* buffer) {
    const auto mask_of = [&](int64_t first) { return Bits(masks[first / NR], std::min(NR, common - first)); };
    int64_t listed = 0;
    for (int64_t first = 0; first < common; first += NR) listed += static_cast<int64_t>(hwy::PopCount(uint64_t{mask_of(first)}));
    if (listed > common - common / 16) return 0;
    uint32_t* end = buffer;
    for (int64_t first = 0; first < common; first += NR) end = AppendSetBits(mask_of(first), static_cast<uint32_t>(first), end);
    list = buffer;
    count = listed;
    return common - listed;
  }

 private:
  static uint32_t Bits(uint32_t mask, int64_t n) { return n >= 32 ? mask : mask & ((1u << n) - 1); }
};

// sums (+)= weights x a width panel of keys, in backward's tiles (rows of sums are sum_row apart): the keys that all rows of a tile see,
// then what later rows of a causal tile see beyond the first one.
template <typename T>
void WeightedSums(const Plan& plan, const TileKeys<kBackwardKeys, T>& keys, const T* weights, const T* panel, T* sums, int64_t sum_row,
                  bool add) {
  const int64_t NR = plan.NR;
  if (keys.apart) {
    uint32_t list[kBackwardKeys];
    for (int r = 0; r < keys.rows; ++r)
      CallWeightedRows<kBackwardKeys, T>(1, weights + r * kBackwardKeys, list, keys.list_of_row(r, list), panel, NR, sums + r * sum_row,
                                         sum_row, add, nullptr);
    return;
  }
  CallWeightedRows<kBackwardKeys, T>(keys.padded, weights, keys.list, keys.count, panel, NR, sums, sum_row, add, nullptr);
  for (int r = 1; r < keys.rows; ++r)
    if (keys.own[r] > keys.common)
      CallWeightedRows<kBackwardKeys, T>(1, weights + r * kBackwardKeys + keys.common, nullptr, keys.own[r] - keys.common,
                                         panel + keys.common * NR, NR, sums + r * sum_row, sum_row, true, nullptr);
}

// The transposed product of neighbouring tiles, whose rows lie side by side, `pd` apart, into a width panel of the keys. Tiles without a
// list go through SpreadKeys together, as far as each of them sees whole groups of keys; the rest is done tile by tile, row by row.
template <typename T>
void SpreadSums(const Plan& plan, const TileKeys<kBackwardKeys, T>* keys, int64_t tiles, const T* weights, const T* rows, int64_t pd,
                T* panel) {
  const int64_t NR = plan.NR;
  const auto spread_tile = [&](const TileKeys<kBackwardKeys, T>& of, int64_t row, const uint32_t* list, int64_t count,
                               int64_t key) HWY_ATTR {
    CallSpreadRows<T>(of.padded, weights + row * kBackwardKeys + key, list, count, rows + row * pd, pd, panel + key * NR);
  };
  int64_t row = 0;
  for (int64_t t = 0; t < tiles;) {
    int64_t end_row = row, end = t;
    for (; kSpreadKeys > 0 && end < tiles && !keys[end].list; ++end) end_row += keys[end].rows;
    if (keys[t].apart) {
      uint32_t list[kBackwardKeys];
      for (int r = 0; r < keys[t].rows; ++r)
        CallSpreadRows<T>(1, weights + (row + r) * kBackwardKeys, list, keys[t].list_of_row(r, list), rows + (row + r) * pd, pd, panel);
      row += keys[t++].rows;
      continue;
    }
    if (end <= t + 1) {  // a list, or no neighbour to go with
      spread_tile(keys[t], row, keys[t].list, keys[t].count, 0);
      row += keys[t++].rows;
      continue;
    }
    const Parts groups(keys[end - 1].common, std::max(kSpreadKeys, 1));  // later tiles see no less
    for (int64_t group = 0; group < groups.parts; ++group) {
      const int64_t key = groups.begin(group), key_end = groups.begin(group + 1);
      for (; keys[t].common < key_end; row += keys[t++].rows)
        if (keys[t].common > key) spread_tile(keys[t], row, nullptr, keys[t].common - key, key);
      CallSpreadKeys(key_end - key, weights + row * kBackwardKeys + key, end_row - row, rows + row * pd, pd, panel + key * NR);
    }
    t = end;
    row = end_row;
  }
  row = 0;
  for (int64_t t = 0; t < tiles; row += keys[t++].rows)
    for (int r = 1; r < keys[t].rows; ++r)
      if (keys[t].own[r] > keys[t].common)
        CallSpreadRows<T>(1, weights + (row + r) * kBackwardKeys + keys[t].common, nullptr, keys[t].own[r] - keys[t].common,
                          rows + (row + r) * pd, pd, panel + keys[t].common * NR);
}

// Decides, block by block, whether zeros are looked for, and counts what was left out. After a block in which looking brought next to
// nothing, the following ones do not look for a while. Which blocks share a watch must not depend on the workers: where a value is NaN,
// it shows whether the zero weight before it was left out.
class ZeroWatch {
 public:
  explicit ZeroWatch(bool has_zeros) : has_zeros_(has_zeros) {}
  bool look() const { return has_zeros_ && rest_ == 0; }
  void count(int64_t groups, int64_t skipped) {
    block_.groups += groups;
    block_.skipped += skipped;
  }
  void end_block(bool looked) {
    if (looked && block_.skipped * 32 < block_.groups)
      rest_ = kRest;
    else if (rest_ > 0)
      --rest_;
    total_.groups += block_.groups;
    total_.skipped += block_.skipped;
    block_ = {};
  }
  // Nothing is counted where there are no exact zeros to look for.
  SkipCount total() const { return has_zeros_ ? total_ : SkipCount{}; }

 private:
  static constexpr int kRest = 7;
  bool has_zeros_;
  int rest_ = 0;
  SkipCount block_, total_;
};

// Several workers may count for one head.
HWY_INLINE void AddSkipped(SkipCount& to, const SkipCount& from) {
  __atomic_fetch_add(&to.groups, from.groups, __ATOMIC_RELAXED);
  __atomic_fetch_add(&to.skipped, from.skipped, __ATOMIC_RELAXED);
}

// How many units are packed at once in split mode, each with `packed_bytes`.
HWY_INLINE int64_t UnitsInFlight(int64_t units, size_t packed_bytes) {
  return std::clamp<int64_t>(static_cast<int64_t>(kPackedBytes / std::max<size_t>(packed_bytes, 1)), 1, std::max<int64_t>(units, 1));
}

// Few units for the workers: share each of them.
HWY_INLINE bool SplitsUnits(int64_t units, int workers) { return workers > 1 && units < 4 * workers; }

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
