// The optimizers against PyTorch's formulas in double, and flat operations that must not depend on threads.
#include <gtest/gtest.h>

#include <cmath>

#include "device/cpu/cpu_device.h"

namespace lockstep::device {
namespace {

std::vector<float> wave(size_t n, double phase) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>(std::sin(phase + 0.37 * static_cast<double>(i)));
  return v;
}

TEST(Flat, SgdFollowsPyTorch) {
  auto device = make_cpu_device(1);
  for (bool nesterov : {false, true}) {
    std::vector<float> p = wave(100, 1), m(100), average = p;
    std::vector<double> q(p.begin(), p.end()), n(100);
    for (int step = 0; step < 5; ++step) {
      const std::vector<float> g = wave(100, 2 + step);
      device->update(SgdStep{0.1f, 0.9f, 0.01f, nesterov}, {p, m, {}, average, g, 0.5f, 0.75f});
      for (int i = 0; i < 100; ++i) {
        const double d = 0.5 * g[i] + 0.01 * q[i];
        n[i] = 0.9 * n[i] + d;
        q[i] -= 0.1 * (nesterov ? d + 0.9 * n[i] : n[i]);
      }
    }
    for (int i = 0; i < 100; ++i) EXPECT_NEAR(p[i], q[i], 1e-5);
    EXPECT_NE(average, p);
  }
}

TEST(Flat, AdamWFollowsPyTorch) {
  auto device = make_cpu_device(1);
  std::vector<float> p = wave(100, 1), m(100), v(100);
  std::vector<double> q(p.begin(), p.end()), a(100), b(100);
  for (int step = 1; step <= 5; ++step) {
    const std::vector<float> g = wave(100, 2 + step);
    const double bias1 = 1 - std::pow(0.9, step), bias2 = 1 - std::pow(0.999, step);
    device->update(
        AdamWStep{0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, static_cast<float>(bias1), static_cast<float>(bias2)},
        {p, m, v, {}, g});
    for (int i = 0; i < 100; ++i) {
      q[i] *= 1 - 0.01 * 0.1;
      a[i] = 0.9 * a[i] + 0.1 * g[i];
      b[i] = 0.999 * b[i] + 0.001 * double{g[i]} * g[i];
      q[i] -= 0.01 / bias1 * a[i] / (std::sqrt(b[i] / bias2) + 1e-8);
    }
  }
  for (int i = 0; i < 100; ++i) EXPECT_NEAR(p[i], q[i], 1e-5);
}

TEST(Flat, SumOfSquaresHasTheSameBitsForAnyThreads) {
  const std::vector<float> x = wave(1'000'003, 0.1);
  EXPECT_EQ(make_cpu_device(1)->sum_of_squares(x), make_cpu_device(2)->sum_of_squares(x));
  double expected = 0;
  for (float v : x) expected += double{v} * v;
  EXPECT_NEAR(make_cpu_device(2)->sum_of_squares(x), expected, 1e-9 * expected);
}

}  // namespace
}  // namespace lockstep::device
