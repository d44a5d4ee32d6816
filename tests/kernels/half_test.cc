// bfloat16 and float16: the conversions of numbers and of vectors on every SIMD target, and the fast kernels on what is stored so. Those
// must give what the kernels of float32 give for the same numbers, each result rounded once, to the last bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "pairwise.h"
#include "problem.h"

// As seen from src, which is where the compiler looks.
#define HWY_TARGET_INCLUDE "../tests/kernels/half_test.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {

// Vectors do what single numbers do.
template <typename S> void CheckVectors(const std::vector<float>& numbers) {
  const hn::ScalableTag<float> d;
  const size_t N = hn::Lanes(d);
  std::vector<S> stored(numbers.size() + N);
  for (size_t i = 0; i < numbers.size(); i += N) {
    std::vector<float> some(N), back(N);
    for (size_t lane = 0; lane < N; ++lane) some[lane] = numbers[std::min(i + lane, numbers.size() - 1)];
    StoreStored(hn::LoadU(d, some.data()), d, stored.data() + i);
    hn::StoreU(LoadStored(d, stored.data() + i), d, back.data());
    for (size_t lane = 0; lane < N; ++lane) {
      const S wanted(some[lane]);
      if (std::isnan(some[lane])) {
        ASSERT_TRUE(std::isnan(static_cast<float>(stored[i + lane])) && std::isnan(back[lane])) << "of a NaN";
        continue;
      }
      ASSERT_EQ(stored[i + lane].bits, wanted.bits) << "of " << some[lane];
      ASSERT_EQ(std::bit_cast<uint32_t>(back[lane]), std::bit_cast<uint32_t>(static_cast<float>(wanted))) << "of " << wanted.bits;
    }
  }
}
void CheckBFloat16(const std::vector<float>& numbers) { CheckVectors<BFloat16>(numbers); }
void CheckFloat16(const std::vector<float>& numbers) { CheckVectors<Float16>(numbers); }

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(CheckBFloat16);
HWY_EXPORT(CheckFloat16);

namespace testing {
namespace {

template <typename S> S of_bits(uint32_t bits) {
  const auto half = static_cast<uint16_t>(bits);
  return std::bit_cast<S>(half);
}

// What the bits mean, by the definition of the format.
template <typename S> double meaning(uint32_t bits) {
  constexpr int mantissa_bits = std::is_same_v<S, BFloat16> ? 7 : 10, bias = std::is_same_v<S, BFloat16> ? 127 : 15;
  const int exponent = static_cast<int>((bits & 0x7fff) >> mantissa_bits);
  const double mantissa = static_cast<double>(bits & ((1u << mantissa_bits) - 1)), sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 2 * bias + 1) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  const double significand = exponent == 0 ? mantissa : mantissa + static_cast<double>(1u << mantissa_bits);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
}

// Every number of the type, and between two neighbours: the middle, and the numbers of float32 next to it and to them.
template <typename S> std::vector<float> numbers_around() {
  std::vector<float> numbers;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = static_cast<float>(of_bits<S>(bits));
    const uint32_t x = std::bit_cast<uint32_t>(value);
    for (const uint32_t offset : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u})
      numbers.push_back(std::bit_cast<float>(x + offset));
    const float next = static_cast<float>(of_bits<S>((bits & 0x7fff) == 0x7fff ? bits : bits + 1));
    const float middle = value / 2 + next / 2;
    for (const float near : {middle, std::nextafter(middle, value), std::nextafter(middle, next)}) numbers.push_back(near);
  }
  for (const float value : {65504.f, 65519.99f, 65520.f, 65536.f, 1e30f, 3.4e38f, std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const float sign : {1.f, -1.f}) numbers.push_back(sign * value);
  return numbers;
}

template <typename S> void check_numbers() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double wanted = meaning<S>(bits), got = static_cast<float>(of_bits<S>(bits));
    ASSERT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted))) << bits << " is " << wanted << ", not " << got;
    if (std::isnan(wanted)) continue;
    ASSERT_EQ(S(static_cast<float>(of_bits<S>(bits))).bits, bits);
    if ((bits & 0x7fff) >= (std::bit_cast<uint16_t>(S(std::numeric_limits<float>::infinity())) & 0x7fff)) continue;
    // Between it and the next one, further from zero: in double, where the middle is exact. The last finite number's next one is infinite,
    // but rounded to as if it were the next power of two.
    const double last = meaning<S>(bits - 1), next = std::isinf(meaning<S>(bits + 1)) ? 2 * wanted - last : meaning<S>(bits + 1);
    const double middle = (wanted + next) / 2;
    const auto middle_number = static_cast<float>(middle);
    if (static_cast<double>(middle_number) != middle) continue;  // float32 has no such number
    EXPECT_EQ(S(middle_number).bits, bits % 2 == 0 ? bits : bits + 1) << "ties go to the even one: " << middle;
    EXPECT_EQ(S(std::nextafter(middle_number, static_cast<float>(wanted))).bits, bits);
    EXPECT_EQ(S(std::nextafter(middle_number, static_cast<float>(2 * next - wanted))).bits, bits + 1);
  }
}

TEST(Half, NumbersAreRoundedToTheNearest) {
  check_numbers<BFloat16>();
  check_numbers<Float16>();
}

TEST(Half, VectorsDoWhatNumbersDo) {
  const std::vector<float> around_bfloat16 = numbers_around<BFloat16>(), around_float16 = numbers_around<Float16>();
  for_each_simd_target([&] {
    for (const std::vector<float>* numbers : {&around_bfloat16, &around_float16}) {
      HWY_DYNAMIC_DISPATCH(CheckBFloat16)(*numbers);
      HWY_DYNAMIC_DISPATCH(CheckFloat16)(*numbers);
    }
  });
}

// The kernels of float32 on the same numbers. Where backward gets what forward gave (softmax), it gets it rounded.
template <typename S> Results<float> run_in_float32(const Problem<S>& stored, Parallel& parallel) {
  const Problem<float> wide = stored.template as<float>();
  Results<float> results = detail::run(
      wide,
      [&](const AttentionShape& shape, const AttentionRule& rule, const AttentionForward<float>& io) {
        attention_forward(shape, rule, io, parallel);
        for (int64_t b = 0; b < shape.B; ++b)
          for (int64_t head = 0; head < shape.Hq; ++head)
            for (int64_t i = 0; i < shape.Lq; ++i)
              for (int64_t d = 0; d < shape.value_width(); ++d) {
                float& element = row_of(io.out, b, head, i)[d];
                element = static_cast<S>(element);
              }
      },
      [&](const auto&... args) { attention_backward(args..., parallel); });
  for (std::vector<float>* values : {&results.dq, &results.dk, &results.dv})
    for (float& value : *values) value = static_cast<S>(value);
  return results;
}

template <typename T> void expect_same(const char* what, const std::vector<T>& got, const std::vector<T>& wanted) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i])))
        << what << ", number " << i << ": " << got[i] << ", should be " << wanted[i];
}

template <typename S> void compare(const Case& c) {
  const Problem<S> problem = make_problem<S>(c);
  Threads threads(c.workers);
  for_each_simd_target([&] {
    const Results<float> got = run_fast(problem, threads), wanted = run_in_float32(problem, threads);
    expect_same("out", got.out, wanted.out);
    expect_same("weight_sum", got.weight_sum, wanted.weight_sum);
    expect_same("weight_log", got.weight_log, wanted.weight_log);
    expect_same("zero_share", got.zero_share, wanted.zero_share);
    expect_same("lse", got.lse, wanted.lse);
    expect_same("dq", got.dq, wanted.dq);
    expect_same("dk", got.dk, wanted.dk);
    expect_same("dv", got.dv, wanted.dv);
    expect_same("dgain", got.dgain, wanted.dgain);
    expect_same("dbias", got.dbias, wanted.dbias);
    expect_same("dalpha", got.dalpha, wanted.dalpha);
    expect_same("dmask", got.dmask, wanted.dmask);
  });
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return std::to_string(info.index) + "_" + info.param.name(); }

class Stored : public ::testing::TestWithParam<Case> {};
TEST_P(Stored, IsFloat32RoundedOnce) {
  compare<BFloat16>(GetParam());
  compare<Float16>(GetParam());
}

std::vector<Case> stored_cases() {
  // Few rows read keys and values in place; from 289 rows or 257 keys on there are several chunks, whose sums must not be rounded.
  const std::vector<int64_t> rows = {0, 1, 2, 3, 4, 17, 97, 300, 650}, keys = {0, 1, 16, 25, 130, 257, 600};
  const std::vector<std::pair<int64_t, int64_t>> widths = {{64, 0}, {32, 0}, {128, 0}, {16, 0}, {7, 33},
                                                           {80, 0}, {33, 7}, {1, 0},   {24, 40}};
  const std::vector<int> workers = {1, 2, 5};
  struct Window {
    int64_t left, right;
  };
  const std::vector<Window> windows = {{-1, -1}, {-1, -1}, {5, 0}, {300, 3}};
  // Factors: h, visibility, rows, keys (value 0: as many as rows), widths, layout, workers, group, statistics, gradients of parameters,
  // mask, its shape, window, dropout.
  const auto choices = pairwise({kActivationNames.size(), kVisibilityNames.size(), rows.size(), keys.size() + 1, widths.size(),
                                 kLayoutNames.size(), workers.size(), 2, 2, 2, 3, kMaskShapeNames.size(), windows.size(), 2});
  std::vector<Case> cases;
  for (size_t n = 0; n < choices.size(); n += quick() ? 4 : 1) {
    const auto& choice = choices[n];
    Case c;
    c.h = static_cast<Activation>(choice[0]), c.visibility = static_cast<Visibility>(choice[1]);
    c.Lq = rows[choice[2]], c.Lk = choice[3] == 0 ? c.Lq : keys[choice[3] - 1];
    c.D = widths[choice[4]].first, c.Dv = widths[choice[4]].second;
    c.layout = static_cast<Layout>(choice[5]), c.workers = workers[choice[6]], c.group = static_cast<int64_t>(choice[7]) + 1;
    c.statistics = choice[8] == 1, c.parameter_gradients = choice[9] == 1;
    c.mask = c.jagged() ? MaskKind::none : static_cast<MaskKind>(choice[10]);
    c.mask_shape = static_cast<MaskShape>(choice[11]);
    c.window_left = windows[choice[12]].left, c.window_right = windows[choice[12]].right;
    c.dropout = choice[13] == 1 ? 0.25 : 0;
    c.head_parameters = true, c.B = 3, c.length_rule = LengthRule::visible, c.seed = n + 1;
    cases.push_back(c);
  }
  // The linear order, and HSTU's mask.
  for (const auto& [D, Dv] : widths)
    for (const Visibility visibility : {Visibility::all, Visibility::causal, Visibility::causal_jagged}) {
      Case c;
      c.h = Activation::identity, c.identity_order = IdentityOrder::linear, c.visibility = visibility, c.D = D, c.Dv = Dv;
      c.Lq = 150, c.Lk = 290, c.group = 2, c.head_parameters = true, c.workers = 2, c.length_rule = LengthRule::visible;
      cases.push_back(c);
    }
  for (const Visibility visibility : {Visibility::causal, Visibility::causal_jagged}) {
    Case c;
    c.h = Activation::silu, c.visibility = visibility, c.Lq = c.Lk = 313, c.D = 32, c.workers = 2;
    c.hstu = true, c.targets = 20, c.past = 37, c.context = 4;
    cases.push_back(c);
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Half, Stored, ::testing::ValuesIn(stored_cases()), case_name);

}  // namespace
}  // namespace testing
}  // namespace hinge::kernels
#endif  // HWY_ONCE
