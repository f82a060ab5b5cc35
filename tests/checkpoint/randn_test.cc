#include <gtest/gtest.h>

#include <map>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tests/testing/golden.h"

namespace tessera {
namespace {

using nlohmann::json;

void check(const std::filesystem::path& root) {
  std::ifstream in(root / "goldens" / "randn.json");
  json cases = json::parse(in);
  checkpoint::SafetensorsFile file(root / "goldens" / "randn.safetensors");
  std::map<std::string, Generator> sequences;  // draws of one generator, in order
  int checked = 0;
  for (const json& c : cases) {
    std::string key = c["key"];
    const checkpoint::TensorView* reference = file.find(key);
    ASSERT_NE(reference, nullptr) << key;
    Generator fresh(c["seed"].get<std::uint64_t>());
    bool continued = c.value("sequence", false);
    Generator& generator =
        continued ? sequences.try_emplace(key.substr(0, key.rfind('/')), fresh).first->second : fresh;
    std::vector<double> mine = generator.randn_f64(reference->shape.elements(), reference->dtype);
    std::vector<float> expected = testing::to_f32(*reference);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      // A narrow dtype may round the other way where f32 differs in its last digit.
      double ulp = reference->dtype == DType::kBF16 ? 0x1p-8 : reference->dtype == DType::kF16 ? 0x1p-10 : 0;
      double r = static_cast<double>(expected[i]);
      EXPECT_NEAR(mine[i], r, 1e-6 + ulp * std::abs(r)) << key << " element " << i;
    }
    ++checked;
  }
  EXPECT_GT(checked, 10);
}

TEST(Randn, IsTorchs) { check(testing::compact_data()); }
TEST(ReferenceRandn, IsTorchs) {
  if (!std::filesystem::exists(testing::reference_data()))
    GTEST_SKIP() << "the larger set is not beside the project";
  check(testing::reference_data());
}

TEST(Randn, RefusesWhatItCannotDraw) {
  EXPECT_THROW(Generator(1).randn(-1), Error);
  EXPECT_THROW(Generator(1).randn(4, DType::kI32), Error);
  EXPECT_TRUE(Generator(1).randn(0).empty());
}

}  // namespace
}  // namespace tessera
