#pragma once

#include "ridge/device/device.h"
#include "ridge/exercise/devices.h"

namespace ridge::testing {

// A device that is said to multiply 8-bit floats, which a CPU imitates.
inline const Target with_float8{.multiplies_float8 = true};

class Float8Device final : public WrappedDevice {
 public:
  explicit Float8Device(Device& device) : WrappedDevice(device, info_of(device)) {}

 private:
  static DeviceInfo info_of(const Device& device) {
    DeviceInfo info = device.info();
    info.target.multiplies_float8 = true;
    return info;
  }
};

}  // namespace ridge::testing
