#include "ridge/gpu/profile/counters.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/device/counted_units.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/cupti.h"

namespace ridge::gpu {
namespace {

// CUPTI's functions take one structure that begins with its own size.
template <class Parameters>
Parameters sized(std::size_t size) {
  Parameters parameters{};
  parameters.structSize = size;
  return parameters;
}

CUcontext current_context() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaFree(nullptr), "opening the GPU");
  check(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 12000, cudaEnableDefault,
                                         &found),
        "asking the driver for its functions");
  CUcontext context = nullptr;
  if (!function || reinterpret_cast<decltype(&cuCtxGetCurrent)>(function)(&context) != CUDA_SUCCESS)
    throw DeviceError("the driver has no context of this thread: open the GPU first");
  return context;
}

class CuptiCounters final : public RangeCounters {
 public:
  CuptiCounters(std::span<const DeviceMetric> metrics, std::size_t max_ranges);
  ~CuptiCounters() override { release(); }
  CuptiCounters(const CuptiCounters&) = delete;
  CuptiCounters& operator=(const CuptiCounters&) = delete;

  std::span<const DeviceMetric> metrics() const override { return metrics_; }
  std::size_t passes() const override { return passes_; }
  void start() override;
  bool stop() override;
  void enter(std::uint64_t id) override;
  void leave() override;
  std::vector<Range> ranges() const override;

 private:
  // Parameters of what is asked of the profiler, or of the host's part.
  template <class Parameters>
  Parameters of_profiler(std::size_t size) const {
    auto parameters = sized<Parameters>(size);
    parameters.pRangeProfilerObject = profiler_;
    return parameters;
  }
  template <class Parameters>
  Parameters of_host(std::size_t size) const {
    auto parameters = sized<Parameters>(size);
    parameters.pHostObject = host_;
    return parameters;
  }

  void choose_metrics();
  void prepare_data(std::size_t max_ranges);
  void release();

  Cupti cupti_;
  std::vector<DeviceMetric> metrics_;
  std::vector<const char*> name_pointers_;
  CUcontext context_ = nullptr;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  CUpti_RangeProfiler_Object* profiler_ = nullptr;
  std::vector<std::uint8_t> config_, data_;  // what to count in which pass; what was counted
  CUpti_RangeProfiler_SetConfig_Params pass_{};
  std::size_t passes_ = 0;
  bool decoded_ = false;
};

CuptiCounters::CuptiCounters(std::span<const DeviceMetric> metrics, std::size_t max_ranges)
    : metrics_(metrics.begin(), metrics.end()), context_(current_context()) {
  for (const DeviceMetric& metric : metrics_) name_pointers_.push_back(metric.metric.c_str());
  try {
    auto initialize =
        sized<CUpti_Profiler_Initialize_Params>(CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
    cupti_.check(cupti_.profiler_initialize(&initialize), "open the counters");
    choose_metrics();
    auto enable =
        sized<CUpti_RangeProfiler_Enable_Params>(CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
    enable.ctx = context_;
    cupti_.check(cupti_.range_enable(&enable), "take hold of the counters");
    profiler_ = enable.pRangeProfilerObject;
    prepare_data(max_ranges);
  } catch (...) {
    release();
    throw;
  }
}

// Which counters are read in which pass.
void CuptiCounters::choose_metrics() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the GPU");
  auto chip = sized<CUpti_Device_GetChipName_Params>(CUpti_Device_GetChipName_Params_STRUCT_SIZE);
  chip.deviceIndex = static_cast<std::size_t>(device);
  cupti_.check(cupti_.get_chip_name(&chip), "say which chip this is");

  auto available = sized<CUpti_Profiler_GetCounterAvailability_Params>(
      CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE);
  available.ctx = context_;
  cupti_.check(cupti_.get_counter_availability(&available), "say which counters are free");
  std::vector<std::uint8_t> image(available.counterAvailabilityImageSize);
  available.pCounterAvailabilityImage = image.data();
  cupti_.check(cupti_.get_counter_availability(&available), "say which counters are free");

  auto host = sized<CUpti_Profiler_Host_Initialize_Params>(
      CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
  host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  host.pChipName = chip.pChipName;
  host.pCounterAvailabilityImage = image.data();
  cupti_.check(cupti_.host_initialize(&host), fmt::format("describe the chip {}", chip.pChipName));
  host_ = host.pHostObject;

  auto metrics = of_host<CUpti_Profiler_Host_ConfigAddMetrics_Params>(
      CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
  metrics.ppMetricNames = name_pointers_.data();
  metrics.numMetrics = name_pointers_.size();
  cupti_.check(cupti_.host_add_metrics(&metrics),
               fmt::format("count these metrics on the chip {}", chip.pChipName));

  auto size = of_host<CUpti_Profiler_Host_GetConfigImageSize_Params>(
      CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
  cupti_.check(cupti_.host_config_size(&size), "plan the passes");
  config_.resize(size.configImageSize);
  auto config = of_host<CUpti_Profiler_Host_GetConfigImage_Params>(
      CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
  config.configImageSize = config_.size();
  config.pConfigImage = config_.data();
  cupti_.check(cupti_.host_config(&config), "plan the passes");
  auto passes = sized<CUpti_Profiler_Host_GetNumOfPasses_Params>(
      CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE);
  passes.configImageSize = config_.size();
  passes.pConfigImage = config_.data();
  cupti_.check(cupti_.host_passes(&passes), "plan the passes");
  passes_ = passes.numOfPasses;
}

void CuptiCounters::prepare_data(std::size_t max_ranges) {
  auto size = of_profiler<CUpti_RangeProfiler_GetCounterDataSize_Params>(
      CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
  size.pMetricNames = name_pointers_.data();
  size.numMetrics = name_pointers_.size();
  size.maxNumOfRanges = max_ranges;
  size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(max_ranges);
  cupti_.check(cupti_.range_data_size(&size), "reserve memory for counts");
  data_.resize(size.counterDataSize);
  auto image = of_profiler<CUpti_RangeProfiler_CounterDataImage_Initialize_Params>(
      CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  image.counterDataSize = data_.size();
  image.pCounterData = data_.data();
  cupti_.check(cupti_.range_data_initialize(&image), "reserve memory for counts");

  pass_ = of_profiler<CUpti_RangeProfiler_SetConfig_Params>(
      CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE);
  pass_.configSize = config_.size();
  pass_.pConfig = config_.data();
  pass_.counterDataImageSize = data_.size();
  pass_.pCounterDataImage = data_.data();
  pass_.range = CUPTI_UserRange;
  // We do the work again for each pass: a training step may. Replay by CUPTI would save and restore
  // all memory of the card around every kernel.
  pass_.replayMode = CUPTI_UserReplay;
  pass_.maxRangesPerPass = max_ranges;
  pass_.numNestingLevels = pass_.minNestingLevel = pass_.targetNestingLevel = 1;
  cupti_.check(cupti_.range_set_config(&pass_), "count these metrics");
}

void CuptiCounters::release() {
  if (profiler_) {
    auto disable = of_profiler<CUpti_RangeProfiler_Disable_Params>(
        CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
    cupti_.range_disable(&disable);
  }
  if (host_) {
    auto host = of_host<CUpti_Profiler_Host_Deinitialize_Params>(
        CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
    cupti_.host_deinitialize(&host);
  }
}

void CuptiCounters::start() {
  auto start =
      of_profiler<CUpti_RangeProfiler_Start_Params>(CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
  cupti_.check(cupti_.range_start(&start), "start a pass");
}

bool CuptiCounters::stop() {
  auto stop =
      of_profiler<CUpti_RangeProfiler_Stop_Params>(CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
  cupti_.check(cupti_.range_stop(&stop), "end a pass");
  if (!stop.isAllPassSubmitted) return false;
  auto decode = of_profiler<CUpti_RangeProfiler_DecodeData_Params>(
      CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
  cupti_.check(cupti_.range_decode(&decode), "read the counts");
  if (decode.numOfRangeDropped > 0)
    throw DeviceError("{} ranges found no room among the {} that were asked for",
                      decode.numOfRangeDropped, pass_.maxRangesPerPass);
  decoded_ = true;
  return true;
}

void CuptiCounters::enter(std::uint64_t id) {
  const std::string name = std::to_string(id);
  auto push = of_profiler<CUpti_RangeProfiler_PushRange_Params>(
      CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE);
  push.pRangeName = name.c_str();
  cupti_.check(cupti_.range_push(&push), "begin a range");
}

void CuptiCounters::leave() {
  auto pop = of_profiler<CUpti_RangeProfiler_PopRange_Params>(
      CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE);
  cupti_.check(cupti_.range_pop(&pop), "end a range");
}

std::vector<RangeCounters::Range> CuptiCounters::ranges() const {
  std::vector<Range> ranges;
  if (!decoded_) return ranges;
  auto info = sized<CUpti_RangeProfiler_GetCounterDataInfo_Params>(
      CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE);
  info.pCounterDataImage = data_.data();
  info.counterDataImageSize = data_.size();
  cupti_.check(cupti_.range_data_info(&info), "read the counts");
  for (std::size_t i = 0; i < info.numTotalRanges; ++i) {
    auto name = sized<CUpti_RangeProfiler_CounterData_GetRangeInfo_Params>(
        CUpti_RangeProfiler_CounterData_GetRangeInfo_Params_STRUCT_SIZE);
    name.pCounterDataImage = data_.data();
    name.counterDataImageSize = data_.size();
    name.rangeIndex = i;
    name.rangeDelimiter = "/";
    cupti_.check(cupti_.range_info(&name), "name a range");

    Range range{.values = std::vector<double>(metrics_.size())};
    std::from_chars(name.rangeName, name.rangeName + std::strlen(name.rangeName), range.id);
    auto values = of_host<CUpti_Profiler_Host_EvaluateToGpuValues_Params>(
        CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
    values.pCounterDataImage = data_.data();
    values.counterDataImageSize = data_.size();
    values.rangeIndex = i;
    values.ppMetricNames = const_cast<const char**>(name_pointers_.data());
    values.numMetrics = metrics_.size();
    values.pMetricValues = range.values.data();
    cupti_.check(cupti_.host_evaluate(&values), "evaluate the counts");
    // A part of something may exceed it by little if the two were counted in different passes.
    for (std::size_t m = 0; m < metrics_.size(); ++m)
      if (metrics_[m].unit == "%") range.values[m] = std::min(range.values[m], 100.0);
    ranges.push_back(std::move(range));
  }
  return ranges;
}

}  // namespace

std::span<const DeviceMetric> default_metrics() {
  static const DeviceMetric all[] = {
      {"DRAM read", "B", "dram__bytes_read.sum"},
      {"DRAM written", "B", "dram__bytes_write.sum"},
      {"tensor cores", "%", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"},
      {"occupancy", "%", "sm__warps_active.avg.pct_of_peak_sustained_active"},
      {"L2 hits", "%", "lts__t_sector_hit_rate.pct"},
      {"FMA", "%", "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"},
      {"ALU", "%", "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active"},
      {"LSU", "%", "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"},
      {"L1", "%", "l1tex__throughput.avg.pct_of_peak_sustained_elapsed"},
      {"L2", "%", "lts__throughput.avg.pct_of_peak_sustained_elapsed"},
      {"DRAM", "%", "dram__throughput.avg.pct_of_peak_sustained_elapsed"},
      {"L1 hits", "%", "l1tex__t_sector_hit_rate.pct"},
      {"L1 moved", "B", "l1tex__t_bytes.sum"},
      {"L2 moved", "B", "lts__t_bytes.sum"}};
  constexpr std::size_t of_two_passes = 5;  // on sm90; the others were never counted on a card
  return counts_all_units() ? std::span(all) : std::span(all).first(of_two_passes);
}

std::unique_ptr<RangeCounters> make_range_counters(std::span<const DeviceMetric> metrics,
                                                   std::size_t max_ranges) {
  return std::make_unique<CuptiCounters>(metrics, max_ranges);
}

}  // namespace ridge::gpu
