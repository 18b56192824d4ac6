//===- Library.cpp - NCCL, opened at run time -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Library.h"
#include "../../support/Check.h"

#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace moert::nccl {

static std::string versionText(int version) {
  // Up to 2.8 NCCL's major version counts thousands.
  int major = version / (version < 10000 ? 1000 : 10000);
  int rest = version % (version < 10000 ? 1000 : 10000);
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." +
         std::to_string(rest % 100);
}

static Status turnMulticastOff() {
  const char *given = getenv("NCCL_NVLS_ENABLE");
  if (given && strcmp(given, "0") != 0)
    return invalidArgument("NCCL_NVLS_ENABLE=" + std::string(given) +
                           " lets NCCL use NVLink multicast, which must stay "
                           "off; set it to 0 or unset it");
  if (!given && setenv("NCCL_NVLS_ENABLE", "0", /*replace=*/0) != 0)
    return resourceExhausted(
        "NCCL_NVLS_ENABLE=0 cannot be set: " + std::string(strerror(errno)) +
        "; set it before the start");
  return Status::ok();
}

Result<std::shared_ptr<const Library>> Library::open(const std::string &path) {
  MOERT_CHECK(turnMulticastOff());
  std::string wanted = path;
  const char *given = getenv("MOERT_NCCL_LIBRARY");
  if (wanted.empty())
    wanted = given && *given ? given : "libnccl.so.2";
  void *opened = dlopen(wanted.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) {
    const char *error = dlerror();
    return unavailable(
        "NCCL cannot be opened: " + std::string(error ? error : wanted) +
        "; install NCCL " + versionText(kOldestVersion) +
        " or later, or name its library in MOERT_NCCL_LIBRARY");
  }
  std::shared_ptr<Library> library(new Library(opened));
  MOERT_CHECK(library->findSymbols(wanted));
  return std::shared_ptr<const Library>(std::move(library));
}

Status Library::findSymbols(const std::string &opened) {
  using GetVersion = ncclResult_t (*)(int *);
  auto getVersion =
      reinterpret_cast<GetVersion>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (!getVersion || getVersion(&version) != ncclSuccess)
    return unavailable(opened + " has no working ncclGetVersion, so it is not "
                                "NCCL; check MOERT_NCCL_LIBRARY");
  // The path that was found for a name without a folder.
  Dl_info info;
  bool isKnown = dladdr(reinterpret_cast<void *>(getVersion), &info) != 0 &&
                 info.dli_fname != nullptr;
  theName = "NCCL " + versionText(version) + " (" +
            (isKnown ? info.dli_fname : opened) + ")";
  if (version < kOldestVersion)
    return unavailable(theName + " is too old; install " +
                       versionText(kOldestVersion) +
                       " or later, or name its library in MOERT_NCCL_LIBRARY");
  auto missing = [&](const char *name, int version) {
    return unavailable(theName + " has no function " + name + ", which NCCL " +
                       versionText(version) + " provides; reinstall NCCL");
  };
#define NCCL_SYMBOL(name, version, parameters)                                 \
  name = reinterpret_cast<ncclResult_t(*) parameters>(dlsym(library, #name));  \
  if (!name)                                                                   \
    return missing(#name, version);
#define NCCL_TEXT_SYMBOL(name, version, parameters)                            \
  name = reinterpret_cast<const char *(*)parameters>(dlsym(library, #name));   \
  if (!name)                                                                   \
    return missing(#name, version);
#include "Symbols.def"
  return Status::ok();
}

static StatusCode statusCode(ncclResult_t code) {
  switch (code) {
  case ncclSystemError:
  case ncclRemoteError:
    return StatusCode::Unavailable;
  case ncclInvalidArgument:
  case ncclInvalidUsage:
    return StatusCode::InvalidArgument;
  default:
    return StatusCode::Internal;
  }
}

static const char *remedy(ncclResult_t code) {
  switch (code) {
  case ncclUnhandledCudaError:
    return "a CUDA call failed in NCCL: look for an earlier failure of a "
           "kernel, and check free device memory";
  case ncclSystemError:
    return "check the network and the limits of shared memory and of locked "
           "memory, with NCCL_DEBUG=WARN";
  case ncclInvalidArgument:
  case ncclInvalidUsage:
    return "check that each rank has its own GPU and the same number of ranks, "
           "with NCCL_DEBUG=WARN";
  case ncclRemoteError:
    return "another rank has ended or its network has failed: look for an "
           "earlier error on that rank";
  default:
    return "run with NCCL_DEBUG=INFO, and report it";
  }
}

Status Library::check(ncclResult_t code, const char *call,
                      ncclComm_t comm) const {
  if (code == ncclSuccess)
    return Status::ok();
  const char *text = ncclGetErrorString(code);
  // The last error, on this thread or in the background.
  const char *last = ncclGetLastError(comm);
  std::string message = std::string(call) + ": " +
                        (text ? text : "an unknown error of NCCL") + " (" +
                        std::to_string(static_cast<int>(code)) + ")";
  if (last && *last)
    message += std::string(": ") + last;
  return Status(statusCode(code), message + "; " + remedy(code));
}

} // namespace moert::nccl
