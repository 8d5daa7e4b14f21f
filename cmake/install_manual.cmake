# Has the program write its manual and its completion for shells to where they are installed.
set(prefix $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX})
message(STATUS "Installing: ${prefix}/${man}/ridge*.1.gz")
execute_process(COMMAND ${program} man-pages ${prefix}/${man} COMMAND_ERROR_IS_FATAL ANY)
foreach(shell_and_file
    bash:bash-completion/completions/ridge zsh:zsh/site-functions/_ridge
    fish:fish/vendor_completions.d/ridge.fish)
  string(REPLACE ":" ";" pair ${shell_and_file})
  list(GET pair 0 shell)
  list(GET pair 1 file)
  message(STATUS "Installing: ${prefix}/${data}/${file}")
  execute_process(COMMAND ${program} completion ${shell} OUTPUT_VARIABLE script
    COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${prefix}/${data}/${file} "${script}")
endforeach()
