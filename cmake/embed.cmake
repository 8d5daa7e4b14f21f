# embed_text(<target> <header> <name>=<file>...) makes the contents of text files constants of the
# target, declared in <header> (included as "<header>") as `extern const std::string_view <name>`.
# They are read when the target is built, so that a changed file is a changed program.
function(embed_text target header)
  get_filename_component(stem ${header} NAME_WE)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_${stem}_embedded.cpp)
  set(files)
  foreach(entry ${ARGN})
    string(REGEX REPLACE "^[^=]*=" "" file ${entry})
    list(APPEND files ${file})
  endforeach()
  add_custom_command(OUTPUT ${source} VERBATIM
    COMMAND ${CMAKE_COMMAND} -D source=${source} -D header=${header} "-Dentries=${ARGN}"
      -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    DEPENDS ${files} ${CMAKE_CURRENT_FUNCTION_LIST_FILE})
  # Clang minds literals longer than every compiler must take.
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
  target_sources(${target} PRIVATE ${source})
endfunction()

# The same file is the script that the build runs.
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(WRITE ${source} "#include \"${header}\"\n\nnamespace ridge {\n")
  foreach(entry ${entries})
    string(REGEX MATCH "^([^=]*)=(.*)$" matched ${entry})
    set(name ${CMAKE_MATCH_1})
    file(READ ${CMAKE_MATCH_2} text)
    string(FIND "${text}" ")embedded\"" end)
    if(NOT end EQUAL -1)
      message(FATAL_ERROR "${CMAKE_MATCH_2} contains )embedded\", which ends a raw string")
    endif()
    file(APPEND ${source} "const std::string_view ${name} = R\"embedded(")
    file(APPEND ${source} "${text}")
    file(APPEND ${source} ")embedded\";\n")
  endforeach()
  file(APPEND ${source} "}  // namespace ridge\n")
endif()
