#include <set>

#include "tests/pjrt/fake_testing.h"

// Every fault that a plugin can have gives an Error and leaves nothing behind.
namespace tessera::pjrt {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

#define FUNCTION(name) \
  Function { #name, offsetof(PJRT_Api, name) }
struct Function {
  std::string name;
  std::size_t offset;
};

// What the PJRT room calls once a plugin is loaded, but for the functions that read errors.
const std::vector<Function>& functions() {
  static const std::vector<Function> list{
      FUNCTION(PJRT_Plugin_Attributes),
      FUNCTION(PJRT_Event_Destroy),
      FUNCTION(PJRT_Event_IsReady),
      FUNCTION(PJRT_Event_Await),
      FUNCTION(PJRT_Event_OnReady),
      FUNCTION(PJRT_Client_Create),
      FUNCTION(PJRT_Client_Destroy),
      FUNCTION(PJRT_Client_PlatformName),
      FUNCTION(PJRT_Client_PlatformVersion),
      FUNCTION(PJRT_Client_AddressableDevices),
      FUNCTION(PJRT_Client_Compile),
      FUNCTION(PJRT_Client_BufferFromHostBuffer),
      FUNCTION(PJRT_DeviceDescription_Id),
      FUNCTION(PJRT_DeviceDescription_Attributes),
      FUNCTION(PJRT_DeviceDescription_Kind),
      FUNCTION(PJRT_DeviceDescription_ToString),
      FUNCTION(PJRT_Device_GetDescription),
      FUNCTION(PJRT_Device_MemoryStats),
      FUNCTION(PJRT_Executable_Destroy),
      FUNCTION(PJRT_Executable_NumOutputs),
      FUNCTION(PJRT_Executable_GetCostAnalysis),
      FUNCTION(PJRT_Executable_Serialize),
      FUNCTION(PJRT_LoadedExecutable_Destroy),
      FUNCTION(PJRT_LoadedExecutable_GetExecutable),
      FUNCTION(PJRT_LoadedExecutable_Execute),
      FUNCTION(PJRT_Executable_DeserializeAndLoad),
      FUNCTION(PJRT_Buffer_Destroy),
      FUNCTION(PJRT_Buffer_ElementType),
      FUNCTION(PJRT_Buffer_Dimensions),
      FUNCTION(PJRT_Buffer_OnDeviceSizeInBytes),
      FUNCTION(PJRT_Buffer_IsDeleted),
      FUNCTION(PJRT_Buffer_ToHostBuffer),
      FUNCTION(PJRT_Buffer_ReadyEvent),
      FUNCTION(PJRT_TopologyDescription_Create),
      FUNCTION(PJRT_TopologyDescription_Destroy),
      FUNCTION(PJRT_TopologyDescription_PlatformName),
      FUNCTION(PJRT_TopologyDescription_GetDeviceDescriptions),
      FUNCTION(PJRT_Compile),
      FUNCTION(PJRT_Executable_GetCompiledMemoryStats),
  };
  return list;
}

// What a plugin may leave out.
const std::set<std::string> kOptional{"PJRT_Event_OnReady",
                                      "PJRT_Client_PlatformVersion",
                                      "PJRT_DeviceDescription_Attributes",
                                      "PJRT_DeviceDescription_ToString",
                                      "PJRT_Device_MemoryStats",
                                      "PJRT_Buffer_OnDeviceSizeInBytes"};
// Whose failure is taken for "the plugin does not say".
const std::set<std::string> kMayFail{"PJRT_Device_MemoryStats", "PJRT_Buffer_OnDeviceSizeInBytes"};

bool destroys(const std::string& function) { return function.ends_with("_Destroy"); }

// Calls everything that the room offers.
void use_everything(const Plugin& plugin, const Released& memory) {
  plugin.attributes();
  auto client = plugin.create_client({{"number", std::int64_t{1}}});
  client->memory_stats(0);
  auto buffer = client->buffer_from_host(memory.bytes(), DType::kF32, {2, 2}, 0);
  auto aligned =
      client->buffer_from_host(memory.bytes(), DType::kF32, {2, 2}, 0, HostMemory::kZeroCopy, memory.owner());
  auto unaligned = client->buffer_from_host(memory.bytes(1), DType::kF32, {2, 2}, 1, HostMemory::kZeroCopy,
                                            memory.owner());
  buffer->size_on_device();
  buffer->is_deleted();
  Event ready = buffer->ready_event();
  ready.ready();
  ready.await();
  std::array<std::byte, 16> out;
  buffer->copy_to_host(out).await();
  auto executable = client->compile("text");
  std::vector<const Buffer*> arguments{buffer.get(), aligned.get()};
  Event done;
  executable->execute_one(arguments, {}, &done);
  done.await();
  std::vector<Event> all_done;
  executable->execute(std::vector{arguments, arguments}, {}, &all_done);
  executable->memory_stats();
  executable->cost_analysis();
  client->deserialize(executable->serialize());
  plugin.topology("name")->compile("text");
}

class PluginFaults : public Fake {
 protected:
  std::string use() {
    Released memory;
    std::string error = error_of([&] { use_everything(*plugin_, memory); });
    released_ = *memory.count;
    return error;
  }
  int released_ = 0;
};

TEST_F(PluginFaults, NoneInAWholePlugin) {
  EXPECT_EQ(use(), "none");
  EXPECT_EQ(released_, 2);
}

TEST_F(PluginFaults, AFunctionThatIsMissing) {
  for (const Function& function : functions()) {
    SCOPED_TRACE(function.name);
    std::memset(reinterpret_cast<char*>(control_.api) + function.offset, 0, sizeof(void*));
    std::string error = use();
    if (kOptional.contains(function.name) || destroys(function.name)) {
      EXPECT_EQ(error, "none");
    } else {
      EXPECT_THAT(error, StartsWith(std::string("unimplemented: the plugin ") + TESSERA_FAKE_PLUGIN +
                                    " has no " + function.name + ":"));
    }
    if (!destroys(function.name)) {
      EXPECT_EQ(live(), "");
    }
    restore();
  }
}

TEST_F(PluginFaults, ATableThatEndsEarly) {
  std::size_t refused = 0;
  for (const Function& function : functions()) {
    SCOPED_TRACE(function.name);
    // A byte short of the function: what lies behind must not be touched.
    control_.api->struct_size = function.offset + sizeof(void*) - 1;
    std::string error = use();
    if (error != "none") {
      EXPECT_THAT(error, AllOf(StartsWith("unimplemented: "), HasSubstr(" has no PJRT_")));
      ++refused;
    }
    restore();
  }
  // The last of them is needed, so no shorter table will do.
  EXPECT_EQ(refused, functions().size());
}

TEST_F(PluginFaults, ACallThatFails) {
  for (const Function& function : functions()) {
    SCOPED_TRACE(function.name);
    control_.faults.calls[function.name] = PJRT_Error_Code_INTERNAL;
    std::string error = use();
    if (kMayFail.contains(function.name) || destroys(function.name)) {
      EXPECT_EQ(error, "none");
    } else {
      EXPECT_EQ(error, "internal: " + function.name + ": planned");
    }
    EXPECT_EQ(live(), "");
    control_.faults.calls.clear();
    restore();
  }
}

TEST_F(PluginFaults, EveryCodeIsTranslated) {
  auto client = plugin_->create_client();
  const std::vector<std::pair<int, std::string>> codes{
      {1, "internal"},    {2, "internal"},         {3, "invalid argument"},  {4, "unavailable"},
      {5, "not found"},   {6, "invalid argument"}, {7, "unavailable"},       {8, "out of memory"},
      {9, "unavailable"}, {10, "internal"},        {11, "invalid argument"}, {12, "unimplemented"},
      {13, "internal"},   {14, "unavailable"},     {15, "data loss"},        {16, "unavailable"},
      {30, "internal"}};
  for (const auto& [code, name] : codes) {
    control_.faults.calls["PJRT_Client_Compile"] = static_cast<PJRT_Error_Code>(code);
    EXPECT_EQ(error_of([&] { client->compile("text"); }), name + ": PJRT_Client_Compile: planned") << code;
    EXPECT_EQ(live(), "client ");
  }
}

// Another version of a compiler may not know a setting: the program is compiled without.
TEST_F(PluginFaults, SettingsThatTheCompilerDoesNotKnow) {
  auto client = plugin_->create_client();
  auto topology = plugin_->topology("name");
  CompileOptions options, plain;
  options.set_for_platform("tpu");
  ASSERT_EQ(options.settings.size(), 1u);
  std::string setting = options.settings.begin()->first;
  client->compile("text", options);
  EXPECT_EQ(control_.compile_options, options.serialize());
  EXPECT_THAT(control_.compile_options, HasSubstr(setting));
  control_.unknown_setting = setting;
  client->compile("text", options);
  EXPECT_EQ(control_.compile_options, plain.serialize());
  control_.compile_options.clear();
  topology->compile("text", options);
  EXPECT_EQ(control_.compile_options, plain.serialize());
  // Other faults are reported at once.
  control_.faults.calls["PJRT_Client_Compile"] = PJRT_Error_Code_INTERNAL;
  EXPECT_EQ(error_of([&] { client->compile("text", options); }), "internal: PJRT_Client_Compile: planned");
  CompileOptions elsewhere;
  elsewhere.set_for_platform("cpu");
  EXPECT_TRUE(elsewhere.settings.empty());
}

TEST_F(PluginFaults, AMessageIsOneLine) {
  auto client = plugin_->create_client();
  control_.faults.calls["PJRT_Client_Compile"] = PJRT_Error_Code_INTERNAL;
  auto message_for = [&](std::string message) {
    control_.faults.message = std::move(message);
    return error_of([&] { client->compile("text"); });
  };
  EXPECT_EQ(message_for("-:3:8: error: first\n\t\n  second \r\nthird\n\n"),
            "internal: PJRT_Client_Compile: -:3:8: error: first; second; third");
  EXPECT_EQ(message_for(""), "internal: PJRT_Client_Compile: ");
  control_.faults.error_without_message = true;
  EXPECT_EQ(message_for("x"), "internal: PJRT_Client_Compile: no message");
  control_.faults.error_without_code = true;
  control_.faults.calls["PJRT_Client_Compile"] = PJRT_Error_Code_NOT_FOUND;
  EXPECT_EQ(message_for("x"), "internal: PJRT_Client_Compile: no message");
  // A plugin that cannot even read its errors.
  control_.api->PJRT_Error_Message = nullptr;
  control_.api->PJRT_Error_GetCode = nullptr;
  EXPECT_EQ(message_for("x"), "internal: PJRT_Client_Compile: no message");
}

TEST_F(PluginFaults, EventsThatCarryErrors) {
  auto client = plugin_->create_client();
  Released memory;
  auto buffer = client->buffer_from_host(memory.bytes(), DType::kF32, {4}, 0);
  control_.faults.event = PJRT_Error_Code_RESOURCE_EXHAUSTED;
  std::array<std::byte, 16> out;
  Event copied = buffer->copy_to_host(out);
  EXPECT_TRUE(copied.ready());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of([&] { copied.await(); }), "out of memory: PJRT_Event_Await: the event's error");
  }
  EXPECT_THAT(error_of([&] { buffer->ready_event().await(); }), StartsWith("out of memory: "));
  // An upload that fails lets go of the memory.
  client->buffer_from_host(memory.bytes(1), DType::kF32, {4}, 0, HostMemory::kZeroCopy, memory.owner());
  EXPECT_EQ(*memory.count, 1);
}

class Events : public Fake {};

TEST_F(Events, AreReadyWhenTheyFire) {
  EXPECT_TRUE(Event().ready());
  Event().await();
  auto client = plugin_->create_client();
  Released memory;
  auto buffer = client->buffer_from_host(memory.bytes(), DType::kF32, {4}, 0);
  control_.faults.hold_events = true;
  Event event = buffer->ready_event();
  EXPECT_FALSE(event.ready());
  control_.fire_events();
  EXPECT_TRUE(event.ready());
  event.await();
}

TEST_F(Events, Move) {
  auto client = plugin_->create_client();
  Released memory;
  auto buffer = client->buffer_from_host(memory.bytes(), DType::kF32, {4}, 0);
  control_.faults.hold_events = true;
  Event first = buffer->ready_event();
  Event second = std::move(first);
  EXPECT_TRUE(first.ready());
  EXPECT_FALSE(second.ready());
  second = buffer->ready_event();  // the first is not needed any more
  EXPECT_FALSE(second.ready());
  Event& same = second;
  second = std::move(same);
  EXPECT_FALSE(second.ready());
}

TEST_F(Events, OfAClientOutliveIt) {
  Event event;
  {
    auto client = plugin_->create_client();
    Released memory;
    event = client->buffer_from_host(memory.bytes(), DType::kF32, {4}, 0)->ready_event();
  }
  event.await();
}

// Whether host memory is used in place, copied later or copied at once, and for how long it is held.
class HostMemoryOf : public Fake {
 protected:
  HostMemoryOf() : client_(plugin_->create_client()) {}
  BufferPtr upload(HostMemory memory, std::size_t skip = 0) {
    return client_->buffer_from_host(memory_.bytes(skip), DType::kF32, {4}, 0, memory, memory_.owner());
  }
  std::shared_ptr<const Client> client_;
  Released memory_;
};

TEST_F(HostMemoryOf, ACopyIsNotHeld) {
  control_.faults.hold_events = true;
  auto buffer = upload(HostMemory::kCopy);
  EXPECT_EQ(control_.semantics, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
  EXPECT_EQ(*memory_.count, 1);
}

TEST_F(HostMemoryOf, MemoryInPlaceIsHeldUntilNothingReadsIt) {
  control_.faults.hold_events = true;
  auto buffer = upload(HostMemory::kZeroCopy);
  EXPECT_EQ(control_.semantics, PJRT_HostBufferSemantics_kImmutableZeroCopy);
  EXPECT_EQ(control_.host_data, memory_.block.get());
  EXPECT_EQ(*memory_.count, 0);
  buffer.reset();  // what was launched on it goes on
  EXPECT_EQ(*memory_.count, 0);
  control_.fire_events();
  EXPECT_EQ(*memory_.count, 1);
}

TEST_F(HostMemoryOf, UnalignedMemoryIsHeldUntilItIsCopied) {
  control_.faults.hold_events = true;
  auto buffer = upload(HostMemory::kZeroCopy, 1);
  EXPECT_EQ(control_.semantics, PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes);
  EXPECT_EQ(*memory_.count, 0);
  control_.fire_events();
  EXPECT_EQ(*memory_.count, 1);
  buffer.reset();
  EXPECT_EQ(*memory_.count, 1);
}

TEST_F(HostMemoryOf, APlatformThatMustCopy) {
  control_.platform = "tpu";
  client_ = plugin_->create_client();
  auto buffer = upload(HostMemory::kZeroCopy);
  EXPECT_EQ(control_.semantics, PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes);
  EXPECT_EQ(*memory_.count, 1);
}

TEST_F(HostMemoryOf, NobodyIsCopied) {
  client_->buffer_from_host(memory_.bytes(), DType::kF32, {4}, 0, HostMemory::kZeroCopy);
  EXPECT_EQ(control_.semantics, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
}

TEST_F(HostMemoryOf, WithoutCallbacksIsWaitedFor) {
  control_.api->PJRT_Event_OnReady = nullptr;
  auto buffer = upload(HostMemory::kZeroCopy);  // never in place: that wait would not end
  EXPECT_EQ(control_.semantics, PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes);
  EXPECT_EQ(*memory_.count, 1);
  // A transfer that fails.
  control_.faults.event = PJRT_Error_Code_DATA_LOSS;
  EXPECT_THAT(error_of([&] { upload(HostMemory::kZeroCopy); }), StartsWith("data loss: "));
  EXPECT_EQ(*memory_.count, 2);
}

TEST_F(HostMemoryOf, ACallbackThatIsRefused) {
  control_.faults.calls["PJRT_Event_OnReady"] = PJRT_Error_Code_INTERNAL;
  for (std::size_t skip : {0, 1}) {
    EXPECT_EQ(error_of([&] { upload(HostMemory::kZeroCopy, skip); }),
              "internal: PJRT_Event_OnReady: planned");
    EXPECT_EQ(live(), "client ");
  }
  EXPECT_EQ(*memory_.count, 2);
}

TEST_F(HostMemoryOf, NoEventMeansDone) {
  control_.faults.no_done_event = true;
  auto buffer = upload(HostMemory::kZeroCopy, 1);
  EXPECT_EQ(*memory_.count, 1);
}

TEST_F(HostMemoryOf, AnUploadThatFails) {
  control_.faults.calls["PJRT_Client_BufferFromHostBuffer"] = PJRT_Error_Code_RESOURCE_EXHAUSTED;
  EXPECT_EQ(error_of([&] { upload(HostMemory::kZeroCopy); }),
            "out of memory: PJRT_Client_BufferFromHostBuffer: planned");
  EXPECT_EQ(*memory_.count, 1);
}

class Calls : public Fake {
 protected:
  Calls() : client_(plugin_->create_client()) {
    for (int i = 0; i < 40; ++i) {
      memory_.block->values[0] = static_cast<float>(i);
      buffers_.push_back(client_->buffer_from_host(memory_.bytes(), DType::kF32, {4}, 0));
      arguments_.push_back(buffers_.back().get());
    }
  }
  static float first(const Buffer& buffer) {
    std::array<float, 4> values{};
    buffer.copy_to_host(std::as_writable_bytes(std::span(values))).await();
    return values[0];
  }
  std::shared_ptr<const Client> client_;
  Released memory_;
  std::vector<BufferPtr> buffers_;
  std::vector<const Buffer*> arguments_;
};

TEST_F(Calls, OfFewAndManyArgumentsAndResults) {
  for (std::size_t arguments : {1, 3, 16, 17, 40}) {
    for (std::size_t outputs : {0, 1, 16, 17, 40}) {
      control_.outputs = outputs;
      auto executable = client_->compile("text");
      EXPECT_EQ(executable->num_outputs(), static_cast<int>(outputs));
      auto results = executable->execute_one(std::span(arguments_).first(arguments));
      EXPECT_EQ(control_.arguments, arguments);
      EXPECT_EQ(control_.devices, 1u);
      ASSERT_EQ(results.size(), outputs);
      for (std::size_t i = 0; i < outputs; ++i)
        EXPECT_EQ(first(*results[i]), static_cast<float>(i % arguments));
    }
  }
}

TEST_F(Calls, OnSeveralDevices) {
  control_.outputs = 3;
  auto executable = client_->compile("text", {.num_replicas = 2, .device_ids = {10, 11}});
  std::vector<std::vector<const Buffer*>> lists{{arguments_[1], arguments_[2]},
                                                {arguments_[3], arguments_[4]}};
  std::vector<Event> done;
  auto results = executable->execute(lists, {}, &done);
  EXPECT_EQ(control_.devices, 2u);
  EXPECT_EQ(control_.arguments, 2u);
  ASSERT_EQ(done.size(), 2u);
  for (const Event& event : done) event.await();
  std::vector<float> values;
  for (const auto& list : results) {
    for (const BufferPtr& buffer : list) values.push_back(first(*buffer));
  }
  EXPECT_EQ(values, (std::vector<float>{1, 2, 1, 3, 4, 3}));
  lists[1].pop_back();
  EXPECT_THAT(error_of([&] { executable->execute(lists); }), StartsWith("invalid argument: "));
}

TEST_F(Calls, AskForEventsOnlyIfWanted) {
  auto executable = client_->compile("text");
  std::span<const Buffer* const> one = std::span(arguments_).first(1);
  executable->execute_one(one);
  EXPECT_FALSE(control_.events_asked);
  Event done;
  executable->execute_one(one, {}, &done);
  EXPECT_TRUE(control_.events_asked);
  std::vector<std::vector<const Buffer*>> lists{{arguments_[0]}};
  executable->execute(lists);
  EXPECT_FALSE(control_.events_asked);
}

TEST_F(Calls, PassWhatMustNotBeDonated) {
  auto executable = client_->compile("text");
  std::vector<std::int64_t> kept{0, 2};
  executable->execute_one(std::span(arguments_).first(3), {.non_donatable = kept});
  EXPECT_EQ(control_.non_donatable, kept);
  std::vector<std::vector<const Buffer*>> lists{{arguments_[0]}};
  executable->execute(lists, {.non_donatable = std::span(kept).first(1)});
  EXPECT_EQ(control_.non_donatable, std::vector<std::int64_t>{0});
  executable->execute_one(std::span(arguments_).first(3));
  EXPECT_TRUE(control_.non_donatable.empty());
}

TEST_F(Calls, TellSizesAndCosts) {
  auto executable = client_->compile("text");
  CompiledMemoryStats stats = executable->memory_stats();
  EXPECT_EQ(stats.code, 1);
  EXPECT_EQ(stats.arguments, 2);
  EXPECT_EQ(stats.outputs, 3);
  EXPECT_EQ(stats.alias, 4);
  EXPECT_EQ(stats.temp, 5);
  EXPECT_EQ(executable->cost_analysis(), (std::map<std::string, double>{{"flops", 1e6}, {"calls", 3}}));
  client_->deserialize(executable->serialize());
  EXPECT_EQ(control_.program, std::string("bytes\0more", 10));
}

TEST_F(Calls, CountDenseBytesWhereThePluginDoesNot) {
  EXPECT_EQ(buffers_[0]->size_on_device(), 16 + 512);
  control_.api->PJRT_Buffer_OnDeviceSizeInBytes = nullptr;
  EXPECT_EQ(buffers_[0]->size_on_device(), 16);
}

TEST_F(Calls, RefuseARankThatTensorsDoNotHave) {
  control_.faults.rank = 9;
  EXPECT_THAT(error_of([&] { buffers_[0]->shape(); }), StartsWith("invalid argument: "));
  std::array<std::byte, 16> out;
  EXPECT_THAT(error_of([&] { buffers_[0]->copy_to_host(out); }), StartsWith("invalid argument: "));
}

}  // namespace
}  // namespace tessera::pjrt
