#include "ridge/session/image_folder.h"

#include <fmt/format.h>
#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// The mean and deviation of ImageNet's channels, red, green and blue, of 0 to 1; the figures that
// torchvision's published weights were trained with (torchvision, transforms of its weights).
constexpr std::array mean{0.485f, 0.456f, 0.406f}, deviation{0.229f, 0.224f, 0.225f};
constexpr std::int64_t most_extent = 1 << 14;

// An image with three bytes a pixel, red, green and blue.
struct Decoded {
  std::int64_t rows = 0, columns = 0;
  std::vector<std::uint8_t> pixels;
};

void check_extents(const fs::path& path, std::int64_t rows, std::int64_t columns) {
  if (rows < 1 || columns < 1 || rows > most_extent || columns > most_extent)
    throw FormatError("{}: {} x {} pixels; an image has from 1 to {} rows and columns",
                      path.string(), rows, columns, most_extent);
}

// Only the header is read unless there is to be more.
Decoded read_png(const fs::path& path, const MappedFile& file, bool pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const auto refuse = [&] {
    const std::string reason = image.message;
    png_image_free(&image);
    throw FormatError("{} is a damaged PNG: {}", path.string(), reason);
  };
  if (!png_image_begin_read_from_memory(&image, file.bytes().data(), file.bytes().size())) refuse();
  Decoded decoded{.rows = image.height, .columns = image.width};
  if (!pixels) {
    png_image_free(&image);
    check_extents(path, decoded.rows, decoded.columns);
    return decoded;
  }
  image.format = PNG_FORMAT_RGB;
  decoded.pixels.resize(PNG_IMAGE_SIZE(image));
  const png_color black{};
  if (!png_image_finish_read(&image, &black, decoded.pixels.data(), 0, nullptr)) refuse();
  return decoded;
}

class JpegDecoder {
 public:
  JpegDecoder() : handle_(tjInitDecompress()) {
    if (!handle_) throw Error("libjpeg-turbo cannot be started: {}", tjGetErrorStr());
  }
  ~JpegDecoder() { tjDestroy(handle_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  Decoded read(const fs::path& path, const MappedFile& file, bool pixels) const {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(file.bytes().data());
    const auto size = static_cast<unsigned long>(file.bytes().size());
    int columns = 0, rows = 0, subsampling = 0, colors = 0;
    if (tjDecompressHeader3(handle_, bytes, size, &columns, &rows, &subsampling, &colors) != 0)
      refuse(path);
    check_extents(path, rows, columns);
    Decoded decoded{.rows = rows, .columns = columns};
    if (!pixels) return decoded;
    decoded.pixels.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * 3);
    if (tjDecompress2(handle_, bytes, size, decoded.pixels.data(), columns, 0, rows, TJPF_RGB, 0) !=
            0 &&
        tjGetErrorCode(handle_) == TJERR_FATAL)
      refuse(path);
    return decoded;
  }

 private:
  [[noreturn]] void refuse(const fs::path& path) const {
    throw FormatError("{} is a damaged JPEG: {}", path.string(), tjGetErrorStr2(handle_));
  }

  tjhandle handle_;
};

std::string lower_extension(const fs::path& path) {
  std::string end = path.extension().string();
  std::ranges::transform(end, end.begin(), [](unsigned char c) { return std::tolower(c); });
  return end;
}

bool is_image(const fs::path& path) {
  const std::string end = lower_extension(path);
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

// By its first bytes: names are often wrong.
Decoded read_image(const fs::path& path, bool pixels) {
  constexpr std::array<unsigned char, 4> png{0x89, 'P', 'N', 'G'};
  const MappedFile file(path);
  if (file.bytes().size() >= png.size() &&
      std::memcmp(file.bytes().data(), png.data(), png.size()) == 0)
    return read_png(path, file, pixels);
  thread_local const JpegDecoder decoder;
  return decoder.read(path, file, pixels);
}

std::vector<fs::path> sorted_entries(const fs::path& folder,
                                     bool (*wanted)(const fs::directory_entry&)) {
  std::error_code fault;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, fault))
    if (!entry.path().filename().string().starts_with('.') && wanted(entry))
      found.push_back(entry.path());
  if (fault) throw IoError("cannot read the folder {}: {}", folder.string(), fault.message());
  std::ranges::sort(found);
  return found;
}

class ImageFolder final : public ImageSet {
 public:
  explicit ImageFolder(const fs::path& folder) : folder_(folder) {
    for (const fs::path& of_class : class_folders(folder)) {
      const auto files = sorted_entries(of_class, [](const fs::directory_entry& entry) {
        return entry.is_regular_file() && is_image(entry.path());
      });
      if (files.empty())
        throw FormatError("{} has no PNG or JPEG files: each folder of --data is a class of images",
                          of_class.string());
      for (const fs::path& file : files) {
        read_image(file, /*pixels=*/false);
        files_.push_back(file);
        labels_.push_back(static_cast<std::int32_t>(classes_));
      }
      ++classes_;
    }
  }

  void scaled(std::int64_t image, std::int64_t size, float* to) const override {
    const Decoded decoded = read_image(files_[static_cast<std::size_t>(image)], /*pixels=*/true);
    const std::int64_t square = std::min(decoded.rows, decoded.columns);
    const std::int64_t above = (decoded.rows - square) / 2, left = (decoded.columns - square) / 2;
    std::array<float, 3> shift{}, factor{};
    for (std::size_t c = 0; c < 3; ++c) {
      shift[c] = 255 * mean[c];
      factor[c] = 1 / (255 * deviation[c]);
    }
    scale_image(decoded.pixels.data() + 3 * (above * decoded.columns + left),
                {.planes = 3,
                 .rows = square,
                 .columns = square,
                 .plane_stride = 1,
                 .row_stride = 3 * decoded.columns,
                 .pixel_stride = 3},
                size, shift, factor, to);
  }
  std::string description() const override {
    return fmt::format("{}: {} images of {} classes", folder_.string(), format_count(count()),
                       classes_);
  }

 private:
  fs::path folder_;
  std::vector<fs::path> files_;
};

}  // namespace

std::vector<fs::path> class_folders(const fs::path& folder) {
  auto folders =
      sorted_entries(folder, [](const fs::directory_entry& entry) { return entry.is_directory(); });
  if (folders.empty())
    throw FormatError("{} has no folders: images lie in a folder for each class", folder.string());
  return folders;
}

std::unique_ptr<ImageSet> open_image_folder(const fs::path& folder) {
  return std::make_unique<ImageFolder>(folder);
}

}  // namespace ridge
