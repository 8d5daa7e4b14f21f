#pragma once

// The accumulators of a warpgroup product, 16 to 96 registers, as inline assembly wants them: each
// spelled, in the text and among the operands. No function or template can give it such a list.
// RIDGE_REGISTERS_n is "%0, ..., %{n-1}"; RIDGE_ACCUMULATORS_n(kind, d) are the operands d[0] to
// d[n-1], read and written, of a kind ("+f" or "+r"), which have to come first.

#define RIDGE_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RIDGE_REGISTERS_32 \
  RIDGE_REGISTERS_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RIDGE_REGISTERS_48 \
  RIDGE_REGISTERS_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define RIDGE_REGISTERS_56 RIDGE_REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define RIDGE_REGISTERS_64 RIDGE_REGISTERS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGE_REGISTERS_96                                                           \
  RIDGE_REGISTERS_64                                                                 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

#define RIDGE_EIGHT(kind, d, i)                                                               \
  kind(d[i]), kind(d[i + 1]), kind(d[i + 2]), kind(d[i + 3]), kind(d[i + 4]), kind(d[i + 5]), \
      kind(d[i + 6]), kind(d[i + 7])
#define RIDGE_ACCUMULATORS_16(kind, d) RIDGE_EIGHT(kind, d, 0), RIDGE_EIGHT(kind, d, 8)
#define RIDGE_ACCUMULATORS_32(kind, d) \
  RIDGE_ACCUMULATORS_16(kind, d), RIDGE_EIGHT(kind, d, 16), RIDGE_EIGHT(kind, d, 24)
#define RIDGE_ACCUMULATORS_48(kind, d) \
  RIDGE_ACCUMULATORS_32(kind, d), RIDGE_EIGHT(kind, d, 32), RIDGE_EIGHT(kind, d, 40)
#define RIDGE_ACCUMULATORS_56(kind, d) RIDGE_ACCUMULATORS_48(kind, d), RIDGE_EIGHT(kind, d, 48)
#define RIDGE_ACCUMULATORS_64(kind, d) RIDGE_ACCUMULATORS_56(kind, d), RIDGE_EIGHT(kind, d, 56)
#define RIDGE_ACCUMULATORS_96(kind, d)                                                \
  RIDGE_ACCUMULATORS_64(kind, d), RIDGE_EIGHT(kind, d, 64), RIDGE_EIGHT(kind, d, 72), \
      RIDGE_EIGHT(kind, d, 80), RIDGE_EIGHT(kind, d, 88)
