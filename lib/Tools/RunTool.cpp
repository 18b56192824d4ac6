//===- RunTool.cpp - runs a command by its name -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunTool.h"
#include "../../runtime/src/support/Temporaries.h"
#include "moec/Support/Version.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <cstdio>

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

/// The exit status of a command, which fails if its output was not written.
/// LLVM would end the process with a message of its own.
static int closeOutput(llvm::StringRef name, int status) {
  llvm::raw_fd_ostream &os = llvm::outs();
  os.flush();
  if (!os.has_error())
    return status;
  std::fprintf(stderr, "%s: error: <stdout>: cannot be written: %s\n",
               name.str().c_str(), os.error().message().c_str());
  os.clear_error();
  return status ? status : 1;
}

int moec::runTool(llvm::StringRef library, llvm::ArrayRef<Tool> tools,
                  llvm::StringRef name, int argc, char **argv) {
  // LLVM's handler removes LLVM's files, then raises the signal for the handler
  // that was installed before it, so ours is installed first.
  handleSignals();
  llvm::InitLLVM init(argc, argv);
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << "moec " << getVersionAndCommit() << "\n";
  });
  // With SIGXFSZ ignored, exceeding the file size limit is an error of write(),
  // as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  for (const Tool &tool : tools)
    if (name == tool.name)
      return closeOutput(name, tool.main(argc, argv));
  std::fprintf(stderr,
               "%s: error: %s does not have this command; install the library "
               "that came with the program\n",
               name.str().c_str(), library.str().c_str());
  return 1;
}
