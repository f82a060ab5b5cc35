#include "tests/testing/pipeline_parity.h"

// FLUX.1 against what Diffusers recorded, every tensor of every case.
namespace tessera::pipelines {
namespace {

TEST(FluxParity, SchnellInF32) {
  testing::check_parity(testing::compact_data(), "flux1-schnell", DType::kF32);
}
TEST(FluxParity, DevInF32) { testing::check_parity(testing::compact_data(), "flux1-dev", DType::kF32); }
TEST(FluxParity, SchnellInBf16) {
  testing::check_parity(testing::compact_data(), "flux1-schnell", DType::kBF16);
}
TEST(FluxParity, DevInBf16) { testing::check_parity(testing::compact_data(), "flux1-dev", DType::kBF16); }

class ReferenceFluxParity : public testing::WithReferenceData {};

TEST_F(ReferenceFluxParity, SchnellInF32) {
  testing::check_parity(testing::reference_data(), "flux1-schnell", DType::kF32);
}
TEST_F(ReferenceFluxParity, DevInF32) {
  testing::check_parity(testing::reference_data(), "flux1-dev", DType::kF32);
}
TEST_F(ReferenceFluxParity, SchnellInBf16) {
  testing::check_parity(testing::reference_data(), "flux1-schnell", DType::kBF16);
}
TEST_F(ReferenceFluxParity, DevInBf16) {
  testing::check_parity(testing::reference_data(), "flux1-dev", DType::kBF16);
}

}  // namespace
}  // namespace tessera::pipelines
