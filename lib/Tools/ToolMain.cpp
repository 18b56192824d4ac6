//===- ToolMain.cpp - runs a command by its name ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Tools.h"
#include "runtime/src/support/Temporaries.h"
#include "llvm/Support/InitLLVM.h"

#include <csignal>
#include <cstdio>
#include <cstring>

/// Removes half-written files before a signal ends the command. The handler is
/// already reset when it runs, so raising the signal again ends the process.
static void removeFilesAndEnd(int signal) {
  moert::removeTemporaries();
  raise(signal);
}

static void handleSignals() {
  for (int signal : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction action = {};
    // Keeps ignoring a signal that the parent ignores, as with nohup.
    if (sigaction(signal, /*act=*/nullptr, &action) == 0 &&
        action.sa_handler == SIG_IGN)
      continue;
    action = {};
    action.sa_handler = removeFilesAndEnd;
    action.sa_flags = SA_RESETHAND | SA_NODEFER;
    sigaction(signal, &action, /*oldact=*/nullptr);
  }
}

int moec_tool_main(const char *name, int argc, char **argv) {
  // LLVM's handler removes LLVM's files, then raises the signal for the handler
  // that was installed before it, so ours is installed first.
  handleSignals();
  llvm::InitLLVM init(argc, argv);
  // With SIGXFSZ ignored, exceeding the file size limit is an error of write(),
  // as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  struct Tool {
    const char *name;
    int (*main)(int argc, char **argv);
  };
  constexpr Tool tools[] = {
#define MOEC_TOOL(name, function) {name, &moec::function},
#include "moec/Tools/Tools.def"
  };
  for (const Tool &tool : tools)
    if (std::strcmp(tool.name, name) == 0)
      return tool.main(argc, argv);
  std::fprintf(stderr,
               "%s: error: libmoec.so has no such command; install the library "
               "that came with the program\n",
               name);
  return 1;
}
