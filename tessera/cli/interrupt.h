#pragma once

#include <exception>

namespace tessera::cli {

// The user asked the program to stop.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

// From here on the first SIGINT, SIGTERM or SIGHUP only asks for a stop, which check_interrupt() obeys;
// another one, more than half a second later, ends the program at once.
void catch_interrupts();
// From here on SIGINT, SIGTERM and SIGHUP end the program at once, with the line that an Interrupted gives
// and interrupt_status(): for work that cannot be stopped halfway and has written nothing yet.
// catch_interrupts() ends that.
void end_on_interrupts();
// Throws Interrupted if a stop was asked for.
void check_interrupt();
bool interrupt_asked();
// 128 and the number of the signal.
int interrupt_status();

}  // namespace tessera::cli
