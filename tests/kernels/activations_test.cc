// The vector functions behind the activations, value and slope, against wide scalar arithmetic. The promise, in both types and on every
// SIMD target (value_error and slope_error in bounds.h):
//   |error of h(x)|  <= 4 eps (|h(x)| + |x h'(x)|)      as if h(x) and x had each been wrong by 4 eps
//   |error of h'(x)| <= 4 eps max(1, |h'(x)|)
// save for 16 (1 + |x|) times the smallest normal number. NaN gives NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "bounds.h"
#include "hinge/kernels/hidden_activation.h"

namespace hinge::kernels::testing {
namespace {

// h and h' of n elements, through the kernel that a feed-forward layer uses. Its backward of relu reads the scores instead of x.
template <typename T> void apply_activation(Activation h, const T* x, T* value, T* slope, int64_t n) {
  const std::vector<T> ones(static_cast<size_t>(n), T{1});
  std::vector<T> sums(static_cast<size_t>(n));
  Serial serial;
  std::vector<T> forward(static_cast<size_t>(n));
  hidden_activation_forward(h, HiddenActivationForward<T>{1, n, x, forward.data(), nullptr, {}}, serial);
  const T* kept = h == Activation::relu ? forward.data() : x;
  hidden_activation_backward(h, HiddenActivationBackward<T>{1, n, kept, ones.data(), slope, value, sums.data(), {}}, serial);
  for (int64_t i = 0; i < n; ++i)  // value() and value_and_slope() share their formula
    EXPECT_TRUE(std::isnan(value[i]) || forward[static_cast<size_t>(i)] == value[i]) << "at " << x[i];
}

using Wide = long double;

// h and h' as the scalar table has them, save that gelu's distribution function comes from erfc: 1 + erf loses all digits below -8.
Wide wide_value(Activation h, Wide x) {
  if (h == Activation::gelu) return x == 0 ? x : x * std::erfc(-x / std::sqrt(Wide(2))) / 2;
  return reference::value(h, x);
}
Wide wide_slope(Activation h, Wide x) {
  if (h == Activation::gelu) return std::erfc(-x / std::sqrt(Wide(2))) / 2 + x * Wide(scalar::kInvSqrt2Pi) * std::exp(-x * x / 2);
  return reference::slope(h, x);
}

template <typename T> std::vector<T> samples() {
  std::vector<T> x;
  // Dense where things happen, then by powers of two, then around the kinks and the ends of exp's range.
  for (int i = -40000; i <= 40000; ++i) x.push_back(static_cast<T>(i) / T(1600) * T(1.0000123));
  std::mt19937 random(5);
  std::uniform_real_distribution<T> mantissa(1, 2);
  const int lowest = std::numeric_limits<T>::min_exponent, highest = sizeof(T) == 4 ? 60 : 300;
  for (int exponent = lowest; exponent <= highest; ++exponent)
    for (int repeat = 0; repeat < 20; ++repeat)
      for (T sign : {T(1), T(-1)}) x.push_back(sign * std::ldexp(mantissa(random), exponent));
  for (T centre : {T(0), T(6), T(-87.3), T(-88), T(-103.9), T(-104), T(-708), T(-745), T(-750)})
    for (T sign : {T(1), T(-1)}) {
      T below = sign * centre, above = below;
      for (int i = 0; i < 20; ++i) {
        x.push_back(below), x.push_back(above);
        below = std::nextafter(below, -std::numeric_limits<T>::infinity());
        above = std::nextafter(above, std::numeric_limits<T>::infinity());
      }
    }
  x.push_back(T(-0.0));
  return x;
}

template <typename T> void check(Activation h) {
  const std::vector<T> x = samples<T>();
  std::vector<T> value(x.size()), slope(x.size());
  for_each_simd_target([&] {
    apply_activation(h, x.data(), value.data(), slope.data(), static_cast<int64_t>(x.size()));
    size_t wrong = 0;
    for (size_t i = 0; i < x.size() && wrong < 10; ++i) {
      const Wide v = wide_value(h, Wide(x[i])), s = wide_slope(h, Wide(x[i]));
      if (std::abs(v) > std::numeric_limits<T>::max()) continue;
      const double value_bound = value_error<T>(static_cast<double>(x[i]), static_cast<double>(v), static_cast<double>(s));
      const double slope_bound = slope_error<T>(static_cast<double>(s));
      if (!(std::abs(Wide(value[i]) - v) <= value_bound)) {
        ++wrong;
        ADD_FAILURE() << "h(" << x[i] << ") = " << value[i] << ", should be " << v << " within " << value_bound;
      }
      if (!(std::abs(Wide(slope[i]) - s) <= slope_bound)) {
        ++wrong;
        ADD_FAILURE() << "h'(" << x[i] << ") = " << slope[i] << ", should be " << s << " within " << slope_bound;
      }
    }

    // Alone and in every place of a vector, the same bits.
    for (size_t n = 1; n < 40; ++n) {
      const size_t from = 40000 - n;
      std::vector<T> few_values(n), few_slopes(n);
      apply_activation(h, x.data() + from, few_values.data(), few_slopes.data(), static_cast<int64_t>(n));
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(few_values[i], value[from + i]);
        ASSERT_EQ(few_slopes[i], slope[from + i]);
      }
    }
  });
}

template <typename T> void check_special(Activation h) {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN(), tiny = std::numeric_limits<T>::denorm_min();
  const std::vector<T> x = {nan, inf, tiny, -tiny, T(0), T(-0.0)};
  std::vector<T> value(x.size()), slope(x.size());
  for_each_simd_target([&] {
    apply_activation(h, x.data(), value.data(), slope.data(), static_cast<int64_t>(x.size()));
    EXPECT_TRUE(std::isnan(value[0]));
    EXPECT_EQ(value[1], static_cast<T>(wide_value(h, Wide(inf))));
    for (size_t i = 2; i < x.size(); ++i) {
      EXPECT_NEAR(value[i], static_cast<T>(wide_value(h, Wide(0))), 4 * std::numeric_limits<T>::epsilon()) << x[i];
      if (std::abs(wide_value(h, Wide(0))) == 0) {
        EXPECT_LE(std::abs(value[i]), std::numeric_limits<T>::min()) << x[i];
      }
    }
    // At a kink the slope is that of the flat side.
    EXPECT_NEAR(slope[4], static_cast<T>(wide_slope(h, Wide(0))), 4 * std::numeric_limits<T>::epsilon());
  });
}

class VectorActivation : public ::testing::TestWithParam<int> {
 protected:
  Activation h() const { return static_cast<Activation>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Pointwise, VectorActivation, ::testing::Range(0, static_cast<int>(kActivationNames.size()) - 1),
                         [](const auto& info) { return std::string(kActivationNames[static_cast<size_t>(info.param)]); });

TEST_P(VectorActivation, Float32WithinBound) { check<float>(h()); }
TEST_P(VectorActivation, Float64WithinBound) { check<double>(h()); }
TEST_P(VectorActivation, Float32SpecialValues) { check_special<float>(h()); }
TEST_P(VectorActivation, Float64SpecialValues) { check_special<double>(h()); }

// What may be skipped behind a zero weight is zero: h and h', from 0 downwards.
TEST(Activations, HasZeros) {
  for (size_t i = 0; i < kActivationNames.size(); ++i) {
    const auto h = static_cast<Activation>(i);
    if (h == Activation::softmax) continue;
    for (double x : {0.0, -1e-30, -0.5, -3.0, -1e30})
      if (has_zeros(h)) {
        EXPECT_EQ(reference::value(h, x), 0) << kActivationNames[i] << " " << x;
        EXPECT_EQ(reference::slope(h, x), 0) << kActivationNames[i] << " " << x;
      }
    EXPECT_EQ(has_zeros(h), reference::value(h, -0.5) == 0) << kActivationNames[i];
  }
  EXPECT_FALSE(has_zeros(Activation::softmax));
}

TEST(Activations, NamesGoBothWays) {
  for (size_t i = 0; i < kActivationNames.size(); ++i) {
    const auto h = static_cast<Activation>(i);
    EXPECT_EQ(parse_activation(activation_name(h)), h);
  }
  EXPECT_EQ(parse_activation("relu"), Activation::relu);
  EXPECT_EQ(parse_activation("softmax"), Activation::softmax);
  EXPECT_FALSE(parse_activation("Relu"));
  EXPECT_FALSE(parse_activation(""));
}

}  // namespace
}  // namespace hinge::kernels::testing
