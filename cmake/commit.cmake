# Run by every build: writes a header with the commit of the sources, if that is another one than
# the header has. With "+" for sources that were changed since, and empty for those that are in no
# repository of their own.
#   cmake -D source=<root of the sources> -D header=<file to write> -P commit.cmake
function(git result)
  execute_process(COMMAND git -c safe.directory=* ${ARGN} WORKING_DIRECTORY ${source}
    OUTPUT_VARIABLE output ERROR_QUIET RESULT_VARIABLE fault OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(fault)
    set(output "")
  endif()
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

set(commit "")
git(top rev-parse --show-toplevel)
if(top STREQUAL source)
  git(commit rev-parse HEAD)
  git(changes status --porcelain --untracked-files=no)
  if(changes)
    string(APPEND commit "+")
  endif()
endif()
set(content "#define RIDGE_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${header})
  file(READ ${header} before)
endif()
if(NOT content STREQUAL before)
  file(WRITE ${header} "${content}")
endif()
