// What a row tile sees of a block of keys where that is more than a prefix: masks, windows on the left, HSTU. Compiled once per target.
//
// Such a tile is open (every row sees every key), hidden (no row sees any) or partial. A partial one has a mask tile [row][kKeys], what is
// added to its scores, with -inf for hidden keys, and for each panel the keys that any row sees, as bits. Weights and gradients of hidden
// keys are set to zero by selection, whatever the scores are; keys that no row of the tile sees are left out of all sums.
#if defined(HINGE_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_MASK_INL_H_
#undef HINGE_MASK_INL_H_
#else
#define HINGE_MASK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/sequences.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> inline constexpr T kHidden = -std::numeric_limits<T>::infinity();

// Elements of a mask, `stride` apart, as what is added to scores.
template <typename M, typename T>
void LoadMaskElements(const void* mask, int64_t first, int64_t stride, int64_t count, T* HWY_RESTRICT out) {
  const M* HWY_RESTRICT from = static_cast<const M*>(mask) + first;
  const auto value = [](M element) {
    if constexpr (std::is_same_v<M, uint8_t>)
      return element ? T{0} : kHidden<T>;
    else
      return static_cast<T>(element);
  };
  int64_t j = 0;
  if (stride == 0) return (void)std::fill_n(out, count, count ? value(*from) : T{0});
  if constexpr (std::is_same_v<M, uint8_t> && std::is_same_v<T, float>) {
    const hn::ScalableTag<T> d;
    const hn::Rebind<uint8_t, decltype(d)> bytes;
    const hn::RebindToSigned<decltype(d)> integers;
    const int64_t N = static_cast<int64_t>(hn::Lanes(d));
    for (; stride == 1 && j + N <= count; j += N) {
      const auto element = hn::PromoteTo(integers, hn::LoadU(bytes, from + j));
      const auto hidden = hn::RebindMask(d, hn::Eq(element, hn::Zero(integers)));
      hn::StoreU(hn::IfThenElseZero(hidden, hn::Set(d, kHidden<T>)), d, out + j);
    }
  }
  if constexpr (std::is_same_v<M, T>)
    if (stride == 1) return (void)std::copy_n(from, count, out);
  if constexpr (kIsOnlyStored<M> && std::is_same_v<T, float>) {
    const hn::ScalableTag<T> d;
    const int64_t N = static_cast<int64_t>(hn::Lanes(d));
    for (; stride == 1 && j + N <= count; j += N) hn::StoreU(LoadStored(d, from + j), d, out + j);
  }
  for (; j < count; ++j) out[j] = value(from[j * stride]);
}

// What the mask adds to `count` scores of row i from key j on.
template <typename T>
void LoadMaskRun(const MaskView& mask, int64_t b, int64_t head, int64_t i, int64_t j, int64_t count, T* HWY_RESTRICT out) {
  const int64_t at = b * mask.stride_b + head * mask.stride_h + i * mask.stride_q + j * mask.stride_k;
  switch (mask.type) {
    case MaskType::boolean: return LoadMaskElements<uint8_t>(mask.data, at, mask.stride_k, count, out);
    case MaskType::float32: return LoadMaskElements<float>(mask.data, at, mask.stride_k, count, out);
    case MaskType::float64: return LoadMaskElements<double>(mask.data, at, mask.stride_k, count, out);
    case MaskType::bfloat16: return LoadMaskElements<BFloat16>(mask.data, at, mask.stride_k, count, out);
    case MaskType::float16: return LoadMaskElements<Float16>(mask.data, at, mask.stride_k, count, out);
  }
}

// How many keys row i sees, of those that the sequence lets it see.
template <typename T> int64_t CountVisible(const MaskView& mask, const Sequence& seq, int64_t head, int64_t i) {
  constexpr int64_t kRun = 256;
  HWY_ALIGN T run[kRun];
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const RowKeys keys = seq.keys_of(i);
  int64_t seen = 0;
  const auto count = [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t j = begin; j < end; j += kRun) {
      const int64_t n = std::min(kRun, end - j);
      LoadMaskRun(mask, seq.b, head, i, j, n, run);
      for (int64_t k = n; k % N != 0; ++k) run[k] = kHidden<T>;
      for (int64_t k = 0; k < n; k += N)
        seen += N - static_cast<int64_t>(hn::CountTrue(d, hn::Eq(hn::Load(d, run + k), hn::Set(d, kHidden<T>))));
    }
  };
  count(keys.begin, keys.end);
  if (keys.own >= 0) count(keys.own, keys.own + 1);
  return seen;
}

enum class Sight { open, partial, hidden };

// What rows [first, first + rows) see of the keys [k0, k0 + keys). If that is partial, fills the mask tile, up to `padded` rows and the end
// of a panel, and `bits`. not_seen[r]: how many of the keys row r does not see.
template <int64_t kKeys, typename T>
HWY_NOINLINE Sight SeeTile(const MaskView& mask, const Sequence& seq, int64_t head, int64_t first, int rows, int padded, int64_t k0,
                           int64_t keys, T* HWY_RESTRICT tile, uint32_t* HWY_RESTRICT bits, int64_t* not_seen) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d)), NR = kPanelVectors * N;
  RowKeys own[kTileRows];
  bool all = true, none = true;
  for (int r = 0; r < rows; ++r) {
    const RowKeys row = seq.keys_of(first + r);
    own[r].begin = std::clamp<int64_t>(row.begin - k0, 0, keys);
    own[r].end = std::clamp<int64_t>(row.end - k0, own[r].begin, keys);
    own[r].own = row.own >= k0 && row.own < k0 + keys ? row.own - k0 : -1;
    not_seen[r] = keys - own[r].count();
    all = all && not_seen[r] == 0;
    none = none && not_seen[r] == keys;
  }
  if (none) return Sight::hidden;
  if (all && !mask.data) return Sight::open;

  const int64_t end = (keys + NR - 1) / NR * NR;
  for (int64_t j = 0; j < end; j += NR) bits[j / NR] = 0;
  const auto hidden = hn::Set(d, kHidden<T>);
  all = mask.data && mask.type == MaskType::boolean, none = true;
  for (int r = 0; r < padded; ++r) {
    T* HWY_RESTRICT row = tile + r * kKeys;
    if (r >= rows) {
      std::fill_n(row, end, kHidden<T>);
      continue;
    }
    const auto load = [&](int64_t begin, int64_t count) HWY_ATTR {
      if (mask.data)
        LoadMaskRun(mask, seq.b, head, first + r, k0 + begin, count, row + begin);
      else
        std::fill_n(row + begin, count, T{0});
    };
    std::fill_n(row, own[r].begin, kHidden<T>);
    load(own[r].begin, own[r].end - own[r].begin);
    std::fill_n(row + own[r].end, end - own[r].end, kHidden<T>);
    if (own[r].own >= 0) load(own[r].own, 1);

    int64_t seen = 0;
    for (int64_t j = 0; j < end; j += NR) {
      const auto a = hn::Not(hn::Eq(hn::Load(d, row + j), hidden)), b = hn::Not(hn::Eq(hn::Load(d, row + j + N), hidden));
      const uint32_t panel = MaskBits(d, a) | MaskBits(d, b) << N;
      bits[j / NR] |= panel;
      seen += static_cast<int64_t>(hwy::PopCount(uint64_t{panel}));
    }
    not_seen[r] = keys - seen;
    all = all && seen == keys;
    none = none && seen == 0;
  }
  return none ? Sight::hidden : all ? Sight::open : Sight::partial;
}

// h of scores plus the mask tile, and h' if asked; zero for hidden keys. masks as in ScoreTile, for all panels.
template <class H, int64_t kKeys, bool kSlopes, typename T>
HWY_NOINLINE void ActivateMasked(T* HWY_RESTRICT x, T* HWY_RESTRICT slopes, const T* HWY_RESTRICT tile, int rows, int64_t keys,
                                 uint32_t* HWY_RESTRICT masks) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d)), NR = kPanelVectors * N;
  const V hidden = hn::Set(d, kHidden<T>);
  for (int64_t j = 0; j < keys; j += NR) {
    uint32_t bits = 0;
    for (int64_t half = 0; half < kPanelVectors; ++half) {
      V any = hn::Zero(d);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = r * kKeys + j + half * N;
        const V added = hn::Load(d, tile + at);
        const auto visible = hn::Not(hn::Eq(added, hidden));
        const V score = hn::Add(hn::Load(d, x + at), added);
        V weight;
        if constexpr (kSlopes) {
          V slope;
          weight = H::value_and_slope(d, score, slope);
          hn::Store(hn::IfThenElseZero(visible, slope), d, slopes + at);
        } else {
          weight = H::value(d, score);
        }
        weight = hn::IfThenElseZero(visible, weight);
        hn::Store(weight, d, x + at);
        any = hn::Or(any, weight);
      }
      if constexpr (H::kHasZeros) bits |= NonZeroBits(d, any) << (half * N);
    }
    if (H::kHasZeros && masks) masks[j / NR] = bits;
  }
}

// For softmax's own pass: scores plus the mask tile, -inf for hidden keys.
template <int64_t kKeys, typename T>
HWY_NOINLINE void MaskScores(T* HWY_RESTRICT x, T* /*slopes*/, const T* HWY_RESTRICT tile, int rows, int64_t keys, uint32_t* /*masks*/) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const auto hidden = hn::Set(d, kHidden<T>);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t at = r * kKeys; at < r * kKeys + keys; at += N) {
      const auto added = hn::Load(d, tile + at);
      hn::Store(hn::IfThenElse(hn::Eq(added, hidden), hidden, hn::Add(hn::Load(d, x + at), added)), d, x + at);
    }
}

// Zeros for hidden keys in [rows] of a tile.
template <int64_t kKeys, typename T> HWY_NOINLINE void HideTile(T* HWY_RESTRICT x, const T* HWY_RESTRICT tile, int rows, int64_t keys) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const auto hidden = hn::Set(d, kHidden<T>);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t at = r * kKeys; at < r * kKeys + keys; at += N)
      hn::Store(hn::IfThenZeroElse(hn::Eq(hn::Load(d, tile + at), hidden), hn::Load(d, x + at)), d, x + at);
}

// Adds a run of dx to the gradient of the mask. hidden keys have 0.
template <typename T> void AddMaskGradient(const T* HWY_RESTRICT dx, int64_t count, T* HWY_RESTRICT to, int64_t stride) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  if (stride == 0) {
    auto sum = hn::Zero(d);
    for (; j + N <= count; j += N) sum = hn::Add(sum, hn::LoadU(d, dx + j));
    T total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; j < count; ++j) total += dx[j];
    *to += total;
    return;
  }
  for (; stride == 1 && j + N <= count; j += N) hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, dx + j)), d, to + j);
  for (; j < count; ++j) to[j * stride] += dx[j];
}

// True if all of `rows` rows of `depth` elements are finite.
template <typename S> bool AllFinite(const S* first, int64_t row, int64_t rows, int64_t depth) {
  using T = ComputeType<S>;
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);  // of x * 0: 0 or NaN
  T rest = 0;
  for (int64_t l = 0; l < rows; ++l) {
    const S* x = first + l * row;
    int64_t k = 0;
    for (; k + N <= depth; k += N) sum = hn::MulAdd(LoadStored(d, x + k), hn::Zero(d), sum);
    for (; k < depth; ++k) rest += static_cast<T>(x[k]) * T{0};
  }
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
