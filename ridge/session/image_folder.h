#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "ridge/session/images.h"

namespace ridge {

// The folders of a folder's classes, in the order of their names. FormatError if there are none,
// IoError if the system refuses.
std::vector<std::filesystem::path> class_folders(const std::filesystem::path& folder);

// As open_images(). The size of every image is read now, so that a damaged file is met before
// training; its pixels are decoded when they are asked for.
std::unique_ptr<ImageSet> open_image_folder(const std::filesystem::path& folder);

}  // namespace ridge
