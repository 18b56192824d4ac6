# Finds LLVM and MLIR 22 and decides how they are linked.
#
# MOEC_LINK=shared uses libMLIR.so and libLLVM.so: a tool links in a second.
# MOEC_LINK=static takes the archives only: no libLLVM at run time. The exported MLIR archives
# name the dylib `LLVM` in their link interface; that name is replaced by the components below.
if(MOEC_LINK STREQUAL "static" AND NOT TARGET zstd::libzstd_shared)
  # LLVMSupport names this target, whatever the library behind it.
  find_library(MOEC_ZSTD NAMES libzstd.a REQUIRED)
  add_library(zstd::libzstd_shared STATIC IMPORTED)
  set_target_properties(zstd::libzstd_shared PROPERTIES IMPORTED_LOCATION ${MOEC_ZSTD})
endif()

if(MOEC_LINK STREQUAL "static")
  set(ZLIB_USE_STATIC_LIBS ON)
endif()
find_package(MLIR 22.1 REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
if(CMAKE_CROSSCOMPILING)
  # The package's own runs on the target.
  get_filename_component(_programs ${CMAKE_CXX_COMPILER} DIRECTORY)
  set(MLIR_TABLEGEN_EXE ${_programs}/mlir-tblgen)
endif()
set(LLVM_RUNTIME_OUTPUT_INTDIR ${CMAKE_BINARY_DIR}/bin)
set(LLVM_LIBRARY_OUTPUT_INTDIR ${CMAKE_BINARY_DIR}/lib)
set(MLIR_BINARY_DIR ${CMAKE_BINARY_DIR})
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
include(TableGen)
include(AddLLVM)
include(AddMLIR)

string(TOLOWER ${LLVM_NATIVE_ARCH} _native)
set(MOEC_LLVM_COMPONENTS core support orcjit passes target ${_native}codegen ${_native}asmparser ${_native}desc
    ${_native}info nvptxcodegen nvptxdesc nvptxinfo)
if(MOEC_LINK STREQUAL "static")
  set(LLVM_LINK_LLVM_DYLIB OFF)
  llvm_map_components_to_libnames(_llvm_libs ${MOEC_LLVM_COMPONENTS} ${LLVM_ALL_TARGETS_FOR_MLIR})
  # Every component an MLIR archive may need; unused members are dropped by the linker.
  llvm_map_components_to_libnames(_llvm_all asmparser asmprinter binaryformat bitreader bitwriter
    coverage debuginfodwarf executionengine frontendopenmp instcombine ipo irreader mc mcparser
    object option profiledata remarks scalaropts selectiondag targetparser transformutils
    vectorize ${MOEC_LLVM_COMPONENTS})
  add_library(moec_llvm_static INTERFACE)
  target_link_libraries(moec_llvm_static INTERFACE ${_llvm_all})
  get_property(_mlir_libs GLOBAL PROPERTY MLIR_ALL_LIBS)
  foreach(_lib ${_mlir_libs})
    if(TARGET ${_lib})
      get_target_property(_iface ${_lib} INTERFACE_LINK_LIBRARIES)
      if(_iface)
        list(TRANSFORM _iface REPLACE "^(LLVM|MLIR)$" "moec_llvm_static")
        list(REMOVE_DUPLICATES _iface)
        set_target_properties(${_lib} PROPERTIES INTERFACE_LINK_LIBRARIES "${_iface}")
      endif()
    endif()
  endforeach()
endif()

add_library(moec_options INTERFACE)
target_include_directories(moec_options SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_include_directories(moec_options INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/lib ${PROJECT_SOURCE_DIR}/verify
  ${PROJECT_BINARY_DIR}/include ${PROJECT_BINARY_DIR})
# The packages are built with assertions off, and some class layouts depend on NDEBUG: ours must agree.
target_compile_definitions(moec_options INTERFACE NDEBUG ${LLVM_DEFINITIONS_LIST})
target_compile_options(moec_options INTERFACE -fno-exceptions -Wall -Wextra -Wno-unused-parameter
  -ffunction-sections -fdata-sections)
add_library(moec_sanitize INTERFACE)
if(MOEC_SANITIZE)
  # A check of what is called reads the word in front of a function, which compiled kernels lack.
  target_compile_options(moec_sanitize INTERFACE -fsanitize=${MOEC_SANITIZE}
    -fno-sanitize=function -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(moec_sanitize INTERFACE -fsanitize=${MOEC_SANITIZE})
endif()
if(MOEC_FUZZ)
  target_link_options(moec_sanitize INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_link_libraries(moec_options INTERFACE moec_sanitize)
