#include <atomic>
#include <thread>

#include "tests/pjrt/cpu_testing.h"

// The real CPU plugin: clients, programs, collectives.
namespace tessera::pjrt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(CpuClients, HaveTheDevicesThatWereAsked) {
  auto client = cpu_client();
  EXPECT_EQ(client->platform_name(), "cpu");
  ASSERT_EQ(client->devices().size(), 8u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(client->devices()[static_cast<std::size_t>(i)].id, i);
    EXPECT_EQ(client->devices()[static_cast<std::size_t>(i)].kind, "cpu");
    EXPECT_EQ(client->memory_stats(i).has_value(), client->traits().memory_stats);
  }
  EXPECT_FALSE(client->traits().concurrent_collectives);
  EXPECT_EQ(cpu_plugin()->create_client({{"cpu_device_count", std::int64_t{1}}})->devices().size(), 1u);
  EXPECT_THAT(error_of([] {
                cpu_plugin()->create_client({{"cpu_device_count", std::string("many")}});
              }),
              Not("none"));
}

TEST(CpuClients, AreOfOnePlugin) {
  EXPECT_EQ(cpu_plugin(), cpu_plugin());
  EXPECT_EQ(cpu_plugin()->version().major, 0);
  EXPECT_GE(cpu_plugin()->version().minor, 81);
  EXPECT_TRUE(cpu_plugin()->attributes().contains("xla_version"));
  EXPECT_TRUE(cpu_plugin()->has_extension(5)) << "XLA's foreign functions";
  EXPECT_FALSE(cpu_plugin()->has_extension(12345));
}

TEST(CpuPrograms, Add) {
  auto executable = cpu_client()->compile(kAdd);
  EXPECT_EQ(executable->num_outputs(), 1);
  std::vector<const Buffer*> arguments;
  auto a = upload({1, 2, 3, 4}), b = upload({10, 20, 30, 40});
  arguments = {a.get(), b.get()};
  Event done;
  auto results = executable->execute_one(arguments, {}, &done);
  done.await();
  ASSERT_EQ(results.size(), 1u);
  results[0]->ready_event().await();
  EXPECT_EQ(download(*results[0]), (std::vector<float>{11, 22, 33, 44}));
}

TEST(CpuPrograms, MayTakeAndGiveMany) {
  std::string text = "func.func @main(", types, values;
  for (int i = 0; i < 40; ++i) {
    std::string comma = i ? ", " : "";
    text += comma + "%a" + std::to_string(i) + ": tensor<f32>";
    types += comma + "tensor<f32>";
    values += comma + "%a" + std::to_string(39 - i);
  }
  auto executable =
      cpu_client()->compile(text + ") -> (" + types + ") { return " + values + " : " + types + " }");
  std::vector<BufferPtr> arguments;
  for (int i = 0; i < 40; ++i) arguments.push_back(upload<float>({static_cast<float>(i)}, DType::kF32, {}));
  auto results = run(*executable, arguments);
  ASSERT_EQ(results.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(download(*results[i])[0], static_cast<float>(39 - i));
}

TEST(CpuPrograms, RunOnTheDeviceTheyWereCompiledFor) {
  auto executable = cpu_client()->compile(kAdd, {.num_replicas = 1, .device_ids = {5}});
  EXPECT_EQ(download(*run(*executable, {upload({1, 2, 3, 4}, 5), upload({1, 1, 1, 1}, 5)})[0])[3], 5);
  EXPECT_THAT(error_of([&] {
                run(*executable, {upload({1, 2, 3, 4}, 0), upload({1, 1, 1, 1}, 5)});
              }),
              StartsWith("invalid argument: "));
}

TEST(CpuPrograms, ErrorsHaveLineAndColumnAndAreOneLine) {
  std::string error = error_of([] {
    cpu_client()->compile("module {\n func.func @main() -> tensor<f32> {\n  %0 = stablehlo.nonsense\n }\n}");
  });
  EXPECT_THAT(error, AllOf(HasSubstr("PJRT_Client_Compile"), HasSubstr(":3:8: error:"),
                           HasSubstr("stablehlo.nonsense")));
  EXPECT_THAT(error, Not(HasSubstr("\n")));
  for (const char* text : {"", "nonsense", "module {", "func.func @other() { return }", "\x01\xff"}) {
    EXPECT_THAT(error_of([&] { cpu_client()->compile(text); }), HasSubstr("PJRT_Client_Compile")) << text;
  }
}

TEST(CpuPrograms, RefuseWrongArguments) {
  auto executable = cpu_client()->compile(kAdd);
  auto a = upload({1, 2, 3, 4}), shorter = upload({1, 2}), elsewhere = upload({1, 2, 3, 4}, 1);
  for (const std::vector<BufferPtr>& wrong :
       {std::vector<BufferPtr>{}, {a}, {a, a, a}, {a, shorter}, {a, elsewhere}}) {
    EXPECT_THAT(error_of([&] { run(*executable, wrong); }),
                StartsWith("invalid argument: PJRT_LoadedExecutable_Execute: "));
  }
  std::vector<std::vector<const Buffer*>> two{{a.get(), a.get()}, {a.get(), a.get()}};
  EXPECT_THAT(error_of([&] { executable->execute(two); }), StartsWith("invalid argument: "));
  EXPECT_THAT(error_of([&] { executable->execute({}); }), StartsWith("invalid argument: "));
  EXPECT_EQ(download(*run(*executable, {a, a})[0])[0], 2);
}

// The plugin would log this error on the user's screen, besides returning it.
TEST(CpuPrograms, PrintNothing) {
  auto executable = cpu_client()->compile(kAdd);
  ::testing::internal::CaptureStderr();
  std::string error = error_of([&] { run(*executable, {}); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(error, StartsWith("invalid argument: "));
}

TEST(CpuPrograms, RefuseWrongOptions) {
  auto compile = [](CompileOptions options) {
    return error_of([&] { cpu_client()->compile(kAdd, options); });
  };
  // The plugin would end the process for the first two.
  EXPECT_EQ(compile({.num_replicas = 0, .device_ids = {}}),
            "invalid argument: compile: 0 replicas; at least 1 is needed");
  EXPECT_THAT(compile({.num_replicas = -1, .device_ids = {}}),
              StartsWith("invalid argument: compile: -1 replicas"));
  EXPECT_THAT(compile({.num_replicas = 9, .device_ids = {}}), Not("none"));
  EXPECT_EQ(compile({.num_replicas = 2, .device_ids = {1}}),
            "invalid argument: compile: 1 devices for 2 replicas");
  EXPECT_THAT(compile({.num_replicas = 1, .device_ids = {77}}),
              StartsWith("invalid argument: PJRT_Client_Compile"));
  EXPECT_THAT(compile({.num_replicas = 1, .device_ids = {-1}}), StartsWith("invalid argument: compile: "));
}

TEST(CpuPrograms, MayGiveWhatHasNoDtypeHere) {
  auto executable = cpu_client()->compile(R"(
    func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xcomplex<f32>> {
      %0 = stablehlo.complex %a, %b : tensor<4xcomplex<f32>>
      return %0 : tensor<4xcomplex<f32>>
    })");
  auto result = run(*executable, {upload({1, 2, 3, 4}), upload({1, 2, 3, 4})})[0];
  EXPECT_THAT(error_of([&] { result->dtype(); }), StartsWith("unimplemented: "));
  std::vector<std::byte> room(32);
  EXPECT_THAT(error_of([&] { result->copy_to_host(room); }), StartsWith("unimplemented: "));
}

constexpr const char* kDonating = R"(
func.func @main(%a: tensor<1024xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<1024xf32>) -> tensor<1024xf32> {
  %0 = stablehlo.add %a, %b : tensor<1024xf32>
  return %0 : tensor<1024xf32>
})";

TEST(CpuPrograms, DonateWhatTheyWereCompiledTo) {
  auto executable = cpu_client()->compile(kDonating);
  EXPECT_EQ(executable->memory_stats().alias, 4096);
  auto a = upload(std::vector<float>(1024, 1.f)), b = upload(std::vector<float>(1024, 2.f));
  auto result = run(*executable, {a, b})[0];
  EXPECT_TRUE(a->is_deleted());
  EXPECT_FALSE(b->is_deleted());
  EXPECT_EQ(download(*result)[1023], 3);
  EXPECT_THAT(error_of([&] { run(*executable, {a, b}); }), Not("none"));
  EXPECT_THAT(error_of([&] { download(*a); }), Not("none"));
}

TEST(CpuPrograms, DoNotDonateWhatMustStay) {
  auto executable = cpu_client()->compile(kDonating);
  auto a = upload(std::vector<float>(1024, 1.f)), b = upload(std::vector<float>(1024, 2.f));
  const std::vector<std::int64_t> kept{0};
  for (int i = 0; i < 3; ++i) {
    auto result = run(*executable, {a, b}, {.non_donatable = kept})[0];
    EXPECT_FALSE(a->is_deleted());
    EXPECT_EQ(download(*result)[1023], 3);
    EXPECT_EQ(download(*a)[1023], 1);
  }
}

TEST(CpuPrograms, TellTheirSizes) {
  CompiledMemoryStats stats = cpu_client()->compile(kAdd)->memory_stats();
  EXPECT_EQ(stats.arguments, 32);
  EXPECT_EQ(stats.outputs, 16);
  EXPECT_EQ(stats.alias, 0);
  // Two products need their results kept somewhere.
  stats = cpu_client()
              ->compile(R"(
    func.func @main(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {
      %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %1 = stablehlo.dot_general %0, %0, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      return %1 : tensor<64x64xf32>
    })")
              ->memory_stats();
  EXPECT_GE(stats.temp, 64 * 64 * 4);
}

TEST(CpuPrograms, CountFlopsOrSayThatTheyDoNot) {
  auto executable = cpu_client()->compile(kAdd);
  std::map<std::string, double> costs;
  std::string error = error_of([&] { costs = executable->cost_analysis(); });
  if (error == "none") {
    EXPECT_GE(costs.at("flops"), 4);
  } else {
    EXPECT_THAT(error, StartsWith("unimplemented: PJRT_Executable_GetCostAnalysis"));
  }
}

TEST(CpuPrograms, OutliveTheHandleOnTheirClient) {
  std::shared_ptr<Executable> executable;
  BufferPtr a;
  {
    auto client = cpu_plugin()->create_client();
    executable = client->compile(kAdd);
    const std::vector<float> values{1, 2, 3, 4};
    a = client->buffer_from_host(std::as_bytes(std::span(values)), DType::kF32, {4}, 0);
  }
  auto result = run(*executable, {a, a})[0];
  executable.reset();
  a.reset();
  EXPECT_EQ(download(*result)[3], 8);
}

TEST(CpuPrograms, MayBeRunFromSeveralThreads) {
  auto executable = cpu_client()->compile(kAdd);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto x = upload(std::vector<float>(4, 0.f)),
           step = upload(std::vector<float>(4, static_cast<float>(t)));
      for (int i = 0; i < 200; ++i) x = run(*executable, {x, step})[0];
      if (download(*x)[0] != static_cast<float>(200 * t)) ++wrong;
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(CpuSerialized, LoadsAgain) {
  std::string bytes = cpu_client()->compile(kAdd)->serialize();
  auto executable = cpu_client()->deserialize(bytes);
  EXPECT_EQ(executable->num_outputs(), 1);
  EXPECT_EQ(download(*run(*executable, {upload({1, 2, 3, 4}), upload({1, 1, 1, 1})})[0])[3], 5);
  EXPECT_EQ(executable->memory_stats().arguments, 32);
  // In another client too.
  auto other = cpu_plugin()->create_client();
  EXPECT_EQ(other->deserialize(bytes)->num_outputs(), 1);
}

TEST(CpuSerialized, RefusesWhatIsDamaged) {
  const std::string bytes = cpu_client()->compile(kAdd)->serialize();
  for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 23) {
    EXPECT_THAT(error_of([&] { cpu_client()->deserialize(std::string_view(bytes).substr(0, size)); }),
                HasSubstr("PJRT_Executable_DeserializeAndLoad"))
        << size;
  }
  EXPECT_THAT(
      error_of([&] { cpu_client()->deserialize(std::string_view(bytes).substr(0, bytes.size() - 1)); }),
      Not("none"));
  EXPECT_THAT(error_of([&] { cpu_client()->deserialize("nonsense"); }), Not("none"));
}

// Runs a program on all 8 devices and waits, as collectives on CPU need.
std::vector<BufferPtr> run_on_all(const Executable& executable, const std::vector<BufferPtr>& arguments) {
  std::vector<std::vector<const Buffer*>> lists;
  for (const BufferPtr& argument : arguments) lists.push_back({argument.get()});
  std::vector<Event> done;
  auto results = executable.execute(lists, {}, &done);
  EXPECT_EQ(done.size(), 8u);
  for (const Event& event : done) event.await();
  std::vector<BufferPtr> out;
  for (auto& list : results) out.push_back(std::move(list.at(0)));
  return out;
}

std::vector<BufferPtr> one_to_eight() {
  std::vector<BufferPtr> out;
  for (int d = 0; d < 8; ++d) out.push_back(upload(std::vector<float>(4, static_cast<float>(d + 1)), d));
  return out;
}

TEST(CpuCollectives, SumOverEightDevices) {
  for (bool assigned : {false, true}) {
    CompileOptions options{.num_replicas = 8, .device_ids = {}};
    if (assigned) options.device_ids = {0, 1, 2, 3, 4, 5, 6, 7};
    auto executable = cpu_client()->compile(kAllReduce, options);
    for (const BufferPtr& result : run_on_all(*executable, one_to_eight())) {
      EXPECT_EQ(download(*result), std::vector<float>(4, 36.f));
    }
  }
}

TEST(CpuCollectives, LoadAgainFromTheirSerialisedForm) {
  CompileOptions options{.num_replicas = 8, .device_ids = {}};
  std::string bytes = cpu_client()->compile(kAllReduce, options)->serialize();
  auto executable = cpu_client()->deserialize(bytes, options);
  EXPECT_EQ(download(*run_on_all(*executable, one_to_eight())[6])[0], 36);
}

TEST(CpuCollectives, ReplicasLieWhereTheyAreAssigned) {
  // Replica r is device 7 - r; each hands back which replica it is.
  auto executable = cpu_client()->compile(R"(
    module @m attributes {mhlo.num_replicas = 8 : i32} {
      func.func @main(%a: tensor<ui32>) -> tensor<ui32> {
        %0 = stablehlo.replica_id : tensor<ui32>
        %1 = stablehlo.add %0, %a : tensor<ui32>
        return %1 : tensor<ui32>
      }
    })",
                                          {.num_replicas = 8, .device_ids = {7, 6, 5, 4, 3, 2, 1, 0}});
  std::vector<BufferPtr> arguments;
  for (int r = 0; r < 8; ++r) arguments.push_back(upload<std::uint32_t>({100}, DType::kU32, {}, 7 - r));
  auto results = run_on_all(*executable, arguments);
  for (std::uint32_t r = 0; r < 8; ++r) EXPECT_EQ(download<std::uint32_t>(*results[r])[0], 100 + r);
}

// Waiting for each launch is what keeps collectives on CPU from meeting in the wrong order.
TEST(CpuCollectiveChains, TwoThousandLaunchesDoNotHang) {
  auto executable = cpu_client()->compile(R"(
    module @m attributes {mhlo.num_replicas = 8 : i32} {
      func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %0 = "stablehlo.all_reduce"(%a) ({
          ^bb0(%x: tensor<f32>, %y: tensor<f32>):
            %s = stablehlo.maximum %x, %y : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }) {replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}
          : (tensor<4xf32>) -> tensor<4xf32>
        %1 = stablehlo.constant dense<1.0> : tensor<4xf32>
        %2 = stablehlo.add %0, %1 : tensor<4xf32>
        return %2 : tensor<4xf32>
      }
    })",
                                          {.num_replicas = 8, .device_ids = {}});
  auto values = one_to_eight();
  for (int i = 0; i < 2000; ++i) values = run_on_all(*executable, values);
  for (const BufferPtr& value : values) EXPECT_EQ(download(*value)[0], 2008);
}

}  // namespace
}  // namespace tessera::pjrt
