#include "ridge/cli/interrupt.h"

#include <csignal>

namespace ridge {
namespace {

// The one thing a signal handler may touch.
volatile std::sig_atomic_t noted = 0;

void note(int signal) { noted = signal; }

}  // namespace

void note_interrupts() {
  noted = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int interrupt_noted() { return noted; }

}  // namespace ridge
