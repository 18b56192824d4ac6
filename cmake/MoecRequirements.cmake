# Looks for what a build needs ahead of project(), whose own messages do not say what installs it. All that is missing
# is named at once.
if(NOT MLIR_DIR)
  set(MLIR_DIR /usr/lib/llvm-22/lib/cmake/mlir CACHE PATH "MLIR's CMake package")
endif()

set(missing)
function(moec_need what path)
  if(NOT EXISTS "${path}")
    set(missing ${missing} "${what} (${path})" PARENT_SCOPE)
  endif()
endfunction()

# A preset has the path of a compiler, beside which is the linker; a name is left to project().
if(IS_ABSOLUTE "${CMAKE_CXX_COMPILER}")
  moec_need("clang 22" "${CMAKE_CXX_COMPILER}")
  if(CMAKE_SHARED_LINKER_FLAGS MATCHES "-fuse-ld=lld")
    get_filename_component(folder "${CMAKE_CXX_COMPILER}" DIRECTORY)
    moec_need("lld 22" "${folder}/ld.lld")
  endif()
endif()
moec_need("MLIR 22.1" "${MLIR_DIR}/MLIRConfig.cmake")
get_filename_component(folder "${MLIR_DIR}" DIRECTORY)
moec_need("LLVM 22.1" "${folder}/llvm/LLVMConfig.cmake")

# Headers that no package of CMake stands for.
foreach(header rapidjson/reader.h flatbuffers/flatbuffers.h zlib.h zstd.h)
  unset(found)
  find_file(found ${header} PATHS ${CMAKE_SYSROOT}/usr/include /usr/include /usr/local/include NO_CACHE)
  if(NOT found)
    list(APPEND missing "the header ${header}")
  endif()
endforeach()
find_program(FLATC flatc)
if(NOT FLATC)
  list(APPEND missing "the program flatc")
endif()

if(missing)
  list(JOIN missing ", " missing)
  # CMake leaves a text that begins with a space as it is.
  message(FATAL_ERROR
    " moec's build needs what is not here: ${missing}.\n"
    " On Debian 12, scripts/setup installs it. Elsewhere, say where it is by -DMLIR_DIR=... and "
    "-DCMAKE_CXX_COMPILER=...\n"
    " The wheel of moec needs none of it: docs/use/python.md.")
endif()
