#pragma once

// CUDA's profiling tools interface (CUPTI), for tracing_cuda.cpp and counters_cuda.cpp alone. It is
// opened at run time, since only who profiles needs it, and it need not be installed to train.

#include <cuda.h>
#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <string_view>

#include "ridge/base/vendor_library.h"

namespace ridge::gpu {

// The functions of CUPTI, under their own names.
struct Cupti : VendorLibrary {
  // DeviceError, with what to install, if it is not there or too old.
  Cupti();

  // DeviceError that says what was refused and, where it is known, what to do.
  void check(CUptiResult result, std::string_view what) const;

  Function<decltype(cuptiGetErrorMessage)> get_error_message{*this, "cuptiGetErrorMessage"};
  Function<decltype(cuptiGetVersion)> get_version{*this, "cuptiGetVersion"};

  // Activity records and callbacks.
  Function<decltype(cuptiSubscribe)> subscribe{*this, "cuptiSubscribe"};
  Function<decltype(cuptiUnsubscribe)> unsubscribe{*this, "cuptiUnsubscribe"};
  Function<decltype(cuptiEnableCallback)> enable_callback{*this, "cuptiEnableCallback"};
  Function<decltype(cuptiGetCallbackName)> get_callback_name{*this, "cuptiGetCallbackName"};
  Function<decltype(cuptiGetGraphNodeId)> get_graph_node_id{*this, "cuptiGetGraphNodeId"};
  Function<decltype(cuptiSetThreadIdType)> set_thread_id_type{*this, "cuptiSetThreadIdType"};
  Function<decltype(cuptiActivityRegisterTimestampCallback)> activity_register_timestamp{
      *this, "cuptiActivityRegisterTimestampCallback"};
  Function<decltype(cuptiActivityRegisterCallbacks)> activity_register_callbacks{
      *this, "cuptiActivityRegisterCallbacks"};
  Function<decltype(cuptiActivityEnable)> activity_enable{*this, "cuptiActivityEnable"};
  Function<decltype(cuptiActivityDisable)> activity_disable{*this, "cuptiActivityDisable"};
  Function<decltype(cuptiActivityEnableDriverApi)> activity_enable_driver_api{
      *this, "cuptiActivityEnableDriverApi"};
  Function<decltype(cuptiActivityFlushAll)> activity_flush_all{*this, "cuptiActivityFlushAll"};
  Function<decltype(cuptiActivityGetNextRecord)> activity_get_next_record{
      *this, "cuptiActivityGetNextRecord"};
  Function<decltype(cuptiActivityGetNumDroppedRecords)> activity_get_dropped{
      *this, "cuptiActivityGetNumDroppedRecords"};
  Function<decltype(cuptiActivityPushExternalCorrelationId)> activity_push_external{
      *this, "cuptiActivityPushExternalCorrelationId"};
  Function<decltype(cuptiActivityPopExternalCorrelationId)> activity_pop_external{
      *this, "cuptiActivityPopExternalCorrelationId"};

  // Counters.
  Function<decltype(cuptiProfilerInitialize)> profiler_initialize{*this, "cuptiProfilerInitialize"};
  Function<decltype(cuptiProfilerDeInitialize)> profiler_deinitialize{*this,
                                                                      "cuptiProfilerDeInitialize"};
  Function<decltype(cuptiProfilerGetCounterAvailability)> get_counter_availability{
      *this, "cuptiProfilerGetCounterAvailability"};
  Function<decltype(cuptiDeviceGetChipName)> get_chip_name{*this, "cuptiDeviceGetChipName"};
  Function<decltype(cuptiProfilerHostInitialize)> host_initialize{*this,
                                                                  "cuptiProfilerHostInitialize"};
  Function<decltype(cuptiProfilerHostDeinitialize)> host_deinitialize{
      *this, "cuptiProfilerHostDeinitialize"};
  Function<decltype(cuptiProfilerHostConfigAddMetrics)> host_add_metrics{
      *this, "cuptiProfilerHostConfigAddMetrics"};
  Function<decltype(cuptiProfilerHostGetConfigImageSize)> host_config_size{
      *this, "cuptiProfilerHostGetConfigImageSize"};
  Function<decltype(cuptiProfilerHostGetConfigImage)> host_config{
      *this, "cuptiProfilerHostGetConfigImage"};
  Function<decltype(cuptiProfilerHostGetNumOfPasses)> host_passes{
      *this, "cuptiProfilerHostGetNumOfPasses"};
  Function<decltype(cuptiProfilerHostEvaluateToGpuValues)> host_evaluate{
      *this, "cuptiProfilerHostEvaluateToGpuValues"};
  Function<decltype(cuptiRangeProfilerEnable)> range_enable{*this, "cuptiRangeProfilerEnable"};
  Function<decltype(cuptiRangeProfilerDisable)> range_disable{*this, "cuptiRangeProfilerDisable"};
  Function<decltype(cuptiRangeProfilerSetConfig)> range_set_config{*this,
                                                                   "cuptiRangeProfilerSetConfig"};
  Function<decltype(cuptiRangeProfilerStart)> range_start{*this, "cuptiRangeProfilerStart"};
  Function<decltype(cuptiRangeProfilerStop)> range_stop{*this, "cuptiRangeProfilerStop"};
  Function<decltype(cuptiRangeProfilerPushRange)> range_push{*this, "cuptiRangeProfilerPushRange"};
  Function<decltype(cuptiRangeProfilerPopRange)> range_pop{*this, "cuptiRangeProfilerPopRange"};
  Function<decltype(cuptiRangeProfilerDecodeData)> range_decode{*this,
                                                                "cuptiRangeProfilerDecodeData"};
  Function<decltype(cuptiRangeProfilerGetCounterDataSize)> range_data_size{
      *this, "cuptiRangeProfilerGetCounterDataSize"};
  Function<decltype(cuptiRangeProfilerCounterDataImageInitialize)> range_data_initialize{
      *this, "cuptiRangeProfilerCounterDataImageInitialize"};
  Function<decltype(cuptiRangeProfilerGetCounterDataInfo)> range_data_info{
      *this, "cuptiRangeProfilerGetCounterDataInfo"};
  Function<decltype(cuptiRangeProfilerCounterDataGetRangeInfo)> range_info{
      *this, "cuptiRangeProfilerCounterDataGetRangeInfo"};
};

}  // namespace ridge::gpu
