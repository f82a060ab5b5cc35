#pragma once

#include <pjrt_c_api.h>

#include <map>
#include <string>
#include <vector>

// What a test sets and reads in the fake plugin, through the symbol "tessera_fake_plugin".
//
// How the library loads is chosen by the environment variable TESSERA_FAKE_PLUGIN: "null" (GetPjrtApi gives
// nothing), "major" (a major version that is not ours), "short" (a table without any function),
// "no_initialize" (a null PJRT_Plugin_Initialize), "fail_initialize", "signals" (ignores SIGTERM, SIGHUP and
// SIGUSR1 from then on). A plugin is loaded once a file: copy the file to load it again.
namespace tessera::pjrt::fake {

struct Control {
  PJRT_Api* api = nullptr;  // the live table: a test may shorten it or take functions out

  // Objects that were made and not destroyed, and what they are.
  std::map<const void*, std::string> live;
  // Calls with a struct_size that is not that of the header, or with what is not zeroed.
  int bad_arguments = 0;

  struct Faults {
    std::map<std::string, PJRT_Error_Code> calls;  // by function
    std::string message = "planned";
    bool error_without_message = false,
         error_without_code = false;                          // PJRT_Error_Message gives null, _GetCode fails
    PJRT_Error_Code event = static_cast<PJRT_Error_Code>(0);  // what new events carry
    bool hold_events = false;                                 // new events wait for fire_events
    bool no_done_event = false;
    std::size_t rank = 0;  // of every buffer, as the plugin tells it; 0 for the truth
  } faults;

  std::string unknown_setting;  // what its compiler refuses
  std::string platform = "cpu";
  std::size_t outputs = 1;

  // What the last call was given.
  PJRT_HostBufferSemantics semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  const void* host_data = nullptr;
  std::vector<std::int64_t> non_donatable;
  std::size_t devices = 0, arguments = 0;
  bool events_asked = false;
  std::string program, format, compile_options, topology_name;
  std::vector<std::string> options;  // of the client or topology, "name=value"

  void (*fire_events)() = nullptr;  // makes every event that is held ready
};

}  // namespace tessera::pjrt::fake
