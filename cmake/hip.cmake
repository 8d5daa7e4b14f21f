# Whether the GPU code is built for HIP: sets RIDGE_HAS_HIP, the platform's definition and the number of
# lanes of a warp; and hip_kernels(), which compiles kernels by hipcc, which CMake's language HIP would
# not do as Debian has it.
set(RIDGE_HAS_HIP OFF)
if(NOT RIDGE_HIP)
  return()
endif()

if(RIDGE_HIP_PLATFORM STREQUAL "amd")
  set(hip_definition __HIP_PLATFORM_AMD__)
  find_program(RIDGE_HIPCC hipcc PATHS /opt/rocm/bin)
  find_path(RIDGE_HIP_INCLUDE_DIR hip/hip_runtime_api.h PATHS /opt/rocm/include)
  find_library(RIDGE_HIP_LIBRARY amdhip64 PATHS /opt/rocm/lib)
  if(NOT RIDGE_HIPCC OR NOT RIDGE_HIP_INCLUDE_DIR OR NOT RIDGE_HIP_LIBRARY)
    message(FATAL_ERROR "RIDGE_HIP=ON, but hipcc, HIP's headers or libamdhip64 was not found. Install them "
      "(scripts/install-deps.sh hip, or ROCm), or configure with -DRIDGE_HIP=OFF.")
  endif()
  # Host and device agree on one number of lanes.
  set(narrow ${RIDGE_HIP_ARCHITECTURE})
  list(FILTER narrow EXCLUDE REGEX "^gfx9")
  if(NOT narrow)
    set(hip_warp_width 64)
  elseif(narrow STREQUAL "${RIDGE_HIP_ARCHITECTURE}")
    set(hip_warp_width 32)
  else()
    message(FATAL_ERROR "RIDGE_HIP_ARCHITECTURE is ${RIDGE_HIP_ARCHITECTURE}: warps of gfx9 have 64 lanes, "
      "of the others 32. Make a build for each.")
  endif()
elseif(RIDGE_HIP_PLATFORM STREQUAL "nvidia")
  set(hip_definition __HIP_PLATFORM_NVIDIA__)
  find_path(RIDGE_HIP_INCLUDE_DIR hip/nvidia_detail/nvidia_hip_runtime_api.h)
  enable_nvcc()
  if(NOT RIDGE_HAS_NVCC OR NOT RIDGE_HIP_INCLUDE_DIR)
    message(FATAL_ERROR "RIDGE_HIP_PLATFORM=nvidia needs a CUDA toolkit (13.0 or later) and HIP's headers "
      "with those for NVIDIA's platform (scripts/install-deps.sh hip).")
  endif()
else()
  message(FATAL_ERROR "RIDGE_HIP_PLATFORM is ${RIDGE_HIP_PLATFORM}; there are: amd, nvidia")
endif()
set(RIDGE_HAS_HIP ON)

# Compiles kernels for AMD's cards, and sets `objects` to what comes out.
function(hip_kernels objects)
  list(TRANSFORM RIDGE_HIP_ARCHITECTURE PREPEND --offload-arch= OUTPUT_VARIABLE architectures)
  separate_arguments(flags UNIX_COMMAND "${RIDGE_HIP_FLAGS}")
  set(all)
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(name ${source} NAME)
    set(object ${PROJECT_BINARY_DIR}/hip/${name}.o)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/hip)
    add_custom_command(OUTPUT ${object} VERBATIM
      COMMAND ${RIDGE_HIPCC} -x hip -std=c++20 ${flags} ${architectures}
        -DRIDGE_WARP_WIDTH=${hip_warp_width} -I${PROJECT_SOURCE_DIR} -MD -MF ${object}.d
        -c ${source} -o ${object}
      DEPFILE ${object}.d DEPENDS ${source}
      COMMENT "Compiling ${name} for ${RIDGE_HIP_ARCHITECTURE}")
    list(APPEND all ${object})
  endforeach()
  set(${objects} ${all} PARENT_SCOPE)
endfunction()
