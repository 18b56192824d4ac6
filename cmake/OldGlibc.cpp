//===- OldGlibc.cpp - functions that an old glibc lacks ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Linked into each library that others install, so that a library built with
// Debian 12's glibc 2.36 loads with glibc 2.28 (scripts/bundle has the limit).
// Objects of LLVM, libstdc++ and libgcc ask for the newest version of a
// function. A hidden definition of the function's name takes the call at link
// time, and goes on to a version that glibc 2.28 has.
//
//===----------------------------------------------------------------------===//

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

//===----------------------------------------------------------------------===//
// Functions of which glibc has an older version with the same arguments
//===----------------------------------------------------------------------===//

// A jump keeps the caller's arguments and return address, by which dlopen and
// dlsym know the caller. One section for each function lets --gc-sections drop
// what a library does not call.
#if defined(__aarch64__)
#define JUMP(name)                                                             \
  "  adrp x16, :got:old." name "\n"                                            \
  "  ldr x16, [x16, :got_lo12:old." name "]\n"                                 \
  "  br x16\n"
// The first version of this architecture stands for all that are older.
#define SYMVER(name, x86) ".symver old." name ", " name "@GLIBC_2.17\n"
constexpr int kStatVersion = 0;
#else
#define JUMP(name) "  jmp *old." name "@GOTPCREL(%rip)\n"
#define SYMVER(name, x86) ".symver old." name ", " name "@GLIBC_" x86 "\n"
constexpr int kStatVersion = 1;
#endif
#define SECTION(name) ".section .text.old." name ",\"ax\",%progbits\n"
#define HIDE(name) ".globl " name "\n.hidden " name "\n"
#define LABEL(name) ".type " name ", %function\n" name ":\n"
#define SIZE(name) ".size " name ", . - " name "\n.text\n"
#define OLD_VERSION(name, version)                                             \
  __asm__(SECTION(#name) SYMVER(#name, version) HIDE(#name) LABEL(#name)       \
              JUMP(#name) SIZE(#name))

// The versions of 2.29 do not call the handler of errors that System V had.
// Values have been the same since 2.28.
OLD_VERSION(exp, "2.2.5");
OLD_VERSION(exp2, "2.2.5");
OLD_VERSION(log, "2.2.5");
OLD_VERSION(log2, "2.2.5");
OLD_VERSION(pow, "2.2.5");
OLD_VERSION(hypot, "2.2.5");

// libpthread and libdl became parts of libc with 2.34. The old versions are in
// libpthread.so.0 and libdl.so.2 before, which the link names for this reason.
OLD_VERSION(__pthread_key_create, "2.2.5");
OLD_VERSION(pthread_attr_setstacksize, "2.2.5");
OLD_VERSION(pthread_create, "2.2.5");
OLD_VERSION(pthread_detach, "2.2.5");
OLD_VERSION(pthread_getname_np, "2.12");
OLD_VERSION(pthread_join, "2.2.5");
OLD_VERSION(pthread_mutex_trylock, "2.2.5");
OLD_VERSION(pthread_once, "2.2.5");
OLD_VERSION(pthread_rwlock_rdlock, "2.2.5");
OLD_VERSION(pthread_rwlock_unlock, "2.2.5");
OLD_VERSION(pthread_rwlock_wrlock, "2.2.5");
OLD_VERSION(pthread_setname_np, "2.12");
OLD_VERSION(pthread_sigmask, "2.2.5");
OLD_VERSION(dladdr, "2.2.5");
OLD_VERSION(dlclose, "2.2.5");
OLD_VERSION(dlerror, "2.2.5");
OLD_VERSION(dlopen, "2.2.5");
OLD_VERSION(dlsym, "2.2.5");

//===----------------------------------------------------------------------===//
// Functions that the older glibc has under another name
//===----------------------------------------------------------------------===//

extern "C" {

// The first argument says which layout the structure has; an architecture of 64
// bits has had one.
int __xstat(int version, const char *path, struct stat *result);
int __fxstat(int version, int file, struct stat *result);
int __lxstat(int version, const char *path, struct stat *result);
int __fxstatat(int version, int folder, const char *path, struct stat *result,
               int flags);
int __xstat64(int version, const char *path, struct stat64 *result);
int __fxstat64(int version, int file, struct stat64 *result);
int __lxstat64(int version, const char *path, struct stat64 *result);
int __xmknod(int version, const char *path, mode_t mode, dev_t *device);

HIDDEN int stat(const char *path, struct stat *result) noexcept {
  return __xstat(kStatVersion, path, result);
}

HIDDEN int fstat(int file, struct stat *result) noexcept {
  return __fxstat(kStatVersion, file, result);
}

HIDDEN int lstat(const char *path, struct stat *result) noexcept {
  return __lxstat(kStatVersion, path, result);
}

HIDDEN int fstatat(int folder, const char *path, struct stat *result,
                   int flags) noexcept {
  return __fxstatat(kStatVersion, folder, path, result, flags);
}

HIDDEN int stat64(const char *path, struct stat64 *result) noexcept {
  return __xstat64(kStatVersion, path, result);
}

HIDDEN int fstat64(int file, struct stat64 *result) noexcept {
  return __fxstat64(kStatVersion, file, result);
}

HIDDEN int lstat64(const char *path, struct stat64 *result) noexcept {
  return __lxstat64(kStatVersion, path, result);
}

HIDDEN int mknod(const char *path, mode_t mode, dev_t device) noexcept {
  return __xmknod(0, path, mode, &device);
}

// Sizes from 2 GiB on are cut to 32 bits. LLVM shows them, and nothing else.
HIDDEN struct mallinfo2 mallinfo2() noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
  struct mallinfo2 result = {};
  result.arena = static_cast<unsigned>(old.arena);
  result.hblkhd = static_cast<unsigned>(old.hblkhd);
  result.uordblks = static_cast<unsigned>(old.uordblks);
  result.fordblks = static_cast<unsigned>(old.fordblks);
  return result;
}

//===----------------------------------------------------------------------===//
// Functions that the older glibc lacks
//===----------------------------------------------------------------------===//

// Counters of shared pointers are atomic where the value is false.
HIDDEN char __libc_single_threaded = false;

HIDDEN uint32_t arc4random() noexcept {
  uint32_t result = 0;
  ssize_t size;
  do
    size = getrandom(&result, sizeof(result), 0);
  while (size < 0 && errno == EINTR);
  if (size != sizeof(result))
    abort();
  return result;
}

// libgcc's search for the tables of an exception asks for the one object that
// has an address, and does not look by itself when the answer is none.
HIDDEN int _dl_find_object(void *address, dl_find_object *result) noexcept {
  struct Search {
    uintptr_t address;
    dl_find_object *result;
  } search = {reinterpret_cast<uintptr_t>(address), result};
  auto visit = [](dl_phdr_info *info, size_t, void *data) {
    auto *search = static_cast<Search *>(data);
    bool isInside = false;
    void *frames = nullptr;
    for (const ElfW(Phdr) *header = info->dlpi_phdr;
         header != info->dlpi_phdr + info->dlpi_phnum; ++header) {
      uintptr_t start = info->dlpi_addr + header->p_vaddr;
      if (header->p_type == PT_LOAD)
        isInside |= search->address - start < header->p_memsz;
      if (header->p_type == PT_GNU_EH_FRAME)
        frames = reinterpret_cast<void *>(start);
    }
    if (!isInside || !frames)
      return 0;
    *search->result = {};
    search->result->dlfo_eh_frame = frames;
    return 1;
  };
  return dl_iterate_phdr(visit, &search) ? 0 : -1;
}

} // extern "C"

// Waits by the clock that a condition variable has by default. A wait may end
// early, for then the caller looks at the clock and waits again.
static int waitByWallClock(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           clockid_t clock, const timespec *end) {
  constexpr int64_t kSecond = 1000000000;
  timespec now, wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  int64_t nanoseconds = wall.tv_nsec + end->tv_nsec - now.tv_nsec;
  // Between -1 s and 2 s.
  wall.tv_sec += end->tv_sec - now.tv_sec - 1;
  nanoseconds += kSecond;
  wall.tv_sec += nanoseconds / kSecond;
  wall.tv_nsec = nanoseconds % kSecond;
  return pthread_cond_timedwait(condition, mutex, &wall);
}

// 2.30 brought a wait by a clock that nobody sets, which is taken where it is.
extern "C" HIDDEN int pthread_cond_clockwait(pthread_cond_t *condition,
                                             pthread_mutex_t *mutex,
                                             clockid_t clock,
                                             const timespec *end) {
  static const auto wait = reinterpret_cast<decltype(&waitByWallClock)>(
      dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  return (wait ? wait : waitByWallClock)(condition, mutex, clock, end);
}
