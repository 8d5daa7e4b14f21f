#include "ridge/study/fingerprint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridge/analyze/doctor.h"
#include "ridge/analyze/machine_file.h"
#include "ridge/base/system.h"
#include "ridge/base/thread_pool.h"
#include "ridge/base/version.h"
#include "ridge/cpu/onednn.h"
#include "ridge/profile/device_report.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto card_interval = std::chrono::milliseconds(200);

// "13.0.1" of 130001, as libraries of CUDA write their versions.
std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void add_card(Json& json, const Device& device) {
  const MachineFacts facts = examine_machine();
  const auto card = std::ranges::find_if(facts.cards, [&](const MachineFacts::Card& candidate) {
    return candidate.info.bus_id == device.info().bus_id;
  });
  json["gpu"] = device.hardware();
  if (card != facts.cards.end()) json["gpu_uuid"] = card->info.uuid;
  json["driver"] = facts.driver_version;
  for (const MachineFacts::Library& library : facts.libraries)
    if (library.found) json["libraries"][library.name] = version_text(*library.found);
}

Json card_json(const std::vector<CardState>& samples) {
  const ClockReport clock = clock_report(samples);
  double power = 0;
  int temperature = 0;
  for (const CardState& state : samples) {
    power += state.power_w / static_cast<double>(samples.size());
    temperature = std::max(temperature, state.temperature_c);
  }
  Json json{{"power_w", power}, {"temperature_c", temperature}};
  if (clock.samples > 0) json["sm_mhz"] = {{"min", clock.min_mhz}, {"max", clock.max_mhz}};
  if (const std::string reasons = clock_reasons(clock); !reasons.empty())
    json["throttled_by"] = reasons;
  return json;
}

}  // namespace

Json machine_json(const Device& device, const RunOptions& options) {
  Json json{{"cpu", processor_name()},
            {"cores", options.threads > 0 ? options.threads : available_processors()}};
  json["libraries"] = {{"oneDNN", onednn_version()}};
  if (device.is_gpu()) add_card(json, device);
  return json;
}

Json program_json() {
  return {{"version", version()},
          {"commit", commit()},
          {"binary", program_digest()},
          {"compiler", compiler_name()}};
}

std::int64_t kernels_of_step(const Session& session) {
  const auto launches = [&](Phase phase) {
    return static_cast<std::int64_t>(session.executor().launches(phase));
  };
  const RunOptions& options = session.options();
  const std::int64_t batches =
      options.use() == Use::training ? options.gradient_accumulation_steps : 1;
  return batches * (launches(Phase::forward) + launches(Phase::backward)) +
         launches(Phase::optimizer);
}

ConditionsWatch::ConditionsWatch(const Device& device)
    : card_(std::make_unique<CardWatch>(device, card_interval)) {
  double average = 0;
  if (::getloadavg(&average, 1) == 1) load_average_ = average;
}

std::optional<double> ConditionsWatch::power_w() const {
  const std::optional<CardState> state = card_->latest();
  return state && state->power_w > 0 ? std::optional(state->power_w) : std::nullopt;
}

Json ConditionsWatch::stop() {
  Json json = Json::object();
  if (load_average_ >= 0) json["load_average"] = load_average_;
  if (const auto others = busy_processors_of_others(begin_, ProcessorUse::now()))
    json["busy_cores_of_others"] = *others;
  const std::string mhz = proc_value("/proc/cpuinfo", "cpu MHz");
  if (!mhz.empty()) json["cpu_mhz"] = std::strtod(mhz.c_str(), nullptr);
  if (const std::vector<CardState> samples = card_->stop(); !samples.empty())
    json["gpu"] = card_json(samples);
  return json;
}

Json context_json(const Session& session, ConditionsWatch& watch) {
  const Device& device = session.device();
  const std::span<const std::int64_t> dims = session.model().input.shape().dims();
  const std::vector<std::int64_t> input_shape(dims.begin(), dims.end());
  Json json{{"machine", machine_json(device, session.options())},
            {"program", program_json()},
            {"conditions", watch.stop()},
            {"kernels_per_step", kernels_of_step(session)},
            {"input_shape", input_shape}};
  if (const KeptRoof kept = kept_roof(device.name(), device.hardware(), device.threads());
      kept.roof)
    json["ceilings"] = Json::parse(roof_json(*kept.roof));
  return json;
}

}  // namespace ridge
