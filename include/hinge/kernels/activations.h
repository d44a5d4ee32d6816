// The table of activations: every h of h(q.k), its name, and plain scalar h and h' (the meaning; the SIMD twins with the same names
// are in src/kernels/activations-inl.h).
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <string_view>

namespace hinge::kernels {

// name, class of its mathematics. Softmax is not point-wise and has no entry here beyond its name.
#define HINGE_FOR_EACH_POINTWISE_ACTIVATION(X) \
  X(relu, Relu)                                \
  X(relu2, Relu2)                              \
  X(gelu, Gelu)                                \
  X(gelu_tanh, GeluTanh)                       \
  X(softplus, Softplus)                        \
  X(identity, Identity)                        \
  X(relu6, Relu6)                              \
  X(sigmoid, Sigmoid)                          \
  X(silu, Silu)

enum class Activation {
#define HINGE_ENUM(name, cls) name,
  HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_ENUM)
#undef HINGE_ENUM
      softmax
};

inline constexpr std::array kActivationNames = {
#define HINGE_NAME(name, cls) std::string_view(#name),
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_NAME)
#undef HINGE_NAME
        std::string_view("softmax")};

inline std::string_view activation_name(Activation h) { return kActivationNames[static_cast<size_t>(h)]; }

inline std::optional<Activation> parse_activation(std::string_view name) {
  for (size_t i = 0; i < kActivationNames.size(); ++i)
    if (kActivationNames[i] == name) return static_cast<Activation>(i);
  return std::nullopt;
}

namespace scalar {

inline constexpr double kInvSqrt2 = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588;

template <typename T> T sigmoid(T x) { return T(1) / (T(1) + std::exp(-x)); }

// Each class: value(x) = h(x), slope(x) = h'(x) (0 at the kinks, as PyTorch has it).
// kHasZeros: h(x) == 0 on a whole half-line, and h'(x) == 0 wherever h(x) == 0, so that work behind a zero weight can be skipped. (Squares
// that underflow count as zeros: below x = 1e-22 in float, relu2's slope 2x may be lost.)
struct Relu {
  static constexpr bool kHasZeros = true;
  template <typename T> static T value(T x) { return x > 0 || std::isnan(x) ? x : T(0); }
  template <typename T> static T slope(T x) { return x > 0 ? T(1) : T(0); }
};

struct Relu2 {
  static constexpr bool kHasZeros = true;
  template <typename T> static T value(T x) { return Relu::value(x) * Relu::value(x); }
  template <typename T> static T slope(T x) { return 2 * Relu::value(x); }
};

// x Phi(x), Phi the normal distribution function.
struct Gelu {
  static constexpr bool kHasZeros = false;
  template <typename T> static T value(T x) { return x * T(0.5) * (1 + std::erf(x * T(kInvSqrt2))); }
  template <typename T> static T slope(T x) {
    return T(0.5) * (1 + std::erf(x * T(kInvSqrt2))) + x * T(kInvSqrt2Pi) * std::exp(-x * x / 2);
  }
};

// x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3); (1 + tanh u)/2 = sigmoid(2u).
struct GeluTanh {
  static constexpr bool kHasZeros = false;
  template <typename T> static T value(T x) { return x * sigmoid(twice_u(x)); }
  template <typename T> static T slope(T x) {
    const T s = sigmoid(twice_u(x));
    const T twice_du = T(2 * kSqrt2OverPi) * (1 + T(3 * 0.044715) * x * x);
    return s == 0 || s == 1 ? s : s + x * s * (1 - s) * twice_du;
  }
  template <typename T> static T twice_u(T x) { return T(2 * kSqrt2OverPi) * (x + T(0.044715) * x * x * x); }
};

struct Softplus {
  static constexpr bool kHasZeros = false;
  template <typename T> static T value(T x) { return (x > 0 ? x : T(0)) + std::log1p(std::exp(-std::abs(x))); }
  template <typename T> static T slope(T x) { return sigmoid(x); }
};

struct Identity {
  static constexpr bool kHasZeros = false;
  template <typename T> static T value(T x) { return x; }
  template <typename T> static T slope(T) { return T(1); }
};

struct Relu6 {
  static constexpr bool kHasZeros = true;
  template <typename T> static T value(T x) { return x > 6 ? T(6) : Relu::value(x); }
  template <typename T> static T slope(T x) { return x > 0 && x < 6 ? T(1) : T(0); }
};

struct Sigmoid {
  static constexpr bool kHasZeros = false;
  template <typename T> static T value(T x) { return sigmoid(x); }
  template <typename T> static T slope(T x) { return sigmoid(x) * (1 - sigmoid(x)); }
};

struct Silu {
  static constexpr bool kHasZeros = false;
  template <typename T> static T value(T x) { return x * sigmoid(x); }
  template <typename T> static T slope(T x) {
    const T s = sigmoid(x);
    return s * (1 + x * (1 - s));
  }
};

}  // namespace scalar

// kHasZeros of an activation; softmax has none.
constexpr bool has_zeros(Activation h) {
  switch (h) {
#define HINGE_HAS_ZEROS(name, cls) \
  case Activation::name: return scalar::cls::kHasZeros;
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_HAS_ZEROS)
#undef HINGE_HAS_ZEROS
    case Activation::softmax: break;
  }
  return false;
}

}  // namespace hinge::kernels
