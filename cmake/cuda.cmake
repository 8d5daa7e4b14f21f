# Whether the GPU code is built: sets RIDGE_HAS_CUDA, and the language CUDA if so. It takes longer to
# compile than all the rest, so it is left out by default where there is no card to run it.
set(RIDGE_HAS_CUDA OFF)
set(wants_cuda ${RIDGE_CUDA})
if(RIDGE_CUDA STREQUAL "AUTO")
  find_program(RIDGE_NVIDIA_SMI nvidia-smi PATHS /usr/lib/wsl/lib)
  set(cards "")
  if(RIDGE_NVIDIA_SMI)
    execute_process(COMMAND ${RIDGE_NVIDIA_SMI} -L OUTPUT_VARIABLE cards ERROR_QUIET)
  endif()
  set(wants_cuda OFF)
  if(NOT RIDGE_HIP AND cards MATCHES "GPU [0-9]")
    set(wants_cuda AUTO)
  endif()
endif()
if(wants_cuda AND RIDGE_HIP)
  message(FATAL_ERROR "RIDGE_CUDA=ON and RIDGE_HIP=ON: a build has the GPU code for one of them.")
endif()
if(wants_cuda)
  enable_nvcc()
  set(RIDGE_HAS_CUDA ${RIDGE_HAS_NVCC})
  if(RIDGE_CUDA STREQUAL "ON" AND NOT RIDGE_HAS_CUDA)
    message(FATAL_ERROR "RIDGE_CUDA=ON, but no CUDA toolkit of version 13.0 or later was found. "
      "Install one and put nvcc on the PATH, or configure with -DRIDGE_CUDA=OFF for a CPU build.")
  endif()
endif()
if(RIDGE_HAS_CUDA)
  # NVIDIA's installer keeps CUPTI in a folder of its own, its packages among all other headers.
  find_path(CUPTI_INCLUDE_DIR cupti_range_profiler.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
    ${CUDAToolkit_TARGET_DIR}/extras/CUPTI/include ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include
    REQUIRED)
endif()
