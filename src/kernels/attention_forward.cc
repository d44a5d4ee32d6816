// Forward attention: scores, activation and weighted sum, tile by tile; no L x L array.
//
// The micro-kernels work on panels of two vectors. Where a width is a multiple of that (on AVX2 of 16 floats or 8 doubles), results and the
// values of short sequences stay where the caller has them, and so do keys and values of sequences with a few rows only (decoding); other
// widths go through padded copies. What is stored as bfloat16 or float16 stays where it is in the last case only.
#include <iterator>
#include <type_traits>

#define HWY_TARGET_INCLUDE "kernels/attention_forward.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/attention-inl.h"
#include "kernels/attention_linear.h"
#include "kernels/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A head is cut into spans of row blocks, so that there are about this many in a call: tasks for the workers, if they share heads.
inline constexpr int64_t kSpans = 64;

// A sequence with at most so many rows reads keys and values in place: for them, packing does not pay (docs/benchmarks.md). More rows were
// not tried.
inline constexpr int64_t kFewRows = 4;

// Buffers of one worker. Tiles are kTileRows slots apart, whatever their height.
template <typename T> struct ForwardScratch {
  T *q, *out;                               // [tile][slot][padded_depth or padded_value], for tiles that cannot be read or written in place
  T* weights;                               // [tile] weight tiles
  T *shift, *factor;                        // [tile][slot]: added to the scores (bias); the row's final factor
  double *sum, *log_sum, *zeros, *largest;  // [tile][slot] statistics; softmax: running sum, sum e (x - max), -, maximum
  uint32_t* masks;                          // [tile][kForwardKeys]: per panel, the keys that any row of the tile gives a weight
  uint32_t* lists;                          // [tile][kListSize]
  T* mask_tiles;                            // [tile] mask tiles, where rows may see something other than the first keys
  uint32_t* visible;                        // [tile][kForwardKeys]: per panel, the keys that any row of a partial tile sees
  static constexpr int64_t kListSize = kForwardKeys + 8;  // whole vectors are stored at the end

  void carve(Carver& carver, const Plan& plan) {
    constexpr int64_t slots = kBlockTiles * kTileRows;
    q = carver.take<T>(slots * plan.padded_depth);
    out = carver.take<T>(slots * plan.padded_value);
    weights = carver.take<T>(slots * kForwardKeys);
    shift = carver.take<T>(slots);
    factor = carver.take<T>(slots);
    sum = carver.take<double>(slots);
    log_sum = carver.take<double>(slots);
    zeros = carver.take<double>(slots);
    largest = carver.take<double>(slots);
    masks = carver.take<uint32_t>(kBlockTiles * kForwardKeys);
    lists = carver.take<uint32_t>(kBlockTiles * kListSize);
    mask_tiles = carver.take<T>(plan.masked ? slots * kForwardKeys : 0);
    visible = carver.take<uint32_t>(plan.masked ? kBlockTiles * kForwardKeys : 0);
  }
};

// Adds sum w, sum w log |w| and the number of zeros of one run of weights.
template <typename T>
HWY_NOINLINE void AddStatistics(const T* HWY_RESTRICT w, int64_t count, bool logs, double& sum, double& log_sum, double& zeros) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d), one = hn::Set(d, 1);
  auto s = zero, l = zero, z = zero;
  for (int64_t j = 0; j < count; j += N) {
    const auto inside = hn::FirstN(d, static_cast<size_t>(count - j));
    const auto x = hn::IfThenElseZero(inside, hn::Load(d, w + j));
    const auto is_zero = hn::Eq(x, zero);
    s = hn::Add(s, x);
    z = hn::Add(z, hn::IfThenElseZero(hn::And(inside, is_zero), one));
    if (logs) l = hn::MulAdd(x, hn::Log(d, hn::IfThenElse(is_zero, one, hn::Abs(x))), l);
  }
  sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, s)));
  log_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, l)));
  zeros += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, z)));
}

// Turns one run of scores x into e^(x - m), m the running maximum, and brings what was summed under the old maximum in line.
template <typename T>
HWY_NOINLINE void SoftmaxRun(T* HWY_RESTRICT x, int64_t count, bool statistics, T* HWY_RESTRICT out, int64_t padded_value, double& largest,
                             double& sum, double& log_sum, double& zeros) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const T lowest = -std::numeric_limits<T>::infinity();
  auto top0 = hn::Set(d, lowest), top1 = top0;
  int64_t j = 0;
  for (; j + 2 * N <= count; j += 2 * N) {
    top0 = hn::Max(top0, hn::Load(d, x + j));
    top1 = hn::Max(top1, hn::Load(d, x + j + N));
  }
  for (; j < count; j += N)
    top0 = hn::Max(top0, hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count - j)), hn::Load(d, x + j), hn::Set(d, lowest)));
  const double top = static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, hn::Max(top0, top1))));
  if (top > largest) {
    if (sum > 0) {
      const double shrink = std::exp(largest - top);
      log_sum = shrink * (log_sum + sum * (largest - top));
      sum *= shrink;
      const auto f = hn::Set(d, static_cast<T>(shrink));
      for (int64_t k = 0; k < padded_value; k += N) hn::StoreU(hn::Mul(f, hn::LoadU(d, out + k)), d, out + k);
    }
    largest = top;
  }
  // As long as every score is -inf there is no maximum to subtract. If that lasts, the sum stays 0 and the row becomes 0 / 0, as elsewhere.
  const auto m = hn::Set(d, largest == lowest ? T{0} : static_cast<T>(largest));
  const auto zero = hn::Zero(d), one = hn::Set(d, 1);
  auto s0 = zero, s1 = zero;
  j = 0;
  for (; j + 2 * N <= count && !statistics; j += 2 * N) {
    const auto e0 = ExpNotPositive(d, hn::Sub(hn::Load(d, x + j), m)), e1 = ExpNotPositive(d, hn::Sub(hn::Load(d, x + j + N), m));
    hn::Store(e0, d, x + j);
    hn::Store(e1, d, x + j + N);
    s0 = hn::Add(s0, e0);
    s1 = hn::Add(s1, e1);
  }
  auto l = zero, z = zero;
  for (; j < count; j += N) {
    const auto inside = hn::FirstN(d, static_cast<size_t>(count - j));
    const auto t = hn::Sub(hn::Load(d, x + j), m);
    const auto e = hn::IfThenElseZero(inside, ExpNotPositive(d, t));
    hn::Store(e, d, x + j);
    s0 = hn::Add(s0, e);
    const auto is_zero = hn::Eq(e, zero);
    l = hn::Add(l, hn::IfThenElse(is_zero, zero, hn::Mul(e, t)));
    z = hn::Add(z, hn::IfThenElseZero(hn::And(inside, is_zero), one));
  }
  sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1))));
  log_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, l)));
  zeros += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, z)));
}

// Scores of tiles, and of a few rows without panels. Softmax's own pass wants raw scores: the identity stands in for it.
template <typename T> struct ForwardKernels : ScoreKernels<T> {
  using FewRows = void (*)(const T*, int64_t, int64_t, T*, uint32_t*);
  FewRows few_rows;  // after DotRows
  MaskedKernels<T> masked;
  FewRows masked_few_rows;
};
template <typename T> struct MakeForwardKernels {
  bool softmax;
  template <class H> ForwardKernels<T> operator()() const {
    ForwardKernels<T> kernels{MakeScoreKernels<H, kForwardKeys, false, T>(),
                              ActivateRows<std::conditional_t<H::kInTile, H, Identity>, kForwardKeys, T>,
                              MakeMaskedKernels<H, kForwardKeys, false, T>(), ActivateRows<Identity, kForwardKeys, T>};
    if (softmax) kernels.masked.activate = MaskScores<kForwardKeys, T>;
    return kernels;
  }
};

// WeightedPanels by the number of panels, as few calls as that takes.
template <typename S, typename T>
void CallWeightedPanels(int64_t panels, const T* weights, const uint32_t* list, int64_t count, const S* right, int64_t right_row, T* sums,
                        bool add, const T* factor) {
  using F = void (*)(const T*, const uint32_t*, int64_t, const S*, int64_t, T*, bool, const T*);
  static constexpr F kDense[] = {WeightedPanels<1, false, S, T>, WeightedPanels<2, false, S, T>, WeightedPanels<3, false, S, T>,
                                 WeightedPanels<4, false, S, T>, WeightedPanels<5, false, S, T>, WeightedPanels<6, false, S, T>};
  static constexpr F kListed[] = {WeightedPanels<1, true, S, T>, WeightedPanels<2, true, S, T>, WeightedPanels<3, true, S, T>,
                                  WeightedPanels<4, true, S, T>, WeightedPanels<5, true, S, T>, WeightedPanels<6, true, S, T>};
  const Parts passes(panels, std::size(kDense));
  for (int64_t pass = 0; pass < passes.parts; ++pass) {
    const int64_t from = passes.begin(pass) * PanelWidth<T>();
    (list ? kListed : kDense)[passes.size(pass) - 1](weights, list, count, right + from, right_row, sums + from, add, factor);
  }
}

// One call of attention_forward.
template <typename S, typename T> class Forward {
  using Keys = TileKeys<kForwardKeys, T>;
  // Whether the micro-kernels can read and write the caller's arrays.
  static constexpr bool kSameType = std::is_same_v<S, T>;

 public:
  Forward(const Plan& plan, const AttentionForward<S, T>& io)
      : plan_(plan),
        io_(io),
        kernels_(WithActivation<Identity>(plan.rule.h, MakeForwardKernels<T>{plan.softmax})),
        statistics_(io.weight_sum || io.weight_log || io.zero_share),
        threshold_(dropout_threshold(plan.rule.dropout)) {}

  void Run(Parallel& parallel) {
    const int workers = parallel.workers();
    const int64_t units = plan_.units();
    const int64_t heads = plan_.shape.B * plan_.shape.Hq;
    if (io_.skipped) std::fill_n(io_.skipped, heads, SkipCount{});

    int64_t longest = 0;
    for (const Sequence& seq : plan_.sequences)
      if (!HasFewRows(seq)) longest = std::max(longest, seq.seen);
    const int64_t packed = PackedScoresSize(plan_, longest, plan_.depth) + PackedWidthsSize(plan_, longest, plan_.value_depth);
    const bool split = SplitsUnits(units, workers);
    const int64_t wave = split ? UnitsInFlight(units, static_cast<size_t>(packed) * sizeof(T)) : workers;
    std::vector<ForwardScratch<T>> scratch(static_cast<size_t>(workers));
    std::vector<T*> packs(static_cast<size_t>(wave));
    Carver count(nullptr);
    Carve(count, scratch, packs, packed);
    Carver carver(Workspace::get(count.used()));
    Carve(carver, scratch, packs, packed);
    FindApart(parallel);

    if (!split) {
      parallel.run(units, [&](int64_t unit, int worker) HWY_ATTR {
        T* pack = packs[static_cast<size_t>(worker)];
        const Sequence& seq = plan_.unit_sequence(unit);
        Pack(unit, 0, seq.seen, pack);
        for (int64_t g = 0; g < plan_.group; ++g)
          for (int64_t span = 0; span < Spans(seq).parts; ++span) Span(unit, g, span, pack, scratch[static_cast<size_t>(worker)]);
      });
    } else {
      for (int64_t first = 0; first < units; first += wave) {
        const int64_t last = std::min(first + wave, units);
        // Tasks of a wave: (unit, key chunk), then (unit, query head, span), the longest rows (causal) first.
        struct Task {
          int64_t unit, g, part;
        };
        std::vector<Task> packing, spans;
        for (int64_t unit = first; unit < last; ++unit) {
          const Sequence& seq = plan_.unit_sequence(unit);
          for (int64_t chunk = 0; !HasFewRows(seq) && chunk < CeilDiv(seq.seen, kForwardKeys); ++chunk) packing.push_back({unit, 0, chunk});
          for (int64_t span = Spans(seq).parts - 1; span >= 0; --span)
            for (int64_t g = 0; g < plan_.group; ++g) spans.push_back({unit, g, span});
        }
        parallel.run(static_cast<int64_t>(packing.size()), [&](int64_t i, int) HWY_ATTR {
          const Task& task = packing[static_cast<size_t>(i)];
          const int64_t begin = task.part * kForwardKeys;
          Pack(task.unit, begin, std::min(begin + kForwardKeys, plan_.unit_sequence(task.unit).seen),
               packs[static_cast<size_t>(task.unit - first)]);
        });
        parallel.run(static_cast<int64_t>(spans.size()), [&](int64_t i, int worker) HWY_ATTR {
          const Task& task = spans[static_cast<size_t>(i)];
          Span(task.unit, task.g, task.part, packs[static_cast<size_t>(task.unit - first)], scratch[static_cast<size_t>(worker)]);
        });
      }
    }
    Workspace::release_large();
  }

 private:
  void Carve(Carver& carver, std::vector<ForwardScratch<T>>& scratch, std::vector<T*>& packs, int64_t packed) {
    for (ForwardScratch<T>& s : scratch) s.carve(carver, plan_);
    for (T*& pack : packs) pack = carver.take<T>(packed);
  }

  // Where a value is not finite, rows that see different keys cannot be summed together.
  void FindApart(Parallel& parallel) {
    if (!plan_.masked) return;
    apart_.assign(static_cast<size_t>(plan_.units()), 0);
    parallel.run(static_cast<int64_t>(apart_.size()), [&](int64_t unit, int) HWY_ATTR {
      const Sequence& seq = plan_.unit_sequence(unit);
      apart_[static_cast<size_t>(unit)] =
          seq.lq > 1 && !plan_.rows_see_alike(seq) &&
          !AllFinite(row_of(io_.v, seq.b, plan_.unit_kv_head(unit), seq.k_begin), io_.v.stride_l, seq.seen, plan_.value_depth);
    });
  }

  // Nothing is packed for them: keys and values are read in place.
  bool HasFewRows(const Sequence& seq) const {
    return seq.lq <= kFewRows && plan_.padded_depth == plan_.depth && plan_.padded_value == plan_.value_depth;
  }
  // A short sequence's values stay in L1 as they are; of a long one, rows a power of two apart would push each other out.
  bool ReadsValuesInPlace(const Sequence& seq) const {
    return HasFewRows(seq) || (kSameType && plan_.padded_value == plan_.value_depth && seq.seen <= 128);
  }

  // Keys [begin, end) of a unit: score panels of scale k, then width panels of v.
  void Pack(int64_t unit, int64_t begin, int64_t end, T* pack) {
    const Sequence& seq = plan_.unit_sequence(unit);
    if (HasFewRows(seq)) return;
    const int64_t kv_head = plan_.unit_kv_head(unit);
    PackScores(plan_, seq, io_.k, plan_.depth, kv_head, begin, end, static_cast<T>(plan_.rule.scale), pack);
    if (!ReadsValuesInPlace(seq))
      PackWidths(plan_, seq, io_.v, plan_.value_depth, kv_head, begin, end, pack + PackedScoresSize(plan_, seq.seen, plan_.depth));
  }

  // The spans of a head: of row blocks, by the shape only.
  Parts Spans(const Sequence& seq) const {
    const int64_t blocks = Parts(Tiles(seq.lq).parts, kBlockTiles).parts;
    return Parts(blocks, std::max<int64_t>(1, CeilDiv(blocks, CeilDiv(kSpans, plan_.units() * plan_.group))));
  }

  // One span of one query head. Its blocks share a watch: the later ones remember that zeros did not pay.
  void Span(int64_t unit, int64_t g, int64_t span, const T* pack, ForwardScratch<T>& s) {
    const Parts spans = Spans(plan_.unit_sequence(unit));
    ZeroWatch watch(kernels_.has_zeros);
    for (int64_t block = spans.begin(span); block < spans.begin(span + 1); ++block) Block(unit, g, block, pack, s, watch);
    Report(unit, g, watch);
  }

  // Where a tile's queries are read and its sums are kept: in the caller's arrays if whole panels and tiles fit there.
  struct Place {
    const T* q;
    T* out;
    int64_t q_row, out_row;
    bool in_place;
  };

  // One block of row tiles of one query head against all its keys.
  HWY_NOINLINE void Block(int64_t unit, int64_t g, int64_t block, const T* pack, ForwardScratch<T>& s, ZeroWatch& watch) {
    const Sequence& seq = plan_.unit_sequence(unit);
    const int64_t head = plan_.unit_kv_head(unit) * plan_.group + g;
    const Tiles all(seq.lq);
    const Parts blocks(all.parts, kBlockTiles);
    const int64_t first_tile = blocks.begin(block), tiles = blocks.size(block);
    const int64_t depth = plan_.depth, NR = plan_.NR;
    const bool few_rows = HasFewRows(seq), values_in_place = ReadsValuesInPlace(seq);
    const S* in_place = row_of(io_.v, seq.b, plan_.unit_kv_head(unit), seq.k_begin);
    const T* values = pack + PackedScoresSize(plan_, seq.seen, depth);
    if constexpr (kSameType)
      if (values_in_place) values = in_place;
    const int64_t value_row = values_in_place ? io_.v.stride_l : NR, value_panel = values_in_place ? NR : seq.seen * NR;

    Place places[kBlockTiles];
    LoadRows(seq, head, all, first_tile, tiles, s, places);
    Keys keys[kBlockTiles];
    const auto [least, most] = plan_.span_of(seq, all.begin(first_tile), all.begin(first_tile + tiles) - 1);
    const int64_t first_key = least / kKeyStep * kKeyStep;
    for (int64_t k0 = first_key; k0 < most; k0 += kForwardKeys) {
      const int64_t nk = std::min(kForwardKeys, most - k0);
      const bool look = watch.look();
      if (plan_.masked) {
        for (int64_t t = 0; t < tiles; ++t)
          keys[t].set_sight(plan_, seq, head, all.begin(first_tile + t), all.size(first_tile + t), k0, nk,
                            s.mask_tiles + t * kTileRows * kForwardKeys, s.visible + t * kForwardKeys, s.lists + t * s.kListSize,
                            apart_[static_cast<size_t>(unit)]);
      } else {
        for (int64_t t = 0; t < tiles; ++t) keys[t].set_visible(seq, all.begin(first_tile + t), all.size(first_tile + t), k0, nk);
      }
      if (few_rows) {
        ScoreFewRows(unit, places[0], keys[0], k0, s, look);
      } else if (plan_.masked) {
        ScoreMasked(tiles, keys, places, nk, pack + k0 * depth, s, look);
      } else {
        for (int64_t j = 0; j < nk; j += NR)
          for (int64_t t = 0; t < tiles; ++t)
            if (j < keys[t].most())
              kernels_.tile(keys[t].padded, keys[t].most() - j, NR)(places[t].q, places[t].q_row, pack + (k0 + j) * depth, depth,
                                                                    s.shift + t * kTileRows, s.weights + t * kTileRows * kForwardKeys + j,
                                                                    nullptr, look ? s.masks + t * kForwardKeys + j / NR : nullptr);
      }
      if (plan_.masked) ActivatePartial(tiles, keys, s, look);
      if (kernels_.activate)
        for (int64_t t = 0; t < tiles; ++t)
          if (keys[t].sight == Sight::open)
            kernels_.activate(s.weights + t * kTileRows * kForwardKeys, nullptr, keys[t].rows, keys[t].most());
      for (int64_t t = 0; t < tiles; ++t) {
        if (keys[t].sight == Sight::partial)
          watch.count(keys[t].common,
                      keys[t].set_list_of_partial((look ? s.masks : s.visible) + t * kForwardKeys, NR, s.lists + t * s.kListSize));
        else
          watch.count(keys[t].common, look ? keys[t].set_list(s.masks + t * kForwardKeys, NR, s.lists + t * s.kListSize) : 0);
      }
      watch.end_block(look);
      if (plan_.softmax || statistics_ || plan_.rule.dropout > 0) RowPasses(seq, head, all, first_tile, tiles, k0, keys, places, s);

      // Rows that all end here get their factor on the way; causal rows later.
      const bool finish = !seq.causal() && !plan_.masked && k0 + nk == most;
      if (finish && plan_.softmax) DivideFactors(tiles, keys, s);
      if (few_rows && (keys[0].rows == 1 || !kSameType)) {
        AddFewRows(keys[0], in_place + k0 * value_row, value_row, places[0], k0 > first_key, finish ? s.factor : nullptr, s);
        continue;
      }
      for (int64_t p = 0; p < plan_.value_panels; ++p) {
        const T* panel = values + p * value_panel + k0 * value_row;
        for (int64_t t = 0; t < tiles; ++t) {
          if (k0 > first_key && keys[t].most() == 0) continue;
          const T* weights = s.weights + t * kTileRows * kForwardKeys;
          T* out = places[t].out + p * NR;
          if (keys[t].apart) {
            AddRowsApart(keys[t], weights, panel, value_row, out, places[t].out_row, k0 > first_key, s.lists + t * s.kListSize);
            continue;
          }
          CallWeightedRows<kForwardKeys, T>(keys[t].padded, weights, keys[t].list, keys[t].count, panel, value_row, out, places[t].out_row,
                                            k0 > first_key, finish ? s.factor + t * kTileRows : nullptr);
          for (int r = 1; r < keys[t].rows; ++r)  // what later rows of a causal tile see beyond the first one
            if (keys[t].own[r] > keys[t].common)
              CallWeightedRows<kForwardKeys, T>(1, weights + r * kForwardKeys + keys[t].common, nullptr, keys[t].own[r] - keys[t].common,
                                                panel + keys[t].common * value_row, value_row, out + r * places[t].out_row, 0, true,
                                                nullptr);
        }
      }
    }
    StoreRows(seq, head, all, first_tile, tiles, most, places, s);
  }

  // The weights of a sequence's only tile; those of the rows that pad it are zero.
  void ScoreFewRows(int64_t unit, const Place& place, const Keys& keys, int64_t k0, ForwardScratch<T>& s, bool look) {
    const Sequence& seq = plan_.unit_sequence(unit);
    if (keys.sight == Sight::hidden) return;
    DotRows<kForwardKeys>(place.q, place.q_row, keys.rows, row_of(io_.k, seq.b, plan_.unit_kv_head(unit), seq.k_begin + k0), io_.k.stride_l,
                          keys.most(), plan_.depth, static_cast<T>(plan_.rule.scale), s.weights);
    const auto activate = keys.sight == Sight::partial ? kernels_.masked_few_rows : kernels_.few_rows;
    activate(s.shift, keys.rows, keys.most(), s.weights, look ? s.masks : nullptr);
    for (int64_t r = keys.rows; r < keys.padded; ++r) std::fill_n(s.weights + r * kForwardKeys, keys.most(), T{0});
  }

  // Weights times values that are read in place, row by row.
  void AddFewRows(const Keys& keys, const S* values, int64_t value_row, const Place& place, bool add, const T* factor,
                  ForwardScratch<T>& s) {
    for (int r = 0; r < keys.rows; ++r) {
      const T* weights = s.weights + r * kForwardKeys;
      T* out = place.out + r * place.out_row;
      const uint32_t* list = keys.apart ? s.lists : keys.list;
      const int64_t count = keys.apart ? keys.list_of_row(r, s.lists) : keys.count;
      CallWeightedPanels(plan_.value_panels, weights, list, count, values, value_row, out, add, factor ? factor + r : nullptr);
      if (keys.own[r] > keys.common)  // what later rows of a causal tile see beyond the first one
        CallWeightedPanels<S, T>(plan_.value_panels, weights + keys.common, nullptr, keys.own[r] - keys.common,
                                 values + keys.common * value_row, value_row, out, true, nullptr);
    }
  }

  // The scores of open and partial tiles; those of open ones as elsewhere, those of partial ones without activation.
  void ScoreMasked(int64_t tiles, const Keys* keys, const Place* places, int64_t nk, const T* pack, ForwardScratch<T>& s, bool look) {
    const int64_t depth = plan_.depth, NR = plan_.NR;
    for (int64_t j = 0; j < nk; j += NR)
      for (int64_t t = 0; t < tiles; ++t) {
        const bool partial = keys[t].sight == Sight::partial;
        if (keys[t].sight == Sight::hidden || (partial && s.visible[t * kForwardKeys + j / NR] == 0)) continue;
        const auto& tile = partial ? kernels_.masked.tile : kernels_.tile;
        tile(keys[t].padded, nk - j, NR)(places[t].q, places[t].q_row, pack + j * depth, depth, s.shift + t * kTileRows,
                                         s.weights + t * kTileRows * kForwardKeys + j, nullptr,
                                         look && !partial ? s.masks + t * kForwardKeys + j / NR : nullptr);
      }
  }

  void ActivatePartial(int64_t tiles, const Keys* keys, ForwardScratch<T>& s, bool look) {
    for (int64_t t = 0; t < tiles; ++t)
      if (keys[t].sight == Sight::partial)
        kernels_.masked.activate(s.weights + t * kTileRows * kForwardKeys, nullptr, s.mask_tiles + t * kTileRows * kForwardKeys,
                                 keys[t].padded, keys[t].most(), look ? s.masks + t * kForwardKeys : nullptr);
  }

  void AddRowsApart(const Keys& keys, const T* weights, const T* panel, int64_t value_row, T* out, int64_t out_row, bool add,
                    uint32_t* list) {
    for (int r = 0; r < keys.rows; ++r)
      CallWeightedRows<kForwardKeys, T>(1, weights + r * kForwardKeys, list, keys.list_of_row(r, list), panel, value_row, out + r * out_row,
                                        0, add, nullptr);
  }

  void Report(int64_t unit, int64_t g, const ZeroWatch& watch) {
    const int64_t head = plan_.unit_kv_head(unit) * plan_.group + g;
    if (io_.skipped) AddSkipped(io_.skipped[plan_.unit_sequence(unit).b * plan_.shape.Hq + head], watch.total());
  }

  void LoadRows(const Sequence& seq, int64_t head, const Tiles& all, int64_t first_tile, int64_t tiles, ForwardScratch<T>& s,
                Place* places) {
    const int64_t pd = plan_.padded_depth, pdv = plan_.padded_value;
    RowLengths lengths(plan_, seq, head);
    const double gain = plan_.gain(head), bias = plan_.bias(head), inverse_keep = dropout_scale(plan_.rule.dropout);
    // Queries far apart fall on few cache sets: those are copied.
    const bool q_near = kSameType && io_.q.stride_l <= 2 * pd;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = all.begin(first_tile + t), rows = all.size(first_tile + t), padded = PaddedRows(rows), slot0 = t * kTileRows;
      Place& place = places[t];
      place.in_place = kSameType && plan_.value_depth == pdv && rows == padded;
      place.out = s.out + slot0 * pdv;
      place.out_row = pdv;
      const bool copies_q = !q_near || rows != padded;
      const S* q = row_of(io_.q, seq.b, head, seq.q_begin + first);
      for (int64_t r = 0; copies_q && r < padded; ++r)
        r < rows ? CopyRow(q + r * io_.q.stride_l, plan_.depth, T{1}, s.q + (slot0 + r) * pd, pd)
                 : (void)std::fill_n(s.q + (slot0 + r) * pd, pd, T{0});
      place.q = s.q + slot0 * pd;
      place.q_row = pd;
      if constexpr (kSameType) {
        if (place.in_place) place.out = row_of(io_.out, seq.b, head, seq.q_begin + first), place.out_row = io_.out.stride_l;
        if (!copies_q) place.q = q, place.q_row = io_.q.stride_l;
      }
      for (int64_t r = 0; r < padded; ++r) {
        s.shift[slot0 + r] = 0;
        s.factor[slot0 + r] = static_cast<T>(inverse_keep);
        if (plan_.softmax || r >= rows || plan_.seen_by(seq, head, first + r) == 0) continue;
        lengths.set_row(first + r);
        s.shift[slot0 + r] = static_cast<T>(bias - (plan_.rule.bias_log_n ? lengths.log_n() : 0));
        s.factor[slot0 + r] = static_cast<T>(gain * lengths.power() * inverse_keep);
      }
    }
    if (plan_.softmax || statistics_) {
      const int64_t slots = tiles * kTileRows;
      for (double* column : {s.sum, s.log_sum, s.zeros}) std::fill_n(column, slots, 0.0);
      std::fill_n(s.largest, slots, -std::numeric_limits<double>::infinity());
    }
  }

  // Softmax: a row's factor becomes 1 / its sum (over 1 - dropout), once its last key is in.
  void DivideFactors(int64_t tiles, const Keys* keys, ForwardScratch<T>& s) {
    for (int64_t t = 0; t < tiles; ++t)
      for (int r = 0; r < keys[t].rows; ++r)
        s.factor[t * kTileRows + r] = static_cast<T>(s.factor[t * kTileRows + r] / s.sum[t * kTileRows + r]);
  }

  // Statistics, softmax and dropout of one block of weights, row by row.
  void RowPasses(const Sequence& seq, int64_t head, const Tiles& all, int64_t first_tile, int64_t tiles, int64_t k0, const Keys* keys,
                 const Place* places, ForwardScratch<T>& s) {
    for (int64_t t = 0; t < tiles; ++t)
      for (int r = 0; r < keys[t].rows; ++r) {
        const int64_t slot = t * kTileRows + r, n = keys[t].own[r];
        if (n == 0) continue;
        T* w = s.weights + slot * kForwardKeys;
        if (plan_.softmax)
          SoftmaxRun(w, n, statistics_, places[t].out + r * places[t].out_row, plan_.padded_value, s.largest[slot], s.sum[slot],
                     s.log_sum[slot], s.zeros[slot]);
        else if (statistics_)
          AddStatistics(w, n, io_.weight_log != nullptr, s.sum[slot], s.log_sum[slot], s.zeros[slot]);
        if (keys[t].sight == Sight::partial) s.zeros[slot] -= static_cast<double>(keys[t].not_seen[r]);  // those are no zeros
        if (plan_.rule.dropout > 0) {
          DropoutRun<true>(plan_.rule.seed, threshold_, seq.b * plan_.shape.Hq + head, seq.q_begin + all.begin(first_tile + t) + r, k0, n,
                           w);
        }
      }
  }

  // Brings the rows to where they belong, with their factor if they have not got it, and writes the statistics.
  void StoreRows(const Sequence& seq, int64_t head, const Tiles& all, int64_t first_tile, int64_t tiles, int64_t most, const Place* places,
                 ForwardScratch<T>& s) {
    RowLengths lengths(plan_, seq, head);
    const bool finished = !seq.causal() && !plan_.masked && most > 0;
    for (int64_t t = 0; t < tiles; ++t) {
      if (finished && places[t].in_place && !statistics_ && !io_.lse) continue;
      for (int64_t r = 0; r < all.size(first_tile + t); ++r) {
        const int64_t slot = t * kTileRows + r, i = all.begin(first_tile + t) + r, row = seq.q_begin + i;
        const int64_t stat = (seq.b * plan_.shape.Hq + head) * plan_.shape.Lq + row;
        const int64_t n = plan_.seen_by(seq, head, i);
        S* out = row_of(io_.out, seq.b, head, row);
        if (n == 0) {
          std::fill_n(out, plan_.value_depth, S{});
        } else if (!finished || !places[t].in_place) {
          double factor = finished ? 1.0 : static_cast<double>(s.factor[slot]);
          if (!finished && plan_.softmax) factor /= s.sum[slot];
          WriteRow<false>(places[t].out + r * places[t].out_row, plan_.value_depth, static_cast<T>(factor), out);
        }
        if (io_.lse) io_.lse[stat] = static_cast<T>(n ? s.largest[slot] + std::log(s.sum[slot]) : -std::numeric_limits<double>::infinity());
        if (!statistics_) continue;
        double sum = 0, log_sum = 0;
        if (n && plan_.softmax) {
          sum = s.sum[slot] / s.sum[slot];
          log_sum = s.log_sum[slot] / s.sum[slot] - std::log(s.sum[slot]);
        } else if (n) {
          lengths.set_row(i);
          const double c = plan_.gain(head) * lengths.power();
          sum = c * s.sum[slot];
          log_sum = c == 0 ? 0 : c * (s.log_sum[slot] + std::log(std::abs(c)) * s.sum[slot]);
        }
        if (io_.weight_sum) io_.weight_sum[stat] = static_cast<T>(sum);
        if (io_.weight_log) io_.weight_log[stat] = static_cast<T>(log_sum);
        const bool not_a_number = plan_.softmax && s.sum[slot] == 0;  // every score is -inf: the weights are 0 / 0, none is zero
        if (io_.zero_share) io_.zero_share[stat] = static_cast<T>(n && !not_a_number ? s.zeros[slot] / static_cast<double>(n) : 0);
      }
    }
  }

  const Plan& plan_;
  const AttentionForward<S, T>& io_;
  ForwardKernels<T> kernels_;
  bool statistics_;
  uint32_t threshold_;
  std::vector<char> apart_;  // [unit], where rows may see something other than the first keys
};

template <typename S, typename T>
void RunForward(const AttentionShape& shape, const AttentionRule& rule, const AttentionForward<S, T>& io, Parallel& parallel) {
  Plan plan = Plan::make<T>(shape, rule);
  plan.count_visible<T>(parallel);
  Forward<S, T>(plan, io).Run(parallel);
}

HINGE_STORED_TYPES(RunForward);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

size_t take_scratch_peak() { return Workspace::take_peak(); }

HINGE_EXPORT_STORED(RunForward);

template <typename S, typename T>
void attention_forward(const AttentionShape& shape, const AttentionRule& rule, const AttentionForward<S, T>& io, Parallel& parallel) {
  if (takes_linear_order(shape, rule, io.weight_log || io.zero_share)) return linear_forward(shape, rule, io, parallel);
  HINGE_DISPATCH_STORED(RunForward, S)(shape, rule, io, parallel);
}

HINGE_INSTANTIATE_STORED(attention_forward);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
