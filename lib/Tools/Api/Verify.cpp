//===- Verify.cpp - comparison of runs, for C -----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Verify/LiveCheck.h"
#include "Jit/CApi.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

using namespace moec;
using namespace moec::capi;
using moert::Result;
using moert::Status;

/// Runs from one compared run to the next, by the environment; 0: none is
/// compared.
static Result<int64_t> readEnvironment() {
  std::optional<std::string> text = llvm::sys::Process::GetEnv("MOEC_VERIFY");
  int64_t every = 0;
  if (!text || text->empty())
    return 0;
  if (llvm::StringRef(*text).getAsInteger(10, every) || every < 0)
    return moert::invalidArgument(
        "MOEC_VERIFY is '" + *text +
        "'; give a number N, as in 1000, to compare every N-th run, or 0 for "
        "none");
  return every;
}

static std::string getFolder(const char *given) {
  if (given)
    return given;
  if (auto folder = llvm::sys::Process::GetEnv("MOEC_VERIFY_DIR"))
    return *folder;
  llvm::SmallString<128> folder;
  llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, folder);
  llvm::sys::path::append(folder, "moec-verify");
  return folder.str().str();
}

static Status verify(moert_layer &layer, const moejit_verify_options &given) {
  if (given.every < 0 || given.rows < 0)
    return moert::outOfRange(
        "moejit_layer_verify: every is " + std::to_string(given.every) +
        " and rows " + std::to_string(given.rows) + "; 0 or more is accepted");
  LiveCheckOptions options;
  options.every = given.every;
  if (given.every == 0) {
    Result<int64_t> every = readEnvironment();
    if (!every)
      return every.status();
    options.every = *every;
  }
  layer.watch.reset();
  if (options.every == 0)
    return Status::ok();
  if (given.rows > 0)
    options.rows = given.rows;
  options.seed = given.seed;
  options.folder = getFolder(given.folder);
  options.skipsCaptured = given.skip_captured != 0;
  Result<std::unique_ptr<LiveCheck>> check =
      LiveCheck::create(layer, std::move(options));
  if (check)
    layer.watch = std::move(*check);
  else if (given.every == 0)
    // The environment is for all layers of a process, whichever they are.
    llvm::errs() << "moec: warning: " << check.status().message() << "\n";
  else
    return check.status();
  return Status::ok();
}

moert_status *moejit_layer_verify(moert_layer *layer,
                                  const moejit_verify_options *options) {
  MOEJIT_NEEDED(layer);
  moejit_verify_options given = {};
  if (options) {
    if (Status status = checkSize(*options, "moejit_verify_options"); !status)
      return answer(status);
    given = *options;
  }
  return answer(verify(*layer, given));
}

int moejit_layer_is_verified(const moert_layer *layer) {
  return layer && layer->watch;
}
