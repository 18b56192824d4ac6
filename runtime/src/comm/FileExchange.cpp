//===- FileExchange.cpp - rendezvous by a file ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Three files act as three messages. Rank 0 claims the start by the first file,
// with a random nonce. Each other rank writes this nonce and its own into a
// request file, and rank 0 answers with both and the id. Hence no rank accepts
// files of an earlier start with the same token.
//
// All files have the same fixed size: 8 bytes for the kind of file, the number
// of ranks and the rank (8 bytes each, little endian), the SHA-256 of the
// token, the two nonces, the id, and the SHA-256 of everything before.
//
//===----------------------------------------------------------------------===//

#include "../support/AtomicFile.h"
#include "../support/Check.h"
#include "../support/Random.h"
#include "../support/RegularFile.h"
#include "../support/Sha256.h"
#include "../support/Text.h"
#include "Bootstrap.h"
#include "Collectives.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moert {

namespace {

using Clock = std::chrono::steady_clock;
using Nonce = std::array<uint8_t, 32>;

struct Contents {
  char magic[8] = {'m', 'o', 'e', 'r', 't', 'i', 'd', '2'};
  uint8_t numRanks[8] = {};
  uint8_t rank[8] = {};
  Sha256Digest token = {};
  /// Nonces of this start of rank 0 (`start`) and of the writing rank (`own`).
  Nonce start = {}, own = {};
  NcclUniqueId id = {};
  Sha256Digest digest = {};

  Sha256Digest computeDigest() const {
    return sha256(this, offsetof(Contents, digest));
  }
};

static_assert(sizeof(Contents) == 3 * 8 + 32 + 2 * 32 + 128 + 32);

/// The folder, and one start's files in it.
class Meeting {
public:
  Meeting(const FileExchange &exchange, const RankEnvironment &environment,
          double limitSeconds, Descriptor folder);

  Result<NcclUniqueId> serve(const MakeUniqueId &makeId);
  Result<NcclUniqueId> ask();

private:
  std::string pathOf(const std::string &name) const {
    return exchange.folder + "/" + name;
  }
  Contents contentsOf(int64_t rank) const;
  Result<AtomicFile> make(const std::string &name, Contents contents) const;
  Status claim(const Contents &contents) const;
  Status replace(const std::string &name, const Contents &contents) const;
  Result<bool> read(const std::string &name, Contents &contents) const;
  /// Answers pending requests of ranks without an answer.
  Status answer(const Contents &claimed, std::vector<int64_t> &missing) const;
  Status nobodyAnswers(bool isClaimed) const;
  bool isOver() const { return Clock::now() >= end; }

  const FileExchange &exchange;
  const RankEnvironment &environment;
  double limitSeconds;
  Descriptor folder;
  Clock::time_point end;
  std::string claimName;
};

} // namespace

static Sha256Digest digestOf(const std::string &text) {
  return sha256(text.data(), text.size());
}

static std::string baseName(const std::string &token) {
  return "moert-" + hexText(digestOf(token).data(), 8);
}

static std::string claimNameOf(const std::string &token) {
  return baseName(token) + ".id";
}

static std::string nameOf(const std::string &token, int64_t rank,
                          const char *kind) {
  return baseName(token) + "." + std::to_string(rank) + kind;
}

static constexpr char kRequest[] = ".request", kAnswer[] = ".answer";

/// Success if a file is this user's and not writable by others, or a folder
/// this user's and not accessible to others.
static Status checkOwner(const struct stat &info, const std::string &path,
                         mode_t forbidden, const char *remedy) {
  if (info.st_uid != geteuid())
    return invalidArgument(path + ": belongs to user " +
                           std::to_string(info.st_uid) + ", not to user " +
                           std::to_string(geteuid()) + "; " + remedy);
  if ((info.st_mode & forbidden) != 0)
    return invalidArgument(path + ": is open to other users; " + remedy);
  return Status::ok();
}

static Result<Descriptor> openFolder(const FileExchange &exchange) {
  if (exchange.token.empty())
    return invalidArgument("this start of the job cannot be told from earlier "
                           "ones; set MOERT_JOB_TOKEN to the same text on all "
                           "ranks, and to a new text at each start");
  std::string path = "MOERT_BOOTSTRAP_FOLDER " + exchange.folder;
  Descriptor opened(open(exchange.folder.c_str(),
                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!opened || fstat(opened.get(), &info) != 0)
    return unavailable(path + ": cannot be opened: " + strerror(errno) +
                       "; make it with mkdir -m 700, and do not name a link");
  MOERT_CHECK(checkOwner(info, path, S_IRWXG | S_IRWXO,
                         "use your own folder, made with mkdir -m 700"));
  return opened;
}

static void storeNumber(uint8_t (&bytes)[8], int64_t value) {
  for (size_t i = 0; i < sizeof(bytes); ++i)
    bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

/// Polls often at first and then less often, since a folder of many ranks may
/// be on another machine.
static void pauseFor(std::chrono::milliseconds &length) {
  std::this_thread::sleep_for(length);
  length = std::min(length * 3 / 2, std::chrono::milliseconds(100));
}
static constexpr std::chrono::milliseconds kFirstPause(5);

Meeting::Meeting(const FileExchange &exchange,
                 const RankEnvironment &environment, double limitSeconds,
                 Descriptor folder)
    : exchange(exchange), environment(environment), limitSeconds(limitSeconds),
      folder(std::move(folder)),
      end(Clock::now() +
          std::chrono::duration_cast<Clock::duration>(
              std::chrono::duration<double>(std::min(limitSeconds, 1e9)))),
      claimName(claimNameOf(exchange.token)) {}

Contents Meeting::contentsOf(int64_t rank) const {
  Contents contents;
  storeNumber(contents.numRanks, environment.numRanks);
  storeNumber(contents.rank, rank);
  contents.token = digestOf(exchange.token);
  return contents;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static Status addRemedy(const Status &status) {
  return status ? status
                : Status(status.code(),
                         status.message() +
                             "; check the folder and its free space");
}

Result<AtomicFile> Meeting::make(const std::string &name,
                                 Contents contents) const {
  contents.digest = contents.computeDigest();
  Result<AtomicFile> file =
      AtomicFile::createIn(folder.get(), name, pathOf(name), S_IRUSR | S_IWUSR);
  if (file)
    MOERT_CHECK(file->write(&contents, sizeof(contents)));
  return file;
}

/// Does not replace an existing file.
Status Meeting::claim(const Contents &contents) const {
  Result<AtomicFile> file = make(claimName, contents);
  if (!file)
    return addRemedy(file.status());
  Result<bool> isNew = file->commitNew();
  if (!isNew)
    return addRemedy(isNew.status());
  return *isNew ? Status::ok()
                : invalidArgument(pathOf(claimName) +
                                  ": exists from an earlier start with this "
                                  "token; set MOERT_JOB_TOKEN to a new text at "
                                  "each start, or remove the file");
}

Status Meeting::replace(const std::string &name,
                        const Contents &contents) const {
  Result<AtomicFile> file = make(name, contents);
  return addRemedy(file ? file->commit() : file.status());
}

/// Whether the file exists; reads its contents.
Result<bool> Meeting::read(const std::string &name, Contents &contents) const {
  std::string path = pathOf(name);
  Result<RegularFile> file = openRegularFileIn(folder.get(), name, path);
  if (!file && file.status().code() == StatusCode::NotFound)
    return false;
  if (!file)
    return Status(file.status().code(),
                  file.status().message() + "; remove it");
  MOERT_CHECK(checkOwner(file->info, path, S_IWGRP | S_IWOTH,
                         "remove it, and find out which user wrote it"));
  ssize_t size = ::read(file->descriptor.get(), &contents, sizeof(contents));
  if (size != ssize_t(sizeof(contents)) ||
      memcmp(contents.magic, Contents().magic, sizeof(contents.magic)) != 0 ||
      contents.digest != contents.computeDigest())
    return invalidArgument(
        path +
        ": is damaged, or not a file of this job; remove it and start again");
  return true;
}

//===----------------------------------------------------------------------===//
// Rank 0
//===----------------------------------------------------------------------===//

Status Meeting::answer(const Contents &claimed,
                       std::vector<int64_t> &missing) const {
  std::vector<int64_t> left;
  for (int64_t rank : missing) {
    Contents request;
    Result<bool> isThere =
        read(nameOf(exchange.token, rank, kRequest), request);
    if (!isThere)
      return isThere.status();
    // A stale request has the nonce of another start.
    if (!*isThere || request.start != claimed.start) {
      left.push_back(rank);
      continue;
    }
    Contents answer = claimed;
    storeNumber(answer.rank, rank);
    answer.own = request.own;
    MOERT_CHECK(replace(nameOf(exchange.token, rank, kAnswer), answer));
  }
  missing = std::move(left);
  return Status::ok();
}

Result<NcclUniqueId> Meeting::serve(const MakeUniqueId &makeId) {
  Result<NcclUniqueId> id = makeId();
  if (!id)
    return id;
  Contents contents = contentsOf(/*rank=*/0);
  MOERT_CHECK(drawRandom(contents.start.data(), contents.start.size()));
  MOERT_CHECK(claim(contents));
  contents.id = *id;
  std::vector<int64_t> missing;
  for (int64_t rank = 1; rank < environment.numRanks; ++rank)
    missing.push_back(rank);
  std::chrono::milliseconds length = kFirstPause;
  while (true) {
    MOERT_CHECK(answer(contents, missing));
    if (missing.empty())
      return id;
    if (isOver())
      break;
    pauseFor(length);
  }
  // Leave nothing for the next start to find.
  unlinkat(folder.get(), claimName.c_str(), 0);
  return unavailable(ranksText(missing) + " did not come to " +
                     pathOf(claimName) + " within " +
                     secondsText(limitSeconds) +
                     "; look for an earlier error there");
}

//===----------------------------------------------------------------------===//
// Other ranks
//===----------------------------------------------------------------------===//

Status Meeting::nobodyAnswers(bool isClaimed) const {
  std::string path = pathOf(claimName);
  if (isClaimed)
    return unavailable(
        path +
        ": was written by rank 0 of an earlier start, and no rank 0 has "
        "answered within " +
        secondsText(limitSeconds) +
        "; look for an earlier error of rank 0, remove the file, and set "
        "MOERT_JOB_TOKEN to a new text at each start");
  return unavailable(
      path + ": was not written by rank 0 within " + secondsText(limitSeconds) +
      "; look for an earlier error of rank 0, and check that all ranks have "
      "the same MOERT_BOOTSTRAP_FOLDER and MOERT_JOB_TOKEN");
}

Result<NcclUniqueId> Meeting::ask() {
  Contents mine = contentsOf(environment.rank);
  MOERT_CHECK(drawRandom(mine.own.data(), mine.own.size()));
  std::string request = nameOf(exchange.token, environment.rank, kRequest);
  std::string reply = nameOf(exchange.token, environment.rank, kAnswer);
  std::chrono::milliseconds length = kFirstPause;
  while (true) {
    Contents claimed, answered;
    Result<bool> isClaimed = read(claimName, claimed);
    if (!isClaimed)
      return isClaimed.status();
    if (*isClaimed) {
      if (claimed.token != mine.token ||
          memcmp(claimed.numRanks, mine.numRanks, sizeof(mine.numRanks)) != 0)
        return invalidArgument(
            pathOf(claimName) +
            ": belongs to a job with another token or number of ranks; remove "
            "it, and set the same MOERT_JOB_TOKEN on all ranks");
      if (claimed.start != mine.start) {
        mine.start = claimed.start;
        MOERT_CHECK(replace(request, mine));
      }
    }
    Result<bool> isAnswered = read(reply, answered);
    if (!isAnswered)
      return isAnswered.status();
    if (*isAnswered && answered.start == mine.start &&
        answered.own == mine.own) {
      unlinkat(folder.get(), request.c_str(), 0);
      unlinkat(folder.get(), reply.c_str(), 0);
      return answered.id;
    }
    if (isOver()) {
      unlinkat(folder.get(), request.c_str(), 0);
      return nobodyAnswers(*isClaimed);
    }
    pauseFor(length);
  }
}

Result<NcclUniqueId> exchangeByFile(const FileExchange &exchange,
                                    const RankEnvironment &environment,
                                    double limitSeconds,
                                    const MakeUniqueId &makeId) {
  MOERT_CHECK(checkLimit(limitSeconds));
  Result<Descriptor> folder = openFolder(exchange);
  if (!folder)
    return folder.status();
  Meeting meeting(exchange, environment, limitSeconds, std::move(*folder));
  return environment.rank == 0 ? meeting.serve(makeId) : meeting.ask();
}

void removeExchanged(const FileExchange &exchange) {
  if (Result<Descriptor> folder = openFolder(exchange))
    unlinkat(folder->get(), claimNameOf(exchange.token).c_str(), 0);
}

} // namespace moert
