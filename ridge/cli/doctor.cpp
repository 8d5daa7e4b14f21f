#include "ridge/analyze/doctor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "ridge/base/error.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/terminal.h"

namespace ridge {
namespace {

struct DoctorRequest {
  std::string device = "auto";
  bool json = false;
};

int examine(const DoctorRequest& request) {
  constexpr std::array devices{"auto", "cpu", "cuda", "hip", "all"};
  if (std::ranges::find(devices, request.device) == devices.end())
    throw UsageError("--device is {}; there are: auto, cpu, cuda, hip, all", request.device);
  MachineFacts facts = examine_machine();
  watch_others(facts, std::chrono::milliseconds(300));
  const Diagnosis diagnosis = diagnose(facts);
  const std::string text = request.json ? doctor_json(diagnosis, request.device)
                                        : doctor_text(diagnosis, request.device);
  Terminal().line(std::string_view(text).substr(0, text.size() - 1));
  return can_run(diagnosis, request.device) ? 0 : 1;
}

}  // namespace

void add_doctor_command(Command program, Action& action) {
  const Command command = program.add_subcommand(
      "doctor",
      "Check this machine for training and profiling; name what is missing and the remedy");
  const auto request = std::make_shared<DoctorRequest>();
  command
      .add_option("--device", request->device,
                  "Check whether auto, cpu, cuda, hip or all can train")
      .default_text(request->device);
  command.add_flag("--json", request->json, "Print JSON");
  command.footer(R"(Lines are marked ok, note (it works without) or missing, each with its remedy.
Exit code 0 if training can run on the device, 1 if not; auto is either, all is both.

Examples:
  ridge doctor
  ridge doctor --device cuda && ridge train --device cuda)");
  command.callback([request, &action] { action = [request] { return examine(*request); }; });
}

}  // namespace ridge
