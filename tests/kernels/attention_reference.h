#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/harness.h"

namespace tessera::kernels::testing {

// softmax(scale q k' + bias) v in double precision: q [B, Q, H, D], k and v [B, K, G, D], bias (or null)
// broadcastable to [B, H, Q, K]. A row with nothing to attend to gives zeros.
inline Expected attention_reference(const Array& q, const Array& k, const Array& v, const Array* bias,
                                    double scale, bool causal) {
  Expected e{std::vector<double>(q.values.size()), std::vector<double>(q.values.size())};
  std::int64_t queries = q.type.shape[1], heads = q.type.shape[2], d = q.type.shape[3],
               keys = k.type.shape[1], groups = k.type.shape[2];
  for (std::int64_t row = 0; row < q.type.shape[0] * queries * heads; ++row) {
    std::int64_t h = row % heads, i = row / heads % queries, b = row / (heads * queries);
    std::int64_t g = h / (heads / groups);  // the key-value head
    std::vector<double> s;
    for (std::int64_t j = 0; j < keys; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < d; ++c) dot += q[row * d + c] * k[((b * keys + j) * groups + g) * d + c];
      dot *= scale;
      if (bias) {
        const Shape& shape = bias->type.shape;
        auto at = [&](int axis, std::int64_t index) { return shape[axis] == 1 ? 0 : index; };
        dot += (*bias)[((at(0, b) * shape[1] + at(1, h)) * shape[2] + at(2, i)) * shape[3] + at(3, j)];
      }
      s.push_back(causal && j > i ? -INFINITY : dot);
    }
    double top = s.empty() ? -INFINITY : *std::ranges::max_element(s), sum = 0;
    if (top == -INFINITY) continue;  // nothing to attend to: zeros
    for (double& x : s) sum += x = std::exp(x - top);
    for (std::int64_t j = 0; j < keys; ++j) {
      for (std::int64_t c = 0; c < d; ++c) {
        double term = s[static_cast<std::size_t>(j)] / sum * v[((b * keys + j) * groups + g) * d + c];
        e.values[static_cast<std::size_t>(row * d + c)] += term;
        e.terms[static_cast<std::size_t>(row * d + c)] += std::abs(term);
      }
    }
  }
  return e;
}

}  // namespace tessera::kernels::testing
