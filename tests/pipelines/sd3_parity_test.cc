#include "tests/testing/pipeline_parity.h"

// Stable Diffusion 3.5 against what Diffusers recorded, every tensor of every case.
namespace tessera::pipelines {
namespace {

TEST(Sd3Parity, MediumInF32) { testing::check_parity(testing::compact_data(), "sd35-medium", DType::kF32); }
TEST(Sd3Parity, LargeInF32) { testing::check_parity(testing::compact_data(), "sd35-large", DType::kF32); }
TEST(Sd3Parity, MediumInBf16) { testing::check_parity(testing::compact_data(), "sd35-medium", DType::kBF16); }
TEST(Sd3Parity, LargeInBf16) { testing::check_parity(testing::compact_data(), "sd35-large", DType::kBF16); }

class ReferenceSd3Parity : public testing::WithReferenceData {};

TEST_F(ReferenceSd3Parity, MediumInF32) {
  testing::check_parity(testing::reference_data(), "sd35-medium", DType::kF32);
}
TEST_F(ReferenceSd3Parity, LargeInF32) {
  testing::check_parity(testing::reference_data(), "sd35-large", DType::kF32);
}
TEST_F(ReferenceSd3Parity, MediumInBf16) {
  testing::check_parity(testing::reference_data(), "sd35-medium", DType::kBF16);
}
TEST_F(ReferenceSd3Parity, LargeInBf16) {
  testing::check_parity(testing::reference_data(), "sd35-large", DType::kBF16);
}

}  // namespace
}  // namespace tessera::pipelines
