// Attention with the identity activation in linear time, forward and backward.
//
// Notation as in attention.h; n_i is the number of keys that row i sees, c_i = g N_i^-alpha, b_i the bias of row i (with - log N_i if
// asked). A prime adds one element to a row: k'_j = [k_j, 1], v'_j = [v_j, 1], q'_i = [scale q_i, b_i]. Then the weight of a pair is
// c_i q'_i . k'_j, and sums over keys or over rows can be made once for all of their partners. They are matrices, M and S [D + 1, Dv], P
// and R [Dv + 1, D]:
//   out_i = c_i q'_i M_i             M_i = sum over j < n_i of k'_j^T v_j
// Backward, with G_i = c_i grad_out_i and G'_i = [G_i, c_i grad_weight_sum_i]:
//   dq_i = scale G'_i P_i            P_i = sum over j < n_i of v'_j^T k_j
//   dk_j = v'_j R_j                  R_j = sum over i with n_i > j of G'_i^T (scale q_i)
//   dv_j = k'_j S_j                  S_j = sum over i with n_i > j of q'_i^T G_i
// and per row, for weight_sum, dbias, dgain and dalpha:
//   sum_j w_ij = c_i (scale q_i . sum_j k_j + n_i b_i)
//   X_i = sum_j dx_ij = G_i . sum_j v_j + n_i c_i grad_weight_sum_i
//   sum_j h_ij G_ij = q_i . dq_i + b_i X_i
//
// Causal: keys are cut into chunks, about as many keys as D, so that the matrix of a chunk is about as large as its keys. The rows that
// see chunks 0 .. c-1 whole and chunk c in part are group c: they use the sum of M over the first c chunks, and do their pairs with
// chunk c in the quadratic order. A key of chunk c likewise uses the sum of R and S over the groups after c, and the same pairs with
// group c. Rows that see every key (without causal: all rows) are cut into blocks as large as a chunk; they come after the groups.
// Chunks, groups, blocks and the order of all sums depend on the sequence only, so results do not depend on who runs what.
#include "kernels/attention_linear.h"

#define HWY_TARGET_INCLUDE "kernels/attention_linear.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows or keys that a worker holds at a time.
inline constexpr int64_t kLinearRows = kBlockTiles * kTileRows;

// How one sequence is cut.
struct LinearCut {
  const Sequence seq;
  int64_t chunk;         // keys of a chunk, rows of a block
  int64_t keys;          // that any row sees: the first ones
  int64_t chunks;        // of those keys
  int64_t first_seeing;  // rows before it see nothing
  int64_t first_full;    // rows from here on see all `keys`
  int64_t groups;        // causal groups: as many as chunks, or none
  Parts blocks;          // of the rows from first_full on

  LinearCut(const Sequence& sequence, int64_t depth)
      : seq(sequence),
        chunk(RoundUp(depth, 64)),
        keys(seq.lq > 0 ? seq.seen : 0),
        chunks(CeilDiv(keys, chunk)),
        first_seeing(RowThatSees(1)),
        first_full(RowThatSees(std::max<int64_t>(keys, 1))),
        groups(seq.causal() ? chunks : 0),
        blocks(seq.lq - first_full, chunk) {}

  // The first row that sees n >= 1 keys.
  int64_t RowThatSees(int64_t n) const {
    if (keys == 0) return seq.lq;
    return seq.causal() ? std::clamp<int64_t>(n - 1 - seq.right - seq.lk + seq.lq, 0, seq.lq) : 0;
  }

  int64_t chunk_begin(int64_t c) const { return c * chunk; }
  int64_t chunk_end(int64_t c) const { return std::min((c + 1) * chunk, keys); }

  // Spans of rows: first the groups, then the blocks.
  int64_t spans() const { return groups + blocks.parts; }
  int64_t span_begin(int64_t span) const {
    return span < groups ? RowThatSees(std::max<int64_t>(chunk_begin(span), 1)) : first_full + blocks.begin(span - groups);
  }
  int64_t span_end(int64_t span) const {
    return span < groups ? RowThatSees(chunk_end(span)) : first_full + blocks.begin(span - groups + 1);
  }
  int64_t whole_chunks(int64_t span) const { return span < groups ? span : chunks; }

  // Sums over spans are wanted from the second group on: no key is seen whole by the first.
  int64_t first_summed() const { return groups > 0 ? 1 : 0; }
  int64_t summed_spans() const { return spans() - first_summed(); }
  // Which of them, counted from first_summed(), is the first whose rows all see all of chunk c.
  int64_t first_seeing_chunk(int64_t c) const { return groups > 0 ? c : 0; }
};

// A width: D or Dv, in whole panels, its panels, and the pieces of a weight tile that it and one element more need.
struct LinearWidth {
  int64_t depth, padded, panels, pieces;
  LinearWidth(int64_t width, int64_t NR)
      : depth(width), padded(RoundUp(width, NR)), panels(CeilDiv(width, NR)), pieces(CeilDiv(width + 1, kBackwardKeys)) {}
};

// Up to kLinearRows rows or keys of one width, in tiles side by side, as the micro-kernels want them on either side of a product.
template <typename T> struct LinearRows {
  T* rows = nullptr;     // [row][padded]
  T* weights = nullptr;  // [piece][row][kBackwardKeys]: the elements and the one added, in as many pieces as they need
  const LinearWidth* width = nullptr;

  // For loading where only one side is wanted.
  LinearRows rows_only() const { return {rows, nullptr, width}; }
  LinearRows weights_only() const { return {nullptr, weights, width}; }
};

template <typename T> HWY_INLINE void AddTo(T* HWY_RESTRICT sums, const T* HWY_RESTRICT values, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < count; k += N) hn::Store(hn::Add(hn::Load(d, sums + k), hn::Load(d, values + k)), d, sums + k);
}

// a . b of aligned rows of `padded` elements.
template <typename T> HWY_INLINE double DotPadded(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, int64_t padded) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = sum0;
  for (int64_t k = 0; k < padded; k += 2 * N) {
    sum0 = hn::MulAdd(hn::Load(d, a + k), hn::Load(d, b + k), sum0);
    sum1 = hn::MulAdd(hn::Load(d, a + k + N), hn::Load(d, b + k + N), sum1);
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1))));
}

// Sum of one row of a weight tile.
template <typename T> HWY_INLINE double SumOfRun(const T* HWY_RESTRICT values, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < count; j += N)
    sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count - j)), hn::Load(d, values + j)));
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// What forward and backward share.
template <typename S, typename T> class LinearOrder {
 protected:
  explicit LinearOrder(const Plan& plan) : plan_(plan) {
    for (const Sequence& seq : plan.sequences) cuts_.emplace_back(seq, plan.depth);
  }

  // Elements of a matrix [left + 1, right], as width panels [panel][left + 1][NR].
  static int64_t MatrixSize(const LinearWidth& left, const LinearWidth& right) { return (left.depth + 1) * right.padded; }

  const LinearCut& Cut(int64_t unit) const { return cuts_[static_cast<size_t>(unit / plan_.shape.Hkv)]; }

  static void CarveRows(Carver& carver, const LinearWidth& width, LinearRows<T>& rows) {
    rows = {carver.take<T>(kLinearRows * width.padded), nullptr, &width};
    rows.weights = carver.take<T>(width.pieces * kPiece);
  }

  // Units are done in waves that hold at most kPackedBytes of sums, or one unit. size(unit): its elements. Returns where each unit's
  // sums begin and the elements of the largest wave; `wave_ends` are the waves.
  template <typename Size> int64_t MakeWaves(const Size& size, std::vector<int64_t>& begins, std::vector<int64_t>& wave_ends) const {
    constexpr int64_t most = static_cast<int64_t>(kPackedBytes / sizeof(T));
    int64_t used = 0, largest = 0;
    for (int64_t unit = 0; unit < plan_.units(); ++unit) {
      if (used > 0 && used + size(unit) > most) {
        wave_ends.push_back(unit);
        used = 0;
      }
      begins.push_back(used);
      used += size(unit);
      largest = std::max(largest, used);
    }
    wave_ends.push_back(plan_.units());
    return largest;
  }

  // One row as number `i`: times `factor`, and `extra` behind it in the weights.
  static void LoadRow(const S* row, T factor, T extra, int64_t i, const LinearRows<T>& to) {
    const int64_t depth = to.width->depth, padded = to.width->padded;
    if (to.rows) CopyRow(row, depth, factor, to.rows + i * padded, padded);
    if (!to.weights) return;
    T* weights = to.weights + i * kBackwardKeys;
    for (int64_t k = 0; k < depth; k += kBackwardKeys, weights += kPiece) {
      const int64_t count = std::min(kBackwardKeys, depth - k);
      CopyRow(row + k, count, factor, weights, count);
    }
    to.weights[depth / kBackwardKeys * kPiece + i * kBackwardKeys + depth % kBackwardKeys] = extra;
  }

  // Zeros in the rows that pad the last tile.
  static void PadRows(const Tiles& tiles, const LinearRows<T>& to) {
    for (int64_t i = tiles.count; i < PaddedCount(tiles); ++i) {
      if (to.rows) std::fill_n(to.rows + i * to.width->padded, to.width->padded, T{0});
      for (int64_t piece = 0; piece < to.width->pieces && to.weights; ++piece)
        std::fill_n(to.weights + piece * kPiece + i * kBackwardKeys, kBackwardKeys, T{0});
    }
  }
  static int64_t PaddedCount(const Tiles& tiles) { return tiles.begin(tiles.parts - 1) + PaddedRows(tiles.size(tiles.parts - 1)); }

  // Keys or values from `first` on, with a 1 behind each.
  void LoadKeys(const View<const S>& keys, const Sequence& seq, int64_t kv_head, int64_t first, const Tiles& tiles,
                const LinearRows<T>& to) const {
    for (int64_t i = 0; i < tiles.count; ++i) LoadRow(row_of(keys, seq.b, kv_head, seq.k_begin + first + i), T{1}, T{1}, i, to);
    PadRows(tiles, to);
  }

  static int64_t PieceSize(const LinearWidth& width, int64_t piece) {
    return std::min(kBackwardKeys, width.depth + 1 - piece * kBackwardKeys);
  }

  // matrix += sum over rows of left'^T right, as width panels.
  HWY_NOINLINE void AddProducts(const Tiles& tiles, const LinearRows<T>& left, const LinearRows<T>& right, T* matrix) const {
    const LinearWidth& of = *left.width;
    const int64_t pd = right.width->padded;
    for (int64_t p = 0; p < right.width->panels; ++p)
      for (int64_t piece = 0; piece < of.pieces; ++piece) {
        const T* weights = left.weights + piece * kPiece;
        T* sums = matrix + (p * (of.depth + 1) + piece * kBackwardKeys) * NR;
        if constexpr (kSpreadKeys == 0) {
          for (int64_t t = 0; t < tiles.parts; ++t)
            CallSpreadRows<T>(PaddedRows(tiles.size(t)), weights + tiles.begin(t) * kBackwardKeys, nullptr, PieceSize(of, piece),
                              right.rows + tiles.begin(t) * pd + p * NR, pd, sums);
          continue;
        }
        const Parts groups(PieceSize(of, piece), std::max(kSpreadKeys, 1));
        for (int64_t group = 0; group < groups.parts; ++group)
          CallSpreadKeys(groups.size(group), weights + groups.begin(group), tiles.count, right.rows + p * NR, pd,
                         sums + groups.begin(group) * NR);
      }
  }

  // The rows of left' times the matrix, whose rows have the width `right`. Row i, panel p goes to sums + p * sum_panel + i * sum_row; there
  // is room for what pads the last tile.
  HWY_NOINLINE void Multiply(const Tiles& tiles, const LinearRows<T>& left, const LinearWidth& right, const T* matrix, T* sums,
                             int64_t sum_panel, int64_t sum_row) const {
    const LinearWidth& of = *left.width;
    for (int64_t p = 0; p < right.panels; ++p)
      for (int64_t t = 0; t < tiles.parts; ++t)
        for (int64_t piece = 0; piece < of.pieces; ++piece)
          CallWeightedRows<kBackwardKeys, T>(PaddedRows(tiles.size(t)), left.weights + piece * kPiece + tiles.begin(t) * kBackwardKeys,
                                             nullptr, PieceSize(of, piece), matrix + (p * (of.depth + 1) + piece * kBackwardKeys) * NR, NR,
                                             sums + p * sum_panel + tiles.begin(t) * sum_row, sum_row, piece > 0, nullptr);
  }

  // The sum of [left, 1]^T right over the keys of a chunk, and of left itself behind it if asked.
  void SumOverChunk(const LinearCut& cut, int64_t kv_head, int64_t c, const View<const S>& left, const View<const S>& right, bool sum_left,
                    const LinearRows<T>& left_rows, const LinearRows<T>& right_rows, T* sum) const {
    const int64_t matrix_size = MatrixSize(*left_rows.width, *right_rows.width), pd = left_rows.width->padded;
    std::fill_n(sum, matrix_size + pd, T{0});
    for (int64_t j = cut.chunk_begin(c); j < cut.chunk_end(c); j += kLinearRows) {
      const Tiles tiles(std::min(kLinearRows, cut.chunk_end(c) - j));
      LoadKeys(left, cut.seq, kv_head, j, tiles, sum_left ? left_rows : left_rows.weights_only());
      LoadKeys(right, cut.seq, kv_head, j, tiles, right_rows.rows_only());
      AddProducts(tiles, left_rows, right_rows, sum);
      if (!sum_left) continue;
      for (int64_t i = 0; i < tiles.count; ++i) AddTo(sum + matrix_size, left_rows.rows + i * pd, pd);
    }
  }

  // `count` arrays of `size` elements, `step` apart: each becomes the sum of itself and all before it. Elements do not meet, so that
  // slices of them are tasks.
  struct RunningSum {
    T* first;
    int64_t step, count, size;
  };
  static void AddRunningSum(const RunningSum& whole, std::vector<RunningSum>& tasks) {
    constexpr int64_t slice = 2048;
    for (int64_t k = 0; k < whole.size && whole.count > 1; k += slice)
      tasks.push_back({whole.first + k, whole.step, whole.count, std::min(slice, whole.size - k)});
  }
  static void MakeRunningSums(const std::vector<RunningSum>& tasks, Parallel& parallel) {
    parallel.run(static_cast<int64_t>(tasks.size()), [&](int64_t i, int) HWY_ATTR {
      const RunningSum& sum = tasks[static_cast<size_t>(i)];
      for (int64_t n = 1; n < sum.count; ++n) AddTo(sum.first + n * sum.step, sum.first + (n - 1) * sum.step, sum.size);
    });
  }

  // Packed keys of a chunk, relative to its first key.
  void PackChunkScores(const View<const S>& keys, int64_t D, const LinearCut& cut, int64_t kv_head, int64_t c, T* packed) const {
    const int64_t begin = cut.chunk_begin(c), count = cut.chunk_end(c) - begin;
    for (int64_t j = 0; j < count; j += NR)
      PackScorePanel(row_of(keys, cut.seq.b, kv_head, cut.seq.k_begin + begin + j), keys.stride_l, std::min(NR, count - j), D, T{1},
                     packed + j * D);
  }
  void PackChunkWidths(const View<const S>& keys, int64_t D, const LinearCut& cut, int64_t kv_head, int64_t c, T* packed) const {
    const int64_t begin = cut.chunk_begin(c), count = cut.chunk_end(c) - begin;
    for (int64_t j = 0; j < count; ++j)
      PackWidthRow(row_of(keys, cut.seq.b, kv_head, cut.seq.k_begin + begin + j), D, packed + j * NR, cut.chunk * NR);
  }

  // scores[r][0 .. most) = left_r . key + shift_r, into a weight tile.
  void ScoreRun(const TileKeys<kBackwardKeys, T>& keys, const LinearWidth& width, const T* left, const T* panels, const T* shift,
                T* scores) const {
    static const ScoreKernels<T> kernels = MakeScoreKernels<Identity, kBackwardKeys, false, T>();
    for (int64_t j = 0; j < keys.most(); j += NR)
      kernels.tile(keys.padded, keys.most() - j, NR)(left, width.padded, panels + j * width.depth, width.depth, shift, scores + j, nullptr,
                                                     nullptr);
  }

  // sums += weights x the width panels of the keys.
  void AddWeighted(const TileKeys<kBackwardKeys, T>& keys, const LinearWidth& width, const T* weights, const T* panels, int64_t panel_size,
                   T* sums) const {
    for (int64_t p = 0; p < width.panels; ++p)
      WeightedSums(plan_, keys, weights, panels + p * panel_size, sums + p * NR, width.padded, true);
  }

  // The transposed product into width panels of the keys, likewise.
  void AddSpread(const TileKeys<kBackwardKeys, T>& keys, const LinearWidth& width, const T* weights, const T* rows, T* panels,
                 int64_t panel_size) const {
    for (int64_t p = 0; p < width.panels; ++p) SpreadSums(plan_, &keys, 1, weights, rows + p * NR, width.padded, panels + p * panel_size);
  }

  struct Task {
    enum Kind { kClear, kChunk, kSpan } kind;
    int64_t unit, part;
  };

  const Plan& plan_;
  const int64_t NR = plan_.NR;
  const LinearWidth key = {plan_.depth, NR}, value = {plan_.value_depth, NR};
  static constexpr int64_t kPiece = kLinearRows * kBackwardKeys, kWeightTile = kTileRows * kBackwardKeys;
  std::vector<LinearCut> cuts_;
};

template <typename T> struct LinearForwardScratch {
  LinearRows<T> left, right;
  T* sums;            // [row][padded width of values]
  T *shift, *factor;  // [row]: b_i, c_i
  T* scores;          // a weight tile
  double* score_sum;  // [row]: of the pairs done one by one
  T *k_panels, *v_panels;
};

// One call of linear_forward.
template <typename S, typename T> class LinearForward : LinearOrder<S, T> {
  using Base = LinearOrder<S, T>;
  using Scratch = LinearForwardScratch<T>;
  using Base::key, Base::value, Base::NR, Base::plan_, Base::Cut;
  using typename Base::Task;

 public:
  LinearForward(const Plan& plan, const AttentionForward<S, T>& io) : Base(plan), io_(io) {}

  void Run(Parallel& parallel) {
    if (io_.skipped) std::fill_n(io_.skipped, plan_.shape.B * plan_.shape.Hq, SkipCount{});
    std::vector<int64_t> begins, wave_ends;
    const int64_t largest = Base::MakeWaves([&](int64_t unit) { return Cut(unit).chunks * key_sum_size_; }, begins, wave_ends);
    std::vector<Scratch> scratch(static_cast<size_t>(parallel.workers()));
    Carver count(nullptr);
    T* sums = Carve(count, scratch, largest);
    Carver carver(Workspace::get(count.used()));
    sums = Carve(carver, scratch, largest);
    for (int64_t unit = 0; unit < plan_.units(); ++unit) unit_sums_.push_back(sums + begins[static_cast<size_t>(unit)]);

    int64_t first = 0;
    for (const int64_t last : wave_ends) {
      std::vector<Task> chunks, spans;
      std::vector<typename Base::RunningSum> running;
      for (int64_t unit = first; unit < last; ++unit) {
        const LinearCut& cut = Cut(unit);
        if (cut.first_seeing > 0) chunks.push_back({Task::kClear, unit, 0});
        for (int64_t c = 0; c < cut.chunks; ++c) chunks.push_back({Task::kChunk, unit, c});
        for (int64_t span = 0; span < cut.spans(); ++span)
          if (cut.span_begin(span) < cut.span_end(span)) spans.push_back({Task::kSpan, unit, span});
        Base::AddRunningSum({unit_sums_[static_cast<size_t>(unit)], key_sum_size_, cut.chunks, key_sum_size_}, running);
      }
      parallel.run(static_cast<int64_t>(chunks.size()), [&](int64_t i, int worker) HWY_ATTR {
        const Task& task = chunks[static_cast<size_t>(i)];
        if (task.kind == Task::kClear) return ClearRows(task.unit);
        const Scratch& s = scratch[static_cast<size_t>(worker)];
        Base::SumOverChunk(Cut(task.unit), plan_.unit_kv_head(task.unit), task.part, io_.k, io_.v, io_.weight_sum != nullptr, s.left,
                           s.right, unit_sums_[static_cast<size_t>(task.unit)] + task.part * key_sum_size_);
      });
      Base::MakeRunningSums(running, parallel);
      parallel.run(static_cast<int64_t>(spans.size()), [&](int64_t i, int worker) HWY_ATTR {
        const Task& task = spans[static_cast<size_t>(i)];
        Span(task.unit, task.part, scratch[static_cast<size_t>(worker)]);
      });
      first = last;
    }
    Workspace::release_large();
  }

 private:
  T* Carve(Carver& carver, std::vector<Scratch>& scratch, int64_t sums) const {
    const int64_t chunk = plan_.sequences.empty() ? 0 : Cut(0).chunk;
    for (Scratch& s : scratch) {
      Base::CarveRows(carver, key, s.left);
      Base::CarveRows(carver, value, s.right);
      s.sums = carver.take<T>(kLinearRows * value.padded);
      for (T** column : {&s.shift, &s.factor}) *column = carver.take<T>(kLinearRows);
      s.scores = carver.take<T>(Base::kWeightTile);
      s.score_sum = carver.take<double>(kLinearRows);
      s.k_panels = carver.take<T>(PackedScoresSize(plan_, chunk, key.depth));
      s.v_panels = carver.take<T>(PackedWidthsSize(plan_, chunk, value.depth));
    }
    return carver.take<T>(sums);
  }

  // Rows that see nothing.
  void ClearRows(int64_t unit) const {
    const Sequence& seq = Cut(unit).seq;
    for (int64_t g = 0; g < plan_.group; ++g)
      for (int64_t i = 0; i < Cut(unit).first_seeing; ++i) {
        const int64_t head = plan_.unit_kv_head(unit) * plan_.group + g;
        std::fill_n(row_of(io_.out, seq.b, head, seq.q_begin + i), value.depth, S{});
        if (io_.weight_sum) io_.weight_sum[(seq.b * plan_.shape.Hq + head) * plan_.shape.Lq + seq.q_begin + i] = 0;
      }
  }

  // All query heads of the unit for one span of rows.
  HWY_NOINLINE void Span(int64_t unit, int64_t span, const Scratch& s) const {
    const LinearCut& cut = Cut(unit);
    const int64_t kv_head = plan_.unit_kv_head(unit), whole = cut.whole_chunks(span);
    const T* sum = whole > 0 ? unit_sums_[static_cast<size_t>(unit)] + (whole - 1) * key_sum_size_ : nullptr;
    if (span < cut.groups) {
      Base::PackChunkScores(io_.k, key.depth, cut, kv_head, span, s.k_panels);
      Base::PackChunkWidths(io_.v, value.depth, cut, kv_head, span, s.v_panels);
    }
    for (int64_t g = 0; g < plan_.group; ++g)
      for (int64_t i = cut.span_begin(span); i < cut.span_end(span); i += kLinearRows) {
        const Tiles tiles(std::min(kLinearRows, cut.span_end(span) - i));
        const int64_t head = kv_head * plan_.group + g;
        LoadQueries(cut.seq, head, i, tiles, span < cut.groups || io_.weight_sum ? s.left : s.left.weights_only(), s);
        if (sum)
          Base::Multiply(tiles, s.left, value, sum, s.sums, NR, value.padded);
        else
          std::fill_n(s.sums, Base::PaddedCount(tiles) * value.padded, T{0});
        if (span < cut.groups) Pairs(cut, span, i, tiles, s);
        StoreRows(cut, head, i, tiles, std::min(whole * cut.chunk, cut.keys), sum ? sum + Base::MatrixSize(key, value) : nullptr, s);
      }
  }

  void LoadQueries(const Sequence& seq, int64_t head, int64_t first, const Tiles& tiles, const LinearRows<T>& to, const Scratch& s) const {
    RowLengths lengths(plan_, seq, head);
    for (int64_t i = 0; i < Base::PaddedCount(tiles); ++i) {
      s.shift[i] = 0;
      s.score_sum[i] = 0;
      if (i >= tiles.count) continue;
      lengths.set_row(first + i);
      s.shift[i] = static_cast<T>(plan_.bias(head) - (plan_.rule.bias_log_n ? lengths.log_n() : 0));
      s.factor[i] = static_cast<T>(plan_.gain(head) * lengths.power());
      Base::LoadRow(row_of(io_.q, seq.b, head, seq.q_begin + first + i), static_cast<T>(plan_.rule.scale), s.shift[i], i, to);
    }
    Base::PadRows(tiles, to);
  }

  // A group and its chunk, in the quadratic order.
  void Pairs(const LinearCut& cut, int64_t c, int64_t first, const Tiles& tiles, const Scratch& s) const {
    TileKeys<kBackwardKeys, T> keys;
    for (int64_t t = 0; t < tiles.parts; ++t)
      for (int64_t k = cut.chunk_begin(c); k < cut.chunk_end(c); k += kBackwardKeys) {
        const int64_t row = tiles.begin(t), at = k - cut.chunk_begin(c);
        keys.set_visible(cut.seq, first + tiles.begin(t), tiles.size(t), k, std::min(kBackwardKeys, cut.chunk_end(c) - k));
        if (keys.most() == 0) continue;
        Base::ScoreRun(keys, key, s.left.rows + row * key.padded, s.k_panels + at * key.depth, s.shift + row, s.scores);
        Base::AddWeighted(keys, value, s.scores, s.v_panels + at * NR, cut.chunk * NR, s.sums + row * value.padded);
        if (io_.weight_sum)
          for (int r = 0; r < keys.rows; ++r) s.score_sum[row + r] += SumOfRun(s.scores + r * kBackwardKeys, keys.own[r]);
      }
  }

  // `keys`: how many came in by the sum over whole chunks; `key_sum`: their sum.
  void StoreRows(const LinearCut& cut, int64_t head, int64_t first, const Tiles& tiles, int64_t keys, const T* key_sum,
                 const Scratch& s) const {
    const Sequence& seq = cut.seq;
    for (int64_t i = 0; i < tiles.count; ++i) {
      const int64_t row = seq.q_begin + first + i;
      WriteRow<false>(s.sums + i * value.padded, value.depth, s.factor[i], row_of(io_.out, seq.b, head, row));
      if (!io_.weight_sum) continue;
      double sum = s.score_sum[i] + static_cast<double>(keys) * static_cast<double>(s.shift[i]);
      if (key_sum) sum += DotPadded(s.left.rows + i * key.padded, key_sum, key.padded);
      io_.weight_sum[(seq.b * plan_.shape.Hq + head) * plan_.shape.Lq + row] = static_cast<T>(static_cast<double>(s.factor[i]) * sum);
    }
  }

  const AttentionForward<S, T>& io_;
  const int64_t key_sum_size_ = Base::MatrixSize(key, value) + key.padded;
  std::vector<T*> unit_sums_;  // [unit]: M of each chunk, later of it and all chunks before; sum of k behind each
};

template <typename T> struct LinearBackwardScratch {
  LinearRows<T> q, grad;              // q' and G'
  T* dq;                              // [row][padded_depth], without scale
  T *shift, *grad_shift;              // [row]: b_i, c_i grad_weight_sum_i
  T *scores, *dx;                     // weight tiles
  double* dx_sum;                     // [row]: of the pairs done one by one
  T *k_scores, *v_scores, *k_panels;  // a chunk, packed
  T *dk, *dv;                         // width panels of a chunk, with room for what pads the last tile
};

// One call of linear_backward.
template <typename S, typename T> class LinearBackward : LinearOrder<S, T> {
  using Base = LinearOrder<S, T>;
  using Scratch = LinearBackwardScratch<T>;
  using Base::key, Base::value, Base::NR, Base::plan_, Base::Cut;
  using typename Base::Task;

 public:
  LinearBackward(const Plan& plan, const AttentionBackward<S, T>& io) : Base(plan), io_(io), row_sums_(io.dgain || io.dbias || io.dalpha) {}

  void Run(Parallel& parallel) {
    if (io_.skipped) std::fill_n(io_.skipped, plan_.shape.B * plan_.shape.Hq, SkipCount{});
    std::vector<int64_t> begins, wave_ends;
    const int64_t largest = Base::MakeWaves(
        [&](int64_t unit) { return Cut(unit).chunks * value_sum_size_ + Cut(unit).summed_spans() * (rows_k_size_ + rows_v_size_); }, begins,
        wave_ends);
    std::vector<Scratch> scratch(static_cast<size_t>(parallel.workers()));
    Carver count(nullptr);
    T* sums = Carve(count, scratch, largest);
    Carver carver(Workspace::get(count.used()));
    sums = Carve(carver, scratch, largest);
    int64_t parameter_sums = 0;
    for (int64_t unit = 0; unit < plan_.units(); ++unit) {
      const LinearCut& cut = Cut(unit);
      T* const begin = sums + begins[static_cast<size_t>(unit)];
      T* const rows = begin + cut.chunks * value_sum_size_;
      unit_sums_.push_back({begin, rows, rows + cut.summed_spans() * rows_k_size_, parameter_sums});
      parameter_sums += cut.spans() * plan_.group;
    }
    if (row_sums_) parameter_sums_.resize(static_cast<size_t>(parameter_sums));

    int64_t first = 0;
    for (const int64_t last : wave_ends) {
      std::vector<Task> summing, finishing;
      std::vector<typename Base::RunningSum> running;
      for (int64_t unit = first; unit < last; ++unit) {
        const LinearCut& cut = Cut(unit);
        const UnitSums& of = unit_sums_[static_cast<size_t>(unit)];
        if (cut.first_seeing > 0 || cut.keys < cut.seq.lk) summing.push_back({Task::kClear, unit, 0});
        for (int64_t c = 0; c < cut.chunks; ++c) {
          summing.push_back({Task::kChunk, unit, c});
          finishing.push_back({Task::kChunk, unit, c});
        }
        if (cut.chunks == 0) continue;
        for (int64_t span = cut.first_summed(); span < cut.spans(); ++span) summing.push_back({Task::kSpan, unit, span});
        for (int64_t span = cut.groups; span < cut.spans(); ++span) finishing.push_back({Task::kSpan, unit, span});
        Base::AddRunningSum({of.keys, value_sum_size_, cut.chunks, value_sum_size_}, running);
        const int64_t count = cut.summed_spans();
        Base::AddRunningSum({of.rows_k + (count - 1) * rows_k_size_, -rows_k_size_, count, rows_k_size_}, running);
        Base::AddRunningSum({of.rows_v + (count - 1) * rows_v_size_, -rows_v_size_, count, rows_v_size_}, running);
      }
      parallel.run(static_cast<int64_t>(summing.size()), [&](int64_t i, int worker) HWY_ATTR {
        const Task& task = summing[static_cast<size_t>(i)];
        const Scratch& s = scratch[static_cast<size_t>(worker)];
        if (task.kind == Task::kClear) return Clear(task.unit);
        if (task.kind == Task::kSpan) return SumOverSpan(task.unit, task.part, s);
        Base::SumOverChunk(Cut(task.unit), plan_.unit_kv_head(task.unit), task.part, io_.v, io_.k, row_sums_, s.grad, s.q,
                           unit_sums_[static_cast<size_t>(task.unit)].keys + task.part * value_sum_size_);
      });
      Base::MakeRunningSums(running, parallel);
      parallel.run(static_cast<int64_t>(finishing.size()), [&](int64_t i, int worker) HWY_ATTR {
        const Task& task = finishing[static_cast<size_t>(i)];
        const Scratch& s = scratch[static_cast<size_t>(worker)];
        task.kind == Task::kChunk ? Chunk(task.unit, task.part, s) : Span(task.unit, task.part, s);
      });
      first = last;
    }
    Workspace::release_large();
    SumParameters();
  }

 private:
  struct UnitSums {
    T* keys;             // P of each chunk, later of it and all chunks before; sum of v behind each
    T *rows_k, *rows_v;  // R and S of each span from first_summed() on, later of it and all spans after
    int64_t parameters;  // where its spans begin in parameter_sums_
  };
  struct ParameterSums {
    double gain = 0, bias = 0, alpha = 0;
  };

  T* Carve(Carver& carver, std::vector<Scratch>& scratch, int64_t sums) const {
    const int64_t chunk = plan_.sequences.empty() ? 0 : Cut(0).chunk;
    for (Scratch& s : scratch) {
      Base::CarveRows(carver, key, s.q);
      Base::CarveRows(carver, value, s.grad);
      s.dq = carver.take<T>(kLinearRows * key.padded);
      for (T** column : {&s.shift, &s.grad_shift}) *column = carver.take<T>(kLinearRows);
      for (T** tile : {&s.scores, &s.dx}) *tile = carver.take<T>(Base::kWeightTile);
      s.dx_sum = carver.take<double>(kLinearRows);
      s.k_scores = carver.take<T>(PackedScoresSize(plan_, chunk, key.depth));
      s.v_scores = carver.take<T>(PackedScoresSize(plan_, chunk, value.depth));
      s.k_panels = carver.take<T>(PackedWidthsSize(plan_, chunk, key.depth));
      s.dk = carver.take<T>((chunk + kTileRows) * key.padded);
      s.dv = carver.take<T>((chunk + kTileRows) * value.padded);
    }
    return carver.take<T>(sums);
  }

  // Rows that see nothing, and keys that no row sees.
  void Clear(int64_t unit) const {
    const LinearCut& cut = Cut(unit);
    const int64_t kv_head = plan_.unit_kv_head(unit);
    for (int64_t g = 0; g < plan_.group; ++g)
      for (int64_t i = 0; i < cut.first_seeing; ++i)
        std::fill_n(row_of(io_.dq, cut.seq.b, kv_head * plan_.group + g, cut.seq.q_begin + i), key.depth, S{});
    for (int64_t j = cut.keys; j < cut.seq.lk; ++j) {
      std::fill_n(row_of(io_.dk, cut.seq.b, kv_head, cut.seq.k_begin + j), key.depth, S{});
      std::fill_n(row_of(io_.dv, cut.seq.b, kv_head, cut.seq.k_begin + j), value.depth, S{});
    }
  }

  // R and S of one span, over all query heads of the unit.
  void SumOverSpan(int64_t unit, int64_t span, const Scratch& s) const {
    const LinearCut& cut = Cut(unit);
    const UnitSums& of = unit_sums_[static_cast<size_t>(unit)];
    T* const rows_k = of.rows_k + (span - cut.first_summed()) * rows_k_size_;
    T* const rows_v = of.rows_v + (span - cut.first_summed()) * rows_v_size_;
    std::fill_n(rows_k, rows_k_size_, T{0});
    std::fill_n(rows_v, rows_v_size_, T{0});
    for (int64_t g = 0; g < plan_.group; ++g) {
      const int64_t head = plan_.unit_kv_head(unit) * plan_.group + g;
      if (plan_.gain(head) == 0) continue;
      for (int64_t i = cut.span_begin(span); i < cut.span_end(span); i += kLinearRows) {
        const Tiles tiles(std::min(kLinearRows, cut.span_end(span) - i));
        LoadRows(cut.seq, head, plan_.gain(head), i, tiles, s);
        Base::AddProducts(tiles, s.grad, s.q, rows_k);
        Base::AddProducts(tiles, s.q, s.grad, rows_v);
      }
    }
  }

  SplitGain GainOf(int64_t head) const { return Split<T>(plan_.gain(head), row_sums_); }

  void LoadRows(const Sequence& seq, int64_t head, double gain, int64_t first, const Tiles& tiles, const Scratch& s) const {
    RowLengths lengths(plan_, seq, head);
    for (int64_t i = 0; i < Base::PaddedCount(tiles); ++i) {
      s.shift[i] = s.grad_shift[i] = 0;
      s.dx_sum[i] = 0;
      if (i >= tiles.count) continue;
      lengths.set_row(first + i);
      const int64_t row = seq.q_begin + first + i;
      const double c = gain * lengths.power();
      s.shift[i] = static_cast<T>(plan_.bias(head) - (plan_.rule.bias_log_n ? lengths.log_n() : 0));
      if (io_.grad_weight_sum)
        s.grad_shift[i] =
            static_cast<T>(c * static_cast<double>(io_.grad_weight_sum[(seq.b * plan_.shape.Hq + head) * plan_.shape.Lq + row]));
      Base::LoadRow(row_of(io_.q, seq.b, head, row), static_cast<T>(plan_.rule.scale), s.shift[i], i, s.q);
      Base::LoadRow(row_of(io_.grad_out, seq.b, head, row), static_cast<T>(c), s.grad_shift[i], i, s.grad);
    }
    Base::PadRows(tiles, s.q);
    Base::PadRows(tiles, s.grad);
  }

  // dk and dv of one chunk, and dq of its group.
  HWY_NOINLINE void Chunk(int64_t unit, int64_t c, const Scratch& s) const {
    const LinearCut& cut = Cut(unit);
    const UnitSums& of = unit_sums_[static_cast<size_t>(unit)];
    const int64_t kv_head = plan_.unit_kv_head(unit), begin = cut.chunk_begin(c), end = cut.chunk_end(c);
    const T* const rows_k = of.rows_k + cut.first_seeing_chunk(c) * rows_k_size_;
    const T* const rows_v = of.rows_v + cut.first_seeing_chunk(c) * rows_v_size_;
    const int64_t panel_size = PanelSize(cut);
    for (int64_t j = begin; j < end; j += kLinearRows) {
      const Tiles tiles(std::min(kLinearRows, end - j));
      Base::LoadKeys(io_.v, cut.seq, kv_head, j, tiles, s.grad.weights_only());
      Base::Multiply(tiles, s.grad, key, rows_k, s.dk + (j - begin) * NR, panel_size, NR);
      Base::LoadKeys(io_.k, cut.seq, kv_head, j, tiles, s.q.weights_only());
      Base::Multiply(tiles, s.q, value, rows_v, s.dv + (j - begin) * NR, panel_size, NR);
    }
    if (c < cut.groups && cut.span_begin(c) < cut.span_end(c)) {
      Base::PackChunkScores(io_.k, key.depth, cut, kv_head, c, s.k_scores);
      Base::PackChunkScores(io_.v, value.depth, cut, kv_head, c, s.v_scores);
      Base::PackChunkWidths(io_.k, key.depth, cut, kv_head, c, s.k_panels);
      Span(unit, c, s);
    }
    const auto write = [&](const T* panels, const LinearWidth& width, const View<S>& out) HWY_ATTR {
      for (int64_t j = begin; j < end; ++j)
        for (int64_t p = 0; p < width.panels; ++p)
          WriteRow<false>(panels + p * panel_size + (j - begin) * NR, std::min(NR, width.depth - p * NR), T{1},
                          row_of(out, cut.seq.b, kv_head, cut.seq.k_begin + j) + p * NR);
    };
    write(s.dk, key, io_.dk);
    write(s.dv, value, io_.dv);
  }

  int64_t PanelSize(const LinearCut& cut) const { return (cut.chunk + kTileRows) * NR; }

  // dq of one span, for all query heads of the unit; of a group also what its pairs with its chunk give to dk and dv.
  HWY_NOINLINE void Span(int64_t unit, int64_t span, const Scratch& s) const {
    const LinearCut& cut = Cut(unit);
    const UnitSums& of = unit_sums_[static_cast<size_t>(unit)];
    const int64_t whole = cut.whole_chunks(span), keys = std::min(whole * cut.chunk, cut.keys);
    const T* sum = whole > 0 ? of.keys + (whole - 1) * value_sum_size_ : nullptr;
    for (int64_t g = 0; g < plan_.group; ++g) {
      const int64_t head = plan_.unit_kv_head(unit) * plan_.group + g;
      ParameterSums parameters;
      for (int64_t i = cut.span_begin(span); i < cut.span_end(span); i += kLinearRows) {
        const Tiles tiles(std::min(kLinearRows, cut.span_end(span) - i));
        LoadRows(cut.seq, head, GainOf(head).early, i, tiles, s);
        if (sum)
          Base::Multiply(tiles, s.grad, key, sum, s.dq, NR, key.padded);
        else
          std::fill_n(s.dq, Base::PaddedCount(tiles) * key.padded, T{0});
        if (span < cut.groups) Pairs(cut, head, span, i, tiles, s);
        if (row_sums_) AddParameters(cut, head, i, tiles, keys, sum ? sum + Base::MatrixSize(value, key) : nullptr, s, parameters);
        StoreRows(cut.seq, head, i, tiles, s);
      }
      if (row_sums_) parameter_sums_[static_cast<size_t>(of.parameters + span * plan_.group + g)] = parameters;
    }
  }

  // A group and its chunk, in the quadratic order.
  void Pairs(const LinearCut& cut, int64_t head, int64_t c, int64_t first, const Tiles& tiles, const Scratch& s) const {
    TileKeys<kBackwardKeys, T> keys;
    const double late_gain = GainOf(head).late;
    const auto multiply_late = [&](T* tile) {
      for (int r = 0; r < keys.rows && late_gain != 1; ++r)
        WriteRow<false>(tile + r * kBackwardKeys, keys.own[r], static_cast<T>(late_gain), tile + r * kBackwardKeys);
    };
    for (int64_t t = 0; t < tiles.parts; ++t)
      for (int64_t k = cut.chunk_begin(c); k < cut.chunk_end(c); k += kBackwardKeys) {
        const int64_t row = tiles.begin(t), at = k - cut.chunk_begin(c);
        keys.set_visible(cut.seq, first + tiles.begin(t), tiles.size(t), k, std::min(kBackwardKeys, cut.chunk_end(c) - k));
        if (keys.most() == 0) continue;
        Base::ScoreRun(keys, value, s.grad.rows + row * value.padded, s.v_scores + at * value.depth, s.grad_shift + row, s.dx);
        Base::AddWeighted(keys, key, s.dx, s.k_panels + at * NR, cut.chunk * NR, s.dq + row * key.padded);
        if (row_sums_)
          for (int r = 0; r < keys.rows; ++r) s.dx_sum[row + r] += SumOfRun(s.dx + r * kBackwardKeys, keys.own[r]);
        if (late_gain == 0) continue;
        multiply_late(s.dx);
        Base::AddSpread(keys, key, s.dx, s.q.rows + row * key.padded, s.dk + at * NR, PanelSize(cut));
        Base::ScoreRun(keys, key, s.q.rows + row * key.padded, s.k_scores + at * key.depth, s.shift + row, s.scores);
        multiply_late(s.scores);
        Base::AddSpread(keys, value, s.scores, s.grad.rows + row * value.padded, s.dv + at * NR, PanelSize(cut));
      }
  }

  // `keys`: how many came in by the sum over whole chunks; `value_sum`: the sum of their values.
  void AddParameters(const LinearCut& cut, int64_t head, int64_t first, const Tiles& tiles, int64_t keys, const T* value_sum,
                     const Scratch& s, ParameterSums& sums) const {
    RowLengths lengths(plan_, cut.seq, head);
    for (int64_t i = 0; i < tiles.count; ++i) {
      double dx = s.dx_sum[i] + static_cast<double>(keys) * static_cast<double>(s.grad_shift[i]);
      if (value_sum) dx += DotPadded(s.grad.rows + i * value.padded, value_sum, value.padded);
      const double hg = DotPadded(s.q.rows + i * key.padded, s.dq + i * key.padded, key.padded) + static_cast<double>(s.shift[i]) * dx;
      lengths.set_row(first + i);
      sums.gain += hg;
      sums.bias += dx;
      sums.alpha -= lengths.log_n() * hg;
    }
  }

  void StoreRows(const Sequence& seq, int64_t head, int64_t first, const Tiles& tiles, const Scratch& s) const {
    for (int64_t i = 0; i < tiles.count; ++i) {
      S* dq = row_of(io_.dq, seq.b, head, seq.q_begin + first + i);
      if (plan_.gain(head) == 0)
        std::fill_n(dq, key.depth, S{});
      else
        WriteRow<false>(s.dq + i * key.padded, key.depth, static_cast<T>(plan_.rule.scale * GainOf(head).late), dq);
    }
  }

  void SumParameters() const {
    if (!row_sums_) return;
    for (int64_t head = 0; head < plan_.shape.Hq; ++head) {
      ParameterSums total;
      for (int64_t unit = head / plan_.group; unit < plan_.units(); unit += plan_.shape.Hkv)
        for (int64_t span = 0; span < Cut(unit).spans(); ++span) {
          const int64_t at = unit_sums_[static_cast<size_t>(unit)].parameters + span * plan_.group + head % plan_.group;
          const ParameterSums& part = parameter_sums_[static_cast<size_t>(at)];
          total.gain += part.gain;
          total.bias += part.bias;
          total.alpha += part.alpha;
        }
      if (io_.dgain) io_.dgain[head] = total.gain / GainOf(head).early;
      if (io_.dbias) io_.dbias[head] = GainOf(head).late * total.bias;
      if (io_.dalpha) io_.dalpha[head] = GainOf(head).late * total.alpha;
    }
  }

  const AttentionBackward<S, T>& io_;
  const bool row_sums_;                                                         // sums over keys are wanted for dgain, dbias, dalpha
  const int64_t value_sum_size_ = Base::MatrixSize(value, key) + value.padded;  // P, and a sum of v
  const int64_t rows_k_size_ = Base::MatrixSize(value, key), rows_v_size_ = Base::MatrixSize(key, value);
  std::vector<UnitSums> unit_sums_;
  mutable std::vector<ParameterSums> parameter_sums_;  // [unit][span][head of the group], each written by one task
};

template <typename S, typename T>
void RunLinearForward(const AttentionShape& shape, const AttentionRule& rule, const AttentionForward<S, T>& io, Parallel& parallel) {
  const Plan plan = Plan::make<T>(shape, rule);
  LinearForward<S, T>(plan, io).Run(parallel);
}
template <typename S, typename T>
void RunLinearBackward(const AttentionShape& shape, const AttentionRule& rule, const AttentionBackward<S, T>& io, Parallel& parallel) {
  const Plan plan = Plan::make<T>(shape, rule);
  LinearBackward<S, T>(plan, io).Run(parallel);
}

HINGE_STORED_TYPES(RunLinearForward);
HINGE_STORED_TYPES(RunLinearBackward);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT_STORED(RunLinearForward);
HINGE_EXPORT_STORED(RunLinearBackward);

template <typename S, typename T>
void linear_forward(const AttentionShape& shape, const AttentionRule& rule, const AttentionForward<S, T>& io, Parallel& parallel) {
  HINGE_DISPATCH_STORED(RunLinearForward, S)(shape, rule, io, parallel);
}
template <typename S, typename T>
void linear_backward(const AttentionShape& shape, const AttentionRule& rule, const AttentionBackward<S, T>& io, Parallel& parallel) {
  HINGE_DISPATCH_STORED(RunLinearBackward, S)(shape, rule, io, parallel);
}

HINGE_INSTANTIATE_STORED(linear_forward);
HINGE_INSTANTIATE_STORED(linear_backward);

bool takes_linear_order(const AttentionShape& shape, const AttentionRule& rule, bool weight_log_or_zero_share) {
  if (rule.h != Activation::identity || rule.dropout != 0 || weight_log_or_zero_share) return false;
  if (shape.mask.data || shape.window_left >= 0 || shape.hstu.used) return false;  // no prefixes of the keys
  if (rule.identity_order != IdentityOrder::automatic) return rule.identity_order == IdentityOrder::linear;
  // Multiply-adds of a forward and a backward pass: of a pair, D + Dv and 3 D + 2 Dv; of a row or key and a matrix, 1 and 3 products. To
  // load a row and call the kernels for it takes as long as some hundred more (measured: the orders are then equal where they take equal
  // time).
  const double D = static_cast<double>(shape.D), Dv = static_cast<double>(shape.value_width()), per_pair = 4 * D + 3 * Dv;
  const double per_row = 4 * ((D + 1) * static_cast<double>(HWY_NAMESPACE::RoundUp(shape.value_width(), 16)) + 8 * (D + Dv) + 600);
  const double Hq = static_cast<double>(shape.Hq), Hkv = static_cast<double>(shape.Hkv);
  double quadratic = 0, linear = 0;
  for (int64_t s = 0; s < sequence_count(shape); ++s) {
    const HWY_NAMESPACE::LinearCut cut(sequence(shape, s), shape.D);
    const double keys = static_cast<double>(cut.keys), rows = static_cast<double>(cut.seq.lq - cut.first_seeing);
    // Rows that see some keys, one more from row to row, and the pairs of them with keys.
    const double partial = static_cast<double>(cut.first_full - cut.first_seeing);
    const double pairs = partial > 0 ? partial * (static_cast<double>(cut.seq.visible(cut.first_seeing)) + keys - 1) / 2 : 0;
    quadratic += Hq * (pairs + (rows - partial) * keys) * per_pair;
    linear += (Hkv * keys + Hq * rows) * per_row + Hq * std::min(pairs, partial * static_cast<double>(cut.chunk) / 2) * per_pair;
  }
  return linear < quadratic;
}

}  // namespace hinge::kernels
#endif  // HWY_ONCE
