# The CPU kernels are compiled for an instruction set, all other code for the least of its architecture.
# RIDGE_CPU=native compiles one copy for this machine. RIDGE_CPU=portable compiles the copies below,
# of which the program chooses when it starts (choose_kernels.cpp, which names what they need again).
# A copy that the processor cannot run must not be reached by what the linker merges, such as a
# std::vector's functions compiled with AVX-512. So each becomes one object whose only global symbol is
# its table of entry points.
set(kernel_options_native -march=native)
# GCC tuned for Intel's servers halves the vectors that they have. Whole ones took 3 to 15 % off loops
# over exponentials on a Xeon.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND kernel_options_native -mprefer-vector-width=512)
endif()
set(kernel_options_baseline)
set(kernel_options_avx2 -mavx2 -mfma -mbmi -mbmi2)
set(kernel_options_avx512 ${kernel_options_avx2} -mavx512f -mavx512bw -mavx512cd -mavx512dq
  -mavx512vl)
set(kernel_options_avx512_bf16 ${kernel_options_avx512} -mavx512bf16)
# What /proc/cpuinfo calls the last of these.
set(kernel_flag_avx2 bmi2)
set(kernel_flag_avx512 avx512vl)
set(kernel_flag_avx512_bf16 avx512_bf16)
if(RIDGE_CPU STREQUAL "native")
  set(kernel_copies native)
elseif(NOT RIDGE_CPU STREQUAL "portable")
  message(FATAL_ERROR "RIDGE_CPU=${RIDGE_CPU}: there are native and portable")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(kernel_copies avx2 avx512 avx512_bf16)
else()
  set(kernel_copies baseline)
endif()

# Kernels are plain loops for the vectorizer: fuse multiplies and adds, keep no errno and no traps.
# IEEE results otherwise: no reassociation but where a loop says "omp simd reduction". What loops call
# must be inlined early: where GCC 12 does so late, as it does with more than a few instructions, it
# has taken selects apart into branches before, and does not vectorize (SiLU behind a batch norm).
add_library(kernel_options INTERFACE)
target_compile_options(kernel_options INTERFACE ${RIDGE_CPU_FLAGS} -ffp-contract=fast -fno-math-errno
  -fno-trapping-math -fopenmp-simd
  $<$<CXX_COMPILER_ID:GNU>:--param=early-inlining-insns=100>)

# What surrounds the kernels is there once.
set(around_kernels amx choose_kernels onednn onednn_conv_call peak_kernels peaks run)
list(TRANSFORM around_kernels REPLACE "(.+)" "cpu/\\1.cpp")
target_sources(ridge_engine PRIVATE ${around_kernels})
file(GLOB kernel_sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} cpu/*.cpp)
list(REMOVE_ITEM kernel_sources ${around_kernels})
# GCC inlines less of its gradients in a file as large as a group with this one would be.
set_source_files_properties(cpu/batch_norm.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

foreach(copy ${kernel_copies})
  set(target ridge_cpu_${copy})
  add_library(${target} OBJECT ${kernel_sources})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${kernel_options_${copy}})
  target_compile_definitions(${target} PRIVATE RIDGE_CPU_KERNELS=${target})
  target_link_libraries(${target} PRIVATE fmt::fmt DNNL::dnnl kernel_options ridge_warnings)
  set_target_properties(${target} PROPERTIES KERNEL_OPTIONS "${kernel_options_${copy}}"
    PROCESSOR_FLAG "${kernel_flag_${copy}}")
  compile_together(${target})
  precompile(${target} ridge/ops/op.h)
  list(APPEND copies_in_order "&${target}")
  if(kernel_copies MATCHES ";")
    # Unique symbols would stay global, and groups be merged by their names.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}.o)
    # CMake counts the precompiled header among the objects.
    set(objects $<FILTER:$<TARGET_OBJECTS:${target}>,EXCLUDE,\\.[gp]ch$>)
    add_custom_command(OUTPUT ${object} DEPENDS ${objects} VERBATIM COMMAND_EXPAND_LISTS
      COMMENT "Joining the CPU kernels for ${copy}"
      COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${object} ${objects}
      COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${target} ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(ridge_engine PRIVATE ${object})
  else()
    target_sources(ridge_engine PRIVATE $<TARGET_OBJECTS:${target}>)
  endif()
endforeach()
set_target_properties(ridge_engine PROPERTIES KERNEL_COPIES "${kernel_copies}")
list(JOIN copies_in_order "," copies_in_order)
set_source_files_properties(cpu/choose_kernels.cpp PROPERTIES COMPILE_DEFINITIONS
  "RIDGE_CPU_COPIES=${copies_in_order}")
