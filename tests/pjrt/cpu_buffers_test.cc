#include <atomic>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "tessera/pjrt/api.h"
#include "tests/pjrt/cpu_testing.h"

// Arrays on the real CPU plugin.
namespace tessera::pjrt {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CpuBuffers, EveryDtypeComesBack) {
  constexpr DType kAll[] = {DType::kBool,   DType::kI4,  DType::kU4,   DType::kI8,  DType::kU8,
                            DType::kI16,    DType::kU16, DType::kI32,  DType::kU32, DType::kI64,
                            DType::kU64,    DType::kF16, DType::kBF16, DType::kF32, DType::kF8E4M3FN,
                            DType::kF8E5M2, DType::kF64};
  for (DType dtype : kAll) {
    SCOPED_TRACE(dtype_name(dtype));
    const Shape shape{3, 5, 7};
    // Small whole numbers in the low byte of each element: good values of every dtype.
    std::vector<std::byte> in(host_bytes(dtype, shape)), out(in.size());
    std::size_t width = in.size() / 105;
    int values = dtype == DType::kBool ? 2 : dtype == DType::kI4 ? 8 : 16;
    for (std::size_t i = 0; i < 105; ++i)
      in[i * width] = static_cast<std::byte>(i % static_cast<std::size_t>(values));
    auto buffer = cpu_client()->buffer_from_host(in, dtype, shape, 0);
    EXPECT_EQ(buffer->dtype(), dtype);
    EXPECT_EQ(buffer->shape(), shape);
    EXPECT_GE(buffer->size_on_device(), dtype_bytes(dtype, 105));
    EXPECT_FALSE(buffer->is_deleted());
    buffer->copy_to_host(out).await();
    EXPECT_EQ(in, out);
  }
}

TEST(CpuBuffers, MayBeEmpty) {
  auto negate = cpu_client()->compile(R"(
    func.func @main(%a: tensor<0x3xf32>) -> tensor<0x3xf32> {
      %0 = stablehlo.negate %a : tensor<0x3xf32>
      return %0 : tensor<0x3xf32>
    })");
  for (HostMemory memory : {HostMemory::kCopy, HostMemory::kZeroCopy}) {
    bool released = false;
    std::shared_ptr<const void> owner(&released, [](bool* flag) { *flag = true; });
    auto buffer = cpu_client()->buffer_from_host({}, DType::kF32, {0, 3}, 0, memory, std::move(owner));
    EXPECT_EQ(buffer->shape(), Shape({0, 3}));
    buffer->copy_to_host({}).await();
    auto result = run(*negate, {buffer})[0];
    EXPECT_EQ(result->shape(), Shape({0, 3}));
    result->ready_event().await();
    buffer.reset();
    for (int i = 0; i < 1000 && !released; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(released);
  }
}

TEST(CpuBuffers, AScalarHasNoExtents) {
  auto buffer = upload<float>({2.5f}, DType::kF32, {});
  EXPECT_EQ(buffer->shape(), Shape());
  EXPECT_EQ(download(*buffer), std::vector<float>{2.5f});
}

TEST(CpuBuffers, LieOnTheDeviceThatWasAsked) {
  for (int device : {0, 3, 7}) EXPECT_EQ(download(*upload({1, 2, 3, 4}, device))[3], 4);
}

TEST(CpuBuffers, RefuseWhatDoesNotFit) {
  std::vector<float> four(4);
  auto bytes = std::as_bytes(std::span(four));
  auto upload_as = [&](DType dtype, const Shape& shape, int device = 0) {
    return error_of([&] { cpu_client()->buffer_from_host(bytes, dtype, shape, device); });
  };
  EXPECT_EQ(upload_as(DType::kF32, {4}), "none");
  EXPECT_EQ(upload_as(DType::kF32, {5}), "invalid argument: an array f32[5] takes 20 bytes; 16 were given");
  EXPECT_EQ(upload_as(DType::kF32, {3}), "invalid argument: an array f32[3] takes 12 bytes; 16 were given");
  // Half a byte an element on the device; the plugin reads a byte each.
  EXPECT_EQ(upload_as(DType::kI4, {32}), "invalid argument: an array i4[32] takes 32 bytes; 16 were given");
  EXPECT_EQ(upload_as(DType::kI4, {16}), "none");
  for (int device : {-1, 8, 1000}) {
    EXPECT_THAT(upload_as(DType::kF32, {4}, device), StartsWith("invalid argument: there is no device"));
  }
  // 2^62 elements are a good shape, and more bytes than a number holds.
  std::int64_t most = std::int64_t{1} << 31;
  EXPECT_THAT(upload_as(DType::kF32, {most, most}), HasSubstr("larger than memory can be"));
  EXPECT_THAT(upload_as(DType::kU8, {most, most}), StartsWith("invalid argument: an array u8"));

  auto buffer = upload(four);
  std::vector<std::byte> room(20);
  for (std::size_t size : {0, 15, 17, 20}) {
    EXPECT_THAT(error_of([&] { buffer->copy_to_host(std::span(room).first(size)); }),
                StartsWith("invalid argument: copy_to_host: "));
  }
}

TEST(CpuBuffers, ComeBackDenseFromAnotherLayout) {
  auto executable = cpu_client()->compile(R"(
    func.func @main(%a: tensor<2x3xf32>) -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
      %0 = stablehlo.add %a, %a : tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    })");
  auto result = run(*executable, {upload<float>({1, 2, 3, 4, 5, 6}, DType::kF32, {2, 3})})[0];
  // It does lie column by column.
  const Api& api = *cpu_client()->api();
  auto args = make_args<PJRT_Buffer_GetMemoryLayout_Args>(PJRT_Buffer_GetMemoryLayout_Args_STRUCT_SIZE);
  args.buffer = static_cast<PJRT_Buffer*>(result->handle());
  TESSERA_PJRT(api, PJRT_Buffer_GetMemoryLayout, args);
  ASSERT_EQ(args.layout.type, PJRT_Buffer_MemoryLayout_Type_Tiled);
  ASSERT_EQ(args.layout.tiled.minor_to_major_size, 2u);
  ASSERT_EQ(args.layout.tiled.minor_to_major[0], 0);
  EXPECT_EQ(download(*result), (std::vector<float>{2, 4, 6, 8, 10, 12}));
}

// Host memory, aligned as asked, that counts its releases and spoils itself when it is released.
class HostFloats {
 public:
  explicit HostFloats(std::size_t count, std::size_t skip = 0)
      : memory_(static_cast<float*>(std::aligned_alloc(64, (count / 16 + 2) * 64)), std::free),
        values_(memory_.get() + skip, count),
        released_(std::make_shared<std::atomic<int>>(0)) {}
  std::span<float> values() const { return values_; }
  std::shared_ptr<const void> owner() const {
    return {values_.data(), [memory = memory_, values = values_, released = released_](const void*) {
              for (float& value : values) value = NAN;
              ++*released;
            }};
  }
  int released() const { return *released_; }
  int released_soon() const {
    for (int i = 0; i < 5000 && *released_ == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return *released_;
  }
  BufferPtr upload(const Shape& shape) const {
    return cpu_client()->buffer_from_host(std::as_bytes(values_), DType::kF32, shape, 0,
                                          HostMemory::kZeroCopy, owner());
  }

 private:
  std::shared_ptr<float> memory_;
  std::span<float> values_;
  std::shared_ptr<std::atomic<int>> released_;
};

std::uintptr_t address(const Buffer& buffer) {
  auto args = make_args<PJRT_Buffer_UnsafePointer_Args>(PJRT_Buffer_UnsafePointer_Args_STRUCT_SIZE);
  args.buffer = static_cast<PJRT_Buffer*>(buffer.handle());
  TESSERA_PJRT(*cpu_client()->api(), PJRT_Buffer_UnsafePointer, args);
  return args.buffer_pointer;
}

TEST(CpuZeroCopy, UsesAlignedMemoryInPlace) {
  ASSERT_TRUE(cpu_client()->traits().zero_copy);
  HostFloats host(1000);
  std::iota(host.values().begin(), host.values().end(), 0.f);
  auto buffer = host.upload({1000});
  EXPECT_EQ(address(*buffer), reinterpret_cast<std::uintptr_t>(host.values().data()));
  EXPECT_EQ(download(*buffer)[999], 999);
  EXPECT_EQ(host.released(), 0);
  buffer.reset();
  EXPECT_EQ(host.released_soon(), 1);
}

TEST(CpuZeroCopy, CopiesOtherMemory) {
  for (std::size_t skip : {1, 2, 4, 8, 15}) {
    HostFloats host(1000, skip);
    std::iota(host.values().begin(), host.values().end(), 0.f);
    auto buffer = host.upload({1000});
    EXPECT_EQ(host.released_soon(), 1);  // and is spoilt
    EXPECT_EQ(download(*buffer)[999], 999);
    buffer.reset();
    EXPECT_EQ(host.released(), 1);
  }
}

TEST(CpuZeroCopy, ACopyLetsGoAtOnce) {
  HostFloats host(1000);
  std::iota(host.values().begin(), host.values().end(), 0.f);
  auto buffer = cpu_client()->buffer_from_host(std::as_bytes(host.values()), DType::kF32, {1000}, 0,
                                               HostMemory::kCopy, host.owner());
  EXPECT_EQ(host.released(), 1);
  EXPECT_EQ(download(*buffer)[999], 999);
}

// The buffer is gone while programs that read it still run.
TEST(CpuZeroCopy, MemoryLivesUntilProgramsHaveRun) {
  constexpr std::int64_t kWidth = 512;
  auto multiply = cpu_client()->compile(R"(
    func.func @main(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>) -> tensor<512x512xf32> {
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
      return %0 : tensor<512x512xf32>
    })");
  HostFloats host(kWidth * kWidth);
  std::ranges::fill(host.values(), 1.f / kWidth);
  auto x = upload(std::vector<float>(kWidth * kWidth, 1.f), DType::kF32, {kWidth, kWidth});
  {
    auto weight = host.upload({kWidth, kWidth});
    for (int i = 0; i < 50; ++i) x = run(*multiply, {x, weight})[0];
  }
  for (float value : download(*x)) ASSERT_NEAR(value, 1.f, 1e-3f);
  EXPECT_EQ(host.released_soon(), 1);
}

TEST(CpuZeroCopy, ManyBuffersOverOneBlock) {
  HostFloats host(64 * 16);
  std::iota(host.values().begin(), host.values().end(), 0.f);
  std::shared_ptr<const void> owner = host.owner();
  std::vector<BufferPtr> buffers;
  for (std::size_t i = 0; i < 64; ++i) {
    buffers.push_back(cpu_client()->buffer_from_host(std::as_bytes(host.values().subspan(i * 16, 16)),
                                                     DType::kF32, {16}, static_cast<int>(i % 8),
                                                     HostMemory::kZeroCopy, owner));
  }
  owner.reset();
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(download(*buffers[i])[3], static_cast<float>(i * 16 + 3));
  buffers.resize(1);
  EXPECT_EQ(host.released(), 0);
  buffers.clear();
  EXPECT_EQ(host.released_soon(), 1);
}

TEST(CpuBuffers, ManyDownloadsMayBeUnderWay) {
  std::vector<BufferPtr> buffers;
  std::vector<std::vector<float>> out(100, std::vector<float>(4096));
  std::vector<Event> events;
  for (int i = 0; i < 100; ++i) {
    buffers.push_back(upload(std::vector<float>(4096, static_cast<float>(i)), i % 8));
    events.push_back(
        buffers.back()->copy_to_host(std::as_writable_bytes(std::span(out[static_cast<std::size_t>(i)]))));
  }
  buffers.clear();  // the copies go on
  for (int i = 0; i < 100; ++i) {
    events[static_cast<std::size_t>(i)].await();
    EXPECT_TRUE(events[static_cast<std::size_t>(i)].ready());
    EXPECT_EQ(out[static_cast<std::size_t>(i)][4095], static_cast<float>(i));
  }
}

}  // namespace
}  // namespace tessera::pjrt
