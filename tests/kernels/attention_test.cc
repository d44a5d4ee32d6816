// The fast kernels against the reference in a wider type, for every SIMD target, within derived bounds (bounds.h). Every pair of
// options occurs together in some case.
#include <gtest/gtest.h>

#include "bounds.h"
#include "pairwise.h"
#include "problem.h"

namespace hinge::kernels::testing {
namespace {

struct Sizes {
  std::vector<int64_t> L, D;
};

std::vector<Case> pairwise_cases(const Sizes& sizes) {
  struct Rule {
    LengthRule rule;
    bool bias_log_n;
  };
  const std::vector<Rule> rules = {{LengthRule::none, false},
                                   {LengthRule::fixed, false},
                                   {LengthRule::keys, false},
                                   {LengthRule::visible, false},
                                   {LengthRule::visible, true}};
  const std::vector<std::pair<int64_t, int64_t>> heads = {{2, 1}, {2, 2}, {1, 3}};  // Hkv, Hq / Hkv
  const std::vector<int> workers = {1, 2, 5};

  // Factors: h, visibility, rule, heads, Lq, Lk (value 0: the same as Lq), D, layout, workers, parameters, statistics, dropout,
  // gradients of parameters.
  const auto rows = pairwise({kActivationNames.size(), kVisibilityNames.size(), rules.size(), heads.size(), sizes.L.size(),
                              sizes.L.size() + 1, sizes.D.size(), kLayoutNames.size(), workers.size(), 2, 2, 2, 2});
  std::vector<Case> cases;
  for (size_t r = 0; r < rows.size(); r += quick() ? 6 : 1) {
    const auto& row = rows[r];
    Case c;
    c.h = static_cast<Activation>(row[0]);
    c.visibility = static_cast<Visibility>(row[1]);
    c.length_rule = rules[row[2]].rule, c.bias_log_n = rules[row[2]].bias_log_n;
    c.Hkv = heads[row[3]].first, c.group = heads[row[3]].second;
    c.Lq = sizes.L[row[4]], c.Lk = row[5] == 0 ? c.Lq : sizes.L[row[5] - 1];
    c.D = sizes.D[row[6]];
    c.layout = static_cast<Layout>(row[7]);
    c.workers = workers[row[8]];
    c.head_parameters = row[9] == 1, c.statistics = row[10] == 1;
    c.dropout = row[11] == 1 ? 0.25 : 0;
    c.parameter_gradients = row[12] == 1;
    c.B = c.has_key_lengths() ? 3 : 2;
    c.seed = r + 1;
    cases.push_back(c);
  }
  return cases;
}

template <typename T, typename Wide> void compare(const Case& c) {
  const Problem<T> problem = make_problem<T>(c);
  const Results<Wide> wanted = run_reference(problem.template as<Wide>());
  const Results<double> bounds = error_bounds(problem);
  Threads threads(c.workers);
  for_each_simd_target([&] { expect_within(run_fast(problem, threads), wanted, bounds); });
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return std::to_string(info.index) + "_" + info.param.name(); }

std::vector<int64_t> widths() {
  if (quick()) return {1, 7, 8, 16, 24, 64, 80};
  return {1, 7, 8, 16, 24, 64, 80, 128, 200, 256};
}

class Float32 : public ::testing::TestWithParam<Case> {};
TEST_P(Float32, EqualsReference) { compare<float, double>(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Attention, Float32,
                         ::testing::ValuesIn(pairwise_cases({{0, 1, 2, 5, 6, 7, 15, 16, 17, 95, 96, 97, 127, 128, 129, 255, 256, 257, 300},
                                                             widths()})),
                         case_name);

class Float64 : public ::testing::TestWithParam<Case> {};
TEST_P(Float64, EqualsReference) { compare<double, long double>(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Attention, Float64, ::testing::ValuesIn(pairwise_cases({{0, 1, 2, 7, 16, 33, 97}, {1, 7, 16, 40, 64, 80, 128}})),
                         case_name);

// Every h in every mode of visibility at a size with full and partial tiles, with everything else switched on, and with nothing else: then
// backward takes the way of training, without passes over single rows.
class EveryPair : public ::testing::TestWithParam<Case> {};
TEST_P(EveryPair, EqualsReference) { compare<float, double>(GetParam()); }
std::vector<Case> every_pair() {
  std::vector<Case> cases;
  for (size_t h = 0; h < kActivationNames.size(); ++h)
    for (size_t v = 0; v < kVisibilityNames.size(); ++v)
      for (bool everything : {true, false}) {
        Case c;
        c.h = static_cast<Activation>(h), c.visibility = static_cast<Visibility>(v);
        c.Lq = 61, c.Lk = 103, c.D = 24, c.group = 2, c.B = 3, c.length_rule = LengthRule::visible;
        c.head_parameters = true, c.statistics = c.parameter_gradients = everything;
        c.workers = 2, c.layout = Layout::padded;
        if (!quick() || (h + v) % 6 == 0) cases.push_back(c);
      }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Attention, EveryPair, ::testing::ValuesIn(every_pair()), case_name);

// A few rows, as in steps of decoding, which read keys and values in place where D is a multiple of a panel.
class FewRows : public ::testing::TestWithParam<Case> {};
TEST_P(FewRows, EqualsReference) { compare<float, double>(GetParam()); }
std::vector<Case> few_rows() {
  const std::vector<int64_t> keys = {1, 2, 3, 4, 15, 16, 25, 256, 300, 515}, widths = {16, 32, 48, 64, 96, 112, 128, 256};
  const std::vector<int> workers = {1, 5};
  // Factors: h, visibility, rows, keys, D, layout, query heads of a key head, workers, statistics, dropout.
  const auto choices = pairwise(
      {kActivationNames.size(), kVisibilityNames.size(), 4, keys.size(), widths.size(), kLayoutNames.size(), 2, workers.size(), 2, 2});
  std::vector<Case> cases;
  for (size_t i = 0; i < choices.size(); i += quick() ? 7 : 1) {
    const auto& choice = choices[i];
    Case c;
    c.h = static_cast<Activation>(choice[0]), c.visibility = static_cast<Visibility>(choice[1]);
    c.Lq = static_cast<int64_t>(choice[2]) + 1, c.Lk = keys[choice[3]], c.D = widths[choice[4]];
    c.layout = static_cast<Layout>(choice[5]), c.group = static_cast<int64_t>(choice[6]) + 1, c.workers = workers[choice[7]];
    c.statistics = choice[8] == 1, c.dropout = choice[9] == 1 ? 0.25 : 0;
    c.B = 3, c.length_rule = LengthRule::visible, c.head_parameters = true;
    cases.push_back(c);
  }
  // A step of decoding with a long cache, and nothing else asked for: several blocks of keys, the last of which brings the factor.
  for (size_t h = 0; h < kActivationNames.size(); ++h) {
    Case c;
    c.h = static_cast<Activation>(h), c.Lq = 1, c.Lk = 515, c.D = 128, c.length_rule = LengthRule::visible;
    cases.push_back(c);
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Attention, FewRows, ::testing::ValuesIn(few_rows()), case_name);

// Values of another width than keys: narrower and wider, in whole panels and not, in every path.
class ValueWidth : public ::testing::TestWithParam<Case> {};
TEST_P(ValueWidth, EqualsReference) { compare<float, double>(GetParam()); }
std::vector<Case> value_width_cases() {
  const std::vector<std::pair<int64_t, int64_t>> widths = {{16, 64}, {64, 16}, {64, 128}, {7, 33}, {33, 7},
                                                           {32, 40}, {40, 32}, {1, 200},  {129, 1}};
  const std::vector<int64_t> lengths = {1, 3, 17, 130, 290};
  const std::vector<int> workers = {1, 5};
  const auto rows = pairwise({kActivationNames.size(), kVisibilityNames.size(), widths.size(), lengths.size(), lengths.size(),
                              kLayoutNames.size(), workers.size(), 2, 2, 2, 3, 2});
  std::vector<Case> cases;
  for (size_t n = 0; n < rows.size(); n += quick() ? 3 : 1) {
    const auto& row = rows[n];
    Case c;
    c.h = static_cast<Activation>(row[0]), c.visibility = static_cast<Visibility>(row[1]);
    c.D = widths[row[2]].first, c.Dv = widths[row[2]].second, c.Lq = lengths[row[3]], c.Lk = lengths[row[4]];
    c.layout = static_cast<Layout>(row[5]), c.workers = workers[row[6]], c.group = static_cast<int64_t>(row[7]) + 1;
    c.statistics = row[8] == 1, c.parameter_gradients = row[9] == 1;
    c.mask = c.jagged() ? MaskKind::none : static_cast<MaskKind>(row[10]);
    c.dropout = row[11] == 1 ? 0.25 : 0;
    c.head_parameters = true, c.B = 3, c.length_rule = LengthRule::visible, c.seed = n + 1;
    cases.push_back(c);
  }
  // The linear order.
  for (const auto& [D, Dv] : widths)
    for (const Visibility visibility : {Visibility::all, Visibility::causal, Visibility::causal_jagged}) {
      Case c;
      c.h = Activation::identity, c.identity_order = IdentityOrder::linear, c.visibility = visibility, c.D = D, c.Dv = Dv;
      c.Lq = 150, c.Lk = 290, c.group = 2, c.head_parameters = true, c.workers = 2, c.length_rule = LengthRule::visible;
      cases.push_back(c);
    }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Attention, ValueWidth, ::testing::ValuesIn(value_width_cases()), case_name);

// Masks, windows and HSTU's mask with everything else.
class Masked : public ::testing::TestWithParam<Case> {};
TEST_P(Masked, EqualsReference) { compare<float, double>(GetParam()); }
class Masked64 : public ::testing::TestWithParam<Case> {};
TEST_P(Masked64, EqualsReference) { compare<double, long double>(GetParam()); }

std::vector<Case> masked_cases(const std::vector<int64_t>& lengths, const std::vector<int64_t>& widths) {
  struct Window {
    int64_t left, right;
  };
  const std::vector<Window> windows = {{-1, -1}, {-1, -1}, {0, -1}, {5, 0}, {70, 3}, {-1, 9}, {300, 300}};
  const std::vector<Visibility> visibilities = {Visibility::all, Visibility::causal, Visibility::key_lengths,
                                                Visibility::causal_key_lengths};
  const std::vector<int> workers = {1, 2, 5};
  // Factors: h, visibility, mask, shape of the mask, window, length rule, Lq, Lk, D, layout, workers, group, statistics, dropout, gradients
  // of parameters.
  const auto rows = pairwise({kActivationNames.size(), visibilities.size(), 3, kMaskShapeNames.size(), windows.size(), 4, lengths.size(),
                              lengths.size() + 1, widths.size(), kLayoutNames.size(), workers.size(), 2, 2, 2, 2});
  std::vector<Case> cases;
  for (size_t n = 0; n < rows.size(); n += quick() ? 3 : 1) {
    const auto& row = rows[n];
    Case c;
    c.h = static_cast<Activation>(row[0]), c.visibility = visibilities[row[1]];
    c.mask = static_cast<MaskKind>(row[2]), c.mask_shape = static_cast<MaskShape>(row[3]);
    c.window_left = windows[row[4]].left, c.window_right = windows[row[4]].right;
    c.length_rule = static_cast<LengthRule>(row[5]), c.bias_log_n = row[5] == 3 && row[11] == 1;
    c.Lq = lengths[row[6]], c.Lk = row[7] == 0 ? c.Lq : lengths[row[7] - 1], c.D = widths[row[8]];
    c.layout = static_cast<Layout>(row[9]), c.workers = workers[row[10]];
    c.group = static_cast<int64_t>(row[11]) + 1;
    c.statistics = row[12] == 1, c.dropout = row[13] == 1 ? 0.25 : 0, c.parameter_gradients = row[14] == 1;
    c.head_parameters = true, c.B = 3, c.seed = n + 1;
    cases.push_back(c);
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Attention, Masked,
                         ::testing::ValuesIn(masked_cases({1, 3, 4, 17, 96, 127, 300}, quick() ? std::vector<int64_t>{7, 16, 64}
                                                                                               : std::vector<int64_t>{7, 16, 64, 80, 128})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Attention, Masked64, ::testing::ValuesIn(masked_cases({1, 4, 33, 130}, {7, 16, 40})), case_name);

class Hstu : public ::testing::TestWithParam<Case> {};
TEST_P(Hstu, EqualsReference) { compare<float, double>(GetParam()); }
std::vector<Case> hstu_cases() {
  std::vector<Case> cases;
  for (const Visibility visibility : {Visibility::causal, Visibility::causal_jagged})
    for (const int64_t L : {1, 40, 313})
      for (const int64_t targets : {0, 3, 20})
        for (const int64_t past : {0, 1, 37})
          for (const int64_t context : {0, 1, 4}) {
            Case c;
            c.h = (L + targets + context) % 3 == 0 ? Activation::relu : (past + context) % 4 == 0 ? Activation::softmax : Activation::silu;
            c.visibility = visibility, c.Lq = c.Lk = L, c.D = 32, c.length_rule = LengthRule::visible, c.workers = 2;
            c.hstu = true, c.targets = targets, c.past = past, c.context = std::min(context, L);
            c.full = past > 0 ? std::array{0, 1, 25}[static_cast<size_t>(cases.size() % 3)] : 0;
            c.statistics = c.parameter_gradients = (targets + past) % 2 == 0;
            c.seed = cases.size() + 1;
            if (!quick() || cases.size() % 2 == 0 || L < 100) cases.push_back(c);
          }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Attention, Hstu, ::testing::ValuesIn(hstu_cases()), case_name);

// Larger than any block, one head: long sums over keys and rows.
TEST(Attention, LongSequenceEqualsReference) {
  for (Activation h : {Activation::relu, Activation::gelu, Activation::identity, Activation::softmax})
    for (bool everything : {true, false}) {
      Case c;
      c.h = h, c.B = 1, c.Hkv = 1, c.Lq = c.Lk = quick() ? 330 : 1025, c.D = 32, c.visibility = Visibility::causal;
      c.statistics = c.parameter_gradients = everything;
      c.workers = 2;
      SCOPED_TRACE(c.name());
      compare<float, double>(c);
    }
}

// What a kernel is not asked for, it must not touch or need.
TEST(Attention, NothingOptionalAskedFor) {
  for (size_t h = 0; h < kActivationNames.size(); ++h) {
    SCOPED_TRACE(kActivationNames[h]);
    Case c;
    c.h = static_cast<Activation>(h), c.Lq = 19, c.Lk = 37, c.D = 24;
    const Problem<float> p = make_problem<float>(c);
    const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
    for_each_simd_target([&] {
      Serial serial;
      const auto out = Array<float>::make_one(Layout::padded, true, c.B, c.Hkv, c.Lq, c.D);
      std::vector<float> lse(p.row_count());
      AttentionForward<float> f{p.q.cview(), p.k.cview(), p.v.cview(), out.view};
      attention_forward(p.shape, p.rule, f, serial);
      expect_within("out", out.flat(), wanted.out, bounds.out);
      f.lse = p.softmax() ? lse.data() : nullptr;
      attention_forward(p.shape, p.rule, f, serial);

      const auto grads = Array<float>::make_qkv(Layout::padded, true, p.shape);
      AttentionBackward<float> b;
      b.q = f.q, b.k = f.k, b.v = f.v, b.grad_out = p.grad_out.cview();
      b.dq = grads[0].view, b.dk = grads[1].view, b.dv = grads[2].view;
      if (p.softmax()) b.out = out.cview(), b.lse = lse.data();
      attention_backward(p.shape, p.rule, b, serial);
      expect_within("dq", grads[0].flat(), wanted.dq, bounds.dq);
      expect_within("dk", grads[1].flat(), wanted.dk, bounds.dk);
      expect_within("dv", grads[2].flat(), wanted.dv, bounds.dv);
    });
  }
}

// One statistic at a time, and one gradient of a statistic at a time.
TEST(Attention, StatisticsOneByOne) {
  for (size_t h = 0; h < kActivationNames.size(); ++h) {
    SCOPED_TRACE(kActivationNames[h]);
    Case c;
    c.h = static_cast<Activation>(h), c.Lq = 19, c.Lk = 37, c.D = 24, c.statistics = true, c.head_parameters = true;
    Problem<float> p = make_problem<float>(c);
    const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
    for_each_simd_target([&] {
      Serial serial;
      for (int which = 0; which < 3; ++which) {
        const auto out = Array<float>::make_one(Layout::contiguous, true, c.B, c.Hkv, c.Lq, c.D);
        std::vector<float> values(p.row_count());
        AttentionForward<float> f{p.q.cview(), p.k.cview(), p.v.cview(), out.view};
        (which == 0 ? f.weight_sum : which == 1 ? f.weight_log : f.zero_share) = values.data();
        attention_forward(p.shape, p.rule, f, serial);
        expect_within("out", out.flat(), wanted.out, bounds.out);
        expect_within("statistic", values,
                      which == 0   ? wanted.weight_sum
                      : which == 1 ? wanted.weight_log
                                   : wanted.zero_share,
                      which == 0   ? bounds.weight_sum
                      : which == 1 ? bounds.weight_log
                                   : bounds.zero_share);
      }
    });
  }
  for (bool of_sum : {true, false})
    for (size_t h = 0; h < kActivationNames.size(); ++h) {
      SCOPED_TRACE(kActivationNames[h]);
      Case c;
      c.h = static_cast<Activation>(h), c.Lq = 19, c.Lk = 37, c.D = 24, c.statistics = true;
      Problem<float> p = make_problem<float>(c);
      std::fill_n((of_sum ? p.grad_weight_log : p.grad_weight_sum).begin(), p.row_count(), 0.f);
      const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
      for_each_simd_target([&] {
        Serial serial;
        const Results<float> forward = run_fast(p);
        const auto out = Array<float>::make_one(Layout::contiguous, true, c.B, c.Hkv, c.Lq, c.D);
        size_t at = 0;
        out.for_each([&](float& element) { element = forward.out[at++]; });
        const auto grads = Array<float>::make_qkv(Layout::contiguous, true, p.shape);
        AttentionBackward<float> b;
        b.q = p.q.cview(), b.k = p.k.cview(), b.v = p.v.cview(), b.grad_out = p.grad_out.cview();
        b.dq = grads[0].view, b.dk = grads[1].view, b.dv = grads[2].view;
        if (of_sum) b.grad_weight_sum = p.grad_weight_sum.data();
        if (!of_sum) b.grad_weight_log = p.grad_weight_log.data();
        if (p.softmax()) {
          b.out = out.cview(), b.lse = forward.lse.data();
          if (!of_sum) b.weight_log = forward.weight_log.data();
        }
        attention_backward(p.shape, p.rule, b, serial);
        expect_within("dq", grads[0].flat(), wanted.dq, bounds.dq);
        expect_within("dk", grads[1].flat(), wanted.dk, bounds.dk);
        expect_within("dv", grads[2].flat(), wanted.dv, bounds.dv);
      });
    }
}

}  // namespace
}  // namespace hinge::kernels::testing
