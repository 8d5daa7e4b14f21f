#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ridge/device/communicator.h"

namespace ridge {

// What every rank has, by rank; T is plain data of one size on all of them. All ranks call it.
template <class T>
std::vector<T> gathered(Communicator& communicator, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(communicator.count()));
  communicator.all_gather(std::as_bytes(std::span(&mine, 1)),
                          std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace ridge
