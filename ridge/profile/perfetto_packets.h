#pragma once

// What Perfetto's traces are written with. The numbers of fields are those of its
// trace_packet.proto, track_descriptor.proto, track_event.proto, debug_annotation.proto and
// interned_data.proto (https://github.com/google/perfetto, protos/perfetto/trace).

#include <cstdint>
#include <filesystem>
#include <protozero/pbf_builder.hpp>
#include <string>
#include <string_view>

#include "ridge/base/file.h"
#include "ridge/base/utf8.h"
#include "ridge/profile/chrome_trace.h"

namespace ridge::perfetto {

using Tag = protozero::pbf_tag_type;

enum class Trace : Tag { packet = 1 };
enum class Packet : Tag {
  timestamp = 8,
  trusted_packet_sequence_id = 10,
  track_event = 11,
  interned_data = 12,
  sequence_flags = 13,
  track_descriptor = 60
};
enum class Track : Tag {
  uuid = 1,
  name = 2,
  process = 3,
  thread = 4,
  parent_uuid = 5,
  counter = 8
};
enum class Process : Tag { pid = 1, process_name = 6 };
enum class Thread : Tag { pid = 1, tid = 2, thread_name = 5 };
enum class Counter : Tag { unit = 3 };
enum class TrackEvent : Tag {
  category_iids = 3,
  debug_annotations = 4,
  type = 9,
  name_iid = 10,
  track_uuid = 11,
  categories = 22,
  name = 23,
  counter_value = 30,
  double_counter_value = 44,
  flow_ids = 47
};
enum class Annotation : Tag {
  name_iid = 1,
  int_value = 4,
  double_value = 5,
  string_value = 6,
  name = 10,
  string_value_iid = 17
};
enum class Interned : Tag {
  categories = 1,
  names = 2,
  annotation_names = 3,
  annotation_texts = 29
};
enum class InternedText : Tag { iid = 1, text = 2 };

inline constexpr std::int32_t slice_begin = 1, slice_end = 2, instant = 3, counter = 4;
inline constexpr std::int32_t size_in_bytes = 3;  // Counter::unit
// Packet::sequence_flags: texts are numbered anew from here on; the packet has numbers of texts.
inline constexpr std::uint32_t state_cleared = 1, needs_state = 2;
inline constexpr std::uint32_t sequence_id = 1;

// Protobuf's strings must be UTF-8; names of the user's may be anything.
inline std::string as_utf8(std::string text) {
  for (std::size_t at = 0;; ++at) {
    at += find_invalid_utf8(std::string_view(text).substr(at));
    if (at >= text.size()) return text;
    text[at] = '?';
  }
}

// The packets of a file, up to a number of bytes.
class PacketFile {
 public:
  PacketFile(const std::filesystem::path& path, std::uint64_t max_bytes)
      : file_(path), max_bytes_(max_bytes) {}

  // Takes a packet, unless it or one before it did not fit. The end of a slice always fits: without
  // it the slice would seem to last for ever.
  bool add(const std::string& packet, bool always = false) {
    framed_.clear();
    protozero::pbf_builder<Trace>(framed_).add_message(Trace::packet, packet);
    full_ |= size_.bytes + framed_.size() > max_bytes_;
    if (full_ && !always) {
      ++size_.left_out;
      return false;
    }
    file_.write(framed_);
    size_.bytes += framed_.size();
    ++size_.events;
    return true;
  }

  const TraceSize& size() const { return size_; }

  void commit() { file_.commit(); }

 private:
  AtomicFile file_;
  std::uint64_t max_bytes_;
  std::string framed_;
  TraceSize size_;
  bool full_ = false;
};

}  // namespace ridge::perfetto
