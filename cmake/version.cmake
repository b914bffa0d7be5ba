# Writes OUTPUT, a header with VERSION and the git revision of SOURCE; leaves it alone where it says the same already.
# The revision is empty without git, and in an archive, also one that lies inside another repository.
cmake_minimum_required(VERSION 3.22)
execute_process(COMMAND git rev-parse --show-prefix WORKING_DIRECTORY ${SOURCE}
                OUTPUT_VARIABLE FOLDER RESULT_VARIABLE FAILED OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(REVISION "")
if(NOT FAILED AND FOLDER STREQUAL "")
  execute_process(COMMAND git --no-optional-locks describe --always --dirty WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"#pragma once
namespace lockstep::app {
inline constexpr const char* kVersion = \"@VERSION@\";
inline constexpr const char* kRevision = \"@REVISION@\";
}
")
