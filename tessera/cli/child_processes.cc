#include "tessera/cli/child_processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "tessera/base/error.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

// From being asked to stop to being made to.
constexpr std::chrono::seconds kGrace{5};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// The environment of this process with the variables put in.
std::vector<std::string> environment_with(const comm::Variables& variables) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) out.push_back(std::move(text));
  }
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

class Family {
 public:
  Family() {
    sigemptyset(&watched_);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&watched_, signal);
    pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  }
  ~Family() {
    for (pid_t pid : running_) kill(-pid, SIGKILL);
    for (pid_t pid : running_) waitpid(pid, nullptr, 0);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  void start(ChildProcess child) {
    std::vector<std::string> environment = environment_with(child.variables);
    std::vector<char*> arguments = pointers(child.command), variables = pointers(environment);
    // A child that cannot become the program writes why.
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) throw_errno("a pipe cannot be made", errno);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) become(arguments.data(), variables.data(), parent, failure[1]);
    int error = errno;
    close(failure[1]);
    if (pid > 0) {
      running_.push_back(pid);
      error = 0;
      while (read(failure[0], &error, sizeof(error)) < 0 && errno == EINTR) {
      }
    }
    close(failure[0]);
    if (error != 0) throw_errno(child.command[0] + " cannot be started", error);
  }

  Ending wait() {
    while (!running_.empty()) {
      int signal = next_signal();
      if (signal == SIGCHLD) {
        reap();
      } else if (signal != 0) {
        ending_.asked = signal;
        ask(signal);
      } else if (deadline_ && Clock::now() >= *deadline_) {
        for (pid_t pid : running_) kill(-pid, SIGKILL);
        deadline_ = Clock::now() + kGrace;
      }
    }
    return ending_;
  }

 private:
  [[noreturn]] static void throw_errno(const std::string& what, int error) {
    fail(ErrorCode::kUnavailable, "{}: {}", what, std::strerror(error));
  }

  // In the child: only what is safe between fork and exec. A group of its own, so that a terminal's Ctrl-C
  // comes by way of the parent, once.
  [[noreturn]] void become(char* const* arguments, char* const* variables, pid_t parent, int failure) const {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    signal(SIGPIPE, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    execvpe(arguments[0], arguments, variables);
    int error = errno;
    [[maybe_unused]] ssize_t written = write(failure, &error, sizeof(error));
    _exit(127);
  }

  // The next that comes; 0 if none does for a while.
  int next_signal() const {
    constexpr timespec kWhile{.tv_sec = 0, .tv_nsec = 200'000'000};
    int signal = sigtimedwait(&watched_, nullptr, &kWhile);
    return signal > 0 ? signal : 0;
  }

  void ask(int signal) const {
    for (pid_t pid : running_) kill(pid, signal);
  }

  // Signals of one kind that come together are one, so all children are looked at.
  void reap() {
    std::vector<pid_t> left;
    for (pid_t pid : running_) {
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) == 0) {
        left.push_back(pid);
        continue;
      }
      int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (ending_.status == 0) ending_.status = code;
    }
    running_ = std::move(left);
    if (ending_.status == 0 || deadline_) return;
    ask(SIGTERM);
    deadline_ = Clock::now() + kGrace;
  }

  sigset_t watched_, before_;
  std::vector<pid_t> running_;
  Ending ending_;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace

Ending run_together(const std::vector<ChildProcess>& children) {
  Family family;
  for (const ChildProcess& child : children) family.start(child);
  return family.wait();
}

}  // namespace tessera::cli
