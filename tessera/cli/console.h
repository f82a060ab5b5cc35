#pragma once

#include <string>

// What the program says on standard error. Safe from several threads.
namespace tessera::cli::console {

// Sends the library's warnings here.
void connect_library_log();

// Of several processes that work together the first one speaks, and the others only of what ended them.
void speak_as_rank(int rank);
bool speaks_first();

void error(const std::string& message);    // "error: ..."
void warning(const std::string& message);  // "warning: ..."
void note(const std::string& message);

// A line that the next one replaces; nothing is shown unless standard error is a terminal.
void progress(const std::string& text);
void clear_progress();

// The message on one line.
std::string one_line(const std::string& text);

}  // namespace tessera::cli::console
