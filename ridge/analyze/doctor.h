#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/gpu/vendor/nvml.h"

namespace ridge {

// What a program finds on a machine: facts, without a judgment.
struct MachineFacts {
  // A library that is opened at run time, or would be by a build with GPU code.
  struct Library {
    std::string name;          // "cuBLASLt"
    std::string purpose;       // "matrix products"
    std::string without;       // what happens where it is not, if that is worth a word
    std::string package;       // that brings it
    int built_with = 0;        // its version, as 130001 for 13.0.1; 0 in a build without GPU code
    std::optional<int> found;  // the same; empty if it cannot be opened
    std::string error;         // why it cannot
  };
  struct Card {
    gpu::CardInfo info;
    CardState state;
  };

  std::string system;                               // "Linux 6.1.0 x86_64"
  std::string cpu;                                  // "AMD EPYC 9B14"
  int threads = 0;                                  // processors this process may run on
  std::set<std::string, std::less<>> cpu_features;  // as /proc/cpuinfo names them
  std::string kernels;          // the instruction set of the CPU kernels it will run, "avx512+bf16"
  std::string kernels_refused;  // why it can run none, and what to do; empty if it can
  std::uint64_t memory_total = 0, memory_available = 0;  // bytes, limits of containers included
  std::string directory;                                 // the working directory
  std::uint64_t disk_available = 0;                      // bytes
  bool directory_writable = false;
  // How many processors other programs keep busy; none if it was not watched (watch_others()).
  std::optional<double> busy_processors_of_others;
  std::string counters_refused;  // by the processor or the system, and why; empty if they count

  std::string hip_build;    // what the GPU code is for, "gfx90a", if it is for HIP; else empty
  bool hip_card = false;    // HIP shows a card, in such a build
  bool cuda_build = false;  // there is GPU code for CUDA in this program
  int cuda_built_with = 0;  // of the runtime, as 13000 for 13.0
  std::vector<std::pair<int, int>> built_for;  // compute capabilities whose code is in it
  std::optional<std::string> driver_error;     // why there is none
  std::string driver_version;
  int driver_cuda = 0;  // the newest CUDA that it runs, as 13000
  std::vector<Card> cards;
  std::vector<Library> libraries;
  bool counters_admin_only = false;  // the driver keeps the GPU's counters for administrators
  bool administrator = false;
  std::string compiler;   // nvcc of the toolkit; empty if there is none
  bool amd_card = false;  // the kernel drives an AMD GPU
};

// Examines the machine, this process and this build. Opens the driver and libraries, asks nvcc for
// its version.
MachineFacts examine_machine();
// Watches for a while what other programs do.
void watch_others(MachineFacts& facts, std::chrono::milliseconds time);

// One line of a diagnosis.
struct HealthCheck {
  enum class Status : std::uint8_t { ok, note, missing };
  std::string_view section;  // "Processor"
  std::string name;          // "Memory"
  Status status = Status::ok;
  std::string value;                           // "31.3 GB, 22.0 GB free"
  std::string remedy;                          // what to do about it; empty if nothing
  bool stops_cpu = false, stops_cuda = false;  // the main job cannot run there
};

struct Diagnosis {
  std::vector<HealthCheck> checks;
  std::string_view gpu = "cuda";  // what --device calls the GPUs that this build is for, or "hip"
  bool cpu_can_run = true, cuda_can_run = true;  // the main job: the workshop's training
};

Diagnosis diagnose(const MachineFacts& facts);

// "auto" is "cuda" or "hip" where that can run, and else "cpu"; "all" is both.
bool can_run(const Diagnosis& diagnosis, std::string_view device);

std::string doctor_text(const Diagnosis& diagnosis, std::string_view device);
std::string doctor_json(const Diagnosis& diagnosis, std::string_view device);

}  // namespace ridge
