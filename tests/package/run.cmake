# Installs the build into an empty folder, then configures, builds and runs the consumer against it.
file(REMOVE_RECURSE ${work})
set(flags)
if(sanitize)
  set(flags -fsanitize=${sanitize})
endif()
foreach(step
    "--install;${ridge_build};--prefix;${work}/stage"
    "-S;${CMAKE_CURRENT_LIST_DIR};-B;${work}/build;-G;${generator};-DCMAKE_BUILD_TYPE=${build_type};-DCMAKE_CXX_COMPILER=${compiler};-DCMAKE_CXX_FLAGS=${flags};-DCMAKE_PREFIX_PATH=${work}/stage"
    "--build;${work}/build")
  execute_process(COMMAND ${CMAKE_COMMAND} ${step} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${work}/build/consumer COMMAND_ERROR_IS_FATAL ANY)

# The program is installed under all its names.
if(EXISTS ${work}/stage/bin/ridge)
  foreach(version v1 v2 v3 v4)
    execute_process(COMMAND ${work}/stage/libexec/ridge/tiny_llama_${version} --help OUTPUT_QUIET
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  foreach(file man/man1/ridge-train.1.gz bash-completion/completions/ridge)
    if(NOT EXISTS ${work}/stage/share/${file})
      message(FATAL_ERROR "share/${file} is not installed")
    endif()
  endforeach()
endif()
