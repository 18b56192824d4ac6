/*===- HeaderTest.c - the header of the compiler, read as C -----*- C -*-===*\
|*                                                                            *|
|* Part of moec, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "moejit/moejit.h"

size_t sizesInC(void);

size_t sizesInC(void) {
  return sizeof(moejit_options) + sizeof(moejit_source) + sizeof(moejit_report);
}
