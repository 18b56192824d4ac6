//===- AtomicFile.cpp - writes whole files or nothing -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AtomicFile.h"
#include "Check.h"
#include "OutputTarget.h"
#include "Random.h"
#include "Temporaries.h"
#include "Text.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moert {

static constexpr char kTemporaryMark[] = ".tmp.";
/// No writer pauses for this long.
static constexpr time_t kOldSeconds = 3600;
/// Far more than chance requires; ends the loop on a file system on which every
/// file seems to exist.
static constexpr int kMostNames = 16;

bool isTemporaryName(const std::string &name) {
  size_t mark = name.rfind(kTemporaryMark);
  // Names of earlier versions have a number and a dot after the mark.
  return mark != std::string::npos &&
         mark + sizeof(kTemporaryMark) - 1 < name.size() &&
         name.find_first_not_of("0123456789abcdef.",
                                mark + sizeof(kTemporaryMark) - 1) ==
             std::string::npos;
}

void removeIfOld(int folder, const char *name) {
  struct stat info;
  if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(info.st_mode) && time(nullptr) - info.st_mtime > kOldSeconds)
    unlinkat(folder, name, 0);
}

/// Removes temporary files that killed writers of the same file left.
static void removeLeftovers(int folder, const std::string &start) {
  Descriptor again(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR *listing = again ? fdopendir(again.get()) : nullptr;
  if (!listing)
    return;
  (void)again.release();
  while (const dirent *entry = readdir(listing))
    if (strncmp(entry->d_name, start.c_str(), start.size()) == 0 &&
        isTemporaryName(entry->d_name))
      removeIfOld(folder, entry->d_name);
  closedir(listing);
}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : path(std::move(other.path)), name(std::move(other.name)),
      temporary(std::exchange(other.temporary, {})),
      folder(std::move(other.folder)), file(std::move(other.file)),
      note(std::exchange(other.note, -1)) {}

AtomicFile::~AtomicFile() { removeTemporary(); }

void AtomicFile::removeTemporary() {
  if (!temporary.empty())
    unlinkat(folder.get(), temporary.c_str(), 0);
  temporary.clear();
  forgetTemporary(std::exchange(note, -1));
}

Status AtomicFile::fail(int error) const {
  return unavailable(path + ": cannot be written: " + strerror(error));
}

Result<AtomicFile> AtomicFile::create(const std::string &path,
                                      Devices devices) {
  Result<OutputTarget> target = resolveOutput(path);
  if (!target)
    return target.status();
  AtomicFile made(path);
  if (target->descriptor >= 0) {
    made.file = Descriptor(fcntl(target->descriptor, F_DUPFD_CLOEXEC, 0));
    return made.file ? Result<AtomicFile>(std::move(made)) : made.fail(errno);
  }
  struct stat info;
  // Renaming cannot write to a device or directory.
  if (stat(target->path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode) || devices == Devices::Refuse)
      return invalidArgument(path + ": exists and is not a regular file; "
                                    "choose another path");
    made.file = Descriptor(
        ::open(target->path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    return made.file ? Result<AtomicFile>(std::move(made)) : made.fail(errno);
  }
  size_t slash = target->path.rfind('/');
  made.name = target->path.substr(slash + 1);
  made.folder = Descriptor(::open(
      slash == std::string::npos ? "."
                                 : target->path.substr(0, slash + 1).c_str(),
      O_PATH | O_DIRECTORY | O_CLOEXEC));
  MOERT_CHECK(made.open(0666));
  return made;
}

Result<AtomicFile> AtomicFile::createIn(int folder, const std::string &name,
                                        const std::string &path, mode_t mode) {
  AtomicFile made(path);
  made.name = name;
  made.folder = Descriptor(fcntl(folder, F_DUPFD_CLOEXEC, 0));
  MOERT_CHECK(made.open(mode));
  return made;
}

Status AtomicFile::open(mode_t mode) {
  if (!folder)
    return fail(errno);
  std::array<uint8_t, 16> random;
  // Shorten a long name, so that the temporary name fits.
  std::string start =
      name.substr(0, NAME_MAX - strlen(kTemporaryMark) - 2 * random.size()) +
      kTemporaryMark;
  removeLeftovers(folder.get(), start);
  for (int i = 0; i < kMostNames; ++i) {
    MOERT_CHECK(drawRandom(random.data(), random.size()));
    temporary = start + hexText(random.data(), random.size());
    // Note the name first, in case a signal arrives in between.
    note = noteTemporary(folder.get(), temporary.c_str());
    file = Descriptor(
        openat(folder.get(), temporary.c_str(),
               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    if (file)
      return Status::ok();
    int error = errno;
    temporary.clear();
    forgetTemporary(std::exchange(note, -1));
    if (error != EEXIST)
      return fail(error);
  }
  return fail(EEXIST);
}

Status AtomicFile::write(const void *data, size_t bytes) {
  auto *next = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t written = ::write(file.get(), next, bytes);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return fail(errno);
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return Status::ok();
}

int AtomicFile::finish(int error) {
  if (file.close() != 0 && error == 0)
    error = errno;
  if (error != 0)
    removeTemporary();
  return error;
}

/// Makes the rename durable. Errors are ignored, since some file systems cannot
/// sync folders.
static void syncFolder(int folder) {
  Descriptor again(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (again)
    (void)fsync(again.get());
}

Status AtomicFile::commit(bool isDurable) {
  bool isInPlace = temporary.empty();
  int error = 0;
  // EINVAL: a pipe cannot be synced.
  if (isDurable && fsync(file.get()) != 0 && !(isInPlace && errno == EINVAL))
    error = errno;
  error = finish(error);
  if (error == 0 && !isInPlace &&
      renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) !=
          0)
    error = errno;
  // The temporary file is now the target.
  if (error == 0)
    temporary.clear();
  removeTemporary();
  if (error != 0)
    return fail(error);
  if (isDurable && !isInPlace)
    syncFolder(folder.get());
  return Status::ok();
}

Result<bool> AtomicFile::commitNew() {
  if (int error = finish(/*error=*/0))
    return fail(error);
  int error = linkat(folder.get(), temporary.c_str(), folder.get(),
                     name.c_str(), 0) == 0
                  ? 0
                  : errno;
  removeTemporary();
  if (error != 0 && error != EEXIST)
    return fail(error);
  return error == 0;
}

Status writeFileWhole(const std::string &path,
                      const std::vector<FilePart> &parts,
                      AtomicFile::Devices devices) {
  Result<AtomicFile> file = AtomicFile::create(path, devices);
  if (!file)
    return file.status();
  for (const FilePart &part : parts)
    MOERT_CHECK(file->write(part.data, part.bytes));
  return file->commit();
}

} // namespace moert
