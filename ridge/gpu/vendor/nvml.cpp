#include "ridge/gpu/vendor/nvml.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "ridge/base/error.h"
#include "ridge/base/vendor_library.h"

namespace ridge::gpu {
namespace {

// The part of NVML's interface that is used here; its header belongs to the toolkit and need not be
// there. Names and values: NVML API reference, which keeps them from driver to driver.
using Result = int;
using Handle = void*;

constexpr Result success = 0, no_permission = 4, driver_not_loaded = 9, version_mismatch = 18;
constexpr int sm_clock = 1, memory_clock = 2;
constexpr int core_temperature = 0;
constexpr unsigned text_size = 96;

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct PciInfo {  // nvmlPciInfo_t, version 3
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

LibrarySearch search() {
  return {"NVML",
          {"libnvidia-ml.so.1", "libnvidia-ml.so"},
          "this machine has no NVIDIA driver (no libnvidia-ml.so.1); install it, or give the "
          "container access to it (docker run --gpus all)"};
}

// "00000000:0A:00.0", as NVML has it, and "0000:0a:00.0", as CUDA does, are one.
std::string canonical_bus_id(std::string id) {
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto colon = id.find(':');
  if (colon != std::string::npos && colon > 4) id.erase(0, colon - 4);
  return id;
}

}  // namespace

// Drivers differ in what they have of it, and cards in what they answer.
struct Nvml::Library : VendorLibrary {
  Library() : VendorLibrary(search()) {}

  template <class... Arguments>
  using Query = OptionalFunction<Result(Arguments...)>;
  template <class T>
  using CardQuery = Query<Handle, T*>;

  Query<> init{*this, "nvmlInit_v2"};
  Query<> shutdown{*this, "nvmlShutdown"};
  Query<char*, unsigned> driver_version{*this, "nvmlSystemGetDriverVersion"};
  Query<int*> cuda_version{*this, "nvmlSystemGetCudaDriverVersion_v2"};
  Query<unsigned*> card_count{*this, "nvmlDeviceGetCount_v2"};
  Query<unsigned, Handle*> card_by_index{*this, "nvmlDeviceGetHandleByIndex_v2"};
  Query<Handle, char*, unsigned> name{*this, "nvmlDeviceGetName"};
  Query<Handle, char*, unsigned> uuid{*this, "nvmlDeviceGetUUID"};
  Query<Handle, int*, int*> capability{*this, "nvmlDeviceGetCudaComputeCapability"};
  CardQuery<PciInfo> pci_info{*this, "nvmlDeviceGetPciInfo_v3"};
  CardQuery<Memory> memory{*this, "nvmlDeviceGetMemoryInfo"};
  CardQuery<unsigned> power_limit{*this, "nvmlDeviceGetEnforcedPowerLimit"};
  CardQuery<unsigned> power{*this, "nvmlDeviceGetPowerUsage"};
  CardQuery<Utilization> utilization{*this, "nvmlDeviceGetUtilizationRates"};
  CardQuery<unsigned long long> throttle{*this, "nvmlDeviceGetCurrentClocksThrottleReasons"};
  Query<Handle, int, unsigned*> temperature{*this, "nvmlDeviceGetTemperature"};
  Query<Handle, int, unsigned*> max_clock{*this, "nvmlDeviceGetMaxClockInfo"};
  Query<Handle, int, unsigned*> clock{*this, "nvmlDeviceGetClockInfo"};

  template <class F, class... Arguments>
  static bool ask(const F& query, Arguments... arguments) {
    return query && query(arguments...) == success;
  }

  // What a card answers; 0 if it does not.
  template <class T>
  static T of_card(const CardQuery<T>& query, Handle card) {
    T value{};
    return ask(query, card, &value) ? value : T{};
  }
  static int mhz(const Query<Handle, int, unsigned*>& query, Handle card, int which) {
    unsigned value = 0;
    return ask(query, card, which, &value) ? static_cast<int>(value) : 0;
  }
};

Nvml::Nvml() : library_(std::make_unique<Library>()) {
  const Result result = library_->init ? library_->init() : version_mismatch;
  switch (result) {
    case success:
      return;
    case driver_not_loaded:
      throw DeviceError(
          "the NVIDIA driver is installed but not loaded: sudo modprobe nvidia, or restart the "
          "machine after an update of the driver");
    case no_permission:
      throw DeviceError(
          "the NVIDIA driver refuses this user: check the permissions of /dev/nvidiactl and "
          "/dev/nvidia0");
    case version_mismatch:
      throw DeviceError(
          "the NVIDIA driver that is loaded and its libraries are of different versions: restart "
          "the machine after the update of the driver");
    default:
      throw DeviceError("the NVIDIA driver does not answer: NVML error {}; see nvidia-smi", result);
  }
}

Nvml::~Nvml() { Library::ask(library_->shutdown); }

std::string Nvml::driver_version() const {
  std::array<char, text_size> text{};
  return Library::ask(library_->driver_version, text.data(), text_size) ? text.data() : "";
}

int Nvml::cuda_version() const {
  int version = 0;
  return Library::ask(library_->cuda_version, &version) ? version : 0;
}

int Nvml::card_count() const {
  unsigned count = 0;
  return Library::ask(library_->card_count, &count) ? static_cast<int>(count) : 0;
}

void* Nvml::handle(int card) const {
  Handle device = nullptr;
  if (!Library::ask(library_->card_by_index, static_cast<unsigned>(card), &device))
    throw DeviceError("there is no card {} that this process may use; see nvidia-smi", card);
  return device;
}

CardInfo Nvml::info(int card) const {
  const Handle device = handle(card);
  CardInfo info;
  std::array<char, text_size> text{};
  if (Library::ask(library_->name, device, text.data(), text_size)) info.name = text.data();
  if (Library::ask(library_->uuid, device, text.data(), text_size)) info.uuid = text.data();
  info.bus_id = canonical_bus_id(Library::of_card(library_->pci_info, device).bus_id);
  Library::ask(library_->capability, device, &info.capability_major, &info.capability_minor);
  const auto memory = Library::of_card(library_->memory, device);
  info.memory_total = memory.total;
  info.memory_used = memory.used;
  info.max_sm_mhz = Library::mhz(library_->max_clock, device, sm_clock);
  info.max_memory_mhz = Library::mhz(library_->max_clock, device, memory_clock);
  info.power_limit_w = 1e-3 * Library::of_card(library_->power_limit, device);
  return info;
}

CardState Nvml::state(int card) const {
  const Handle device = handle(card);
  CardState state;
  state.sm_mhz = Library::mhz(library_->clock, device, sm_clock);
  state.memory_mhz = Library::mhz(library_->clock, device, memory_clock);
  state.power_w = 1e-3 * Library::of_card(library_->power, device);
  unsigned temperature = 0;
  if (Library::ask(library_->temperature, device, core_temperature, &temperature))
    state.temperature_c = static_cast<int>(temperature);
  const auto busy = Library::of_card(library_->utilization, device);
  state.busy_percent = static_cast<int>(busy.gpu);
  state.memory_busy_percent = static_cast<int>(busy.memory);
  state.throttle = Library::of_card(library_->throttle, device);
  state.time_ns = std::chrono::steady_clock::now().time_since_epoch().count();
  return state;
}

int Nvml::card_at(const std::string& bus_id) const {
  for (int card = 0; card < card_count(); ++card)
    if (info(card).bus_id == canonical_bus_id(bus_id)) return card;
  throw DeviceError("the driver knows no card at {}", bus_id);
}

CardSampler::CardSampler(const Nvml& nvml, int card, std::chrono::milliseconds interval,
                         std::size_t max_samples)
    : nvml_(nvml),
      card_(card),
      interval_(std::max(interval, std::chrono::milliseconds(1))),
      max_samples_(std::max<std::size_t>(max_samples, 2)),
      samples_{nvml.state(card)},  // an error is the caller's
      thread_([this] { run(); }) {}

CardSampler::~CardSampler() { stop(); }

CardState CardSampler::latest() {
  const std::lock_guard lock(mutex_);
  return samples_.empty() ? CardState{} : samples_.back();
}

std::vector<CardState> CardSampler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  return std::move(samples_);
}

void CardSampler::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval_, [this] { return stop_; })) {
    try {
      samples_.push_back(nvml_.state(card_));
    } catch (const DeviceError&) {
      return;  // the card is gone: what was read until now is all there is
    }
    if (samples_.size() < max_samples_) continue;
    for (std::size_t i = 1; 2 * i < samples_.size(); ++i) samples_[i] = samples_[2 * i];
    samples_.resize((samples_.size() + 1) / 2);
    interval_ *= 2;
  }
}

}  // namespace ridge::gpu
