#include "ridge/analyze/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/base/processor_use.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

using Status = HealthCheck::Status;

// What the workshop's training run takes: 164 MB of the processor's memory; on a card 130 MB and
// what CUDA itself takes of it.
constexpr std::uint64_t memory_needed = std::uint64_t{256} << 20;
constexpr std::uint64_t card_memory_needed = std::uint64_t{1} << 30;
constexpr std::uint64_t disk_needed = std::uint64_t{1} << 20;        // a summary, a configuration
constexpr std::uint64_t disk_for_profiles = std::uint64_t{2} << 30;  // traces are up to 1 GB each

constexpr int quiet_card_percent = 5;  // so busy it may be without a program that works on it

constexpr std::string_view processor = "Processor", system_section = "System", build = "GPU build",
                           card_section = "GPU", libraries = "GPU libraries",
                           tools = "Tools for profiling";

// 130001 as "13.0.1".
std::string library_version(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}
// 13000 as "13.0".
std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version / 10 % 100);
}

std::string_view symbol(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::note:
      return "note";
    case Status::missing:
      return "missing";
  }
  return "";
}

HealthCheck processor_check(const MachineFacts& facts) {
  HealthCheck check{processor, "Processor", Status::ok,
                    fmt::format("{}, {} thread{}", facts.cpu.empty() ? "unknown" : facts.cpu,
                                facts.threads, facts.threads == 1 ? "" : "s")};
  if (facts.kernels_refused.empty()) return check;
  check.status = Status::missing;
  check.value += "; this program has no kernels for it";
  check.remedy = facts.kernels_refused;
  check.stops_cpu = check.stops_cuda = true;
  return check;
}

HealthCheck instructions_check(const MachineFacts& facts) {
  struct Feature {
    std::string_view flag, name;
  };
  constexpr Feature features[] = {{"avx2", "AVX2"},
                                  {"fma", "FMA"},
                                  {"avx512f", "AVX-512"},
                                  {"avx512_bf16", "bf16 products"},
                                  {"amx_bf16", "AMX"}};
  std::string have, lack;
  for (const auto& [flag, name] : features) {
    std::string& list = facts.cpu_features.contains(flag) ? have : lack;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  }
  HealthCheck check{processor, "Instructions", Status::ok, have.empty() ? "none of these" : have};
  if (!lack.empty()) check.value += fmt::format("; not {}", lack);
  if (!facts.kernels.empty()) check.value += fmt::format("; kernels for {}", facts.kernels);
  if (!facts.cpu_features.contains("avx2")) {
    check.status = Status::note;
    check.remedy = "nothing to do: it works, several times slower than with AVX2";
  }
  return check;
}

HealthCheck memory_check(const MachineFacts& facts) {
  HealthCheck check{system_section, "Memory", Status::ok,
                    fmt::format("{}, {} free", format_bytes(facts.memory_total),
                                format_bytes(facts.memory_available))};
  if (facts.memory_available >= memory_needed) return check;
  check.status = Status::missing;
  check.remedy = fmt::format("free some, or raise the container's limit: training needs {}",
                             format_bytes(memory_needed));
  check.stops_cpu = check.stops_cuda = true;
  return check;
}

HealthCheck others_check(const MachineFacts& facts) {
  if (!facts.busy_processors_of_others)
    return {system_section, "Other programs", Status::ok, "not watched"};
  const double busy = *facts.busy_processors_of_others;
  HealthCheck check{system_section, "Other programs", Status::ok,
                    fmt::format("keep {:.2f} of {} processors busy; the machine is {}", busy,
                                facts.threads, busy <= quiet_processors ? "quiet" : "not quiet")};
  if (busy <= quiet_processors) return check;
  check.status = Status::note;
  check.remedy = fmt::format(
      "times measured now are longer and vary more: stop what else runs (top lists it) until it is "
      "{:.1f} or less",
      quiet_processors);
  return check;
}

HealthCheck disk_check(const MachineFacts& facts) {
  HealthCheck check{
      system_section, "Disk", Status::ok,
      fmt::format("{} free in {}", format_bytes(facts.disk_available), facts.directory)};
  if (!facts.directory_writable) {
    check.status = Status::missing;
    check.value = fmt::format("{} cannot be written", facts.directory);
    check.remedy = "run from a directory of yours, or name one with --output-dir";
  } else if (facts.disk_available < disk_needed) {
    check.status = Status::missing;
    check.remedy = "free some space: a run writes its summary there";
  } else if (facts.disk_available < disk_for_profiles) {
    check.status = Status::note;
    check.remedy = "enough to train; traces of large models take up to 1 GB each";
  }
  check.stops_cpu = check.stops_cuda = check.status == Status::missing;
  return check;
}

// A reason and its remedy come as one line, "no hardware counters: REASON; REMEDY".
HealthCheck cpu_counters_check(const MachineFacts& facts) {
  HealthCheck check{tools, "Processor counters", Status::ok, "may be read (--counters)"};
  if (facts.counters_refused.empty()) return check;
  check.status = Status::note;
  std::string_view text = facts.counters_refused;
  if (const auto colon = text.find(": "); colon != text.npos) text.remove_prefix(colon + 2);
  const auto semicolon = text.find("; ");
  check.value = text.substr(0, semicolon);
  if (semicolon != text.npos) check.remedy = text.substr(semicolon + 2);
  return check;
}

HealthCheck build_check(const MachineFacts& facts) {
  if (!facts.hip_build.empty())
    return {build, "GPU code", Status::ok, fmt::format("built with HIP, for {}", facts.hip_build)};
  if (facts.cuda_build)
    return {build, "GPU code", Status::ok,
            fmt::format("built with CUDA {}", cuda_version(facts.cuda_built_with))};
  return {build,
          "GPU code",
          Status::missing,
          "none in this build",
          "install a CUDA toolkit (13.0 or later) and configure with -DRIDGE_CUDA=ON",
          false,
          true};
}

HealthCheck hip_card_check(const MachineFacts& facts) {
  if (facts.hip_card) return {card_section, "Card", Status::ok, "HIP shows one"};
  HealthCheck check{card_section,
                    "Card",
                    Status::missing,
                    "none that this process may use",
                    "check HIP_VISIBLE_DEVICES, and that you are in the groups render and video",
                    false,
                    true};
  if (!facts.amd_card) {
    check.value = "no driver of AMD's GPUs is loaded";
    check.remedy = "load the kernel's driver amdgpu, which makes /dev/kfd";
  }
  return check;
}

HealthCheck driver_check(const MachineFacts& facts) {
  HealthCheck check{
      card_section, "Driver", Status::ok,
      fmt::format("{}, for CUDA up to {}", facts.driver_version, cuda_version(facts.driver_cuda))};
  if (facts.driver_error) {
    // "REASON; REMEDY" or "REASON: REMEDY", as the error has it.
    const std::string& text = *facts.driver_error;
    const auto cut = std::min(text.find("; "), text.find(": "));
    check.value = text.substr(0, cut);
    if (cut != text.npos) check.remedy = text.substr(cut + 2);
  } else if (facts.cuda_build && facts.driver_cuda / 1000 < facts.cuda_built_with / 1000) {
    check.remedy = fmt::format("update the driver: this build needs one for CUDA {} or later",
                               facts.cuda_built_with / 1000);
  } else {
    return check;
  }
  check.status = Status::missing;
  check.stops_cuda = true;
  return check;
}

HealthCheck card_check(const MachineFacts& facts, std::size_t i) {
  const auto& [info, state] = facts.cards[i];
  HealthCheck check{
      card_section, fmt::format("Card {}", i), Status::ok,
      fmt::format("{}, compute capability {}.{}, {}, {} used, {} C, {:.0f} of {:.0f} W, {} % busy",
                  info.name, info.capability_major, info.capability_minor,
                  format_bytes(info.memory_total), format_bytes(info.memory_used),
                  state.temperature_c, state.power_w, info.power_limit_w, state.busy_percent)};
  const std::pair capability{info.capability_major, info.capability_minor};
  if (facts.cuda_build && !facts.built_for.empty() &&
      std::ranges::find(facts.built_for, capability) == facts.built_for.end()) {
    check.status = Status::missing;
    check.remedy = fmt::format("build for it with -DCMAKE_CUDA_ARCHITECTURES={}{}",
                               info.capability_major, info.capability_minor);
  } else if (info.memory_total - info.memory_used < card_memory_needed) {
    check.status = Status::missing;
    check.remedy = "free its memory: nvidia-smi lists the processes that hold it";
  } else if (state.throttle & (CardState::hardware_slowdown | CardState::thermal |
                               CardState::hardware_thermal | CardState::power_brake)) {
    check.status = Status::note;
    check.remedy = "its clocks are held down by heat or by the power supply: measure later";
  } else if (state.busy_percent > quiet_card_percent) {
    check.status = Status::note;
    check.remedy = "another program works on it: measure later; nvidia-smi lists the processes";
  }
  return check;
}

void card_checks(const MachineFacts& facts, std::vector<HealthCheck>& checks) {
  const std::size_t first = checks.size();
  for (std::size_t i = 0; i < facts.cards.size(); ++i) checks.push_back(card_check(facts, i));
  const auto usable = [](const HealthCheck& check) { return check.status != Status::missing; };
  // One card is enough.
  if (!facts.cards.empty() &&
      std::none_of(checks.begin() + static_cast<std::ptrdiff_t>(first), checks.end(), usable))
    checks[first].stops_cuda = true;
  if (facts.cards.empty() && !facts.driver_error)
    checks.push_back({card_section, "Card", Status::missing, "none that this process may use",
                      "check CUDA_VISIBLE_DEVICES, and the permissions of /dev/nvidia0", false,
                      true});
  if (facts.amd_card)
    checks.push_back({card_section, "AMD card", Status::note, "there is one",
                      "this build has no code for it: make hip builds it (docs/use/amd.md)"});
}

HealthCheck library_check(const MachineFacts& facts, const MachineFacts::Library& library) {
  HealthCheck check{libraries, library.name, Status::ok};
  const bool used = facts.cuda_build && library.built_with > 0;
  const std::string built =
      used ? fmt::format(" (built with {})", library_version(library.built_with)) : "";
  if (!library.found) {
    check.status = Status::note;
    check.value = fmt::format("not found{}; for {}", built, library.purpose);
    if (!library.without.empty()) check.value += fmt::format("; without it {}", library.without);
    if (used)
      check.remedy =
          fmt::format("install {}, or add its directory to LD_LIBRARY_PATH", library.package);
    return check;
  }
  check.value =
      fmt::format("{}{}; for {}", library_version(*library.found), built, library.purpose);
  if (used && *library.found / 10000 != library.built_with / 10000) {
    check.status = Status::missing;
    check.remedy =
        fmt::format("install version {}, or build Ridge again", library.built_with / 10000);
  } else if (used && *library.found / 100 < library.built_with / 100) {
    check.status = Status::note;
    check.remedy = "older than what Ridge was built with: update it if something is refused";
  }
  return check;
}

HealthCheck gpu_counters_check(const MachineFacts& facts) {
  if (!facts.counters_admin_only || facts.administrator)
    return {tools, "GPU counters", Status::ok, "may be read (--counters)"};
  return {tools, "GPU counters", Status::note, "the driver keeps them for administrators",
          "as root, write \"options nvidia NVreg_RestrictProfilingToAdminUsers=0\" to "
          "/etc/modprobe.d/nvidia-profiling.conf and restart; or run as root"};
}

HealthCheck compiler_check(const MachineFacts& facts) {
  if (!facts.compiler.empty()) return {build, "CUDA toolkit", Status::ok, facts.compiler};
  return {build, "CUDA toolkit", Status::note, "no nvcc found",
          "only needed to build GPU code: https://developer.nvidia.com/cuda-downloads"};
}

}  // namespace

Diagnosis diagnose(const MachineFacts& facts) {
  Diagnosis diagnosis;
  std::vector<HealthCheck>& checks = diagnosis.checks;
  checks = {{system_section, "System", Status::ok, facts.system},
            memory_check(facts),
            others_check(facts),
            disk_check(facts),
            processor_check(facts),
            instructions_check(facts),
            build_check(facts)};
  if (facts.hip_build.empty()) {
    checks.push_back(compiler_check(facts));
    checks.push_back(driver_check(facts));
    card_checks(facts, checks);
    for (const MachineFacts::Library& library : facts.libraries)
      checks.push_back(library_check(facts, library));
  } else {
    diagnosis.gpu = "hip";
    checks.push_back(hip_card_check(facts));
  }
  checks.push_back(cpu_counters_check(facts));
  if (!facts.cards.empty()) checks.push_back(gpu_counters_check(facts));
  for (const HealthCheck& check : checks) {
    diagnosis.cpu_can_run &= !check.stops_cpu;
    diagnosis.cuda_can_run &= !check.stops_cuda;
  }
  return diagnosis;
}

bool can_run(const Diagnosis& diagnosis, std::string_view device) {
  if (device == "cpu") return diagnosis.cpu_can_run;
  if (device == "cuda" || device == "hip") return device == diagnosis.gpu && diagnosis.cuda_can_run;
  if (device == "all") return diagnosis.cpu_can_run && diagnosis.cuda_can_run;
  return diagnosis.cpu_can_run || diagnosis.cuda_can_run;
}

std::string doctor_text(const Diagnosis& diagnosis, std::string_view device) {
  std::size_t width = 0;
  for (const HealthCheck& check : diagnosis.checks) width = std::max(width, check.name.size());
  std::string text;
  std::string_view section;
  for (const HealthCheck& check : diagnosis.checks) {
    if (check.section != section) text += fmt::format("{}\n", check.section);
    section = check.section;
    std::string line =
        fmt::format("  {:<8}{:<{}}  {}", symbol(check.status), check.name, width, check.value);
    if (!check.remedy.empty()) line += fmt::format(" -> {}", check.remedy);
    text += wrapped(line, sentence_width, std::string(width + 12, ' ')) + '\n';
  }
  const auto verdict = [&](std::string_view name, bool runs) {
    text += fmt::format("Training on {}: {}\n", name, runs ? "can run" : "cannot run");
  };
  text += '\n';
  if (device != "cuda" && device != "hip") verdict("the CPU", diagnosis.cpu_can_run);
  if (device != "cpu") verdict("a GPU", diagnosis.cuda_can_run);
  return text;
}

std::string doctor_json(const Diagnosis& diagnosis, std::string_view device) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const HealthCheck& check : diagnosis.checks)
    checks.push_back({{"section", check.section},
                      {"name", check.name},
                      {"status", symbol(check.status)},
                      {"value", check.value},
                      {"remedy", check.remedy}});
  const nlohmann::ordered_json json = {{"device", device},
                                       {"can_run", can_run(diagnosis, device)},
                                       {"cpu_can_run", diagnosis.cpu_can_run},
                                       {"cuda_can_run", diagnosis.cuda_can_run},
                                       {"checks", std::move(checks)}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
