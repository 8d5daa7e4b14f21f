#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/ceilings.h"

namespace ridge {

// What a machine file holds: the ceilings of devices side by side, of each hardware once.
struct Machine {
  std::vector<Ceilings> devices;

  // Those of a device by what Device::name() and hardware() say. Null if there are none.
  const Ceilings* find(std::string_view device, std::string_view hardware) const;
  // Those, or else of another device of that kind.
  const Ceilings* find_like(std::string_view device, std::string_view hardware) const;
  // In place of those of the same device and hardware.
  void put(Ceilings ceilings);
};

// A machine's ceilings as JSON, and back. Rates are in FLOP/s and bytes per second. FormatError,
// with `source` in the message, for a text that is none.
std::string machine_json(const Machine& machine);
Machine machine_from_json(std::string_view text, const std::string& source);

// The ceilings over one run, as bottlenecks.json has them; and as text.
nlohmann::ordered_json json_of(const Roof& roof);
std::string roof_json(const Roof& roof);

// $XDG_CACHE_HOME/ridge/machine.json, or ~/.cache/ridge/machine.json. UsageError if the environment
// names neither directory.
std::filesystem::path default_machine_file();

Machine read_machine_file(const std::filesystem::path& path);
// Creates the directory if there is none.
void write_machine_file(const std::filesystem::path& path, const Machine& machine);

// The ceilings over a run on so many threads of a device (0: all that were measured), from a file
// that the user names: of its hardware, or else of another device of its kind. FormatError if there
// are none.
Roof roof_from_file(const std::filesystem::path& path, std::string_view device,
                    std::string_view hardware, int threads);

// The ceilings over a run on so many threads of a device (0: all that were measured), from the
// user's machine file; none if that has none of this hardware, or is no such file.
struct KeptRoof {
  std::optional<Roof> roof;
  std::string source;  // the file; or, in words, why there is none
};
KeptRoof kept_roof(std::string_view device, std::string_view hardware, int threads);

// The same; where there are none, they are measured now in a hurry, which takes a few seconds, and
// kept, so that later runs are held against the same ones. `measuring` is called before that. None
// if the device has no memory left to measure them in.
KeptRoof roof_of_device(Device& device, const std::function<void()>& measuring = {});

}  // namespace ridge
