#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/product_kind.h"

namespace ridge {

// Declared for data_sheets.cpp, which reads it: data_sheets.tsv.
extern const std::string_view data_sheets_text;

// What a vendor promises of a card or a processor.
struct DataSheet {
  std::string name;                                             // words of the hardware's name
  int cores = 0;                                                // of a processor; 0: a card
  double f32 = 0, tf32 = 0, bf16 = 0, f16 = 0, f8 = 0, s8 = 0;  // FLOP/s; 0: not promised
  double bytes_per_second = 0;
  std::string source;  // the document

  // FLOP/s of products of a kind on so many threads of a processor, or on the card; that of f32
  // where its own is not promised.
  double flops(ProductKind kind, int threads) const;
};

// The data sheets that are known, the more special names first.
const std::vector<DataSheet>& data_sheets();
// That of hardware by the name that its driver or system gives it; null if none is known.
const DataSheet* data_sheet_of(std::string_view hardware);

}  // namespace ridge
