#include "tessera/cli/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace tessera::cli {
namespace {

volatile std::sig_atomic_t caught = 0;

extern "C" void on_signal(int signal) { caught = signal; }

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup keeps its way
  }
}

void check_interrupt() {
  if (caught != 0) throw Interrupted();
}

int interrupt_status() { return 128 + static_cast<int>(caught); }

}  // namespace tessera::cli
