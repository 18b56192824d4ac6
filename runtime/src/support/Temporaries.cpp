//===- Temporaries.cpp - registry of temporary files ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Temporaries.h"

#include <atomic>
#include <climits>
#include <cstring>

#include <unistd.h>

namespace moert {

namespace {

enum class State { Free, Changing, Noted };

/// Fixed size, since a signal handler can neither lock nor allocate.
struct Note {
  std::atomic<State> state{State::Free};
  /// A forked child must not remove its parent's files.
  pid_t process = 0;
  int folder = -1;
  char name[NAME_MAX + 1] = {};

  bool change(State from, State to) {
    return state.compare_exchange_strong(from, to);
  }
};

constexpr int kMostNotes = 64;
Note notes[kMostNotes];

static_assert(std::atomic<State>::is_always_lock_free);

} // namespace

int noteTemporary(int folder, const char *name) {
  if (strlen(name) > NAME_MAX)
    return -1;
  for (int i = 0; i < kMostNotes; ++i) {
    Note &note = notes[i];
    if (!note.change(State::Free, State::Changing))
      continue;
    note.process = getpid();
    note.folder = folder;
    strcpy(note.name, name);
    note.state = State::Noted;
    return i;
  }
  return -1;
}

void forgetTemporary(int note) {
  if (note >= 0)
    notes[note].change(State::Noted, State::Free);
}

void removeTemporaries() {
  for (Note &note : notes)
    if (note.change(State::Noted, State::Changing) && note.process == getpid())
      unlinkat(note.folder, note.name, 0);
}

} // namespace moert
