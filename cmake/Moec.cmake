# The few functions that the project's CMakeLists.txt files are made of.

# moec_join_sources(target): its files are compiled some at a time, as one: what they instantiate from MLIR's headers is
# then compiled once, which makes a build from nothing shorter, and one after a small change longer. Not where a target
# has C files, for which CMake looks for a precompiled header of their own.
function(moec_join_sources name)
  get_target_property(sources ${name} SOURCES)
  if(MOEC_UNITY AND NOT sources MATCHES "\\.c(;|$)")
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()

# moec_compile_alone(a.cpp ...): files whose own names, or `using namespace`, would stand beside the same names of the
# files that they would be compiled with.
function(moec_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# moec_optimize(target level): for code whose tests take ten times as long without optimization, whatever the preset
# says. A sanitizer's checks make code several times as long to optimize, so one level is enough there.
function(moec_optimize name level)
  if(MOEC_SANITIZE)
    set(level -O1)
  endif()
  target_compile_options(${name} PRIVATE ${level})
endfunction()

# One precompiled header of the headers of MLIR and of the dialects that nearly every file of the compiler
# includes.
if(MOEC_USE_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_library(moec_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  target_link_libraries(moec_pch PRIVATE moec_options)
  target_include_directories(moec_pch PRIVATE ${PROJECT_SOURCE_DIR}/runtime/include)
  target_precompile_headers(moec_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch.h)
  add_dependencies(moec_pch MoecMoeIncGen MoecPlanIncGen MoecTileIncGen)
  if(MOEC_BUILD_TESTS)
    # Clang refuses a header of another level of optimization, which makes no difference to declarations.
    set(MOEC_ANY_PCH "SHELL:-Xclang -fno-validate-pch")
    # GoogleTest, for tests that know nothing of MLIR, and on top of the header above for the others.
    find_package(GTest REQUIRED)
    foreach(kind mlir plain)
      add_library(moec_${kind}_test_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
      target_link_libraries(moec_${kind}_test_pch PRIVATE moec_options GTest::gtest)
      target_compile_options(moec_${kind}_test_pch PRIVATE -O0)
    endforeach()
    target_precompile_headers(moec_plain_test_pch PRIVATE <gtest/gtest.h> <map> <memory> <string> <vector>)
    target_precompile_headers(moec_mlir_test_pch PRIVATE <gtest/gtest.h>)
    target_include_directories(moec_mlir_test_pch PRIVATE ${PROJECT_SOURCE_DIR}/runtime/include)
    # CMake has no headers on top of others, but Clang reads the last one that a command names, and those below it.
    set(folder ${CMAKE_BINARY_DIR}/CMakeFiles)
    target_compile_options(moec_mlir_test_pch PRIVATE ${MOEC_ANY_PCH}
      "SHELL:-Xclang -include-pch -Xclang ${folder}/moec_pch.dir/cmake_pch.hxx.pch")
    set_source_files_properties(${folder}/moec_mlir_test_pch.dir/cmake_pch.hxx.cxx PROPERTIES
      OBJECT_DEPENDS ${folder}/moec_pch.dir/cmake_pch.hxx.pch)
  endif()
endif()

# _moec_use_pch(target pch): where there are any
function(_moec_use_pch name pch)
  if(TARGET ${pch})
    target_precompile_headers(${name} REUSE_FROM ${pch})
  endif()
endfunction()

# moec_add_library(MoecX a.cpp b.cpp [DEPENDS tablegen targets] [LINK_LIBS libraries] [MLIR_LIBS archives])
# LINK_LIBS are ours; MLIR_LIBS are MLIR's archives, replaced by libMLIR.so when MOEC_LINK=shared.
function(moec_add_library name)
  cmake_parse_arguments(ARG "NO_PCH" "" "DEPENDS;LINK_LIBS;MLIR_LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC moec_options ${ARG_LINK_LIBS})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  if(MOEC_LINK STREQUAL "shared")
    target_link_libraries(${name} PUBLIC MLIR LLVM)
  else()
    target_link_libraries(${name} PUBLIC ${ARG_MLIR_LIBS} moec_llvm_static)
  endif()
  if(NOT ARG_NO_PCH)
    _moec_use_pch(${name} moec_pch)
  endif()
  moec_join_sources(${name})
endfunction()

# moec_add_schedule(Folder CHOICE a.cpp ... CODE b.cpp ... [CODE_LIBS libraries]): the two libraries of a folder of
# lib/Schedules: MoecFolderChoice, how its schedules are chosen, which links without emission, and MoecFolderCode, which
# emits their kernels. Choices are above the interface, and ask others through the registry.
function(moec_add_schedule folder)
  cmake_parse_arguments(ARG "" "" "CHOICE;CODE;CODE_LIBS" ${ARGN})
  moec_add_library(Moec${folder}Choice ${ARG_CHOICE} LINK_LIBS MoecScheduleInterface MoecSchedules)
  moec_add_library(Moec${folder}Code ${ARG_CODE} LINK_LIBS MoecKernelBuilder Moec${folder}Choice ${ARG_CODE_LIBS})
endfunction()

if(MOEC_SANITIZE)
  add_library(moec_sanitizer_options OBJECT ${PROJECT_SOURCE_DIR}/cmake/SanitizerOptions.cpp)
endif()

# For programs, which alone can say how they want to be sanitized.
function(_moec_sanitize_program name)
  if(TARGET moec_sanitizer_options)
    target_link_libraries(${name} PRIVATE moec_sanitizer_options)
  endif()
endfunction()

# For what leaves this machine: it loads with a glibc older than the builder's. libpthread and libdl are named since
# they have functions of their own before glibc 2.34, and are empty since.
if(MOEC_LINK STREQUAL "static")
  add_library(moec_old_glibc OBJECT ${PROJECT_SOURCE_DIR}/cmake/OldGlibc.cpp)
  target_compile_options(moec_old_glibc PRIVATE -fno-exceptions -Wall -Wextra)
  target_link_options(moec_old_glibc INTERFACE LINKER:--push-state,--no-as-needed
    -l:libpthread.so.0 -l:libdl.so.2 LINKER:--pop-state)
endif()
function(moec_load_with_old_glibc name)
  if(TARGET moec_old_glibc)
    target_link_libraries(${name} PRIVATE moec_old_glibc)
  endif()
endfunction()

# moec_add_tool(moe-x a.cpp [LINK_LIBS libraries])
function(moec_add_tool name)
  cmake_parse_arguments(ARG "" "" "LINK_LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE moec_options ${ARG_LINK_LIBS})
  target_link_options(${name} PRIVATE -Wl,--gc-sections)
  _moec_sanitize_program(${name})
  if(MOEC_LINK STREQUAL "static")
    target_link_options(${name} PRIVATE -Wl,--as-needed -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# moec_add_unittest(XTests a.cpp [LINK_LIBS libraries] [MLIR_LIBS archives] [NO_PCH]): a GoogleTest
# program known to ctest. NO_PCH suits tests that know nothing of MLIR.
function(moec_add_unittest name)
  cmake_parse_arguments(ARG "NO_PCH" "" "LINK_LIBS;MLIR_LIBS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE moec_options ${ARG_LINK_LIBS} GTest::gtest GTest::gtest_main)
  if(MOEC_LINK STREQUAL "static")
    target_link_libraries(${name} PRIVATE ${ARG_MLIR_LIBS})
  endif()
  _moec_sanitize_program(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # Compiled like a library (PIC, not PIE), so that the precompiled header fits; and quickly, for their time goes where
  # what they test is. Tests name the fields that they are about.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC -O0 -Wno-missing-field-initializers)
  if(ARG_NO_PCH)
    _moec_use_pch(${name} moec_plain_test_pch)
  else()
    target_compile_options(${name} PRIVATE ${MOEC_ANY_PCH})
    _moec_use_pch(${name} moec_mlir_test_pch)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/unittests)
  moec_join_sources(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_property(GLOBAL APPEND PROPERTY MOEC_UNITTESTS ${name})
endfunction()

# moec_add_fuzzer(FuzzX a.cpp [LINK_LIBS libraries]): a program of libFuzzer's, run by scripts/fuzz.
function(moec_add_fuzzer name)
  cmake_parse_arguments(ARG "" "" "LINK_LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE moec_options ${ARG_LINK_LIBS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  _moec_sanitize_program(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()

# moec_version_symbols(target exports.map.in HEADER...): a library shows what the map says, under the API
# versions of the headers: the loader refuses it to a program that was linked against another version.
function(moec_version_symbols target map)
  foreach(header ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    file(STRINGS ${header} line REGEX "^#define MOE[A-Z]+_API_VERSION [0-9]+$")
    string(REGEX MATCH "(MOE[A-Z]+_API_VERSION) ([0-9]+)" _ "${line}")
    set(${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  endforeach()
  set(made ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  configure_file(${map} ${made} @ONLY)
  target_link_options(${target} PRIVATE -Wl,--version-script=${made})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${made})
endfunction()
