# Flags of what is shipped, for all targets (MOEC_HARDEN): the usual hardening, and no path of this machine in what is
# compiled, so that the same commit gives the same bytes in any folder. scripts/bundle and scripts/wheel check the
# result in each program and library.
if(MOEC_HARDEN)
  # The last map that fits is taken: a build folder may be inside the sources, under any name.
  add_compile_options(
    -ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${PROJECT_BINARY_DIR}=build
    -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endif()
