// The name of a device in messages.
#pragma once

#include <string>

#include "feedline/device.h"

namespace feedline {

/// Returns "GPU 1", or "the host".
inline std::string device_name(DeviceId device) {
  return device.kind == DeviceId::Kind::cuda ? "GPU " + std::to_string(device.ordinal) : "the host";
}

}  // namespace feedline
