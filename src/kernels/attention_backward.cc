// Backward attention: scores are computed again, tile by tile; no L x L array.
//
// With c_i = g N_i^-alpha, x, h, m as in attention.h and dO' = c_i / (1 - dropout) grad_out_i (rows are scaled once, on loading):
//   G_ij = [kept] dO'_i . v_j + c_i grad_weight_sum_i + c_i grad_weight_log_i (log |c_i h_ij| + 1)
//   dx_ij = h'(x_ij) G_ij
//   dv_j = sum_i [kept] h_ij dO'_i      dk_j = sum_i dx_ij (scale q_i)      dq_i = scale sum_j dx_ij k_j
//   dbias = sum_ij dx_ij      dgain = 1/g sum_ij h_ij G_ij      dalpha = -sum_i log N_i sum_j h_ij G_ij
// Softmax is the point-wise case h(x) = h'(x) = e^x at x - lse_i with c_i = 1 and -grad_out_i . out_i added to G_ij.
//
// A sequence is cut into query chunks and key chunks. Step s takes the pairs (query chunk (t + s) mod T, key chunk t), which share no
// output, so a step's pairs may run at the same time; every output is a sum over steps in order. That makes results independent of
// who runs what, without private copies of dq, dk or dv. Where results are stored as bfloat16 or float16, a sequence of several chunks has
// its sums in float32 until the last step, and each of them is rounded once.

#define HWY_TARGET_INCLUDE "kernels/attention_backward.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/attention-inl.h"
#include "kernels/attention_linear.h"
#include "kernels/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Chunks of a sequence: the larger, the less is loaded and added twice; the smaller, the more workers can share one sequence.
// Between these limits they are cut so that a step has about kTasksPerStep pairs.
inline constexpr int64_t kLeastChunkTiles = 288 / kTileRows, kMostChunkTiles = 576 / kTileRows;  // row tiles of a query chunk
inline constexpr int64_t kLeastChunkKeys = 256, kMostChunkKeys = 512;                            // keys of a key chunk
inline constexpr int64_t kTasksPerStep = 64;

// The weight of softmax as a function of x - lse, which rounding may bring above 0 when scores are huge.
struct SoftmaxWeight {
  static constexpr bool kHasZeros = false, kInTile = false;
  static constexpr Slope kSlope = Slope::kStored;
  template <class D, class V> static HWY_INLINE V value(D d, V x) {
    return ExpNotPositive(d, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Zero(d), x));
  }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) { return slope = value(d, x); }
};

template <typename T> struct BackwardKernels {
  ScoreKernels<T> score;
  MaskedKernels<T> masked;
  PanelKernels<void (*)(const T*, int64_t, const T*, int64_t, const T*, const T*, T*, T*)> gradient;
};

// Slopes are stored where the weights do not tell them, and always where rows are finished one by one (general).
template <typename T> struct MakeBackwardKernels {
  bool general;
  template <class H> BackwardKernels<T> operator()() const {
    if (!general && H::kSlope != Slope::kStored)
      return {MakeScoreKernels<H, kBackwardKeys, false, T>(), MakeMaskedKernels<H, kBackwardKeys, true, T>(),
              HINGE_PANEL_KERNELS(GradientTile, H::kSlope, T)};
    return {MakeScoreKernels<H, kBackwardKeys, true, T>(), MakeMaskedKernels<H, kBackwardKeys, true, T>(),
            HINGE_PANEL_KERNELS(GradientTile, Slope::kStored, T)};
  }
};

// Buffers of one worker. Tiles lie side by side: rows that pad one can only be behind the last.
template <typename T> struct BackwardScratch {
  T *q, *dq;                  // [row of chunk][padded_depth]: scale q, dq / scale
  T* grad;                    // [row of chunk][padded_value]: dO'
  T *shift, *grad_shift;      // [row of chunk]: added to the scores and to G
  T *log_grad, *log_c;        // [row of chunk]: c_i grad_weight_log_i and log |c_i|
  T *weights, *slopes, *raw;  // [row of block][kBackwardKeys]: h, then h' and later dx, dO' . v
  T *dk, *dv;                 // width panels of the key chunk
  T* keep;                    // [kBackwardKeys] dropout of one row
  uint32_t* masks;            // [tile of block][kBackwardKeys]: per panel, the keys that any row of the tile gives a weight
  uint32_t* lists;            // [tile of block][kListSize]
  T* mask_tiles;              // [row of block][kBackwardKeys], where rows may see something other than the first keys
  uint32_t* visible;          // [tile of block][kBackwardKeys]: per panel, the keys that any row of a partial tile sees
  static constexpr int64_t kListSize = kBackwardKeys + 8;  // whole vectors are stored at the end

  void carve(Carver& carver, const Plan& plan) {
    constexpr int64_t chunk_rows = kMostChunkTiles * kTileRows, block_rows = kBlockTiles * kTileRows;
    for (T** rows : {&q, &dq}) *rows = carver.take<T>(chunk_rows * plan.padded_depth);
    grad = carver.take<T>(chunk_rows * plan.padded_value);
    for (T** column : {&shift, &grad_shift, &log_grad, &log_c}) *column = carver.take<T>(chunk_rows);
    for (T** tiles : {&weights, &slopes, &raw}) *tiles = carver.take<T>(block_rows * kBackwardKeys);
    dk = carver.take<T>(kMostChunkKeys * plan.padded_depth);
    dv = carver.take<T>(kMostChunkKeys * plan.padded_value);
    keep = carver.take<T>(kBackwardKeys);
    masks = carver.take<uint32_t>(kBlockTiles * kBackwardKeys);
    lists = carver.take<uint32_t>(kBlockTiles * kListSize);
    mask_tiles = carver.take<T>(plan.masked ? block_rows * kBackwardKeys : 0);
    visible = carver.take<uint32_t>(plan.masked ? kBlockTiles * kBackwardKeys : 0);
  }
};

// One row of G, dx and the row's sums: raw holds dO' . v, slopes h' (dx on return), weights h (times keep on return).
template <typename T>
HWY_NOINLINE void RowGradient(T* HWY_RESTRICT weights, T* HWY_RESTRICT slopes, const T* HWY_RESTRICT raw, const T* HWY_RESTRICT keep,
                              int64_t count, T grad_shift, T log_grad, T log_c, double& sum_hg, double& sum_dx) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d), one = hn::Set(d, 1), start = hn::Set(d, grad_shift), lg = hn::Set(d, log_grad), lc = hn::Set(d, log_c);
  V hg = zero, sdx = zero;
  for (int64_t j = 0; j < count; j += N) {
    const auto inside = hn::FirstN(d, static_cast<size_t>(count - j));
    const V h = hn::IfThenElseZero(inside, hn::Load(d, weights + j));
    V g = hn::Load(d, raw + j);
    if (keep) {
      const V kept = hn::Load(d, keep + j);
      g = hn::Mul(g, kept);
      hn::Store(hn::Mul(h, kept), d, weights + j);
    }
    g = hn::Add(g, start);
    if (log_grad != 0) {
      const auto is_zero = hn::Eq(h, zero);
      const V logs = hn::Add(hn::Log(d, hn::IfThenElse(is_zero, one, hn::Abs(h))), lc);
      // A zero weight has no share in the logarithm's gradient, nor in the constant 1 beside it, which grad_shift holds.
      g = hn::IfThenElse(is_zero, hn::Sub(g, lg), hn::MulAdd(lg, logs, g));
    }
    const V dx = hn::IfThenElseZero(inside, hn::Mul(hn::Load(d, slopes + j), g));
    hn::Store(dx, d, slopes + j);
    hg = hn::Add(hg, hn::IfThenElseZero(inside, hn::Mul(h, g)));
    sdx = hn::Add(sdx, dx);
  }
  sum_hg += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hg)));
  sum_dx += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sdx)));
}

// One call of attention_backward.
template <typename S, typename T> class Backward {
  using Keys = TileKeys<kBackwardKeys, T>;
  static constexpr bool kSameType = std::is_same_v<S, T>;  // the caller's arrays can hold sums

 public:
  Backward(const Plan& plan, const AttentionBackward<S, T>& io)
      : plan_(plan),
        io_(io),
        row_sums_(!plan.softmax && (io.dgain || io.dbias || io.dalpha)),
        general_(row_sums_ || io.grad_weight_log || plan.rule.dropout > 0),
        kernels_(WithActivation<SoftmaxWeight>(plan.rule.h, MakeBackwardKernels<T>{general_})),
        threshold_(dropout_threshold(plan.rule.dropout)) {
    if (row_sums_) {
      sum_hg_.assign(static_cast<size_t>(plan.shape.B * plan.shape.Hq * plan.shape.Lq), 0.0);
      sum_dx_ = sum_hg_;
    }
  }

  void Run(Parallel& parallel) {
    const int workers = parallel.workers();
    if (io_.skipped) std::fill_n(io_.skipped, plan_.shape.B * plan_.shape.Hq, SkipCount{});

    const std::vector<std::vector<int64_t>> rounds = Rounds();
    const int64_t units = static_cast<int64_t>(rounds.empty() ? 0 : rounds[0].size());  // the first round is the largest
    const int64_t packed = PackedSize(plan_.longest_seen) + LargestSums();
    const bool split = SplitsUnits(units, workers);
    const int64_t wave = split ? UnitsInFlight(units, static_cast<size_t>(packed) * sizeof(T)) : workers;
    std::vector<BackwardScratch<T>> scratch(static_cast<size_t>(workers));
    std::vector<T*> packs(static_cast<size_t>(wave));
    Carver count(nullptr);
    Carve(count, scratch, packs, packed);
    Carver carver(Workspace::get(count.used()));
    Carve(carver, scratch, packs, packed);
    FindApart(parallel);
    for (const std::vector<int64_t>& round : rounds)
      split ? RunSplit(round, wave, packs, scratch, parallel) : RunWhole(round, packs, scratch, parallel);
    Workspace::release_large();
    if (row_sums_) SumParameters();
  }

 private:
  using Scratches = std::vector<BackwardScratch<T>>;

  // Units that may run side by side: all of them, unless several have a share in one element of dmask. Those come one after the other, in
  // the same order for any number of workers.
  std::vector<std::vector<int64_t>> Rounds() const {
    std::vector<std::vector<int64_t>> rounds;
    std::vector<size_t> next(static_cast<size_t>(io_.dmask.data ? plan_.units() : 0), 0);  // by place in dmask: its next free round
    for (int64_t unit = 0; unit < plan_.units(); ++unit) {
      size_t round = 0;
      if (io_.dmask.data) {
        const int64_t b = io_.dmask.stride_b ? plan_.unit_sequence(unit).b : 0, head = io_.dmask.stride_h ? plan_.unit_kv_head(unit) : 0;
        round = next[static_cast<size_t>(b * plan_.shape.Hkv + head)]++;
      }
      if (round >= rounds.size()) rounds.emplace_back();
      rounds[round].push_back(unit);
    }
    return rounds;
  }

  // Many units: each is one task.
  void RunWhole(const std::vector<int64_t>& units, const std::vector<T*>& packs, Scratches& scratch, Parallel& parallel) {
    parallel.run(static_cast<int64_t>(units.size()), [&](int64_t i, int worker) HWY_ATTR {
      const int64_t unit = units[static_cast<size_t>(i)];
      T* pack = packs[static_cast<size_t>(worker)];
      const Chunks chunks = ChunksOf(unit);
      ClearOutputs(unit, chunks, pack);
      Pack(unit, 0, plan_.unit_sequence(unit).seen, pack);
      for (int64_t step = 0; step < chunks.steps; ++step)
        for (int64_t t = 0; t < chunks.steps; ++t) Pair(unit, chunks, step, t, pack, scratch[static_cast<size_t>(worker)]);
      for (int64_t t = 0; t < chunks.steps; ++t) RoundSums(unit, chunks, t, pack);
    });
  }

  // Few units: the workers share each of them, `wave` units at a time.
  void RunSplit(const std::vector<int64_t>& units, int64_t wave, const std::vector<T*>& packs, Scratches& scratch, Parallel& parallel) {
    const int64_t count = static_cast<int64_t>(units.size());
    for (int64_t first = 0; first < count; first += wave) {
      const int64_t in_flight = std::min(wave, count - first);
      const auto unit_at = [&](int64_t n) { return units[static_cast<size_t>(first + n)]; };
      struct Task {
        int64_t n, part;
      };
      std::vector<Task> packing;
      int64_t steps = 0;
      for (int64_t n = 0; n < in_flight; ++n) {
        const Sequence& seq = plan_.unit_sequence(unit_at(n));
        for (int64_t part = 0; part < CeilDiv(seq.seen, kBackwardKeys); ++part) packing.push_back({n, part});
        steps = std::max(steps, ChunksOf(unit_at(n)).steps);
      }
      parallel.run(in_flight,
                   [&](int64_t n, int) HWY_ATTR { ClearOutputs(unit_at(n), ChunksOf(unit_at(n)), packs[static_cast<size_t>(n)]); });
      parallel.run(static_cast<int64_t>(packing.size()), [&](int64_t i, int) HWY_ATTR {
        const Task& task = packing[static_cast<size_t>(i)];
        const int64_t begin = task.part * kBackwardKeys;
        Pack(unit_at(task.n), begin, std::min(begin + kBackwardKeys, plan_.unit_sequence(unit_at(task.n)).seen),
             packs[static_cast<size_t>(task.n)]);
      });
      for (int64_t step = 0; step < steps; ++step)
        parallel.run(in_flight * steps, [&](int64_t i, int worker) HWY_ATTR {
          const int64_t n = i / steps, t = i % steps;
          const Chunks chunks = ChunksOf(unit_at(n));
          if (step < chunks.steps && t < chunks.steps)
            Pair(unit_at(n), chunks, step, t, packs[static_cast<size_t>(n)], scratch[static_cast<size_t>(worker)]);
        });
      if constexpr (!kSameType)
        parallel.run(in_flight * steps, [&](int64_t i, int) HWY_ATTR {
          const int64_t n = i / steps;
          RoundSums(unit_at(n), ChunksOf(unit_at(n)), i % steps, packs[static_cast<size_t>(n)]);
        });
    }
  }

  // Where a number is not finite, rows that see different keys cannot be summed together.
  void FindApart(Parallel& parallel) {
    if (!plan_.masked) return;
    apart_.assign(static_cast<size_t>(plan_.units()), 0);
    parallel.run(static_cast<int64_t>(apart_.size()), [&](int64_t unit, int) HWY_ATTR {
      const Sequence& seq = plan_.unit_sequence(unit);
      const int64_t kv_head = plan_.unit_kv_head(unit);
      if (seq.lq <= 1 || plan_.rows_see_alike(seq)) return;
      bool finite = AllFinite(row_of(io_.k, seq.b, kv_head, seq.k_begin), io_.k.stride_l, seq.seen, plan_.depth);
      for (int64_t head = kv_head * plan_.group; head < (kv_head + 1) * plan_.group; ++head)
        finite = finite && AllFinite(row_of(io_.q, seq.b, head, seq.q_begin), io_.q.stride_l, seq.lq, plan_.depth) &&
                 AllFinite(row_of(io_.grad_out, seq.b, head, seq.q_begin), io_.grad_out.stride_l, seq.lq, plan_.value_depth);
      apart_[static_cast<size_t>(unit)] = !finite;
    });
  }

  // How a sequence is cut, by its shape only.
  struct Chunks {
    Tiles tiles;
    Parts queries;  // of tiles
    KeyParts keys;
    int64_t steps;
    bool single;  // one pair makes the whole result: outputs are stored, not added to
    Chunks(const Sequence& seq, int64_t units)
        : tiles(seq.lq),
          queries(tiles.parts, Limit(tiles.parts, units, kLeastChunkTiles, kMostChunkTiles)),
          keys(0, seq.seen, Limit(seq.seen, units, kLeastChunkKeys, kMostChunkKeys) / kKeyStep * kKeyStep),
          steps(std::max(queries.parts, keys.parts)),
          single(queries.parts == 1 && keys.parts == 1) {}
    static int64_t Limit(int64_t count, int64_t units, int64_t least, int64_t most) {
      return std::clamp(CeilDiv(count, CeilDiv(kTasksPerStep, units)), least, most);
    }
  };

  Chunks ChunksOf(int64_t unit) const { return Chunks(plan_.unit_sequence(unit), plan_.units()); }

  void Carve(Carver& carver, std::vector<BackwardScratch<T>>& scratch, std::vector<T*>& packs, int64_t packed) {
    for (BackwardScratch<T>& s : scratch) s.carve(carver, plan_);
    for (T*& pack : packs) pack = carver.take<T>(packed);
  }

  // Keys [begin, end) of a unit: score panels of k and of v, then width panels of k.
  void Pack(int64_t unit, int64_t begin, int64_t end, T* pack) {
    const Sequence& seq = plan_.unit_sequence(unit);
    const int64_t kv_head = plan_.unit_kv_head(unit);
    PackScores(plan_, seq, io_.k, plan_.depth, kv_head, begin, end, T{1}, pack);
    PackScores(plan_, seq, io_.v, plan_.value_depth, kv_head, begin, end, T{1}, pack + ValueScores(seq));
    PackWidths(plan_, seq, io_.k, plan_.depth, kv_head, begin, end, pack + KeyWidths(seq));
  }

  // Where the parts of a unit's packed array begin.
  int64_t ValueScores(const Sequence& seq) const { return PackedScoresSize(plan_, seq.seen, plan_.depth); }
  int64_t KeyWidths(const Sequence& seq) const { return ValueScores(seq) + PackedScoresSize(plan_, seq.seen, plan_.value_depth); }
  int64_t PackedSize(int64_t keys) const {
    return PackedScoresSize(plan_, keys, plan_.depth) + PackedScoresSize(plan_, keys, plan_.value_depth) +
           PackedWidthsSize(plan_, keys, plan_.depth);
  }

  // Where the gradients of a unit of several chunks are summed: row i of query head g of its group, row j of its keys.
  struct Rows {
    T* first;
    int64_t stride_l, stride_g = 0;
    T* of(int64_t l, int64_t g = 0) const { return first + g * stride_g + l * stride_l; }
  };
  struct Sums {
    Rows dq, dk, dv;
  };

  // In the caller's arrays if those can hold sums, else behind the unit's packed keys, where they take SumsSize() elements.
  Sums SumsOf(int64_t unit, T* pack) const {
    const Sequence& seq = plan_.unit_sequence(unit);
    if constexpr (kSameType) {
      const int64_t kv_head = plan_.unit_kv_head(unit);
      return {{row_of(io_.dq, seq.b, kv_head * plan_.group, seq.q_begin), io_.dq.stride_l, io_.dq.stride_h},
              {row_of(io_.dk, seq.b, kv_head, seq.k_begin), io_.dk.stride_l},
              {row_of(io_.dv, seq.b, kv_head, seq.k_begin), io_.dv.stride_l}};
    } else {
      T* dq = pack + PackedSize(seq.seen);
      T* dk = dq + plan_.group * seq.lq * plan_.depth;
      return {{dq, plan_.depth, seq.lq * plan_.depth}, {dk, plan_.depth}, {dk + seq.seen * plan_.depth, plan_.value_depth}};
    }
  }
  int64_t SumsSize(const Sequence& seq) const {
    if (kSameType || Chunks(seq, plan_.units()).single) return 0;
    return plan_.group * seq.lq * plan_.depth + seq.seen * (plan_.depth + plan_.value_depth);
  }
  int64_t LargestSums() const {
    int64_t largest = 0;
    for (const Sequence& seq : plan_.sequences) largest = std::max(largest, SumsSize(seq));
    return largest;
  }

  // Zeros where nothing will be stored: everything that pairs add to, and hidden keys.
  void ClearOutputs(int64_t unit, const Chunks& chunks, T* pack) {
    const Sequence& seq = plan_.unit_sequence(unit);
    const int64_t kv_head = plan_.unit_kv_head(unit);
    for (int64_t j = seq.seen; j < seq.lk; ++j) {
      std::fill_n(row_of(io_.dk, seq.b, kv_head, seq.k_begin + j), plan_.depth, S{});
      std::fill_n(row_of(io_.dv, seq.b, kv_head, seq.k_begin + j), plan_.value_depth, S{});
    }
    if (chunks.single) return;
    const Sums sums = SumsOf(unit, pack);
    for (int64_t j = 0; j < seq.seen; ++j) {
      std::fill_n(sums.dk.of(j), plan_.depth, T{0});
      std::fill_n(sums.dv.of(j), plan_.value_depth, T{0});
    }
    for (int64_t g = 0; g < plan_.group; ++g)
      for (int64_t i = 0; i < seq.lq; ++i) std::fill_n(sums.dq.of(i, g), plan_.depth, T{0});
  }

  // Query chunk t and key chunk t of a unit's sums, where they are not the results themselves.
  void RoundSums(int64_t unit, const Chunks& chunks, int64_t t, T* pack) {
    if (kSameType || chunks.single) return;
    const Sequence& seq = plan_.unit_sequence(unit);
    const int64_t kv_head = plan_.unit_kv_head(unit);
    const Sums sums = SumsOf(unit, pack);
    if (t < chunks.queries.parts)
      for (int64_t g = 0; g < plan_.group; ++g)
        for (int64_t i = chunks.tiles.begin(chunks.queries.begin(t)); i < chunks.tiles.begin(chunks.queries.begin(t + 1)); ++i)
          WriteRow<false>(sums.dq.of(i, g), plan_.depth, T{1}, row_of(io_.dq, seq.b, kv_head * plan_.group + g, seq.q_begin + i));
    if (t < chunks.keys.parts)
      for (int64_t j = chunks.keys.begin(t); j < chunks.keys.end(t); ++j) {
        WriteRow<false>(sums.dk.of(j), plan_.depth, T{1}, row_of(io_.dk, seq.b, kv_head, seq.k_begin + j));
        WriteRow<false>(sums.dv.of(j), plan_.value_depth, T{1}, row_of(io_.dv, seq.b, kv_head, seq.k_begin + j));
      }
  }

  // What a query chunk and a key chunk give to each other, for every query head of the unit.
  HWY_NOINLINE void Pair(int64_t unit, const Chunks& chunks, int64_t step, int64_t t, T* pack, BackwardScratch<T>& s) {
    const int64_t q_chunk = (t + step) % chunks.steps;
    if (q_chunk >= chunks.queries.parts || t >= chunks.keys.parts) return;
    const Sequence& seq = plan_.unit_sequence(unit);
    const int64_t first_tile = chunks.queries.begin(q_chunk), tiles = chunks.queries.size(q_chunk);
    const int64_t k_begin = chunks.keys.begin(t), k_end = chunks.keys.end(t);
    const int64_t last_row = chunks.tiles.begin(first_tile + tiles) - 1;
    const auto [least, most] = plan_.span_of(seq, chunks.tiles.begin(first_tile), last_row);
    if (k_begin >= k_end || ((most <= k_begin || least >= k_end) && !chunks.single)) return;

    const Sums sums = SumsOf(unit, pack);
    std::fill_n(s.dk, (k_end - k_begin) * plan_.padded_depth, T{0});
    std::fill_n(s.dv, (k_end - k_begin) * plan_.padded_value, T{0});
    for (int64_t g = 0; g < plan_.group; ++g) {
      const int64_t head = plan_.unit_kv_head(unit) * plan_.group + g;
      ZeroWatch watch(kernels_.score.has_zeros);
      LoadRows(seq, head, chunks.tiles, first_tile, tiles, s);
      const KeyParts key_blocks(k_begin, k_end, kBackwardKeys);
      const Parts tile_blocks(tiles, kBlockTiles);
      for (int64_t kb = 0; kb < key_blocks.parts; ++kb)
        for (int64_t tb = 0; tb < tile_blocks.parts; ++tb)
          Block(unit, head, chunks.tiles, first_tile, tile_blocks.begin(tb), tile_blocks.size(tb), key_blocks.begin(kb), key_blocks.end(kb),
                k_begin, k_end, pack, s, watch);
      for (int64_t i = chunks.tiles.begin(first_tile); i <= last_row; ++i)
        Write(chunks.single, s.dq + (i - chunks.tiles.begin(first_tile)) * plan_.padded_depth, plan_.depth,
              static_cast<T>(plan_.rule.scale), row_of(io_.dq, seq.b, head, seq.q_begin + i), sums.dq.of(i, g));
      if (io_.skipped) AddSkipped(io_.skipped[seq.b * plan_.shape.Hq + head], watch.total());
    }
    WritePanels(seq, unit, k_begin, k_end, chunks.single, s.dk, plan_.depth, io_.dk, sums.dk);
    WritePanels(seq, unit, k_begin, k_end, chunks.single, s.dv, plan_.value_depth, io_.dv, sums.dv);
  }

  // To the result if that is all, else to its sum.
  void Write(bool store, const T* row, int64_t width, T factor, S* out, T* sum) {
    store ? WriteRow<false>(row, width, factor, out) : WriteRow<true>(row, width, factor, sum);
  }

  void WritePanels(const Sequence& seq, int64_t unit, int64_t begin, int64_t end, bool store, const T* panels, int64_t depth,
                   const View<S>& out, const Rows& sums) {
    const int64_t NR = plan_.NR;
    for (int64_t j = begin; j < end; ++j)
      for (int64_t p = 0; p * NR < depth; ++p)
        Write(store, panels + (p * (end - begin) + j - begin) * NR, std::min(NR, depth - p * NR), T{1},
              row_of(out, seq.b, plan_.unit_kv_head(unit), seq.k_begin + j) + p * NR, sums.of(j) + p * NR);
  }

  SplitGain GainOf(int64_t head) const { return Split<T>(plan_.gain(head), row_sums_); }

  void LoadRows(const Sequence& seq, int64_t head, const Tiles& all, int64_t first_tile, int64_t tiles, BackwardScratch<T>& s) {
    const int64_t pd = plan_.padded_depth, pdv = plan_.padded_value;
    RowLengths lengths(plan_, seq, head);
    const SplitGain gain = GainOf(head);
    const double bias = plan_.bias(head), inverse_keep = dropout_scale(plan_.rule.dropout);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = all.begin(first_tile + t), rows = all.size(first_tile + t);
      for (int64_t r = 0; r < PaddedRows(rows); ++r) {
        const int64_t i = first + r, slot = i - all.begin(first_tile), row = seq.q_begin + i;
        s.shift[slot] = s.grad_shift[slot] = s.log_grad[slot] = s.log_c[slot] = 0;
        if (r >= rows || plan_.seen_by(seq, head, i) == 0) {
          std::fill_n(s.q + slot * pd, pd, T{0});
          std::fill_n(s.grad + slot * pdv, pdv, T{0});
          continue;
        }
        const S* grad_out = row_of(io_.grad_out, seq.b, head, row);
        const int64_t stat = (seq.b * plan_.shape.Hq + head) * plan_.shape.Lq + row;
        const double grad_sum = io_.grad_weight_sum ? static_cast<double>(io_.grad_weight_sum[stat]) : 0;
        const double grad_log = io_.grad_weight_log ? static_cast<double>(io_.grad_weight_log[stat]) : 0;
        double c = 1;
        if (plan_.softmax) {
          s.shift[slot] = -io_.lse[stat];
          s.grad_shift[slot] =
              io_.out_products ? -io_.out_products[stat] : -Dot(grad_out, row_of(io_.out, seq.b, head, row), plan_.value_depth);
          // G's constants cancel in softmax but for the mean of the logarithms.
          if (grad_log != 0) s.grad_shift[slot] -= static_cast<T>(grad_log * static_cast<double>(io_.weight_log[stat]));
          s.log_grad[slot] = static_cast<T>(grad_log);
        } else {
          lengths.set_row(i);
          c = gain.early * lengths.power();
          s.shift[slot] = static_cast<T>(bias - (plan_.rule.bias_log_n ? lengths.log_n() : 0));
          s.grad_shift[slot] = static_cast<T>(c * (grad_sum + grad_log));
          s.log_grad[slot] = static_cast<T>(c * grad_log);
          s.log_c[slot] = static_cast<T>(gain.late == 0 || grad_log == 0 ? 0 : std::log(std::abs(gain.late * c)));
        }
        CopyRow(row_of(io_.q, seq.b, head, row), plan_.depth, static_cast<T>(plan_.rule.scale), s.q + slot * pd, pd);
        CopyRow(grad_out, plan_.value_depth, static_cast<T>(c * inverse_keep), s.grad + slot * pdv, pdv);
      }
    }
  }

  static T Dot(const S* a, const S* b, int64_t depth) {
    const hn::ScalableTag<T> d;
    const int64_t N = static_cast<int64_t>(hn::Lanes(d));
    auto sum = hn::Zero(d);
    int64_t k = 0;
    for (; k + N <= depth; k += N) sum = hn::MulAdd(LoadStored(d, a + k), LoadStored(d, b + k), sum);
    T total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; k < depth; ++k) total += static_cast<T>(a[k]) * static_cast<T>(b[k]);
    return total;
  }

  // Row tiles [tile0, tile0 + tiles) of the chunk against the keys [k0, k1).
  HWY_NOINLINE void Block(int64_t unit, int64_t head, const Tiles& all, int64_t first_tile, int64_t tile0, int64_t tiles, int64_t k0,
                          int64_t k1, int64_t chunk_begin, int64_t chunk_end, const T* pack, BackwardScratch<T>& s, ZeroWatch& watch) {
    const Sequence& seq = plan_.unit_sequence(unit);
    const int64_t depth = plan_.depth, pd = plan_.padded_depth, NR = plan_.NR;
    const int64_t value_depth = plan_.value_depth, pdv = plan_.padded_value;
    Keys keys[kBlockTiles];
    const bool look = watch.look();
    // First rows of the tiles, counted from the block's first; that one counted from the chunk's first.
    const int64_t block_row = all.begin(first_tile + tile0) - all.begin(first_tile);
    int64_t tile_row[kBlockTiles + 1] = {};
    int64_t most = 0;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t tile = first_tile + tile0 + t;
      if (plan_.masked)
        keys[t].set_sight(plan_, seq, head, all.begin(tile), all.size(tile), k0, k1 - k0, s.mask_tiles + tile_row[t] * kBackwardKeys,
                          s.visible + t * kBackwardKeys, s.lists + t * s.kListSize, apart_[static_cast<size_t>(unit)]);
      else
        keys[t].set_visible(seq, all.begin(tile), all.size(tile), k0, k1 - k0);
      most = std::max(most, keys[t].most());
      tile_row[t + 1] = tile_row[t] + keys[t].rows;
    }
    const auto sees_none = [&](int64_t t, int64_t j) {
      return keys[t].sight == Sight::partial && s.visible[t * kBackwardKeys + j / NR] == 0;
    };
    for (int64_t j = 0; j < most; j += NR)
      for (int64_t t = 0; t < tiles; ++t) {
        if (j >= keys[t].most() || sees_none(t, j)) continue;
        const int64_t row = block_row + tile_row[t], at = tile_row[t] * kBackwardKeys + j;
        const auto& tile = keys[t].sight == Sight::partial ? kernels_.masked.tile : kernels_.score.tile;
        tile(keys[t].padded, keys[t].most() - j, NR)(s.q + row * pd, pd, pack + (k0 + j) * depth, depth, s.shift + row, s.weights + at,
                                                     s.slopes + at, look ? s.masks + t * kBackwardKeys + j / NR : nullptr);
      }
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t at = tile_row[t] * kBackwardKeys;
      if (keys[t].sight == Sight::partial)
        kernels_.masked.activate(s.weights + at, s.slopes + at, s.mask_tiles + at, keys[t].padded, keys[t].most(),
                                 look ? s.masks + t * kBackwardKeys : nullptr);
      else if (kernels_.score.activate)
        kernels_.score.activate(s.weights + at, s.slopes + at, keys[t].padded, keys[t].most());
    }
    const T* value_scores = pack + ValueScores(seq);
    for (int64_t j = 0; j < most; j += NR)
      for (int64_t t = 0; t < tiles; ++t) {
        if (j >= keys[t].most() || sees_none(t, j)) continue;
        const int64_t row = block_row + tile_row[t], at = tile_row[t] * kBackwardKeys + j;
        kernels_.gradient(keys[t].padded, keys[t].most() - j, NR)(s.grad + row * pdv, pdv, value_scores + (k0 + j) * value_depth,
                                                                  value_depth, s.grad_shift + row, s.weights + at, s.slopes + at,
                                                                  general_ ? s.raw + at : nullptr);
      }
    for (int64_t t = 0; t < tiles; ++t) {
      if (keys[t].sight == Sight::partial) {
        const int64_t at = tile_row[t] * kBackwardKeys;
        HideTile<kBackwardKeys>((general_ ? s.raw : s.slopes) + at, s.mask_tiles + at, keys[t].padded, keys[t].most());
        watch.count(keys[t].common,
                    keys[t].set_list_of_partial((look ? s.masks : s.visible) + t * kBackwardKeys, NR, s.lists + t * s.kListSize));
      } else {
        watch.count(keys[t].common, look ? keys[t].set_list(s.masks + t * kBackwardKeys, NR, s.lists + t * s.kListSize) : 0);
      }
    }
    watch.end_block(look);
    if (general_) RowPasses(seq, head, all, first_tile, tile0, tiles, k0, keys, s);
    if (plan_.gain(head) == 0 && !plan_.softmax) {
      std::fill_n(s.dq + block_row * pd, tile_row[tiles] * pd, T{0});
      return;
    }
    if (io_.dmask.data) AddMaskGradients(seq, head, all, first_tile + tile0, tiles, k0, keys, s);

    const T* k_panels = pack + KeyWidths(seq);
    const int64_t chunk_keys = chunk_end - chunk_begin;
    for (int64_t p = 0; p < plan_.width_panels; ++p)
      for (int64_t t = 0; t < tiles; ++t)
        WeightedSums(plan_, keys[t], s.slopes + tile_row[t] * kBackwardKeys, k_panels + (p * seq.seen + k0) * NR,
                     s.dq + (block_row + tile_row[t]) * pd + p * NR, pd, k0 > chunk_begin);
    for (int64_t p = 0; p < std::max(plan_.width_panels, plan_.value_panels); ++p) {
      const int64_t panel = (p * chunk_keys + k0 - chunk_begin) * NR;
      if (p < plan_.value_panels) SpreadSums(plan_, keys, tiles, s.weights, s.grad + block_row * pdv + p * NR, pdv, s.dv + panel);
      if (p < plan_.width_panels) SpreadSums(plan_, keys, tiles, s.slopes, s.q + block_row * pd + p * NR, pd, s.dk + panel);
    }
  }

  // dx of one block into the gradient of the mask.
  void AddMaskGradients(const Sequence& seq, int64_t head, const Tiles& all, int64_t first_tile, int64_t tiles, int64_t k0,
                        const Keys* keys, BackwardScratch<T>& s) {
    const MaskGradient<T>& to = io_.dmask;
    for (int64_t t = 0; t < tiles; ++t)
      for (int r = 0; r < keys[t].rows && keys[t].most() > 0; ++r) {
        const int64_t i = all.begin(first_tile + t) + r;
        AddMaskGradient(s.slopes + (i - all.begin(first_tile)) * kBackwardKeys, keys[t].most(),
                        to.data + seq.b * to.stride_b + head * to.stride_h + i * to.stride_q + k0 * to.stride_k, to.stride_k);
      }
  }

  // Dropout, statistics and row sums of one block, row by row.
  void RowPasses(const Sequence& seq, int64_t head, const Tiles& all, int64_t first_tile, int64_t tile0, int64_t tiles, int64_t k0,
                 const Keys* keys, BackwardScratch<T>& s) {
    const double late_gain = GainOf(head).late;
    for (int64_t t = 0; t < tiles; ++t)
      for (int r = 0; r < keys[t].rows; ++r) {
        const int64_t i = all.begin(first_tile + tile0 + t) + r;
        const int64_t n = keys[t].own[r], slot = i - all.begin(first_tile), at = (i - all.begin(first_tile + tile0)) * kBackwardKeys;
        if (n == 0) continue;
        const int64_t row = seq.q_begin + i, b_head = seq.b * plan_.shape.Hq + head;
        if (plan_.rule.dropout > 0) DropoutRun<false>(plan_.rule.seed, threshold_, b_head, row, k0, n, s.keep);
        double hg = 0, dx = 0;
        RowGradient(s.weights + at, s.slopes + at, s.raw + at, plan_.rule.dropout > 0 ? s.keep : nullptr, n, s.grad_shift[slot],
                    s.log_grad[slot], s.log_c[slot], hg, dx);
        if (late_gain != 1)
          for (T* run : {s.weights + at, s.slopes + at}) WriteRow<false>(run, n, static_cast<T>(late_gain), run);
        if (row_sums_) {
          sum_hg_[static_cast<size_t>(b_head * plan_.shape.Lq + row)] += hg;
          sum_dx_[static_cast<size_t>(b_head * plan_.shape.Lq + row)] += dx;
        }
      }
  }

  void SumParameters() {
    for (int64_t head = 0; head < plan_.shape.Hq; ++head) {
      double gain = 0, bias = 0, alpha = 0;
      for (int64_t n = 0; n < sequence_count(plan_.shape); ++n) {
        const Sequence seq = sequence(plan_.shape, n);
        RowLengths lengths(plan_, seq, head);
        for (int64_t i = 0; i < seq.lq; ++i) {
          if (plan_.seen_by(seq, head, i) == 0) continue;
          const size_t at = static_cast<size_t>((seq.b * plan_.shape.Hq + head) * plan_.shape.Lq + seq.q_begin + i);
          lengths.set_row(i);
          gain += sum_hg_[at];
          bias += sum_dx_[at];
          alpha -= lengths.log_n() * sum_hg_[at];
        }
      }
      if (io_.dgain) io_.dgain[head] = gain / GainOf(head).early;
      if (io_.dbias) io_.dbias[head] = GainOf(head).late * bias;
      if (io_.dalpha) io_.dalpha[head] = GainOf(head).late * alpha;
    }
  }

  const Plan& plan_;
  const AttentionBackward<S, T>& io_;
  bool row_sums_;  // sums over keys are wanted for dgain, dbias, dalpha
  bool general_;   // G is finished row by row rather than in the tile
  BackwardKernels<T> kernels_;
  uint32_t threshold_;
  std::vector<double> sum_hg_, sum_dx_;  // [B, Hq, Lq]: sum_j h_ij G_ij and sum_j dx_ij
  std::vector<char> apart_;              // [unit], where rows may see something other than the first keys
};

template <typename S, typename T>
void RunBackward(const AttentionShape& shape, const AttentionRule& rule, const AttentionBackward<S, T>& io, Parallel& parallel) {
  Plan plan = Plan::make<T>(shape, rule);
  plan.count_visible<T>(parallel);
  Backward<S, T>(plan, io).Run(parallel);
}

HINGE_STORED_TYPES(RunBackward);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT_STORED(RunBackward);

template <typename S, typename T>
void attention_backward(const AttentionShape& shape, const AttentionRule& rule, const AttentionBackward<S, T>& io, Parallel& parallel) {
  if (takes_linear_order(shape, rule, io.grad_weight_log != nullptr)) return linear_backward(shape, rule, io, parallel);
  HINGE_DISPATCH_STORED(RunBackward, S)(shape, rule, io, parallel);
}

HINGE_INSTANTIATE_STORED(attention_backward);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
